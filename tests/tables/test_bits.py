"""The named data sets are bit for bit what the stored records were made from."""

import hashlib
import os
from pathlib import Path

import pytest

from countertrain.tables import load

FOLDER = Path(os.environ.get("COUNTERTRAIN_DATA", Path(__file__).parents[3] / "shared" / "data"))

EMBEDDED = {
    "ls": "c18dc3a4880cddcb",
    "ol": "36df49c93bee4469",
    "circles": "68060fd236e0af6e",
    "moons": "367a48c28cf13242",
    "debt-age": "ea9541cc92d99865",
    "digits": "ba5f3416bb0a9ce4",
    "breast-cancer": "078548d6a0e31150",
}
FROM_FILES = {
    "adult": "b275cbdda041705a",
    "california": "54d318e625aa0631",
    "credit": "cffdc651f8efdc21",
    "gmsc": "db79faa80b4ec1af",
    "mnist": "c88a90881cb43521",
}


def digest(name: str) -> str:
    """Of the digests of all rows and labels."""
    data = load(name)
    tensors = [tensor for split in (data.train, data.validation, data.test) for tensor in (split.x, split.y)]
    each = [hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest() for tensor in tensors]
    return hashlib.sha256("".join(each).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", EMBEDDED)
def test_an_embedded_data_set_has_not_changed_by_a_bit(name: str) -> None:
    assert digest(name) == EMBEDDED[name]


@pytest.mark.skipif(not (FOLDER / "adult.csv.gz").is_file(), reason=f"the data files are not in {FOLDER}")
@pytest.mark.parametrize("name", FROM_FILES)
def test_a_data_set_from_files_has_not_changed_by_a_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERTRAIN_DATA", str(FOLDER))
    assert digest(name) == FROM_FILES[name]


@pytest.mark.parametrize("name", ["ls", "debt-age", "loans", "digits", "breast-cancer"])
def test_the_test_rows_in_peoples_units_are_those_in_the_models(name: str) -> None:
    data = load(name)
    assert data.test_frame is not None
    assert data.encoder.tensor(data.test_frame).equal(data.test.x)
    assert data.test_frame[data.label].tolist() == [data.classes[k] for k in data.test.y]
