"""Adult with the authors' slip at test time: the number `education-num` counted among the columns of `education`.

Their program finds one-hot groups by substrings of column names. Needs the models that `python -m reproduction table1
--datasets adult` leaves under runs/paper. Writes results/paper/why-adult.{csv,md,tex}: `python -m
reproduction.why_adult`.
"""

from dataclasses import fields, replace
from pathlib import Path

import pandas as pd
import torch

from countertrain.cli.console import console, frame_table
from countertrain.evaluation.comparison import compare
from countertrain.runs.folder import read_run
from countertrain.runs.measure import measure
from countertrain.runs.registry import build_protocol
from countertrain.runs.run import Run
from countertrain.tables import Dataset
from reproduction.published import TABLE1
from reproduction.tables import paper_label
from reproduction.writing import write_table

ROUNDS = 10


class Slipped(Dataset):
    """Adult with `education-num` in the group of `education`."""

    @property
    def categories(self) -> tuple[slice, ...]:
        """The one-hot groups, one of them with a column too many."""
        column = self.features.index("education-num")
        return tuple(slice(g.start, column + 1) if g.stop == column else g for g in super().categories)


def with_slip(run: Run) -> Run:
    """The same run with the slip in its data."""
    slipped = Slipped(**{field.name: getattr(run.data, field.name) for field in fields(run.data)})
    assert slipped.categories != run.data.categories
    return replace(run, data=slipped)


def _evaluate(run: Run) -> pd.DataFrame:
    protocol = build_protocol(run.settings, rounds=ROUNDS, individuals=100)
    return measure(run.models, run.settings, run.data, run.data.test, protocol).records


def main() -> None:
    """Evaluate both ways, and write the table."""
    torch.set_num_threads(1)
    rows = []
    for variant, metrics in (("", ("ip", "ip_star")), ("-protected", ("cost",))):
        runs = [read_run(Path("runs/paper/as-run") / f"adult-{objective}{variant}-10") for objective in ("ct", "bl")]
        for name, change in (("ours", lambda run: run), ("with the slip", with_slip)):
            records = [_evaluate(change(run)) for run in runs]
            for reduction in compare(records[0], records[1], metrics):
                rows.append(
                    {
                        "metric": paper_label(reduction.metric),
                        "evaluation": name,
                        "published": TABLE1["adult", reduction.metric].percent,
                        "reduction": reduction.percent,
                        "sd over seeds": reduction.seed_sd,
                    }
                )
    frame = pd.DataFrame(rows)
    write_table("why-adult", frame, Path("results/paper"))
    console.print(frame_table("Adult, evaluated both ways", frame))


if __name__ == "__main__":
    main()
