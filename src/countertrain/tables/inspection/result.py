"""What a look at a table has shown, and the schema that it proposes."""

from dataclasses import dataclass, replace
from typing import Self

import pandas as pd

from countertrain.tables.inspection.findings import REFUSED, Finding
from countertrain.tables.inspection.proposal import Proposal
from countertrain.tables.schema import Schema, SchemaError
from countertrain.tables.sentences import say_all

__all__ = ["Inspection"]


@dataclass(frozen=True, eq=False)
class Inspection:
    """What a look at a table has shown."""

    title: str
    label: str
    n_rows: int
    n_columns: int
    findings: tuple[Finding, ...]
    """What training refuses first, then what would spoil a model, then what is only said."""
    proposal: Proposal

    @property
    def schema(self) -> Schema:
        """The schema that is proposed: dropping, filling and declaring as the findings say."""
        return self.proposal.schema

    @property
    def refused(self) -> tuple[Finding, ...]:
        """What training would refuse the table for."""
        return tuple(one for one in self.findings if one.weight == "refused")

    @property
    def fixed(self) -> tuple[str, ...]:
        """The columns that people rarely can or should change, by their names."""
        return tuple(one.column for one in self.findings if one.kind == "fixed" and one.column is not None)

    def refuse(self, sentence: str) -> Self:
        """The look at a table that is refused for one more reason."""
        finding = Finding("refused", None, sentence, REFUSED, "correct the table or the schema", "refused")
        return replace(self, findings=(finding, *self.findings))

    def check(self) -> None:
        """Refuse a table that cannot be trained on, with all that is in the way."""
        if self.refused:
            raise SchemaError(f"{self.title} cannot be trained on: {say_all([f.sentence for f in self.refused])}")

    def to_frame(self) -> pd.DataFrame:
        """The findings as a table: column, what was seen, what will be done, the way out, and how much it weighs."""
        return pd.DataFrame(
            [(f.column, f.seen, f.done, f.way_out, f.weight) for f in self.findings],
            columns=["column", "seen", "done", "way_out", "weight"],
        )

    def to_toml(self) -> str:
        """The proposed schema as a file to edit, with the reason on every line."""
        return self.proposal.to_toml(
            [
                f"What the columns of {self.title} mean, proposed after a look at its {self.n_rows:,} rows.",
                "Edit it and give it back: countertrain train ... --schema THIS_FILE",
                f"The label, {self.label!r}, is not part of it.",
            ]
        )
