"""What keeps real people out of answers: none is shown, and nobody can be found out to be among them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from countertrain.recourse.answer import Recourse
from countertrain.recourse.explanation import Explanation, Option
from countertrain.recourse.search import RecourseSearch

__all__ = ["Blur"]

_NEIGHBOURS = 5  # how typical an option is, is told by the last of so many: no single person decides it
_SPACING_ROWS = 500  # real rows of a class whose own neighbours are looked at
_STEP = 5.0  # per cent: finer than that is not told


@dataclass(frozen=True, eq=False)
class Blur:
    """Tells how typical an option is without telling whether exactly this person is known.

    The distance to the nearest real row is 0 for whoever is in the training rows: it would give everybody away.
    """

    search: RecourseSearch
    spacing: dict[int, Tensor]
    """Per class, in ascending order: distances of real rows to their fifth neighbour."""
    identifying: tuple[str, ...] = ()
    """Columns that are hidden in the examples: where there are any, the nearest ones are shown."""

    @classmethod
    def of(cls, search: RecourseSearch, identifying: tuple[str, ...] = ()) -> Self:
        """Of the real rows of a search, if it has any."""
        spacing: dict[int, Tensor] = {}
        reference = search.reference
        if reference is None:
            return cls(search, spacing, identifying)
        for k in range(len(search.decider.classes)):
            places = reference.of_class(k)
            if len(places) > _NEIGHBOURS:
                rows = reference.x[places[:_SPACING_ROWS]]
                spacing[k] = reference.find_nearest(rows, k, _NEIGHBOURS + 1)[0][:, -1].sort().values  # own: 0
        return cls(search, spacing, identifying)

    def hide_people(self, recourse: Recourse) -> list[Explanation]:
        """Explanations without real people, in which nothing depends on a single one."""
        explanations = [*(recourse if self.identifying else recourse.without_nearest())]
        options = [option for one in explanations for option in one.options]
        classes = self.search.decider.classes
        target = torch.tensor([classes.index(one.target) for one in explanations for _ in one.options])
        percentiles = iter(self._measure_percentiles(options, target))
        return [
            replace(one, options=tuple(_blur(option, next(percentiles)) for option in one.options))
            for one in explanations
        ]

    def _measure_percentiles(self, options: Sequence[Option], target: Tensor) -> list[float | None]:
        """Per cent of real rows of the target class that are nearer to their fifth neighbour, in steps."""
        found: list[float | None] = [None] * len(options)
        reference, encoder = self.search.reference, self.search.decider.encoder
        if reference is None or not options:
            return found
        told = encoder.plain.make_frame(encoder.plain.gather([option.values for option in options]))
        x = torch.from_numpy(encoder.encode(told, quiet=True))
        for k, spacing in self.spacing.items():
            mine = (target == k).nonzero()[:, 0]
            if not len(mine):
                continue
            distance = reference.find_nearest(x[mine], k, _NEIGHBOURS)[0][:, -1]
            share = torch.searchsorted(spacing, distance.contiguous()).double() / len(spacing)
            for i, value in zip(mine.tolist(), share.tolist(), strict=True):
                found[i] = round(100 * value / _STEP) * _STEP
        return found


def _blur(option: Option, percentile: float | None) -> Option:
    """An option without its distance to the nearest real row."""
    return replace(option, plausibility_distance=None, plausibility_percentile=percentile)
