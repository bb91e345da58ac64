"""Ugly tables, drawn at random: whatever people keep in files, and what no file should hold."""

import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from countertrain.runs.looking import refuse_table
from countertrain.runs.registry import load_data
from countertrain.runs.settings import Settings

__all__ = ["draw_table", "try_table"]

Draw = Callable[[random.Random], str]
_CELLS: dict[str, Draw] = {
    "whole": lambda rng: str(rng.randint(-5, 40)),
    "money": lambda rng: f"{rng.lognormvariate(8, 2):.2f}",
    "tiny": lambda rng: f"{rng.gauss(0, 1) * 1e-30:g}",
    "huge": lambda rng: f"{rng.gauss(0, 1) * 1e30:g}",
    "beyond": lambda rng: rng.choice(["1e308", "-1e308", "1e400", "nan", "inf"]),
    "word": lambda rng: rng.choice(["a", "b", "c c", "D", "\u00e9t\u00e9", "\u4e2d", "x"]),
    "flag": lambda rng: rng.choice(["True", "False"]),
    "yes": lambda rng: rng.choice(["yes", "no"]),
    "same": lambda rng: "7",
    "zero": lambda rng: rng.choice(["0"] * 9 + ["5", "130"]),
    "id": lambda rng: f"{rng.getrandbits(40):x}",
    "date": lambda rng: f"20{rng.randint(10, 25)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}",
    "mixed": lambda rng: rng.choice(["1", "2.5", "three", "", "?", "1,5"]),
    "gone": lambda rng: rng.choice(["", "NA", "3", "4", "-"]),
    "quoted": lambda rng: rng.choice(['"a, b"', '"say ""hi"""', '"two\nlines"', "plain"]),
}
_MILD = ("whole", "money", "tiny", "word", "flag", "yes", "zero", "gone", "quoted")
_NAMES = ("age", "income", "Income", "x", "", " x ", "a=b", "a:b", "\u00e9", "y", "label", "index", "0", "-1", "twin")


def draw_table(seed: int) -> str:
    """A table as the text of a CSV file; the last column is to be predicted."""
    rng = random.Random(seed)
    mild = rng.random() < 0.7  # else whatever may be wrong is, and the table is refused for the first of it
    n, width = rng.choice((40, 80, 200) if mild else (0, 1, 5, 12, 40)), rng.randint(1, 7)
    kinds = [rng.choice(_MILD if mild else list(_CELLS)) for _ in range(width)]
    last = rng.choice(("yes", "yes", "word", "flag") if mild else ("whole", "same", "mixed", "money"))
    separator = rng.choice((",", ",", ";", "\t"))
    names = [rng.choice(_NAMES) if rng.random() < (0.05 if mild else 0.3) else f"c{i}" for i in range(width)]
    rows = []
    for _ in range(n):
        cells = [_CELLS[kind](rng) if rng.random() > 0.03 else "" for kind in (*kinds, last)]
        if not mild and rng.random() < 0.01:
            cells = cells[:-1]
        rows.append(separator.join(cells))
    return "\n".join([separator.join([*names, "label"]), *rows]) + "\n" * rng.randint(0, 2)


def try_table(seed: int, folder: Path) -> str | None:
    """Look at an ugly table, split and encode it, as training does; the sentence with which it was refused, if it was.

    What is not refused must be encoded in finite numbers, and come back as it was.
    """
    path = folder / "ugly.csv"
    path.write_text(draw_table(seed), encoding="utf-8", newline="")
    settings = Settings.resolve(str(path), {})
    try:
        data = load_data(settings, lambda look: refuse_table(look, settings))
    except ValueError as error:
        return str(error)
    for rows in (data.train, data.validation, data.test):
        assert bool(torch.isfinite(rows.x).all())
        assert len(rows.x) == len(rows.y)
        assert not len(rows.y) or 0 <= int(rows.y.min()) <= int(rows.y.max()) < data.n_classes
    assert data.test_frame is not None
    again = data.encoder.tensor(data.test_frame.drop(columns=data.label))
    assert torch.equal(again, data.test.x)
    back = data.encoder.tensor(data.encoder.decode(data.test.x.numpy()))
    scale = max(1.0, float(data.test.x.abs().max())) if len(data.test) else 1.0
    assert math.isfinite(scale)
    assert np.allclose(back, data.test.x, atol=1e-3 * scale)
    return None
