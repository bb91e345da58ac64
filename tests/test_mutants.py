"""The list of deliberate bugs stays true: each text stands once in its file, and each test is there."""

from pathlib import Path

import pytest

from tests.mutants import ROOT, Mutant, draw_mutants, read_mutants

MUTANTS = read_mutants()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_planted(mutant: Mutant) -> None:
    text = (ROOT / "src" / "countertrain" / mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1
    compile(text.replace(mutant.old, mutant.new), mutant.file, "exec")
    for test in mutant.tests:
        path, _, name = test.partition("::")
        assert not name or f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")
        assert Path(ROOT / path).is_file()


def test_there_are_enough_of_them_and_none_twice() -> None:
    assert len(MUTANTS) >= 40
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_mutants_drawn_at_random_are_programs_too() -> None:
    drawn = draw_mutants(50, seed=1)
    assert len({mutant.name for mutant in drawn}) == 50
    for mutant in drawn:
        text = (ROOT / "src" / "countertrain" / mutant.file).read_text(encoding="utf-8")
        compile(text.replace(mutant.old, mutant.new), mutant.file, "exec")
