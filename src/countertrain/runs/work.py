"""Many tasks on few cores: processes side by side, one thread each."""

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass

import torch

__all__ = ["Task", "distinct", "run_all", "set_up_worker"]


@dataclass(frozen=True)
class Task:
    """Something to do in a process of its own, and roughly what it costs."""

    work: Callable[[], None]
    """Can be pickled, and leaves its result in a file: done twice, it finds the file and returns."""
    cost: float
    key: Hashable = None
    """Tasks with the same key do the same; None: like no other."""


def distinct(tasks: Iterable[Task]) -> list[Task]:
    """Each task once."""
    return list({task.key if task.key is not None else id(task): task for task in tasks}.values())


def run_all(
    tasks: Sequence[Task], *, workers: int, progress: Callable[[float, float], None] = lambda done, total: None
) -> None:
    """Do all tasks, the most expensive first; what is finished survives a kill."""
    total = sum(task.cost for task in tasks)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=set_up_worker, initargs=(os.getpid(),)) as pool:
        futures = {pool.submit(task.work): task for task in sorted(tasks, key=lambda task: -task.cost)}
        done = 0.0
        progress(done, total)
        try:
            for future in as_completed(futures):
                future.result()
                done += futures[future].cost
                progress(done, total)
        except BaseException:  # an interrupt, too: what has not begun does not begin any more
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def set_up_worker(parent: int) -> None:
    """One thread per worker, and none outlives the process that started it, however that one ends."""
    torch.set_num_threads(1)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
