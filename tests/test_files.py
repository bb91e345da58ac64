from pathlib import Path

import pytest
import torch
from torch import Tensor

from countertrain import files as checkpoint
from countertrain.files import CheckpointError, read_tensors, write_tensors, write_text

TENSORS = {
    "float": torch.arange(6.0).view(2, 3),
    "double": torch.tensor([0.1, -0.0, 1e-300], dtype=torch.float64),
    "bytes": torch.arange(7, dtype=torch.uint8),
    "whole": torch.tensor(3),
    "transposed": torch.arange(6.0).view(2, 3).T,
}


def test_tensors_and_numbers_come_back_bit_for_bit(tmp_path: Path) -> None:
    meta = {"seeds": "[1, 2]", "lr": 0.1 + 0.2, "betas": [0.9, 0.999], "nothing": None}
    write_tensors(tmp_path / "a.safetensors", TENSORS, meta)
    tensors, read = read_tensors(tmp_path / "a.safetensors")
    assert read == meta
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)


def test_two_names_for_one_tensor_are_written_as_two(tmp_path: Path) -> None:
    shared = torch.arange(4.0)
    write_tensors(tmp_path / "a", {"whole": shared, "part": shared[:2]}, {})
    assert read_tensors(tmp_path / "a")[0]["part"].tolist() == [0.0, 1.0]


def test_nothing_but_the_file_itself_is_left(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a", TENSORS, {})
    write_tensors(tmp_path / "a", TENSORS, {"again": True})
    write_text(tmp_path / "b.txt", "text")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b.txt"]
    assert (tmp_path / "b.txt").read_text() == "text"


def test_a_write_that_is_killed_half_way_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tensors(tmp_path / "a", TENSORS, {"epoch": 1})

    def killed(tensors: dict[str, Tensor], path: Path, meta: dict[str, str]) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save_file", killed)
    with pytest.raises(KeyboardInterrupt):
        write_tensors(tmp_path / "a", TENSORS, {"epoch": 2})
    assert read_tensors(tmp_path / "a")[1] == {"epoch": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
def test_a_truncated_file_is_refused_with_the_way_out(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path, TENSORS, {"epoch": 1})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"a\.safetensors is truncated or not a safetensors file .*; delete it"):
        read_tensors(path)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("weights: [1, 2, 3]" * 10)
    with pytest.raises(CheckpointError, match="is truncated or not a safetensors file"):
        read_tensors(tmp_path / "a")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"there is no file .*gone; check the folder, or train first"):
        read_tensors(tmp_path / "gone")
