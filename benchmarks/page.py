"""What a benchmark leaves: tables, pictures, and the page that shows them between its marks."""

import os
import platform
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import torch

from benchmarks.measuring import Measurement, Part
from benchmarks.plots import FIGURES
from countertrain.files import write_text
from reproduction.writing import insert_tables, markdown, write_figure

__all__ = ["format_cells", "machine", "write_page", "write_results"]

_TITLES = {
    "search": (
        "Search",
        """\
1000 rows, 30 steps, a network of 32 hidden units, target the other class. The *limit* is a bare torch loop over
cross-entropy alone: no penalty, no constraint, no look at the rows. Validity is the share of rows that end in their
target class. The methods do not solve the same problem: PGD knows no distance but the sup-norm, DiCE rounds, and no
peer has features that may only increase. Peers run at their defaults but for the number of steps.""",
    ),
    "training": (
        "Training",
        """\
One epoch at the same batches from the same weights. CT searches 1000 rows per epoch; adversarial and JEM-style training
attack or sample every row of every batch, so most of the difference is work, not code.""",
    ),
    "fitting": (
        "Fitting a table",
        """\
8,400 rows of eight features, a network of 32 hidden units, 30 epochs of 65 updates, nothing compiled: where a user
feels speed.""",
    ),
    "populations": (
        "Populations",
        """\
Moon, final settings: many models of one architecture trained at once, seconds per model for 100 epochs.""",
    ),
    "growth": (
        "Growth",
        """\
Time and peak memory along one size, all others kept; no row matures. Memory is what the work needs above what was there
before it, in a process of its own.""",
    ),
    "explaining": (
        "Explaining",
        """\
Loans, 10,000 rows, seven tenths of them to train on, with the defaults of the classifier: advice for 10,000 people who
are refused (drawn with repetition), and the judgement of advice to 200 of them for seven probabilities tau, with two
retrainings of the classifier on halves of its rows.""",
    ),
    "grid": (
        "The grid of 270 models",
        """\
The paper's grid of generator parameters for one synthetic data set, from nothing to outcomes. The published time is of
training alone; the evaluation took up to an hour more on 20 CPUs.""",
    ),
}
_HEAD = """\
# Performance

What `python -m benchmarks` measured: ratios side by side in one run, contenders taking turns and the least time of each
counting, on one thread. Compile time is given apart; torch keeps compiled code on disk, so it is shorter the next time.
Libraries that were not installed are named as such.

    pip install -e '.[peers]'                 # the other libraries
    pip install --no-deps jax-relax==0.2.9    # apart: it asks for pydantic 1, and gets the one that pydantic 2 contains
    python -m benchmarks --page docs/performance.md          # measures, and renders this page anew
    python -m benchmarks --grid --page docs/performance.md   # with the grid of 270 models
"""


def machine() -> str:
    """Processor, cores and versions: enough to read the numbers by, nothing that names the machine."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    today = datetime.now(UTC).date().isoformat()
    return (
        f"{model}, {os.cpu_count()} cores, {platform.system()}; torch {torch.__version__}, "
        f"Python {platform.python_version()}; {today}"
    )


def write_results(parts: Sequence[Part], folder: Path, *, measured_on: str) -> list[Path]:
    """Of each part its numbers as csv, its section of the page as Markdown, and its picture as png and svg."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for part in parts:
        texts = {
            f"{part.name}.csv": part.table.to_csv(index=False, float_format="%.5g"),
            f"{part.name}-bars.csv": _claims(part.measurements).to_csv(index=False, float_format="%.5g"),
            f"{part.name}.md": _section(part, measured_on),
        }
        for name, text in texts.items():
            write_text(folder / name, text)
        paths += [folder / name for name in texts]
        if part.name in FIGURES:
            paths += write_figure(part.name, FIGURES[part.name](part), folder)
    return paths


def write_page(page: Path, folder: Path) -> list[str]:
    """Bring the page up to date with what lies in a folder of results; return the sections that were put in.

    Only what stands between marks is replaced. A page that is not there yet is begun, and its pictures lie in a
    folder beside it that has its name.
    """
    page.parent.mkdir(parents=True, exist_ok=True)
    if not page.exists():
        write_text(page, _skeleton(page.stem))
    pictures = page.with_suffix("")
    for name in FIGURES:
        if (folder / f"{name}.svg").exists():
            pictures.mkdir(exist_ok=True)
            shutil.copyfile(folder / f"{name}.svg", pictures / f"{name}.svg")
    return insert_tables(page, folder)


def format_cells(table: pd.DataFrame) -> pd.DataFrame:
    """A table as people read it: three digits, thousands apart, nothing for what is not there."""
    return table.map(_cell)


def _section(part: Part, measured_on: str) -> str:
    parts = [
        markdown(format_cells(_claims(part.measurements))),
        markdown(format_cells(part.table)),
        f"*{measured_on}*\n",
    ]
    return "\n".join(parts)


def _claims(measurements: Sequence[Measurement]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "measurement": m.what,
                "value": m.value,
                "unit": m.unit,
                "bar": f"{'>=' if m.at_least else '<='} {m.bar:g}",
                "holds": "yes" if m.holds else "no",
                "note": m.note,
            }
            for m in measurements
        ]
    )


def _skeleton(pictures: str) -> str:
    """The page without numbers."""
    sections = [_HEAD]
    for name, (title, text) in _TITLES.items():
        picture = f"![{title}]({pictures}/{name}.svg)\n\n" if name in FIGURES else ""
        sections.append(f"## {title}\n\n{text}\n\n{picture}<!-- begin {name} -->\n<!-- end {name} -->\n")
    return "\n".join(sections)


def _cell(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    if value != value:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
