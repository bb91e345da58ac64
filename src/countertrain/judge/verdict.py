"""What a judge found, as people read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

__all__ = ["Standing", "Verdict"]


@dataclass(frozen=True)
class Standing:
    """Advice with one probability tau that the classifier promises, and what others make of it."""

    tau: float
    n: int
    """People who were given valid advice."""
    valid: float
    """Their share of all who asked."""
    cost: float
    """Sum over columns, on average: normal scores for a number, 1 for another level."""
    n_changed: float
    accepted: Mapping[str, float]
    """The share of the told rows that each member of the panel accepts."""
    whole: float
    """The share that all of them accept."""
    typical: float | None
    """Mean percentile of the told rows among real people who have it, by local outlier factor: 50 as these are."""
    distance: float | None
    """How far the told rows are from their five nearest real people, 1 as these are from each other."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """Whether advice holds: a standing for each tau, beside what the panel makes of real people."""

    target: Any
    default: float
    """The tau that is asked for where nobody says otherwise."""
    standings: Sequence[Standing]
    ceiling: Mapping[str, float]
    """The share of real people of the wanted class that each member of the panel accepts."""
    whole_ceiling: float
    accuracy: Mapping[str, float]
    """Of the classifier and of each outsider, on the test rows."""
    auc: Mapping[str, float]
    """The same for the area under the curve of the wanted class against all others."""

    @property
    def standing(self) -> Standing:
        """What comes of advice as it is given by default."""
        return next(one for one in self.standings if one.tau == self.default)

    @property
    def holds(self) -> float:
        """The one number: the share of default advice that the whole panel accepts."""
        return self.standing.whole

    def to_frame(self) -> pd.DataFrame:
        """A row for each tau."""
        return pd.DataFrame(
            [
                {
                    "tau": one.tau,
                    "n": one.n,
                    "valid": one.valid,
                    "cost": one.cost,
                    "n_changed": one.n_changed,
                    **one.accepted,
                    "whole panel": one.whole,
                    "typical": one.typical,
                    "distance": one.distance,
                }
                for one in self.standings
            ]
        )

    def summary(self) -> str:
        """The verdict in a few lines."""
        one = self.standing
        lines = [
            f"{one.whole:.0%} of the advice holds: so many of {one.n} people who do as they are told would be accepted "
            "by the whole panel",
            f"of real people who are {self.target!r}, the whole panel accepts {self.whole_ceiling:.0%}",
            *(
                f"  {name}: {share:.0%} of the told rows, {self.ceiling[name]:.0%} of real people"
                for name, share in one.accepted.items()
            ),
        ]
        if one.typical is not None and one.distance is not None:
            lines.append(
                f"told rows stand at percentile {one.typical:.0f} of real people, and {one.distance:.2f} times as far "
                "from their nearest ones (50 and 1 as real people are)"
            )
        return "\n".join([*lines, f"it costs {one.cost:.1f}, in {one.n_changed:.1f} columns"])

    def to_dict(self) -> dict[str, Any]:
        """Plain values that `json.dumps` takes as they are."""
        return {
            "target": self.target,
            "holds": self.holds,
            "default_tau": self.default,
            "ceiling": dict(self.ceiling),
            "whole_ceiling": self.whole_ceiling,
            "accuracy": dict(self.accuracy),
            "auc": dict(self.auc),
            "curve": self.to_frame().to_dict("records"),
        }

    def __repr__(self) -> str:
        return f"Verdict({self.holds:.0%} of the advice holds)"
