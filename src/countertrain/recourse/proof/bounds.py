"""How far the decision on a person can be moved at most within a part of what the person can reach: sound bounds.

The first layer adds up what each column contributes, a piecewise-linear function of a number or a number per level, so
that the extremes of each unit within a part are exact, and so is the highest value of any sum of units. Every further
layer is bounded by lines above and below its ReLUs, from the last layer back to the first (CROWN).
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from countertrain.recourse.network import Network

__all__ = ["Bounds", "Ceiling"]

_WIDER = 4 * torch.finfo(torch.float32).eps  # rows are decided on in what single precision leaves of them

Lines = tuple[Tensor, Tensor, Tensor]
"""Of ReLUs (m, h): slope and height at 0 of a line above each, slope of a line through 0 below it."""


@dataclass(frozen=True, eq=False)
class Ceiling:
    """Of each of m parts: no row in it has a higher score; only rows with 0 or more are decided as wanted."""

    score: Tensor  # (m,)
    best: Tensor  # (m, D): the row that would come nearest to it if the lines were the network
    weight: Tensor  # (m, D): how much a split of a feature's column would tighten the score, the more the better


@dataclass(frozen=True, eq=False)
class Bounds:
    """Bounds of one network over parts: boxes of numbers, and the levels of each category that a part leaves open."""

    network: Network
    categories: tuple[slice, ...]
    """One-hot groups of two and more features; whatever else is a feature moves between two ends."""

    def find_ceiling(self, low: Tensor, high: Tensor, target: int) -> Ceiling:
        """Ceilings of the score of a class over parts (m, D).

        Of models that add up, the score is the sum of the margins over the class that comes nearest; of others, the sum
        of how much more probable the class is than that one.
        """
        low, high = self._widen(low, high)
        ranges = self._bound_first(low, high)
        limits = self._limit_units(ranges, low, high)
        margins = self.network.compare_with(target)  # (P, K - 1, P K)
        rows = margins.sum(0) if self.network.adds_up else margins.flatten(0, 1)
        above, bent, sums = self._rise(rows, len(self.network.layers) - 1, limits, low, high)
        if self.network.adds_up:
            score, row = above.min(1)
        else:
            score, rows = self._join(margins, limits, low, high, above)
            score, row = score.min(1)
            _, bent, sums = self._rise(rows, len(self.network.layers) - 1, limits, low, high)
        bent, sums = (each[torch.arange(len(low)), row] for each in (bent, sums))  # (m, h)
        return Ceiling(score, self._find_best(sums, low, high), self._weigh(bent, ranges, limits[0]))

    def limit_units(self, low: Tensor, high: Tensor) -> list[tuple[Tensor, Tensor]]:
        """What the units of each hidden layer are before their ReLUs, at least and at most, (m, h) each."""
        low, high = self._widen(low, high)
        return self._limit_units(self._bound_first(low, high), low, high)

    def _limit_units(self, ranges: tuple[Tensor, Tensor], low: Tensor, high: Tensor) -> list[tuple[Tensor, Tensor]]:
        least, most = (each.sum(1) + self.network.first[2] for each in ranges)
        limits = [(least, most)]
        for i in range(1, len(self.network.layers) - 1):
            unit = torch.eye(len(self.network.layers[i][1]), dtype=torch.float64)
            upper, lower = self._rise(torch.cat([unit, -unit]), i, limits, low, high)[0].tensor_split(2, dim=1)
            limits.append((-lower, upper))
        return limits

    def _widen(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The parts with a hair's breadth more for numbers, for what is lost in single precision."""
        number = torch.ones(low.shape[1], dtype=torch.bool)
        for group in self.categories:
            number[group] = False
        return (
            torch.where(number, low - _WIDER * (1 + low.abs()), low),
            torch.where(number, high + _WIDER * (1 + high.abs()), high),
        )

    def _rise(
        self, rows: Tensor, last: int, limits: list[tuple[Tensor, Tensor]], low: Tensor, high: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Of sums (o, h) of the units of a layer: the highest values (m, o), reached at most.

        And the sums (m, o, h) of first-layer units that are above them; before and after the lines of the first ReLUs.
        """
        best: Tensor | None = None
        found: list[Tensor] = []
        for slack in (False, True):  # two choices of the lines below; each is sound, so is the lower ceiling
            sums, height = rows.expand(len(low), *rows.shape[-2:]), torch.zeros(1, dtype=torch.float64)
            for i in range(last, 0, -1):
                weight, bias = self.network.layers[i]
                height, sums = height + sums @ bias, sums @ weight
                bent = sums
                above, at_zero, below = _draw_lines(*limits[i - 1], slack=slack)
                up, down = sums.clamp(min=0), sums.clamp(max=0)
                height = height + (up * at_zero.unsqueeze(1)).sum(-1)
                sums = up * above.unsqueeze(1) + down * below.unsqueeze(1)
            value = height + sums @ self.network.first[2] + self._highest(sums, low, high)
            if last == 0:
                return value, sums, sums
            lower = torch.ones_like(value, dtype=torch.bool) if best is None else value < best
            best = value if best is None else torch.minimum(best, value)
            found = [
                torch.where(lower.unsqueeze(-1), one, other)
                for one, other in zip((bent, sums), found or (bent, sums), strict=True)
            ]
        assert best is not None
        return best, found[0], found[1]

    def _join(
        self, margins: Tensor, limits: list[tuple[Tensor, Tensor]], low: Tensor, high: Tensor, above: Tensor
    ) -> tuple[Tensor, Tensor]:
        """For models that do not add up: ceilings (m, K - 1), and sums of logits (m, K - 1, P K) in their place."""
        shape = (len(low), *margins.shape[:2])
        last = len(self.network.layers) - 1
        below = -self._rise(-margins.flatten(0, 1), last, limits, low, high)[0].view(shape)  # (m, P, K - 1)
        above = above.view(shape)
        share = [1 / (1 + (-d).exp().sum(-1, keepdim=True)) for d in (below, above)]  # (m, P, 1) least, most
        lead = 1 - (-above).exp()  # of a class over another, in shares of its own probability: (m, P, K - 1)
        apart = (torch.where(lead < 0, share[0], share[1]) * lead).sum(1)
        if self.network.n_classes > 2:
            return apart, margins.sum(0).expand(len(low), -1, -1)
        slope, height = _cover_tanh(below, above)  # (m, P, 1)
        rows = (slope.unsqueeze(-1) * margins).sum(1)  # (m, 1, P K)
        together = self._rise(rows, last, limits, low, high)[0] + height.sum(1)
        return torch.minimum(apart, together), rows

    def _highest(self, sums: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """(m, o), the highest that sums (m, o, h) of first-layer units can be, without the bias."""
        plain, numbers = self._split_columns(sums, low, high)
        return numbers.amax(-1).sum(-1) + self._best_levels(plain, low, high)[0]

    def _split_columns(self, sums: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Of sums of first-layer units: weights of the features (m, o, D), and values at knots (m, o, R, J + 2).

        Numbers with codes count among the knots only: at those within a part, and at both of its ends.
        """
        features, coded, _ = self.network.first
        codes = self.network.codes
        weight = sums @ features  # (m, o, D)
        if not len(codes.numbers):
            return weight, weight.new_zeros(*weight.shape[:2], 0, 1)
        bend = (sums @ coded.flatten(1)).unflatten(-1, coded.shape[1:])  # (m, o, R, T)
        own = weight[..., codes.numbers].unsqueeze(-1)  # (m, o, R, 1)
        at_knots = own * codes.knots + bend @ codes(codes.knots).mT  # (m, o, R, J)
        outside = ~self._hold_knots(low, high).unsqueeze(1)  # (m, 1, R, J)
        ends = torch.stack([low[:, codes.numbers], high[:, codes.numbers]], -1).unsqueeze(1)  # (m, 1, R, 2)
        at_ends = own * ends + (bend.unsqueeze(-2) * codes(ends)).sum(-1)
        free = torch.ones(weight.shape[-1], dtype=torch.float64).index_fill(0, codes.numbers, 0.0)
        return weight * free, torch.cat([at_knots.masked_fill(outside, -torch.inf), at_ends], -1)

    def _hold_knots(self, low: Tensor, high: Tensor) -> Tensor:
        """(m, R, J), which knots lie within parts."""
        numbers, knots = self.network.codes.numbers, self.network.codes.knots
        return (low[:, numbers, None] < knots) & (knots < high[:, numbers, None])

    def _best_levels(self, weight: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The highest sum (m, o) of features with weights (m, o, D), and the features (m, o, D) that have it."""
        low, high = low.unsqueeze(1), high.unsqueeze(1)
        x = torch.where(weight > 0, high, low).expand_as(weight).clone()
        for group in self.categories:
            mine = weight[..., group].masked_fill(high[..., group] < 1, -torch.inf)
            x[..., group] = torch.nn.functional.one_hot(mine.argmax(-1), mine.shape[-1]).to(x)
        return (weight * x).sum(-1), x

    def _find_best(self, sums: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """(m, D), the row with the highest sum (m, h) of first-layer units."""
        plain, numbers = self._split_columns(sums.unsqueeze(1), low, high)
        x = self._best_levels(plain, low, high)[1].squeeze(1)
        codes = self.network.codes
        if len(codes.numbers):
            place = numbers.squeeze(1).argmax(-1, keepdim=True)  # (m, R, 1)
            ends = torch.stack([low[:, codes.numbers], high[:, codes.numbers]], -1)
            known = torch.cat([codes.knots.expand(*ends.shape[:2], -1), ends], -1)  # (m, R, J + 2)
            x[:, codes.numbers] = known.gather(-1, place).squeeze(-1)
        return x

    def _weigh(self, sums: Tensor, ranges: tuple[Tensor, Tensor], limits: tuple[Tensor, Tensor]) -> Tensor:
        """(m, D), how much of what the lines of unsettled units give away depends on each feature's column."""
        lower, upper = limits
        unsettled = (lower < 0) & (upper > 0)
        gap = torch.where(unsettled, sums.abs(), 0.0)  # (m, h)
        return ((ranges[1] - ranges[0]) * gap.unsqueeze(1)).sum(-1) + 1e-9 * (ranges[1] - ranges[0]).sum(-1)

    def _bound_first(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """What each feature contributes to each unit of the first layer, at least and at most: (m, D, h) each.

        What the levels of a category contribute together is told at the first of them.
        """
        features, coded, _ = self.network.first
        codes = self.network.codes
        ends = torch.stack([low, high]).unsqueeze(-1) * features.T  # (2, m, D, h)
        least, most = ends.amin(0), ends.amax(0)
        for group in self.categories:
            mine = features.T[group].expand(len(low), -1, -1)  # (m, L, h)
            shut = (high[:, group] < 1).unsqueeze(-1)
            least[:, group], most[:, group] = 0.0, 0.0
            least[:, group.start] = mine.masked_fill(shut, torch.inf).amin(1)
            most[:, group.start] = mine.masked_fill(shut, -torch.inf).amax(1)
        if len(codes.numbers):
            both = torch.stack([low[:, codes.numbers], high[:, codes.numbers]])  # (2, m, R)
            at_ends = ends[:, :, codes.numbers] + torch.einsum("emrt,hrt->emrh", codes(both), coded)
            inside = self._look_up(low[:, codes.numbers], high[:, codes.numbers])
            least[:, codes.numbers] = torch.minimum(at_ends.amin(0), inside[0])
            most[:, codes.numbers] = torch.maximum(at_ends.amax(0), inside[1])
        return least, most

    def _look_up(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Least and most (m, R, h) of units at the knots between two ends (m, R); infinities where there are none.

        The extremes of any run of knots are those of two runs of a length 1, 2, 4, ... that cover it.
        """
        knots = self.network.codes.knots
        first = torch.searchsorted(knots, low, right=True)
        last = torch.searchsorted(knots, high) - 1
        length = (last - first + 1).clamp(min=1)
        power = length.double().log2().floor().long()
        second = (last - 2**power + 1).clamp(min=0)
        first, number = first.clamp(max=len(knots) - 1), torch.arange(low.shape[1])
        least, most = (
            choose(table[power, number, first], table[power, number, second])
            for choose, table in zip((torch.minimum, torch.maximum), self._runs, strict=True)
        )
        none = (last < torch.searchsorted(knots, low, right=True)).unsqueeze(-1)
        return least.masked_fill(none, torch.inf), most.masked_fill(none, -torch.inf)

    @cached_property
    def _runs(self) -> tuple[Tensor, Tensor]:
        """Least and most of what numbers contribute to units at runs of 2^k knots: (k, R, J, h) each."""
        features, coded, _ = self.network.first
        codes = self.network.codes
        own = features[:, codes.numbers].T.unsqueeze(1) * codes.knots.unsqueeze(-1)  # (R, J, h)
        value = own + torch.einsum("jt,hrt->rjh", codes(codes.knots), coded)
        tables = []
        for choose in (torch.minimum, torch.maximum):
            runs = [value]
            for k in range(len(codes.knots).bit_length() - 1):
                ahead = torch.arange(len(codes.knots)).add(2**k).clamp(max=len(codes.knots) - 1)
                runs.append(choose(runs[-1], runs[-1][:, ahead]))
            tables.append(torch.stack(runs))
        return tables[0], tables[1]


def _draw_lines(lower: Tensor, upper: Tensor, *, slack: bool) -> Lines:
    """Lines above and below ReLUs whose inputs lie between limits (m, h)."""
    up, down = upper.clamp(min=0), lower.clamp(max=0)
    above = torch.where(upper <= 0, 0.0, up / (up - down).clamp(min=1e-300))
    below = above if slack else (upper > -lower).double()
    settled = (lower >= 0) | (upper <= 0)
    below = torch.where(settled, (lower >= 0).double(), below)
    above = torch.where(settled, (lower >= 0).double(), above)
    return above, torch.where(settled, 0.0, -above * down), below


def _cover_tanh(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Slope and height at 0 of a line above tanh(d / 2), which is 2 p - 1, for d between two limits.

    The slope is that of the chord; the height is the most by which the curve exceeds it, at an end or where it runs
    parallel.
    """
    ends = (lower / 2).tanh(), (upper / 2).tanh()
    slope = ((ends[1] - ends[0]) / (upper - lower).clamp(min=1e-12)).clamp(0, 0.5)
    parallel = 2 * torch.acosh((1 / (2 * slope).clamp(min=1e-300)).sqrt().clamp(min=1.0, max=1e100))
    places = torch.stack([lower, upper, parallel.clamp(lower, upper), (-parallel).clamp(lower, upper)])
    return slope, ((places / 2).tanh() - slope * places).amax(0)
