"""Claims in front of much that is ready, much that is due later, and much that is of other topics."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Sequence

from benchmarks.queue.boxes import connect, fill, settle_down
from benchmarks.queue.contenders import LEASE_SECONDS, Connection, id_array
from benchmarks.queue.figures import Outcome
from benchmarks.queue.scenarios.context import Context, Stopwatch, Timing, compare_calls

BATCH = 50


def backlog(context: Context) -> Outcome:
    """The claim's time with 1,000 ready, with a million, and with 1,000 and a million due later."""
    small = 1000
    big = context.size(1_000_000, 20_000)
    calls = context.size(600, 100)
    few, many, later = f"{small} ready", f"{big} ready", f"{small} ready, {big} due in a day"
    outcome = Outcome(
        "backlog",
        f"one connection, {calls} interleaved claims of {BATCH} each, acked and made up for in between",
    )
    with context.database("backlog", ["few", "many", "later"]) as conninfo, connect(conninfo) as connection:
        for schema in context.schemas:
            prefix = "" if len(context.schemas) == 1 else f"{schema}: "
            names = {few: "few", many: "many", later: "later"}
            for box, count in (("few", small), ("many", big), ("later", small)):
                context.progress(f"{count} into {schema}.{box}")
                fill(connection, f"{schema}.{box}", count)
            due = "jsonb_build_object('due_at', now() + interval '1 day' + n * interval '1 ms')"
            fill(connection, f"{schema}.later", big, due)
            settle_down(connection)
            boxes = {prefix + name: f"{schema}.{box}" for name, box in names.items()}
            timings = _claims(connection, boxes, calls, None, is_local=context.server.is_local, refill=True)
            outcome.figures += [timing.figure(f"claim, {name}") for name, timing in timings.items()]
            base = timings[prefix + few]
            for name, bar in ((many, 1.5), (later, 1.1)):
                what = f"{prefix}claim, {name} vs {few}"
                outcome.verdicts += compare_calls(what, timings[prefix + name], base, bar)
    return outcome


def foreign_topics(context: Context) -> Outcome:
    """A topic-limited claim with nothing ahead of it, and with other topics' messages ahead."""
    foreign = context.size(100_000, 10_000)
    calls = context.size(300, 60)
    alone, behind, spread = "nothing ahead", f"{foreign} of one topic ahead", f"{foreign} of 100 topics ahead"
    outcome = Outcome(
        "foreign_topics",
        f"one connection, {calls} interleaved claims of {BATCH} each limited to one topic, acked in between",
    )
    with (
        context.database("topics", ["alone", "behind", "spread"]) as conninfo,
        connect(conninfo) as connection,
    ):
        for schema in context.schemas:
            prefix = "" if len(context.schemas) == 1 else f"{schema}: "
            fill(connection, f"{schema}.behind", foreign, "jsonb_build_object('topic', 'mail')")
            fill(connection, f"{schema}.spread", foreign, "jsonb_build_object('topic', 'mail ' || n %% 100)")
            names = {alone: "alone", behind: "behind", spread: "spread"}
            for box in names.values():
                fill(connection, f"{schema}.{box}", (calls + 20) * BATCH)
            settle_down(connection)
            boxes = {prefix + name: f"{schema}.{box}" for name, box in names.items()}
            timings = _claims(connection, boxes, calls, ["orders"], is_local=context.server.is_local)
            outcome.figures += [timing.figure(f"claim, {name}") for name, timing in timings.items()]
            for name in (behind, spread):
                what = f"{prefix}claim, {name} vs {alone}"
                outcome.verdicts += compare_calls(what, timings[prefix + name], timings[prefix + alone], 1.5)
    return outcome


def _claims(
    connection: Connection,
    boxes: dict[str, str],
    calls: int,
    topics: Sequence[str] | None,
    *,
    is_local: bool,
    refill: bool = False,
) -> dict[str, Timing]:
    """Claims from all boxes by turns, each on a connection of its own; only the claims are timed."""
    owner = uuid.uuid4()
    with contextlib.ExitStack() as stack:
        watches: dict[str, Stopwatch] = {}
        turns: list[Callable[[], None]] = []
        for name, box in boxes.items():
            worker = stack.enter_context(connect(connection.info.dsn))
            watches[name] = Stopwatch(worker, is_local=is_local)
            turns.append(_turn(worker, watches[name], box, owner, topics, refill=refill))
        for number in range(calls + 20):
            if number == 20:
                for watch in watches.values():
                    watch.reset()
            for turn in turns:
                turn()
        return {name: watch.result() for name, watch in watches.items()}


def _turn(
    worker: Connection,
    watch: Stopwatch,
    box: str,
    owner: uuid.UUID,
    topics: Sequence[str] | None,
    *,
    refill: bool,
) -> Callable[[], None]:
    cursor = worker.cursor(binary=True)
    claim = f"SELECT * FROM {box}_claim(%s, {LEASE_SECONDS}, {BATCH}, %s::text[])"
    ack = f"SELECT * FROM {box}_ack(%s, %s::bigint[])"

    def turn() -> None:
        watch.time(lambda: cursor.execute(claim, [owner, topics], prepare=True))
        rows = cursor.fetchall()
        if len(rows) != BATCH:
            raise RuntimeError(f"{box}: claimed {len(rows)} of {BATCH}")
        cursor.execute(ack, [owner, id_array(rows)], prepare=True)
        if refill:
            fill(worker, box, BATCH)

    return turn
