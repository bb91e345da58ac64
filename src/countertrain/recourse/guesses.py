"""What a model was guessed to say of real rows as far as people can follow them, kept for people who ask again."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

__all__ = ["Guesses"]

Asked = Callable[[Tensor], Tensor]
"""Places (m,) of people among those at hand -> what is said of their real rows, (2, m, k)."""


@dataclass(frozen=True, eq=False)
class Guesses:
    """Two numbers for each of n people and r real rows; NaN where nobody has asked yet."""

    said: Tensor  # (2, N, r), of everybody
    who: Tensor  # (n,) the people at hand

    @classmethod
    def none(cls, n: int, r: int) -> Self:
        """Of n people and r real rows, of whom nothing is known."""
        return cls(torch.full((2, n, r), torch.nan, dtype=torch.float64), torch.arange(n))

    def __getitem__(self, rows: Tensor | slice | list[int]) -> Self:
        """Those of some of the people, kept in the same place."""
        return type(self)(self.said, self.who[rows])

    def look(self, places: Tensor, ask: Asked) -> Tensor:
        """(2, n, k), what is known of real rows (n, k); `ask` is asked for people of whom not all is."""
        mine = self.who.unsqueeze(1)
        new = self.said[0][mine, places].isnan().any(1).nonzero()[:, 0]
        if len(new):
            self.said[:, mine[new], places[new]] = ask(new)
        return self.said[:, mine, places]
