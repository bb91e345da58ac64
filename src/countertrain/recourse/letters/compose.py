"""What stands in a letter: plain words for a template, and the record that is kept beside it."""

import platform
from dataclasses import asdict, dataclass
from datetime import datetime
from importlib.metadata import version
from typing import Any

from countertrain.recourse.codes import Codes
from countertrain.recourse.decider import Decider
from countertrain.recourse.explanation import Change, Explanation, Option, say_why_first
from countertrain.recourse.letters.owner import Owner
from countertrain.recourse.why import PersonReasons
from countertrain.tables.cells import count_as
from countertrain.tables.schema import Numeric

__all__ = ["RECORD", "Author"]

RECORD = "countertrain letter, version 1"
"""What a record says of its form."""
_VERSIONS = ("countertrain", "torch", "numpy", "pandas", "scikit-learn")


@dataclass(frozen=True, eq=False)
class Author:
    """Whoever writes the letters of one model on one day."""

    decider: Decider
    owner: Owner
    codes: Codes
    now: datetime

    def compose(self, name: str, explanation: Explanation, why: PersonReasons) -> dict[str, Any]:
        """What a template may use, in texts and lists of texts alone."""
        owner, codes = self.owner, self.codes
        fixed = [column.name for column in codes.schema.columns if column.mutability == "none"]
        options = [option for option in explanation.options if option.valid and option.changes]
        target = explanation.target
        wanted = owner.name_decision(target, target)
        return {
            "owner": owner.model_dump(include={"name", "address", "contact", "object", "role", "subject"}),
            "date": owner.write_date(self.now),
            "id": name,
            "model": self.decider.id or "",
            "decision": owner.name_decision(explanation.decision, target),
            "wanted": wanted,
            "granted": explanation.decision == target,
            "probability": f"{100 * explanation.probability:.0f} %",
            "reasons": [
                {
                    "code": one.code
                    if one.column in codes.entries
                    else "",  # made from the schema, it tells people nothing
                    "text": _to_sentence(one.text),
                    "changeable": one.changeable,
                }
                for one in why.reasons
            ],
            "not_reasons": [codes.name(column) for column in why.not_reasons],
            "options": [self._describe(option) for option in options],
            "preferred": say_why_first(options, f"people with the decision “{wanted}”") or "",
            "fixed": [self._state(name, explanation.factual[name]) for name in fixed],
            "details": [self._state(name, value) for name, value in explanation.factual.items()],
        }

    def record(self, row: int, name: str, explanation: Explanation, why: PersonReasons) -> dict[str, Any]:
        """What is kept of a letter, for `json.dumps`; the rows of other people are left out."""
        told = asdict(explanation)
        for option in told["options"]:
            del option["nearest"]
        return {
            "format": RECORD,
            "row": row,
            "id": name,
            "time": self.now.isoformat(timespec="seconds"),
            "model": {"id": self.decider.id, **self.decider.about},
            "versions": {"python": platform.python_version(), **{one: version(one) for one in _VERSIONS}},
            "input": told["factual"],
            "counted_as": {
                name: taken
                for name, value in told["factual"].items()
                if (taken := count_as(self.codes.schema[name], value)) is not None
            },
            "decision": told["decision"],
            "target": told["target"],
            "probability": told["probability"],
            "reasons": [asdict(reason) for reason in why.reasons],
            "not_reasons": list(why.not_reasons),
            "responsiveness": why.responsiveness,
            "options": told["options"],
        }

    def _state(self, name: str, value: Any) -> str:
        """A column of a person, and what the decision took it for where the model does not know the level."""
        taken = count_as(self.codes.schema[name], value)
        counted = "" if taken is None else f" (not known to the model, and counted as {self.codes.show(name, taken)})"
        return f"{self.codes.name(name)}: {self.codes.show(name, value)}{counted}"

    def _describe(self, option: Option) -> dict[str, Any]:
        return {"kind": option.kind, "changes": [self._say(change) for change in option.changes]}

    def _say(self, change: Change) -> str:
        """A change as a request: "raise income from 24,000 EUR to 31,500 EUR"."""
        label = self.codes.name(change.column)
        before, after = (self.codes.show(change.column, value) for value in (change.before, change.after))
        if change.before is None:
            return f"have {label} at {after} (it is not known now)"
        if change.in_time:
            return f"wait until {label} has fallen from {before} to {after}"
        verb = "change"
        if isinstance(self.codes.schema[change.column], Numeric):
            verb = "raise" if change.after > change.before else "lower"
        return f"{verb} {label} from {before} to {after}"


def _to_sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text[-1:] in ".!?" else ".")
