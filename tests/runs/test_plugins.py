"""Generators and methods of other packages go by name; one that clashes or breaks is named in one sentence."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from countertrain.estimator import CounterfactualClassifier
from countertrain.runs import plugins
from countertrain.runs.folder import read_run
from countertrain.runs.measure import Training
from countertrain.runs.plugins import PluginError
from countertrain.runs.registry import GENERATORS as GENERATORS_OF_OURS
from countertrain.runs.registry import build_generator, build_objective, build_trainer, list_names, load_data
from countertrain.runs.settings import Settings, SettingsError
from countertrain.runs.training import train
from countertrain.search.generator import Generator
from countertrain.search.generators import generic
from countertrain.search.rules import SGD
from countertrain.tables import load
from countertrain.tables.encoder import Encoder
from countertrain.tables.scales import Standard
from countertrain.tables.schema import Schema
from countertrain.training.ct import CounterfactualMethod, yloss
from countertrain.training.method import TermState, needs

GENERATORS, METHODS = "countertrain.generators", "countertrain.methods"
Offer = Callable[..., None]


def creep(*, lambda_cost: float, step_size: float, n_steps: int) -> Generator:
    """A search of another package, which asks for the settings that it needs by name."""
    return generic(lambda_cost=lambda_cost, rule=SGD(step_size / 10), n_steps=10 * n_steps)


def doubled(*, lambda_clf: float) -> CounterfactualMethod:
    """A method of another package."""
    return CounterfactualMethod({"yloss": (2 * lambda_clf, yloss)})


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Offer]:
    """Pretend that packages with such entry points are installed."""
    theirs = ModuleType("theirs")
    theirs.creep, theirs.doubled, theirs.number, theirs.wrong = creep, doubled, 3, lambda: 3  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "theirs", theirs)

    def install(*points: tuple[str, str, str]) -> None:
        installed = [EntryPoint(name, value, group) for group, name, value in points]
        found = lambda group: [point for point in installed if point.group == group]  # noqa: E731
        monkeypatch.setattr(plugins, "entry_points", found)
        plugins.find_plugins.cache_clear()

    yield install
    plugins.find_plugins.cache_clear()


def test_names_of_other_packages_are_settings_and_become_objects_made_of_settings(offer: Offer) -> None:
    with pytest.raises(SettingsError, match=r"'generator' must be 'eccco', 'generic', .* or 'amortised'; got 'creep'"):
        Settings.resolve("moons", {"generator": "creep"})
    offer((GENERATORS, "creep", "theirs:creep"), (METHODS, "doubled", "theirs:doubled"))
    assert list_names("generator") == [*GENERATORS_OF_OURS, "creep"]
    settings = Settings.resolve("moons", {"generator": "creep", "lambda_cost": 0.5, "step_size": 2.0, "n_steps": 3})
    generator = build_generator(settings, load("moons"))
    assert (generator.penalties[0][0], generator.rule, generator.n_steps) == (0.5, SGD(0.2), 30)
    method = Settings.resolve("moons", {"objective": "doubled", "lambda_clf": 3.0})
    assert build_objective(method, load("moons")).terms["yloss"][0] == 6.0
    assert build_trainer(method, load("moons")).objective.terms.keys() == {"yloss"}
    with pytest.raises(SettingsError, match=r"or 'doubled'; got 'double'; did you mean 'doubled'\?"):
        Settings.resolve("moons", {"objective": "double"})


def test_settings_never_name_code(offer: Offer) -> None:
    offer((GENERATORS, "creep", "theirs:creep"))
    for name in ("theirs:creep", "theirs.creep", "os.system"):
        with pytest.raises(SettingsError, match="setting 'generator' must be"):
            Settings.from_toml(f'data = "moons"\ngenerator = "{name}"')


@pytest.mark.parametrize(
    ("points", "said"),
    [
        (
            [("creep", "theirs:creep"), ("creep", "others:creep")],
            "two packages offer countertrain.generators 'creep', theirs:creep and others:creep; uninstall one of them",
        ),
        (
            [("creep", "missing:creep")],
            "countertrain.generators 'creep' cannot be loaded from missing:creep (ModuleNotFoundError: No module named "
            "'missing'); repair or uninstall that package",
        ),
        (
            [("creep", "theirs:number")],
            "countertrain.generators 'creep' must be a callable; theirs:number is of type int",
        ),
        ([("creep", "theirs:wrong")], "generator 'creep' must make a countertrain Generator; it made int"),
    ],
    ids=["clash", "broken", "no callable", "wrong"],
)
def test_a_plug_in_that_cannot_be_used_is_named(offer: Offer, points: list[tuple[str, str]], said: str) -> None:
    offer(*((GENERATORS, name, value) for name, value in points))
    with pytest.raises(PluginError) as error:
        build_generator(Settings.resolve("moons", {"generator": "creep"}), load("moons"))
    assert str(error.value) == said


def test_no_plug_in_takes_the_place_of_ours(offer: Offer) -> None:
    offer((GENERATORS, "eccco", "theirs:creep"))
    assert list_names("generator") == [*GENERATORS_OF_OURS]
    with pytest.raises(PluginError) as error:
        build_generator(Settings.resolve("moons"), load("moons"))
    assert str(error.value) == (
        "theirs:creep offers countertrain.generators 'eccco', which countertrain has itself; rename the plug-in"
    )


@needs("x_ce", "x_plus")
def margin(state: TermState) -> Tensor:
    """A term of another package."""
    return state["x_ce"].mean(torch.relu(1 + state["x_plus"].energy - state["x_ce"].energy))


def test_terms_of_other_packages_join_the_objective_by_name_and_weight(offer: Offer) -> None:
    sys.modules["theirs"].margin = margin  # type: ignore[attr-defined]
    with pytest.raises(SettingsError, match=r"'terms' must be 'yloss', .* or 'alignment'"):
        Settings.resolve("moons", {"terms": {"margin": 0.5}})
    offer(("countertrain.terms", "margin", "theirs:margin"))
    settings = Settings.resolve("moons", {"terms": {"margin": 0.5}, "epochs": 1})
    data = load("moons")
    assert build_objective(settings, data).terms["margin"] == (0.5, margin)
    assert Settings.from_toml(settings.to_toml()) == settings
    history = Training.begin([settings], data).fit()
    assert history["margin"][0][0] > 0
    with pytest.raises(SettingsError, match="did you mean 'margin'"):
        Settings.resolve("moons", {"terms": {"margins": 0.5}})


def test_teachers_of_other_packages_teach_by_name(offer: Offer) -> None:
    sys.modules["theirs"].logistic = LogisticRegression  # type: ignore[attr-defined]
    with pytest.raises(SettingsError, match="'teacher' must be 'boosting' or 'none'; got 'logistic'"):
        Settings.resolve("moons", {"teacher": "logistic"})
    offer(("countertrain.teachers", "logistic", "theirs:logistic"), ("countertrain.teachers", "wrong", "theirs:wrong"))
    chosen, data = {"objective": "taught", "n_ce": 30, "n_steps": 3, "epochs": 1}, load("moons")
    settings = Settings.resolve("moons", chosen | {"teacher": "logistic"})
    method = build_objective(settings, data)
    assert isinstance(method, CounterfactualMethod)
    assert isinstance(method.teacher, LogisticRegression)
    assert Training.begin([settings], data).fit()["teach"][0][0] > 0
    with pytest.raises(PluginError) as error:
        build_objective(Settings.resolve("moons", chosen | {"teacher": "wrong"}), data)
    assert str(error.value) == "teacher 'wrong' must make a countertrain Teacher; it made int"


def by_range(schema: Schema, rows: pd.DataFrame) -> Encoder:
    """An encoder of another package: numbers from 0 to 1."""
    fitted = Encoder.fit(schema, rows)
    ends = [(getattr(c, "lower", 0.0), getattr(c, "upper", 1.0)) for c in fitted.schema.columns]
    return replace(fitted, scales=tuple(Standard(low, high - low) for low, high in ends))


def test_encoders_of_other_packages_scale_tables_for_the_command_and_the_classifier(
    offer: Offer, tmp_path: Path
) -> None:
    sys.modules["theirs"].by_range = by_range  # type: ignore[attr-defined]
    offer(
        ("countertrain.encoders", "by-range", "theirs:by_range"),
        ("countertrain.encoders", "wrong", "theirs:creep"),
    )
    draw = np.random.default_rng(0)
    rows = pd.DataFrame({"income": draw.normal(40, 9, 200).round(1), "debt": draw.gamma(2, 5, 200).round(1)})
    label = np.where(rows.income - rows.debt > 30, "yes", "no")
    rows.assign(decision=label).to_csv(tmp_path / "t.csv", index=False)
    settings = Settings.resolve(str(tmp_path / "t.csv"), {"encoder": "by-range", "epochs": 1})
    x = load_data(settings).train.x
    assert x.min() == 0
    assert x.max() == 1
    run = train(settings, tmp_path / "model")
    assert read_run(run.folder).data.encoder.scales == run.data.encoder.scales  # no plug-in needed
    classifier = CounterfactualClassifier(settings={"encoder": "by-range"}, epochs=1, random_state=0).fit(rows, label)
    assert classifier.reference_x_.max() == 1
    with pytest.raises(ValueError, match="moons has an encoder of its own"):
        load_data(Settings.resolve("moons", {"encoder": "by-range"}))
    with pytest.raises(SettingsError, match="setting 'encoder' must be 'standard', 'ranks', 'by-range' or 'wrong'"):
        Settings.resolve("moons", {"encoder": "rank"})
