"""Searches without a gradient: growing spheres, and FACE's way along real rows."""

import heapq
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from countertrain.constraints import Constraints
from countertrain.models.architectures import mlp
from countertrain.search.generator import Generator
from countertrain.search.generators import amortised, face, growing_spheres
from countertrain.search.paths import Graph, Paths
from countertrain.search.penalties import distance
from countertrain.search.rules import SGD
from countertrain.search.space import LatentSpace
from countertrain.search.spheres import Spheres
from countertrain.search.streams import draw_normal, draw_uniform, seeds_of_rows
from countertrain.search.vae import fit_vae
from countertrain.testing import check_generator, toy_model, toy_rows

LIMITS = Constraints.of(3, mutability={0: "none", 1: "increase"}, lower=-4.0, upper=4.0)


def sure(model: nn.Module, row: Tensor, aim: int, tau: float) -> bool:
    return bool(model(row[None]).softmax(-1)[0, aim] >= tau)


def put_within(row: Tensor, origin: Tensor) -> Tensor:
    found = row.clamp(-4.0, 4.0)
    found[0] = origin[0]
    found[1] = torch.maximum(found[1], origin[1])
    return found


@pytest.mark.parametrize("sparse", [True, False])
def test_growing_spheres_finds_what_a_plain_loop_over_shells_finds(sparse: bool) -> None:
    x, y = toy_rows(3, 3, n=24)
    model, target, tau, width, n = toy_model(x, y), (y + 1) % 3, 0.7, 0.5, 40
    search = growing_spheres(width=width, n_candidates=n, sparse=sparse, n_steps=6, tau=tau)
    found = search(model, x, target, constraints=LIMITS, seed=5)
    seeds = seeds_of_rows(x[None], 5)
    went_back = 0
    for i, (row, aim) in enumerate(zip(x, target.tolist(), strict=True)):
        end, shells = row, 0
        for k in range(1, 7):
            if sure(model, end, aim, tau):
                break
            shells = k
            like = torch.empty(1, 1, n, 3, dtype=x.dtype)
            directions = draw_normal(seeds[:, i : i + 1], 2 * k, like)[0, 0]
            share = draw_uniform(seeds[:, i : i + 1], 2 * k + 1, like[..., 0])[0, 0]
            directions[:, 0] = 0.0  # two features can move
            least = ((k - 1) * width) ** 2
            radius = (least + share * ((k * width) ** 2 - least)).sqrt()
            candidates = [put_within(row + r * d / d.norm(), row) for r, d in zip(radius, directions, strict=True)]
            good = [candidate for candidate in candidates if sure(model, candidate, aim, tau)]
            if good:
                end = min(good, key=lambda candidate: float((candidate - row).norm()))
                order = (end - row).abs().argsort(stable=True) if sparse else ()
                for j in order:
                    trial = end.clone()
                    trial[j] = row[j]
                    if not sure(model, trial, aim, tau):
                        break
                    went_back += int(trial[j] != end[j])
                    end = trial
        torch.testing.assert_close(found.x[i], end)
        assert int(found.n_steps[i]) == shells
        assert bool(found.mature[i]) == sure(model, end, aim, tau)
    assert found.mature.any()
    assert not found.mature.all()
    assert (went_back > 0) == sparse


def test_candidates_fill_their_shell_evenly_in_the_features_that_can_move() -> None:
    x = torch.zeros(1, 3, dtype=torch.float64)
    drawn: list[Tensor] = []

    def never(rows: Tensor) -> Tensor:
        drawn.append(rows)
        return torch.tensor([[9.0, -9.0]], dtype=torch.float64).expand(len(rows), 2)

    limits = Constraints.of(3, mutability={0: "none"})
    growing_spheres(width=0.5, n_candidates=4000, n_steps=2)(never, x, torch.tensor([1]), constraints=limits)
    shells = [rows for rows in drawn if len(rows) == 4000]
    assert len(shells) == 2
    for k, rows in enumerate(shells):
        radius = rows.norm(dim=-1)
        assert not rows[:, 0].any()
        assert radius.min() >= 0.5 * k
        assert radius.max() <= 0.5 * (k + 1)
        inner = ((0.5 * k) ** 2 + (0.5 * (k + 1)) ** 2) / 2  # half of the area of the ring
        assert abs(float((radius.square() < inner).double().mean()) - 0.5) < 0.03
        assert (rows[:, 1:].mean(0).abs() < 0.03).all()


def shortest_way(rows: Tensor, k: int, start: Tensor, ends: set[int]) -> list[int] | None:
    """Dijkstra by hand from a row that is no node; the places of the nodes on the way."""
    apart = (rows[:, None] - rows[None]).abs().sum(-1)
    near = [{int(j) for j in apart[i].argsort()[: k + 1]} for i in range(len(rows))]
    links = [[j for j in range(len(rows)) if j != i and (j in near[i] or i in near[j])] for i in range(len(rows))]
    away = (rows - start).abs().sum(-1)
    queue = [(float(away[i]), [int(i)]) for i in away.argsort()[:k]]
    heapq.heapify(queue)
    seen: set[int] = set()
    while queue:
        length, way = heapq.heappop(queue)
        if way[-1] in ends:
            return way
        if way[-1] in seen:
            continue
        seen.add(way[-1])
        for j in links[way[-1]]:
            heapq.heappush(queue, (length + float(apart[way[-1], j]), [*way, j]))
    return None


def test_face_goes_the_shortest_way_that_a_plain_dijkstra_finds_and_stays_where_the_model_is_sure() -> None:
    x, y = toy_rows(3, 3, n=60)
    model, target, tau, k = toy_model(x, y), (y[:20] + 1) % 3, 0.8, 4
    factual = x[:20] + 0.05
    found = face(n_near=k, n_steps=5, tau=tau).bind(x, y)(model, factual, target, constraints=LIMITS)
    graph = Graph.of(x, y, k)
    p = model(graph.rows).softmax(-1).tolist()
    hops = []
    for i, aim in enumerate(target.tolist()):
        ends = {j for j in range(len(x)) if int(graph.label[j]) == aim and p[j][aim] >= tau}
        way = shortest_way(graph.rows, k, factual[i], ends)
        end, steps = factual[i], 0
        for _ in range(5):
            if sure(model, end, aim, tau):
                break
            end = end if way is None else put_within(graph.rows[way[min(steps, len(way) - 1)]], factual[i])
            steps += 1
        torch.testing.assert_close(found.x[i], end, rtol=0, atol=0)
        assert int(found.n_steps[i]) == steps
        assert bool(found.mature[i]) == sure(model, end, aim, tau)
        hops.append(steps)
    assert max(hops) > 2
    assert len(set(hops)) > 2
    assert found.mature.any()
    assert not found.mature.all()


def test_two_clouds_with_nobody_between_have_no_way_from_one_to_the_other() -> None:
    x = torch.cat([torch.randn(20, 2, generator=torch.Generator().manual_seed(0)) + 9 * side for side in (-1, 1)])
    y = torch.arange(2).repeat_interleave(20)
    model = toy_model(x, y)
    apart = face(n_near=3, tau=0.6).bind(x, y)(model, x[:5], 1 - y[:5])
    assert torch.equal(apart.x, x[:5])
    assert not apart.mature.any()
    joined = face(n_near=25, tau=0.6).bind(x, y)(model, x[:5], 1 - y[:5])
    assert joined.mature.all()


@pytest.mark.parametrize("sparse", [True, False])
def test_growing_spheres_keeps_the_contract(sparse: bool) -> None:
    check_generator(growing_spheres(width=0.4, n_candidates=60, sparse=sparse, n_steps=9))


def test_face_keeps_the_contract_and_says_that_it_needs_rows() -> None:
    x, y = toy_rows(3, 3)
    check_generator(face(n_near=4, n_steps=6, tau=0.6).bind(x, y))
    with pytest.raises(ValueError, match="has not seen any; bind the generator to training rows"):
        face()(toy_model(x, y), x, (y + 1) % 3)


def test_a_leap_beyond_epsilon_has_a_nascent_row_on_its_way() -> None:
    x, y = toy_rows(3, 3)
    model, target = toy_model(x, y), (y + 1) % 3
    found = growing_spheres(width=0.5, n_candidates=50, sparse=False)(model, x, target, epsilon=0.2)
    change, begun = found.x - x, found.nascent - x
    far = change.abs().amax(-1)
    assert (far > 0.2).any()
    assert (begun.abs().amax(-1)[far > 0.2] > 0.19).all()
    torch.testing.assert_close(begun, change * torch.where(far > 0.2, 0.999 * 0.2 / far, 1.0)[:, None])


def test_images_and_populations_are_searched_as_rows_and_models_alone() -> None:
    x, y = toy_rows(4, 2)
    models = [mlp(4, 2, hidden=(6,), seed=i).double() for i in range(2)]
    images = [nn.Sequential(nn.Flatten(), model) for model in models]
    both = x.expand(2, *x.shape)
    for generator in (growing_spheres(n_candidates=30), face(n_near=4, tau=0.6)):
        flat = generator.bind(x, y)(models, both, (1 - y).expand(2, -1), seed=3)
        shaped = generator.bind(x.view(-1, 2, 2), y)(images, both.reshape(2, -1, 2, 2), (1 - y).expand(2, -1), seed=3)
        torch.testing.assert_close(shaped.x.flatten(2), flat.x)
        assert flat.mature.any()


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"penalties": ((1.0, distance),)}, "no use for penalties"),
        ({"loss": Generator(()).loss}, "no use for loss"),
        ({"space": LatentSpace(fit_vae(toy_rows(3, 3)[0].float(), epochs=1).double())}, "no use for space"),
        ({"tau": None}, "give the generator a tau"),
    ],
)
def test_what_a_rule_that_proposes_rows_would_not_look_at_is_refused(changed: dict[str, object], what: str) -> None:
    x, y = toy_rows(3, 3)
    with pytest.raises(ValueError, match=what):
        replace(Generator((), loss=None, rule=Spheres()), **changed)(toy_model(x, y), x, y)


def test_rules_that_propose_are_told_from_those_that_step() -> None:
    assert [hasattr(rule, "step") for rule in (SGD(), Spheres(), Paths())] == [True, False, False]


@pytest.mark.parametrize(
    "generator", [growing_spheres(n_candidates=80), face(n_near=6, tau=0.6), amortised(n_updates=60, tau=0.6)]
)
def test_a_category_has_one_level_wherever_a_search_goes(generator: Generator) -> None:
    x, y = toy_rows(5, 2)
    x = torch.cat([x[:, :2], functional.one_hot(x[:, 2:].argmax(-1), 3)], dim=1)
    model = toy_model(x, y)
    limits = Constraints.of(5, categories=[slice(2, 5)], lower=[-4, -4, 0, 0, 0], upper=[4, 4, 1, 1, 1])
    found = generator.bind(x, y)(model, x, 1 - y, constraints=limits)
    for rows in (found.x, found.nascent):
        assert ((rows[:, 2:] == 0) | (rows[:, 2:] == 1)).all()
        assert (rows[:, 2:].sum(-1) == 1).all()
    assert (found.x[:, 2:] != x[:, 2:]).any()
    assert found.mature.any()
