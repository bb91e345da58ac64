"""Does the advice hold? What models that know nothing of the classifier make of the rows that people are told."""

from countertrain.judge.judge import judge
from countertrain.judge.verdict import Standing, Verdict

__all__ = ["Standing", "Verdict", "judge"]
