"""Claim and ack over and over: against the bare layouts, and under a snapshot that somebody holds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from benchmarks.queue.boxes import SCHEMA, connect, fill, fill_bare, run_script, settle_down
from benchmarks.queue.contenders import BareLog, ClaimAck, Contender, Settle, StatusColumn
from benchmarks.queue.figures import Chunk, Figure, Outcome, Spread, Verdict, compare_rates, ratios
from benchmarks.queue.scenarios.context import CONNECTIONS, Context

BATCH = 50
LOG = "bare layout L"
STATUS = "status column"


def claim_ack(context: Context) -> Outcome:
    """The hot loop by 4 connections: two calls and one call, against layout L and a status column."""
    rounds = context.size(10, 4)
    messages = context.size(8000, 1500)
    warm_up = 1000
    total = rounds * messages + warm_up + CONNECTIONS * BATCH * (rounds + 1)
    outcome = Outcome(
        "claim_ack",
        f"{CONNECTIONS} connections, batches of {BATCH}, {rounds} interleaved rounds of {messages} messages",
    )
    with context.database("claim_ack", ["two", "one"]) as conninfo:
        run_script(conninfo, "bare_log.sql")
        run_script(conninfo, "status_column.sql")
        routines: list[Contender] = []
        with connect(conninfo) as connection:
            for schema in context.schemas:
                prefix = "" if schema == SCHEMA else f"{schema}: "
                routines.append(ClaimAck(f"{prefix}claim + ack", conninfo, f"{schema}.two", BATCH))
                routines.append(Settle(f"{prefix}settle", conninfo, f"{schema}.one", BATCH))
                fill(connection, f"{schema}.two", total)
                fill(connection, f"{schema}.one", total)
            fill_bare(connection, "bare_log", total)
            fill_bare(connection, "status_column", total)
            settle_down(connection)
        bare: list[Contender] = [BareLog(LOG, conninfo, BATCH), StatusColumn(STATUS, conninfo, BATCH)]
        with context.pool() as pool:
            chunks = pool.rounds([*routines, *bare], rounds=rounds, messages=messages, warm_up=warm_up)

    outcome.figures = [Figure.rate(name, measured) for name, measured in chunks.items()]
    for contender in routines:
        for other, bar in ((LOG, 0.85), (STATUS, 1.2)):
            what = f"{contender.name} vs {other}"
            outcome.verdicts += compare_rates(what, chunks[contender.name], chunks[other], bar=bar)
    return outcome


@contextlib.contextmanager
def held(conninfo: str) -> Iterator[None]:
    """An idle read-only transaction whose snapshot keeps dead rows from being vacuumed."""
    with connect(conninfo) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute("SELECT count(*) FROM pg_class").fetchall()
        yield
        connection.execute("ROLLBACK")


def held_snapshot(context: Context) -> Outcome:
    """The same loop in two databases, one of which has a snapshot held open all the while."""
    chunk = context.size(2500, 500)
    rounds = context.size(60, 20)
    # A status column under a snapshot gets so slow that it is only followed for a part of the way.
    contrast_rounds = context.size(10, 8)
    outcome = Outcome(
        "held_snapshot",
        f"{CONNECTIONS} connections, batches of {BATCH}, {rounds * chunk} messages "
        f"({contrast_rounds * chunk} for the status column); the first and the last tenth",
    )
    with (
        context.database("free", ["two", "one"]) as free,
        context.database("held", ["two", "one"]) as under,
        context.pool() as pool,
    ):
        total = (rounds + 1) * chunk + 2 * CONNECTIONS * BATCH * (rounds + 1)
        for conninfo in (free, under):
            run_script(conninfo, "status_column.sql")
            with connect(conninfo) as connection:
                for schema in context.schemas:
                    fill(connection, f"{schema}.two", total)
                    fill(connection, f"{schema}.one", total)
                fill_bare(connection, "status_column", total)
                settle_down(connection)
        for schema in context.schemas:
            prefix = "" if schema == SCHEMA else f"{schema}: "
            for name, kind, box in (("claim + ack", ClaimAck, "two"), ("settle", Settle, "one")):
                pair: list[Contender] = [
                    kind(f"{prefix}{name}, {where}", conninfo, f"{schema}.{box}", BATCH)
                    for where, conninfo in (("free", free), ("held", under))
                ]
                with held(under):
                    measured = pool.rounds(pair, rounds=rounds, messages=chunk, warm_up=chunk)
                _report(outcome, prefix + name, *measured.values(), bar=0.9)
        contrast: list[Contender] = [
            StatusColumn(f"{STATUS}, free", free, BATCH),
            StatusColumn(f"{STATUS}, held", under, BATCH),
        ]
        with held(under):
            measured = pool.rounds(contrast, rounds=contrast_rounds, messages=chunk, warm_up=chunk)
        _report(outcome, STATUS, *measured.values(), bar=None)
    return outcome


def _report(
    outcome: Outcome, name: str, free: Sequence[Chunk], under: Sequence[Chunk], *, bar: float | None
) -> None:
    """The first and the last tenth of both, and the last tenth's ratio."""
    tenth = max(2, len(free) // 10)
    for where, chunks in (("free", free), ("held", under)):
        outcome.figures.append(Figure.rate(f"{name}, {where}, first tenth", chunks[:tenth]))
        outcome.figures.append(Figure.rate(f"{name}, {where}, last tenth", chunks[-tenth:]))
    what = f"{name}: last tenth held vs free"
    outcome.verdicts += compare_rates(what, under[-tenth:], free[-tenth:], bar=bar)
    fading = ratios([c.rate for c in under[-tenth:]], [c.rate for c in under[:tenth]])
    outcome.verdicts.append(Verdict(f"{name}: last tenth held vs first tenth held", Spread.of(fading)))
