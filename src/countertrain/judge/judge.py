"""Advice judged by models that know nothing of the classifier that gave it."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from countertrain.judge.adviser import Adviser, Searching, ask_decider
from countertrain.judge.panel import Crowd, fit_panel
from countertrain.judge.verdict import Standing, Verdict
from countertrain.recourse.decider import Decider
from countertrain.recourse.defaults import PEOPLE
from countertrain.recourse.reach import AnswerGrid
from countertrain.recourse.threshold import Threshold
from countertrain.tables.encoder import Encoder
from countertrain.tables.labels import find_class
from countertrain.tables.scales import Ranks

__all__ = ["CLASSIFIER", "TAUS", "Member", "Progress", "decide_by", "judge", "judge_adviser", "seat_panel", "stand"]

CLASSIFIER = "classifier"
"""What the classifier itself is called among the models that are compared."""
TAUS = (0.5, 0.6, 0.75, 0.85, 0.9, 0.95)
"""From just accepted to surely accepted."""
Member = Callable[[pd.DataFrame], NDArray[np.float64]]
"""Rows in people's units -> the probability of each class, (n, K)."""
Retrain = Callable[[NDArray[np.int64], int], Decider]
"""Rows of the reference to train on, and a seed -> the classifier trained anew."""
Progress = Callable[[int, int], None]


def judge(
    decider: Decider,
    rows: pd.DataFrame,
    y: NDArray[np.int64],
    target: Any,
    *,
    retrain: Retrain | None = None,
    people: int = PEOPLE,
    among: NDArray[np.bool_] | None = None,
    taus: Sequence[float] = TAUS,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> Verdict:
    """Tell people among test rows of classes y (n,), who are not decided for `target`, what to change; ask the panel.

    The panel is fitted to the reference rows of the decider; with `retrain`, the classifier itself, trained anew on two
    halves of them with other seeds, sits in it, too: advice must survive the next version of the model. `among` (n,)
    tells whose rows may be asked for, so that classifiers can be compared on the same people.
    """
    wanted = find_class(target, decider.classes)
    encoder, panel = seat_panel(decider, retrain, seed)
    adviser, threshold = Searching.of(decider, seed=seed), decider.threshold
    return judge_adviser(
        adviser,
        rows,
        y,
        wanted,
        encoder,
        panel,
        people=people,
        among=among,
        taus=taus if threshold is None else [max(tau, threshold.needed(wanted)) for tau in taus],
        threshold=threshold,
        seed=seed,
        progress=progress,
    )


def judge_adviser(
    adviser: Adviser,
    rows: pd.DataFrame,
    y: NDArray[np.int64],
    wanted: int,
    encoder: Encoder,
    panel: Mapping[str, Member],
    *,
    people: int = PEOPLE,
    among: NDArray[np.bool_] | None = None,
    taus: Sequence[float] = TAUS,
    threshold: Threshold | None = None,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> Verdict:
    """The same for whoever decides and advises, towards class number `wanted`, by a panel that is there already.

    Adviser and panel decide by the same `threshold`, or for the likeliest class.
    Costs, and who is typical, are counted as the `encoder` scales numbers.
    """
    default = adviser.default_tau(wanted)
    taus = sorted({*taus, default})
    progress(1, 2 + len(taus))
    said = {CLASSIFIER: adviser.compute_probabilities(rows), **{name: ask(rows) for name, ask in panel.items()}}
    decided = {name: decide_by(p, threshold) for name, p in said.items()}  # (n,) each; what was said is (n, K)
    real, refused = y == wanted, decided[CLASSIFIER] != wanted  # (n,)
    refused = np.flatnonzero(refused if among is None else refused & among)
    if not len(refused) or not real.any():
        raise ValueError(
            f"to judge advice towards {adviser.classes[wanted]!r}, the test rows must hold people who are refused it, "
            "and people who have it; give more rows"
        )
    asking = rows.iloc[np.random.default_rng(seed).permutation(refused)[:people]].reset_index(drop=True)
    crowd = Crowd.of(encoder.encode(rows[real]))
    advise = adviser.ask(asking, wanted)
    progress(2, 2 + len(taus))
    standings = []
    for tau in taus:
        told = advise(tau)
        standings.append(stand(tau, *told, len(asking), wanted, encoder, panel, crowd, threshold=threshold))
        progress(2 + len(standings), 2 + len(taus))
    accepted = {name: decided[name][real] == wanted for name in panel}
    return Verdict(
        target=adviser.classes[wanted],
        default=default,
        standings=standings,
        ceiling={name: float(yes.mean()) for name, yes in accepted.items()},
        whole_ceiling=float(np.logical_and.reduce(list(accepted.values())).mean()),
        accuracy={name: float((one == y).mean()) for name, one in decided.items()},
        auc={name: _auc(p[:, wanted], real) for name, p in said.items()},
    )


def seat_panel(decider: Decider, retrain: Retrain | None, seed: int) -> tuple[Encoder, dict[str, Member]]:
    """Outsiders and, if it can be trained anew, the classifier's next versions; and the encoder that outsiders use."""
    if decider.reference is None:
        raise ValueError("to judge advice, the training rows are needed, and this model was saved without them")
    x, y = decider.reference
    frame = decider.encoder.decode(x.numpy())
    encoder = Encoder.fit(decider.encoder.schema, frame, fit_scale=Ranks.fit)
    outsiders = fit_panel(encoder.encode(frame), y.numpy(), seed=seed)
    panel: dict[str, Member] = {name: _ask_outsider(encoder, model) for name, model in outsiders.items()}
    if retrain is not None:
        order = np.random.default_rng(seed).permutation(len(y))
        for i, half in enumerate((order[::2], order[1::2]), 1):
            panel[f"next version {i}"] = partial(ask_decider, retrain(np.sort(half), seed + i))
    return encoder, panel


def _ask_outsider(encoder: Encoder, model: Any) -> Member:
    return lambda rows: np.asarray(model.predict_proba(encoder.encode(rows)))


def stand(
    tau: float,
    told: pd.DataFrame,
    origin: pd.DataFrame,
    n_asked: int,
    wanted: int,
    encoder: Encoder,
    panel: Mapping[str, Member],
    crowd: Crowd | None,
    *,
    threshold: Threshold | None = None,
) -> Standing:
    """What the panel makes of told rows, of people who were at rows `origin`; so many had asked."""
    x, start = encoder.encode(told), encoder.encode(origin)
    costs = AnswerGrid.of(encoder).costs(torch.from_numpy(x), torch.from_numpy(start))
    yes = {name: decide_by(ask(told), threshold) == wanted for name, ask in panel.items()} if len(told) else {}
    typical = crowd.measure(x) if crowd is not None and len(told) else {}
    return Standing(
        tau=tau,
        n=len(told),
        valid=len(told) / n_asked,
        cost=float(costs.sum(1).mean()),
        n_changed=float((costs > 0).sum(1).double().mean()),
        accepted={name: float(yes[name].mean()) if yes else 0.0 for name in panel},
        whole=float(np.logical_and.reduce(list(yes.values())).mean()) if yes else 0.0,
        typical=typical.get("typical"),
        distance=typical.get("distance"),
    )


def decide_by(probability: NDArray[np.float64], threshold: Threshold | None) -> NDArray[np.int64]:
    """The class number of each row, (n,), by the probabilities (n, K) that a model gives."""
    if threshold is None:
        return np.asarray(probability.argmax(1))
    return np.asarray(threshold.choose(torch.from_numpy(probability)).numpy())


def _auc(score: NDArray[np.float64], real: NDArray[np.bool_]) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(real, score))
