"""How a threshold may be given: as a number, by what mistakes cost, or by the share of people who are to get it."""

from collections.abc import Mapping
from typing import Any

from countertrain.words import plain

__all__ = ["LEAST", "read_costs", "read_rate", "read_rule"]

LEAST = 0.001
"""No threshold is lower, nor nearer to 1."""
_SAYS = (
    'is a probability between 0 and 1 such as 0.4, or "cost:5:1" (to grant it wrongly costs 5, to refuse it wrongly '
    '1), or "rate:0.3" (30 % of people get it)'
)
_BY_COST = {"false_approval", "false_refusal"}


def read_rule(given: Any) -> float | str | None:
    """A threshold as a number or a text, `cost:5:1` or `rate:0.3`; what cannot be one is refused."""
    given = plain(given)
    if isinstance(given, Mapping):
        given = _name_rule(given)
    if given is None or (isinstance(given, str) and (read_costs(given) or read_rate(given))):
        return given
    try:
        at = float("" if isinstance(given, bool) else given)
    except (TypeError, ValueError):
        raise ValueError(_SAYS) from None
    if not LEAST <= at <= 1 - LEAST:
        raise ValueError(_SAYS)
    return at


def read_costs(rule: float | str) -> tuple[float, float] | None:
    """What a false approval and a false refusal cost; None where the rule is another one."""
    numbers = _read_numbers(rule, "cost", 2)
    return (numbers[0], numbers[1]) if numbers and min(numbers) > 0 else None


def read_rate(rule: float | str) -> float | None:
    """The share of people who are to get the decision; None where the rule is another one."""
    numbers = _read_numbers(rule, "rate", 1)
    return numbers[0] if numbers and 0 < numbers[0] < 1 else None


def _read_numbers(rule: float | str, kind: str, n: int) -> list[float] | None:
    name, *parts = str(rule).split(":")
    try:
        return [float(part) for part in parts] if name == kind and len(parts) == n else None
    except ValueError:
        return None


def _name_rule(given: Mapping[str, Any]) -> str:
    """`{"false_approval": 5, "false_refusal": 1}` and `{"rate": 0.3}` as texts."""
    if given.keys() == _BY_COST:
        return f"cost:{given['false_approval']}:{given['false_refusal']}"
    if given.keys() == {"rate"}:
        return f"rate:{given['rate']}"
    raise ValueError(f"{_SAYS}; the costs by name are {{false_approval = 5, false_refusal = 1}}")
