"""`python -m countertrain`."""

from countertrain.cli import main

main()
