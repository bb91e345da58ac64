"""Profiles: named sets of settings to begin with. What a profile does not say is the authors' (`as-run`)."""

from typing import Any

__all__ = ["FINAL", "PROFILES", "TUNED", "first_profile", "values_of_profile"]

PROFILES: dict[str, dict[str, Any]] = {
    "table": {
        "encoder": "ranks",
        "model": "piecewise",
        "hidden": (128,),
        "seeds": (0, 1),
        "objective": "taught",
        "lambda_div": 0.1,
        "n_neighbours": 16,
        "immature": "drop",
        "n_steps": 10,
        "step_size": 0.3,
        "train_categories": "change",
        "domain": "schema",
        "epochs": 40,
        "learning_rate": 2e-3,
        "batch_size": "auto",
        "shuffle": True,
        "early_stopping": True,
        "patience": 6,
        "calibrate": True,
        "against_evidence": False,
    },
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
"""`table` is for people's own tables; where paper and program differ, both exist; the others ask what does better."""

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
    "debt-age": {"model": "linear", "epochs": 50, "tau": 0.5, "lambda_reg": 0.25},
    "breast-cancer": {},
    "digits": {},
}
"""The data sets that begin with `as-run`, and the settings of each that are not the defaults."""

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


def first_profile(data: str) -> str:
    """What a data set begins with where no profile is given."""
    return "as-run" if data in FINAL else "table"


def values_of_profile(profile: str, data: str) -> dict[str, Any]:
    """The settings of a profile for a data set: the paper's final ones below, unless it is for any table."""
    final = {} if profile == "table" else FINAL.get(data, {})
    return {**final, **PROFILES.get(profile, {}), **(TUNED.get(data, {}) if profile == "tuned" else {})}
