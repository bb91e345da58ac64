"""Ctrl-C in the middle of training, in a real process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from countertrain.files import read_tensors
from countertrain.runs.folder import UNFINISHED, is_finished
from countertrain.runs.settings import Settings
from countertrain.runs.training import train
from countertrain.training.history import EpochRecord


def test_a_run_stopped_by_ctrl_c_can_be_resumed_where_it_was(tmp_path: Path) -> None:
    """10,000 epochs cannot be waited for: both runs are compared two epochs after the interruption."""
    folder, checkpoint = tmp_path / "stopped", tmp_path / "stopped" / UNFINISHED / "checkpoint.safetensors"
    assigned = ["epochs=10000", "batch_size=1000", "n_ce=50", "hidden=[4]"]
    command = [sys.executable, "-m", "countertrain", "train", "moons", "--out", str(folder)]
    process = subprocess.Popen(
        command + [word for a in assigned for word in ("--set", a)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COUNTERTRAIN_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background jobs ignore it
    )
    try:
        for _ in range(3000):
            if checkpoint.exists() or process.poll() is not None:
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert err == f"\nstopped; finished epochs are kept, go on with the same command and --resume --out {folder}\n"
    assert not is_finished(folder)
    done = len(read_tensors(checkpoint)[1]["records"])
    assert 0 < done < 10_000

    def go_on(where: Path) -> list[int]:
        seen: list[int] = []

        def callback(record: EpochRecord) -> None:
            seen.append(record.epoch)
            if record.epoch == done + 2:
                raise KeyboardInterrupt

        settings = Settings.resolve("moons", {"epochs": 10_000, "batch_size": 1000, "n_ce": 50, "hidden": [4]})
        with pytest.raises(KeyboardInterrupt):
            train(settings, where, resume=True, callbacks=[callback])
        return seen

    assert go_on(folder) == [done + 1, done + 2]
    assert go_on(tmp_path / "unbroken") == list(range(1, done + 3))
    resumed, unbroken = (
        read_tensors(tmp_path / name / UNFINISHED / "checkpoint.safetensors")[0] for name in ("stopped", "unbroken")
    )
    assert resumed.keys() == unbroken.keys()
    assert all(torch.equal(resumed[name], unbroken[name]) for name in resumed if name != "global_stream")
