"""What is asked for where nobody says otherwise: the same in Python, in the service and in the command."""

__all__ = ["N_STEPS", "OPTIONS", "TAU"]

OPTIONS = 1
"""Ways to another decision, per person."""
TAU = 0.75
"""The probability that the wanted decision is to have after the changes."""
N_STEPS = 100
"""The most steps that each of two gradient searches may take to get there."""
