"""What a sweep is to compute, as a TOML file says it."""

import hashlib
import itertools
import tomllib
from collections.abc import Collection, Iterable
from typing import Annotated, Any, Self

import tomli_w
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from countertrain.runs.settings import Settings, SettingsError
from countertrain.words import explain_mistakes, suggest

__all__ = ["Evaluation", "Sweep"]


class Evaluation(BaseModel):
    """How each run is evaluated, on validation rows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rounds: Annotated[int, Field(ge=2)] = 5
    individuals: Annotated[int, Field(ge=2)] = 100


class Sweep(BaseModel):
    """Runs of all combinations of data sets, listed values and seeds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Annotated[
        list[str], BeforeValidator(lambda given: [given] if isinstance(given, str) else given), Field(min_length=1)
    ]
    seeds: list[int] = Field([0], min_length=1)
    fixed: dict[str, Any] = {}
    """Settings that all runs share."""
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}
    """Settings that vary, each with its values."""
    evaluation: Evaluation = Evaluation()

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """The sweep that a file describes."""
        try:
            given = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SettingsError(f"the sweep is not valid TOML: {error}") from error
        _check_keys(given, cls.model_fields, "a sweep")
        if isinstance(given.get("evaluation"), dict):
            _check_keys(given["evaluation"], Evaluation.model_fields, "[evaluation]")
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise SettingsError(explain_mistakes(error, cls.model_fields)) from error

    def runs(self) -> dict[str, Settings]:
        """All runs, each under a name that the same settings and evaluation always have."""
        for name in (*self.fixed, *self.grid):
            if name in ("data", "seeds"):
                raise SettingsError(f"{name!r} belongs at the top of the sweep, above [fixed] and [grid]")
            if name in self.fixed and name in self.grid:
                raise SettingsError(f"{name!r} is both in [fixed] and in [grid]; give it once")
        runs = [
            Settings.resolve(data, {**self.fixed, **dict(zip(self.grid, values, strict=True)), "seeds": [seed]})
            for data in self.data
            for values in itertools.product(*self.grid.values())
            for seed in self.seeds
        ]
        named = {self._name(run): run for run in runs}
        if len(named) < len(runs):
            raise SettingsError("two runs of the sweep are the same; list each data set, value and seed once")
        return named

    def to_toml(self) -> str:
        """The sweep as `from_toml` reads it."""
        return tomli_w.dumps(self.model_dump())

    def _name(self, run: Settings) -> str:
        return hashlib.sha256((run.model_dump_json() + self.evaluation.model_dump_json()).encode()).hexdigest()[:16]


def _check_keys(given: Iterable[str], known: Collection[str], where: str) -> None:
    for key in given:
        if key in known:
            continue
        hint = "settings belong under [fixed] or [grid]" if key in Settings.model_fields else None
        raise SettingsError(f"unknown key {key!r} in {where}; {suggest(key, known, hint)}")
