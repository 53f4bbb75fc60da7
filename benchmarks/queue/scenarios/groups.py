"""FIFO groups: many of them against no groups at all, and one that everything is in."""

from __future__ import annotations

import uuid

from benchmarks.queue.boxes import SCHEMA, connect, fill, settle_down
from benchmarks.queue.contenders import LEASE_SECONDS, ClaimAck, Connection, Contender, id_array
from benchmarks.queue.figures import Figure, Outcome, compare_rates
from benchmarks.queue.scenarios.context import CONNECTIONS, Context, Stopwatch, Timing, compare_calls

BATCH = 50


def groups(context: Context) -> Outcome:
    """Draining 10,000 groups of 10 against ungrouped messages; claims from one hot group of 100,000."""
    count = context.size(10_000, 1_000)
    rounds = context.size(8, 4)
    total = count * 10
    messages = (total - 2 * CONNECTIONS * BATCH * (rounds + 1)) // (rounds + 1)
    hot = context.size(100_000, 10_000)
    local = context.server.is_local
    outcome = Outcome(
        "groups",
        f"{CONNECTIONS} connections, batches of {BATCH}, {rounds} interleaved rounds of {messages} messages, "
        f"{total} in {count} groups; then one connection drains one group of {hot}",
    )
    with context.database("groups", ["plain", "grouped", "hot"]) as conninfo:
        plain = ClaimAck("ungrouped", conninfo, f"{SCHEMA}.plain", BATCH)
        grouped: list[Contender] = []
        with connect(conninfo) as connection:
            fill(connection, plain.box, total)
            for schema in context.schemas:
                prefix = "" if schema == SCHEMA else f"{schema}: "
                grouped.append(ClaimAck(f"{prefix}{count} groups", conninfo, f"{schema}.grouped", BATCH))
                many = f"jsonb_build_object('group_id', 'customer ' || n %% {count})"
                fill(connection, f"{schema}.grouped", total, many)
                fill(connection, f"{schema}.hot", hot, "jsonb_build_object('group_id', 'the one')")
            settle_down(connection)
        with context.pool() as pool:
            chunks = pool.rounds([plain, *grouped], rounds=rounds, messages=messages, warm_up=messages // 4)
        outcome.figures = [Figure.rate(name, measured) for name, measured in chunks.items()]
        for contender in grouped:
            what = f"{contender.name} vs ungrouped"
            outcome.verdicts += compare_rates(what, chunks[contender.name], chunks[plain.name], bar=0.5)

        for schema in context.schemas:
            prefix = "" if schema == SCHEMA else f"{schema}: "
            with connect(conninfo) as connection:
                tenths = _drain(connection, f"{schema}.hot", hot, is_local=local)
            first, last = tenths[0], tenths[-1]
            outcome.figures.append(first.figure(f"{prefix}claim from the hot group, first tenth"))
            outcome.figures.append(last.figure(f"{prefix}claim from the hot group, last tenth"))
            outcome.verdicts += compare_calls(f"{prefix}hot group: last tenth vs first", last, first, 1.2)
            # Flat alone would not tell a claim that reads the whole group every time.
            with connect(conninfo) as connection:
                fill(connection, f"{schema}.plain", 100 * BATCH)
                settle_down(connection)
                ungrouped = _drain(connection, f"{schema}.plain", 50 * BATCH, is_local=local)[-1]
            outcome.figures.append(ungrouped.figure(f"{prefix}claim of ungrouped ones"))
            outcome.verdicts += compare_calls(
                f"{prefix}hot group: last tenth vs ungrouped", last, ungrouped, 3.0
            )
    return outcome


def _drain(connection: Connection, box: str, count: int, *, is_local: bool) -> list[Timing]:
    """Claim and ack that many, or the rest; the claims of each tenth."""
    cursor = connection.cursor(binary=True)
    owner = uuid.uuid4()
    claim = f"SELECT * FROM {box}_claim(%s, {LEASE_SECONDS}, {BATCH})"
    ack = f"SELECT * FROM {box}_ack(%s, %s::bigint[])"
    tenths = []
    left = count
    for tenth in range(10):
        watch = Stopwatch(connection, is_local=is_local)
        while left > count * (9 - tenth) // 10:
            watch.time(lambda: cursor.execute(claim, [owner], prepare=True))
            rows = cursor.fetchall()
            if not rows:
                raise RuntimeError(f"{box}: nothing to claim")
            left -= len(rows)
            cursor.execute(ack, [owner, id_array(rows)], prepare=True)
        tenths.append(watch.result())
    return tenths
