"""Names become objects here, and nowhere else: data, models, methods, generators, and the trainer made of them.

A maker is called with those settings that its parameters name, so that a new generator or method by name is one entry
of a table below, or one entry point of another package.
"""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from countertrain import models
from countertrain.constraints import Constraints
from countertrain.evaluation.protocol import EvaluationProtocol
from countertrain.models.steps import fused_adam
from countertrain.runs.modules import Module, build_own_models
from countertrain.runs.monotone import declare_monotone
from countertrain.runs.plugins import PluginError, find_plugins, load_plugin
from countertrain.runs.wanted import check_wanted
from countertrain.runs.weighting import weight_classes
from countertrain.search import generators
from countertrain.search.generator import Generator
from countertrain.search.rules import SGD
from countertrain.search.space import FeatureSpace
from countertrain.search.vae import VAE, fit_vae
from countertrain.tables import Dataset, Inspection, load
from countertrain.tables.encoder import Encoder, FitEncoder
from countertrain.tables.labels import find_class
from countertrain.tables.scales import Ranks
from countertrain.tables.schema import Schema
from countertrain.training import adversarial, ct, gradsup, jem, methods
from countertrain.training.ct import CounterfactualMethod, default_n_ce
from countertrain.training.method import Method
from countertrain.training.methods import SearchOptions
from countertrain.training.teaching import Teacher
from countertrain.training.trainer import CounterfactualTrainer
from countertrain.words import suggest

if TYPE_CHECKING:
    from countertrain.runs.settings import Settings

__all__ = [
    "NOTHING_OWN", "VARYING", "Description", "OwnCode", "batch_size_for", "build_constraints", "build_generator",
    "build_models", "build_objective", "build_protocol", "build_trainer", "check_columns", "declare_mutability",
    "describe", "list_names", "load_data", "read_schema",
]  # fmt: skip

VARYING = (
    "seeds", "lambda_clf", "lambda_div", "lambda_adv", "lambda_reg", "lambda_teach", "epsilon", "tau", "lambda_cost",
    "lambda_egy",
)  # fmt: skip
"""Settings in which the models of one population may differ."""

Made = TypeVar("Made")


def teach_by_boosting() -> Teacher:
    """The teacher where nobody names another: shallow boosted trees."""
    from sklearn.ensemble import HistGradientBoostingClassifier  # late: most commands need no scikit-learn

    made: Teacher = HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=15, random_state=0)
    return made


Makers = Mapping[str, Callable[..., Any]]
MODELS: Makers = {"mlp": models.mlp, "linear": models.linear, "lenet": models.lenet, "piecewise": models.piecewise}
OBJECTIVES: Makers = {
    "ct": methods.ct,
    "taught": methods.taught,
    "bl": methods.bl,
    "ar": methods.ar,
    "cd": methods.cd,
    "pgd": methods.pgd,
    "trades": methods.trades,
    "jem": methods.jem,
    "ross": methods.ross,
    "gradsup": methods.gradsup,
    "counternet": methods.counternet,
}
GENERATORS: Makers = {
    "eccco": generators.eccco,
    "generic": generators.generic,
    "revise": generators.revise,
    "gravitational": generators.gravitational,
    "greedy": generators.greedy,
    "growing_spheres": generators.growing_spheres,
    "probe": generators.probe,
    "nearest": generators.nearest,
    "face": generators.face,
    "amortised": generators.amortised,
}
TERMS: Makers = {
    "yloss": ct.yloss,
    "div": ct.div,
    "advloss": ct.advloss,
    "ridge": ct.ridge,
    "teach": ct.teach,
    "drift": adversarial.drift,
    "reach": adversarial.reach,
    "gap": jem.gap,
    "size": jem.size,
    "alignment": gradsup.alignment,
}
_SETTING_OF = {"schedule": "energy_schedule", "rho": "energy_square", "rule": "step_size", "target_class": "target"}
"""Parameters of makers that go by another name than their settings."""
KINDS: dict[str, tuple[Makers, str | None]] = {
    "model": (MODELS, None),
    "objective": (OBJECTIVES, "countertrain.methods"),
    "generator": (GENERATORS, "countertrain.generators"),
    "term": (TERMS, "countertrain.terms"),
    "encoder": (
        {"standard": Encoder.fit, "ranks": partial(Encoder.fit, fit_scale=Ranks.fit)},
        "countertrain.encoders",
    ),
    "teacher": ({"boosting": teach_by_boosting, "none": lambda: None}, "countertrain.teachers"),
}
"""For each setting that is a name, what it can be, and the group of entry points in which others offer more."""


@dataclass(frozen=True, eq=False)
class OwnCode:
    """What was given in Python instead of by name."""

    module: Module | None = None
    objective: Method | None = None
    generator: Generator | None = None
    teacher: Teacher | None = None


NOTHING_OWN = OwnCode()


def list_names(kind: str) -> list[str]:
    """The names that there are of a kind: model, objective, generator, term, encoder or teacher."""
    makers, group = KINDS[kind]
    return [*makers, *(name for name in (find_plugins(group) if group else ()) if name not in makers)]


def find_maker(kind: str, name: str) -> Callable[..., Any]:
    """What makes the model, objective, generator or encoder of that name, or the term itself."""
    makers, group = KINDS[kind]
    if group is not None and name in find_plugins(group):
        return load_plugin(group, name, taken=makers)  # type: ignore[no-any-return]  # it is looked at there
    return makers[name]


@dataclass(frozen=True)
class Description:
    """What there is of a kind, for people: a name, a sentence, and the settings that it looks at."""

    name: str
    title: str
    settings: tuple[str, ...]


def describe(kind: str) -> list[Description]:
    """Everything of a kind, plug-ins included."""
    from countertrain.runs.settings import Settings

    told = []
    for name in list_names(kind):
        maker = find_maker(kind, name)
        title = (inspect.getdoc(maker) or "").split("\n\n")[0].replace("\n", " ")
        asked = (_SETTING_OF.get(parameter, parameter) for parameter in _parameters(maker))
        told.append(Description(name, title, tuple(each for each in asked if each in Settings.model_fields)))
    return told


def load_data(settings: "Settings", hear: Callable[[Inspection], None] | None = None) -> Dataset:
    """The rows that settings speak of; `hear` is told what a look at the table of a file has shown."""
    data = load(
        settings.data,
        label=settings.label,
        data_seed=settings.data_seed,
        schema=read_schema(Path(settings.schema_file)) if settings.schema_file is not None else None,
        drop=settings.drop,
        fit_encoder=find_encoder(settings.encoder),
        hear=hear,
    )
    check_columns(settings, data)
    check_wanted(settings, data)
    schema = declare_monotone(settings, data.schema)
    return data if schema is data.schema else replace(data, encoder=replace(data.encoder, schema=schema))


def find_encoder(name: str) -> FitEncoder:
    """What makes an encoder of a schema and training rows; what it makes is looked at."""
    fit = find_maker("encoder", name)
    if name in KINDS["encoder"][0]:
        return fit
    return lambda schema, rows: _check_made("encoder", name, fit(schema, rows), Encoder)


def read_schema(path: Path) -> Schema:
    """What a TOML file says of the columns."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}; a schema_file says in TOML what the columns mean")
    return Schema.from_toml(path.read_text(encoding="utf-8"))


def check_columns(settings: "Settings", data: Dataset) -> None:
    """Refuse columns that the data do not have, before anything begins."""
    known = data.column_names
    for option in ("immutable", "increase", "decrease"):
        for name in getattr(settings, option):
            if name not in known and name not in data.features:
                table = Path(settings.data).name
                raise ValueError(f"{option} names {name!r}, which is no column of {table}; {suggest(name, known)}")


def declare_mutability(settings: "Settings", data: Dataset) -> Dataset:
    """The data with a schema that says which columns people can change, as the settings do."""
    ways = {
        data.schema.names[data.encoder.column_of[i]]: {"mutability": way}
        for name, way in settings.mutability.items()
        for i in data.columns([name])
    }
    return replace(data, encoder=replace(data.encoder, schema=data.schema.with_columns(**ways)))


def build_models(settings: "Settings", data: Dataset, own: OwnCode = NOTHING_OWN) -> list[nn.Module]:
    """One freshly initialised model for each seed, in evaluation mode."""
    sizes = data.n_features, data.n_classes
    if own.module is not None:
        return build_own_models(own.module, *sizes, seeds=settings.seeds)
    make = find_maker("model", settings.model)
    chosen = {name: getattr(settings, name) for name in ("hidden", "init", "n_pieces")}
    chosen["numbers"] = data.encoder.numbers
    return [_call(make, sizes, {**chosen, "seed": seed}).eval() for seed in settings.seeds]


def build_constraints(settings: "Settings", data: Dataset, *, test_time: bool = False) -> Constraints:
    """Domain and mutability; one-hot groups are projected at test time only (as run), unless settings say otherwise."""
    return data.constraints(
        n_sigma=settings.n_sigma if settings.domain == "inferred" else None,
        mutability=settings.mutability,
        categories=test_time or settings.train_categories == "change",
    )


def build_generator(settings: "Settings | Sequence[Settings]", data: Dataset, own: OwnCode = NOTHING_OWN) -> Generator:
    """The counterfactual search of training, for the models of one run or of several."""
    if own.generator is not None:
        return own.generator
    runs = _list(settings)
    first = runs[0]
    make = (
        generators.generic if first.objective == "bl" else find_maker("generator", first.generator)
    )  # bl never searches
    parts: dict[str, Callable[[], object]] = {
        "space": lambda: FeatureSpace(keep=data.categories if first.train_categories == "change" else ()),
        "rule": lambda: SGD(first.step_size),
        "schedule": lambda: first.energy_schedule,
        "rho": lambda: first.energy_square,
        "vae": lambda: _fit_vae(data, first.data_seed),
    }
    return _check_made("generator", first.generator, _call(make, (), _offer(runs), parts), Generator)


def build_objective(
    settings: "Settings | Sequence[Settings]",
    data: Dataset,
    weight: Tensor | None = None,
    own: OwnCode = NOTHING_OWN,
) -> Method:
    """The training method, with all that it searches; the losses of rows weighted by class (K,), if at all."""
    runs = _list(settings)
    objective = own.objective
    if objective is None:
        n_ce = default_n_ce(len(data.train)) if runs[0].n_ce is None else runs[0].n_ce
        parts = {
            "generator": lambda: build_generator(runs, data, own),
            "teacher": lambda: _build_teacher(runs[0], own),
            "target_class": lambda: None if runs[0].target is None else find_class(runs[0].target, data.classes),
        }
        maker = find_maker("objective", runs[0].objective)
        if own.teacher is not None and "teacher" not in inspect.signature(maker).parameters:
            raise ValueError(
                f"the objective {runs[0].objective!r} asks no teacher; leave it out, or train with 'taught'"
            )
        made = _call(maker, (), {**_offer(runs), "n_ce": n_ce}, parts)
        objective = _check_made("objective", runs[0].objective, made, Method)  # type: ignore[type-abstract]  # a protocol
    elif own.generator is not None and isinstance(objective, CounterfactualMethod):
        objective = replace(objective, generator=own.generator)
    if runs[0].terms:
        objective = _weigh_terms(objective, dict(runs[0].terms))
    return objective if weight is None else weight_classes(objective, weight)


def _build_teacher(settings: "Settings", own: OwnCode) -> Teacher | None:
    """Who says what it makes of counterfactuals, where the method asks."""
    if own.teacher is not None or settings.teacher == "none":
        return own.teacher
    return _check_made("teacher", settings.teacher, find_maker("teacher", settings.teacher)(), Teacher)  # type: ignore[type-abstract]


def _weigh_terms(objective: Method, weights: Mapping[str, float]) -> Method:
    """The method with other weights of its own terms, and with further ones that other packages offer by name."""
    offered = [n for n in list_names("term") if n not in TERMS] if isinstance(objective, CounterfactualMethod) else []
    known = [*objective.terms, *offered]
    for name in weights:
        if name not in known:
            raise ValueError(
                f"the setting 'terms' names {name!r}, of which the method has no use; {suggest(name, known)}"
            )
    terms = {
        name: (weight, objective.terms[name][1] if name in objective.terms else find_maker("term", name))
        for name, weight in weights.items()
    }
    return replace(objective, terms={**objective.terms, **terms})  # type: ignore[type-var]  # methods are dataclasses


def build_trainer(
    settings: "Settings | Sequence[Settings]",
    data: Dataset,
    *,
    own: OwnCode = NOTHING_OWN,
    weight: Tensor | None = None,
    compiled: bool = False,
) -> CounterfactualTrainer:
    """The trainer of a run, or of several that differ in nothing but VARYING settings and train as one population."""
    runs = _list(settings)
    first = runs[0]
    return CounterfactualTrainer(
        build_objective(runs, data, weight, own),
        constraints=build_constraints(first, data),
        epochs=first.epochs,
        batch_size=batch_size_for(first, len(data.train)),
        optimizer=partial(fused_adam, lr=first.learning_rate),
        scheduler=partial(CosineAnnealingLR, T_max=max(first.epochs, 1)) if first.schedule == "cosine" else None,
        shuffle=first.shuffle,
        on_nonfinite=first.on_nonfinite,
        compiled=compiled,
        averaging=first.averaging,
        seed=tuple(seed for run in runs for seed in run.seeds),
    )


def build_protocol(
    settings: "Settings", *, rounds: int, individuals: int, tau: float | None = None
) -> EvaluationProtocol:
    """The evaluation of a run: tau 0.95, or 0.5 (cost of just valid counterfactuals) under constraints."""
    return EvaluationProtocol(
        rounds=rounds,
        individuals=individuals,
        tau=tau if tau is not None else (0.5 if settings.mutability else 0.95),
        step_size=settings.test_step_size or settings.step_size,
        schedule=settings.energy_schedule,
        rho=settings.energy_square,
        length_scale=settings.length_scale,
        # treated and baseline models draw their individuals independently of one another
        seed=sum(settings.objective.encode()),
    )


def batch_size_for(settings: "Settings", n_rows: int) -> int:
    """Where it is `auto`, 30 rows for small tables; for larger ones as leave 64 updates per epoch, up to 1000."""
    return min(max(30, n_rows // 64), 1000) if settings.batch_size == "auto" else settings.batch_size


def _list(settings: "Settings | Sequence[Settings]") -> "Sequence[Settings]":
    return settings if isinstance(settings, Sequence) else [settings]


def _each(runs: "Sequence[Settings]", name: str) -> float | list[float]:
    """One number if all runs agree, else one per model."""
    values = [getattr(run, name) for run in runs for _ in run.seeds]
    return float(values[0]) if len(set(values)) == 1 else values


def _offer(runs: "Sequence[Settings]") -> dict[str, Any]:
    """All settings by name; those that may vary as one number, or one per model."""
    numbers = {name: _each(runs, name) for name in VARYING if name != "seeds"}
    return {**{name: getattr(runs[0], name) for name in type(runs[0]).model_fields}, **numbers}


def _call(
    make: Callable[..., Any],
    args: Collection[Any],
    offered: Mapping[str, Any],
    parts: Mapping[str, Callable[[], object]] | None = None,
) -> Any:
    """What a maker makes of the settings, and of the parts made of them, that its parameters name."""
    names = _parameters(make)
    made = {name: part() for name, part in (parts or {}).items() if name in names}
    return make(*args, **{name: value for name, value in offered.items() if name in names} | made)


def _parameters(make: Callable[..., Any]) -> list[str]:
    """The settings and parts that a maker asks for."""
    names = [*inspect.signature(make).parameters]
    if "search" in names:  # any option of a search that trains
        names += SearchOptions.__annotations__.keys()
    return names


def _check_made(kind: str, name: str, thing: Any, wanted: type[Made]) -> Made:
    """What a maker made, refused if it is something else."""
    if not isinstance(thing, wanted):
        raise PluginError(f"{kind} {name!r} must make a countertrain {wanted.__name__}; it made {type(thing).__name__}")
    return thing


@lru_cache(maxsize=1)
def _fit_vae(data: Dataset, seed: int) -> VAE:
    """The autoencoder of REVISE, fitted once to the training rows for all populations of a tuning or sweep."""
    return fit_vae(data.train.x, seed=seed)
