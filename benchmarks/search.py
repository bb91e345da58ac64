"""Part (a), search: rows per second of ours, of the least that a search can cost, and of peers."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pandas as pd
from torch import Tensor

from benchmarks.measuring import Budget, Contender, Measurement, Part, Say, Timing, guard, race
from benchmarks.peers import RELAX_STEADY, search_peers
from benchmarks.problems import MOON, WIDE, Problem, bare_loop, problems
from countertrain.constraints import Constraints
from countertrain.search.generator import Generator
from countertrain.search.generators import eccco

__all__ = ["EARLY", "EARLY_COMPILED", "LIMIT", "OURS", "OURS_COMPILED", "SAME", "measure_search"]

LIMIT, SAME = "bare torch loop, cross-entropy alone", "bare torch loop, ECCCo's objective"
OURS, OURS_COMPILED = "ECCCo, all constraints", "ECCCo, all constraints, compiled"
EARLY, EARLY_COMPILED = "ECCCo, rows leave at tau = 0.75", "ECCCo, rows leave at tau = 0.75, compiled"
_NEVER = 1 - 1e-7  # tau that no row reaches, so that all of them make all steps
_COMPILED_BAR = {MOON: 1.3, WIDE: 0.9}


def measure_search(budget: Budget, say: Say) -> Part:
    """Search throughput on both problems."""
    rows: list[dict[str, object]] = []
    measurements: list[Measurement] = []
    for problem in problems(budget.n_rows):
        say(f"search, {problem.name}")
        timings = race([*_ours(problem, budget), *search_peers(problem, budget)], budget, say)
        rows += [_row(problem, name, timing, timings[LIMIT]) for name, timing in timings.items()]
        measurements += _measurements(problem, timings)
    return Part("search", pd.DataFrame(rows), measurements)


def _ours(problem: Problem, budget: Budget) -> list[Contender]:
    model, x, target, n_steps = problem.model, problem.factual, problem.target, budget.n_steps
    every, early = eccco(tau=_NEVER, n_steps=n_steps), eccco(tau=0.75, n_steps=n_steps)
    contenders = [
        Contender(LIMIT, partial(bare_loop, model, x, target, n_steps, energy=False), "the limit"),
        Contender(SAME, partial(bare_loop, model, x, target, n_steps)),
        Contender(
            OURS, partial(_search, every, problem, problem.tight), "one feature immutable, one may only increase"
        ),
        Contender(
            "ECCCo, every feature free", partial(_search, every, problem, problem.free), "validity as peers count it"
        ),
        Contender(EARLY, partial(_search, early, problem, problem.free), "as in training"),
    ]
    if budget.compiled:
        for name, generator, limits in (
            (OURS_COMPILED, every, problem.tight),
            (EARLY_COMPILED, early, problem.free),
        ):
            fast = partial(_search, replace(generator, compiled=True), problem, limits)
            contenders.append(Contender(name, guard(fast), "compiled in the first call"))
    return contenders


def _search(generator: Generator, problem: Problem, constraints: Constraints) -> Tensor:
    return generator(problem.model, problem.factual, problem.target, constraints=constraints).x


def _row(problem: Problem, name: str, timing: Timing, limit: Timing) -> dict[str, object]:
    there = timing.result is not None
    rate = len(timing.result) / timing.seconds if there else float("nan")
    return {
        "model": problem.name,
        "search": name,
        "rows/s": rate,
        "share of the limit": rate * limit.seconds / len(limit.result),
        "validity": problem.validity(timing.result) if there else float("nan"),
        "first call (s)": timing.first,
        "note": timing.note,
    }


def _measurements(problem: Problem, timings: dict[str, Timing]) -> list[Measurement]:
    limit = timings[LIMIT]

    def against(name: str, other: Timing, bar: float, what: str) -> Measurement:
        mine = timings[name]
        note = f"{_rate(mine)} against {_rate(other)} rows/s"
        if name == OURS_COMPILED and mine.result is not None:
            note += f"; {mine.first - mine.seconds:.0f} s to compile"
        return Measurement(what, other.seconds / mine.seconds, "x", bar, True, note)

    title = f"search, {problem.name}"
    claims: Sequence[tuple[str, Timing, float, str]] = [
        (OURS, limit, 0.5, f"{title}, all constraints: share of a bare loop over cross-entropy"),
        (EARLY, timings[SAME], 1.0, f"{title}, rows leaving early: share of a bare loop over the same objective"),
        (
            OURS_COMPILED,
            limit,
            _COMPILED_BAR[problem.name],
            f"{title}, all constraints, compiled: share of a bare loop over cross-entropy",
        ),
    ]
    relax = timings[RELAX_STEADY]
    if relax.result is not None:
        claims = [*claims, (OURS_COMPILED, relax, 1.0, f"{title}, compiled: times jax-relax's compiled VanillaCF")]
    return [against(*claim) for claim in claims if claim[0] in timings]


def _rate(timing: Timing) -> str:
    return f"{len(timing.result) / timing.seconds:,.0f}" if timing.result is not None else timing.note
