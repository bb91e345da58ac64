"""The main job: a table of loans from file to advice, and the advice judged by the process that made the table."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from countertrain.files import write_text
from countertrain.recourse.answer import Recourse
from countertrain.recourse.decider import Decider
from countertrain.recourse.explanation import Explanation
from countertrain.recourse.search import RecourseSearch
from countertrain.runs.run import Run
from countertrain.runs.settings import Settings
from countertrain.runs.training import train
from countertrain.tables.sources.loan_process import People, draw, find_broken_rules, true_probability
from countertrain.tables.sources.loans import LABEL, SCHEMA, name_outcomes
from countertrain.training.trainer import Callback

__all__ = ["Job", "Outcome", "Person", "Watch", "advise_applicants", "choose_examples", "train_both"]

Watch = Callable[[str, int], AbstractContextManager[Callback]]
"""Title and number of epochs of a training -> a context with a callback that shows how far it is."""
_WANTED = "repaid"
_TAUS = (None, 0.5, 0.6, 0.75, 0.85, 0.9, 0.95)  # as it is by default; and from just accepted to surely accepted
_EXAMPLES = 3


@dataclass(frozen=True)
class Outcome:
    """What advice of one model comes to, on average over the people whom it was given."""

    model: str
    tau: float
    """The probability that the model was asked to promise."""
    default: bool
    """Whether that is what it is asked for where nobody says otherwise."""
    promised: float
    """The probability of repaying that the model gives to the rows that people are told."""
    true_probability: float
    """The same by the process, once people have acted."""
    repaying: float
    """The share who are then more likely than not to repay."""
    possible: float
    """The share whose told row somebody could have."""
    cost: float
    n_changed: float


@dataclass(frozen=True, eq=False)
class Person:
    """Somebody who was declined, what the model tells them, and the truth."""

    explanation: Explanation
    before: float
    after: float
    """How probable it is that they repay, by the process: as they are, and once they have acted."""


@dataclass(frozen=True, eq=False)
class Job:
    """New applicants whom both models declined, and what the advice of each model would make of them."""

    n_rows: int
    head: pd.DataFrame
    """The table that was learnt from: its number of rows, and the first of them."""
    n_applicants: int
    n_declined: int
    before: float
    repaying_before: float
    """The mean true probability of those who are told what to change, and the share above one half, before they do."""
    accepted: float
    """The mean true probability of the applicants whom CT accepts: what advice could come to."""
    accuracy: dict[str, float]
    outcomes: Sequence[Outcome]
    """Of each model, for each probability that it was asked to promise."""
    people: Sequence[Person]

    @property
    def first_outcomes(self) -> list[Outcome]:
        """What the advice of each model comes to where nobody asks for another tau."""
        return [outcome for outcome in self.outcomes if outcome.default]


def train_both(folder: Path, n_people: int, *, watch: Watch, say: Callable[[str], None]) -> Run:
    """Write loans.csv and its schema, and train a CT model and its conventional twin on it."""
    people = draw(n_people, seed=42)
    folder.mkdir(parents=True, exist_ok=True)
    table = people.rows.assign(**{LABEL: name_outcomes(people.repaid)})
    write_text(folder / "loans.csv", table.to_csv(index=False))
    write_text(folder / "schema.toml", SCHEMA.to_toml())
    given = {"label": LABEL, "schema_file": str(folder / "schema.toml")}
    settings = Settings.resolve(str(folder / "loans.csv"), given)
    with watch("loans.csv", settings.epochs) as callback:
        return train(settings, folder / "loans", twin=True, overwrite=True, callbacks=[callback], say=say)


def advise_applicants(
    run: Run, folder: Path, *, n_applicants: int, n_told: int, progress: Callable[[int, int], None]
) -> Job:
    """Let new applicants come, tell those whom both models decline what to change, and ask the process what it does."""
    applicants = draw(n_applicants, seed=7)  # nobody of them was trained on
    write_text(folder / "applicants.csv", applicants.rows.to_csv(index=False))
    assert run.twin is not None
    deciders = {"conventional": run.twin.decider, "CT": run.decider}
    accepts = {name: _accept(decider, applicants.rows) for name, decider in deciders.items()}
    neither = np.flatnonzero(~np.logical_or(*accepts.values()))
    told = applicants.take(neither[:n_told])
    found = _explain(deciders, told, progress)
    table, truth = pd.read_csv(folder / "loans.csv"), true_probability(told)
    return Job(
        n_rows=len(table),
        head=table.head(),
        n_applicants=n_applicants,
        n_declined=len(told),
        before=float(truth.mean()),
        repaying_before=float((truth > 0.5).mean()),
        accepted=float(true_probability(applicants)[accepts["CT"]].mean()),
        accuracy={name: float((said == applicants.repaid).mean()) for name, said in accepts.items()},
        outcomes=sorted(
            (_judge(name, tau, deciders[name], recourse, told) for (name, tau), recourse in found.items()),
            key=lambda outcome: (outcome.model == "CT", outcome.tau),
        ),
        people=choose_examples(found["CT", None], told),
    )


def _accept(decider: Decider, rows: pd.DataFrame) -> NDArray[np.bool_]:
    """(n,), whom a model trusts to repay."""
    decided = decider.decide(torch.from_numpy(decider.encoder.encode(rows)))
    return (decided == decider.classes.index(_WANTED)).numpy()


def _explain(
    deciders: dict[str, Decider], told: People, progress: Callable[[int, int], None]
) -> dict[tuple[str, float | None], Recourse]:
    """What each model tells these people, for each probability that it is asked to promise."""
    found: dict[tuple[str, float | None], Recourse] = {}
    for name, decider in deciders.items():
        search = RecourseSearch.of(decider)
        request = search.request(told.rows, _WANTED)
        for tau in _TAUS:
            found[name, tau] = search([request], tau=tau)[0]
            progress(len(found), len(deciders) * len(_TAUS))
    return found


def _judge(name: str, tau: float | None, decider: Decider, recourse: Recourse, people: People) -> Outcome:
    """What the process makes of the first option of each person; who gets none stays as they are."""
    told, table = _told_rows(recourse, people), recourse.table
    first = table.number == 1
    truth = true_probability(people, told)
    return Outcome(
        model=name,
        tau=_default_tau(decider) if tau is None else tau,
        default=tau is None,
        promised=float(table.probability[first].mean()),
        true_probability=float(truth.mean()),
        repaying=float((truth > 0.5).mean()),
        possible=float(1 - find_broken_rules(told).mean()),
        cost=float(table.costs[first].sum(1).mean()),
        n_changed=float((table.costs[first] > 0).sum(1).mean()),
    )


def _default_tau(decider: Decider) -> float:
    return RecourseSearch.of(decider).default_tau(torch.tensor([decider.classes.index(_WANTED)]))


def _told_rows(recourse: Recourse, people: People) -> pd.DataFrame:
    """(n, 14), what people would be if they did just what they were told."""
    table, rows = recourse.table, people.rows.astype(object)
    first = np.flatnonzero(table.number == 1)
    rows.iloc[table.row[first]] = table.values[rows.columns].iloc[first].astype(object)
    return rows.astype(people.rows.dtypes.to_dict())


def choose_examples(recourse: Recourse, people: People) -> list[Person]:
    """The first people who differ in what they are told."""
    before, after = true_probability(people), true_probability(people, _told_rows(recourse, people))
    shown: dict[tuple[str, ...], Person] = {}
    for i, explanation in enumerate(recourse):
        columns = tuple(change.column for option in explanation.options[:1] for change in option.changes)
        shown.setdefault(columns, Person(explanation, float(before[i]), float(after[i])))
        if len(shown) == _EXAMPLES:
            break
    return list(shown.values())
