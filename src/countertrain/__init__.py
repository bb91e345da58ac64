"""countertrain: train classifiers whose counterfactual explanations are plausible and actionable."""

from countertrain.constraints import Constraints
from countertrain.models import lenet, linear, mlp
from countertrain.objective import Objective, ar, bl, cd, ct
from countertrain.search.generator import Generator
from countertrain.search.generators import eccco, generic, revise
from countertrain.search.state import Counterfactuals
from countertrain.search.vae import fit_vae
from countertrain.trainer import CounterfactualTrainer

__all__ = [
    "Constraints",
    "CounterfactualTrainer",
    "Counterfactuals",
    "Generator",
    "Objective",
    "ar",
    "bl",
    "cd",
    "ct",
    "eccco",
    "fit_vae",
    "generic",
    "lenet",
    "linear",
    "mlp",
    "revise",
]
