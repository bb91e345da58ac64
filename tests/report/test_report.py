"""The page says what is true of the classifier, in itself, safely, and the same each time."""

import re
import shutil
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    brier_score_loss,
    confusion_matrix,
    f1_score,
    roc_auc_score,
)
from torch import nn

from countertrain.estimator import CounterfactualClassifier
from countertrain.evaluation.metrics import cost
from countertrain.recourse.reach import AnswerGrid
from countertrain.recourse.rendering import as_text, name_places
from countertrain.report import audit, fairness
from countertrain.report import page as page_module
from countertrain.report import write as write_module
from countertrain.report.light import percent, rate
from countertrain.tables.schema import Categorical, Schema
from loans import loans, quick

CHROMIUM = shutil.which("chromium")
VOID = {"meta", "br", "path", "rect", "polyline", "circle"}
HOSTILE = "<script>alert('x')</script>"
IMAGE = '"><img src=x onerror=alert(1)>'


class Page(HTMLParser):
    """The tables of a page by id or class, its text, and its tags; every tag must be closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self._table: list[list[str]] = []
        self.feed(html)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            name = dict(attrs).get("id") or (dict(attrs).get("class") or "example").split()[0]
            self._table = self.tables.setdefault(name, [])
        elif tag == "tr":
            self._table.append([])
        elif tag in ("td", "th"):
            self._table[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            return
        self.words += data.split()
        if {"td", "th"} & set(self._open):
            self._table[-1][-1] = " ".join([*self._table[-1][-1].split(), *data.split()])

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def rows(self, table: str) -> dict[str, list[str]]:
        """The lines of a table by their first cell."""
        return {row[0]: row[1:] for row in self.tables[table]}


@pytest.fixture(scope="module")
def classifier() -> CounterfactualClassifier:
    return quick(immutable=["age"]).fit(*loans())


@pytest.fixture(scope="module")
def baseline(classifier: CounterfactualClassifier) -> CounterfactualClassifier:
    return clone(classifier).set_params(objective="bl").fit(*loans())  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def test_rows() -> tuple[pd.DataFrame, "pd.Series[str]"]:
    """Applications with a column that the model does not see."""
    frame, labels = loans(150, seed=3)
    return frame.assign(region=np.where(frame["income"] < 28_000, "north", "south")), labels


Rows = tuple[pd.DataFrame, "pd.Series[str]"]


def page(classifier: CounterfactualClassifier, rows: tuple[Any, Any], **options: Any) -> Page:
    html = classifier.report(*rows, **options)
    assert isinstance(html, str)
    return Page(html)


@pytest.fixture(scope="module")
def html(
    classifier: CounterfactualClassifier, baseline: CounterfactualClassifier, test_rows: Rows
) -> Callable[[str], str]:
    """html(name): a page of the classifier, which is written once for all tests that read it."""
    options: dict[str, dict[str, Any]] = {
        "plain": {},
        "advice": {"target": "granted", "groups": ["region", "age"], "n_examples": 3},
        "compared": {"target": "granted", "baseline": baseline, "groups": ["job", "region"], "seed": 2},
    }
    return cache(lambda name: str(classifier.report(*test_rows, **options[name])))


def test_the_numbers_are_those_of_scikit_learn(
    classifier: CounterfactualClassifier,
    baseline: CounterfactualClassifier,
    test_rows: Rows,
    html: Callable[[str], str],
) -> None:
    shown = Page(html("compared"))
    frame, labels = test_rows
    for i, one in enumerate((classifier, baseline)):
        decided, p = one.predict(frame), one.predict_proba(frame)[:, 0]
        table = shown.rows("performance")
        assert table["accuracy"][i] == percent(accuracy_score(labels, decided))
        assert table["F1, mean over classes"][i] == f"{f1_score(labels, decided, average='macro'):.3f}"
        assert table["Brier score"][i] == f"{brier_score_loss(labels == 'granted', p):.3f}"
    counts = confusion_matrix(labels, classifier.predict(frame))
    assert [row[1:] for row in shown.tables["confusion"][1:]] == counts.astype(str).tolist()
    assert f"right in {percent(accuracy_score(labels, classifier.predict(frame)))}" in shown.text


def test_how_well_people_are_told_apart_stands_beside_boosting(
    classifier: CounterfactualClassifier, test_rows: Rows, html: Callable[[str], str]
) -> None:
    shown = Page(html("compared"))
    p = classifier.predict_proba(test_rows[0])[:, 0]
    auc, gini, ks, precision = (
        shown.rows("discrimination")[name] for name in ("AUC", "Gini", "KS", "average precision")
    )
    assert auc[0].startswith(f"{rate(roc_auc_score(test_rows[1] == 'granted', p))} ±")
    assert precision[0] == rate(average_precision_score(test_rows[1] == "granted", p))
    assert len(auc) == len(gini) == len(ks) == 2  # this model and boosting
    assert len(shown.tables["lift"]) == 11
    ids = {attrs.get("id") for _, attrs in shown.tags}
    assert {"roc", "precision-recall", "slopes", "singles", "giveaways", "why"} <= ids


def test_the_page_says_what_it_is_about(
    classifier: CounterfactualClassifier, test_rows: Rows, html: Callable[[str], str], tmp_path: Path
) -> None:
    assert "model not saved" in html("plain")
    classifier.save(tmp_path / "m")
    saved = CounterfactualClassifier.load(tmp_path / "m")
    text = page(saved, test_rows, target="granted", n_examples=0).text
    assert f"model {saved.run_.id}" in text
    assert f"fingerprint {saved.run_.environment['data']}" in text
    assert "rows given in Python" in text


def test_outcomes_sensitivities_and_associations_are_those_measured(
    classifier: CounterfactualClassifier,
    baseline: CounterfactualClassifier,
    test_rows: Rows,
    html: Callable[[str], str],
) -> None:
    shown = Page(html("compared"))
    frame, labels = test_rows
    x = torch.from_numpy(classifier.encoder_.encode(frame)).float()
    y = torch.from_numpy((labels == "refused").to_numpy().astype(np.int64))
    rows = shown.tables["outcomes"][1:]
    outcomes = audit.measure_outcomes(classifier.decider, baseline.decider, x, y, seed=2)
    assert len(rows) == len(outcomes) == 6
    for row, outcome in zip(rows, outcomes, strict=True):
        for cell, value in zip(row[2:4], (outcome.ours, outcome.theirs), strict=True):
            assert float(cell.removesuffix(" %")) == pytest.approx(value * (100 if "%" in cell else 1), rel=0.006)  # type: ignore[operator]
        assert row[4] == outcome.verdict
    for s in audit.measure_sensitivities(classifier.decider, baseline.decider, x, 0):
        label = f"{s.column} cannot change" if s.immutable else s.column
        assert shown.rows("sensitivities")[label][1:] == [percent(s.share), percent(s.baseline_share)]  # type: ignore[operator]
    assert "age cannot change" in shown.rows("sensitivities")
    strongest = fairness.measure_associations(classifier.encoder_.schema, frame)[0]
    assert shown.tables["associations"][1][:3] == ["age", strongest.column, f"{strongest.strength:.2f}"]


def test_cost_is_what_a_change_costs_a_person_and_the_papers_distance_has_a_name_of_its_own(
    classifier: CounterfactualClassifier, test_rows: Rows, html: Callable[[str], str]
) -> None:
    shown = Page(html("compared"))
    measures = [row[0] for row in shown.tables["outcomes"][1:]]
    assert "distance (l1, encoded)" in measures
    assert not any("cost" in measure for measure in measures)
    assert "worse in cost" not in shown.text
    frame = test_rows[0].head(1)
    category = next(c for c in classifier.encoder_.schema.columns if isinstance(c, Categorical))
    other = next(level for level in category.levels if level != frame[category.name].iloc[0])
    before, after = (
        torch.from_numpy(classifier.encoder_.encode(one)) for one in (frame, frame.assign(**{category.name: other}))
    )
    assert AnswerGrid.of(classifier.encoder_).costs(after, before).sum() == 1  # as in the advice of section 4
    assert cost(after, before) == 2  # as in the outcomes of section 2


def test_recourse_and_groups_are_those_of_explain(
    classifier: CounterfactualClassifier, test_rows: Rows, html: Callable[[str], str]
) -> None:
    frame, _ = test_rows
    shown = Page(html("advice"))
    rejected = frame[classifier.predict(frame) != "granted"]
    found = classifier.explain(rejected, "granted").to_frame()
    advice = shown.rows("advice")
    assert advice["people for whom a change was found"] == [percent(found["valid"].mean())]
    assert advice["cost (mean)"] == [f"{found.loc[found['valid'], 'cost'].mean():#.3g}"]
    changed = (found["income"].to_numpy() != rejected["income"].to_numpy()) & found["valid"]
    assert shown.rows("asked")["income"] == [percent(changed.sum() / found["valid"].sum())]
    north = shown.rows("groups")["north"]
    inside = frame["region"] == "north"
    assert north[:2] == [str(inside.sum()), str((rejected["region"] == "north").sum())]
    assert north[2].startswith(f"{percent((classifier.predict(frame[inside]) == 'granted').mean())} ")
    assert "accepted less often" in north[-1]
    assert "region = north is accepted less often" in shown.text
    assert len([row for row in shown.rows("groups") if re.fullmatch(r"\d+ to \d+", row)]) == 4  # bands of age


def test_examples_show_what_changes_in_the_users_units(
    classifier: CounterfactualClassifier, test_rows: Rows, html: Callable[[str], str]
) -> None:
    frame, _ = test_rows
    shown = Page(html("advice"))
    rows = [int(row) for row in re.findall(r"Row (\d+):", shown.text)]
    assert len(rows) == len(set(rows)) == 3
    assert (classifier.predict(frame.iloc[rows]) == "refused").all()
    rejected = np.flatnonzero(classifier.predict(frame) == "refused").tolist()
    explained = classifier.explain(frame.iloc[rejected], "granted")  # all in one search, as the report does
    changes = [change for row in rows for change in explained[rejected.index(row)].options[0].changes]
    places = [name_places(*change.places) if change.places else "" for change in changes]
    expected = [
        [change.column, as_text(change.before), as_text(change.after), where]
        for change, where in zip(changes, places, strict=True)
    ]
    assert [row for row in shown.tables["changes"] if row[0] != "to change"] == expected
    assert {bool(where) for where in places} == {True, False}
    assert ["to change", "now", "then", "among people"] in shown.tables["changes"]
    costs = [float(cost) for cost in re.findall(r"after the change\. Cost ([\d.]+)\.", shown.text)]
    assert costs == sorted(costs)
    assert "changes" not in page(classifier, test_rows, n_examples=0).tables


def test_what_a_cost_of_1_means_is_said_in_the_words_of_the_scale(
    classifier: CounterfactualClassifier, test_rows: Rows
) -> None:
    places = page(classifier, test_rows, target="granted", n_examples=1)
    assert places.text.count("a number that goes from the middle of all people past a third of them.") == 2
    plain = quick(immutable=["age"], settings={"encoder": "standard"}).fit(*loans())
    standard = page(plain, test_rows, target="granted", n_examples=3)
    assert standard.text.count("a number that changes by one standard deviation.") == 2
    assert "fifth" not in standard.text.lower()
    assert standard.tables["changes"][0] == ["to change", "now", "then"]


def test_somebody_who_cannot_be_helped_is_shown_with_the_reason() -> None:
    frame, labels = loans()
    fixed = [name for name in frame if name != "member"]
    shown = page(
        quick(immutable=fixed, objective="bl").fit(frame, labels), loans(80, seed=3), target="granted", n_examples=2
    )
    assert "and one for whom nothing was found" in shown.text
    assert "no valid change exists (proven)" in shown.text
    assert "Blocked by" in shown.text
    assert len(re.findall(r"Row \d+:", shown.text)) == 2
    assert "Warning" in shown.text


def test_proxies_and_what_the_page_says_without_any(test_rows: Rows, html: Callable[[str], str]) -> None:
    frame, labels = loans()
    frame["pension"] = 100 * frame["age"] + np.arange(len(frame)) % 7
    planted = page(quick(immutable=["age"], epochs=1, objective="bl").fit(frame, labels), (frame, labels))
    assert planted.tables["associations"][1:] == [["age", "pension", "1.00", planted.tables["associations"][1][3]]]
    assert "Much about age, which nobody can change, can be guessed from pension (1.00)" in planted.text
    assert "No single column was found to be a proxy" in Page(html("plain")).text
    free = page(quick(epochs=1, objective="bl", fix_proposed=False).fit(*loans()), test_rows)
    assert "No column is declared immutable" in free.text
    assert "associations" not in free.tables


def test_without_a_baseline_the_page_says_how_to_get_one(
    baseline: CounterfactualClassifier, test_rows: Rows, html: Callable[[str], str]
) -> None:
    alone = Page(html("plain"))
    assert 'objective="bl"' in alone.text
    assert (
        "This model comes from counterfactual training with a teacher" in alone.text
    )  # the default, which nobody gave
    assert alone.tables["outcomes"][0] == ["measure", "best", "this model"]
    assert 'objective="ct"' in page(baseline, test_rows).text
    both = Page(html("compared"))
    assert "The model (counterfactual training with a teacher) beside a baseline (conventional training)" in both.text
    assert "The baseline differs in objective (bl)." in both.text


def test_the_page_needs_nothing_from_anywhere(html: Callable[[str], str]) -> None:
    text = html("compared")
    assert not re.search(r"https?:|url\(|@import|//\w", text)
    shown = Page(text)
    assert not {tag for tag, _ in shown.tags} & {"script", "link", "img", "iframe", "object", "base", "form"}
    links = {attrs["href"] for tag, attrs in shown.tags if tag == "a"}
    anchors = {f"#{attrs['id']}" for _, attrs in shown.tags if "id" in attrs}
    assert links
    assert links <= anchors
    assert "@media print" in text


def test_hostile_names_levels_and_labels_are_shown_and_not_run() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            HOSTILE: rng.normal(size=120).round(2),
            "{{ 7 * 7 }}": rng.integers(0, 50, 120),
            "$\\frac{": rng.choice([IMAGE, "plain & simple"], 120),
        }
    )
    labels = np.where(frame[HOSTILE] > 0, IMAGE, "</title><b>no</b>")
    made = quick(epochs=2, immutable=["$\\frac{"]).fit(frame, labels)
    html = str(made.report(frame, labels, target=IMAGE, groups=[*frame], title=HOSTILE))
    assert not re.search(r"<script|<img|<b>|alert\(1\)>", html)
    shown = Page(html)  # all tags are closed, and are our own
    assert HOSTILE in shown.text
    assert IMAGE in shown.text
    assert "{{ 7 * 7 }}" in shown.text
    assert not [attrs for _, attrs in shown.tags if any(name.startswith("on") for name in attrs)]


def test_nothing_that_cannot_be_measured_is_shown_as_a_number(
    classifier: CounterfactualClassifier, test_rows: Rows
) -> None:
    frame, labels = test_rows
    accepted = classifier.predict(frame) == "granted"
    lonely = page(classifier, (frame[:1], labels[:1]), groups=["job"])
    happy = page(classifier, (frame[accepted], labels[accepted]), target="granted", groups=["job"], n_examples=2)
    assert "there is nothing to explain" in happy.text
    assert "too few" in lonely.text
    for shown in (lonely, happy):
        assert not re.search(r"\b(nan|inf|nat)\b", shown.text, flags=re.IGNORECASE)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium; on Debian: apt-get install chromium")
def test_on_a_phone_nothing_runs_over_the_edge(html: Callable[[str], str]) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 900})
        page.set_content(html("compared"))
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        hidden = "[...document.querySelectorAll('.wide')].map(box => box.scrollWidth - box.clientWidth)"
        assert set(page.evaluate(hidden)) == {0}  # no table has to be scrolled
        browser.close()


def test_the_same_rows_and_seed_give_the_same_page(classifier: CounterfactualClassifier, test_rows: Rows) -> None:
    rows = tuple(part[:80] for part in test_rows)
    pages = [classifier.report(*rows, groups=["age"], seed=seed) for seed in (0, 0, 1)]
    assert 'id="verdict"' in str(pages[0])  # there are people enough for all that is drawn at random
    assert pages[0] == pages[1] != pages[2]


def test_of_many_rows_a_sample_is_searched_and_the_page_says_so(
    classifier: CounterfactualClassifier, test_rows: Rows, html: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "so is everything else" in Page(html("plain")).text
    monkeypatch.setattr(write_module, "_MOST_ROWS", 50)
    shown = page(classifier, test_rows, target="granted", groups=["region"])
    assert "are measured on all 150 rows; everything that needs a search, on 50 of them, drawn at random" in shown.text
    assert sum(int(row[1]) for row in shown.tables["groups"][1:]) == 50
    rows = [int(row) for row in re.findall(r"Row (\d+):", shown.text)]
    assert (classifier.predict(test_rows[0].iloc[rows]) == "refused").all()


def test_the_page_goes_into_a_file_that_may_be_in_a_new_folder(
    classifier: CounterfactualClassifier, test_rows: Rows, tmp_path: Path
) -> None:
    file, rows = tmp_path / "new" / "report.html", tuple(part[:40] for part in test_rows)
    assert classifier.report(*rows, str(file), title="Spring") == file
    assert file.read_text(encoding="utf-8") == classifier.report(*rows, title="Spring")
    assert "<h1>Spring</h1>" in file.read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="is a folder"):
        classifier.report(*test_rows, path=tmp_path)


def test_the_wanted_decision_is_the_last_class_unless_said_otherwise(html: Callable[[str], str]) -> None:
    said = "Nobody said which decision people want; this report takes it to be “refused”"
    assert said in Page(html("plain")).text
    assert "Nobody said" not in Page(html("advice")).text


@pytest.mark.filterwarnings("ignore:training 2 models one by one")
def test_arrays_several_classes_ensembles_and_modules_of_ones_own() -> None:
    def net(n_features: int, n_classes: int) -> nn.Module:
        return nn.Sequential(nn.Linear(n_features, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, n_classes))

    x, y = load_iris(return_X_y=True)
    made = quick(module=net, n_models=2, epochs=5, immutable=["x0"]).fit(x, y)
    shown = page(made, (x.tolist(), y.tolist()), target=np.int64(1), groups=["x3"])
    assert len(shown.tables["confusion"]) == 4
    assert "means over the 2 models of the ensemble" in shown.text
    assert "x0 cannot change" in shown.rows("sensitivities")


def test_many_columns_are_cut_to_the_weightiest_and_the_immutable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "_MOST_BARS", 1)
    frame, labels = loans()
    shown = page(quick(epochs=20, immutable=["age"]).fit(frame, labels), (frame, labels))
    assert [row[0] for row in shown.tables["sensitivities"][1:]] == ["income", "age cannot change"]
    assert "3 further columns are not shown" in shown.text


def test_a_classifier_saved_without_rows_has_a_report_too(
    classifier: CounterfactualClassifier, test_rows: Rows, tmp_path: Path
) -> None:
    classifier.save(tmp_path / "bare", rows=False)
    shown = page(CounterfactualClassifier.load(tmp_path / "bare"), test_rows, target="granted")
    assert "columns that change (median)" in shown.rows("advice")
    assert not [row for row in shown.rows("advice") if "typical" in row]


def other_schema() -> CounterfactualClassifier:
    frame, labels = loans()
    return quick(epochs=1, schema=Schema.infer(frame, increase=["age"])).fit(frame, labels)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"groups": ["regin"]}, ValueError, "there is no column 'regin'; did you mean 'region'?"),
        ({"groups": "region"}, TypeError, r"write \['region'\]"),
        (
            {"target": "grantd"},
            ValueError,
            "target must be one of the classes 'granted', 'refused'; got 'grantd'; did you mean 'granted'",
        ),
        ({"n_examples": -1}, ValueError, "n_examples must be at least 0; got -1"),
        ({"baseline": LogisticRegression()}, TypeError, "baseline must be a CounterfactualClassifier; got Logistic"),
        ({"baseline": quick()}, NotFittedError, "not fitted"),
        ({"y": None}, ValueError, "y must hold the true label of each row of X; got None"),
        ({"y": ["granted"]}, ValueError, "one label for each of the 150 rows of X; got 1"),
        ({"y": ["grantd"] * 150}, ValueError, "y, row 0, holds the label 'grantd', .* did you mean 'granted'"),
        ({"X": loans(1)[0][:0]}, ValueError, "X must have at least one row; got none"),
        ({"X": loans(150)[0].drop(columns="job")}, ValueError, "there is no column 'job'"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(
    classifier: CounterfactualClassifier, test_rows: Rows, options: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        classifier.report(**{"X": test_rows[0], "y": test_rows[1], **options})


def test_a_baseline_of_other_classes_columns_or_rows_is_refused(
    classifier: CounterfactualClassifier, test_rows: Rows
) -> None:
    frame, labels = loans()
    for other, said in (
        (quick(epochs=1, immutable=["age"]).fit(frame, labels == "granted"), r"classes of the classifier, \['granted'"),
        (other_schema(), "must see column 'age' as the classifier does; fit both to the same rows"),
        (quick(epochs=1, immutable=["age"]).fit(*loans(seed=9)), "must see column '.*' as the classifier does"),
        (quick(epochs=1, immutable=["age"]).fit(frame.assign(more=frame["age"] % 5), labels), "'more'"),
    ):
        with pytest.raises(ValueError, match=said):
            classifier.report(*test_rows, baseline=other)
    with pytest.raises(NotFittedError):
        quick().report(*test_rows)
