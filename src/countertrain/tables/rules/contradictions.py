"""Rules that cannot all be kept: two that say what one column is, that go in circles, or that exclude each other."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, permutations

import numpy as np

from countertrain.tables.columns import Numeric
from countertrain.tables.rules.binding import AnyColumn
from countertrain.tables.rules.bound import Condition, Exclusion, Follower, Rule
from countertrain.tables.rules.conditions import Equal, Missing, NotAbove, Test, Values
from countertrain.tables.sentences import SchemaError

__all__ = ["order_followers", "refuse_contradictions"]

_MOST_CASES = 20_000  # combinations of values in which two rules are tried together


def order_followers(followers: Sequence[Follower]) -> tuple[Follower, ...]:
    """Columns that follow from others, each after those that it follows; refused where that goes in circles."""
    by_column: dict[str, Follower] = {}
    for follower in followers:
        twin = by_column.setdefault(follower.column, follower)
        if twin is not follower:
            raise SchemaError(
                f"the rules {twin.text!r} and {follower.text!r} both say what {follower.column!r} is; leave one out"
            )
    ordered: list[Follower] = []
    waiting = list(followers)
    while waiting:
        left = {one.column for one in waiting}
        ready = [one for one in waiting if not left & {*one.causes}]
        if not ready:
            _refuse_circle(waiting)
        ordered += ready
        waiting = [one for one in waiting if one not in ready]
    return tuple(ordered)


def _refuse_circle(waiting: Sequence[Follower]) -> None:
    by_column = {one.column: one for one in waiting}
    path = [waiting[0]]
    while path[-1] not in path[:-1]:  # each of them waits for another one
        path.append(next(by_column[name] for name in path[-1].causes if name in by_column))
    first, second = path[-1], path[path.index(path[-1]) + 1]
    if first is second:
        raise SchemaError(f"the rule {first.text!r} has {first.column!r} follow from itself; take it out of one side")
    raise SchemaError(f"the rules {first.text!r} and {second.text!r} go in a circle; leave one out")


def refuse_contradictions(rules: Sequence[Rule], columns: Mapping[str, AnyColumn]) -> None:
    """Refuse two rules that cannot both be kept, by their names."""
    orders = [(rule, rule.then[0]) for rule in rules if isinstance(rule, Condition) and not rule.when]
    for (one, a), (other, b) in combinations(orders, 2):
        if isinstance(a, NotAbove) and isinstance(b, NotAbove) and _exclude(a, b):
            raise SchemaError(f"the rules {one.text!r} and {other.text!r} cannot both hold; leave one out")
    for mine, another in permutations(rules, 2):
        if (
            isinstance(mine, Condition)
            and mine.when
            and {*mine.columns} & {*another.columns}
            and mine.text != another.text
        ):
            cases = _list_cases((mine, another), columns)
            if cases is None:
                continue
            arises = mine.applies(cases)
            if arises.any() and not (arises & ~mine.is_broken(cases) & ~another.is_broken(cases)).any():
                when = mine.text.split("=>")[0].rstrip(" <")
                raise SchemaError(
                    f"the rules {mine.text!r} and {another.text!r} contradict each other: nobody could be {when}; "
                    "leave one out"
                )


def _exclude(a: NotAbove, b: NotAbove) -> bool:
    """Whether two sums that may not be above zero add up to a number that is."""
    factors = dict(a.factors)
    for name, factor in b.factors:
        factors[name] = factors.get(name, 0.0) + factor
    rest = a.constant + b.constant
    return not any(factors.values()) and (rest > 0 or (rest == 0 and (a.strict or b.strict)))


def _list_cases(rules: Iterable[Rule], columns: Mapping[str, AnyColumn]) -> Values | None:
    """All that the columns of some rules can be, as far as these look at it; None where that is too much."""
    tests = [test for rule in rules for test in _list_tests(rule)]
    if any(len(test.columns) > 1 for test in tests):
        return None
    choices: dict[str, list[float]] = {}
    for test in tests:
        name = test.columns[0]
        column = columns[name]
        if not isinstance(column, Numeric):
            choices[name] = [float(place) for place in range(len(column.labels))]
            continue
        if isinstance(test, Missing):
            choices.setdefault(name, []).extend([0.0, np.nan])
            continue
        bound = test.number if isinstance(test, Equal) else _find_bound(test)
        apart = column.step or 1e-6 * (1 + abs(bound))
        choices.setdefault(name, []).extend([bound - apart, bound, bound + apart])
    if np.prod([float(len(each)) for each in choices.values()]) > _MOST_CASES:
        return None
    grid = np.meshgrid(*choices.values(), indexing="ij")
    return {name: each.ravel() for name, each in zip(choices, grid, strict=True)}


def _list_tests(rule: Rule) -> tuple[Test, ...]:
    return rule.of if isinstance(rule, Exclusion) else (*rule.when, *rule.then)


def _find_bound(test: Test) -> float:
    assert isinstance(test, NotAbove)
    ((_, factor),) = test.factors
    return -test.constant / factor
