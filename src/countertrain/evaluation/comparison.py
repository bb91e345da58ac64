"""From records to the paper's tables: percentage reductions of CT against BL, with both kinds of spread."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from countertrain.evaluation.metrics import known

__all__ = ["ENOUGH_ROUNDS", "Reduction", "compare", "over_rounds"]

ENOUGH_ROUNDS = 20
"""Evaluation rounds below which the quantiles of an interval say nothing."""


@dataclass(frozen=True)
class Reduction:
    """How much lower a metric is for CT than for BL, in percent, over training seeds and evaluation rounds.

    The two spreads are different things and never mixed: `seed_sd` is the standard deviation over training seeds of
    the seed's own reduction; `round_sd` that over evaluation rounds of one trained pair, averaged over pairs (the
    paper's +-).
    """

    metric: str
    percent: float
    seed_sd: float
    round_sd: float
    interval: tuple[float, float]
    """0.5 % and 99.5 % quantiles over the rounds of the difference CT - BL, averaged over pairs."""
    treated: float
    baseline: float
    per_seed: tuple[float, ...]
    n_rounds: int
    """Rounds in which every pair has a value."""

    @property
    def significant(self) -> bool:
        """The paper's star: the interval excludes 0, and comes from enough rounds to be one.

        None where the reduction is no larger than its spread over seeds.
        """
        within_seeds = abs(self.percent) <= self.seed_sd  # never with one seed, whose spread is not a number
        return self.n_rounds >= ENOUGH_ROUNDS and not within_seeds and not self.interval[0] <= 0 <= self.interval[1]


def over_rounds(records: pd.DataFrame, metric: str) -> pd.DataFrame:
    """A metric for each round (rows) and model (columns), averaged over energy weights."""
    return records.groupby(["round", "model"])[metric].mean().unstack("model")


def compare(treated: pd.DataFrame, baseline: pd.DataFrame, metrics: Sequence[str] | None = None) -> list[Reduction]:
    """Reductions of the treated models against the baseline ones; the k-th is compared with the k-th.

    Of all metrics of counterfactuals of which less is better, unless `metrics` names some.
    As in the paper: the mean over rounds of the ratio of a round's means, pairing rounds by number.
    """
    if metrics is None:
        metrics = [name for name, m in known().items() if m.of_counterfactuals is not None and m.better == "lower"]
    results = []
    for metric in metrics:
        ours, theirs = over_rounds(treated, metric).abs(), over_rounds(baseline, metric).abs()
        if list(ours.columns) != list(theirs.columns):
            raise ValueError(
                f"compare needs as many treated as baseline models; got {ours.shape[1]} and {theirs.shape[1]}"
            )
        ratio = (ours / theirs).replace([np.inf, -np.inf], np.nan)  # (rounds, models)
        percent = 100 * (1 - ratio.mean())  # (models,)
        difference = ours - theirs
        low, high = (difference.quantile(q).mean() for q in (0.005, 0.995))
        results.append(
            Reduction(
                metric=metric,
                percent=float(percent.mean()),
                seed_sd=float(percent.std(ddof=1)) if len(percent) > 1 else float("nan"),
                round_sd=float((100 * ratio.std(ddof=1)).mean()),
                interval=(float(low), float(high)),
                treated=float(ours.mean().mean()),
                baseline=float(theirs.mean().mean()),
                per_seed=tuple(float(p) for p in percent),
                n_rounds=int(difference.notna().all(axis=1).sum()),
            )
        )
    return results
