"""What is asked for where nobody says otherwise: the same in Python, in the service and in the command."""

__all__ = ["N_STEPS", "OPTIONS", "PEOPLE", "TAU", "TAU_RANGE", "TAU_SHARE"]

OPTIONS = 1
"""Ways to another decision, per person."""
TAU_SHARE = 0.75
"""Where nothing was learnt from people held out, advice is to make the model surer of the wanted decision than it is of
this share of the real people who have it."""
TAU_RANGE = (0.6, 0.9)
"""But of no less and no more than that."""
TAU = 0.75
"""The probability that the wanted decision is to have after the changes, where no real people are at hand."""
N_STEPS = 100
"""The most steps that each of two gradient searches may take to get there."""
PEOPLE = 200
"""Who are told what to change when advice is judged, at most."""
