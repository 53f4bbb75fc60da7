"""Steps of joins: what an ack of them costs, and whether one hot join holds up those who work on it."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable

from benchmarks.queue.boxes import STEP, connect, fill, settle_down
from benchmarks.queue.contenders import LEASE_SECONDS, Connection, Contender, Settle, id_array
from benchmarks.queue.figures import Figure, Outcome, compare_rates
from benchmarks.queue.scenarios.context import CONNECTIONS, Context, Stopwatch, Timing, compare_calls

BATCH = 50
MANY = 100


def joins(context: Context) -> Outcome:
    """Acks of steps against acks of plain messages; settling steps of one join against steps of a hundred."""
    calls = context.size(400, 80)
    rounds = context.size(10, 4)
    messages = context.size(4000, 1000)
    outcome = Outcome(
        "joins",
        f"one connection, {calls} interleaved acks of {BATCH} each, claimed in between; then settle by "
        f"{CONNECTIONS} connections, batches of {BATCH}, {rounds} interleaved rounds of {messages} messages",
    )
    for schema in context.schemas:
        prefix = "" if len(context.schemas) == 1 else f"{schema}: "
        _acks(context, outcome, schema, prefix, calls)
        _one_or_many(context, outcome, schema, prefix, rounds, messages)
    return outcome


def attach(connection: Connection, schema: str, count: int, joins_of_it: int, block: int) -> None:
    """Makes the first messages of the outbox steps of so many joins, so many in a row of each."""
    start = f"SELECT join_id FROM {schema}.join_start('tenant', %s)"
    made = [connection.execute(start, [count]).fetchall()[0][0] for _ in range(joins_of_it)]
    step = f"""
        SELECT count(*)
        FROM (
            SELECT row_number() OVER (ORDER BY m.id) - 1 AS n, m.message_id FROM {schema}.outbox_message AS m
        ) AS m
        CROSS JOIN LATERAL {schema}.join_attach((%s::uuid[])[1 + (m.n / %s) %% %s], m.message_id)
        WHERE m.n >= %s AND m.n < %s"""
    for first in range(0, count, STEP):
        connection.execute(step, [made, block, joins_of_it, first, min(first + STEP, count)])


def _acks(context: Context, outcome: Outcome, schema: str, prefix: str, calls: int) -> None:
    """The time of an ack, of the steps of one join and of as many joins as the batch has messages."""
    plain, bare = "plain messages of a named outbox", "plain messages beside joins that are not theirs"
    one, each = f"{BATCH} steps of one join", f"steps of {BATCH} joins"
    total = (calls + 20) * BATCH
    with contextlib.ExitStack() as stack:
        where = {
            plain: (context.database("ack_plain", ["named"]), "named", 0),
            bare: (context.database("ack_bare", []), "outbox", 0),
            one: (context.database("ack_one", []), "outbox", 1),
            each: (context.database("ack_each", []), "outbox", BATCH),
        }
        watches: dict[str, Stopwatch] = {}
        turns: list[Callable[[], None]] = []
        for name, (database, box, joined) in where.items():
            conninfo = stack.enter_context(database)
            worker = stack.enter_context(connect(conninfo))
            context.progress(f"{total} {name}")
            fill(worker, f"{schema}.{box}", total)
            if joined:
                attach(worker, schema, total, joined, 1)
            elif name == bare:
                attach(worker, schema, 1, 1, 1)
            settle_down(worker)
            watches[name] = Stopwatch(worker, is_local=context.server.is_local)
            turns.append(_turn(worker, watches[name], f"{schema}.{box}"))
        for number in range(calls + 20):
            if number == 20:
                for watch in watches.values():
                    watch.reset()
            for turn in turns:
                turn()
        timings: dict[str, Timing] = {name: watch.result() for name, watch in watches.items()}
    outcome.figures += [timing.figure(f"{prefix}ack, {name}") for name, timing in timings.items()]
    for name, bar in ((one, 1.6), (bare, None), (each, None)):
        verdicts = compare_calls(f"{prefix}ack, {name} vs {plain}", timings[name], timings[plain], bar)
        outcome.verdicts += verdicts


def _turn(worker: Connection, watch: Stopwatch, box: str) -> Callable[[], None]:
    cursor = worker.cursor(binary=True)
    owner = uuid.uuid4()
    claim = f"SELECT * FROM {box}_claim(%s, {LEASE_SECONDS}, {BATCH})"
    ack = f"SELECT * FROM {box}_ack(%s, %s::bigint[])"

    def turn() -> None:
        rows = cursor.execute(claim, [owner], prepare=True).fetchall()
        if len(rows) != BATCH:
            raise RuntimeError(f"{box}: claimed {len(rows)} of {BATCH}")
        held = id_array(rows)
        watch.time(lambda: cursor.execute(ack, [owner, held], prepare=True))

    return turn


def _one_or_many(
    context: Context, outcome: Outcome, schema: str, prefix: str, rounds: int, messages: int
) -> None:
    """The hot loop by several connections on steps of one join, and on those of many by turns."""
    total = (rounds + 1) * messages + 2 * CONNECTIONS * BATCH * (rounds + 1)
    hot, many, none = f"{prefix}one join", f"{prefix}{MANY} joins", f"{prefix}no joins"
    with contextlib.ExitStack() as stack:
        contenders: list[Contender] = []
        for name, database, joined in ((hot, "hot", 1), (many, "many", MANY), (none, "none", 0)):
            conninfo = stack.enter_context(context.database(f"joins_{database}", []))
            context.progress(f"{total} steps of {name}")
            with connect(conninfo) as connection:
                fill(connection, f"{schema}.outbox", total)
                if joined:
                    attach(connection, schema, total, joined, BATCH)
                settle_down(connection)
            contenders.append(Settle(name, conninfo, f"{schema}.outbox", BATCH))
        pool = stack.enter_context(context.pool())
        chunks = pool.rounds(contenders, rounds=rounds, messages=messages, warm_up=messages)
    outcome.figures += [Figure.rate(f"settle, {name}", measured) for name, measured in chunks.items()]
    outcome.verdicts += compare_rates(f"settle, {hot} vs {many}", chunks[hot], chunks[many], bar=0.5)
    outcome.verdicts += compare_rates(f"settle, {hot} vs {none}", chunks[hot], chunks[none])
