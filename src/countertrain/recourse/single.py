"""Changes of single columns put together: what each is worth and costs, weighed against one another, all at once.

The first layer of a network adds up what the columns contribute, so that a row with another value in one column costs
a sum instead of a product. With the gain of every single change known, the best combination for a given price of a gain
is the best value of each column by itself; a few such prices give rows of which the best is taken.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from countertrain.recourse.network import Network
from countertrain.recourse.reach import AnswerGrid, Reach

if TYPE_CHECKING:
    from countertrain.recourse.attempt import Attempt
    from countertrain.recourse.ladder import Ladder

__all__ = ["Combination"]

_VALUES = 25  # of each number that are tried
_PRICES = torch.logspace(-1, 1, 16, dtype=torch.float64)  # of a gain, in what it costs the person on average now
_FINALISTS = 3  # rows whose whole price is worked out
_PAIRS = 16  # of changes, twice, that are tried
_ROUNDS = 3
_AT_ONCE = 2**22  # numbers in one tensor


@dataclass(frozen=True, eq=False)
class _Choices:
    """V values that columns may be given, all columns one after another: c, c, ..., d, d, ..."""

    column: Tensor  # (V,)
    feature: Tensor  # (V,) that is set to the value; other features of the column are 0
    value: Tensor  # (V,)
    slot: Tensor  # (C, M) places among the V, V where a column has fewer

    @classmethod
    def of(cls, grid: AnswerGrid) -> Self:
        """All levels, and values of numbers spread over their domain, as they can be told."""
        column: list[int] = []
        feature: list[int] = []
        value: list[float] = []
        shares = torch.linspace(0, 1, _VALUES, dtype=torch.float64).unsqueeze(1)
        spread = grid.scales.leave_gaps(grid.lower + shares * (grid.upper - grid.lower))  # (_VALUES, D)
        told = grid.scales.encode(grid.to_units(spread))
        known = set(grid.indicator.tolist())  # a number that is given is not missing
        for d, c in enumerate(grid.column_of.tolist()):
            if d in known:
                continue
            alone = int((grid.column_of == c).sum()) == 1
            values = told[:, d].unique().tolist() if grid.number[d] else [0.0, 1.0] if alone else [1.0]
            column += [c] * len(values)
            feature += [d] * len(values)
            value += values
        columns = torch.tensor(column)
        places = [(columns == c).nonzero()[:, 0] for c in range(grid.n_columns)]
        slot = torch.full((grid.n_columns, max(map(len, places))), len(columns))
        for c, mine in enumerate(places):
            slot[c, : len(mine)] = mine
        return cls(columns, torch.tensor(feature), torch.tensor(value, dtype=torch.float64), slot)

    def put(self, rows: Tensor, chosen: Tensor, grid: AnswerGrid) -> Tensor:
        """Rows (k, D) with the chosen value (k, C) of each column; V leaves a column as it is."""
        mask = torch.zeros(len(self.column) + 1, rows.shape[1], dtype=torch.bool)
        mask[:-1] = grid.column_of == self.column.unsqueeze(1)
        values = torch.zeros(len(self.column) + 1, rows.shape[1], dtype=rows.dtype)
        values[torch.arange(len(self.column)), self.feature] = self.value
        at = chosen[:, grid.column_of]  # (k, D)
        features = torch.arange(rows.shape[1])
        return torch.where(mask[at, features], values[at, features], rows)


class Combination:
    """Better rows by combined changes of columns, for a ladder whose model is a network of ReLUs."""

    def __init__(self, ladder: "Ladder", network: Network) -> None:
        self.ladder, self.network, self.grid = ladder, network, ladder.grid
        self.choices = _Choices.of(ladder.grid)
        features, coded, bias = (each.float() for each in network.first)
        self._weights, self._bias = (features, coded), bias
        self._wanted = math.log(ladder.tau / (1 - ladder.tau))  # log-odds
        blank = torch.zeros(len(self.choices.column), len(ladder.grid.column_of), dtype=torch.float64)
        blank[torch.arange(len(blank)), self.choices.feature] = self.choices.value
        everything = self._contribute(blank)  # (V, C, h)
        self._worth = everything[torch.arange(len(blank)), self.choices.column]  # (V, h)

    def improve(self, found: "Attempt", reach: Reach, target: Tensor) -> "Attempt":
        """Attempts that reach tau, and cheaper ones that do so, too, where there are any.

        Changes are combined beginning from the person's own row, then a few times from the best that was found.
        """
        rows = self.ladder.reaches_tau(found) & (found.x != reach.origin).any(1)
        size = max(1, _AT_ONCE // self._worth.numel())
        for some in rows.nonzero()[:, 0].split(size):
            mine = self._improve(found[some], reach.origin[some], reach[some], target[some])
            for _ in range(_ROUNDS):
                mine = self.ladder.finish(mine, reach[some], target[some])
                mine = self._improve(mine, mine.x, reach[some], target[some])
            found = found.put(some, mine)
        return found

    def _improve(self, found: "Attempt", x: Tensor, reach: Reach, target: Tensor) -> "Attempt":
        """One round: the gain of each single change of rows x (n, D), combined by several prices; the best of all."""
        n, C = len(found.x), self.grid.n_columns
        gain, able, cost = self._measure(x, reach, target)
        now = self.grid.costs(x, reach.origin)  # (n, C)
        spent = self.grid.costs(found.x, reach.origin).sum(1)
        gained = (found.probability.logit() - self.ladder.judge(reach.origin, target).probability.logit()).clamp(
            min=0.1
        )
        price = (spent / gained).view(-1, 1, 1, 1) * _PRICES.view(1, -1, 1, 1)  # (n, L, 1, 1)
        padded = torch.cat([cost.masked_fill(~able, torch.inf), cost.new_full((n, 1), torch.inf)], 1)
        slots = padded[:, self.choices.slot].unsqueeze(1)  # (n, 1, C, M)
        gains = torch.cat([gain, gain.new_zeros(n, 1)], 1)[:, self.choices.slot].unsqueeze(1)
        net = torch.cat([now.view(n, 1, C, 1).expand(-1, len(_PRICES), -1, -1), slots - price * gains], 3)
        best = net.argmin(3)  # (n, L, C); 0: as it is
        stay = torch.full((C, 1), len(self.choices.column))
        chosen = torch.cat([stay, self.choices.slot], 1)[torch.arange(C), best]
        short = self._wanted - self._score(self._sum_up(x), target).double()  # (n,) log-odds that are missing
        pairs = self._pair_up(gain, (cost - now[:, self.choices.column]).masked_fill(~able, torch.inf), short)
        return self._choose(found, x, torch.cat([chosen, pairs], 1), reach, target)

    def _pair_up(self, gain: Tensor, cost: Tensor, short: Tensor) -> Tensor:
        """The cheapest pairs of changes that add up to what is missing (n,), as far as single ones tell: (n, k, C)."""
        n, V = gain.shape
        column = torch.cat([self.choices.column, torch.tensor([-1])])  # the last change is none
        gain, cost = (torch.cat([each, each.new_zeros(n, 1)], 1) for each in (gain, cost))
        both, price = (each.unsqueeze(1) + each.unsqueeze(2) for each in (gain, cost))  # (n, V + 1, V + 1)
        twice = (column == column.unsqueeze(1)) | torch.ones(V + 1, V + 1, dtype=torch.bool).tril()
        price = price.masked_fill(twice, torch.inf)
        found = []
        for share in (1.0, 0.7):  # together, two changes may do more than each alone
            enough = both >= torch.where(short > 0, share * short, short / share).view(-1, 1, 1)
            found.append(price.masked_fill(~enough, torch.inf).flatten(1).topk(min(_PAIRS, V), largest=False).indices)
        places = torch.cat(found, 1)  # (n, k)
        chosen = torch.full((*places.shape, self.grid.n_columns + 1), V)
        for one in (places // (V + 1), places % (V + 1)):
            chosen.scatter_(2, (column[one] % (self.grid.n_columns + 1)).unsqueeze(2), one.unsqueeze(2))
        return chosen[..., :-1]

    def _choose(self, found: "Attempt", x: Tensor, chosen: Tensor, reach: Reach, target: Tensor) -> "Attempt":
        """The best of the combinations (n, L, C) of changes of rows x (n, D), and of what was found."""
        n, L = chosen.shape[:2]
        who = torch.arange(n).repeat_interleave(L)
        x = self.choices.put(x[who], chosen.flatten(0, 1), self.grid)
        enough = self._score(self._sum_up(x), target[who]) >= self._wanted
        cost = self.grid.costs(x, reach.origin[who]).sum(1).masked_fill(~enough, torch.inf).view(n, L)
        order = cost.argsort(dim=1)[:, :_FINALISTS]
        for k in range(order.shape[1]):
            rows = cost.gather(1, order)[:, k].isfinite().nonzero()[:, 0]
            if len(rows):
                mine = x[rows * L + order[rows, k]]
                tried = self.ladder.judge(self.grid.snap(mine, reach[rows]), target[rows])
                found = found.put(rows, self.ladder.choose_better(found[rows], tried, reach[rows], target[rows]))
        return found

    def _measure(self, x: Tensor, reach: Reach, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of all single changes of rows x (n, D), (n, V) each: gain in log-odds, whether within reach, and cost."""
        parts = self._contribute(x)  # (n, C, h)
        total = parts.sum(1) + self._bias
        changed = total.unsqueeze(1) - parts[:, self.choices.column] + self._worth  # (n, V, h)
        wanted = target.unsqueeze(1).expand(-1, len(self.choices.column))
        gain = self._score(changed, wanted) - self._score(total, target).unsqueeze(1)
        value, feature = self.choices.value, self.choices.feature
        own, low, high = (each[:, feature] for each in (reach.origin, reach.low, reach.high))
        level = self.grid.weight[feature] < 1
        cost = torch.where(level, (own < 1).double(), (value - own).abs())
        blank = torch.zeros(reach.low.shape, dtype=torch.bool)  # numbers that are missing, and stay so
        blank[:, self.grid.indicator - 1] = reach.low[:, self.grid.indicator] > 0
        able = (((low <= value) & (value <= high)) | (value == own)) & ~blank[:, feature]
        return gain.double(), able, cost

    def _contribute(self, x: Tensor) -> Tensor:
        """What each table column of rows x (n, D) adds to the units of the first layer, (n, C, h)."""
        features, coded = self._weights
        codes = self.network.codes
        each = x.float().unsqueeze(-1) * features.T  # (n, D, h)
        if len(codes.numbers):
            each[:, codes.numbers] += torch.einsum("nrt,hrt->nrh", codes(x[:, codes.numbers]).float(), coded)
        sums = each.new_zeros(len(x), self.grid.n_columns, each.shape[-1])
        return sums.index_add_(1, self.grid.column_of, each)

    def _sum_up(self, x: Tensor) -> Tensor:
        return self._contribute(x).sum(1) + self._bias

    def _score(self, units: Tensor, target: Tensor) -> Tensor:
        """Log-odds (...) of a class (...) by the units (..., h) of the first layer."""
        for weight, bias in self.network.layers[1:]:
            units = torch.nn.functional.linear(units.relu(), weight.float(), bias.float())
        shape = (*units.shape[:-1], self.network.n_models, self.network.n_classes)
        log_p = units.view(shape).log_softmax(-1)
        mean = log_p.logsumexp(-2)  # (..., K), but for a constant
        mine = mean.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        hidden = mean.scatter(-1, target.unsqueeze(-1), -torch.inf)
        return mine - hidden.logsumexp(-1)
