"""The mean of a model's weights over its updates, which is what is scored and kept, while the last ones train on."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

__all__ = ["Averages"]

_YOUNG = 10  # updates after which a mean is no longer young: until then it forgets sooner


class Averages:
    """Means of parameters in which each update counts `keep` times as much as the next one.

    They wait beside the parameters while these are trained; `exchange` puts them in place, and back.
    """

    def __init__(self, parameters: Mapping[str, Tensor], keep: float) -> None:
        self._parameters = {name: p.detach() for name, p in parameters.items() if p.requires_grad}
        self._beside = {name: p.clone() for name, p in self._parameters.items()}
        self._inside, self._outside = list(self._parameters.values()), list(self._beside.values())
        self._keep, self._count = keep, 0

    def add(self) -> None:
        """Take in the parameters after an update."""
        self._count += 1
        share = max(1 - self._keep, (_YOUNG - 1) / (_YOUNG + self._count))
        torch._foreach_lerp_(self._outside, self._inside, share)

    def exchange(self) -> None:
        """Put the means where the parameters are, and these where the means were, or back again."""
        for inside, outside in zip(self._inside, self._outside, strict=True):
            inside_before = inside.clone()
            inside.copy_(outside)
            outside.copy_(inside_before)

    def reset(self, models: Sequence[int], *, stacked: bool) -> None:
        """Go on from the means, while these are in place: of some models of a population, or of the only one."""
        for inside, outside in zip(self._inside, self._outside, strict=True):
            if stacked:
                outside[models] = inside[models]
            else:
                outside.copy_(inside)

    def state(self) -> dict[str, Tensor]:
        """What waits beside, and the number of updates."""
        return {**self._beside, "": torch.tensor(self._count)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go back to where `state` was taken."""
        for name, value in self._beside.items():
            value.copy_(state[name])
        self._count = int(state[""])
