"""Networks: the architectures, many of them as one population, and what makes them fast."""

from countertrain.models.architectures import Ensemble, Initialisation, lenet, linear, mlp, piecewise
from countertrain.models.population import NotStackableError, Population

__all__ = ["Ensemble", "Initialisation", "NotStackableError", "Population", "lenet", "linear", "mlp", "piecewise"]
