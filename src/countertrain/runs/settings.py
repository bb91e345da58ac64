"""Settings as values: typed, frozen, written down as TOML; the paper's symbol stands in each description."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from countertrain.words import explain_mistakes, suggest

__all__ = ["FINAL", "PROFILES", "Settings", "SettingsError", "parse_assignments", "read_settings"]


class SettingsError(ValueError):
    """A setting is unknown or has a value that it cannot have; the message says which and what would do."""


class Settings(BaseModel):
    """All that decides what a training run computes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    data: str = Field(description="name of a data set, or path of a CSV file or of a converted folder")
    target_column: str | None = Field(None, description="column of a CSV file to predict; its last one if left out")
    data_seed: int = Field(42, ge=0, description="seed of the split, and of the synthetic data themselves")
    profile: Literal["as-run", "as-written", "longer", "categories", "neighbours", "tuned"] = Field(
        "as-run", description="defaults of the authors' program, of the paper's text, or ones that do better"
    )
    objective: Literal["ct", "bl", "ar", "cd"] = Field("ct", description="the terms that are trained on")
    generator: Literal["eccco", "generic", "revise"] = Field("eccco", description="the counterfactual search")
    model: Literal["mlp", "linear", "lenet"] = Field("mlp", description="architecture")
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field((32,), description="units of each hidden layer of the mlp")
    init: Literal["glorot", "torch"] = Field("glorot", description="initial weights")
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**63)], ...] = Field(
        (0,), min_length=1, description="one model each, trained as one population"
    )
    immutable: tuple[str, ...] = Field((), description="features that people cannot change")

    epochs: int = Field(100, ge=0)
    batch_size: int = Field(30, ge=1)
    learning_rate: float = Field(1e-3, gt=0, description="of Adam, for the weights")
    shuffle: bool = Field(False, description="new mini-batches each epoch")
    burn_in: float = Field(0.0, ge=0, le=1, description="share of epochs without search")
    n_ce: int | None = Field(None, ge=1, description="n_CE, counterfactuals an epoch; 1000 or all rows if left out")
    n_neighbours: int = Field(1, ge=1, description="x_plus is the nearest of so many random rows of its class")
    train_categories: Literal["free", "change"] = Field(
        "free", description="one-hot columns in the training search: any numbers (as run), or categories that change"
    )
    generate: Literal["sweep", "batch"] = Field("sweep", description="one search an epoch, or one a mini-batch")
    immature: Literal["neighbour", "drop"] = Field("neighbour", description="what becomes of immature ones")
    on_nonfinite: Literal["stop", "skip"] = Field("stop", description="what to do about a loss that is not finite")

    lambda_clf: float = Field(1.0, ge=0, description="weight of yloss")
    lambda_div: float = Field(0.5, ge=0, description="lambda_div, weight of the divergence")
    lambda_adv: float = Field(0.25, ge=0, description="lambda_adv, weight of the adversarial loss")
    lambda_reg: float = Field(0.1, ge=0, description="lambda_reg, weight of the ridge")
    epsilon: float = Field(0.3, gt=0, description="epsilon, reach of nascent counterfactuals")

    n_steps: int = Field(30, ge=0, description="T, most steps of a search")
    tau: float = Field(0.75, gt=0, lt=1, description="tau, probability at which a counterfactual is mature")
    step_size: float = Field(0.1, gt=0, description="eta, step size of the search")
    test_step_size: float | None = Field(None, gt=0, description="eta at test time; step_size if left out")
    lambda_cost: float = Field(0.001, ge=0, description="lambda_cst, weight of the distance")
    lambda_egy: float = Field(5.0, ge=0, description="lambda_egy, weight of the energy (eccco)")
    energy_schedule: bool = Field(True, description="phi(k), whether the energy's weight decays")
    energy_square: float = Field(1e-3, ge=0, description="rho, weight of the squared energy")
    n_sigma: float = Field(2.0, ge=0, description="n_sigma, width of the inferred domain")
    length_scale: float = Field(5.0, gt=0, description="of the kernel in IP*")

    @classmethod
    def resolve(cls, data: str, overrides: Mapping[str, Any] | None = None) -> Self:
        """The paper's final settings of a named data set, then those of the profile, then the overrides."""
        overrides = dict(overrides or {})
        unknown = [key for key in overrides if key not in cls.model_fields]
        if unknown:
            hint = suggest(unknown[0], cls.model_fields, "`countertrain list settings` shows them all")
            raise SettingsError(f"unknown setting {unknown[0]!r}; {hint}")
        profile = overrides.get("profile", "as-run")
        values = {"data": data, **FINAL.get(data, {}), **_of_profile(str(profile), data), **overrides}
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise SettingsError(explain_mistakes(error, cls.model_fields)) from error

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Settings as `to_toml` wrote them."""
        try:
            return cls.model_validate(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise SettingsError(f"the settings are not valid TOML: {error}") from error
        except ValidationError as error:
            raise SettingsError(explain_mistakes(error, cls.model_fields)) from error

    def to_toml(self) -> str:
        """Every setting, fully resolved."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))


PROFILES: dict[str, dict[str, Any]] = {
    "as-run": {},
    "as-written": {
        "step_size": 0.25,
        "energy_schedule": False,
        "energy_square": 0.0,
        "n_sigma": 3.0,
        "immature": "drop",
        "length_scale": 0.5,
    },
    "longer": {"epochs": 300},
    "categories": {"train_categories": "change"},
    "neighbours": {"n_neighbours": 16, "hidden": (128,), "lambda_div": 0.2, "lambda_reg": 0.1},
    "tuned": {"test_step_size": 0.1},
}
"""Where paper and program differ, both values exist by name; the others ask what would be better."""

FINAL: dict[str, dict[str, Any]] = {
    "ls": {"tau": 0.5, "lambda_reg": 0.01, "n_ce": 1000},
    "circles": {"tau": 0.5, "lambda_reg": 0.5, "n_ce": 1000},
    "moons": {"tau": 0.9, "lambda_reg": 0.25, "n_ce": 1000},
    "ol": {"tau": 0.5, "lambda_reg": 0.25, "n_ce": 1000},
    "adult": {"tau": 0.75, "lambda_reg": 0.25, "n_ce": 5000, "batch_size": 1000},
    "california": {"tau": 0.5, "lambda_reg": 0.25, "n_ce": 5000, "batch_size": 1000},
    "credit": {"tau": 0.5, "lambda_reg": 0.25, "n_ce": 5000, "batch_size": 1000},
    "gmsc": {"tau": 0.5, "lambda_reg": 0.5, "n_ce": 5000, "batch_size": 1000},
    "mnist": {"tau": 0.5, "lambda_reg": 0.01, "n_ce": 5000, "batch_size": 1000},
    "loans": {"model": "linear", "epochs": 50, "tau": 0.5, "lambda_reg": 0.25},
}
"""Final settings of the named data sets; what is not here is the default."""


_NEAREST: dict[str, Any] = {"hidden": (128,), "n_neighbours": 16}
_CHANGING: dict[str, Any] = {"train_categories": "change", "n_steps": 50, "n_ce": 2000}

TUNED: dict[str, dict[str, Any]] = {
    "adult": {**_CHANGING, "tau": 0.6},
    "california": {**_NEAREST, "tau": 0.5, "lambda_div": 0.17, "lambda_adv": 0.15, "lambda_reg": 0.44},
    "credit": {
        **_CHANGING, "tau": 0.61, "lambda_div": 0.72, "lambda_adv": 0.15, "lambda_reg": 0.29, "lambda_egy": 4.2,
    },
    "gmsc": {**_NEAREST, "n_ce": 2000, "tau": 0.55, "lambda_div": 0.11, "lambda_adv": 0.067, "lambda_reg": 0.44},
}  # fmt: skip
"""Settings of the profile `tuned`, found by `countertrain tune` on validation rows (docs/reproduction.md says how)."""


def _of_profile(profile: str, data: str) -> dict[str, Any]:
    return {**PROFILES.get(profile, {}), **(TUNED.get(data, {}) if profile == "tuned" else {})}


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
