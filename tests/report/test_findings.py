"""Each rule of the traffic lights turns at its threshold, and says in words and numbers what was measured."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from countertrain.report.audit import Outcome, Performance, Sensitivity
from countertrain.report.fairness import Association, Disparity, Estimate, Grouping
from countertrain.report.findings import COMMAND, PYTHON, Evidence, Finding, list_findings
from loans import loans, quick

PERFORMANCE = Performance(1000, 0.85, 0.84, 0, 0.6, ((500, 100), (50, 350)), (), ece=0.03, brier=0.1)
NUMBERS = {"ip": 4.0, "ip_star": 0.01, "cost": 2.0, "validity": 0.99, "fgsm": 0.81, "pgd": 0.8}


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    """All is well, and all was looked at."""
    x, y = loans(60)
    recourse = quick(epochs=2, objective="bl").fit(x, y).explain(x[:3])
    people = pd.DataFrame(
        {"accepted": [1.0, 0, 0], "valid": [np.nan, 1, 1], "fixed": [np.nan, 0, 0], "cost": [np.nan, 1, 2]}
    )
    return Evidence(
        classes=("granted", "refused"),
        target=0,
        target_given=True,
        performance=PERFORMANCE,
        baseline_performance=PERFORMANCE,
        outcomes=tuple(Outcome(name, value, value, "no clear difference") for name, value in NUMBERS.items()),
        sensitivities=(Sensitivity("income", False, 0.9, 0.8), Sensitivity("age", True, 0.1, 0.2)),
        recourse=recourse,
        rejected=np.array([1, 2]),
        people=people,
        associations=(Association("age", "income", 0.2, "Pearson's correlation"),),
        groupings=(Grouping("sex", (), ()),),
    )


def of(section: str, evidence: Evidence, **changes: Any) -> list[Finding]:
    return [finding for finding in list_findings(replace(evidence, **changes)) if finding.section == section]


def test_all_lights_are_green_where_all_is_well(evidence: Evidence) -> None:
    found = list_findings(evidence)
    assert {finding.light for finding in found} == {"good"}
    assert {finding.section for finding in found} == {
        "decisions", "recourse", "groups", "proxies", "sensitivity", "comparison", "typical",
    }  # fmt: skip


def test_warnings_come_first(evidence: Evidence) -> None:
    bad = replace(PERFORMANCE, accuracy=0.6, ece=0.07)
    lights = [finding.light for finding in list_findings(replace(evidence, performance=bad))]
    assert lights == sorted(lights, key=["warn", "look", "good"].index)
    assert set(lights) == {"warn", "look", "good"}


@pytest.mark.parametrize(("accuracy", "light"), [(0.85, "good"), (0.62, "warn"), (0.5, "warn")])
def test_accuracy_must_clearly_beat_a_constant_answer(evidence: Evidence, accuracy: float, light: str) -> None:
    found = of("decisions", evidence, performance=replace(PERFORMANCE, accuracy=accuracy))
    (finding,) = [f for f in found if "right in" in f.text]
    assert finding.light == light
    assert f"right in {100 * accuracy:.0f} of 100" in finding.text
    assert "always answering “granted” would be right in 60 of 100" in finding.text


@pytest.mark.parametrize(("ece", "light"), [(0.049, "good"), (0.06, "look"), (0.2, "warn")])
def test_probabilities_must_be_honest(evidence: Evidence, ece: float, light: str) -> None:
    found = of("decisions", evidence, performance=replace(PERFORMANCE, ece=ece))
    (finding,) = [f for f in found if "probabilities" in f.text]
    assert finding.light == light
    assert f"off by {100 * ece:.1f} percentage points" in finding.text


@pytest.mark.parametrize(
    ("percentiles", "light"), [((100, 100, 99), "warn"), ((100, 100, 3), "look"), ((100, 4, 3), "good")]
)
def test_how_typical_advice_is_has_a_light_of_its_own(
    evidence: Evidence, percentiles: tuple[float, ...], light: str
) -> None:
    table = evidence.recourse.table
    for valid in (True, False):  # attempts that lead nowhere are no advice
        told = replace(table, valid=np.full(3, valid), percentile=np.array(percentiles, dtype=float))
        typical = of("typical", evidence, recourse=replace(evidence.recourse, table=told))
        assert all("less typical than 95 % of them" in finding.text for finding in typical)
        assert [finding.light for finding in typical] == ([light] if valid else [])
    unknown = replace(table, valid=np.full(3, True), percentile=np.full(3, np.nan))
    assert of("typical", evidence, recourse=replace(evidence.recourse, table=unknown)) == []


def test_what_to_ask_for_next_is_said_in_the_words_of_whoever_asked(evidence: Evidence) -> None:
    unsaid = replace(evidence, target_given=False, groupings=())
    for door, words in ((PYTHON, ("target=…", "groups=[…]")), (COMMAND, ("--target …", "--groups …"))):
        said = " ".join(finding.text for finding in list_findings(replace(unsaid, door=door)))
        assert all(f"make the report again with {word}" in said for word in words)


@pytest.mark.parametrize(("n_helped", "light"), [(100, "good"), (90, "look"), (50, "warn")])
def test_rejected_people_must_be_helped(evidence: Evidence, n_helped: int, light: str) -> None:
    people = pd.DataFrame({"accepted": 0.0, "valid": np.arange(100) < n_helped, "fixed": 0.0, "cost": 1.0}).astype(
        float
    )
    (finding,) = of("recourse", evidence, people=people)
    assert "proven" not in finding.text
    some = people.assign(fixed=(np.arange(100) >= 95).astype(float))
    if n_helped < 95:
        assert "proven for 5 of them that no change" in of("recourse", evidence, people=some)[0].text
    assert finding.light == light
    assert f"{n_helped} % of the 100 rejected people" in finding.text
    assert (f"{100 - n_helped} cannot" in finding.text) == (n_helped < 100)


def test_nobody_rejected_is_said(evidence: Evidence) -> None:
    people = pd.DataFrame({"accepted": [1.0], "valid": [np.nan], "fixed": [np.nan], "cost": [np.nan]})
    (finding,) = of("recourse", evidence, people=people)
    assert (finding.light, "nothing to explain" in finding.text) == ("look", True)


def test_a_group_that_is_worse_off_is_a_warning_with_both_numbers(evidence: Evidence) -> None:
    low, high = Estimate(0.3, 0.2, 0.4), Estimate(2.75, 2, 3)
    disparities = (
        Disparity("north", "cost", high, low),
        Disparity("north", "valid", low, replace(low, mean=0.9)),
        Disparity("west", "accepted", low, replace(low, mean=0.5)),
    )
    found = of("groups", evidence, groupings=(Grouping("region", (), disparities), Grouping("sex", (), ())))
    assert [f.light for f in found] == ["warn"] * 3 + ["good"]
    assert "region = north: 2.75 on average, others 0.30" in found[0].text
    assert "region = north: for 30 % of those rejected, for 90 % of others" in found[1].text
    assert "region = west is accepted less often: 30 %, others 50 %" in found[2].text
    assert "by sex" in found[3].text
    (none,) = of("groups", evidence, groupings=())
    assert (none.light, "groups=[" in none.text) == ("look", True)


def test_proxies_are_named_once_for_each_immutable_column(evidence: Evidence) -> None:
    pairs = (("age", "pension", 0.9), ("sex", "title", 0.8), ("age", "cohort", 0.5), ("age", "income", 0.49))
    associations = tuple(Association(a, b, strength, "") for a, b, strength in pairs)
    age, sex = of("proxies", evidence, associations=associations)
    assert (age.light, sex.light) == ("look", "look")
    assert "Much about age" in age.text
    assert "pension (0.90), cohort (0.50): to rely on them" in age.text
    assert "title (0.80): to rely on it" in sex.text


def test_reliance_on_immutable_columns_is_told(evidence: Evidence) -> None:
    heavy = (Sensitivity("age", True, 0.3, None), Sensitivity("income", False, 0.7, None))
    (finding,) = of("sensitivity", evidence, sensitivities=heavy)
    assert (finding.light, "(age 30 %)" in finding.text) == ("look", True)
    (finding,) = of("sensitivity", evidence, sensitivities=heavy[1:])
    assert (finding.light, "No column is declared immutable" in finding.text) == ("look", True)


def test_the_comparison_says_what_is_better_and_what_is_worse(evidence: Evidence) -> None:
    verdicts = {"ip": "better", "pgd": "better", "cost": "worse"}
    outcomes = tuple(replace(o, verdict=verdicts.get(o.name, "no clear difference")) for o in evidence.outcomes)
    first = of("comparison", evidence, outcomes=outcomes)[0]
    assert (first.light, "better in plausibility, robustness and worse in distance" in first.text) == ("look", True)
    alone = of("comparison", evidence, baseline_performance=None)[0]
    assert (alone.light, "not compared" in alone.text) == ("look", True)


@pytest.mark.parametrize(("pgd", "light"), [(0.8, "good"), (0.7, "look")])
def test_accuracy_must_survive_an_attack(evidence: Evidence, pgd: float, light: str) -> None:
    outcomes = tuple(replace(o, ours=pgd) if o.name == "pgd" else o for o in evidence.outcomes)
    (finding,) = [f for f in of("comparison", evidence, outcomes=outcomes) if "accuracy" in f.text]
    assert (finding.light, f"{100 * pgd:.0f} %" in finding.text) == (light, True)


def test_an_assumed_decision_is_said(evidence: Evidence) -> None:
    (finding,) = of("method", evidence, target_given=False)
    assert (finding.light, "“granted”" in finding.text) == ("look", True)
