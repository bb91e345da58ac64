"""The command line: parse, call, print. Each module adds its commands to `app`, in the order of the help."""

from countertrain.cli import check  # isort: skip
from countertrain.cli import train  # isort: skip
from countertrain.cli import models  # isort: skip
from countertrain.cli import serve  # isort: skip
from countertrain.cli import letters  # isort: skip
from countertrain.cli import tune  # isort: skip
from countertrain.cli import sweep  # isort: skip
from countertrain.cli import data  # isort: skip
from countertrain.cli.app import app, main

__all__ = ["app", "check", "data", "letters", "main", "models", "serve", "sweep", "train", "tune"]
