"""Tuning with Optuna: `goal` says what is wanted, `judge` trains and measures a batch, `study` asks and tells."""

from countertrain.runs.tune.goal import METRICS, Bound, Goal
from countertrain.runs.tune.study import SPACE, Space, Tuned, tune

__all__ = ["METRICS", "SPACE", "Bound", "Goal", "Space", "Tuned", "tune"]
