"""What people see in the terminal: tables and progress."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

if TYPE_CHECKING:
    import pandas as pd

    from countertrain.demo.job import Job
    from countertrain.demo.proof import PanelResult
    from countertrain.evaluation.comparison import Reduction
    from countertrain.judge import Verdict
    from countertrain.runs.measure import Scores
    from countertrain.training.history import EpochRecord
    from countertrain.training.trainer import Callback

__all__ = [
    "console",
    "counting",
    "download_bar",
    "frame_table",
    "panel_table",
    "print_reductions",
    "score_table",
    "training_bar",
    "training_bars",
    "truth_table",
    "verdict_table",
]

console = Console(highlight=False)
_SHOWN = {"mature": "mature", "yloss": "yloss", "div": "div", "advloss": "adv", "ridge": "ridge", "teach": "teach"}


def _progress() -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[note]}"),
        console=Console(stderr=True, highlight=False),
        disable=not Console(stderr=True).is_terminal,
    )


@contextmanager
def training_bar(description: str, n_epochs: int) -> Iterator["Callback"]:
    """A bar that shows epochs, time left, the share of mature counterfactuals and each loss term.

    Where nobody watches (no terminal), a line every tenth of the way instead.
    """
    with training_bars([description], n_epochs) as (bar,):
        yield bar


@contextmanager
def training_bars(descriptions: Sequence[str], n_epochs: int) -> Iterator[list["Callback"]]:
    """The same for trainings that come one after another; the bar of each is shown once it begins."""
    with _progress() as progress:

        def watch(description: str, *, visible: bool) -> "Callback":
            task = progress.add_task(description, total=n_epochs, note="", visible=visible)
            return lambda record: show(record, description, task)

        def show(record: "EpochRecord", description: str, task: TaskID) -> None:
            note = "  ".join(
                f"{label} {sum(values) / len(values):.3g}"
                for name, label in _SHOWN.items()
                if (values := record.metrics.get(name))
            )
            progress.update(task, completed=record.epoch, note=note, visible=True)
            if progress.disable and record.epoch % max(1, n_epochs // 10) == 0:
                console.print(f"{description}  epoch {record.epoch}/{n_epochs}  {note}", soft_wrap=True)

        yield [watch(description, visible=i == 0) for i, description in enumerate(descriptions)]


@contextmanager
def counting(description: str) -> Iterator[Any]:
    """A bar for work that reports how much of it is done."""
    with _progress() as progress:
        task = progress.add_task(description, total=None, note="")
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def download_bar() -> Iterator[None]:
    """A bar for whatever is downloaded inside; nothing is shown where nothing is."""
    from countertrain.tables.sources.downloads import watch_downloads

    columns = (TextColumn("downloading {task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=Console(stderr=True))
    tasks: dict[str, TaskID] = {}

    def report(name: str, done: int, total: int | None) -> None:
        progress.start()
        if name not in tasks:
            tasks[name] = progress.add_task(name)
        progress.update(tasks[name], completed=done, total=total)
        if done == total:
            progress.stop()

    try:
        with watch_downloads(report):
            yield
    finally:
        if progress.live.is_started:
            progress.stop()


def score_table(title: str, scores: Mapping[str, "Scores"]) -> Table:
    """Outcomes of one or two runs side by side; ± is the standard deviation over training seeds."""
    from countertrain.evaluation.metrics import known

    table = Table(title=escape(title), title_justify="left", caption_justify="left")
    table.add_column("outcome")
    columns = {name: one.table for name, one in scores.items()}
    for name, frame in columns.items():
        table.add_column(f"{name} ({len(frame)} seed{'s' if len(frame) > 1 else ''})", justify="right")
    for name, metric in known().items():
        table.add_row(metric.heading, *(_with_spread(frame[name]) for frame in columns.values()))
    taus = " and ".join(dict.fromkeys(f"{one.tau:g}" for one in scores.values()))
    table.caption = f"counterfactuals are searched up to probability tau = {taus}"
    if any(len(frame) > 1 for frame in columns.values()):
        table.caption += "; ± standard deviation over training seeds"
    return table


def print_reductions(reductions: Sequence["Reduction"]) -> None:
    """By how many percent implausibility and cost are lower than for the baseline, and how to read that."""
    from countertrain.evaluation.comparison import ENOUGH_ROUNDS

    n_rounds = min((r.n_rounds for r in reductions), default=0)
    star = "*: the 99 % interval over those rounds excludes 0, and the reduction is larger than its spread over seeds."
    if n_rounds < ENOUGH_ROUNDS:
        star = f"No * is given for fewer than {ENOUGH_ROUNDS} rounds; there are {n_rounds}."
    console.print(_reduction_table(reductions))
    console.print(
        "A reduction is the mean over evaluation rounds of 1 - CT / BL of a round, so it differs from that of the two "
        "columns of means. ± seeds: sd over training seeds. ± rounds: sd over evaluation rounds of one trained pair. "
        + star,
        style="dim",
        soft_wrap=True,
    )


def _reduction_table(reductions: Sequence["Reduction"]) -> Table:
    from countertrain.evaluation.metrics import known

    table = Table(title="Reduction against the baseline", title_justify="left")
    for heading in ("metric", "reduction", "± seeds", "± rounds", "CT", "BL", "clear"):
        table.add_column(heading, justify="left" if heading in ("metric", "clear") else "right")
    for r in reductions:
        seeds = "one seed only" if r.seed_sd != r.seed_sd else f"{r.seed_sd:.1f}"
        star = "*" if r.significant else ""
        table.add_row(
            known()[r.metric].label,
            f"{r.percent:.1f} %",
            seeds,
            f"{r.round_sd:.1f}",
            f"{r.treated:.4g}",
            f"{r.baseline:.4g}",
            star,
        )
    return table


def truth_table(job: "Job") -> Table:
    """What advice comes to by the process that the loans come from."""
    title = f"Loans: what {job.n_declined} declined people are told, judged by the truth"
    table = Table(title=title, title_justify="left", caption_justify="left")
    for heading in ("advice of", "promised", "in truth", "likely", "cost", "changes", "possible"):
        table.add_column(heading, justify="left" if heading == "advice of" else "right")
    table.add_row("nobody yet", "", f"{job.before:.2f}", f"{job.repaying_before:.0%}", "", "", "")
    for o in job.first_outcomes:
        truth = (f"{o.promised:.2f}", f"{o.true_probability:.2f}", f"{o.repaying:.0%}")
        table.add_row(o.model, *truth, f"{o.cost:.2f}", f"{o.n_changed:.1f}", f"{o.possible:.0%}")
    table.caption = (
        "promised, in truth: mean probability of repaying, by the model and by the process "
        f"({job.accepted:.2f} for applicants whom CT accepts); likely: share above one half"
    )
    return table


def verdict_table(verdict: "Verdict") -> Table:
    """What the panel makes of advice, for each probability that it is to reach, and of real people."""
    table = Table(title=f"Advice towards {escape(repr(verdict.target))}", title_justify="left", caption_justify="left")
    table.add_column("probability asked for")
    standings = verdict.standings
    for one in standings:
        table.add_column(f"{one.tau:g}{'*' if one.tau == verdict.default else ''}", justify="right")
    table.add_column("real", justify="right")
    table.add_row("cost", *(f"{one.cost:.1f}" for one in standings), "")
    table.add_row("columns changed", *(f"{one.n_changed:.1f}" for one in standings), "")
    for name, share in verdict.ceiling.items():
        table.add_row(f"{name} accepts", *(f"{one.accepted[name]:.0%}" for one in standings), f"{share:.0%}")
    whole = (f"{one.whole:.0%}" for one in standings)
    table.add_row("whole panel accepts", *whole, f"{verdict.whole_ceiling:.0%}", style="bold")
    if standings[0].typical is not None:
        table.add_row("typical", *(f"{one.typical:.0f}" for one in standings), "50")
        table.add_row("distance", *(f"{one.distance:.2f}" for one in standings), "1.00")
    table.caption = (
        "*: the default. Cost in normal scores, 1 for another level; typical: percentile among real people by local "
        "outlier factor; distance: to the five nearest, relative to real people's"
    )
    return table


def panel_table(panels: Sequence["PanelResult"]) -> Table:
    """Figure 1 in numbers."""
    table = Table(title="Figure 1: a linear model of debt and age, rejected applicants explained", title_justify="left")
    for heading in ("panel", "weight of age / debt", "IP", "cost", "validity", "accuracy"):
        table.add_column(heading, justify="left" if heading == "panel" else "right")
    for p in panels:
        numbers = (f"{p.age_weight:.2f}", f"{p.ip:.2f}", f"{p.cost:.2f}", f"{p.validity:.0%}", f"{p.accuracy:.1%}")
        table.add_row(p.panel.title, *numbers)
    return table


def frame_table(title: str, frame: "pd.DataFrame") -> Table:
    """Any table of numbers."""
    table = Table(title=title, title_justify="left")
    for column in frame.columns:
        table.add_column(str(column), justify="right" if frame[column].dtype.kind in "biuf" else "left")
    for row in frame.itertuples(index=False):
        table.add_row(*(f"{v:.1f}" if isinstance(v, float) else str(v) for v in row))
    return table


def _with_spread(values: "pd.Series[float]") -> str:
    mean = f"{values.mean():.4g}"
    return mean if len(values) == 1 else f"{mean} ± {values.std(ddof=1):.2g}"
