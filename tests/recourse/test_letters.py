"""Letters say what was decided, why, and what would change it, in the owner's words; and leave a record."""

import json
import shutil
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from countertrain.recourse.answer import Recourse
from countertrain.recourse.letters import Owner
from countertrain.recourse.letters import browser as browser_module
from countertrain.recourse.letters.templates import LetterTemplate
from people import SCHEMA, classifier, people

pytestmark = pytest.mark.filterwarnings("ignore:.* letters name married")
CHROMIUM = shutil.which("chromium")
NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)
HOSTILE = "<script>alert('x')</script>"
OWNER = {
    "name": "Bank & Sons",
    "contact": "loans@bank.example",
    "object": "Write to us within a month.",
    "labels": {"income": "yearly income"},
    "values": {"job": {"none": "without work"}},
    "decisions": {"refused": "not granted", "granted": "a loan"},
}


@pytest.fixture(scope="module")
def found() -> Recourse:
    return classifier().explain(people(12, seed=5), target="granted", options=2)


def refused(found: Recourse) -> list[int]:
    return [i for i, decision in enumerate(found.decision) if decision == "refused"]


def test_each_refused_person_gets_a_letter_and_a_record_called_by_the_place_of_the_row(
    found: Recourse, tmp_path: Path
) -> None:
    written = found.letters(tmp_path / "out", formats=["html", "text"], now=NOW)
    names = [f"letter-{i:04d}" for i in refused(found)]
    assert 0 < len(names) < 12
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        f"{name}{suffix}" for name in names for suffix in (".html", ".txt", ".json")
    )
    assert len(written) == 2 * len(names)


def test_a_letter_has_decision_reasons_options_what_is_fixed_and_how_to_object(found: Recourse, tmp_path: Path) -> None:
    found.letters(tmp_path, formats="text", owner=OWNER, now=NOW)
    reasons, seen = found.reasons(), 0
    for row in refused(found):
        text = (tmp_path / f"letter-{row:04d}.txt").read_text()
        assert text.startswith("Bank & Sons\n5 March 2026, reference ")
        assert "is: not granted." in text
        assert "Write to us within a month." in text
        assert "Questions: loans@bank.example" in text
        assert f"Nobody is asked to change: region: {found.factual['region'].iloc[row]}." in text
        said = reasons[row]
        assert text.count("(typical of a loan: ") == len([one for one in said.reasons if one.alone])
        for option in found[row].options:
            for change in option.changes:
                if change.column == "income":
                    verb = "raise" if change.after > change.before else "lower"
                    assert f"{verb} yearly income from {change.before:,.0f} EUR to {change.after:,.0f} EUR" in text
                    seen += 1
                if (change.column, change.before) == ("job", "none"):
                    assert f"change job from without work to {change.after}" in text
                    seen += 1
    assert seen > 2


def test_the_record_has_all_that_it_takes_to_answer_for_the_letter(found: Recourse, tmp_path: Path) -> None:
    found.letters(tmp_path, now=NOW)
    row = refused(found)[0]
    text = (tmp_path / f"letter-{row:04d}.json").read_text()
    record = json.loads(text)
    explanation = found[row]
    assert record["input"] == explanation.factual
    assert (record["decision"], record["target"], record["row"]) == ("refused", "granted", row)
    assert record["probability"] == explanation.probability
    assert record["time"] == "2026-03-05T12:00:00+00:00"
    assert record["model"]["fingerprint"]
    assert record["versions"]["countertrain"]
    assert [o["values"] for o in record["options"]] == [o.values for o in explanation.options]
    assert [r["column"] for r in record["reasons"]] == [r.column for r in found.reasons()[row].reasons]
    assert "nearest" not in text  # the rows of other people stay where they are
    letter = (tmp_path / f"letter-{row:04d}.html").read_bytes()
    assert record["files"] == {f"letter-{row:04d}.html": sha256(letter).hexdigest()}


def test_a_saved_model_has_its_id_in_letter_and_record(tmp_path: Path) -> None:
    classifier().save(tmp_path / "m")
    model = type(classifier()).load(tmp_path / "m")
    model.explain(people(12, seed=5), target="granted").letters(tmp_path / "out", formats=["text"])
    records = [json.loads(path.read_text()) for path in (tmp_path / "out").glob("*.json")]
    assert {record["model"]["id"] for record in records} == {model.run_.id}
    assert model.run_.id
    assert all(f"model {model.run_.id}" in path.read_text() for path in (tmp_path / "out").glob("*.txt"))


def test_everyone_may_get_a_letter_but_nobody_is_told_how_to_be_refused(found: Recourse, tmp_path: Path) -> None:
    found.letters(tmp_path, formats=["text"], everyone=True)
    accepted = next(i for i, decision in enumerate(found.decision) if decision == "granted")
    text = (tmp_path / f"letter-{accepted:04d}.txt").read_text()
    assert "is: granted." in text
    for said in ("REASONS", "ANOTHER DECISION", "DISAGREE"):
        assert said not in text


def test_ids_name_the_files(found: Recourse, tmp_path: Path) -> None:
    found.letters(tmp_path, ids=[f"K-{100 + i}" for i in range(12)])
    assert {path.stem for path in tmp_path.iterdir()} == {f"letter-K-{100 + i}" for i in refused(found)}


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (["../x"] * 12, r"ids must be letters, digits.* row \d+ has '../x'"),
        (["a b"] * 12, "ids must be letters, digits"),
        (["same"] * 12, "ids must differ from person to person; same is there more than once"),
        (["a"], "ids must be one for each of 12 people; got 1"),
    ],
)
def test_ids_that_are_no_names_of_files_are_refused(found: Recourse, tmp_path: Path, ids: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        found.letters(tmp_path / "out", ids=ids)
    assert not (tmp_path / "out").exists()


def test_nothing_is_overwritten_unasked(found: Recourse, tmp_path: Path) -> None:
    first = found.letters(tmp_path, now=NOW)[0]
    first.write_text("mine")
    with pytest.raises(ValueError, match=r"holds letter-.* already; choose another folder, or say overwrite"):
        found.letters(tmp_path)
    assert first.read_text() == "mine"
    found.letters(tmp_path, overwrite=True)
    assert first.read_text() != "mine"


def test_whatever_is_filled_in_is_escaped_in_html(tmp_path: Path) -> None:
    rows = people(12, seed=5)
    found = classifier().explain(rows, target="granted")
    owner = {**OWNER, "name": HOSTILE, "labels": {"income": HOSTILE}}
    for path in found.letters(tmp_path, owner=owner, formats=["html"]):
        text = path.read_text()
        assert "<script" not in text
        assert "&lt;script&gt;" in text


def test_a_template_of_ones_own_sees_plain_values(found: Recourse, tmp_path: Path) -> None:
    template = tmp_path / "mine.txt.j2"
    template.write_text("{{ decision | upper }}: {% for r in reasons %}{{ r.text }}{% endfor %}")
    written = found.letters(tmp_path / "out", templates=[template], formats=["text"])
    text = written[0].read_text()
    assert text.startswith("REFUSED: ")
    assert text == f"REFUSED: {''.join(_sentence(r.text) for r in found.reasons()[refused(found)[0]].reasons)}\n"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{% for %}", "line 1"),
        ("{{ nothing }}", "'nothing' is undefined; there are owner, date"),
        ("{{ ''.__class__.__mro__ }}", "cannot be filled in"),
        ("{% include '/etc/passwd' %}", "cannot be filled in"),
        ("{{ reasons[99].text }}", "cannot be filled in"),
        ("{{ 1 / 0 }}", "cannot be filled in"),
    ],
)
def test_a_template_that_cannot_be_filled_in_is_refused_before_anything_is_written(
    found: Recourse, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "bad.html.j2").write_text(text)
    with pytest.raises(ValueError, match=said):
        found.letters(tmp_path / "out", templates=[tmp_path / "bad.html.j2"])
    assert not (tmp_path / "out").exists()


def test_templates_are_told_apart_by_their_names(found: Recourse, tmp_path: Path) -> None:
    for name in ("letter.j2", "letter.doc"):
        (tmp_path / name).write_text("x")
        with pytest.raises(ValueError, match=r"templates must be files such as letter\.html\.j2"):
            found.letters(tmp_path / "out", templates=[tmp_path / name])
    assert LetterTemplate.of("t", "{{ a }}", "html").fill({"a": "<"}) == "&lt;\n"
    assert LetterTemplate.of("t", "{{ a }}", "text").fill({"a": "<"}) == "<\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"formats": ["doc"]}, "format must be among html, text, pdf; got 'doc'"),
        ({"formats": []}, "format must be among html, text, pdf; got none"),
        ({"owner": {"nam": "x"}}, "the owner: unknown setting 'nam'; did you mean 'name'"),
        ({"owner": {"labels": {"incom": "x"}}}, "labels: 'incom' is no column of the model; did you mean 'income'"),
        ({"owner": {"decisions": {"grantd": "x"}}}, "decisions: there is no 'grantd'; did you mean 'granted'"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(
    found: Recourse, tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        found.letters(tmp_path / "out", **options)


def test_an_owner_is_read_from_a_file_and_writes_dates_as_they_like(tmp_path: Path) -> None:
    (tmp_path / "owner.toml").write_text(
        'name = "Bank"\ndate_format = "%Y-%m-%d"\n[labels]\nincome = "yearly income"\n'
    )
    owner = Owner.read(tmp_path / "owner.toml", SCHEMA, ("refused", "granted"))
    assert (owner.name, owner.labels) == ("Bank", {"income": "yearly income"})
    assert owner.write_date(NOW) == "2026-03-05"
    assert Owner().write_date(NOW) == "5 March 2026"


def test_without_a_browser_pdf_is_refused_in_a_sentence(
    found: Recourse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser_module.shutil, "which", lambda name: None)
    with pytest.raises(ValueError, match="neither chromium nor google-chrome is installed; install chromium, or ask"):
        found.letters(tmp_path / "out", formats=["pdf"])
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium; on Debian: apt-get install chromium")
def test_a_letter_is_printed_as_pdf(found: Recourse, tmp_path: Path) -> None:
    row = refused(found)[0]
    (path,) = found[row : row + 1].letters(tmp_path, formats=["pdf"])
    assert path.read_bytes().startswith(b"%PDF")
    assert {one.suffix for one in tmp_path.iterdir()} == {".pdf", ".json"}


def test_a_label_that_is_no_word_for_a_decision_is_not_told_as_one(found: Recourse, tmp_path: Path) -> None:
    named = Owner.read({"decisions": {"1": "a loan"}}, SCHEMA, ("0", "1"))
    assert [named.name_decision(label, "1") for label in ("0", "1")] == ["not accepted", "a loan"]
    plain = Owner.read(None, SCHEMA, ("default", "repaid", "Rejected", "not approved"))
    told = [plain.name_decision(label, "repaid") for label in ("default", "repaid", "Rejected", "not approved")]
    assert told == ["not accepted", "accepted", "Rejected", "not approved"]
    assert Owner.read(None, SCHEMA, (0, 1)).name_decision(0, 1) == "not accepted"


def test_a_letter_says_why_the_first_option_comes_before_a_cheaper_one(tmp_path: Path) -> None:
    found = classifier().explain(people(60, seed=1), target="granted", options=6, tau=0.8)
    found.letters(tmp_path, formats=["text", "html"], now=NOW)
    with_reason = [row for row in refused(found) if found[row].preferred]
    assert 0 < len(with_reason) < len(refused(found))
    for row in refused(found):
        for suffix in ("txt", "html"):
            text = (tmp_path / f"letter-{row:04d}.{suffix}").read_text()
            assert (" for less; this one is " in text) == (row in with_reason)


def test_a_level_that_the_model_does_not_know_is_told_with_what_it_was_counted_as(tmp_path: Path) -> None:
    odd = people(12, seed=5).assign(degree="Z")
    with pytest.warns(UserWarning, match="not among its levels"):
        found = classifier().explain(odd, target="granted")
    found.letters(tmp_path, formats="text", now=NOW)
    for row in refused(found):
        record = json.loads((tmp_path / f"letter-{row:04d}.json").read_text())
        counted = record["counted_as"]["degree"]
        said = f"degree: Z (not known to the model, and counted as {counted})"
        assert said in (tmp_path / f"letter-{row:04d}.txt").read_text()
        assert (record["input"]["degree"], list(record["counted_as"])) == ("Z", ["degree"])


def test_whoever_writes_is_warned_where_letters_give_a_protected_column_as_a_reason(
    found: Recourse, tmp_path: Path
) -> None:
    told = [one for one in found.reasons() if any(reason.column == "married" for reason in one.reasons)]
    with pytest.warns(
        UserWarning, match=r"letters name married \(marital status\) as a reason.* without the column"
    ) as seen:
        letters = found.letters(tmp_path / "letters")
    assert str(seen[0].message).startswith(f"{len(told)} of {len(letters)} letters")
    assert 0 < len(told) < len(letters)
