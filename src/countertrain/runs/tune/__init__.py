"""Tuning with Optuna: `goal` says what is wanted, `judge` trains and measures a batch, `study` asks and tells."""

from countertrain.runs.tune.goal import Bound, Goal, tunable
from countertrain.runs.tune.study import SPACE, Space, Tuned, check_optuna, tune

__all__ = ["SPACE", "Bound", "Goal", "Space", "Tuned", "check_optuna", "tunable", "tune"]
