"""A grid of settings computed by many workers: `spec` says what, `drive` gives it out as `job`s, `store` keeps it."""

from countertrain.experiments.sweep.drive import sweep
from countertrain.experiments.sweep.on_ray import RayTasks
from countertrain.experiments.sweep.spec import Evaluation, Sweep
from countertrain.experiments.sweep.store import Store, SweepError
from countertrain.experiments.sweep.workers import Processes, Workers

__all__ = ["Evaluation", "Processes", "RayTasks", "Store", "Sweep", "SweepError", "Workers", "sweep"]
