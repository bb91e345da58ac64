"""The command line: parse, call, print. Each module adds its commands to `app`, in the order of the help."""

from countertrain.cli import runs  # isort: skip
from countertrain.cli import data  # isort: skip
from countertrain.cli import folders  # isort: skip
from countertrain.cli import tune  # isort: skip
from countertrain.cli import sweep  # isort: skip
from countertrain.cli.app import app, main

__all__ = ["app", "data", "folders", "main", "runs", "sweep", "tune"]
