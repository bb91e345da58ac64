"""Tuning with Optuna: `goal` says what is wanted, `judge` trains and measures a batch, `study` asks and tells."""

from countertrain.experiments.tune.goal import METRICS, Bound, Goal
from countertrain.experiments.tune.study import SPACE, Space, Tuned, tune

__all__ = ["METRICS", "SPACE", "Bound", "Goal", "Space", "Tuned", "tune"]
