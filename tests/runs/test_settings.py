"""Settings: where each value comes from, what is refused, and how they are written down."""

import pytest

from countertrain.estimator import CounterfactualClassifier
from countertrain.runs.profiles import FINAL, PROFILES
from countertrain.runs.settings import FRAME, Settings, SettingsError, parse_assignments


def refused(overrides: dict[str, object]) -> str:
    with pytest.raises(SettingsError) as error:
        Settings.resolve("moons", overrides)
    return str(error.value)


def test_defaults_are_those_of_the_authors_program() -> None:
    s = Settings.resolve("people.csv", {"profile": "as-run"})
    assert (s.tau, s.lambda_reg, s.n_ce, s.seeds, s.hidden) == (0.75, 0.1, None, (0,), (32,))
    assert (s.epochs, s.batch_size, s.learning_rate, s.shuffle, s.burn_in) == (100, 30, 1e-3, False, 0.0)
    assert (s.lambda_clf, s.lambda_div, s.lambda_adv, s.epsilon) == (1.0, 0.5, 0.25, 0.3)
    assert (s.n_steps, s.step_size, s.lambda_cost, s.lambda_egy) == (30, 0.1, 0.001, 5.0)
    assert (s.energy_schedule, s.energy_square, s.n_sigma, s.length_scale) == (True, 1e-3, 2.0, 5.0)
    assert (s.immature, s.generator, s.objective, s.init) == ("neighbour", "eccco", "ct", "glorot")


def test_any_table_begins_with_the_profile_for_tables_and_the_papers_sets_with_theirs() -> None:
    for data in ("people.csv", "folder/", FRAME):
        s = Settings.resolve(data)
        assert (s.profile, s.tau, s.lambda_div, s.lambda_adv, s.lambda_reg) == ("table", 0.75, 0.1, 0.25, 0.1)
        assert (s.encoder, s.model, s.objective, s.teacher, s.lambda_teach) == (
            "ranks", "piecewise", "taught", "boosting", 2.0
        )  # fmt: skip
        assert (s.seeds, s.early_stopping, s.patience, s.calibrate, s.immature) == ((0, 1), True, 6, True, "drop")
        assert (s.n_neighbours, s.batch_size, s.shuffle, s.train_categories) == (16, "auto", True, "change")
        assert (s.domain, s.n_steps, s.step_size, s.hidden, s.epochs) == ("schema", 10, 0.3, (128,), 40)
    assert {Settings.resolve(data).profile for data in FINAL} == {"as-run"}
    table = Settings.resolve("moons", {"profile": "table"})  # a profile that is given wins
    assert (table.tau, table.lambda_reg, table.n_ce) == (0.75, 0.1, None)


def test_the_classifier_begins_with_the_profile_for_tables() -> None:
    assert CounterfactualClassifier().resolve() == Settings.resolve(FRAME, {"profile": "table"})


def test_every_parameter_of_the_classifier_that_decides_what_is_trained_is_a_setting() -> None:
    others = {"schema", "settings", "module", "n_models", "random_state", "verbose", "fix_proposed"}
    parameters = CounterfactualClassifier().get_params()
    assert set(parameters) - others <= set(Settings.model_fields)
    assert {name for name, value in parameters.items() if value is not None} == {"verbose"}


def test_a_column_goes_one_way_only() -> None:
    said = refused({"immutable": ["x1"], "increase": ["x1"]})
    assert said == "column 'x1' is listed twice among immutable, increase and decrease; choose one"


def test_all_that_is_wrong_is_said_at_once() -> None:
    said = refused({"tau": 2, "batch_size": 0, "objective": "cct", "class_weight": "balance"})
    assert said == (
        "setting 'objective' must be 'ct', 'taught', 'bl', 'ar', 'cd', "
        "'pgd', 'trades', 'jem', 'ross', 'gradsup' or 'counternet'; got 'cct'; did you mean 'ct'?, and "
        "setting 'batch_size' must be at least 1; got 0, and setting 'class_weight' must be 'balanced'; got 'balance', "
        "and setting 'tau' must be less than 1; got 2"
    )


def test_the_text_of_the_paper_is_a_profile() -> None:
    s = Settings.resolve("people.csv", {"profile": "as-written"})
    assert (s.step_size, s.energy_schedule, s.energy_square) == (0.25, False, 0.0)
    assert (s.n_sigma, s.immature, s.length_scale) == (3.0, "drop", 0.5)
    assert s.tau == 0.75


@pytest.mark.parametrize(
    ("data", "tau", "lambda_reg"), [("ls", 0.5, 0.01), ("circles", 0.5, 0.5), ("moons", 0.9, 0.25), ("ol", 0.5, 0.25)]
)
def test_the_sets_of_the_paper_have_its_final_settings(data: str, tau: float, lambda_reg: float) -> None:
    s = Settings.resolve(data)
    assert (s.tau, s.lambda_reg, s.n_ce) == (tau, lambda_reg, 1000)


def test_overrides_win_over_the_profile_and_this_over_final_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FINAL, "moons", {"tau": 0.9, "step_size": 0.4})
    monkeypatch.setitem(PROFILES, "as-written", {"tau": 0.1, "step_size": 0.25, "n_sigma": 3.0})
    s = Settings.resolve("moons", {"profile": "as-written", "tau": 0.6})
    assert (s.tau, s.step_size, s.n_sigma) == (0.6, 0.25, 3.0)
    assert Settings.resolve("moons").step_size == 0.4


def test_an_unknown_setting_is_refused_with_the_nearest_name() -> None:
    assert refused({"lambda_dif": 1}) == "unknown setting 'lambda_dif'; did you mean 'lambda_div'?"
    assert refused({"lambda_dif": 1, "tua": 2, "tau": 3}) == (
        "unknown setting 'lambda_dif'; did you mean 'lambda_div'?, and unknown setting 'tua'; did you mean 'tau'?"
    )
    assert refused({"xyzzy": 1}) == "unknown setting 'xyzzy'; `countertrain list settings` shows them all"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"tau": 1.5}, "setting 'tau' must be less than 1; got 1.5"),
        ({"tau": 0}, "setting 'tau' must be greater than 0; got 0"),
        ({"epochs": -1}, "setting 'epochs' must be at least 0; got -1"),
        ({"epochs": 2.5}, "setting 'epochs' must be a valid integer, got a number with a fractional part; got 2.5"),
        ({"tau": "high"}, "setting 'tau' must be a valid number, unable to parse string as a number; got 'high'"),
        (
            {"objective": "at"},
            "setting 'objective' must be 'ct', 'taught', 'bl', 'ar', 'cd', "
            "'pgd', 'trades', 'jem', 'ross', 'gradsup' or 'counternet'; got 'at'",
        ),
        (
            {"profile": "mine"},
            "setting 'profile' must be 'table', 'as-run', 'as-written', 'longer', 'categories', 'neighbours' or "
            "'tuned'; got 'mine'",
        ),
        ({"seeds": ["a"]}, "setting 'seeds' must be a valid integer, unable to parse string as an integer; got 'a'"),
        ({"immutable": "x1"}, "setting 'immutable' must be a valid tuple; got 'x1'"),
        ({"n_ce": 0}, "setting 'n_ce' must be at least 1; got 0"),
    ],
)
def test_a_value_of_the_wrong_type_or_size_is_refused_in_one_sentence(
    overrides: dict[str, object], message: str
) -> None:
    assert refused(overrides) == message


@pytest.mark.parametrize(
    "overrides",
    [{"hidden": [-1]}, {"hidden": [8, 0]}, {"seeds": []}, {"seeds": [2**70]}, {"data_seed": -1}, {"tau": float("nan")}],
)
def test_a_value_that_cannot_work_is_refused_by_the_name_of_its_setting(overrides: dict[str, object]) -> None:
    (name,) = overrides
    said = refused(overrides)
    assert said.startswith(f"setting {name!r} ")
    assert "\n" not in said


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"n_ce": 7, "seeds": [3, 1], "hidden": [4, 5], "immutable": ["x1"], "label": "y"},
        {"profile": "table", "drop": ["a"], "class_weight": {"no": 2, 3: 1.5, True: 0.5}},
    ],
)
def test_settings_survive_being_written_down(overrides: dict[str, object]) -> None:
    settings = Settings.resolve("moons", overrides)
    assert Settings.from_toml(settings.to_toml()) == settings
    assert settings.to_toml() == Settings.from_toml(settings.to_toml()).to_toml()


def test_what_is_written_down_is_fully_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    written = Settings.resolve("moons", {"profile": "as-written"}).to_toml()
    monkeypatch.setitem(FINAL, "moons", {"tau": 0.1})
    monkeypatch.setitem(PROFILES, "as-written", {})
    read = Settings.from_toml(written)
    assert (read.tau, read.step_size) == (0.9, 0.25)


def test_settings_of_a_file_that_are_not_toml_or_unknown_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"^the settings are not valid TOML: "):
        Settings.from_toml("data = ")
    with pytest.raises(SettingsError, match=r"^unknown setting 'taus'; did you mean 'tau'\?$"):
        Settings.from_toml('data = "moons"\ntaus = 1')


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings.resolve("moons").tau = 0.5  # type: ignore[misc]


def test_assignments_are_toml_and_bare_words_are_texts() -> None:
    assigned = ["tau=0.5", "seeds=[0, 1]", "generator=revise", 'immutable=["x1"]', "shuffle=true", "n_ce = 7"]
    assert parse_assignments(assigned) == {
        "tau": 0.5,
        "seeds": [0, 1],
        "generator": "revise",
        "immutable": ["x1"],
        "shuffle": True,
        "n_ce": 7,
    }
    assert parse_assignments(["tau=0.5", "tau=0.6"]) == {"tau": 0.6}


@pytest.mark.parametrize("assignment", ["tau", "=3", " =3"])
def test_an_assignment_without_name_or_value_is_refused(assignment: str) -> None:
    with pytest.raises(SettingsError) as error:
        parse_assignments([assignment])
    assert str(error.value) == f"a setting is given as NAME=VALUE, for example tau=0.5; got {assignment!r}"
