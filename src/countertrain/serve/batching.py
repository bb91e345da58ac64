"""Micro-batching: requests that arrive while the model is busy are answered by its next call, together."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Generic, TypeVar

from countertrain.serve.limits import Limits

__all__ = ["Batcher", "BusyError"]

_PATIENCE = 0.25  # seconds after which a batch starts even though more jobs arrive

Job = TypeVar("Job")
Answer = TypeVar("Answer")


class BusyError(Exception):
    """So many people are waiting that a new request is better tried again later."""


@dataclass(eq=False)
class _Waiting(Generic[Job, Answer]):
    """A job, the number of its rows, and where its answer is awaited."""

    job: Job
    n_rows: int
    answer: "asyncio.Future[Answer]"


class Batcher(Generic[Job, Answer]):
    """Answers many jobs with one call of `run` in a worker thread, so that the event loop stays free.

    A job whose caller is gone is dropped; one that fails does so alone.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Job]], Sequence[Answer]],
        *,
        limits: Limits,
        thread: Executor,
        record: Callable[[int, int], None],
        watch: Callable[[int], None] = lambda n_rows: None,
    ) -> None:
        self._run, self._limits, self._thread, self._record, self._watch = run, limits, thread, record, watch
        self._queue: deque[_Waiting[Job, Answer]] = deque()
        self._n_rows = 0  # that an answer is awaited for
        self._emptying: asyncio.Task[None] | None = None
        self._lonely = False  # the last job had no company, and nobody came while it was worked on

    async def __call__(self, job: Job, n_rows: int) -> Answer:
        """The answer to one job, once its turn has come."""
        if self._n_rows and self._n_rows + n_rows > self._limits.waiting_rows:  # whoever is alone need not wait
            raise BusyError("too many people are waiting for an answer; try again in a moment")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._queue.append(_Waiting(job, n_rows, answer))
        if self._emptying is None or self._emptying.done():
            self._emptying = loop.create_task(self._empty())
        self._wait_for(n_rows)
        try:
            return await answer
        finally:
            self._wait_for(-n_rows)

    def _wait_for(self, n_rows: int) -> None:
        self._n_rows += n_rows
        self._watch(self._n_rows)

    async def _empty(self) -> None:
        """Answer all that is in the queue, as many at once as may be."""
        while batch := await self._take_batch():
            self._record(len(batch), sum(one.n_rows for one in batch))
            jobs = [one.job for one in batch]
            answers = await asyncio.get_running_loop().run_in_executor(self._thread, self._answer, jobs)
            self._lonely = len(batch) == 1 and not self._queue
            for one, answer in zip(batch, answers, strict=True):
                if one.answer.done():  # its caller has gone meanwhile
                    continue
                if isinstance(answer, Exception):
                    one.answer.set_exception(answer)
                else:
                    one.answer.set_result(answer)

    async def _take_batch(self) -> list[_Waiting[Job, Answer]]:
        """The longest-waiting jobs, up to the rows of a batch, and at least one if there is any."""
        if not self._lonely or len(self._queue) > 1:
            await self._await_lull()
        batch: list[_Waiting[Job, Answer]] = []
        room = self._limits.batch_rows
        while self._queue and (not batch or self._queue[0].n_rows <= room):
            one = self._queue.popleft()
            if not one.answer.done():
                batch.append(one)
                room -= one.n_rows
        return batch

    async def _await_lull(self) -> None:
        """Wait until no more jobs arrive, or there are enough; but not for long.

        While they do, the event loop is busy with reading them, and a search would only be in its way.
        """
        window, now = self._limits.window, asyncio.get_running_loop().time
        start = now()
        while (before := now()) < start + _PATIENCE:
            n_waiting = len(self._queue)
            if sum(one.n_rows for one in self._queue) >= self._limits.batch_rows:
                return
            await asyncio.sleep(window)
            if len(self._queue) == n_waiting and now() < before + 2 * window:  # a busy loop may not have looked yet
                return

    def _answer(self, jobs: Sequence[Job]) -> Sequence[Answer | Exception]:
        """One answer per job; if all together fail, each is tried by itself to find the culprit."""
        try:
            return self._run(jobs)
        except Exception as error:
            return [error] if len(jobs) == 1 else [self._answer([job])[0] for job in jobs]
