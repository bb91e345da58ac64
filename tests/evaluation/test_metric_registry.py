"""One entry makes a metric known everywhere: in records, in the table of `evaluate`, in comparisons and in goals."""

from importlib.metadata import EntryPoint

import pandas as pd
import pytest
import torch
from torch import Tensor

from countertrain import cli
from countertrain.evaluation import metrics
from countertrain.evaluation.comparison import compare
from countertrain.evaluation.metrics import Explained, Metric, known, register
from countertrain.runs.run import Run
from countertrain.runs.settings import Settings
from countertrain.runs.training import train
from countertrain.runs.tune import Bound, Goal, tunable


def _euclid(e: Explained) -> Tensor:
    return (e.x - e.factual).flatten(3).norm(dim=-1)


def _error(logits: Tensor, y: Tensor) -> Tensor:
    return (logits.argmax(-1) != y).double().mean(-1)


EUCLID = Metric("euclid", "l2", "how far as the crow flies", "distance", "lower", of_counterfactuals=_euclid)
ERROR = Metric("error", "error", "share put into another class", "share", "lower", of_predictions=_error)
SEVEN = Metric("seven", "seven", "always 7", "score", "higher", of_models=lambda p, x, y: torch.full((len(p),), 7.0))


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three metrics of one's own, one of each kind; forgotten afterwards."""
    monkeypatch.setattr(metrics, "_METRICS", known())
    for metric in (EUCLID, ERROR, SEVEN):
        register(metric)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    quick = {"epochs": 2, "batch_size": 500, "n_ce": 50, "hidden": [8], "learning_rate": 0.02, "seeds": [0, 1]}
    return train(Settings.resolve("moons", quick), tmp_path_factory.mktemp("run"))


@pytest.mark.usefixtures("registered")
def test_a_registered_metric_is_a_row_of_the_table_that_evaluate_prints(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as end:
        cli.main(["evaluate", str(run.folder), "--rounds", "2", "--individuals", "10"])
    out, err = capsys.readouterr()
    assert (end.value.code or 0, err) == (0, "")
    for metric in (EUCLID, ERROR, SEVEN):
        assert metric.heading in out
    records = pd.read_csv(run.folder / "records.csv")
    assert (records["euclid"] < records["cost"]).all()  # in two dimensions, the crow is faster
    assert not {"error", "seven"} & set(records.columns)  # those are not of counterfactuals


@pytest.mark.usefixtures("registered")
def test_a_registered_metric_is_measured_compared_and_tuned(run: Run) -> None:
    found = run.measure(rounds=2, individuals=10)
    assert list(found.table.columns) == list(known())
    assert found.table["error"].tolist() == pytest.approx((1 - found.table["accuracy"]).tolist())
    assert found.table["seven"].tolist() == [7.0, 7.0]
    assert [r.metric for r in compare(found.records, found.records)] == ["ip", "ip_star", "cost", "euclid"]
    assert {"euclid", "error"} <= set(tunable())
    assert "seven" not in tunable()  # a metric of models is too dear for every trial
    assert Goal(("euclid", "error"), (Bound.parse("error <= bl + 0.01"),)).minimise == ("euclid", "error")


def test_only_what_is_better_lower_can_be_minimised() -> None:
    with pytest.raises(ValueError, match="minimise takes one or more of ip, ip_star, cost; got 'accuracy'"):
        Goal(("accuracy",))


def test_the_paper_has_these_metrics_and_directions() -> None:
    lower = {"ip", "ip_star", "cost"}
    higher = {"accuracy", "f1", "fgsm", "pgd", "validity", "maturity", "sparsity"}
    assert {name: metric.better for name, metric in known().items()} == (
        dict.fromkeys(lower, "lower") | dict.fromkeys(higher, "higher")
    )
    assert known()["ip"].heading == "IP, implausibility (lower is better)"
    assert known()["cost"].heading == "cost, distance (l1, encoded) (lower is better)"
    assert known()["f1"].heading == "F1, mean over classes"


def test_a_name_is_registered_once_and_only_metrics_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_METRICS", known())
    register(EUCLID)
    register(EUCLID)  # the same one again: a package may register what its entry point names, too
    with pytest.raises(ValueError, match="a metric 'ip' is registered already; give the new one another name"):
        register(Metric("ip", "IP", "another", "distance", "lower", of_counterfactuals=_euclid))
    with pytest.raises(TypeError, match="only a Metric can be registered; got 3"):
        register(3)  # type: ignore[arg-type]


def test_a_metric_is_computed_from_one_thing() -> None:
    with pytest.raises(ValueError, match=r"metric 'mine' must be computed from one thing; .* got 0"):
        Metric("mine", "mine", "of nothing", "score", "higher")
    with pytest.raises(ValueError, match="got 2"):
        Metric("mine", "m", "of two", "score", "higher", of_predictions=_error, of_counterfactuals=_euclid)


def test_metrics_of_installed_packages_are_found_by_their_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("euclid", "test_metric_registry:EUCLID", "countertrain.metrics")
    monkeypatch.setattr(EntryPoint, "load", lambda self: EUCLID)
    monkeypatch.setattr(metrics, "entry_points", lambda group: [point] if group == "countertrain.metrics" else [])
    monkeypatch.setattr(metrics, "_METRICS", known())
    metrics._register_plugins.cache_clear()
    assert list(known())[-1] == "euclid"


def test_validity_and_maturity_count_everybody_and_the_others_only_the_valid() -> None:
    everybody = {name for name, m in known().items() if m.of_counterfactuals is not None and not m.valid_only}
    assert everybody == {"validity", "maturity"}


def test_the_examples_here_are_not_built_in() -> None:
    assert not {"euclid", "error", "seven"} & set(known())
