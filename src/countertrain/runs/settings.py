"""Settings as values: typed, frozen, written down as TOML; the paper's symbol stands in each description."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from countertrain.runs.profiles import first_profile, values_of_profile
from countertrain.runs.threshold_rules import read_rule
from countertrain.words import explain_mistakes, plain, read_sign, suggest

__all__ = [
    "FRAME", "Settings", "SettingsError", "SettingsSource",   "parse_assignments",
    "read_settings", "settings_to_mapping",
]  # fmt: skip

FRAME = "frame"
"""The setting `data` of rows that were given in Python."""
Label = str | bool | int | float


class SettingsError(ValueError):
    """Settings are unknown or have values that they cannot have; the message says which and what would do."""


class _UnknownNameError(ValueError):
    """Nothing in the registry has that name; `hint` says which may be meant."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def _registered(kind: str) -> Callable[[str], str]:
    """A check that the registry, plug-ins included, has a maker of that name."""

    def check(name: str) -> str:
        from countertrain.runs.registry import list_names  # late: it draws in torch, which reading settings must not

        names = list_names(kind)
        if name not in names:
            *most, last = map(repr, names)
            raise _UnknownNameError(f"must be {', '.join(most)} or {last}", suggest(name, names, " ").strip())
        return name

    return check


def _check_hidden(given: Any) -> Any:
    if (
        not isinstance(given, Sequence)
        or isinstance(given, str)
        or any(isinstance(width, bool) or not isinstance(plain(width), int) or width < 1 for width in given)
    ):
        raise ValueError("lists the units of each hidden layer, such as (32,) or (64, 32)")
    return tuple(plain(width) for width in given)


def _pair_up(given: Any) -> Any:
    """Weights by label as pairs: labels need not be texts, and pairs can be written down and hashed."""
    if isinstance(given, Mapping):
        return tuple((plain(label), plain(weight)) for label, weight in given.items())
    return given


Names = tuple[str, ...]


def _check_terms(given: Any) -> Any:
    for name, _ in given:
        _registered("term")(name)
    return given


def _read_signs(given: Any) -> Any:
    """Directions by column as pairs, or one per column in their order, as LightGBM and scikit-learn have them."""
    given = given.tolist() if hasattr(given, "tolist") else given
    pairs = _pair_up(given)
    if isinstance(pairs, str) or not isinstance(pairs, Sequence):
        raise ValueError("must be a direction for each column by its name, or a list with one for each of all columns")
    if all(isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2 for pair in pairs):
        return tuple((str(name), read_sign(sign)) for name, sign in pairs)
    return tuple(map(read_sign, pairs))


Terms = Annotated[tuple[tuple[str, float], ...], AfterValidator(_check_terms), BeforeValidator(_pair_up)]
ClassWeight = Annotated[Literal["balanced"] | tuple[tuple[Label, float], ...] | None, BeforeValidator(_pair_up)]


class Settings(BaseModel):
    """All that decides what a training run computes, by the command, in Python, in a tuning or a sweep."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    data: str = Field(description="name of a data set, or path of a table or of a converted folder")
    label: str | None = Field(None, description="column to predict; the last one of a file if left out")
    target: Label | None = Field(None, description="the class that people want: said once, and spoken of ever after")
    threshold: Annotated[float | str | None, BeforeValidator(read_rule)] = Field(
        None,
        description="probability that the target needs, of two classes: a number, cost:5:1 or rate:0.3; left out, 0.5",
    )
    drop: Names = Field((), description="columns to leave out")
    schema_file: str | None = Field(None, description="TOML file with what the columns mean; inferred if left out")
    encoder: Annotated[str, AfterValidator(_registered("encoder"))] = Field(
        "standard",
        description="how numbers are scaled: standard (mean, standard deviation), ranks (normal scores), a plug-in's",
    )
    data_seed: int = Field(42, ge=0, description="seed of the split, and of the synthetic data themselves")
    profile: Literal["table", "as-run", "as-written", "longer", "categories", "neighbours", "tuned"] = Field(
        "as-run",
        description="defaults for tables, of the authors' program, of the paper's text, or ones that do better",
    )
    objective: Annotated[str, AfterValidator(_registered("objective"))] = Field("ct", description="the training method")
    generator: Annotated[str, AfterValidator(_registered("generator"))] = Field(
        "eccco", description="the counterfactual search"
    )
    model: Annotated[str, AfterValidator(_registered("model"))] = Field("mlp", description="architecture")
    hidden: Annotated[tuple[int, ...], BeforeValidator(_check_hidden)] = Field(
        (32,), description="units of each hidden layer"
    )
    n_pieces: int = Field(
        16, ge=2, le=1000, description="pieces of the line into which the model piecewise cuts each number"
    )
    init: Literal["glorot", "torch"] = Field("glorot", description="initial weights")
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**63)], ...] = Field(
        (0,), min_length=1, description="one model each, trained as one population"
    )
    immutable: Names = Field((), description="columns that people cannot change")
    increase: Names = Field((), description="columns that can only grow")
    decrease: Names = Field((), description="columns that can only shrink")

    monotone: Annotated[tuple[tuple[str, str], ...] | Names, BeforeValidator(_read_signs)] = Field(
        (),
        description='columns in which the model never turns back: {income = "+"}, target no less likely as it rises',
    )

    against_evidence: bool | Names = Field(
        True,
        description="columns, or true for all, that advice may move against what the training rows say of them",
    )

    epochs: int = Field(100, ge=0)
    batch_size: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        30, description="rows of a mini-batch; auto: 64 updates per epoch, of 30 to 1000 rows"
    )
    learning_rate: float = Field(1e-3, gt=0, description="of Adam, for the weights")
    schedule: Literal["constant", "cosine"] = Field(
        "constant", description="of the learning rate: the same throughout, or falling to 0 by a cosine"
    )
    averaging: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="keep the mean of the weights over updates, each so many times as much as the next; 0: the last",
    )
    shuffle: bool = Field(False, description="new mini-batches each epoch")
    class_weight: ClassWeight = Field(
        None, description="balanced, or a weight by label; all weigh the same if left out"
    )
    early_stopping: bool = Field(False, description="stop by the loss of validation rows, and keep the best weights")
    validation_fraction: float = Field(
        0.1, gt=0, lt=1, description="rows to hold out for early stopping, where the data have no validation rows"
    )
    patience: int = Field(10, ge=1, description="epochs without a lower loss after which early stopping stops")
    calibrate: bool = Field(
        False,
        description="scale the logits by validation rows, so that probabilities are honest, and learn by "
        "advice to them how sure it must be",
    )
    burn_in: float = Field(0.0, ge=0, le=1, description="share of epochs without search")
    n_ce: int | None = Field(None, ge=1, description="n_CE, counterfactuals per epoch; 1000 or all rows if left out")
    n_neighbours: int = Field(
        1, ge=1, le=10_000, description="x_plus is the nearest of so many random rows of its class"
    )
    train_categories: Literal["free", "change"] = Field(
        "free", description="one-hot columns in the training search: any numbers (as run), or categories that change"
    )
    generate: Literal["sweep", "batch"] = Field("sweep", description="one search per epoch, or one per mini-batch")
    immature: Literal["neighbour", "drop"] = Field("neighbour", description="what becomes of immature ones")
    on_nonfinite: Literal["stop", "skip"] = Field("stop", description="what to do about a loss that is not finite")

    lambda_clf: float = Field(1.0, ge=0, description="weight of yloss")
    lambda_div: float = Field(0.5, ge=0, description="lambda_div, weight of the divergence")
    lambda_adv: float = Field(0.25, ge=0, description="lambda_adv, weight of the adversarial loss")
    lambda_reg: float = Field(0.1, ge=0, description="lambda_reg, weight of the ridge")
    lambda_teach: float = Field(2.0, ge=0, description="weight of what the teacher says (taught)")
    teacher: Annotated[str, AfterValidator(_registered("teacher"))] = Field(
        "boosting", description="who says what it makes of counterfactuals, where the method asks a teacher; or none"
    )
    teacher_sees: Literal["all", "mutable"] = Field(
        "all", description="whether the teacher looks at columns that nobody can change"
    )
    terms: Terms = Field(
        (), description="weights of the method's terms by name, or of further ones of other packages: {drift = 6.0}"
    )
    epsilon: float = Field(0.3, gt=0, description="epsilon, reach of nascent counterfactuals")

    n_steps: int = Field(30, ge=0, description="T, most steps of a search")
    tau: float = Field(0.75, gt=0, lt=1, description="tau, probability at which a counterfactual is mature")
    step_size: float = Field(0.1, gt=0, description="eta, step size of the search")
    test_step_size: float | None = Field(None, gt=0, description="eta at test time; step_size if left out")
    lambda_cost: float = Field(0.001, ge=0, description="lambda_cst, weight of the distance")
    lambda_egy: float = Field(5.0, ge=0, description="lambda_egy, weight of the energy (eccco)")
    energy_schedule: bool = Field(True, description="phi(k), whether the energy's weight decays")
    energy_square: float = Field(1e-3, ge=0, description="rho, weight of the squared energy")
    domain: Literal["inferred", "schema"] = Field(
        "inferred", description="values that a search may reach: n_sigma around the mean, or the bounds of the schema"
    )
    n_sigma: float = Field(2.0, ge=0, description="n_sigma, width of the inferred domain")
    length_scale: float = Field(5.0, gt=0, description="of the kernel in IP*")

    @model_validator(mode="after")
    def _check_directions(self) -> Self:
        for name in (*self.immutable, *self.increase, *self.decrease):
            if sum(name in names for names in (self.immutable, self.increase, self.decrease)) > 1:
                raise ValueError(f"column {name!r} is listed twice among immutable, increase and decrease; choose one")
        return self

    @model_validator(mode="after")
    def _check_threshold(self) -> Self:
        if self.threshold is not None and self.target is None:
            raise ValueError("a threshold is for the class that people want, and nobody said which; give a target, too")
        return self

    @property
    def mutability(self) -> dict[str, Literal["none", "increase", "decrease"]]:
        """Which way the listed columns may go."""
        return {
            **dict.fromkeys(self.immutable, "none"),
            **dict.fromkeys(self.increase, "increase"),
            **dict.fromkeys(self.decrease, "decrease"),
        }

    @classmethod
    def resolve(cls, data: str, overrides: Mapping[str, Any] | None = None) -> Self:
        """The profile that the data begin with, or the one that is given; then the overrides.

        The paper's data sets begin with `as-run` and their final settings, any other table with `table`.
        """
        overrides = dict(overrides or {})
        way_out = "`countertrain list settings` shows them all"
        unknown = [name for name in overrides if name not in cls.model_fields]
        if unknown:
            hints = (f"unknown setting {name!r}; {suggest(name, cls.model_fields, way_out)}" for name in unknown)
            raise SettingsError(", and ".join(hints))
        profile = overrides.get("profile") or first_profile(data)
        return cls.check({"profile": profile, **values_of_profile(str(profile), data), **overrides, "data": data})

    @classmethod
    def check(cls, values: Mapping[str, Any]) -> Self:
        """Settings of these values and of the defaults, or all that is wrong with them in one sentence."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise SettingsError(explain_mistakes(error, cls.model_fields)) from error

    def change(self, **changes: Any) -> Self:
        """The same settings but for some, which are looked at as if they had been given."""
        return self.check({**self.model_dump(), **changes})

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Settings as `to_toml` wrote them."""
        try:
            return cls.check(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise SettingsError(f"the settings are not valid TOML: {error}") from error

    def to_toml(self) -> str:
        """Every setting, fully resolved."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))


SettingsSource = str | Path | Mapping[str, Any] | Settings
"""The path of a settings.toml or chosen.toml, some settings by name, or all of them."""


def settings_to_mapping(source: SettingsSource | None) -> dict[str, Any]:
    """Settings by name, without their data: those of a file or object are all there, of a mapping those it has."""
    if isinstance(source, str | Path):
        source = read_settings(Path(source))
    if isinstance(source, Settings):
        return source.model_dump(exclude={"data"})
    if source is not None and not isinstance(source, Mapping):
        raise TypeError(f"settings must be the path of a TOML file, a mapping or Settings; got {type(source).__name__}")
    return {name: value for name, value in (source or {}).items() if name != "data"}


def read_settings(path: Path) -> Settings:
    """Settings from a file as `to_toml` wrote them: settings.toml of a run, or chosen.toml of a tuning."""
    if not path.is_file():
        raise SettingsError(f"there is no file {path}; `countertrain tune` writes one, and so does every run")
    try:
        return Settings.from_toml(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is no text file, so it holds no settings") from error
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from error


def parse_assignments(assignments: list[str]) -> dict[str, Any]:
    """`["tau=0.5", "seeds=[0, 1]"]` as settings; values are TOML, bare words are texts."""
    parsed: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise SettingsError(f"a setting is given as NAME=VALUE, for example tau=0.5; got {assignment!r}")
        try:
            parsed[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            parsed[key.strip()] = value.strip()
    return parsed
