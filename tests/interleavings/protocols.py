"""The short protocols: where two or three sessions meet at a message, a group, a key, a join or a mark."""

from __future__ import annotations

from tests.interleavings.protocols_cancel import CANCELLED, OPEN_JOINS, RESCHEDULED
from tests.interleavings.protocols_schedules import SCHEDULES
from tests.interleavings.scheduler import Protocol
from tests.interleavings.steps import (
    BACK,
    COMMIT,
    ROLLBACK,
    SAVEPOINT,
    abandon,
    ack,
    advance,
    all_of,
    alone,
    already_processed,
    attach,
    claim,
    discard,
    extend,
    fail,
    fill,
    mark_dead,
    mark_processed,
    mark_processing,
    pause,
    put,
    reap,
    release,
    replay,
    resume,
    retry,
    settle,
    start_join,
    tick,
    wait_for_join,
)

A, B, W, V, O = "a producer", "another", "the worker", "a rival", "an operator"  # noqa: E741
W2 = "the worker (other hand)"
"""Sessions; a worker that has claimed something before has the same name there."""

_LEASED = [*all_of(W, put("m1", group="g")), *all_of(W, claim())]
"""m1 of group g is leased to the worker, so the group has a row and no ticket."""
_Q_LEASED = [*all_of(W, put("m1", group="g", topic="Q")), *all_of(W, claim())]

_EMPTIED = [
    Protocol(
        "a group is emptied while two add to it",
        {A: [put("m2", group="g"), COMMIT], B: [put("m3", group="g"), COMMIT], W: [ack(), COMMIT]},
        _LEASED,
        alike=[frozenset({A, B})],
    ),
    Protocol(
        "a group is emptied while one adds and another thinks better of it",
        {A: [put("m2", group="g"), ROLLBACK], B: [put("m3", group="g"), COMMIT], W: [ack(), COMMIT]},
        _LEASED,
    ),
    Protocol(
        "a group is emptied and claimed again while one adds to it",
        {A: [put("m2", group="g"), COMMIT], W: [ack(), COMMIT, claim(), COMMIT], V: [alone(claim())]},
        _LEASED,
    ),
    Protocol(
        "a group is emptied and claimed in one transaction while two add to it",
        {
            A: [put("m2", group="g"), COMMIT],
            B: [alone(put("m3", group="g"))],
            W: [ack(), claim(2), COMMIT],
        },
        _LEASED,
    ),
    Protocol(
        "the end of a group is undone while one adds to it",
        {A: [put("m2", group="g"), COMMIT], W: [ack(), ROLLBACK, ack(), COMMIT], V: [alone(claim())]},
        _LEASED,
    ),
    Protocol(
        "a group is emptied in a savepoint that is given up while one adds to it",
        {
            A: [put("m2", group="g"), COMMIT],
            W: [SAVEPOINT, ack(), BACK, COMMIT],
            B: [alone(put("m3", group="g"))],
        },
        _LEASED,
    ),
    Protocol(
        "a member is added in a savepoint that is given up while the group is emptied",
        {A: [SAVEPOINT, put("m2", group="g"), BACK, COMMIT], W: [ack(), COMMIT], V: [alone(claim())]},
        _LEASED,
    ),
    Protocol(
        "a delayed member comes while the group is emptied",
        {
            A: [put("m2", group="g", delay=50), COMMIT],
            B: [put("m3", group="g"), COMMIT],
            W: [ack(), COMMIT],
        },
        _LEASED,
    ),
    Protocol(
        "a delayed member behind one that comes late",
        {
            A: [put("m2", group="g"), COMMIT],
            B: [alone(put("m3", group="g", delay=50))],
            W: [ack(), COMMIT],
            V: [claim(), COMMIT],
        },
        _LEASED,
    ),
    *(
        Protocol(
            f"{step.kind} in a group to which two add",
            {
                A: [put("m2", group="g"), COMMIT],
                B: [alone(put("m3", group="g"))],
                W: [step, COMMIT],
                V: [claim(2), COMMIT],
            },
            _LEASED,
        )
        for step in (abandon(delay=50), retry(), release(), fail(), settle("ack"))
    ),
    Protocol(
        "a new group of two producers and two workers",
        {
            A: [put("m1", group="g"), COMMIT],
            B: [put("m2", group="g"), COMMIT],
            W: [claim(), COMMIT],
            V: [claim(), COMMIT],
        },
        alike=[frozenset({A, B}), frozenset({W, V})],
    ),
    Protocol(
        "a new group whose claim is undone",
        {
            A: [put("m1", group="g"), COMMIT],
            B: [alone(put("m2", group="g"))],
            W: [claim(), ROLLBACK],
            V: [claim(2), COMMIT],
        },
    ),
    Protocol(
        "a group settled in two parts while one adds to it",
        {
            A: [put("m3", group="g"), COMMIT],
            W: [ack("m1"), COMMIT, ack("m2"), COMMIT],
            V: [alone(claim())],
        },
        [*all_of(W, put("m1", group="g"), put("m2", group="g")), *all_of(W, claim(2))],
    ),
]

_HELD = [*all_of(W, *(put(f"m{n}", group="g") for n in range(1, 4))), *all_of(W, claim(2))]
"""m1 and m2 of group g are leased to the worker, m3 waits behind them."""
_HELD_TOO_LONG = [
    *all_of(W, *(put(f"m{n}", group="g") for n in range(1, 4))),
    *all_of(W, claim(2, lease=5)),
    (W, advance(9)),
]

_TWO_FOR_ONE = [
    (A, put("m1", group="g", key="k")),
    *all_of(B, put("m2", group="g")),
    (A, COMMIT),
    *all_of(W, claim()),
    *all_of(W, release()),
]
"""Two tickets for one group, which has a row: neither of two producers saw the other."""

_PARTED = [
    Protocol(
        "a head becomes a step beside a ticket too many",
        {A: [attach("j", "m1"), COMMIT], W: [claim(), COMMIT], V: [alone(claim()), advance(1)]},
        [*_TWO_FOR_ONE, *all_of(A, start_join("j", 1))],
    ),
    Protocol(
        "a group with a ticket too many and two workers",
        {W: [claim(), COMMIT, ack(), COMMIT], V: [claim(), COMMIT]},
        _TWO_FOR_ONE,
    ),
    Protocol(
        "a group with a ticket too many is settled while a rival meets it",
        {W: [ack(), COMMIT], V: [claim(), COMMIT], A: [put("m3", group="g"), COMMIT]},
        [*_TWO_FOR_ONE, *all_of(W, claim())],
    ),
    *(
        Protocol(
            f"a head is replaced beside a ticket too many, with {end.kind} at the end",
            {A: [put("m3", key="k"), end], W: [claim(), COMMIT], V: [alone(claim()), advance(1)]},
            _TWO_FOR_ONE,
        )
        for end in (COMMIT, ROLLBACK)
    ),
    *(
        Protocol(
            f"a group settled by two hands at once, one with {step.kind}",
            {W: [ack("m1"), COMMIT], W2: [step, COMMIT], V: [alone(claim())]},
            _HELD,
            waits=frozenset({"ack", step.kind}),
        )
        for step in (ack("m2"), release("m2"), fail("m2"), retry("m2"))
    ),
    Protocol(
        "a group reaped while a part of it is settled",
        {W: [ack("m1"), COMMIT], O: [reap(), COMMIT], V: [alone(claim(3))]},
        _HELD_TOO_LONG,
        waits=frozenset({"reap", "claim"}),
    ),
    Protocol(
        "one leased member is marked while the other is settled",
        {A: [mark_processed("m1"), COMMIT], W: [ack("m2"), COMMIT], V: [alone(claim())]},
        _HELD,
        box="inbox",
        waits=frozenset({"ack", "mark_processed"}),
    ),
]
"""Who settles a part of a group takes turns with whoever settles another part."""

_PROBED = [
    Protocol(
        f"a group is looked at twice while {step.kind} is open",
        {
            A: [alone(put("m2", group="g"))],
            W: [step, COMMIT],
            V: [alone(claim()), advance(1), alone(claim())],
        },
        _LEASED,
    )
    for step in (ack(), fail(), release(), abandon(delay=50), settle("ack"))
]
_PROBED += [
    Protocol(
        "a group is looked at twice while a producer is open",
        {
            A: [put("m2", group="g"), COMMIT],
            W: [alone(ack())],
            V: [alone(claim()), advance(1), alone(claim())],
        },
        _LEASED,
    ),
    Protocol(
        "a group is looked at twice while its head is being replaced",
        {
            A: [put("m3", key="k"), COMMIT],
            V: [alone(claim()), advance(1), alone(claim()), advance(1), alone(claim())],
        },
        all_of(A, put("m1", group="g", key="k"), put("m2", group="g")),
    ),
    Protocol(
        "a group is looked at twice while its first claim is open",
        {
            A: [alone(put("m2", group="g"))],
            W: [claim(), COMMIT, ack(), COMMIT],
            V: [alone(claim()), advance(1), alone(claim())],
        },
        all_of(A, put("m1", group="g")),
    ),
    Protocol(
        "a group is looked at twice while its first claim is undone",
        {
            A: [alone(put("m2", group="g"))],
            W: [claim(), ROLLBACK],
            V: [alone(claim()), advance(1), alone(claim())],
        },
        all_of(A, put("m1", group="g")),
    ),
    Protocol(
        "a group is looked at twice while a member is marked",
        {
            A: [mark_processed("m1"), COMMIT],
            B: [alone(put("m2", group="g"))],
            V: [alone(claim()), advance(1), alone(claim())],
        },
        [*all_of(W, put("m1", group="g")), *all_of(W, claim())],
        box="inbox",
    ),
]
"""A claim that cannot have a group leaves a probe, and the next one takes that up."""

_COLLAPSED = [
    Protocol(
        "the head of a group is replaced while two claim it",
        {
            A: [put("m2", group="g", key="k"), COMMIT],
            W: [claim(), COMMIT],
            V: [claim(2), COMMIT],
        },
        all_of(A, put("m1", group="g", key="k")),
    ),
    Protocol(
        "the head of a group is not replaced after all",
        {
            A: [put("m2", group="g", key="k"), ROLLBACK],
            W: [claim(), COMMIT, ack(), COMMIT],
            V: [alone(claim(2))],
        },
        all_of(A, put("m1", group="g", key="k")),
    ),
    Protocol(
        "two replace one message that a worker claims",
        {
            A: [put("m2", key="k"), COMMIT],
            B: [put("m3", key="k"), COMMIT],
            W: [claim(), COMMIT],
        },
        all_of(A, put("m1", key="k")),
        alike=[frozenset({A, B})],
    ),
    Protocol(
        "a delayed head is replaced from outside while one adds behind it",
        {
            A: [put("m3", key="k"), COMMIT],
            B: [put("m4", group="g"), COMMIT],
            W: [claim(2), COMMIT],
        },
        all_of(A, put("m1", group="g", key="k", delay=50), put("m2", group="g")),
    ),
    Protocol(
        "a retry is replaced while its owner gives it back",
        {
            A: [put("m2", key="k", group="g"), COMMIT],
            W: [abandon(delay=50), COMMIT],
            V: [claim(), COMMIT],
        },
        [*all_of(W, put("m1", key="k", group="g")), *all_of(W, claim())],
    ),
    Protocol(
        "a message is replaced that becomes a step",
        {
            A: [put("m2", key="k"), COMMIT],
            B: [attach("j", "m1"), COMMIT],
            W: [claim(), COMMIT],
        },
        [*all_of(A, put("m1", key="k")), *all_of(B, start_join("j", 2))],
    ),
]

_TWO_TICKETS = [
    (A, put("m1", group="g", key="k", delay=100)),
    *all_of(B, put("m2", group="g")),
    (A, COMMIT),
    *all_of(B, fill(150, delay=50)),
    (B, advance(200)),
]
"""m1 is delayed and not committed when m2's producer looks: a ticket of its group stays under its number."""

_WITHDRAWN = [
    Protocol(
        "a head with a ticket of its own number is marked while it is claimed",
        {W: [claim(), COMMIT], A: [mark_processed("m1"), COMMIT], V: [claim(), COMMIT]},
        _TWO_TICKETS,
        box="inbox",
    ),
    Protocol(
        "a head with a ticket of its own number is replaced while it is claimed",
        {W: [claim(), COMMIT, ack(), COMMIT], A: [put("m3", group="g", key="k"), COMMIT]},
        _TWO_TICKETS,
    ),
    Protocol(
        "a head with a ticket of its own number is renewed while it is claimed",
        {W: [claim(), COMMIT, ack(), COMMIT], A: [put("m1", topic="other", group="g"), COMMIT]},
        _TWO_TICKETS,
        box="inbox",
    ),
    Protocol(
        "a waiting message is marked while it is claimed",
        {
            A: [mark_processed("m1"), COMMIT],
            B: [mark_dead("m1"), COMMIT],
            W: [claim(), COMMIT],
        },
        all_of(A, put("m1")),
        box="inbox",
    ),
    Protocol(
        "a leased message is marked while its owner settles",
        {
            A: [mark_dead("m1"), COMMIT],
            W: [ack(), COMMIT],
            V: [claim(), COMMIT],
        },
        [*all_of(W, put("m1", group="g"), put("m2", group="g")), *all_of(W, claim())],
        box="inbox",
    ),
    Protocol(
        "a delayed message is marked while it falls due",
        {A: [mark_processed("m1"), COMMIT], W: [claim(), COMMIT], V: [claim(), ROLLBACK]},
        [*all_of(A, put("m1", delay=50)), (A, advance(100))],
        box="inbox",
    ),
    Protocol(
        "a member behind the head is marked while the head is claimed and settled",
        {
            A: [mark_processed("m2"), COMMIT],
            W: [claim(), COMMIT, ack(), COMMIT],
        },
        all_of(A, put("m1", group="g"), put("m2", group="g"), put("m3", group="g")),
        box="inbox",
    ),
]

_KEYS = [
    Protocol(
        "a key is seen, sent and marked at once",
        {
            A: [already_processed("m1"), COMMIT],
            B: [put("m1"), COMMIT],
            W: [mark_processed("m1"), COMMIT],
        },
        box="inbox",
    ),
    Protocol(
        "a key that was seen is sent twice and claimed",
        {
            A: [put("m1", group="g"), COMMIT],
            B: [put("m1", topic="other"), COMMIT],
            W: [claim(), COMMIT],
        },
        all_of(A, already_processed("m1")),
        box="inbox",
    ),
    Protocol(
        "a key is sent again while it is worked on",
        {
            A: [put("m1", topic="other"), COMMIT],
            W: [claim(), COMMIT, ack(), COMMIT],
            B: [alone(mark_processing("m1"))],
        },
        all_of(A, put("m1")),
        box="inbox",
    ),
    Protocol(
        "a key of a group is sent again with another time while it is worked on",
        {
            A: [put("m1", group="g", delay=50), COMMIT],
            W: [claim(), COMMIT, release(), COMMIT],
            V: [alone(claim())],
        },
        all_of(A, put("m1", group="g"), put("m2", group="g")),
        box="inbox",
    ),
]

_EXPIRED = [*all_of(W, put("m1"), put("m2")), *all_of(W, claim(2, lease=5)), (W, advance(10))]
_GROUP_EXPIRED = [
    *all_of(W, put("m1", group="g"), put("m2", group="g"), put("m3", group="g")),
    *all_of(W, claim(2, lease=5)),
    (W, advance(10)),
]

_TAKERS = frozenset({"claim", "reap"})
"""They take back leases that have run out; a late owner of one waits to see what becomes of it."""

_TAKEN_OVER = [
    Protocol(
        "a late ack, a reap and a claim",
        {W: [ack(), COMMIT], V: [claim(2), COMMIT], O: [reap(), COMMIT]},
        _EXPIRED,
        waits=_TAKERS,
    ),
    Protocol(
        "a late retry that is the last, a reap and a claim",
        {W: [retry(), COMMIT], V: [claim(2), COMMIT], O: [reap(), COMMIT]},
        _EXPIRED,
        waits=_TAKERS,
    ),
    Protocol(
        "a late ack of part, and a rival who settles what he got",
        {W: [ack("m1"), COMMIT], V: [claim(2), COMMIT, ack(), COMMIT]},
        _EXPIRED,
        waits=_TAKERS,
    ),
    Protocol(
        "a lease prolonged at the last moment, a reap and a claim",
        {W: [extend(), COMMIT], V: [claim(2), COMMIT], O: [reap(), ROLLBACK]},
        _EXPIRED,
        waits=_TAKERS,
    ),
    Protocol(
        "a late ack, a reap and a claim of a group",
        {W: [ack("m1"), COMMIT], V: [claim(2), COMMIT], O: [reap(), COMMIT]},
        _GROUP_EXPIRED,
        waits=_TAKERS,
    ),
    Protocol(
        "a late release of part of a group while one adds to it",
        {W: [release("m2"), COMMIT], V: [claim(2), COMMIT], A: [put("m4", group="g"), COMMIT]},
        _GROUP_EXPIRED,
        waits=_TAKERS,
    ),
    *(
        Protocol(
            f"a late {step.kind} and a rival who has it",
            {W: [step, COMMIT], V: [claim(2), COMMIT, ack(), COMMIT]},
            _EXPIRED,
            waits=_TAKERS,
        )
        for step in (abandon(delay=50), fail(), release(), settle("ack"))
    ),
]

_JOINS = [
    Protocol(
        "a message becomes a step while it is claimed and acknowledged",
        {A: [attach("j", "m1"), COMMIT], W: [claim(), COMMIT, ack(), COMMIT], V: [alone(claim())]},
        [*all_of(A, put("m1"), start_join("j", 1)), *all_of(A, wait_for_join("j"))],
    ),
    Protocol(
        "a member of a group becomes a step while it is claimed and given back",
        {A: [attach("j", "m1"), COMMIT], W: [claim(), COMMIT, release(), COMMIT], V: [alone(claim())]},
        [*all_of(A, put("m1", group="g"), start_join("j", 1)), *all_of(A, wait_for_join("j"))],
    ),
    Protocol(
        "a message becomes a step of two joins while it fails",
        {A: [attach("j", "m1"), COMMIT], B: [attach("i", "m1"), COMMIT], W: [fail(), COMMIT]},
        [
            *all_of(A, put("m1"), start_join("j", 1), start_join("i", 1)),
            *all_of(W, claim()),
        ],
    ),
    Protocol(
        "the last two steps of a join end at once, and a third looks",
        {W: [ack(), COMMIT], V: [ack(), COMMIT], O: [claim(), COMMIT]},
        [
            *all_of(A, put("m1"), put("m2"), start_join("j", 2)),
            *all_of(A, attach("j", "m1"), attach("j", "m2"), wait_for_join("j")),
            *all_of(W, claim()),
            *all_of(V, claim()),
        ],
    ),
    Protocol(
        "the last two steps of a join end at once, each with a claim in its transaction",
        {W: [ack(), claim(), COMMIT], V: [ack(), claim(), COMMIT]},
        [
            *all_of(A, put("m1"), put("m2"), start_join("j", 2)),
            *all_of(A, attach("j", "m1"), attach("j", "m2"), wait_for_join("j")),
            *all_of(W, claim()),
            *all_of(V, claim()),
        ],
    ),
    Protocol(
        "a join is waited for while its last step ends",
        {A: [wait_for_join("j"), COMMIT], W: [ack(), COMMIT], V: [claim(), COMMIT]},
        [
            *all_of(A, put("m1"), start_join("j", 1)),
            *all_of(A, attach("j", "m1")),
            *all_of(W, claim()),
        ],
    ),
    Protocol(
        "a message in a run becomes a step while others claim from the run",
        {A: [attach("j", "others5"), COMMIT], W: [claim(2), COMMIT], V: [claim(7), ROLLBACK]},
        [*all_of(A, fill(256)), *all_of(A, start_join("j", 1))],
    ),
    Protocol(
        "a dead step is replayed and discarded while it is attached",
        {A: [attach("j", "m1"), COMMIT], O: [replay("m1"), COMMIT], V: [discard("m1"), COMMIT]},
        [*all_of(A, put("m1"), start_join("j", 1)), *all_of(W, claim()), *all_of(W, fail())],
    ),
]

_PAUSED = [
    Protocol(
        "a topic is paused while a group with another topic in front is settled",
        {
            A: [put("m2", group="g", topic="Q"), COMMIT],
            B: [alone(put("m3", group="g", topic="P"))],
            W: [ack(), COMMIT],
            O: [alone(pause("P"))],
        },
        _Q_LEASED,
    ),
    Protocol(
        "workers of one topic each, and a group of both",
        {
            A: [put("m2", group="g", topic="Q"), COMMIT],
            B: [alone(put("m3", group="g", topic="P"))],
            W: [ack(), COMMIT],
            V: [claim(topics=["P"]), COMMIT],
        },
        _Q_LEASED,
    ),
    Protocol(
        "a pause comes and goes while its topic is claimed",
        {
            O: [pause("P"), COMMIT, resume("P"), COMMIT],
            W: [claim(2), COMMIT],
            V: [alone(claim(2))],
        },
        all_of(A, put("m1", topic="P", group="g"), put("m2", topic="Q", group="g"), put("m3", topic="P")),
    ),
    Protocol(
        "a pause while a member is given back",
        {
            O: [pause("Q"), COMMIT],
            W: [release(), COMMIT],
            V: [claim(2), COMMIT],
        },
        [*_Q_LEASED, *all_of(A, put("m2", group="g", topic="P"))],
    ),
    Protocol(
        "members with other priorities while a group is settled",
        {
            A: [put("m2", group="g", priority=5), COMMIT],
            B: [alone(put("m3", group="g", priority=-5))],
            W: [ack(), COMMIT],
            V: [claim(), COMMIT],
        },
        _LEASED,
    ),
]

_DEAD = [*all_of(W, put("m1")), *all_of(W, claim()), *all_of(W, fail())]

_REVIVED = [
    Protocol(
        "a dead message is replayed, discarded and claimed",
        {A: [replay("m1"), COMMIT], O: [discard("m1"), COMMIT], W: [claim(), COMMIT]},
        _DEAD,
    ),
    Protocol(
        "a dead message is replayed twice",
        {A: [replay("m1"), COMMIT], O: [replay("m1"), COMMIT], W: [claim(), COMMIT]},
        _DEAD,
        alike=[frozenset({A, O})],
    ),
    Protocol(
        "a message fails while it is replayed and discarded",
        {A: [replay("m1"), COMMIT], O: [discard("m1"), COMMIT], W: [fail(), COMMIT]},
        [*all_of(W, put("m1")), *all_of(W, claim())],
    ),
    Protocol(
        "the dead head of a group is replayed while the next is settled",
        {O: [replay("m1"), COMMIT], W: [ack(), COMMIT], V: [claim(2), COMMIT]},
        [
            *all_of(W, put("m1", group="g"), put("m2", group="g"), put("m3", group="g")),
            *all_of(W, claim()),
            *all_of(W, fail()),
            *all_of(W, claim()),
        ],
    ),
    Protocol(
        "a dead message of a key is replayed and sent again",
        {A: [put("m1", topic="other"), COMMIT], O: [replay("m1"), COMMIT], W: [claim(), COMMIT]},
        _DEAD,
        box="inbox",
    ),
]

_TICK = alone(tick())

_MARKS = [
    Protocol(
        "ticks around an open producer and a claim",
        {A: [put("m2"), COMMIT], W: [claim(), COMMIT], O: [_TICK, _TICK, _TICK]},
        all_of(A, put("m1")),
    ),
    Protocol(
        "ticks around a claim that is undone",
        {B: [alone(put("m2"))], W: [claim(), ROLLBACK], O: [_TICK, _TICK, _TICK]},
        all_of(A, put("m1")),
    ),
    Protocol(
        "ticks around an open producer of delayed messages",
        {
            A: [put("m1", delay=20), COMMIT],
            B: [alone(put("m2", delay=90))],
            O: [_TICK, advance(30), _TICK, _TICK],
        },
    ),
    Protocol(
        "ticks around a claim whose lease has run out when it is committed",
        {W: [claim(lease=20), COMMIT], V: [alone(claim(lease=900))], O: [_TICK, advance(30), _TICK, _TICK]},
        all_of(A, put("m1"), put("m2")),
    ),
    Protocol(
        "ticks inside of transactions that have written",
        {W: [claim(), tick(), ROLLBACK], A: [put("m2"), tick(), COMMIT], O: [_TICK, _TICK]},
        all_of(A, put("m1")),
    ),
    Protocol(
        "ticks around a producer that gives a savepoint up",
        {A: [SAVEPOINT, put("m1"), BACK, put("m2"), COMMIT], O: [_TICK, _TICK, alone(put("m3")), _TICK]},
    ),
    Protocol(
        "ticks around a retry",
        {W: [abandon(delay=20), COMMIT], A: [alone(put("m2"))], O: [_TICK, advance(30), _TICK, _TICK]},
        [*all_of(W, put("m1")), *all_of(W, claim())],
    ),
    Protocol(
        "ticks around the end of a group",
        {W: [ack(), COMMIT], A: [put("m2", group="g"), COMMIT], O: [_TICK, _TICK]},
        _LEASED,
    ),
    Protocol(
        "ticks around a replay into a group",
        {O: [_TICK, _TICK, _TICK], A: [replay("m1"), COMMIT], B: [alone(put("m2", group="g"))]},
        [*all_of(W, put("m1", group="g")), *all_of(W, claim()), *all_of(W, fail())],
    ),
    Protocol(
        "ticks around a message seen long ago that joins a group",
        {O: [_TICK, _TICK, _TICK], A: [put("m1", group="g"), COMMIT], B: [alone(put("m2", group="g"))]},
        all_of(W, already_processed("m1")),
        box="inbox",
    ),
    Protocol(
        "ticks around members given back and claimed",
        {O: [_TICK, _TICK, _TICK], W: [release(), COMMIT], V: [claim(), ROLLBACK]},
        [*all_of(W, put("m1", group="g"), put("m2", group="g")), *all_of(W, claim())],
    ),
    Protocol(
        "ticks around messages of other priorities",
        {O: [_TICK, _TICK, _TICK], A: [put("m1", priority=3), COMMIT], B: [put("m2", priority=-3), ROLLBACK]},
        all_of(W, put("m3", priority=3)),
    ),
    Protocol(
        "ticks around the probe of a join",
        {W: [ack(), COMMIT], V: [claim(), COMMIT], O: [_TICK, advance(1), _TICK]},
        [
            *all_of(A, put("m1"), start_join("j", 1)),
            *all_of(A, attach("j", "m1"), wait_for_join("j")),
            *all_of(W, claim()),
        ],
    ),
]

_DECIDES = ("queue/_regroup.sql", "alone := ARRAY(")
"""Between the look that shows no member and the lock under which that is decided."""
_PUTS_OUT = ("queue/_regroup.sql", "INSERT INTO {{ box.scheduled }} (due_at, no, lane, topic, group_id)")
_LOCKS = ("queue/_admit.sql", "known := ARRAY(\n            SELECT g.group_id")
_LOOKS_AGAIN = ("queue/_admit.sql", "known := ARRAY(\n            SELECT u.group_id")
_BRINGS = ("queue/_admit.sql", "WITH head AS MATERIALIZED (")
_TAKES = ("queue/_claim_groups.sql", "free := ARRAY(\n        SELECT g.group_id")
_MAKES_SURE = ("queue/_claim_groups.sql", "free := ARRAY(\n        SELECT u.group_id")
_SEES_HELD = ("queue/_surplus.sql", "sure := ARRAY(")
_NOTES = ("queue/_tick.sql", "PERFORM FROM {{ db._box }} AS b WHERE")
_DRAWN = ("outbox/enqueue.sql", "now_at := {{ db._now }}();")

_INSIDE = [
    Protocol(
        "a producer and a settlement, each inside of the other",
        {A: [put("m2", group="g"), COMMIT], W: [ack(), COMMIT]},
        _LEASED,
        stops=[_DECIDES, _PUTS_OUT, _LOCKS, _LOOKS_AGAIN, _BRINGS],
    ),
    Protocol(
        "a producer of a delayed member and a settlement, each inside of the other",
        {A: [put("m2", group="g", delay=50), COMMIT], W: [ack(), COMMIT], B: [alone(put("m3", group="g"))]},
        _LEASED,
        stops=[_DECIDES, _PUTS_OUT],
    ),
    Protocol(
        "a settlement and a claim that meets a ticket, each inside of the other",
        {A: [alone(put("m3", group="g"))], W: [ack(), COMMIT], V: [alone(claim())]},
        [*_TWO_FOR_ONE, *all_of(W, claim())],
        stops=[_DECIDES, _SEES_HELD, _TAKES],
    ),
    Protocol(
        "two claims of one group, each inside of the other",
        {W: [claim(), COMMIT], V: [claim(), COMMIT]},
        _TWO_FOR_ONE,
        stops=[_SEES_HELD, _TAKES, _MAKES_SURE],
    ),
    Protocol(
        "a probe of a group inside of which it is added to, claimed and settled",
        {
            A: [alone(put("m2", group="g"))],
            W: [alone(claim()), alone(ack()), alone(put("m3", group="g"))],
            V: [alone(claim())],
        },
        [
            *all_of(A, put("m1", group="g", key="k", delay=5)),
            *all_of(A, put("m0", key="k")),
            *all_of(W, claim()),
            *all_of(W, ack()),
            (W, advance(10)),
        ],
        stops=[_DECIDES],
    ),
    Protocol(
        "ticks inside of an enqueue, and an enqueue inside of ticks",
        {A: [put("m2"), COMMIT], O: [_TICK, _TICK]},
        [*all_of(W, put("m1")), *all_of(W, claim()), *all_of(W, ack())],
        stops=[_NOTES, _DRAWN],
    ),
]

PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        *_EMPTIED,
        *_PARTED,
        *_PROBED,
        *_COLLAPSED,
        *_WITHDRAWN,
        *_KEYS,
        *_TAKEN_OVER,
        *_JOINS,
        *_PAUSED,
        *_REVIVED,
        *_MARKS,
        *_INSIDE,
        *CANCELLED,
        *RESCHEDULED,
        *OPEN_JOINS,
        *SCHEDULES,
    )
}
