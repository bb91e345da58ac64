"""Whoever decides about people, with all that is needed to explain, to judge and to serve the decisions."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from torch import Tensor, nn

from countertrain.constraints import Constraints, Mutability
from countertrain.models.deciding import as_one
from countertrain.models.frozen import Frozen
from countertrain.recourse.evidence import Evidence
from countertrain.recourse.threshold import Threshold, decide
from countertrain.tables.encoder import Encoder
from countertrain.tables.labels import find_class
from countertrain.tables.schema import Column

__all__ = ["Decider"]


@dataclass(frozen=True, eq=False)
class Decider:
    """Trained models that decide together about the rows of a table."""

    encoder: Encoder
    classes: tuple[Any, ...]
    """K labels, as Python's own values."""
    models: tuple[nn.Module, ...]
    reference: tuple[Tensor, Tensor] | None = None
    """Real rows (m, D), encoded, and their class numbers (m,); None where they were not kept."""
    held_out: tuple[Tensor, Tensor] | None = None
    """The same of rows that the models were not trained on; None where there are none."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """How the models were trained."""
    target: Any = None
    """The label of the class that people want; None where nobody said."""
    threshold: Threshold | None = None
    """The probability from which one of two classes is decided for; None: the likeliest class is."""
    evidence: Evidence | None = None
    """What the training rows say of each column, against which nobody is advised to go; None: anybody may be."""
    taus: Mapping[int, float] = field(default_factory=dict)
    """By class number, how sure of it advice is to make the models, where that was learnt from people held out."""
    id: str | None = None
    """Of the folder of the models, made of its content; None before it was written."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """The data that they were trained on: name, fingerprint, label."""

    def settle_target(self, given: Any = None) -> Any:
        """What is asked for now, or else what people were said to want; None where neither was said."""
        return self.target if given is None else given

    def want(self, target: Any) -> Self:
        """The same decider for people who want this class, given by its label; None: as before."""
        return self if target is None else replace(self, target=self.classes[find_class(target, self.classes)])

    @cached_property
    def model(self) -> nn.Module:
        """The models as one: (n, D) encoded rows -> (n, K) logits."""
        return as_one(self.models)

    @cached_property
    def _frozen(self) -> Frozen:
        return Frozen(self.model)

    def restrict(self, k: int, **restrictions: Any) -> Constraints:
        """What people who want class k may be asked to change: by the schema, and not against the evidence.

        `restrictions` are those of one case, as `Encoder.constraints` takes them.
        """
        if restrictions:
            return self._encode_for(k).constraints(**restrictions)
        if k not in self._limits:
            self._limits[k] = self._encode_for(k).constraints()
        return self._limits[k]

    def list_columns(self, k: int) -> tuple[Column, ...]:
        """The columns with the directions that are left to people who want class k."""
        return self._encode_for(k).schema.columns

    def _encode_for(self, k: int) -> Encoder:
        ways = self.find_ways(k)
        if self.evidence is None and not ways:
            return self.encoder
        columns = tuple(_meet(column, ways.get(column.name, "both")) for column in self.encoder.schema.columns)
        schema = self.encoder.schema.model_copy(update={"columns": columns})
        return replace(self.encoder, schema=schema if self.evidence is None else self.evidence.narrow(schema, k))

    def find_ways(self, k: int) -> dict[str, Mutability]:
        """Which way columns help, or make no difference, by construction of the models, for people who want class k.

        What is declared is said of one class: of the other one of two it is the reverse, of one among several nothing.
        """
        signs = {c.name: c.monotone for c in self.encoder.schema.columns if c.monotone is not None}
        wanted = self.settings.get("target")
        if not signs or wanted is None:
            return {}
        mine = k == find_class(wanted, self.classes)
        if not mine and len(self.classes) > 2:
            return {}
        return {name: "increase" if (sign == "+") == mine else "decrease" for name, sign in signs.items()}

    def list_directions(self, k: int) -> dict[str, str]:
        """By column that may go both ways, what is known to help people who want class k: by construction, or rows."""
        known = () if self.evidence is None else self.evidence.by_class[k]
        said = {one.column: one.summary() for one in known if one.is_clear}
        more = {"increase": "more", "decrease": "less"}
        said |= {name: f"{more[way]} helps (by construction)" for name, way in self.find_ways(k).items()}
        free = {column.name for column in self.encoder.schema.columns if column.mutability == "both"}
        return {name: text for name, text in said.items() if name in free}

    def name_holders(self, k: int) -> dict[str, str]:
        """By column that has less room than its schema says, for people who want class k, what holds it."""
        pairs = zip(self.encoder.schema.columns, self.list_columns(k), strict=True)
        held = [declared.name for declared, left in pairs if left != declared]
        return {name: "by construction" if name in self.find_ways(k) else "by the evidence" for name in held}

    @cached_property
    def _limits(self) -> dict[int, Constraints]:
        """By class number, what is worked out once."""
        return {}

    def compute_probabilities(self, x: Tensor) -> Tensor:
        """The probability of each class, (n, K) float64, for encoded rows x (n, D)."""
        return self.weigh(x)[1]

    def decide(self, x: Tensor) -> Tensor:
        """The class number of each encoded row, (n,)."""
        return self.weigh(x)[0]

    def weigh(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What is decided about each encoded row, (n,), and the probability of each class, (n, K) float64."""
        logits = self._frozen(x.float())
        return decide(logits, self.threshold), logits.double().softmax(-1)


def _meet(column: Column, way: Mutability) -> Column:
    """The column that goes no way but this: none at all where people can only go the other one."""
    if way in ("both", column.mutability):
        return column
    return column.model_copy(update={"mutability": way if column.mutability == "both" else "none"})
