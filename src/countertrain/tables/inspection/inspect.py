"""The look at a table: every finding at once, and a schema that deals with them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from countertrain.tables.columns import Column
from countertrain.tables.inspection.declared import check_declared
from countertrain.tables.inspection.facts import Facts
from countertrain.tables.inspection.findings import Finding, RowNames, Weight
from countertrain.tables.inspection.leaks import find_leak
from countertrain.tables.inspection.proposal import Proposal
from countertrain.tables.inspection.remarks import (
    group_rare,
    remark_blanks,
    remark_code,
    remark_fixed,
    remark_missing,
    remark_sense,
    remark_spikes,
)
from countertrain.tables.inspection.result import Inspection
from countertrain.tables.inspection.settling import explain_settings, settle
from countertrain.tables.inspection.verdicts import judge_column
from countertrain.tables.inspection.whole import (
    MIN_TABLE,
    find_duplicates,
    look_at_labels,
    look_at_names,
    look_at_size,
    name_apart,
)
from countertrain.tables.labels import code_labels
from countertrain.tables.regularities import find_rules
from countertrain.tables.schema import Schema
from countertrain.tables.sources.frames import choose_label
from countertrain.tables.summaries import MAX_LEVELS
from countertrain.words import list_phrases

__all__ = ["inspect"]

_ORDER: dict[Weight, int] = {"refused": 0, "warning": 1, "note": 2}


def inspect(
    frame: pd.DataFrame,
    label: str | None = None,
    *,
    schema: Schema | None = None,
    drop: Sequence[str] = (),
    title: str = "the table",
    header: Sequence[str] | None = None,
    rows: RowNames | None = None,
) -> Inspection:
    """Look at a table with a column `label` (its last one if left out), and report everything at once.

    With a `schema`, the rows are looked at by what it says. Columns to `drop` are not looked at. `header` has the names
    as they stand in the file, and `rows` knows how its rows are called there.
    """
    names = [str(name) for name in frame.columns]
    table = frame.set_axis(name_apart(names), axis=1).reset_index(drop=True)
    label = choose_label(title, list(table.columns), label, drop)
    rows = rows or RowNames()
    found = [*look_at_size(table.drop(columns=list(drop)), label), *look_at_labels(table[label], label, rows)]
    labelled = table[label].notna().to_numpy()
    kept = table.drop(columns=list(drop))
    if labelled.any():  # training leaves out the others
        kept, rows = kept[labelled].reset_index(drop=True), rows.among(labelled)
    look = _Look(kept, label, rows, dict.fromkeys(drop, "as you asked"), found)
    twice = len({*names}) < len(names)
    if twice or schema is None:
        look.look_at_names(table, header or names, refused=twice)
    if schema is None:
        look.infer()
        look.find_rules()
    else:
        look.follow(schema)
    look.say_duplicates()
    findings = tuple(sorted(look.findings, key=lambda one: _ORDER[one.weight]))
    return Inspection(title, label, len(table), table.shape[1], findings, look.propose())


@dataclass
class _Look:
    """What has been seen so far."""

    table: pd.DataFrame
    label: str
    rows: RowNames
    dropped: dict[str, str]
    findings: list[Finding]
    columns: dict[str, Column] = field(default_factory=dict)
    reasons: dict[str, dict[str, str]] = field(default_factory=dict)
    rules: tuple[str, ...] | None = None

    def look_at_names(self, table: pd.DataFrame, header: Sequence[str], *, refused: bool) -> None:
        """Names that are there twice."""
        for finding, copy in look_at_names(table, header, refused=refused):
            if finding.column is not None and finding.column not in self.dropped:
                self.findings.append(finding)
                if copy:
                    self.dropped[finding.column] = finding.seen

    def infer(self) -> None:
        """Judge every column, and propose what to make of it."""
        for name in self.table.columns:
            if name != self.label and name not in self.dropped:
                self._judge(Facts.of(self.table[name], self.rows))

    def _judge(self, facts: Facts) -> None:
        verdict = judge_column(facts)
        column = verdict.column
        self.findings += verdict.findings
        leak = None if column is None else self._find_leak(facts)
        if leak is not None:
            self.findings.append(leak)
            self.dropped[facts.name] = leak.seen
            return
        if column is not None and not verdict.findings:
            column, coded = remark_code(facts, column)
            self._add(coded)
        if column is None:
            self.dropped[facts.name] = verdict.why or self.findings[-1].seen
            return
        column, rare = group_rare(facts, column)
        self._add(rare)
        column, blank = remark_blanks(facts, column)
        self._add(blank)
        column, sense = remark_sense(column)
        self._add(sense)
        self._add(remark_spikes(facts, column))
        self._add(None if column.missing == "refuse" else remark_missing(facts, column))
        self._settle(facts, column)

    def _find_leak(self, facts: Facts) -> Finding | None:
        labels = self.table[self.label]
        if not 2 <= labels.nunique() <= MAX_LEVELS or len(labels) < MIN_TABLE:
            return None
        return find_leak(facts, code_labels(labels)[0], self.label)

    def _settle(self, facts: Facts, column: Column) -> None:
        """Keep the column with all that its rows say, held fixed where its name says so."""
        settled, fixed = settle(facts, column), remark_fixed(facts.name)
        self._add(fixed)
        if fixed is not None:
            settled = settled.model_copy(update={"mutability": "none"})
        mine = [one for one in self.findings if one.column == facts.name]
        self.columns[facts.name], self.reasons[facts.name] = settled, explain_settings(facts, settled, mine)

    def find_rules(self) -> None:
        """What holds between the columns in every row, proposed as rules."""
        columns = tuple(self.columns.values())
        schema = Schema(columns=columns).with_rules(find_rules(self.table, columns)) if columns else None
        if schema is not None and schema.rules:
            self.rules = schema.rules
            seen = f"every row keeps to {list_phrases(self.rules, 3)}"
            way_out = "nothing to do; or a schema without that rule"
            self.findings.append(Finding("rule", None, seen, "training and advice keep to it", way_out))

    def follow(self, schema: Schema) -> None:
        """Look at the rows by what the schema says of them."""
        table = self.table.drop(columns=self.label)
        self.findings += check_declared(table, schema.drop(list(self.dropped)), self.rows)
        for column in schema.drop(list(self.dropped)).columns:
            if column.name in table.columns:
                self._add(self._find_leak(Facts.of(table[column.name], self.rows)))
            self.columns[column.name] = column
        self.rules = schema.rules
        undeclared = [name for name in table.columns if name not in schema.names and name not in self.dropped]
        self.dropped |= dict.fromkeys(undeclared, "not in the schema that was given")

    def say_duplicates(self) -> None:
        """Rows that are there twice, but for the columns that are dropped."""
        self._add(find_duplicates(self.table.drop(columns=[n for n in self.dropped if n in self.table]), self.rows))

    def propose(self) -> Proposal:
        """The schema of what was judged."""
        return Proposal(tuple(self.columns.values()), self.dropped, self.reasons, self.rules)

    def _add(self, finding: Finding | None) -> None:
        if finding is not None:
            self.findings.append(finding)
