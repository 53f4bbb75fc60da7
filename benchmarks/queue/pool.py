"""Client processes, each with its own connection to each contender; not threads, which share the GIL."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import Synchronized
from types import TracebackType
from typing import Any, Self

from benchmarks.common.machine import cpu_seconds
from benchmarks.queue.contenders import Contender, Step
from benchmarks.queue.figures import Chunk

PATIENCE_SECONDS = 0.002


class ClientFailedError(RuntimeError):
    """A client process failed; the message is its traceback."""


@dataclass(frozen=True)
class Work:
    """What a client is to do at its turn.

    `seconds`: it ends after that long, whatever is left. `patient`: nothing there does not end it, since what
    is delayed comes yet; then `seconds` must be given. `traced`: each step's end and messages are told.
    """

    contender: Contender
    seconds: float | None = None
    patient: bool = False
    traced: bool = False


@dataclass(frozen=True)
class Turn:
    """What one client did in one chunk; times of the machine's monotonic clock, which processes share."""

    messages: int
    began: float
    ended: float
    server_cpu: float | None
    client_cpu: float
    steps: tuple[tuple[float, int], ...] = ()


class Pool:
    """Several clients that take turns at the contenders."""

    def __init__(self, size: int, *, is_local: bool) -> None:
        """`is_local`: the server's processes are of this machine."""
        context = multiprocessing.get_context("spawn")
        self._budget: Synchronized[int] = context.Value("q", 0)
        self._pipes: list[Pipe] = []
        self._processes: list[BaseProcess] = []
        for _ in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_client, args=(theirs, self._budget, is_local), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def run(self, contender: Contender, messages: int) -> Chunk:
        """Let all clients together move that many messages, or what there is."""
        turns = self.turns(Work(contender), messages)
        known = [turn.server_cpu for turn in turns if turn.server_cpu is not None]
        return Chunk(
            sum(turn.messages for turn in turns),
            max(turn.ended for turn in turns) - min(turn.began for turn in turns),
            sum(known) if len(known) == len(turns) else None,
            sum(turn.client_cpu for turn in turns),
        )

    def turns(self, work: Work, messages: int, clients: int | None = None) -> list[Turn]:
        """What each client did, or each of the first `clients`."""
        pipes = self._pipes[:clients]
        self._tell(pipes, "open", work)
        with self._budget.get_lock():
            self._budget.value = messages
        turns: list[Turn] = self._tell(pipes, "run", work)
        return turns

    def leave(self, contender: Contender) -> None:
        """Close the connections to it: its database is about to go."""
        self._tell(self._pipes, "leave", Work(contender))

    def rounds(
        self, contenders: Sequence[Contender], *, rounds: int, messages: int, warm_up: int = 0
    ) -> dict[str, list[Chunk]]:
        """Interleave: in each round every contender has a turn, each time another one first."""
        if warm_up:
            for contender in contenders:
                self.run(contender, warm_up)
        chunks: dict[str, list[Chunk]] = {contender.name: [] for contender in contenders}
        for number in range(rounds):
            start = number % len(contenders)
            for contender in [*contenders[start:], *contenders[:start]]:
                chunks[contender.name].append(self.run(contender, messages))
        return chunks

    def close(self) -> None:
        """End the clients."""
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.send(("end", None))
        for process in self._processes:
            process.join(timeout=10)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @staticmethod
    def _tell(pipes: Sequence[Pipe], word: str, work: Work) -> list[Any]:
        for pipe in pipes:
            pipe.send((word, work))
        answers = []
        for pipe in pipes:
            try:
                answers.append(pipe.recv())
            except EOFError as error:
                raise ClientFailedError("a client process ended early") from error
        for answer in answers:
            if isinstance(answer, str):
                raise ClientFailedError(answer)
        return answers


def _client(pipe: Pipe, budget: Synchronized[int], is_local: bool) -> None:
    """A client process: opens sessions and takes turns as it is told."""
    sessions: dict[Contender, tuple[Any, Step]] = {}
    for word, work in _words(pipe):
        contender = work.contender
        try:
            if word == "leave":
                if contender in sessions:
                    sessions.pop(contender)[0].close()
                pipe.send(None)
                continue
            if contender not in sessions:
                connection = contender.connect()
                sessions[contender] = (connection, contender.session(connection))
            if word == "open":
                pipe.send(None)
                continue
            connection, step = sessions[contender]
            pipe.send(_turn(step, contender.backend(connection) if is_local else None, budget, work))
        except Exception:  # noqa: BLE001 - whatever it was, it goes to the parent, which raises it
            pipe.send(traceback.format_exc())


def _words(pipe: Pipe) -> Iterator[tuple[str, Work]]:
    while True:
        try:
            word, work = pipe.recv()
        except EOFError:
            return
        if word == "end":
            return
        yield word, work


def _turn(step: Step, backend: int | None, budget: Synchronized[int], work: Work) -> Turn:
    """Steps until the clients together have moved the budget, or nothing is left, or the time is over."""
    before = cpu_seconds(backend) if backend else None
    client_before = time.process_time()
    began = time.monotonic()
    deadline = began + work.seconds if work.seconds is not None else math.inf
    messages = 0
    steps: list[tuple[float, int]] = []
    while budget.value > 0:
        moved = step()
        if moved == 0 and not work.patient:
            break
        if moved > 0:
            messages += moved
            with budget.get_lock():
                budget.value -= moved
        elif moved == 0:
            time.sleep(PATIENCE_SECONDS)
        if work.traced:
            steps.append((time.monotonic(), moved))
        if time.monotonic() >= deadline:
            break
    ended = time.monotonic()
    client_cpu = time.process_time() - client_before
    after = cpu_seconds(backend) if backend else None
    server_cpu = after - before if after is not None and before is not None else None
    return Turn(messages, began, ended, server_cpu, client_cpu, tuple(steps))
