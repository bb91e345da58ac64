"""Micro-batching by itself, with jobs that are plain numbers."""

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from office import run

from countertrain.serve.batching import Batcher, BusyError
from countertrain.serve.limits import Limits


class Worker:
    """Doubles numbers, remembers what it was called with, and works only while its gate is open."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, jobs: Sequence[int]) -> list[int]:
        self.calls.append([*jobs])
        assert self.gate.wait(10)
        if 13 in jobs:
            raise ValueError("13 cannot be doubled")
        return [2 * job for job in jobs]


def batcher(worker: Worker, **limits: float) -> Batcher[int, int]:
    settings = Limits(**{"window": 0.02, **limits})  # type: ignore[arg-type]
    return Batcher(worker, limits=settings, thread=ThreadPoolExecutor(1), record=lambda n_requests, n_rows: None)


def test_jobs_that_come_together_are_answered_by_one_call() -> None:
    worker = Worker()
    double = batcher(worker)

    async def main() -> list[int]:
        return await asyncio.gather(*(double(job, 1) for job in range(5)))

    assert run(main()) == [0, 2, 4, 6, 8]
    assert worker.calls == [[0, 1, 2, 3, 4]]


def test_jobs_that_come_while_the_worker_is_busy_are_answered_by_its_next_call_and_the_loop_stays_free() -> None:
    worker = Worker()
    worker.gate.clear()
    double = batcher(worker)

    async def main() -> list[int]:
        first = asyncio.ensure_future(double(1, 1))
        while not worker.calls:
            await asyncio.sleep(0.001)
        others = [asyncio.ensure_future(double(job, 1)) for job in (2, 3)]
        await asyncio.sleep(0.01)
        worker.gate.set()  # only a loop that is free gets here
        return await asyncio.gather(first, *others)

    assert run(main()) == [2, 4, 6]
    assert worker.calls == [[1], [2, 3]]


def test_who_asks_alone_again_is_not_made_to_wait_for_company_and_who_has_had_company_is() -> None:
    worker = Worker()
    double = batcher(worker, window=0.3)

    async def main() -> list[float]:
        clock, took = asyncio.get_running_loop().time, []
        for jobs in ([1], [2], [3], [4, 5], [6], [7]):
            start = clock()
            await asyncio.gather(*(double(job, 1) for job in jobs))
            took.append(clock() - start)
        return took

    waited = [seconds > 0.25 for seconds in run(main())]
    assert waited == [True, False, False, True, True, False]  # at first nobody knows who else will come
    assert worker.calls == [[1], [2], [3], [4, 5], [6], [7]]


def test_a_batch_has_no_more_rows_than_allowed_unless_one_job_has() -> None:
    worker = Worker()
    double = batcher(worker, batch_rows=4)

    async def main() -> list[int]:
        return await asyncio.gather(*(double(n_rows, n_rows) for n_rows in (2, 2, 1, 9, 3)))

    assert run(main()) == [4, 4, 2, 18, 6]
    assert worker.calls == [[2, 2], [1], [9], [3]]


def test_a_job_that_fails_does_so_alone() -> None:
    worker = Worker()
    double = batcher(worker)

    async def main() -> list[int | BaseException]:
        return await asyncio.gather(*(double(job, 1) for job in (1, 13, 2)), return_exceptions=True)

    one, failed, two = run(main())
    assert (one, two) == (2, 4)
    assert isinstance(failed, ValueError)
    assert worker.calls == [[1, 13, 2], [1], [13], [2]]


def test_a_job_whose_caller_is_gone_is_not_worked_on() -> None:
    worker = Worker()
    worker.gate.clear()
    double = batcher(worker)

    async def main() -> list[int]:
        busy = asyncio.ensure_future(double(1, 1))
        while not worker.calls:
            await asyncio.sleep(0.001)
        gone, waiting = (asyncio.ensure_future(double(job, 1)) for job in (2, 3))
        await asyncio.sleep(0.001)
        gone.cancel()
        await asyncio.sleep(0.001)
        busy.cancel()  # its answer comes too late
        worker.gate.set()
        return await asyncio.gather(waiting)

    assert run(main()) == [6]
    assert worker.calls == [[1], [3]]


def test_whoever_comes_when_too_many_wait_is_sent_away_until_they_are_answered() -> None:
    worker = Worker()
    double = batcher(worker, waiting_rows=4)

    async def main() -> list[int | BaseException]:
        first = await asyncio.gather(double(1, 3), double(2, 2), double(3, 1), return_exceptions=True)
        return [*first, await double(4, 4)]

    answers = run(main())
    assert isinstance(answers[1], BusyError)
    assert [answers[0], *answers[2:]] == [2, 6, 8]


def test_a_job_with_more_rows_than_may_wait_is_answered_when_nobody_waits() -> None:
    double = batcher(Worker(), waiting_rows=2)

    async def main() -> list[int | BaseException]:
        return [await double(1, 3), *await asyncio.gather(double(2, 1), double(3, 3), return_exceptions=True)]

    first, second, third = run(main())
    assert (first, second) == (2, 4)
    assert isinstance(third, BusyError)


def test_a_batcher_goes_on_in_another_event_loop() -> None:
    double = batcher(Worker())
    assert [run(double(job, 1)) for job in (1, 2)] == [2, 4]


@pytest.mark.parametrize(("name", "wrong"), [("rows", 0), ("sample", -1), ("seconds", 0.0), ("window", float("nan"))])
def test_a_limit_that_lets_nothing_through_is_refused(name: str, wrong: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least"):
        Limits(**{name: wrong})  # type: ignore[arg-type]
