"""The paper's four synthetic data sets are what REFERENCE C.2 and G say, by their moments."""

import math

import pytest
import torch
from torch import Tensor

from countertrain.tables import Dataset, load
from countertrain.tables.sources.synthetic import SYNTHETIC

SETS = ("ls", "ol", "circles", "moons")
CENTRES = torch.tensor([[2.586902, -0.451857], [-0.993221, 4.062597]])


def all_rows(data: Dataset) -> tuple[Tensor, Tensor]:
    splits = (data.train, data.validation, data.test)
    return torch.cat([s.x for s in splits]).double(), torch.cat([s.y for s in splits])


def of_class(name: str, label: int) -> Tensor:
    x, y = all_rows(load(name))
    return x[y == label]


@pytest.mark.parametrize("name", SETS)
def test_a_set_has_3000_training_600_validation_and_900_test_rows(name: str) -> None:
    data = load(name)
    assert (len(data.train), len(data.validation), len(data.test)) == (3000, 600, 900)


@pytest.mark.parametrize("name", [*SETS, "debt-age"])
def test_both_classes_are_half_of_every_split(name: str) -> None:
    data = load(name)
    for split in (data.train, data.validation, data.test):
        share = split.y.double().mean().item()
        assert share == pytest.approx(0.5, abs=3 * 0.5 / math.sqrt(len(split)))


@pytest.mark.parametrize("name", SETS)
def test_the_validation_split_keeps_the_mix_of_classes_of_the_known_rows(name: str) -> None:
    data = load(name)
    known = torch.cat([data.train.y, data.validation.y]).double().mean()
    assert abs(data.validation.y.double().mean() - known) < 2 / len(data.validation)


@pytest.mark.parametrize(("name", "spread"), [("ls", 0.5), ("ol", 2.0)])
def test_blobs_have_the_authors_centres_and_an_isotropic_spread(name: str, spread: float) -> None:
    for label in (0, 1):
        x = of_class(name, label)
        error = 4 * spread / math.sqrt(len(x))
        assert torch.allclose(x.mean(0), CENTRES[label].double(), rtol=0, atol=error)
        assert torch.allclose(x.std(0), torch.full((2,), spread, dtype=torch.float64), rtol=0, atol=error)
        assert abs(torch.corrcoef(x.T)[0, 1]) < 4 / math.sqrt(len(x))


def test_circles_are_a_blob_at_the_origin_and_a_ring_of_radius_one() -> None:
    blob, ring = of_class("circles", 0), of_class("circles", 1)
    assert torch.allclose(blob.mean(0), torch.zeros(2, dtype=torch.float64), atol=0.015)
    assert torch.allclose(blob.std(0), torch.full((2,), 0.15, dtype=torch.float64), atol=0.01)
    assert torch.allclose(ring.mean(0), torch.zeros(2, dtype=torch.float64), atol=0.07)
    radius = ring.norm(dim=1)
    assert radius.mean().item() == pytest.approx(1 + 0.15**2 / 2, abs=0.015)  # noise pushes a radius outwards
    assert radius.std().item() == pytest.approx(0.15, abs=0.01)


def test_the_second_moon_is_the_first_mirrored_and_shifted() -> None:
    upper, lower = of_class("moons", 0), of_class("moons", 1)
    shift = torch.tensor([1.0, 0.3], dtype=torch.float64)
    for moon, centre, side in ((upper, torch.zeros(2), 1), (lower, shift, -1)):
        arc = moon - centre.double()
        assert arc[:, 0].mean().item() == pytest.approx(0, abs=0.06)
        assert arc[:, 1].mean().item() == pytest.approx(side * 2 / math.pi, abs=0.03)
        assert arc.norm(dim=1).mean().item() == pytest.approx(1.0, abs=0.02)
        assert arc.norm(dim=1).std().item() == pytest.approx(0.1, abs=0.01)
        assert (side * arc[:, 1] > -0.5).all()


@pytest.mark.parametrize(("name", "floor"), [("ls", 1.13), ("ol", 4.51), ("circles", 0.98)])
def test_two_points_of_a_target_class_are_as_far_apart_as_the_analytic_floor_of_ip(name: str, floor: float) -> None:
    means = []
    for label in (0, 1):
        x = of_class(name, label)
        means.append(torch.cdist(x, x, p=1).sum() / (len(x) * (len(x) - 1)))
    assert torch.stack(means).mean().item() == pytest.approx(floor, rel=0.025)


@pytest.mark.parametrize("name", SYNTHETIC)
def test_no_row_is_in_two_splits(name: str) -> None:
    data = load(name)
    rows = [{tuple(row) for row in split.x.tolist()} for split in (data.train, data.validation, data.test)]
    assert sum(map(len, rows)) == 4500
    assert len(set.union(*rows)) == 4500


@pytest.mark.parametrize("name", SYNTHETIC)
def test_the_same_data_seed_gives_the_same_rows_and_another_one_others(name: str) -> None:
    first, second, other = load(name), load(name), load(name, data_seed=43)
    for split in ("train", "validation", "test"):
        assert torch.equal(getattr(first, split).x, getattr(second, split).x)
        assert torch.equal(getattr(first, split).y, getattr(second, split).y)
        assert not torch.equal(getattr(first, split).x[:100], getattr(other, split).x[:100])


def test_loading_leaves_the_global_streams_alone() -> None:
    before = torch.get_rng_state()
    load("moons")
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("name", SETS)
def test_rows_are_in_raw_units_as_float32_with_int64_classes(name: str) -> None:
    data = load(name)
    assert data.train.x.dtype == torch.float32
    assert data.train.y.dtype == torch.int64
    assert torch.equal(data.original(data.test.x), data.test.x)
    assert (data.features, data.classes, data.protected) == (("x1", "x2"), ("0", "1"), ("x1",))


def test_the_debts_and_ages_of_figure_1_are_two_named_features_of_which_age_is_protected() -> None:
    data = load("debt-age")
    assert (data.features, data.protected) == (("debt", "age"), ("age",))
    provided = data.train.x[data.train.y == data.classes.index("loan provided")].mean(0)
    withheld = data.train.x[data.train.y == data.classes.index("loan withheld")].mean(0)
    assert provided[0] < withheld[0]  # they owe less
    assert provided[1] > withheld[1]  # and are older
