"""Names become the right objects, with the right numbers in them."""

import re
from pathlib import Path

import pytest
import torch

from countertrain.runs import registry
from countertrain.runs.registry import (
    build_constraints,
    build_generator,
    build_models,
    build_objective,
    build_protocol,
    build_trainer,
)
from countertrain.runs.settings import Settings
from countertrain.search.penalties import ScheduledEnergy, distance
from countertrain.search.rules import SGD
from countertrain.search.space import FeatureSpace, LatentSpace
from countertrain.search.vae import VAE
from countertrain.tables import load
from countertrain.testing import check_generator, toy_rows
from countertrain.training.ct import CounterfactualMethod

MOONS = load("moons")


def settings(**overrides: object) -> Settings:
    return Settings.resolve("moons", overrides)


def test_each_seed_gives_a_model_of_its_own_and_the_same_one_again() -> None:
    data = load("moons")
    first, second, again = (build_models(settings(seeds=s, hidden=[7]), data) for s in ([0], [1], [0]))
    assert first[0][0].weight.shape == (7, 2)
    assert torch.equal(first[0][0].weight, again[0][0].weight)
    assert not torch.equal(first[0][0].weight, second[0][0].weight)
    assert len(build_models(settings(seeds=[4, 5, 6]), data)) == 3


def test_the_architecture_is_the_one_that_is_named() -> None:
    data = load("digits")
    assert len(build_models(settings(model="linear"), data)[0]) == 1
    assert build_models(settings(model="lenet"), data)[0](data.test.x[:2]).shape == (2, 10)
    assert build_models(settings(hidden=[4, 5]), data)[0][2].weight.shape == (5, 4)


def test_the_generator_of_training_has_the_settings_of_the_paper() -> None:
    generator = build_generator(settings(lambda_cost=0.2, lambda_egy=3.0, step_size=0.4, n_steps=9), MOONS)
    assert generator.penalties == ((0.2, distance), (3.0, ScheduledEnergy(schedule=True, rho=1e-3)))
    assert (generator.rule, generator.n_steps, generator.tau) == (SGD(0.4), 9, 0.9)
    written = build_generator(settings(profile="as-written"), MOONS)
    assert written.penalties[1][1] == ScheduledEnergy(schedule=False, rho=0.0)


def test_generic_has_no_energy_and_revise_walks_in_a_latent_space(monkeypatch: pytest.MonkeyPatch) -> None:
    generic = build_generator(settings(generator="generic"), MOONS)
    assert generic.penalties == ((0.001, distance),)
    assert isinstance(generic.space, FeatureSpace)
    monkeypatch.setattr(registry, "fit_vae", lambda x, seed: VAE(x.shape[1]))
    revise = build_generator(settings(generator="revise"), MOONS)
    assert revise.penalties == generic.penalties
    assert isinstance(revise.space, LatentSpace)


EASY: dict[str, dict[str, object]] = {
    "gravitational": {"n_near": 5, "lambda_pull": 0.1},
    "greedy": {"step_size": 0.3, "n_steps": 12},
    "growing_spheres": {"width": 0.4, "n_candidates": 60, "n_steps": 9},
    "revise": {"n_steps": 50},
    "face": {"n_near": 4, "n_steps": 6},
    "amortised": {"n_updates": 60},
}
"""What lets some toy rows mature, and not all."""


@pytest.mark.parametrize("name", registry.GENERATORS)
def test_every_generator_by_name_keeps_the_contract_and_trains(name: str) -> None:
    x, y = toy_rows(3, 3, dtype=torch.float32)
    check_generator(registry.GENERATORS[name](tau=0.6, **EASY.get(name, {})).bind(x, y))
    few = settings(generator=name, epochs=2, n_ce=30, hidden=[4], seeds=[0, 1], tau=0.6, n_steps=5)
    models = build_models(few, MOONS)
    history = build_trainer(few, MOONS).fit(models, MOONS.train.x[:60], MOONS.train.y[:60])
    assert torch.tensor(history["div"]).isfinite().all()


def test_the_list_of_generators_says_where_each_comes_from() -> None:
    for told in registry.describe("generator"):
        assert re.search(r"\(.*\d{4}\)", told.title), told.name
        assert "tau" in told.settings


@pytest.mark.parametrize(
    ("objective", "weights"),
    [
        ("ct", {"yloss": 0.1, "div": 0.2, "advloss": 0.3, "ridge": 0.4}),
        ("bl", {"yloss": 0.1}),
        ("ar", {"yloss": 0.1, "advloss": 0.3}),
        ("cd", {"yloss": 0.1, "div": 0.2, "ridge": 0.4}),
    ],
)
def test_an_objective_has_its_terms_and_their_weights(objective: str, weights: dict[str, float]) -> None:
    built = build_objective(
        settings(objective=objective, lambda_clf=0.1, lambda_div=0.2, lambda_adv=0.3, lambda_reg=0.4), MOONS
    )
    assert {name: weight for name, (weight, _) in built.terms.items()} == weights


def test_the_trainer_has_every_setting() -> None:
    data = load("moons")
    chosen: dict[str, object] = {
        "epochs": 7, "batch_size": 11, "n_ce": 13, "burn_in": 0.25, "epsilon": 0.2, "immature": "drop",
        "generate": "batch", "shuffle": True, "on_nonfinite": "skip",
    }  # fmt: skip
    trainer = build_trainer(settings(**chosen, learning_rate=0.125, seeds=[3, 4], immutable=["x2"]), data)
    method = trainer.objective
    assert isinstance(method, CounterfactualMethod)
    of_trainer = {name: getattr(trainer, name) for name in chosen if hasattr(trainer, name)}
    of_method = {name: getattr(method, name) for name in chosen if hasattr(method, name)}
    assert of_trainer | of_method == chosen
    assert not of_trainer.keys() & of_method.keys()
    assert trainer.seed == (3, 4)
    assert trainer.optimizer([torch.zeros(1, requires_grad=True)]).defaults["lr"] == 0.125
    assert trainer.constraints is not None
    assert trainer.constraints.may_increase.tolist() == [True, False]


def test_a_small_table_searches_for_all_of_its_rows() -> None:
    data = load("breast-cancer")
    assert build_objective(Settings.resolve("breast-cancer"), data).n_ce == len(data.train)
    assert build_objective(settings(n_ce=None), MOONS).n_ce == 1000


def test_tau_at_test_time_is_095_or_05_under_constraints_unless_told() -> None:
    assert build_protocol(settings(tau=0.6), rounds=2, individuals=3).tau == 0.95
    for way in ("immutable", "increase", "decrease"):
        bound = settings(tau=0.6, **{way: ["x1"]})
        assert build_protocol(bound, rounds=2, individuals=3).tau == 0.5
    assert build_protocol(bound, rounds=2, individuals=3, tau=0.7).tau == 0.7


def test_the_protocol_has_the_settings_of_the_run_but_no_cost() -> None:
    protocol = build_protocol(settings(profile="as-written"), rounds=2, individuals=3)
    assert (protocol.rounds, protocol.individuals, protocol.lambda_cost) == (2, 3, 0.0)
    assert (protocol.step_size, protocol.schedule, protocol.rho, protocol.length_scale) == (0.25, False, 0.0, 0.5)
    assert protocol.n_steps == 50


def test_objectives_draw_their_individuals_independently() -> None:
    seeds = {build_protocol(settings(objective=o), rounds=2, individuals=3).seed for o in ("ct", "bl", "ar", "cd")}
    assert len(seeds) == 4


def test_one_hot_groups_are_projected_at_test_time_only(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("age,job,bought\n" + "".join(f"{i},{'ab'[i % 3 == 0]},{i % 2}\n" for i in range(40)))
    chosen = Settings.resolve(str(path), {"profile": "as-run", "immutable": ["job"], "n_sigma": 5.0})
    data = load(path)
    train, test = (build_constraints(chosen, data, test_time=t) for t in (False, True))
    assert (train.categories, test.categories) == ((), (slice(1, 3),))
    assert train.may_increase.tolist() == test.may_increase.tolist() == [True, False, False]
    known = torch.cat([data.train.x, data.validation.x])
    assert torch.allclose(train.upper[0], known.mean(0)[0] + 5 * known.std(0)[0])


def test_categories_change_in_training_only_where_settings_say_so(tmp_path: Path) -> None:
    lines = [f"{i},{'abc'[i % 3]},{'yn'[i % 2]}" for i in range(60)]
    path = tmp_path / "people.csv"
    path.write_text("\n".join(["age,job,bought", *lines]))
    data = load(path)
    as_run = Settings.resolve(str(path), {"profile": "as-run"})
    change = Settings.resolve(str(path), {"profile": "as-run", "train_categories": "change"})
    assert build_constraints(as_run, data).categories == ()
    assert build_constraints(as_run, data, test_time=True).categories == data.categories == (slice(1, 4),)
    assert build_constraints(change, data).categories == data.categories
    assert build_generator(as_run, data).space == FeatureSpace()
    assert build_generator(change, data).space == FeatureSpace(keep=data.categories)
    assert build_objective(Settings.resolve(str(path), {"n_neighbours": 5}), data).n_neighbours == 5
