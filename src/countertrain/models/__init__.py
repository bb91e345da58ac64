"""Networks: the architectures of the paper, many of them as one population, and what makes them fast."""

from countertrain.models.architectures import Ensemble, Initialisation, lenet, linear, mlp
from countertrain.models.population import NotStackableError, Population

__all__ = ["Ensemble", "Initialisation", "NotStackableError", "Population", "lenet", "linear", "mlp"]
