"""Client processes, each with its own connection to each contender; not threads, which share the GIL."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.queue.contenders import Connection, Contender, Step
from benchmarks.queue.figures import Chunk


class ClientFailedError(RuntimeError):
    """A client process failed; the message is its traceback."""


@dataclass(frozen=True)
class Turn:
    """What one client did in one chunk; times of the machine's monotonic clock, which processes share."""

    messages: int
    began: float
    ended: float
    server_cpu: float | None
    client_cpu: float


def cpu_seconds(process: int) -> float | None:
    """How long a process of this machine has been on a CPU, to the nanosecond; None where nobody tells."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return None


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
        self._tell("open", contender)
        with self._budget.get_lock():
            self._budget.value = messages
        turns = self._tell("run", contender)
        known = [turn.server_cpu for turn in turns if turn.server_cpu is not None]
        return Chunk(
            sum(turn.messages for turn in turns),
            max(turn.ended for turn in turns) - min(turn.began for turn in turns),
            sum(known) if len(known) == len(turns) else None,
            sum(turn.client_cpu for turn in turns),
        )

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

    def _tell(self, word: str, contender: Contender) -> list[Turn]:
        for pipe in self._pipes:
            pipe.send((word, contender))
        answers = []
        for pipe in self._pipes:
            try:
                answer = pipe.recv()
            except EOFError as error:
                raise ClientFailedError("a client process ended early") from error
            if isinstance(answer, str):
                raise ClientFailedError(answer)
            answers.append(answer)
        return answers


def _client(pipe: Pipe, budget: Synchronized[int], is_local: bool) -> None:
    """A client process: opens sessions and takes turns as it is told."""
    sessions: dict[Contender, tuple[Connection, Step]] = {}
    for word, contender in _words(pipe):
        try:
            if contender not in sessions:
                connection = contender.connect()
                sessions[contender] = (connection, contender.session(connection))
            if word == "open":
                pipe.send(None)
                continue
            connection, step = sessions[contender]
            pipe.send(_turn(step, connection.info.backend_pid if is_local else None, budget))
        except Exception:  # noqa: BLE001 - whatever it was, it goes to the parent, which raises it
            pipe.send(traceback.format_exc())


def _words(pipe: Pipe) -> Iterator[tuple[str, Contender]]:
    while True:
        try:
            word, contender = pipe.recv()
        except EOFError:
            return
        if word == "end":
            return
        yield word, contender


def _turn(step: Step, backend: int | None, budget: Synchronized[int]) -> Turn:
    """Steps until the clients together have moved the budget, or nothing is left."""
    before = cpu_seconds(backend) if backend else None
    client_before = time.process_time()
    began = time.monotonic()
    messages = 0
    while budget.value > 0:
        moved = step()
        if moved == 0:
            break
        messages += moved
        with budget.get_lock():
            budget.value -= moved
    ended = time.monotonic()
    client_cpu = time.process_time() - client_before
    after = cpu_seconds(backend) if backend else None
    server_cpu = after - before if after is not None and before is not None else None
    return Turn(messages, began, ended, server_cpu, client_cpu)
