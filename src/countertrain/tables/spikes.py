"""Numbers that are no amounts: codes and caps such as 99,999, which many rows have, far beyond all others."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["find_ends", "find_spikes"]

_ROWS = 5  # that have the same number, for it to be no accident
_MOST = 3  # different numbers that are such codes
_OTHERS = 5  # different numbers that there must be beside them

Floats = NDArray[np.float64]


def find_spikes(values: Floats) -> Floats:
    """Ascending, the numbers at either end that are farther from the rest than all the rest are from one another."""
    numbers, counts = np.unique(values, return_counts=True)
    first, last = 0, len(numbers)
    for _ in range(2):  # what is far at one end hides that at the other
        first += _count_last(-numbers[first:last][::-1], counts[first:last][::-1])
        last -= _count_last(numbers[first:last], counts[first:last])
    return np.concatenate([numbers[:first], numbers[last:]])


def find_ends(values: Floats) -> tuple[float, float]:
    """The lowest and the highest of some numbers but for spikes, which nobody is to be sent to."""
    spikes = find_spikes(values)
    amounts = values[~np.isin(values, spikes)] if len(spikes) else values
    return float(amounts.min()), float(amounts.max())


def _count_last(numbers: Floats, counts: NDArray[np.int64]) -> int:
    """How many of the last of ascending numbers are spikes."""
    for n in range(1, min(_MOST, len(numbers) - _OTHERS) + 1):
        rest = numbers[:-n]
        if numbers[-n] - rest[-1] > rest[-1] - rest[0] and counts[-n:].max() >= _ROWS:
            return n
    return 0
