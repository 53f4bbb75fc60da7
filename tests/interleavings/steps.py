"""The statements that protocols are made of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from tests.interleavings import places
from tests.interleavings.link import Row
from tests.interleavings.scheduler import Step
from tests.interleavings.world import BrokenError, Move, Raw, World, owner_of, soon

Names = str | Sequence[str]

COMMIT = Step("commit", lambda _w, _s: "COMMIT", ending="commit")
ROLLBACK = Step("rollback", lambda _w, _s: "ROLLBACK", ending="rollback")
SAVEPOINT = Step("savepoint", lambda _w, _s: "SAVEPOINT one", ending="savepoint")
BACK = Step("back to the savepoint", lambda _w, _s: "ROLLBACK TO SAVEPOINT one", ending="back")

_KEYED = frozenset({"put", "mark_processed", "mark_dead", "mark_processing", "already_processed"})
_OPERATING = frozenset({"replay", "discard", "cancel", "reschedule"})
"""What works on an inbox message by its key, and may wait for others that do."""
_ENDING = frozenset({"ack", "abandon", "release", "fail", "settle"})
"""What an owner does with its leases."""
_HOLDING = _ENDING | _OPERATING | {"claim", "reap", "extend", "attach", "attach_many", "wait", "put"}
"""What has a message in its hands, or a join."""


def put(
    name: str,
    *,
    topic: str = "t",
    group: str | None = None,
    key: str | None = None,
    delay: float | None = None,
    priority: int = 0,
) -> Step:
    """Enqueues a message; in an inbox its name is its message id."""

    def sql(world: World, _session: str) -> str:
        world.topics.add(topic)
        more: dict[str, object] = {}
        if world.box == "inbox":
            more = {"source": "s", "message_id": name}
        return world.call(
            f"{world.box}_enqueue",
            topic=topic,
            payload="p",
            group_id=group,
            collapse_key=key,
            due_at=None if delay is None else soon(delay),
            priority=priority,
            **more,
        )

    def then(world: World, session: str, rows: list[Row]) -> None:
        (row,) = rows
        standing = world.of(session)
        world.ids[name] = int(str(row["id"]))
        world.message_ids[name] = str(row.get("message_id") or name)
        if row["outcome"] in ("created", "collapsed"):
            standing.created.append(world.ids[name])
        if row["outcome"] == "collapsed":
            standing.gains["gone"] += 1

    about = [f"group {group}" if group else "", f"key {key}" if key else "", f"topic {topic}"]
    about += [f"due in {delay:g}" if delay is not None else "", f"priority {priority}" if priority else ""]
    return Step(
        f"put {name} " + ", ".join(a for a in about if a),
        sql,
        then,
        may_wait_for_key=_KEYED | _ENDING | _OPERATING,
        about=frozenset({name}),
    )


def claim(batch: int = 1, *, lease: int = 600, topics: Sequence[str] | None = None) -> Step:
    """Claims for this session; never waits."""

    def sql(world: World, session: str) -> str:
        return world.call(
            f"{world.box}_claim",
            owner_token=owner_of(session),
            lease_seconds=lease,
            batch_size=batch,
            topics=list(topics) if topics else None,
        )

    def then(world: World, session: str, rows: list[Row]) -> None:
        world.handed(session, [int(str(row["id"])) for row in rows])

    return Step(f"claim {batch}" + (f" of {', '.join(topics)}" if topics else ""), sql, then, looks=True)


def _settling(routine: str, names: Names | None, gain: str | None, **more: object) -> Step:
    """What an owner does with messages by name, or with all that it holds."""
    wanted = None if names is None else [names] if isinstance(names, str) else list(names)

    def chosen(world: World, session: str) -> list[int]:
        if wanted is None:
            return list(world.of(session).held)
        return [world.ids[name] for name in wanted if name in world.ids]

    def sql(world: World, session: str) -> str | None:
        ids = chosen(world, session)
        if not ids:
            return None
        if routine == "settle":
            outcomes = json.dumps([{"ids": ids} | more])
            text = world.call(f"{world.box}_settle", owner_token=owner_of(session), outcomes=outcomes)
            # It answers the next claim; what it did shows where it did it.
            return f"{text}; {places.done_by_text(world.box, owner_of(session), ids)}"
        return world.call(f"{world.box}_{routine}", owner_token=owner_of(session), ids=ids, **more)

    def then(world: World, session: str, rows: list[Row]) -> None:
        world.settled(session, chosen(world, session), int(str(rows[0]["affected"])), gain)

    text = f"{routine} {', '.join(wanted) if wanted else 'what it holds'}"
    # Whoever attaches one of these messages, or marks it by its key, works on the very same one.
    return Step(
        text,
        sql,
        then,
        may_wait_for=frozenset({"attach", "attach_many", "cancel"}),
        may_wait_for_key=_KEYED | _OPERATING,
        about=frozenset(wanted or ()),
        looks=True,
    )


def ack(names: Names | None = None) -> Step:
    """Acknowledges."""
    return _settling("ack", names, "done")


def fail(names: Names | None = None) -> Step:
    """Gives up."""
    return _settling("fail", names, None, error="it failed")


def abandon(names: Names | None = None, *, delay: float | None = None) -> Step:
    """Gives back for another try."""
    return _settling("abandon", names, None, last_error="once more", delay_seconds=delay or 1)


def retry(names: Names | None = None, *, limit: int = 1) -> Step:
    """Gives back for another try, or up where that was the last."""
    return _settling("retry", names, None, last_error="enough", delay_seconds=50, max_attempts=limit)


def release(names: Names | None = None) -> Step:
    """Hands back."""
    return _settling("release", names, None)


def settle(result: str, names: Names | None = None) -> Step:
    """Settles by the call that could claim as well."""
    more = {"result": result} | ({"error": "it failed"} if result == "fail" else {})
    return _settling("settle", names, "done" if result == "ack" else None, **more)


def reap() -> Step:
    """Takes back leases that have run out; never waits."""
    return Step("reap", lambda world, _s: world.call(f"{world.box}_reap", batch_size=100))


def extend(names: Names | None = None, *, lease: int = 600) -> Step:
    """Prolongs leases."""
    base = _settling("extend", names, None, lease_seconds=lease)
    return replace(base, then=None)


def _by_key(routine: str, name: str, gain: str | None) -> Step:
    def sql(world: World, _session: str) -> str:
        return world.call(f"{world.box}_{routine}", message_id=name, source="s")

    def then(world: World, session: str, rows: list[Row]) -> None:
        (row,) = rows
        standing = world.of(session)
        if row.get("affected") == "1" and gain:
            standing.gains[gain] += 1

    return Step(
        f"{routine} {name}",
        sql,
        then,
        may_wait_for_key=_KEYED | _ENDING | _OPERATING,
        about=frozenset({name}),
    )


def mark_processed(name: str) -> Step:
    """Marks done by the key."""
    return _by_key("mark_processed", name, "done")


def mark_dead(name: str) -> Step:
    """Gives up by the key."""
    return _by_key("mark_dead", name, None)


def mark_processing(name: str) -> Step:
    """Notes by the key that it is being processed."""
    return _by_key("mark_processing", name, None)


def already_processed(name: str) -> Step:
    """Asks by the key, and notes a first sight."""
    return _by_key("already_processed", name, None)


def start_join(name: str, steps: int | None) -> Step:
    """Begins a join; an open one without a number."""

    def then(world: World, _session: str, rows: list[Row]) -> None:
        world.joins[name] = str(rows[0]["join_id"])

    return Step(
        f"start {name}",
        lambda world, _s: world.call("join_start", tenant_id="t", expected_steps=steps),
        then,
    )


def attach(join: str, name: str) -> Step:
    """Makes a message a step; may wait for whoever works on the message or the join, and find it gone."""
    return Step(
        f"attach {name} to {join}",
        lambda world, _s: (
            world.call("join_attach", join_id=world.joins[join], message_id=world.message_ids[name])
            if name in world.message_ids
            else None
        ),
        may_wait_for=_HOLDING,
        errors=frozenset({"PB002", "PB003"}),
    )


def attach_many(join: str, *names: str) -> Step:
    """Makes messages steps, all or none."""

    def sql(world: World, _session: str) -> str | None:
        if any(name not in world.message_ids for name in names):
            return None
        chosen = ", ".join(f"'{world.message_ids[name]}'" for name in names)
        return world.call(
            "join_attach_many", join_id=world.joins[join], message_ids=Raw(f"ARRAY[{chosen}]::uuid[]")
        )

    return Step(
        f"attach_many {', '.join(names)} to {join}",
        sql,
        may_wait_for=_HOLDING,
        errors=frozenset({"PB002", "PB003"}),
    )


def cancel(*names: str) -> Step:
    """Calls messages off, so that none goes on; may wait for whoever is just moving one of them."""

    def sql(world: World, _session: str) -> str:
        ids = [world.ids[name] for name in names if name in world.ids]
        return f"{world.call(f'{world.box}_cancel', ids=ids)}; {places.going_on_text(world.box, ids)}"

    def then(_world: World, session: str, rows: list[Row]) -> None:
        if rows:
            raise BrokenError(f"{session} has called off {names}, but {rows} go on")

    return Step(
        f"cancel {', '.join(names)}",
        sql,
        then,
        may_wait_for=_HOLDING,
        may_wait_for_key=_KEYED,
        about=frozenset(names),
    )


def reschedule(*names: str, delay: float | None = None) -> Step:
    """Gives messages another due time; waits only where an inbox's callers work on the same keys."""
    return Step(
        f"reschedule {', '.join(names)} " + ("now" if delay is None else f"in {delay:g}"),
        lambda world, _s: world.call(
            f"{world.box}_reschedule",
            ids=[world.ids[name] for name in names if name in world.ids],
            due_at=None if delay is None else soon(delay),
        ),
        may_wait_for_key=_KEYED | _ENDING | _OPERATING,
        about=frozenset(names),
    )


def wait_for_join(join: str) -> Step:
    """Enqueues the message that ends the join."""

    def then(world: World, session: str, rows: list[Row]) -> None:
        world.topics.add("join.wait")
        world.ids["wait"] = int(str(rows[0]["id"]))
        world.of(session).created.append(world.ids["wait"])

    return Step(
        f"wait {join}",
        lambda world, _s: world.call("join_wait", join_id=world.joins[join]),
        then,
        may_wait_for=frozenset({"attach", "attach_many", "wait"}),
    )


def replay(name: str) -> Step:
    """Brings back a dead message; one that is not dead any more is refused."""
    return Step(
        f"replay {name}",
        lambda world, _s: world.call(f"{world.box}_replay", ids=[world.ids[name]]),
        may_wait_for=_OPERATING,
        may_wait_for_key=_KEYED,
        about=frozenset({name}),
        errors=frozenset({"PB003"}),
    )


def discard(name: str) -> Step:
    """Deletes a dead message."""

    def then(world: World, session: str, rows: list[Row]) -> None:
        world.of(session).gains["gone"] += int(str(rows[0]["affected"]))

    return Step(
        f"discard {name}",
        lambda world, _s: world.call(f"{world.box}_discard", ids=[world.ids[name]]),
        then,
        may_wait_for=_OPERATING,
        may_wait_for_key=_KEYED,
        about=frozenset({name}),
    )


def pause(topic: str) -> Step:
    """Pauses a topic; may wait for another pause or resume of it."""
    return Step(
        f"pause {topic}",
        lambda world, _s: world.call(f"{world.box}_pause", topic=topic),
        may_wait_for=frozenset({"pause", "resume"}),
    )


def resume(topic: str) -> Step:
    """Resumes a topic."""
    return Step(
        f"resume {topic}",
        lambda world, _s: world.call(f"{world.box}_resume", topic=topic),
        may_wait_for=frozenset({"pause", "resume"}),
    )


def tick() -> Step:
    """Moves the low marks as far as they may go."""
    return Step("tick", lambda world, _s: world.call(f"_{world.box}_tick"))


def fill(count: int, *, delay: float | None = None, topic: str = "others") -> Step:
    """Enqueues many plain messages."""

    def sql(world: World, _session: str) -> str:
        world.topics.add(topic)
        due = "NULL" if delay is None else soon(delay).text
        more = ", 'source', 's', 'message_id', 'other ' || n" if world.box == "inbox" else ""
        return (
            f"SELECT e.id FROM {{schema}}.{world.box}_enqueue_many((SELECT jsonb_agg(jsonb_build_object("
            f"'topic', '{topic}', 'payload', 'p', 'due_at', {due}{more}))"
            f" FROM generate_series(1, {count}) AS n)) AS e"
        )

    def then(world: World, session: str, rows: list[Row]) -> None:
        made = [int(str(row["id"])) for row in rows]
        world.of(session).created += made
        world.ids |= {f"{topic}{place}": each for place, each in enumerate(made)}

    return Step(f"fill {count} {topic}", sql, then)


def advance(seconds: float) -> Step:
    """Moves the clock on, for everybody at once."""

    def sql(world: World, _session: str) -> str:
        world.clock += seconds
        return world.call("_set_clock", offset_seconds=world.clock)

    return Step(f"advance {seconds:g}", sql, alone=True)


def all_of(session: str, *steps: Step) -> list[tuple[str, Step]]:
    """Statements of one session that come first, as one transaction."""
    return [*((session, step) for step in steps), (session, COMMIT)]


def alone(step: Step) -> Step:
    """A statement as a transaction of its own: nothing comes between it and its commit."""
    return replace(step, alone=True)


_MOVING = frozenset({"fire", "skip", "set", "unset", "due"})
"""What has a schedule in its hands; who changes one waits for that."""


def set_schedule(name: str, at: str | None = None, *, group: str | None = None, enabled: bool = True) -> Step:
    """Sets a schedule that comes every minute; without a time it keeps the one it has."""

    def sql(world: World, _session: str) -> str:
        more = {} if at is None else {"next_at": Raw(f"'{_planned(at)}'::timestamptz")}
        return world.call(
            f"{world.box}_schedule_set",
            name=name,
            topic="t",
            payload="p",
            every_seconds=60,
            group_id=group,
            enabled=enabled,
            **more,
        )

    def then(world: World, session: str, _rows: list[Row]) -> None:
        world.topics.add("t")
        to = (at or world.stands(session, name)) if enabled else None
        world.of(session).moves.append(Move(name, "set", None, to))

    return Step(f"set {name} {at or ''}".strip(), sql, then, may_wait_for=_MOVING, about=frozenset({name}))


def unset_schedule(name: str) -> Step:
    """Removes a schedule; one that is gone is no error here."""

    def sql(world: World, _session: str) -> str:
        return world.call(f"{world.box}_schedule_remove", name=name)

    def then(world: World, session: str, _rows: list[Row]) -> None:
        world.of(session).moves.append(Move(name, "removed", None, None))

    return Step(
        f"unset {name}", sql, then, may_wait_for=_MOVING, about=frozenset({name}), errors=frozenset({"PB002"})
    )


def fire(name: str, at: str, then_at: str) -> Step:
    """Fires a planned time, exactly if the schedule stands there."""

    def sql(world: World, _session: str) -> str:
        return world.call(
            f"{world.box}_schedule_fire",
            name=name,
            due_at=Raw(f"'{_planned(at)}'::timestamptz"),
            next_at=Raw(f"'{_planned(then_at)}'::timestamptz"),
        )

    def then(world: World, session: str, rows: list[Row]) -> None:
        (row,) = rows
        if row["fired"] == "t":
            world.of(session).created.append(int(str(row["id"])))
        _moved(world, session, Move(name, "fired", at, then_at), row["fired"] == "t")

    return Step(f"fire {name} {at}", sql, then, may_wait_for=_MOVING, about=frozenset({name}))


def skip(name: str, at: str, then_at: str) -> Step:
    """Passes a planned time over."""

    def sql(world: World, _session: str) -> str:
        return world.call(
            f"{world.box}_schedule_skip",
            name=name,
            due_at=Raw(f"'{_planned(at)}'::timestamptz"),
            next_at=Raw(f"'{_planned(then_at)}'::timestamptz"),
        )

    def then(world: World, session: str, rows: list[Row]) -> None:
        _moved(world, session, Move(name, "skipped", at, then_at), rows[0]["affected"] == "1")

    return Step(f"skip {name} {at}", sql, then, may_wait_for=_MOVING, about=frozenset({name}))


def due() -> Step:
    """Asks what is due; never waits."""
    return Step("due", lambda world, _session: world.call(f"{world.box}_schedule_due"))


def _planned(at: str) -> str:
    """A planned time of its own for each word, long ago: 03:00, 03:01."""
    return f"2026-01-01 {at}+00"


def _moved(world: World, session: str, move: Move, is_moved: bool) -> None:
    stands = world.stands(session, move.name)
    if is_moved != (stands == move.at):
        word = "" if is_moved else "not "
        raise BrokenError(f"{session} has {word}{move.kind} {move.name} {move.at}, which stands at {stands}")
    if is_moved:
        world.of(session).moves.append(move)
