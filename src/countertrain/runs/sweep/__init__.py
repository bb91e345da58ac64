"""A grid of settings computed by many workers: `spec` says what, `drive` gives it out as `job`s, `store` keeps it."""

from countertrain.runs.sweep.drive import sweep
from countertrain.runs.sweep.on_ray import RayTasks
from countertrain.runs.sweep.spec import Evaluation, Sweep
from countertrain.runs.sweep.store import Store, SweepError
from countertrain.runs.sweep.workers import Processes, Workers

__all__ = ["Evaluation", "Processes", "RayTasks", "Store", "Sweep", "SweepError", "Workers", "sweep"]
