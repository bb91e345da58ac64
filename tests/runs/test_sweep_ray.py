"""A sweep on a real Ray cluster of two nodes on this machine, of which one is killed in mid-sweep."""

import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from countertrain.runs.sweep import RayTasks, Store, Sweep, SweepError, on_ray, sweep
from countertrain.runs.sweep.job import Job, attempt

pytest.importorskip("ray", reason="ray is not installed: pip install 'countertrain[ray]'")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray leaves sockets and processes to the garbage collector

# a second for each population: the other node must have begun before the first is done with all of them
SPEC = Sweep.from_toml(
    """
    data = "moons"
    seeds = [0, 1]
    fixed = { epochs = 60, n_ce = 60, batch_size = 500 }
    grid = { hidden = [[3], [4], [5], [6], [7], [8]] }
    evaluation = { rounds = 2, individuals = 20 }
    """
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head and one more node, one CPU each."""
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # by default, whatever else the machine does comes first
        patch.setenv("RAY_health_check_initial_delay_ms", "1000")
        patch.setenv("RAY_health_check_period_ms", "1000")  # by default, a lost node is missed after 15 seconds
        cluster = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
        cluster.add_node(**small)
        yield cluster
        cluster.shutdown()


def tasks_of(node: Any) -> list[int]:
    """Processes of a node that compute a population at this moment; Ray puts the task into their title."""
    raylet = node.all_processes["raylet"][0].process.pid
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            title, parent = (
                (process / "cmdline").read_bytes(),
                (process / "stat").read_text().rpartition(")")[2].split()[1],
            )
        except OSError:  # it has just ended
            continue
        if title.startswith(b"ray::_task") and int(parent) == raylet:
            found.append(int(process.name))
    return found


def lose(cluster: Any, node: Any) -> bool:
    """Take a node away while it computes, if it does; its processes stand still first, lest they be done by then."""
    for pid in (held := tasks_of(node)):
        os.kill(pid, signal.SIGSTOP)
    if busy := bool(tasks_of(node)):
        cluster.remove_node(node, allow_graceful=False)
    for pid in held:
        with suppress(ProcessLookupError):  # Ray has cleared it away with its node
            os.kill(pid, signal.SIGKILL if busy else signal.SIGCONT)
    return busy


def test_a_sweep_outlives_one_of_its_two_nodes_and_then_a_worker(cluster: Any, tmp_path: Path) -> None:
    """All runs complete, nothing is lost or doubled, and each gives what it gives alone."""
    (node,) = cluster.worker_nodes
    node_lost = "a population of 2 runs lost its node; computed again"
    worker_lost = "lost its worker, perhaps for want of memory; computed again"
    said: list[str] = []
    written: list[str] = []
    done_when_killed: list[int] = []

    class Watched(Store):
        def write_run(self, key: str, kept: dict[str, Any]) -> None:
            written.append(key)
            super().write_run(key, kept)

    def kill(done: float, total: float) -> None:
        if written and not done_when_killed:
            if lose(cluster, node):
                done_when_killed.append(len(written))
        elif node_lost in said and worker_lost not in " ".join(said):
            for pid in tasks_of(cluster.head_node):
                os.kill(pid, signal.SIGKILL)

    table = sweep(SPEC, RayTasks(cluster.address), Watched(tmp_path), progress=kill, say=said.append)
    assert 0 < done_when_killed[0] < 12
    assert said[0] == node_lost
    assert worker_lost in said[1]
    assert sorted(written) == sorted(SPEC.runs())  # each once
    assert list(table["run"]) == list(SPEC.runs())
    assert {path.stem for path in (tmp_path / "runs").iterdir()} == set(written)
    for name, run in list(SPEC.runs().items())[::5]:
        (alone,) = attempt(Job((run,), 2, 20), lambda share: None)  # type: ignore[misc]
        row = table.set_index("run").loc[name]
        for outcome in ("accuracy", "ip", "cost", "mature"):
            assert row[outcome] == pytest.approx(alone.outcomes[outcome], rel=1e-3, abs=2e-3), outcome


def test_a_client_address_without_the_client_is_answered_with_the_way_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(ValueError) as error:
        RayTasks("ray://127.0.0.1:10001")
    assert str(error.value) == ("ray:// addresses need Ray's client; install it with: pip install 'countertrain[ray]'")
    RayTasks("127.0.0.1:6379")


def test_an_address_without_ray_is_answered_soon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(address: str) -> str:
        with pytest.raises(SweepError) as error:
            sweep(SPEC, RayTasks(address), Store(tmp_path))
        return str(error.value)

    way_out = "start one with `ray start --head`, or leave --address out"
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{other.getsockname()[1]}"
        for prefix in ("", "ray://"):
            assert refused(prefix + address) == (
                f"no Ray cluster answers at {prefix}{address} ([Errno 111] Connection refused); {way_out}"
            )
        other.listen()
        monkeypatch.setattr(on_ray, "_ANSWER", 3)
        assert refused(address) == f"no Ray cluster answers at {address} (what answers there is not Ray); {way_out}"
    assert refused("somewhere") == "--address is given as HOST:PORT or ray://HOST:PORT; got 'somewhere'"
    assert not (tmp_path / ".lock").exists()
