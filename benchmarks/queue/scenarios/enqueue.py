"""Putting messages in: thousands at once against COPY, one at a time against a bare insert."""

from __future__ import annotations

from benchmarks.queue.boxes import SCHEMA, run_script
from benchmarks.queue.contenders import Contender
from benchmarks.queue.figures import Figure, Outcome, Verdict, compare_rates
from benchmarks.queue.producers import RECORDS, Copy, Enqueue, EnqueueMany, TwoRows
from benchmarks.queue.scenarios.context import CONNECTIONS, Context

KEY_ONLY = "COPY, primary key only"
TWO_KEYS = "COPY, primary key and unique message_id"
TWO_ROWS = "bare two-row insert"


def enqueue(context: Context) -> Outcome:
    """enqueue_many against COPY, enqueue against two inserted rows, by 1 and by 4 connections."""
    rounds = context.size(8, 4)
    calls = context.size(8, 2)
    singles = context.size(800, 200)
    outcome = Outcome(
        "enqueue",
        f"{rounds} interleaved rounds of {calls * RECORDS} messages in transactions of {RECORDS}, {singles} "
        "in transactions of 1, by one connection; by 4 connections twice and four times as many",
    )
    with context.database("enqueue", ["many", "single"]) as conninfo:
        run_script(conninfo, "copy_targets.sql")
        run_script(conninfo, "bare_log.sql")
        for connections in (1, CONNECTIONS):
            many: list[Contender] = []
            single: list[Contender] = []
            for schema in context.schemas:
                prefix = "" if schema == SCHEMA else f"{schema}: "
                many.append(EnqueueMany(f"{prefix}enqueue_many", conninfo, f"{schema}.many"))
                single.append(Enqueue(f"{prefix}enqueue", conninfo, f"{schema}.single"))
            prepared = (rounds + 2) * calls * 2
            copies: list[Contender] = [
                Copy(KEY_ONLY, conninfo, "key_only", prepared),
                Copy(TWO_KEYS, conninfo, "two_keys", prepared),
            ]
            with context.pool(connections) as pool:
                size = calls * RECORDS * (1 if connections == 1 else 2)
                chunks = pool.rounds(
                    [*many, *copies], rounds=rounds, messages=size, warm_up=RECORDS * connections
                )
                size = singles * connections
                chunks |= pool.rounds(
                    [*single, TwoRows(TWO_ROWS, conninfo)],
                    rounds=rounds,
                    messages=size,
                    warm_up=50 * connections,
                )
            by = f"{connections} connection{'s' if connections > 1 else ''}"
            outcome.figures += [Figure.rate(f"{name}, {by}", measured) for name, measured in chunks.items()]
            for contender in many:
                for other, bar in ((KEY_ONLY, 0.5), (TWO_KEYS, 0.5)):
                    what = f"{contender.name} vs {other}, {by}"
                    outcome.verdicts += compare_rates(what, chunks[contender.name], chunks[other], bar=bar)
            for contender in single:
                what = f"{contender.name}: time vs {TWO_ROWS}, {by}"
                # Its rate turned over is its time, so the bare insert stands above the line.
                verdicts = compare_rates(what, chunks[TWO_ROWS], chunks[contender.name], bar=1.5, sense="<=")
                outcome.verdicts += [Verdict(v.what, v.ratio, v.bar, v.sense) for v in verdicts]
    return outcome
