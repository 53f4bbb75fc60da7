"""Short protocols about calling off, rescheduling, open joins and attaching many."""

from __future__ import annotations

from tests.interleavings.scheduler import Protocol
from tests.interleavings.steps import (
    COMMIT,
    ROLLBACK,
    abandon,
    ack,
    advance,
    all_of,
    alone,
    attach,
    attach_many,
    cancel,
    claim,
    extend,
    fail,
    fill,
    mark_processed,
    put,
    reap,
    release,
    replay,
    reschedule,
    settle,
    start_join,
    tick,
    wait_for_join,
)

A, B, W, V, O = "a producer", "another", "the worker", "a rival", "an operator"  # noqa: E741

_ONE_LEASED = [*all_of(W, put("m1")), *all_of(W, claim())]
_TWO_OF_A_GROUP = [
    *all_of(W, put("m1", group="g")),
    *all_of(W, claim()),
    *all_of(A, put("m2", group="g"), put("m3", group="g")),
    *all_of(W, release()),
    *all_of(W, claim(2)),
]
"""m1 and m2 of a group are leased, m3 waits, and the group has no ticket too many."""
_OPEN = [*all_of(A, put("m1"), start_join("j", None)), *all_of(W, claim())]

_WITHIN_A_TAKE = (
    ("queue/_take.sql", "groups := ARRAY(\n                SELECT DISTINCT l.group_id"),
    ("queue/_take.sql", "WITH gone AS ("),
)
"""Between the look at what is left, the locks of groups, and the taking."""

CANCELLED = [
    *(
        Protocol(
            f"{step.kind} by the owner while its message is called off",
            {O: [cancel("m1"), COMMIT], W: [step, COMMIT], V: [alone(claim())]},
            _ONE_LEASED,
            box=box,
        )
        for step, box in (
            (ack(), "outbox"),
            (fail(), "outbox"),
            (abandon(), "inbox"),
            (release(), "outbox"),
            (settle("ack"), "inbox"),
            (extend(), "outbox"),
        )
    ),
    Protocol(
        "a message is called off while two claim it",
        {O: [cancel("m1"), COMMIT], W: [claim(), COMMIT], V: [claim(), ROLLBACK]},
        all_of(A, put("m1"), put("m2")),
    ),
    Protocol(
        "calling a message off is undone while one claims it",
        {O: [cancel("m1"), ROLLBACK], W: [claim(), COMMIT], V: [alone(claim())]},
        all_of(A, put("m1", group="g")),
    ),
    Protocol(
        "the head of a group is called off while one adds to it",
        {O: [cancel("m1"), COMMIT], A: [put("m2", group="g"), COMMIT], W: [claim(2), COMMIT]},
        all_of(A, put("m1", group="g")),
    ),
    Protocol(
        "the leased head of a group is called off while two add to it",
        {O: [cancel("m1"), COMMIT], A: [put("m2", group="g"), COMMIT], B: [put("m3", group="g"), ROLLBACK]},
        [*all_of(W, put("m1", group="g")), *all_of(W, claim())],
    ),
    Protocol(
        "of two leases of a group one is called off while the other is settled",
        {O: [cancel("m2"), COMMIT], W: [ack("m1"), COMMIT], A: [put("m4", group="g"), COMMIT]},
        _TWO_OF_A_GROUP,
        waits=frozenset({"cancel", "ack"}),
    ),
    Protocol(
        "two leases of a group are called off while they are settled one by one",
        {O: [cancel("m1", "m2"), COMMIT], W: [ack("m1"), ack("m2"), COMMIT], V: [alone(claim(2))]},
        _TWO_OF_A_GROUP,
        waits=frozenset({"cancel", "ack"}),
    ),
    Protocol(
        "one lease of a group is called off while both are settled one by one",
        {O: [cancel("m2"), COMMIT], W: [ack("m1"), ack("m2"), COMMIT], V: [alone(claim(2))]},
        _TWO_OF_A_GROUP,
        waits=frozenset({"cancel", "ack"}),
    ),
    Protocol(
        "messages are called off while they become steps one by one",
        {
            O: [cancel("m2", "m1"), COMMIT],
            B: [attach("i", "m1"), attach("i", "m2"), COMMIT],
            W: [alone(claim())],
        },
        all_of(A, put("m1"), put("m2"), start_join("i", None)),
    ),
    Protocol(
        "the same messages are called off twice, in a group and out of it",
        {O: [cancel("m2", "m1"), COMMIT], A: [cancel("m1", "m2"), COMMIT], W: [claim(2), COMMIT]},
        all_of(A, put("m1"), put("m2", group="g"), put("m3", group="g")),
    ),
    Protocol(
        "a leased and a waiting one are called off while the one is given back and the other claimed",
        {O: [cancel("m2", "m1"), COMMIT], W: [release("m1"), COMMIT], V: [claim(), COMMIT]},
        [*all_of(W, put("m1"), put("m2", group="g")), *all_of(W, claim())],
    ),
    Protocol(
        "a lease that has run out is called off while it is reaped",
        {O: [cancel("m1"), COMMIT], V: [reap(), COMMIT], W: [ack(), COMMIT]},
        [*all_of(W, put("m1", group="g")), *all_of(W, claim(lease=5)), (W, advance(10))],
        waits=frozenset({"reap"}),
    ),
    Protocol(
        "a delayed message is called off while its time comes",
        {O: [cancel("m1"), COMMIT], W: [claim(), COMMIT], V: [claim(), ROLLBACK]},
        [*all_of(A, put("m1", delay=5), put("m2", group="g", delay=5)), (A, advance(10))],
    ),
    Protocol(
        "a message is called off while a newer one takes its place",
        {O: [cancel("m1"), COMMIT], A: [put("m2", key="k"), COMMIT], W: [claim(), COMMIT]},
        all_of(A, put("m1", key="k")),
        waits=frozenset({"put"}),
    ),
    Protocol(
        "a message is called off while it is enqueued again",
        {O: [cancel("m1"), COMMIT], A: [put("m1", topic="other"), COMMIT], W: [claim(), COMMIT]},
        all_of(A, put("m1")),
        box="inbox",
    ),
    Protocol(
        "a message is called off while it is marked processed",
        {O: [cancel("m1"), COMMIT], A: [mark_processed("m1"), COMMIT], W: [claim(), COMMIT]},
        all_of(A, put("m1", group="g")),
        box="inbox",
    ),
    Protocol(
        "a dead message is replayed while it is called off",
        {A: [replay("m1"), COMMIT], O: [cancel("m1"), COMMIT], W: [claim(), COMMIT]},
        [*_ONE_LEASED, *all_of(W, fail())],
    ),
    Protocol(
        "several of a run are called off while others claim from it",
        {
            O: [cancel("others3", "others4", "others40"), COMMIT],
            W: [claim(2), COMMIT],
            V: [claim(7), ROLLBACK],
        },
        all_of(A, fill(256)),
    ),
    Protocol(
        "two call off messages of one run",
        {O: [cancel("others3", "others9"), COMMIT], A: [cancel("others9", "others4"), COMMIT]},
        all_of(A, fill(256)),
    ),
    Protocol(
        "ticks around one of a run that is called off",
        {O: [cancel("others1"), COMMIT], W: [claim(), ROLLBACK], V: [alone(tick()), alone(tick())]},
        all_of(A, fill(256)),
    ),
    Protocol(
        "a step is called off while it is attached and claimed",
        {A: [attach("j", "m1"), COMMIT], O: [cancel("m1"), COMMIT], W: [claim(), COMMIT]},
        [*all_of(A, put("m1"), start_join("j", 1)), *all_of(A, wait_for_join("j"))],
    ),
    Protocol(
        "a leased step is called off while it is attached and settled",
        {A: [attach("j", "m1"), COMMIT], O: [cancel("m1"), COMMIT], W: [ack(), COMMIT]},
        [*all_of(A, put("m1"), start_join("j", 1)), *all_of(A, wait_for_join("j")), *all_of(W, claim())],
    ),
    Protocol(
        "what is called off moves while it is taken",
        {O: [cancel("m1", "m2"), COMMIT], W: [alone(release()), alone(claim(2))], V: [alone(claim())]},
        [*all_of(W, put("m1"), put("m2", group="g")), *all_of(W, claim())],
        stops=_WITHIN_A_TAKE,
    ),
]

RESCHEDULED = [
    Protocol(
        "a ready message is put off while two claim it",
        {O: [reschedule("m1", delay=50), COMMIT], W: [claim(), COMMIT], V: [claim(), ROLLBACK]},
        all_of(A, put("m1"), put("m2")),
    ),
    Protocol(
        "a delayed message is made due while its time comes",
        {O: [reschedule("m1"), COMMIT], W: [claim(), COMMIT], A: [alone(advance(10))]},
        all_of(A, put("m1", delay=5)),
    ),
    Protocol(
        "the head of a group is put off while one adds to it and another claims",
        {
            O: [reschedule("m1", delay=50), COMMIT],
            A: [put("m2", group="g"), COMMIT],
            W: [claim(2), COMMIT],
        },
        all_of(A, put("m1", group="g")),
    ),
    Protocol(
        "the head of a group is made due while the group is settled and added to",
        {O: [reschedule("m2"), COMMIT], A: [put("m3", group="g"), COMMIT], W: [ack(), COMMIT]},
        [*all_of(W, put("m1", group="g"), put("m2", group="g", delay=50)), *all_of(W, claim())],
    ),
    Protocol(
        "the head of a group is made due while one claims",
        {O: [reschedule("m1"), COMMIT], W: [claim(), COMMIT], V: [alone(claim())]},
        all_of(A, put("m1", group="g", delay=900), put("m2", group="g")),
    ),
    Protocol(
        "a message is put off, made due and called off",
        {O: [reschedule("m1", delay=50), COMMIT], A: [reschedule("m1"), COMMIT], B: [cancel("m1"), COMMIT]},
        all_of(A, put("m1", delay=5)),
    ),
    Protocol(
        "ticks around a message that is made due and one that is put off",
        {
            O: [reschedule("m1"), COMMIT],
            A: [reschedule("m2", delay=20), COMMIT],
            V: [alone(tick()), advance(30), alone(tick())],
        },
        all_of(A, put("m1", delay=90), put("m2")),
    ),
    Protocol(
        "a message is put off while it is enqueued again",
        {
            O: [reschedule("m1", delay=50), COMMIT],
            A: [put("m1", topic="other"), COMMIT],
            W: [claim(), COMMIT],
        },
        all_of(A, put("m1")),
        box="inbox",
    ),
    Protocol(
        "some of a run are put off while others claim from it",
        {
            O: [reschedule("others1", "others2", delay=50), COMMIT],
            A: [alone(reschedule("others1"))],
            W: [claim(2), COMMIT],
        },
        all_of(A, fill(256)),
    ),
    Protocol(
        "a parked join.wait is made due while the last step ends",
        {O: [reschedule("wait"), COMMIT], W: [ack(), COMMIT], V: [claim(), COMMIT]},
        [
            *all_of(A, put("m1"), start_join("j", 1)),
            *all_of(A, attach("j", "m1"), wait_for_join("j")),
            *all_of(W, claim()),
        ],
    ),
]

OPEN_JOINS = [
    Protocol(
        "an open join is closed while a step is attached and settled",
        {A: [attach("j", "m1"), COMMIT], B: [wait_for_join("j"), COMMIT], W: [ack(), COMMIT]},
        _OPEN,
    ),
    Protocol(
        "an open join is closed while its last step ends, and one looks",
        {B: [wait_for_join("j"), COMMIT], W: [ack(), COMMIT], V: [claim(), COMMIT]},
        [*_OPEN, *all_of(A, attach("j", "m1"))],
    ),
    Protocol(
        "an open join is closed twice while a step is attached",
        {A: [attach("j", "m1"), COMMIT], B: [wait_for_join("j"), COMMIT], O: [wait_for_join("j"), ROLLBACK]},
        _OPEN,
    ),
    Protocol(
        "an open join is closed without steps while one is attached after all",
        {A: [attach("j", "m1"), ROLLBACK], B: [wait_for_join("j"), COMMIT], W: [ack(), claim(), COMMIT]},
        _OPEN,
    ),
    Protocol(
        "many become steps while one of them is settled and one called off",
        {
            A: [attach_many("j", "m2", "m1", "m3"), COMMIT],
            W: [ack("m1"), COMMIT],
            O: [cancel("m2", "m3"), COMMIT],
        },
        [
            *all_of(A, put("m1"), put("m2"), put("m3", group="g"), start_join("j", 3)),
            *all_of(A, wait_for_join("j")),
            *all_of(W, claim()),
        ],
        waits=frozenset({"attach_many"}),
    ),
    Protocol(
        "many become steps of one join, and one by one of another",
        {
            A: [attach_many("j", "m2", "m1"), COMMIT],
            B: [attach("i", "m1"), attach("i", "m2"), COMMIT],
            W: [claim(2), COMMIT],
        },
        all_of(A, put("m1"), put("m2"), start_join("j", None), start_join("i", 2)),
    ),
    Protocol(
        "some of a run become steps while others claim from it and call off",
        {
            A: [attach_many("j", "others5", "others2"), COMMIT],
            W: [claim(3), COMMIT],
            O: [cancel("others2", "others6"), COMMIT],
        },
        [*all_of(A, fill(256)), *all_of(A, start_join("j", None))],
    ),
]
