"""Short protocols about schedules: who comes first fires, and nobody after it."""

from __future__ import annotations

from tests.interleavings.scheduler import Protocol
from tests.interleavings.steps import (
    BACK,
    COMMIT,
    ROLLBACK,
    SAVEPOINT,
    ack,
    all_of,
    alone,
    claim,
    due,
    fire,
    put,
    set_schedule,
    skip,
    unset_schedule,
)

A, B, V, W, O = "a worker", "another", "a third", "a consumer", "an operator"  # noqa: E741

_AT_3 = all_of(O, set_schedule("s", "03:00"))

SCHEDULES = [
    Protocol(
        "three fire the same time, and one thinks better of it",
        {
            A: [fire("s", "03:00", "03:01"), COMMIT],
            B: [fire("s", "03:00", "03:01"), COMMIT],
            V: [fire("s", "03:00", "03:01"), ROLLBACK],
        },
        _AT_3,
        alike=[frozenset({A, B})],
    ),
    Protocol(
        "two fire one time after the other while one passes them over",
        {
            A: [alone(fire("s", "03:00", "03:01")), alone(fire("s", "03:01", "03:02"))],
            B: [fire("s", "03:00", "03:01"), COMMIT],
            V: [alone(skip("s", "03:00", "03:01"))],
        },
        _AT_3,
    ),
    Protocol(
        "a time is fired in a savepoint that is given up while another fires it",
        {
            A: [SAVEPOINT, fire("s", "03:00", "03:01"), BACK, COMMIT],
            B: [fire("s", "03:00", "03:01"), COMMIT],
            V: [alone(fire("s", "03:01", "03:02"))],
        },
        _AT_3,
    ),
    Protocol(
        "a schedule is set again by the same rule while two fire it",
        {
            O: [set_schedule("s"), COMMIT],
            A: [fire("s", "03:00", "03:01"), COMMIT],
            B: [fire("s", "03:00", "03:01"), ROLLBACK],
        },
        _AT_3,
    ),
    Protocol(
        "a schedule gets another time while one passes the old one over",
        {
            O: [set_schedule("s", "05:00"), COMMIT],
            B: [skip("s", "03:00", "03:01"), COMMIT, alone(fire("s", "05:00", "05:01"))],
        },
        _AT_3,
    ),
    Protocol(
        "a schedule is disabled while two fire it",
        {
            O: [set_schedule("s", enabled=False), COMMIT],
            A: [fire("s", "03:00", "03:01"), COMMIT],
            B: [alone(fire("s", "03:00", "03:01"))],
        },
        _AT_3,
    ),
    Protocol(
        "a schedule is removed, perhaps, while two fire it",
        {
            O: [unset_schedule("s"), ROLLBACK],
            A: [fire("s", "03:00", "03:01"), COMMIT],
            B: [unset_schedule("s"), COMMIT],
        },
        _AT_3,
    ),
    Protocol(
        "what is due is asked for and fired by two",
        {
            A: [due(), fire("s", "03:00", "03:01"), COMMIT],
            B: [due(), fire("s", "03:00", "03:01"), COMMIT],
        },
        _AT_3,
        alike=[frozenset({A, B})],
    ),
    Protocol(
        "two schedules of a group are fired while its head is handled",
        {
            A: [fire("s", "03:00", "03:01"), COMMIT],
            B: [fire("r", "03:00", "03:01"), COMMIT],
            W: [ack(), COMMIT],
        },
        [
            *all_of(O, set_schedule("s", "03:00", group="g"), set_schedule("r", "03:00", group="g")),
            *all_of(W, put("m1", group="g")),
            *all_of(W, claim()),
        ],
    ),
]
