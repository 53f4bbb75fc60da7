"""What the results mean to somebody who chooses a queue: each scenario's question, and each column."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.suite import store

QUESTIONS: Mapping[str, str] = {
    "enqueue_single": (
        "What does a web request pay that sends one message? Look at a call's median and at the server's "
        "CPU: your database has that much less for everything else."
    ),
    "enqueue_bulk": (
        "How fast does an import or a fan-out get its messages in? It matters if you send thousands at "
        "once, hardly otherwise."
    ),
    "drain_routine": (
        "How fast could consumers be if they did nothing but take and finish? An upper bound, without a "
        "worker's own cost: for those who write their consumer themselves."
    ),
    "half_delayed": (
        "Do delays and retries make everything slower? The nearer to the plain drain, the better."
    ),
    "fifo_many": (
        "What does order within a customer cost, with many customers? Compare with the plain drain."
    ),
    "fifo_hot": (
        "What if one customer sends everything? A queue that looks for the group's head by scanning slows "
        "down with its length."
    ),
    "joins": "What does waiting for the last of many steps cost the steps?",
    "payload": "Is the queue still fast with your size of message? At the largest the disk decides.",
    "backlog": (
        "After an outage a million messages wait: is taking one as fast as usual? Compare with the plain "
        "drain; a large difference means that a backlog feeds itself."
    ),
    "held_snapshot": (
        "A report, a backup or a forgotten session keeps a snapshot: does the queue slow down until it "
        "ends? The failure that users of queues in PostgreSQL complain about most. Look at the last tenth "
        "beside the first."
    ),
    "held_writer": (
        "The same beside a transaction that has written something and stays open, be it in another "
        "database of the server."
    ),
    "held_paths": (
        "The same for messages that use priorities, groups, pauses or topics: many queues have one fast path."
    ),
    "waiting": "Does a fleet of workers that wait make each message dearer? Read across the variants.",
    "disk": "How much bigger do the tables get meanwhile, and does that go again by itself?",
    "sustained": "Is it after hours as it was after minutes?",
    "worker_drain": (
        "How many messages does one process finish with the queue's own worker, its client library "
        "included? The rate that you can plan with if handlers take no time; CPU beside it says what is "
        "left for them."
    ),
    "transactional": "What do handlers cost whose writes commit with the message's end?",
    "many_coroutines": (
        "How many handlers can wait for other services at once, and on how many connections?"
    ),
    "latency_idle": (
        "Somebody clicks and waits: how long until the handler starts, if nothing else is to do?"
    ),
    "latency_half_load": (
        "The same while the queue is half busy. Each has a load of its own, told in its last column."
    ),
    "latency_sparse": (
        "The same with a second between messages: pollers that slow down when idle show here."
    ),
    "steady": (
        "The most usual case: some load, some waiting in handlers, far from what the queue could do. The "
        "99th percentile is what your slowest users see."
    ),
    "steady_grid": "The same for loads between those.",
    "burst": "A mailing goes out: how long until latency is what it was?",
    "oversupply": "Producers outrun workers for a while: do workers keep their rate, or starve?",
    "mixed": "Everything at once, as applications have it.",
    "chaos": (
        "Is anything lost or done twice when processes die? Lost must be 0; what came more than once is "
        "what handlers must bear; a pause ends when a lease does."
    ),
    "idle_cost": (
        "What does a worker cost that has nothing to do? It matters if you run hundreds of them, or pay "
        "by the CPU."
    ),
}
"""Of every scenario: what its cells answer, for whom, and what to look at."""

COLUMNS: Mapping[str, tuple[str, str]] = {
    store.RATE: ("throughput, load", "messages that got through in a second, all clients together"),
    store.P50: ("median", "half of all messages took no longer"),
    store.P99: ("99th percentile", "one in a hundred took longer"),
    "p999_ms": ("99.9th percentile", "one in a thousand took longer"),
    store.CALL_P50: (
        "a call, median",
        "half of all calls took no longer: what the caller's transaction waits",
    ),
    store.CALL_P99: ("a call, 99th percentile", "one call in a hundred took longer"),
    store.CLIENT_CPU: ("client CPU, CPU of the worker", "of clients or workers, their library included"),
    store.SERVER_CPU: (
        "server CPU",
        "of all the server's processes; where a machine is busy, believe it before the rate",
    ),
    store.WAL: ("WAL", "what the server writes to its log, and sends to each standby"),
    "settled_ms": ("from the call to the end in the tables", "until the tables say that it is finished"),
    "last_rate": ("last tenth", "the rate when the transaction has been open for long"),
    "first_rate": ("first tenth", "the rate when it was opened"),
    "kept": ("last of first", "the one over the other: 1 is as if nothing had happened"),
    "others_percent": ("CPU taken by others", "how much other programs disturbed it"),
    "connections": ("connections", "connections to the database meanwhile"),
}
"""Columns that several tables have: their heads, and what they say."""


def glossary() -> list[str]:
    """The columns, as lines of a page."""
    return [f"- **{title}**: {text}." for title, text in COLUMNS.values()]
