"""Tables and figures as files, and tables put into a document."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from countertrain.files import write_text

__all__ = ["insert_tables", "markdown", "write_figure", "write_table"]


def write_figure(name: str, figure: Figure, folder: Path) -> list[Path]:
    """A figure as png and svg."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{kind}" for kind in ("png", "svg")]
    figure.savefig(paths[0], dpi=150)
    figure.savefig(paths[1], metadata={"Date": None})
    return paths


def write_table(name: str, frame: pd.DataFrame, folder: Path) -> list[Path]:
    """A table as csv, md and tex; nothing where there are no records."""
    if frame.empty:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{kind}" for kind in ("csv", "md", "tex")]
    shown = frame.map(_cell)
    write_text(paths[0], frame.to_csv(index=False, float_format="%.5g"))
    write_text(paths[1], markdown(shown))
    write_text(paths[2], latex(shown))
    return paths


def insert_tables(document: Path, rendered: Path) -> list[str]:
    """Put the rendered Markdown tables between their marks in a document; return the names of those put in."""
    text = document.read_text(encoding="utf-8")
    names = re.findall(r"<!-- begin (\S+) -->", text)
    done = []
    for name in names:
        table = rendered / f"{name}.md"
        if table.exists():
            begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
            head, _, rest = text.partition(begin)
            _, _, tail = rest.partition(end)
            text = f"{head}{begin}\n{table.read_text(encoding='utf-8')}{end}{tail}"
            done.append(name)
    write_text(document, text)
    return done


def markdown(frame: pd.DataFrame) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(map(str, frame.columns)) + " |", "|" + "---|" * len(frame.columns)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in frame.itertuples(index=False)]
    return "\n".join(lines) + "\n"


def latex(frame: pd.DataFrame) -> str:
    """A table in LaTeX, with booktabs."""

    def escape(text: object) -> str:
        return str(text).replace("%", r"\%").replace("±", r"$\pm$").replace("_", r"\_")

    lines = [rf"\begin{{tabular}}{{{'l' * len(frame.columns)}}}", r"\toprule"]
    lines += [" & ".join(map(escape, frame.columns)) + r" \\", r"\midrule"]
    lines += [" & ".join(map(escape, row)) + r" \\" for row in frame.itertuples(index=False)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _cell(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    if np.isnan(value):
        return ""
    return f"{value:.2f}" if abs(value) < 1000 else f"{value:.3g}"
