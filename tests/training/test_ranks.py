"""Two ranks train what one process trains, write it once, and end together."""

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from on_ranks import CASES, small, stop_early
from safetensors.torch import load_file

from countertrain.files import read_tensors
from countertrain.runs.folder import read_run
from countertrain.runs.run import Run
from countertrain.runs.training import train
from countertrain.training.history import EpochRecord
from countertrain.training.ranks import ALONE, Ranks

HERE = Path(__file__).parent


def torchrun(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *map(str, args)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = process.communicate(timeout=300)
    finally:
        process.terminate()  # it ends its ranks, too
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """All that `on_ranks.py` does, in two processes."""
    folder = tmp_path_factory.mktemp("ranks")
    return folder, torchrun(HERE / "on_ranks.py", folder)


def alone(folder: Path, **overrides: Any) -> Run:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="training 2 models one by one")
        return train(small(**overrides), folder)


def states(run: Run) -> dict[str, torch.Tensor]:
    return load_file(run.folder / "weights.safetensors")


@pytest.mark.parametrize("name", CASES)
def test_two_ranks_end_with_the_weights_and_history_of_one_process(
    name: str, two: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    folder, done = two
    assert (folder / name / "weights.safetensors").exists(), done.stderr
    wanted = alone(tmp_path, **CASES[name])
    found, expected = load_file(folder / name / "weights.safetensors"), states(wanted)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    records = wanted.history.records
    kept = read_run(folder / name).history.records
    for mine, theirs in zip(kept, records, strict=True):
        assert mine.metrics.keys() == theirs.metrics.keys()
        for metric, values in theirs.metrics.items():
            assert mine.metrics[metric] == pytest.approx(values, rel=1e-4, abs=1e-5), metric
    if CASES[name].get("early_stopping"):
        assert records[-1].metrics["validation_loss"] > records[0].metrics["validation_loss"]  # these are not the last
    if name != "shares of nothing":
        assert any(0 < share < 1 for record in records for share in record.metrics["mature"])


@pytest.mark.parametrize("name", [*CASES, "early"])
def test_the_ranks_have_the_very_same_weights(name: str, two: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    first, second = (load_file(two[0] / f"{name}-{rank}.safetensors") for rank in (0, 1))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_only_the_first_rank_calls_back_and_its_weights_and_word_are_those_of_all(
    two: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    ends = [read_tensors(two[0] / f"early-{rank}.safetensors") for rank in (0, 1)]
    assert [end[1]["called"] for end in ends] == [[1, 2], []]
    wanted = dict(stop_early(ALONE)[0].state_dict())
    torch.testing.assert_close(ends[1][0], wanted, rtol=1e-10, atol=1e-10)


def test_layers_that_look_beyond_a_row_are_refused(two: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    for rank in (0, 1):
        assert (two[0] / f"refused-{rank}.txt").read_text() == (
            "Dropout does not treat each row by itself, so 2 ranks would train another model than one process; "
            "train it with one process, or without that layer"
        )


def test_an_error_on_one_rank_ends_all_with_one_sentence(
    two: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, done = two
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if line.startswith("countertrain: ")]
    assert said == ["countertrain: the second rank is unwell"]
    assert not (folder / "failed" / "weights.safetensors").exists()


def test_the_command_goes_on_with_a_stopped_run_on_two_ranks_and_speaks_once(tmp_path: Path) -> None:
    def stop(record: EpochRecord) -> None:
        if record.epoch == 2:
            raise KeyboardInterrupt

    settings, folder = small(), tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        train(settings, folder, callbacks=[stop])
    given = {"epochs", "batch_size", "n_ce", "n_steps", "tau", "learning_rate"}
    assigned = [word for key in given for word in ("--set", f"{key}={getattr(settings, key)}")]
    done = torchrun("-m", "countertrain", "train", "moons", "--out", folder, "--resume", *assigned)
    assert done.returncode == 0, done.stderr
    assert [line.split("epoch ")[1][:3] for line in done.stdout.splitlines() if "epoch " in line] == ["3/4", "4/4"]
    assert done.stdout.count("model: ") == 1
    assert done.stderr.strip() == ""
    assert {path.name for path in folder.iterdir()} == {
        "settings.toml", "schema.toml", "encoder.json", "about.json", "weights.safetensors", "history.json",
        "rows.safetensors", "test.csv", "checksums.json",
    }  # fmt: skip
    unbroken = train(settings, tmp_path / "unbroken")
    torch.testing.assert_close(load_file(folder / "weights.safetensors"), states(unbroken), rtol=1e-5, atol=1e-5)


def test_shares_follow_one_another_and_differ_by_at_most_one_row() -> None:
    for n in range(8):
        for size in range(1, 5):
            shares = [Ranks(rank, size).share(n) for rank in range(size)]
            rows = list(range(n))
            assert [i for share in shares for i in rows[share]] == rows
            sizes = [len(rows[share]) for share in shares]
            assert max(sizes) - min(sizes) <= 1


def test_alone_nothing_is_exchanged() -> None:
    x = torch.ones(1, 3, 2, requires_grad=True)
    assert Ranks.here() == ALONE
    assert ALONE.first
    assert ALONE.gather(x, 3) is x
    assert [ALONE.any(answer) for answer in (True, False)] == [True, False]
