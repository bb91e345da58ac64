"""AutoAttack sees rows in [0, 1], and is given back rows as they were; what is told of it is on record."""

import json
from pathlib import Path

import pandas as pd
import pytest
import torch

from benchmarks.autoattack import Scaled, attack, summarise
from countertrain.search.generators import pgd
from countertrain.search.losses import predict
from countertrain.testing import toy_model, toy_rows
from reproduction.writing import markdown

ROOT = Path(__file__).parents[2]


def test_rows_are_scaled_all_alike_into_the_unit_box_with_room_for_the_ball_and_back() -> None:
    x = 5 * torch.randn(40, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scaled = Scaled.of(x, 0.1)
    image = scaled.to_image(x)
    assert image.shape == (40, 1, 1, 6)
    assert image.min() > 0.1 / scaled.span
    assert image.max() < 1 - 0.1 / scaled.span
    torch.testing.assert_close(scaled.to_rows(image), x)
    moved = (scaled.to_image(x + 0.1) - image).abs()
    torch.testing.assert_close(moved, torch.full_like(moved, 0.1 / scaled.span))


@pytest.mark.parametrize(("n_classes", "epsilon"), [(2, 1.5), (4, 0.3)])
def test_autoattack_stays_in_the_ball_and_finds_about_what_pgd_finds(n_classes: int, epsilon: float) -> None:
    pytest.importorskip("pyautoattack", reason="an extra: pip install 'countertrain[peers]'")
    x, y = toy_rows(4, n_classes, dtype=torch.float32)
    model = toy_model(x, y)
    attacked = attack(model, x, y, epsilon)
    assert (attacked - x).abs().max() <= epsilon + 1e-5
    theirs = float((predict(model(attacked)) == y).double().mean())
    by_pgd = pgd(epsilon, step_size=epsilon / 10)(model, x, y).x
    ours = float((predict(model(by_pgd)) == y).double().mean())
    clean = float((predict(model(x)) == y).double().mean())
    assert 0 < theirs < clean - 0.1
    assert abs(theirs - ours) < 0.05


def test_the_page_has_what_is_on_record() -> None:
    files = sorted((ROOT / "results" / "methods" / "autoattack").glob("*.json"))
    assert files
    records = [record for file in files for record in json.loads(file.read_text(encoding="utf-8"))]
    table = markdown(summarise(pd.DataFrame(records)))
    assert table in (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert all(r["autoattack"] <= r["accuracy"] and r["pgd"] <= r["accuracy"] for r in records)
