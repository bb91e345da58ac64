"""Who takes part in the comparison of training methods, and which settings each may choose from."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

__all__ = ["BASELINE", "COMMON", "CONTENDERS", "Contender"]

BASELINE = "bl"

COMMON: Mapping[str, Any] = {"batch_size": 300, "learning_rate": 1e-2}
"""What all share beside the paper's final settings of a data set (network, tau, domain): few updates and large ones, so
that methods that attack or sample every row can be compared in minutes. Per row as many counterfactuals as run."""


@dataclass(frozen=True)
class Contender:
    """A training method, and the trials among which validation rows choose."""

    title: str
    settings: Mapping[str, Any]
    """What all trials share."""
    trials: tuple[Mapping[str, Any], ...] = ({},)
    """One trial is no choice: settings as they were published."""
    like: str | None = None
    """Another contender whose choice is taken over."""
    members: int = 1
    """Models that decide together."""
    together: bool = True
    """Whether trials can train as one population; an attack has one reach for all models."""
    writes: bool = False
    """Whether a network beside the classifier writes the counterfactuals; then trials are of that network."""


def _cross(**values: tuple[Any, ...]) -> tuple[Mapping[str, Any], ...]:
    return tuple(dict(zip(values, chosen, strict=True)) for chosen in product(*values.values()))


_STOPPED = {"objective": "bl", "early_stopping": True}

CONTENDERS: dict[str, Contender] = {
    BASELINE: Contender("conventional training", {"objective": "bl"}),
    "early": Contender("conventional, stopped early", _STOPPED, _cross(learning_rate=(3e-3, 1e-2), patience=(3, 10))),
    "ensemble": Contender("five of these that decide together", _STOPPED, like="early", members=5),
    "ct": Contender("counterfactual training as run", {"objective": "ct"}),
    "ct-near": Contender(
        "counterfactual training, nearest of 16 neighbours, tuned",
        {"objective": "ct", "n_neighbours": 16, "lambda_reg": 0.1},
        _cross(lambda_div=(0.1, 0.3), lambda_adv=(0.25, 1.0)),
    ),
    "ar": Contender("its adversarial half", {"objective": "ar"}, _cross(lambda_adv=(0.25, 1.0), epsilon=(0.1, 0.3))),
    "cd": Contender("its divergence half", {"objective": "cd"}, _cross(lambda_div=(0.1, 0.5), lambda_reg=(0.1, 0.5))),
    "jem": Contender(
        "joint energy-based model",
        {"objective": "jem", "n_steps": 15},
        _cross(lambda_div=(0.2, 1.0), lambda_reg=(0.01, 0.1)),
    ),
    "pgd": Contender(
        "adversarial training",
        {"objective": "pgd", "n_steps": 5},
        _cross(epsilon=(0.05, 0.1, 0.2, 0.3)),
        together=False,
    ),
    "trades": Contender(
        "TRADES",
        {"objective": "trades", "n_steps": 5},
        _cross(epsilon=(0.1, 0.3), terms=({"drift": 1.0}, {"drift": 6.0})),
        together=False,
    ),
    "ross": Contender(
        "recourse within a step",
        {"objective": "ross"},
        _cross(epsilon=(0.3, 0.75), terms=({"reach": 0.2}, {"reach": 0.8})),
        together=False,
    ),
    "gradsup": Contender(
        "gradient supervision",
        {"objective": "gradsup", "n_neighbours": 16},
        _cross(terms=tuple({"alignment": weight} for weight in (0.1, 0.5, 1.0, 2.0))),
    ),
    "counternet": Contender(
        "a network that writes counterfactuals",
        {"objective": "counternet"},
        _cross(lambda_near=(0.001, 0.01, 0.1, 1.0)),
        writes=True,
    ),
}
"""Each that is tuned has four trials; the ensemble takes over what was chosen for its members."""
