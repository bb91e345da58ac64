"""A look at a table before training: each thing that can be odd about a column is seen, and nothing that is not."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from countertrain.tables import Inspection, inspect, inspect_source, load
from countertrain.tables.encoder import Encoder
from countertrain.tables.names import find_hint, says_code, says_id
from countertrain.tables.scales import Ranks
from countertrain.tables.schema import OTHER, Boolean, Categorical, Numeric, Schema, SchemaError
from countertrain.tables.spikes import find_ends, find_spikes
from loans import loans

N = 300
draw = np.random.default_rng(0)
PEOPLE, DECISION = loans(N)


def look(label: str = "decision", **columns: Any) -> Inspection:
    """A look at the loans with further columns."""
    return inspect(PEOPLE.assign(**columns, decision=DECISION) if label == "decision" else PEOPLE, label)


def kinds(seen: Inspection, column: str | None) -> list[str]:
    return [one.kind for one in seen.findings if one.column == column]


WORDS = ["the", "client", "wants", "to", "pay", "later", "because", "of", "a", "new", "job", "and", "an", "old", "debt"]
ODD: dict[str, tuple[Sequence[Any] | Any, str]] = {
    "empty": (np.nan, "empty"),
    "constant": ("x", "constant"),
    "zero": (0, "constant"),
    "one_or_missing": (np.where(np.arange(N) % 3, 1.0, np.nan), "constant"),
    "row": (np.arange(N) + 1, "id"),
    "customer_id": (draw.permutation(N) * 7, "id"),
    "uuid": ([f"{i:032x}" for i in draw.permutation(N)], "id"),
    "comment": ([" ".join(draw.choice(WORDS, 8)) for _ in range(N)], "text"),
    "employer": ([f"Employer {i % 150}" for i in range(N)], "levels"),
    "since": (pd.date_range("2020-01-01", periods=N).strftime("%d.%m.%Y"), "date"),
    "stamp": (pd.date_range("2020-01-01", periods=N), "date"),
    "mixed": (np.where(np.arange(N) % 50 == 3, "unknown", draw.integers(0, 900, N).astype(str)), "mixed"),
    "salary": ([f"{i:,.2f} €" for i in draw.normal(4_000, 900, N)], "mixed"),
    "branch_code": (draw.choice([101, 204, 333], N), "code"),
    "plz": (draw.integers(10_000, 99_999, N), "code"),
    "grade": (draw.choice([1, 2, 7, 19], N), "code"),
    "infinite": (np.where(np.arange(N) == 5, np.inf, draw.normal(size=N)), "refused"),
    "huge": ([2**60 + 10**6 * int(i) for i in draw.integers(0, 99, N)], "refused"),
    "outcome": (np.where(DECISION == "granted", "paid", "closed"), "leak"),
    "payout": (np.where(DECISION == "granted", draw.integers(5, 90, N), 0), "leak"),
    "missing_if_refused": (np.where(DECISION == "granted", draw.normal(size=N), np.nan), "leak"),
    "gaps": (np.where(np.arange(N) % 4, draw.normal(size=N), np.nan), "missing"),
    "castle": (np.where(np.arange(N) < 2, "castle", draw.choice(["own", "rent"], N)), "rare"),
    "question": (draw.choice(["?", "own", "rent"], N), "blank"),
    "Nationalität": (draw.choice(["DE", "FR"], N), "fixed"),
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_about_a_column_is_seen_and_the_schema_that_is_proposed_deals_with_it(name: str) -> None:
    values, kind = ODD[name]
    seen = look(**{name: values})
    assert kinds(seen, name) == [kind]
    assert not [one for one in seen.findings if one.column not in (name, "age", "debt")]
    assert all(one.seen and one.done and one.way_out for one in seen.findings)
    frame = PEOPLE.assign(**{name: values}, decision=DECISION)
    data = load(frame, label="decision", schema=seen.schema)  # nothing is refused any more
    dropped = name in (seen.schema.dropped or ())
    assert dropped == (name not in data.schema.names)
    refused = bool([one for one in seen.refused if one.column == name])
    if refused:
        with pytest.raises(ValueError):
            load(frame, label="decision")
    else:
        load(frame, label="decision")


def test_a_plain_table_gives_no_more_than_it_has() -> None:
    seen = look()
    assert [(one.kind, one.column, one.weight) for one in seen.findings] == [
        ("fixed", "age", "note"),
        ("missing", "debt", "note"),
    ]
    assert seen.fixed == ("age",)
    assert (seen.schema["age"].mutability, seen.schema["income"].mutability) == ("none", "both")
    seen.check()
    plain = {
        "dependants_of_chance": draw.integers(0, 5, N),
        "many_numbers": draw.integers(0, 10**6, N),
        "amount": draw.choice([0, 100, 200, 300], N),
        "level": draw.integers(1, 6, N),
        "version": draw.choice(["1.2", "1.3", "2.0"], N),
        "words": draw.choice(["no internet service at all", "yes, of course, there is"], N),
    }
    more = look(**{name: values for name, values in plain.items() if name != "dependants_of_chance"})
    assert {one.column for one in more.findings} <= {"age", "debt", "version"}


def test_what_training_refuses_is_told_at_once_and_not_one_by_one() -> None:
    frame = PEOPLE.assign(a="x", b=[f"text {i}" for i in range(N)], decision=DECISION)
    with pytest.raises(
        SchemaError, match=r"^the table cannot be trained on: 2 things .* \(1\) column 'a'.*\(2\) column"
    ):
        inspect(frame, "decision").check()
    with pytest.raises(SchemaError, match=r"^2 things are in the way: \(1\) column 'a' is 'x' .* \(2\) column 'b' has"):
        Schema.infer(frame)


def test_labels_are_looked_at_too() -> None:
    few = DECISION.where(DECISION.index > 2, "withdrawn")
    seen = inspect(PEOPLE.assign(decision=few.where(few.index % 50 != 7)), "decision")
    assert kinds(seen, "decision") == ["class", "label"]
    assert "fewer than 5 rows of the class 'withdrawn', rows 0, 1, 2" in seen.findings[0].seen
    assert "6 rows without a label (2.0 %), rows 7, 57, 107 and 3 more" in [f.seen for f in seen.findings]
    assert [one.way_out for one in look("income").refused] == ["group them, or predict another column"]
    alone = inspect(PEOPLE.assign(decision="granted"), "decision")
    assert [one.seen for one in alone.refused] == ["the label is 'granted' in every row"]
    small = inspect(PEOPLE[:8].assign(decision=DECISION[:8]), "decision")
    assert "size" in [one.kind for one in small.refused]
    with pytest.raises(ValueError, match="has no column 'decisio' to predict; did you mean 'decision'"):
        inspect(PEOPLE.assign(decision=DECISION), "decisio")


def test_a_table_of_nothing_is_looked_at_all_the_same() -> None:
    bare = inspect(pd.DataFrame({"a": ["x"] * 20, "y": [0, 1] * 10}), "y")
    assert [one.kind for one in bare.refused] == ["constant"]
    with pytest.raises(SchemaError, match="no column is left to learn from"):
        _ = bare.schema
    for frame in (pd.DataFrame({"a": [], "y": []}), pd.DataFrame({"a": range(20), "y": [None] * 20})):
        assert {"size", "label"} <= {one.kind for one in inspect(frame, "y").refused}
    odd = pd.DataFrame({"a": [[1], [2]] * 10, 7: pd.to_timedelta(range(20), "D"), "y": [0, 1] * 10})
    assert [(one.column, one.kind) for one in inspect(odd, "y").refused] == [("a", "refused"), ("7", "date")]


def test_rows_that_are_there_twice_are_said_unless_by_chance() -> None:
    frame = PEOPLE.assign(decision=DECISION)
    assert kinds(inspect(frame, "decision"), None) == []
    twice = pd.concat([frame, frame[:30]], ignore_index=True)
    (finding,) = [one for one in inspect(twice, "decision").findings if one.kind == "rows"]
    assert finding.seen == "30 rows (9.1 %) repeat an earlier one, rows 300, 301, 302 and 27 more"
    coarse = frame[["job", "member", "decision"]]
    assert coarse.duplicated().mean() > 0.9
    assert kinds(inspect(coarse, "decision"), None) == []


def test_two_columns_of_one_name_are_told_apart(tmp_path: Path) -> None:
    frame = PEOPLE.assign(copy=PEOPLE["income"], other=PEOPLE["income"] + draw.normal(size=N), decision=DECISION)
    frame.columns = ["age", "income", "job", "member", "debt", "income", "income", "decision"]
    seen = inspect(frame, "decision")
    assert [one.column for one in seen.refused] == ["income.1", "income.2"]
    assert "rename one of them" in seen.refused[0].way_out
    frame.to_csv(tmp_path / "twice.csv", index=False)
    read = inspect_source(tmp_path / "twice.csv", "decision")
    assert not read.refused
    assert [(one.column, one.weight) for one in read.findings if one.kind == "twice"] == [
        ("income.1", "warning"),
        ("income.2", "warning"),
    ]
    assert read.schema.dropped == ("income.1",)  # the copy; the other one stays


def test_rows_are_named_by_their_lines(tmp_path: Path) -> None:
    text = "age;job;note;decision\n"
    for i in range(60):
        note = '"two\nlines"' if i == 10 else "one"
        text += (
            f"{'' if i in (5, 40) else 20 + i % 30};{'smith' if i % 2 else 'clerk'};{note};{'yes' if i % 3 else 'no'}\n"
        )
        text += "\n" if i == 20 else ""
    (tmp_path / "lines.csv").write_text(text, encoding="latin-1")
    seen = inspect_source(tmp_path / "lines.csv", "decision")
    (missing,) = [one for one in seen.findings if one.kind == "missing"]
    lines = text.split("\n")
    wanted = [i + 1 for i, line in enumerate(lines) if line.startswith(";")]
    assert missing.seen == f"2 missing (3.3 %), lines {wanted[0]}, {wanted[1]}"
    assert wanted == [7, 44]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "latin-1", "utf-16"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|", "^"])
def test_any_encoding_and_separator_is_read(tmp_path: Path, encoding: str, separator: str) -> None:
    frame = PEOPLE.assign(Straße=draw.choice(["Müller", "Café"], N), decision=DECISION)
    frame.to_csv(tmp_path / "people.csv", index=False, encoding=encoding, sep=separator)
    seen = inspect_source(tmp_path / "people.csv", "decision")
    assert seen.schema["Straße"].levels == ("Café", "Müller")
    assert next(one.seen for one in seen.findings if one.column == "debt").split(", ")[1].startswith("lines ")


def test_an_excel_file_is_read_where_openpyxl_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "people.xlsx"
    with monkeypatch.context() as without:
        without.setitem(__import__("sys").modules, "openpyxl", None)
        path.write_bytes(b"PK")
        with pytest.raises(
            ValueError, match=r"that needs openpyxl; pip install 'countertrain\[excel\]', or bring a CSV"
        ):
            inspect_source(path, "decision")
    pytest.importorskip("openpyxl")
    PEOPLE.assign(decision=DECISION).to_excel(path, index=False)
    seen = inspect_source(path, "decision")
    assert [one.kind for one in seen.findings] == ["fixed", "missing"]
    assert "lines " in seen.findings[1].seen


def test_a_declared_schema_is_held_against_the_rows() -> None:
    frame = PEOPLE.assign(age=PEOPLE["age"].astype(object).where(PEOPLE.index != 3, "old"), decision=DECISION)
    schema = Schema(
        columns=(
            Numeric(name="age"),
            Numeric(name="debt"),
            Categorical(name="job", levels=("clerk", "smith"), unseen="refuse"),
            Numeric(name="wealth"),
        )
    )
    seen = inspect(frame, "decision", schema=schema)
    said = {one.column: one.seen for one in seen.refused}
    assert said["age"] == "1 value must be a number; got 'old' in row 3"
    assert said["job"].startswith(
        f"{(PEOPLE['job'] == 'none').sum()} values must be one of 'clerk', 'smith'; got 'none'"
    )
    assert said["debt"].split()[1] == "missing"
    assert said["wealth"].startswith("is in the schema, but not in the table")
    assert any("the schema says nothing of 'income', 'member'" in one.seen for one in seen.findings)
    without = inspect(frame, "decision", schema=schema, drop=["age", "job"])
    assert [one.column for one in without.refused] == ["debt", "wealth"]
    assert without.schema.dropped == ("age", "job", "income", "member")
    others = inspect(frame, "decision", schema=Schema(columns=(Categorical(name="job", levels=("clerk", "smith")),)))
    assert not others.refused
    assert "'none', not among its levels, in rows " in others.findings[0].seen


def test_the_proposal_is_read_back_as_it_was_written() -> None:
    columns = {name: values for name, (values, _) in ODD.items()}
    seen = look(**columns, **{'odd "name" = [x]': draw.choice(["a\\b", 'c"d', "e\tf"], N)})
    text = seen.to_toml()
    assert Schema.from_toml(text) == seen.schema
    assert len(seen.schema.dropped or ()) >= 15
    assert 'mutability = "none"  # age, by its name: people get older by themselves and never younger' in text
    assert "    \"constant\",  # is 'x' in every row" in text
    assert "blank = [\"unknown\"]  # holds numbers, but also 'unknown' in rows 3, 53, 103 and 3 more" in text
    for line in text.splitlines():
        assert len(line) < 250
    mixed, grade = seen.schema["mixed"], seen.schema["branch_code"]
    assert isinstance(mixed, Numeric)
    assert (mixed.blank, mixed.missing, mixed.integer) == (("unknown",), "level", True)
    assert isinstance(grade, Categorical)
    assert grade.levels == (101, 204, 333)
    assert isinstance(seen.schema["member"], Boolean)


def test_bounds_and_levels_are_those_of_all_rows() -> None:
    frame = PEOPLE.assign(decision=DECISION)
    data = load(frame, label="decision")
    assert data.test_frame is not None
    for name in ("age", "income"):
        column = data.schema[name]
        assert isinstance(column, Numeric)
        assert (column.lower, column.upper) == (frame[name].min(), frame[name].max())
    ends = [load(frame, label="decision", data_seed=seed).schema["income"].lower for seed in range(5)]
    assert len({*ends}) == 1


def test_whole_numbers_with_gaps_in_few_rows_are_counts() -> None:
    counts = np.where(np.arange(N) == 0, 40, draw.poisson(1.0, N))
    assert "code" not in kinds(look(visits=counts), "visits")


NAMES: dict[str, Sequence[str]] = {
    "sex": ("sex", "Gender", "is_female", "Geschlecht", "sexe", "género", "geslacht", "SEX"),
    "race or ethnicity": ("race", "Ethnicity", "herkunft", "etnia", "afkomst"),
    "age": ("AGE", "Alter", "âge", "edad", "leeftijd", "DateOfBirth", "senior_citizen", "Geburtsdatum"),
    "nationality": ("native-country", "Nationalität", "nationalité", "nacionalidad", "foreign_worker"),
    "marital status": ("MaritalStatus", "marital-status", "Familienstand", "état civil", "estado_civil", "MARRIAGE"),
    "religion": ("religion", "Konfession", "religie"),
    "disability or health": ("disabled", "Behinderung", "handicap", "discapacidad"),
    "statistics of a region": ("unemployment_rate", "Arbeitslosenquote", "taux de chômage", "tasa_de_paro"),
    "where somebody lives": (
        "zip",
        "housing",
        "home_ownership",
        "Wohnsituation",
        "logement",
        "vivienda",
        "huisvesting",
    ),
    "a windfall": ("inheritance", "Erbschaft", "heritage", "herencia", "erfenis"),
    "a credit limit": (
        "LIMIT_BAL",
        "credit_limit",
        "Kreditrahmen",
        "limite de crédit",
        "límite_de_crédito",
        "kredietlimiet",
    ),
    "a bill of before": ("BILL_AMT1", "bill_6", "Rechnung 2", "facture2", "factura_3", "factuur1"),
    "a count of past events": (
        "late_payments",
        "NumberOfTime30-59DaysPastDueNotWorse",
        "NumberOfTimes90DaysLate",
        "missed payments",
        "inquiries_last_6_months",
        "delinq_2yrs",
        "defaults",
        "Zahlungsverzüge",
        "Mahnungen",
        "verspätete_Zahlungen",
        "retards de paiement",
        "impayés",
        "impagos",
        "atrasos",
        "betalingsachterstanden",
    ),
    "what it is for": ("purpose", "loan_purpose", "Verwendungszweck", "finalidad", "leendoel"),
    "an id": ("ID", "customer_id", "Kundennummer", "Unnamed: 0", "CustomerID"),
}


@pytest.mark.parametrize("concept", NAMES)
def test_names_of_what_nobody_changes_are_known_in_five_languages(concept: str) -> None:
    found = [find_hint(name) for name in NAMES[concept]]
    assert [hint and hint.concept for hint in found] == [concept] * len(found)


def test_other_names_are_not_taken_for_them() -> None:
    for name in (
        "income", "MonthlyCharges", "mileage", "average_balance", "RelationshipSatisfaction", "usage", "stage",
        "credit_score", "EnvironmentSatisfaction", "payment_method", "idle_time", "account_age", "video", "savings",
        "bill", "paperless_billing", "PAY_AMT1", "housing_loan", "capital", "capital-gain", "speed_limit",
        "PAY_0", "payment_due", "due_date", "default", "late_shift", "paid", "pay_day",
    ):  # fmt: skip
        assert find_hint(name) is None, name
        assert not says_id(name), name
    assert says_code("branch_code")
    assert not says_code("encoded_income")


def test_levels_that_are_not_listed_count_as_one_with_a_warning_and_nobody_is_sent_there() -> None:
    from countertrain.tables.cells import UnseenLevelWarning
    from countertrain.tables.encoder import Encoder

    column = Categorical(name="job", levels=("clerk", "smith"), unseen="other", missing="level")
    rows = pd.DataFrame({"job": ["clerk", "smith", None, "clerk"]})
    encoder = Encoder.fit(Schema(columns=(column,)), rows)
    assert encoder.features == ("job=clerk", "job=smith", "job=missing", f"job={OTHER}")
    new = pd.DataFrame({"job": ["smith", "astronaut", None]})
    with pytest.warns(
        UnseenLevelWarning, match=r"column 'job' holds 'astronaut' \(row 1\), not among its levels; counted"
    ):
        x = encoder.encode(new)
    assert x.tolist() == [[0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    assert encoder.decode(x)["job"].tolist()[:2] == ["smith", OTHER]
    assert encoder.decode(x, new)["job"].tolist()[:2] == ["smith", "astronaut"]
    assert (encoder.encode(encoder.decode(x)) == x).all()  # what was decoded is encoded without a word
    moves = encoder.schema["job"].moves()  # type: ignore[union-attr]
    assert moves[3, :2].all()
    assert not moves[:3, 3].any()
    with pytest.raises(SchemaError, match="nobody can be told to become 'any other'"):
        Categorical(name="job", levels=("clerk", "smith"), unseen="other", transitions={"clerk": (OTHER,)})


@pytest.mark.parametrize("codes", [[1, 2, 3], ["1", "2", "3"]])
def test_codes_with_others_survive_the_way_there_and_back(codes: list[Any]) -> None:
    from countertrain.tables.encoder import Encoder

    column = Categorical(name="code", levels=tuple(codes[:2]), unseen="other")
    rows = pd.DataFrame({"code": codes * 3})
    with pytest.warns(UserWarning, match="counted as"):
        x = Encoder.fit(Schema(columns=(column,)), rows).encode(rows)
    decoded = Encoder.fit(Schema(columns=(column,)), rows).decode(x)["code"].tolist()
    assert decoded == [*codes[:2], OTHER] * 3


def test_texts_that_stand_for_missing_numbers_are_read_as_missing() -> None:
    from countertrain.tables.cells import numbers

    column = Numeric(name="tenure", blank=("?",), missing="fill", fill=7.0)
    assert numbers(column, pd.Series(["1", " 2.5 ", "?", None, 4])).tolist() == [1, 2.5, 7, 7, 4]
    with pytest.raises(ValueError, match="column 'tenure', row 1, must be a number; got 'many'"):
        numbers(column, pd.Series(["1", "many"]))
    with pytest.raises(ValueError, match="column 'tenure', row 0, must be a number"):
        numbers(column.model_copy(update={"blank": None}), pd.Series(["1", "2"]))


def test_a_schema_may_say_what_it_drops_but_not_declare_it_too() -> None:
    schema = Schema(columns=(Numeric(name="a"),), dropped=("b",))
    assert Schema.from_toml(schema.to_toml()) == schema == Schema.from_json(schema.to_json())
    assert schema.with_columns(a={"unit": "EUR"}).dropped == ("b",)
    with pytest.raises(SchemaError, match="column 'a' is declared and dropped; leave it out of one of the two"):
        Schema(columns=(Numeric(name="a"),), dropped=("a",))


def test_the_service_takes_levels_that_are_not_listed_where_they_count_as_one() -> None:
    pytest.importorskip("fastapi")
    from pydantic import TypeAdapter, ValidationError

    from countertrain.serve.value_types import value_type

    column = Categorical(name="job", levels=("clerk", "smith"), unseen="other")
    assert TypeAdapter(value_type(column, {})).validate_python("astronaut") == "astronaut"
    with pytest.raises(ValidationError):
        TypeAdapter(value_type(column.model_copy(update={"unseen": "refuse"}), {})).validate_python("astronaut")


def test_codes_and_caps_far_from_all_others_are_seen_and_nobody_is_sent_there() -> None:
    gains = np.array([*range(0, 40_000, 100), *[99_999] * 6, -999, *[-999_999] * 5], dtype=float)
    assert find_spikes(gains).tolist() == [-999_999.0, 99_999.0]
    assert find_ends(gains) == (-999.0, 39_900.0)
    pair, line = [0.0, 100.0] * 9, [*range(9)]
    for honest in (pair, line, [*line, 1e6], [*line, *[15] * 9]):  # also one rich person, and a cap that is not far
        assert not len(find_spikes(np.array(honest, dtype=float)))
    frame = pd.DataFrame({"gain": gains, "other": np.arange(len(gains)) % 7, "label": np.arange(len(gains)) % 2})
    seen = inspect(frame, "label")
    (finding,) = (one for one in seen.findings if one.kind == "spike")
    assert finding.seen == "-999,999, 99,999 in 11 rows (2.7 %), far from all others, -999 to 39,900"
    column = seen.schema["gain"]
    assert isinstance(column, Numeric)
    assert (column.lower, column.upper) == (-999.0, 39_900.0)
    encoder = Encoder.fit(seen.schema, frame, fit_scale=Ranks.fit)
    assert encoder.decode(encoder.encode(frame), frame)["gain"].tolist() == gains.tolist()  # people keep theirs
