"""Whatever a file holds, it is read or refused in one sentence; `python -m tests.fuzz` goes on for minutes."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.damaging import damaged
from tests.fuzz.loaders import LOADERS, try_loader
from tests.fuzz.tables import try_table

FOUND = Path(__file__).parent / "found"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.filterwarnings("ignore")  # of pandas, about dates and the like
@pytest.mark.parametrize("name", LOADERS)
def test_a_damaged_file_is_read_or_refused_in_one_sentence(name: str, folder: Path) -> None:
    loader, said = LOADERS[name], Counter[bool]()

    @given(damaged(loader.example))
    @settings(max_examples=15 if name == "look at a table" else 60)
    def check(content: bytes) -> None:
        refusal = try_loader(loader, content, folder)
        assert refusal is None or refusal.strip()
        said[refusal is None] += 1

    check()
    assert try_loader(loader, loader.example, folder) is None
    assert name == "lock" or said[False]  # who holds a lock is nobody, if it cannot be read


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("file", sorted(FOUND.glob("*/*")), ids=lambda file: f"{file.parent.name}/{file.name}")
def test_what_was_once_found_stays_mended(file: Path, folder: Path) -> None:
    try_loader(LOADERS[file.parent.name.replace("-", " ")], file.read_bytes(), folder)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, 200, 50))
def test_ugly_tables_are_encoded_and_come_back_or_are_refused(first: int, folder: Path) -> None:
    refused = [try_table(seed, folder) for seed in range(first, first + 50)]
    assert all(sentence is None or sentence.strip() for sentence in refused)
    assert None in refused
    assert any(refused)


@given(st.integers(0, 2**32))
@settings(max_examples=1)
def test_tables_are_the_same_for_the_same_seed(seed: int) -> None:
    from tests.fuzz.tables import draw_table

    assert draw_table(seed) == draw_table(seed)
