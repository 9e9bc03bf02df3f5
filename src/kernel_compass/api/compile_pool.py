"""Calls in processes of their own, several at a time: what crashes or hangs costs only itself."""

from __future__ import annotations

import multiprocessing as mp
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from multiprocessing.connection import Connection, wait
from typing import Any

NO_TIME = "there was no time left for it"


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    job: int | None = None
    until: float = 0.0


@dataclass(frozen=True)
class Answer:
    """What a call returned, or the sentence why it did not."""

    index: int
    value: Any = None
    failure: str | None = None
    lost: bool = False
    """Whether its process crashed or hung: it may go better next time."""


@dataclass
class CompilePool:
    """`run` gives the answers as they come; processes are started as needed and end with it."""

    function: Callable[..., Any]
    """Of a module's top; its arguments and what it returns can be pickled."""
    processes: int
    timeout_s: float = 300.0
    """Of one call."""
    budget_s: float | None = None
    """Of all calls: those that have not ended by then are lost. `None` = no limit."""
    _workers: list[_Worker] = field(default_factory=list, init=False, repr=False)
    _deadline: float = field(default=inf, init=False, repr=False)

    def run(self, calls: Sequence[tuple[Any, ...]]) -> Iterator[Answer]:
        """Answers to all calls, in the order in which they end."""
        left = list(range(len(calls)))[::-1]
        self._deadline = inf if self.budget_s is None else time.monotonic() + self.budget_s
        try:
            while left or any(w.job is not None for w in self._workers):
                if time.monotonic() >= self._deadline:
                    yield from (Answer(i, failure=NO_TIME, lost=True) for i in left[::-1])
                    left.clear()
                self._hand_out(left, calls)
                yield from self._answers()
        finally:
            for worker in self._workers:
                _end(worker)
            self._workers.clear()

    def _hand_out(self, left: list[int], calls: Sequence[tuple[Any, ...]]) -> None:
        idle = [w for w in self._workers if w.job is None]
        while left and (idle or len(self._workers) < self.processes):
            worker = idle.pop() if idle else self._start()
            worker.job = left.pop()
            worker.until = min(time.monotonic() + self.timeout_s, self._deadline)
            try:
                worker.pipe.send(calls[worker.job])
            except (BrokenPipeError, OSError):  # it died idle: the next one tells
                left.append(worker.job)
                self._drop(worker)

    def _start(self) -> _Worker:
        context = mp.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(self.function, theirs), daemon=True)
        process.start()
        theirs.close()
        self._workers.append(_Worker(process, ours))
        return self._workers[-1]

    def _answers(self) -> Iterator[Answer]:
        busy = {w.pipe: w for w in self._workers if w.job is not None}
        soonest = min((w.until for w in busy.values()), default=0.0)
        ready = wait(list(busy), timeout=max(soonest - time.monotonic(), 0.0))
        for pipe in ready:
            yield self._received(busy[pipe])  # type: ignore[index]
        for worker in list(busy.values()):
            if worker.job is not None and time.monotonic() >= worker.until:
                words = f"no end after {self.timeout_s:.0f} s"
                words = NO_TIME if worker.until >= self._deadline else words
                yield Answer(worker.job, failure=words, lost=True)
                self._drop(worker)

    def _received(self, worker: _Worker) -> Answer:
        job = worker.job
        assert job is not None
        try:
            value, failure = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join(5)
            self._drop(worker)
            words = f"the process ended with {worker.process.exitcode}"
            return Answer(job, failure=words, lost=True)
        worker.job = None
        return Answer(job, value, failure)

    def _drop(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        _end(worker)


def _end(worker: _Worker) -> None:
    worker.pipe.close()
    worker.process.kill()
    worker.process.join(5)


def _serve(function: Callable[..., Any], pipe: Connection) -> None:
    while True:
        try:
            call = pipe.recv()
        except EOFError:
            return
        try:
            answer: tuple[Any, str | None] = (function(*call), None)
        except Exception as error:
            words = " ".join(str(error).split())[:300]
            answer = (None, f"{type(error).__name__}: {words}")
        pipe.send(answer)
