"""The command line: parse, call, print. Each module adds its commands to `app`, in the order of the help."""

from countertrain.cli import runs  # isort: skip
from countertrain.cli import data  # isort: skip
from countertrain.cli import tabular  # isort: skip
from countertrain.cli import tune  # isort: skip
from countertrain.cli import sweep  # isort: skip
from countertrain.cli import paper  # isort: skip
from countertrain.cli.app import app, main

__all__ = ["app", "data", "main", "paper", "runs", "sweep", "tabular", "tune"]
