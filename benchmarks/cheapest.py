"""`python -m benchmarks.cheapest`, from a clone: whether what is recommended is the cheapest that there is.

Comparisons on real tables: with the best change of any one column, by brute force; with further options, weighed as the
search weighs them, and with those alone that are worse in nothing (as sure, as typical, no more columns); and, on a
network small enough to be solved exactly, of the kind "cheapest" with the exact optimum.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import typer
from torch import Tensor

from benchmarks.advice_tables import TABLES
from countertrain.cli.app import run
from countertrain.cli.console import console, frame_table
from countertrain.estimator import CounterfactualClassifier
from countertrain.recourse.attempt import Attempt
from countertrain.recourse.defaults import N_STEPS
from countertrain.recourse.ladder import Ladder
from countertrain.recourse.network import Network
from countertrain.recourse.options import find_options
from countertrain.recourse.proof.exact import ask_exactly
from countertrain.recourse.reach import Reach
from countertrain.recourse.search import RecourseSearch, Request

__all__ = ["Comparison", "compare_with_exact", "compare_with_options", "compare_with_single", "main", "try_columns"]

_VALUES = 64  # of a number that are tried by brute force
_SAME = 1.001  # a price that is not higher by more than that is no higher
_TINY = 0.02  # a cost below that is a step or two of the grid
_SMALL = {
    "settings": {"profile": "table", "model": "mlp"},
    "hidden": (12,),
    "n_models": 1,
    "epochs": 15,
    "objective": "ct",
    "teacher": "none",
    "random_state": 0,
}

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Comparison:
    """What was recommended, against something else, of people who have both."""

    n: int
    beaten: float
    """The share of them for whom the other is cheaper."""
    mean_ratio: float
    """Of prices: what was recommended to the other, where that one is cheaper or not."""
    median_ratio: float

    @classmethod
    def of(cls, ours: Tensor, theirs: Tensor) -> "Comparison":
        """Of prices (n,), infinite where there is none."""
        both = theirs.isfinite() & (theirs > _TINY)
        ours, theirs = ours[both], theirs[both]
        beaten = float((ours > _SAME * theirs).double().mean()) if len(ours) else 0.0
        ratio = (ours / theirs)[ours.isfinite()]
        return cls(len(ours), beaten, float(ratio.mean()), float(ratio.median()))


def measure_price(ladder: Ladder, attempt: Attempt, reach: Reach, target: Tensor) -> Tensor:
    """(n,), what the ladder weighs options by; infinite for those short of tau."""
    price = ladder._price(attempt.x, reach, target)
    return price.masked_fill(~ladder.reaches_tau(attempt), torch.inf)


def try_columns(ladder: Ladder, reach: Reach, target: Tensor, *, n_values: int = _VALUES) -> Tensor:
    """(n,), the lowest price of a change of one column, all levels and many values of numbers tried one by one."""
    best = torch.full((len(reach),), torch.inf, dtype=torch.float64)
    grid = ladder.grid
    for column in range(grid.n_columns):
        features = (grid.column_of == column).nonzero()[:, 0]
        for x in _list_changes(grid.number[features[0]].item(), features, reach, n_values):
            tried = ladder.judge(grid.snap(x, reach), target)
            changed = (tried.x != reach.origin).any(1)
            price = measure_price(ladder, tried, reach, target)
            best = torch.where(changed, torch.minimum(best, price), best)
    return best


def _list_changes(number: bool | float, features: Tensor, reach: Reach, n_values: int) -> Any:
    if number:
        d = features[0]
        for share in torch.linspace(0, 1, n_values, dtype=torch.float64):
            x = reach.origin.clone()
            x[:, d] = reach.low[:, d] + share * (reach.high[:, d] - reach.low[:, d])
            yield x
    else:
        for d in features:
            x = reach.origin.clone()
            able = reach.high[:, d] >= 1
            wide = len(features) > 1
            x[:, features] = torch.where(able.unsqueeze(1) & torch.tensor(wide), 0.0, x[:, features])
            x[:, d] = torch.where(able, 1.0 if wide else 1.0 - reach.origin[:, d], x[:, d])
            yield torch.where((x < reach.low) | (x > reach.high), reach.origin, x)


def compare_with_single(ladder: Ladder, reach: Reach, target: Tensor, first: Attempt) -> Comparison:
    """What is recommended against the best change of one column."""
    return Comparison.of(measure_price(ladder, first, reach, target), try_columns(ladder, reach, target))


def compare_with_options(
    ladder: Ladder, reach: Reach, target: Tensor, first: Attempt, n: int = 10
) -> tuple[Comparison, Comparison]:
    """What is recommended against the best of n options, by their prices; and by cost, of those worse in nothing."""
    by_price, by_cost = torch.full((2, len(reach)), torch.inf, dtype=torch.float64).unbind(0)
    options, _ = find_options(ladder, reach, target, torch.full((len(reach),), n))
    cost, away, n_changed = _measure_sides(ladder, first, reach, target)
    for one in options[1:]:
        rows = one.rows
        price = measure_price(ladder, one.attempt, reach[rows], target[rows])
        by_price[rows] = torch.minimum(by_price[rows], price)
        theirs, farther, more = _measure_sides(ladder, one.attempt, reach[rows], target[rows])
        worse = price.isinf() | (farther > _SAME * away[rows]) | (more > n_changed[rows])
        by_cost[rows] = torch.minimum(by_cost[rows], theirs.masked_fill(worse, torch.inf))
    by_cost = torch.minimum(by_cost, cost)  # whoever has none such is not beaten
    return Comparison.of(measure_price(ladder, first, reach, target), by_price), Comparison.of(cost, by_cost)


def _measure_sides(ladder: Ladder, attempt: Attempt, reach: Reach, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(n,) each: cost, how far from real people, and how many columns change."""
    costs = ladder.grid.costs(attempt.x, reach.origin)
    return costs.sum(1), ladder._atypicality(attempt.x, target), (costs > 0).sum(1)


def compare_with_exact(ladder: Ladder, reach: Reach, target: Tensor, seconds: float = 20.0) -> Comparison:
    """The cheapest, typical or not, against the exact optimum; who is not solved in time does not count."""
    found = ladder.climb_cheaply(reach, target)
    ladder = replace(ladder, typical=False)
    network = Network.of(ladder.model)
    assert network is not None
    margin = float(np.log(ladder.tau / (1 - ladder.tau)))
    least = torch.full((len(reach),), torch.inf, dtype=torch.float64)
    for i in range(len(reach)):
        answer = ask_exactly(
            network, ladder.grid, reach[[i]], int(target[i]), seconds=seconds, margin=margin, cheapest=True
        )
        least[i] = answer.least_cost if answer.solved else torch.inf
    return Comparison.of(measure_price(ladder, found, reach, target), least)


@app.command()
def cheapest(
    tables: Annotated[
        list[str] | None, typer.Argument(help="Names of tables; gmsc, credit and adult if left out.")
    ] = None,
    people: Annotated[int, typer.Option(help="People who are refused, at most.")] = 200,
    solved: Annotated[int, typer.Option(help="Of them, people whose optimum is solved exactly.")] = 60,
) -> None:
    """Compare what is recommended with what would be cheaper (minutes)."""
    torch.set_num_threads(1)
    rows = []
    for name in tables or ("gmsc", "credit", "adult"):
        search, request = _prepare(name, people, {"random_state": 0})
        ladder = _make_ladder(search, request)
        small, asked = _prepare(name, solved, _SMALL)
        with torch.no_grad():
            start = time.perf_counter()
            options, _ = find_options(ladder, request.reach, request.target, torch.ones_like(request.target))
            seconds = time.perf_counter() - start
            first = options[0].attempt
            one = compare_with_single(ladder, request.reach, request.target, first)
            ten, no_worse = compare_with_options(ladder, request.reach, request.target, first)
            exact = compare_with_exact(_make_ladder(small, asked), asked.reach, asked.target)
        for what, found in (
            ("one column", one),
            ("ten options", ten),
            ("ten, no worse", no_worse),
            ("exact optimum", exact),
        ):
            rows.append(
                {
                    "table": name,
                    "against": what,
                    "people": found.n,
                    "beaten": f"{found.beaten:.1%}",
                    "mean ratio": f"{found.mean_ratio:.3f}",
                    "median": f"{found.median_ratio:.3f}",
                    "ms a person": f"{1000 * seconds / len(request.frame):.1f}",
                }
            )
        console.print(frame_table("Is it the cheapest?", pd.DataFrame(rows)))


def _prepare(name: str, n: int, settings: dict[str, Any]) -> tuple[RecourseSearch, Request]:
    """A classifier of a table, and people whom it refuses."""
    table = TABLES[name].take()
    clf = CounterfactualClassifier(table.schema, immutable=list(table.immutable), **settings)
    clf.fit(table.rows, table.labels)
    refused = table.rows[clf.predict(table.rows) != table.wanted][:n].reset_index(drop=True)
    search = RecourseSearch.of(clf.decider)
    return search, search.request(refused, table.wanted)


def _make_ladder(search: RecourseSearch, request: Request) -> Ladder:
    tau = search.default_tau(request.target)
    return Ladder(search.decider.model, search.grid, search.reference, tau, N_STEPS, sparse=True)


def main(args: Sequence[str] | None = None) -> None:
    """Compare what is recommended with what would be cheaper."""
    run(app, args, "python -m benchmarks.cheapest")


if __name__ == "__main__":
    main()
