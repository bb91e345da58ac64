import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from countertrain.files import (
    CheckpointError,
    InUseError,
    Writer,
    locked,
    new_file,
    new_folder,
    read_tensors,
    recover_folder,
    write_bytes,
    write_tensors,
    write_text,
)

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

    monkeypatch.setattr("safetensors.torch.save_file", killed)
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


def test_a_file_in_which_any_bit_has_flipped_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path, TENSORS, {"epoch": 1})
    content = path.read_bytes()
    said = set()
    for place in range(8, len(content), 3):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            tensors, meta = read_tensors(path)
        except CheckpointError as error:
            said.add(str(error).split(" (")[0])
        else:  # of the name of the checksum itself: nothing is wrong with the rest
            assert meta.keys() ^ {"epoch"}
            assert all(torch.equal(tensors[name], tensor) for name, tensor in TENSORS.items())
    assert said == {
        f"{path} is truncated or not a safetensors file",
        f"{path} is not as it was written, by its checksum; delete it and train again",
    }


def test_the_same_tensors_are_the_same_file(tmp_path: Path) -> None:
    for name in "abcdef":
        write_tensors(tmp_path / name, TENSORS, {"epoch": 1, "loss": 0.1})
    assert len({(tmp_path / name).read_bytes() for name in "abcdef"}) == 1


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("weights: [1, 2, 3]" * 10)
    with pytest.raises(CheckpointError, match="is truncated or not a safetensors file"):
        read_tensors(tmp_path / "a")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"there is no file .*gone; check the folder, or train first"):
        read_tensors(tmp_path / "gone")


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_file_whose_writing_fails_stays_as_it_was_and_nothing_lies_beside_it(tmp_path: Path) -> None:
    def write_half(path: Path, text: str | None, why: type[BaseException]) -> None:
        with new_file(path) as temporary:
            if text is not None:
                temporary.write_text(text)
            raise why

    write_bytes(tmp_path / "a", b"old")
    for name, text, why in (("a", "half", KeyboardInterrupt), ("b", "half", OSError), ("c", None, OSError)):
        with pytest.raises(why):
            write_half(tmp_path / name, text, why)
    assert contents(tmp_path) == {"a": "old"}


def test_a_disk_that_is_full_or_closed_is_named_by_the_file_that_was_to_be_written(tmp_path: Path) -> None:
    code = """
import resource, signal, sys, torch
from pathlib import Path
from countertrain.files import write_tensors, write_text
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
folder = Path(sys.argv[1])
tensors = {"x": torch.zeros(2000)}
for write, *args in ((write_text, folder / "a", "x" * 2000), (write_tensors, folder / "b", tensors, {})):
    try:
        write(*args)
    except OSError as error:
        print(error)
"""
    said = subprocess.check_output([sys.executable, "-c", code, str(tmp_path)], text=True).splitlines()
    assert said[0] == f"[Errno 27] File too large: '{tmp_path}/a'"
    assert said[1] == f"[Errno 27] File too large: '{tmp_path}/b'"
    assert contents(tmp_path) == {}
    with pytest.raises(FileNotFoundError, match=f"No such file or directory: '{tmp_path}/gone/a'$"):
        write_text(tmp_path / "gone" / "a", "text")


def test_two_writers_of_one_file_do_not_get_in_each_others_way(tmp_path: Path) -> None:
    with new_file(tmp_path / "a") as mine, new_file(tmp_path / "a") as theirs:
        mine.write_text("mine")
        theirs.write_text("theirs")
    assert contents(tmp_path) == {"a": "mine"}


def test_what_a_killed_writer_left_is_written_over_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    (tmp_path / ".a.0").write_text("half, and longer than what comes")
    with new_file(tmp_path / "a") as mine, new_file(tmp_path / "a") as theirs:
        assert [mine.name, theirs.name] == [".a.0", ".a.1"]
        assert mine.read_text() == ""
        mine.write_text("mine")
        theirs.write_text("theirs")
    assert contents(tmp_path) == {"a": "mine"}


def test_on_a_disk_without_locks_files_are_written_under_names_that_nobody_else_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with new_file(tmp_path / "a") as mine, new_file(tmp_path / "a") as theirs:
        assert mine != theirs
        mine.write_text("mine")
        theirs.write_text("theirs")
    assert contents(tmp_path) == {"a": "mine"}


def test_folders_that_killed_writers_left_beside_one_are_removed_by_the_next(tmp_path: Path) -> None:
    for name in (f".model.{'a' * 32}", f".other.{'b' * 32}", ".model.mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text("half")
    with new_folder(tmp_path / "model") as folder:
        (folder / "a").write_text("new")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".model.mine", f".other.{'b' * 32}", "model"]


def test_a_new_folder_takes_the_place_of_the_old_one_as_a_whole(tmp_path: Path) -> None:
    for text in ("one", "two"):
        with new_folder(tmp_path / "deep" / "model") as folder:
            (folder / text).write_text(text)
            assert (tmp_path / "deep" / "model").exists() == (text == "two")
        assert contents(tmp_path / "deep" / "model") == {text: text}
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["model"]


def test_behind_a_link_the_folder_itself_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "model")
    with new_folder(tmp_path / "link") as folder:
        (folder / "a").write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert contents(tmp_path / "model") == {"a": "new"}


@pytest.mark.parametrize("trouble", ["in the block", "at the rename", "interrupted at the rename"])
def test_a_new_folder_that_fails_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    path, rename, asked = tmp_path / "model", Path.rename, []
    path.mkdir()
    (path / "a").write_text("old")

    def fail_once(self: Path, to: Path) -> Path:
        asked.append(to)
        if to == path and asked.count(path) == 1:
            raise KeyboardInterrupt if "interrupted" in trouble else OSError(errno.ENOSPC, "No space left on device")
        return rename(self, to)

    if "rename" in trouble:
        monkeypatch.setattr(Path, "rename", fail_once)

    def write_anew() -> None:
        with new_folder(path) as folder:
            (folder / "a").write_text("new")
            if trouble == "in the block":
                raise ZeroDivisionError

    with pytest.raises((OSError, ZeroDivisionError, KeyboardInterrupt)):
        write_anew()
    assert contents(path) == {"a": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert bool(asked) == ("rename" in trouble)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(FileExistsError, match="a is a file; choose another folder"), new_folder(tmp_path / "a"):
        pass
    assert contents(tmp_path) == {"a": "old"}


# one writer at a time

HOLD = """
import sys, time
from pathlib import Path
from countertrain.files import InUseError, locked
folder, go = Path(sys.argv[1]), Path(sys.argv[2])
print("ready", flush=True)
while not go.exists():
    pass
try:
    with locked(folder):
        print("mine", flush=True)
        time.sleep(float(sys.argv[3]))
except InUseError as error:
    print(error, flush=True)
"""


def holder(folder: Path, go: Path, seconds: float) -> subprocess.Popen[str]:
    """A process that asks for the lock as soon as `go` exists, and keeps it for so long."""
    command = [sys.executable, "-c", HOLD, str(folder), str(go), str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_whoever_comes_second_is_told_who_writes_and_what_to_do(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with locked(folder):
        writer = Writer(**json.loads((folder / ".lock").read_text()))
        assert (writer.pid, writer.is_local, writer.has_ended) == (os.getpid(), True, False)
        with pytest.raises(InUseError) as caught, locked(folder):
            pass
        assert str(caught.value) == (
            f"{folder} is in use by process {os.getpid()} on {writer.host} since {writer.since}; "
            f"wait for it, choose another folder, or delete {folder}/.lock if it no longer runs"
        )
        with locked(tmp_path / "other"):
            pass
    assert list(folder.iterdir()) == []


def test_the_lock_is_released_after_an_error(tmp_path: Path) -> None:
    for why in (ValueError, KeyboardInterrupt):
        with pytest.raises(why), locked(tmp_path):
            raise why
        assert not (tmp_path / ".lock").exists()


def test_of_many_that_come_at_once_one_gets_the_lock_even_if_a_dead_one_left_its_file(tmp_path: Path) -> None:
    """The barrier is a file that all wait for; each keeps the lock until all have asked."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for round_ in range(3):
        folder, go = tmp_path / f"run{round_}", tmp_path / f"go{round_}"
        folder.mkdir()
        (folder / ".lock").write_text(json.dumps({**json.loads(Writer.here().to_json()), "pid": gone.pid}))
        takers = [holder(folder, go, 1.0) for _ in range(4)]
        go.touch()
        said = [taker.communicate(timeout=60)[0] for taker in takers]
        assert said.count("mine\n") == 1
        assert sum("is in use by" in text for text in said) == 3
        assert not (folder / ".lock").exists()


def test_one_after_the_other_everybody_gets_the_lock(tmp_path: Path) -> None:
    """Owners that come and go while others ask: no two inside at once, which an exclusive file would notice."""
    code = """
import os, sys
from pathlib import Path
from countertrain.files import InUseError, locked
folder, done = Path(sys.argv[1]), 0
while done < 200:
    try:
        with locked(folder):
            os.close(os.open(folder / "alone", os.O_CREAT | os.O_EXCL))
            (folder / "alone").unlink()
            done += 1
    except InUseError:
        pass
"""
    processes = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(3)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0]
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    process = holder(tmp_path / "run", tmp_path / "go", 60)
    assert process.stdout is not None
    assert process.stdout.readline() == "mine\n"
    with pytest.raises(InUseError, match=f"in use by process {process.pid} on"), locked(tmp_path / "run"):
        pass
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (tmp_path / "run" / ".lock").exists()
    with locked(tmp_path / "run"):
        assert Writer.here().pid == json.loads((tmp_path / "run" / ".lock").read_text())["pid"]


def test_the_lock_of_another_machine_is_respected(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text(Writer(7, "elsewhere", "2026-01-01").to_json())
    with pytest.raises(InUseError, match="in use by process 7 on elsewhere since 2026-01-01"), locked(tmp_path):
        pass
    assert (tmp_path / ".lock").exists()


@pytest.mark.parametrize("alive", [True, False])
def test_on_a_disk_without_locks_the_file_alone_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alive: bool
) -> None:
    def unsupported(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    here = json.loads(Writer.here().to_json())
    (tmp_path / ".lock").write_text(json.dumps(here if alive else here | {"pid": gone.pid}))
    if alive:
        with pytest.raises(InUseError, match="in use by process"), locked(tmp_path):
            pass
    else:
        with locked(tmp_path), pytest.raises(InUseError), locked(tmp_path):
            pass
        assert not (tmp_path / ".lock").exists()


def test_a_folder_that_is_replaced_under_its_lock_may_have_another_writer_afterwards(tmp_path: Path) -> None:
    with locked(tmp_path / "run"):
        with new_folder(tmp_path / "run") as folder:
            (folder / "a").write_text("new")
        (tmp_path / "run" / ".lock").write_text("of the next one")
    assert contents(tmp_path / "run") == {"a": "new", ".lock": "of the next one"}


# killed between the two renames

KILL = """
import os, signal, sys
from pathlib import Path
from countertrain.files import locked, new_folder

path, rename = Path(sys.argv[1]), Path.rename

def die(self, to):
    if to == path:
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(self, to)

Path.rename = die
with locked(path), new_folder(path) as folder:
    (folder / "a").write_text("new")
    (folder / "whole").write_text("")
"""


def kill_in_the_swap(path: Path) -> None:
    """Leave the old folder and the new one under hidden names, as a kill between the renames does."""
    subprocess.run([sys.executable, "-c", KILL, str(path)], check=False)
    assert not path.exists()
    assert len(list(path.parent.iterdir())) == 2


def is_whole(folder: Path) -> bool:
    return (folder / "whole").exists()


@pytest.mark.parametrize("new_is_whole", [True, False])
def test_what_a_kill_between_the_renames_left_is_put_in_place(tmp_path: Path, new_is_whole: bool) -> None:
    path = tmp_path / "model"
    path.mkdir()
    for name, text in (("a", "old"), ("whole", "")):
        (path / name).write_text(text)
    kill_in_the_swap(path)
    (old,) = (folder for folder in tmp_path.iterdir() if (folder / ".lock").exists())
    os.utime(old, (2**32, 2**32))  # something was moved out of it last
    if not new_is_whole:
        next(folder for folder in tmp_path.iterdir() if (folder / "a").read_text() == "new").joinpath("whole").unlink()
    recover_folder(path, is_whole)
    assert (path / "a").read_text() == ("new" if new_is_whole else "old")
    assert [folder.name for folder in tmp_path.iterdir()] == ["model"]
    assert not (path / ".lock").exists() or not new_is_whole
    with locked(path):
        pass


def test_what_a_kill_after_the_renames_left_is_removed_unless_somebody_writes(tmp_path: Path) -> None:
    path, old = tmp_path / "model", tmp_path / f".model.{'a' * 32}"
    for folder in (path, old):
        folder.mkdir()
    recover_folder(path, is_whole)
    assert old.exists()  # what is there is not whole, so nobody knows
    (path / "whole").touch()
    with locked(path):
        recover_folder(path, is_whole)
    assert old.exists()
    recover_folder(path, is_whole)
    assert contents(tmp_path / "model") == {"whole": ""}
    assert not old.exists()


def test_nothing_is_recovered_while_its_writer_lives_or_where_nothing_was_replaced(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.mkdir()
    kill_in_the_swap(path)
    moved_away = next(folder for folder in tmp_path.iterdir() if (folder / ".lock").exists())
    with locked(moved_away):
        recover_folder(path, is_whole)
    assert not path.exists()  # its lock file is gone with the writer, as if people had removed the folder
    recover_folder(path, is_whole)
    recover_folder(tmp_path / "nowhere" / "model", is_whole)
    assert not path.exists()
    assert not (tmp_path / "nowhere").exists()
