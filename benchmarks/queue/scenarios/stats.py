"""The numbers that an operator looks at, with a million messages done."""

from __future__ import annotations

from functools import partial

from benchmarks.queue.boxes import SCHEMA, connect, fill
from benchmarks.queue.contenders import ClaimAck
from benchmarks.queue.figures import Outcome, Spread, Verdict
from benchmarks.queue.scenarios.context import Context, Stopwatch

BATCH = 50


def stats(context: Context) -> Outcome:
    """stats() after a million messages went through: most of them in big batches, the rest in small ones."""
    big = context.size(950_000, 18_000)
    small = context.size(50_000, 2_000)
    ready = 1000
    calls = context.size(200, 50)
    outcome = Outcome(
        "stats",
        f"one connection, {calls} calls, {big + small} messages done ({small} in batches of {BATCH}), "
        f"{ready} ready, ten topics",
    )
    topics = "jsonb_build_object('topic', 'topic ' || n %% 10)"
    with context.database("stats", ["box"]) as conninfo:
        for schema in context.schemas:
            prefix = "" if schema == SCHEMA else f"{schema}: "
            box = f"{schema}.box"
            with context.pool() as pool, connect(conninfo) as connection:
                for count, batch in ((big, 1000), (small, BATCH)):
                    context.progress(f"{count} through {box} in batches of {batch}")
                    fill(connection, box, count, topics)
                    pool.run(ClaimAck("drain", conninfo, box, batch), count)
                fill(connection, box, ready, topics)
                watch = Stopwatch(connection, is_local=context.server.is_local)
                for number in range(calls + 10):
                    if number == 10:
                        watch.reset()
                    watch.time(partial(connection.execute, f"SELECT * FROM {box}_stats()", prepare=True))
                timing = watch.result()
                rows = connection.execute(f"SELECT topic, done FROM {box}_stats()").fetchall()
            done = next(row[1] for row in rows if row[0] is None)
            if done != big + small:
                raise RuntimeError(f"{box}: stats told {done} done of {big + small}")
            outcome.figures.append(timing.figure(f"{prefix}stats"))
            millis = Spread.of([seconds * 1e3 for seconds in timing.seconds])
            outcome.verdicts.append(Verdict(f"{prefix}stats, median", millis, 20.0, "<=", "ms"))
            if timing.server_cpu:
                cpu = Spread.of([seconds * 1e3 for seconds in timing.server_cpu])
                outcome.verdicts.append(Verdict(f"{prefix}stats, by backend CPU alone", cpu, unit="ms"))
    return outcome
