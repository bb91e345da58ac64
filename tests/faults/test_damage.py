"""After a power cut or a bad copy: a folder gives what it held, or one sentence that names the file; never another."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from countertrain.files import CheckpointError
from countertrain.runs import training
from countertrain.runs.folder import UNFINISHED, is_finished, read_run
from countertrain.runs.registry import load_data
from countertrain.runs.settings import Settings
from countertrain.runs.training import train
from countertrain.training.history import EpochRecord
from tests.faults.jobs import write_table

Damage = Callable[[Path, Path], None]
"""What becomes of a file, of which another run has a namesake."""


def truncate(file: Path, other: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip(file: Path, other: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) * 2 // 3] ^= 1
    file.write_bytes(content)


def empty(file: Path, other: Path) -> None:
    file.write_bytes(b"")


def lose(file: Path, other: Path) -> None:
    file.unlink()


def swap(file: Path, other: Path) -> None:
    shutil.copy(other, file)


DAMAGES: dict[str, Damage] = {
    "truncated": truncate,
    "flipped": flip,
    "emptied": empty,
    "missing": lose,
    "swapped": swap,
}
RUN = [
    "settings.toml", "schema.toml", "encoder.json", "about.json", "history.json", "weights.safetensors",
    "rows.safetensors", "test.csv", "checksums.json",
]  # fmt: skip
ON_ITS_WAY = [
    "settings.toml", "environment.json", *(f"done/{name}" for name in RUN if name != "test.csv"),
    "twin/environment.json", "twin/checkpoint.safetensors",
]  # fmt: skip


def settings(place: Path, **changes: object) -> Settings:
    quick = {"target": "yes", "epochs": 2, "hidden": [3], "n_ce": 20, "n_steps": 2, "teacher": "none", "seeds": [0]}
    return Settings.resolve(str(place / "table.csv"), quick | changes)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A finished run, one that was killed while its twin was trained, and both again with another learning rate.

    Their table, which nobody damages, is read once.
    """
    place = tmp_path_factory.mktemp("damage")
    write_table(place, 120)
    data = load_data(settings(place))

    def kill(record: EpochRecord) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "load_data", lambda *args: data)
        for name, asked in (("", settings(place)), ("other ", settings(place, learning_rate=0.01))):
            train(asked, place / f"{name}whole", twin=True)
            with pytest.raises(KeyboardInterrupt):
                train(asked, place / f"{name}begun", twin=True, twin_callbacks=[kill])
        yield place


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", [*RUN, *(f"twin/{name}" for name in RUN)])
def test_a_damaged_file_of_a_model_is_refused_by_its_name(place: Path, tmp_path: Path, name: str, damage: str) -> None:
    same = damage == "swapped" and (place / "whole" / name).read_bytes() == (place / "other whole" / name).read_bytes()
    shutil.copytree(place / "whole", tmp_path / "run")
    DAMAGES[damage](tmp_path / "run" / name, place / "other whole" / name)
    if same:
        assert read_run(tmp_path / "run").id == read_run(place / "whole").id
        return
    with pytest.raises(CheckpointError) as caught:
        read_run(tmp_path / "run")
    said = str(caught.value)
    assert "\n" not in said
    culprit = "settings.toml" if (name, damage) == ("checksums.json", "swapped") else Path(name).name
    assert culprit in said or (damage == "swapped" and "checksums.json" in said)


def test_a_twin_that_is_missing_as_a_whole_is_missed(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "whole", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "twin")
    with pytest.raises(CheckpointError, match=r"twin/checksums\.json is missing; copy the folder again"):
        read_run(tmp_path / "run")


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ON_ITS_WAY)
def test_a_damaged_file_of_an_unfinished_run_is_named_or_does_not_matter(
    place: Path, tmp_path: Path, name: str, damage: str
) -> None:
    shutil.copytree(place / "begun", tmp_path / "run")
    DAMAGES[damage](tmp_path / "run" / UNFINISHED / name, place / "other begun" / UNFINISHED / name)
    try:
        train(settings(place), tmp_path / "run", twin=True, resume=True)
    except ValueError as error:
        said = str(error)
        assert "\n" not in said
        assert Path(name).name in said or (damage == "swapped" and "settings" in said)
        assert not is_finished(tmp_path / "run")
        train(settings(place), tmp_path / "run", twin=True, overwrite=True)
    ended, whole = read_run(tmp_path / "run"), read_run(place / "whole")
    assert ended.twin is not None
    assert whole.twin is not None
    assert (ended.id, ended.twin.id) == (whole.id, whole.twin.id)
