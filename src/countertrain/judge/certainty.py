"""Advice that is to hold with some certainty: the probability to ask for, by what held for people who were held out."""

from typing import Any

import numpy as np

from countertrain.judge.judge import Progress, judge
from countertrain.judge.verdict import Verdict
from countertrain.recourse.decider import Decider

__all__ = ["find_tau", "judge_held_out"]


def judge_held_out(decider: Decider, target: Any, *, progress: Progress = lambda done, total: None) -> Verdict:
    """What independent models make of advice to people whom the classifier was not trained on."""
    target = decider.settle_target(target)
    if target is None or isinstance(target, list | tuple | np.ndarray):
        raise ValueError("certainty needs one target for all people: the decision that they want")
    if decider.held_out is None:
        raise ValueError(
            "certainty is learnt from rows that were held out in training, and this model has none; train it with "
            "early_stopping, or ask for a probability tau"
        )
    x, y = decider.held_out
    return judge(decider, decider.encoder.decode(x.numpy()), y.numpy(), target, progress=progress)


def find_tau(verdict: Verdict, certainty: float) -> float:
    """The least probability tau at which so large a share of the advice holds, between those that were tried."""
    if not 0 < certainty < 1:
        raise ValueError(f"certainty must lie strictly between 0 and 1; got {certainty:g}")
    taus = np.array([one.tau for one in verdict.standings])
    holds = np.maximum.accumulate([one.whole for one in verdict.standings])
    if holds[-1] < certainty:
        raise ValueError(
            f"no advice towards {verdict.target!r} is so certain: of the surest, {holds[-1]:.0%} held for people who "
            f"were held out; ask for a certainty below {holds[-1]:.2f}"
        )
    place = int(np.argmax(holds >= certainty))
    if place == 0:
        return float(taus[0])
    share = (certainty - holds[place - 1]) / (holds[place] - holds[place - 1])
    return float(taus[place - 1] + share * (taus[place] - taus[place - 1]))
