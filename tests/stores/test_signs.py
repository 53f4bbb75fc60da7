"""Signs of work where nothing is notified: what statistics say, of a server and of a database's tables."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg import sql

import pysqlbox
from pysqlbox import Stores
from pysqlbox.drivers import postgres
from pysqlbox.stores import survey, watcher
from pysqlbox.stores.care import StoreCare
from pysqlbox.stores.served import AFTERWARDS, StoreBox
from pysqlbox.stores.servers import Server
from pysqlbox.stores.worker import StoresWorker
from pysqlbox.worker import database_postgres
from tests.stores.support import Seen, fill
from tests.support.database import Database
from tests.worker.support import until

pytestmark = pytest.mark.dialect("postgres")
#: So long that nothing is found by asking once more.
NEVER_SOON = 100


@pytest.fixture
def silent(tenants: dict[str, Database]) -> Iterator[Stores]:
    """Three schemas of one database, whose outboxes do not notify."""
    names = [f"tenant_{number}" for number in range(3)]
    url = tenants["a"].url
    with Stores({name: pysqlbox.connect(url, schema=name, pool_size=1) for name in names}) as stores:
        try:
            assert all(report.ok for report in stores.migrate(parallel=1))
            for name in names:
                stores.get(name).outbox.configure("notify", "off")
            yield stores
        finally:
            for name in names:
                stores.get(name).close()
                tenants["a"].sql(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def boxes(worker: StoresWorker) -> list[StoreBox]:
    """What it serves."""
    run: Any = worker._run
    return [box for store in run._served.values() for box in store.boxes]


@pytest.fixture
def crowd(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> Stores:
    """Three databases to whose connections nobody listens, as where databases are more than connections."""
    monkeypatch.setattr(Server, "is_over", True)
    monkeypatch.setattr("pysqlbox.stores.run.listen", lambda *_: None)
    return stores


def rest(worker: StoresWorker, seconds: float = 3.0) -> None:
    """Waits until nothing is written in any store and nobody asks any more."""

    def claims() -> list[float]:
        return [box.began_at for box in boxes(worker)]

    before, since = claims(), time.monotonic()

    def is_at_rest() -> bool:
        nonlocal before, since
        if claims() != before:
            before, since = claims(), time.monotonic()
        return time.monotonic() - since > seconds

    until(is_at_rest, 90)


def serve(worker: StoresWorker) -> Seen:
    """Starts it, and waits until nobody expects anything."""
    seen = Seen()
    worker.add_handler("t", seen)
    worker.start()
    until(lambda: len(boxes(worker)) == 3, 60)
    until(lambda: all(box.empties > len(AFTERWARDS) for box in boxes(worker)), 60)
    return seen


def test_a_store_that_does_not_notify_is_served_by_its_servers_statistics(silent: Stores) -> None:
    worker = silent.worker(threads=2, poll_seconds=NEVER_SOON, sweep_seconds=NEVER_SOON, cleanup_seconds=None)
    try:
        seen = serve(worker)
        fill(silent.get("tenant_1"), 1)
        until(lambda: len(seen.ids["tenant_1"]) == 1, 30)
    finally:
        worker.stop(5)


def test_without_statistics_a_store_is_polled(silent: Stores) -> None:
    """A budget of two has no room for the connection that looks at them."""
    worker = silent.worker(threads=2, poll_seconds=0.2, sweep_seconds=NEVER_SOON, connections=2)
    try:
        seen = serve(worker)
        time.sleep(3)  # polling less and less often would have come to a pause of six seconds by then
        for number in range(1, 5):
            fill(silent.get("tenant_2"), 1)
            began = time.monotonic()
            until(lambda number=number: len(seen) == number, 30)  # type: ignore[misc]  # bound at once
        assert time.monotonic() - began < 4
    finally:
        worker.stop(5)


def test_a_database_with_many_boxes_is_asked_one_question(
    silent: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "FEW_BOXES", 0)
    monkeypatch.setattr(survey, "MANY_BOXES", 2)
    worker = silent.worker(threads=2, poll_seconds=NEVER_SOON, sweep_seconds=0.5, cleanup_seconds=None)
    try:
        seen = serve(worker)
        place = boxes(worker)[0].store.place
        until(lambda: place.is_surveyed, 30)
        until(lambda: all(box.next_poll > time.monotonic() + 5 for box in boxes(worker)), 30)
        fill(silent.get("tenant_2"), 1)
        until(lambda: len(seen.ids["tenant_2"]) == 1, 30)
        asked = {box.store.key: box.empties for box in boxes(worker)}
        time.sleep(2)
        others = {box.store.key: box.empties for box in boxes(worker) if box.store.key != "tenant_2"}
        assert others.items() <= asked.items(), "nobody asks those of which there is no sign"
        silent.get("tenant_0").outbox.pause("t")
        fill(silent.get("tenant_0"), 1)
        time.sleep(2)
        silent.get("tenant_0").outbox.resume("t")
        until(lambda: len(seen.ids["tenant_0"]) == 1, 30)
    finally:
        worker.stop(5)


def test_doctor_sees_that_a_worker_of_many_stores_listens(stores: Stores) -> None:
    """The session that listens claims as well, so its last statement says nothing."""
    worker = stores.worker(threads=2, cleanup_seconds=None)
    try:
        serve(worker)

        def is_known(key: str) -> bool:
            """Once it is known to be here, nobody misses its ears."""
            db = stores.get(key)
            noted = any(each.check == "listeners" and each.level == "note" for each in db.doctor())
            return bool(db.outbox.workers()) and not noted

        until(lambda: all(is_known(key) for key in "abc"), 60)
    finally:
        worker.stop(5)


def test_the_connections_of_a_store_that_fails_are_not_tried_one_by_one(
    stores: Stores, tenants: dict[str, Database]
) -> None:
    worker = stores.worker(threads=2, cleanup_seconds=None)
    try:
        seen = serve(worker)
        (place,) = (box.store.place for box in boxes(worker) if box.store.key == "a")
        server = place.server
        with contextlib.ExitStack() as stack:
            for schema in ("one", "another", "a third"):
                kept: Any = stack.enter_context(server.lend(place, schema=schema))
                kept.worker.database_name()
        free: list[Any] = [kept for kept in server._free if kept.database is place]
        lost = [kept.worker._connection for kept in free]
        assert len(lost) > 2
        tenants["a"].sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        fill(stores.get("a"), 1)
        until(lambda: len(seen.ids["a"]) == 1, 60)
        until(lambda: all(connection.closed for connection in lost), 30)
    finally:
        worker.stop(5)


@pytest.fixture
def numbers(silent: Stores, monkeypatch: pytest.MonkeyPatch) -> Stores:
    """Three schemas that are surveyed, of which statistics tell nothing at all."""
    monkeypatch.setattr(watcher, "FEW_BOXES", 0)
    monkeypatch.setattr(survey, "MANY_BOXES", 2)
    mute = database_postgres.WRITTEN.replace("pg_stat_get_", "0 * pg_stat_get_")
    monkeypatch.setattr(database_postgres, "WRITTEN", mute)
    return silent


def is_told_by_numbers(worker: StoresWorker) -> bool:
    """Whether each of its boxes waits for nothing else."""
    return all(box._is_numbered(time.monotonic()) and box.cold_at is not None for box in boxes(worker))


def numbered(stores: Stores) -> StoresWorker:
    """A worker that asks nobody without a sign, for as long as a test takes."""
    return stores.worker(threads=2, poll_seconds=NEVER_SOON, sweep_seconds=1.0, cleanup_seconds=None)


def test_the_numbers_of_messages_tell_what_statistics_do_not(numbers: Stores) -> None:
    worker = numbered(numbers)
    try:
        seen = serve(worker)
        until(lambda: is_told_by_numbers(worker), 90)
        fill(numbers.get("tenant_2"), 1)
        until(lambda: len(seen.ids["tenant_2"]) == 1, 30)
    finally:
        worker.stop(5)


def test_a_number_whose_transaction_goes_on_is_not_forgotten(numbers: Stores) -> None:
    """It was drawn long before the message shows: by then nothing changes any more."""
    worker = numbered(numbers)
    try:
        seen = serve(worker)
        until(lambda: is_told_by_numbers(worker), 90)
        (box,) = (each for each in boxes(worker) if each.store.key == "tenant_1")
        with numbers.get("tenant_1").transaction() as connection:
            numbers.get("tenant_1").outbox.enqueue("t", "", connection=connection)
            asked: set[float] = set()
            until(lambda: asked.add(box.began_at) or len(asked) > 3, 60)  # type: ignore[func-returns-value]
        until(lambda: len(seen.ids["tenant_1"]) == 1, 30)
    finally:
        worker.stop(5)


def test_a_sequence_that_somebody_has_locked_holds_up_no_other_store(
    silent: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "FEW_BOXES", 0)
    monkeypatch.setattr(survey, "MANY_BOXES", 2)
    worker = numbered(silent)
    other = postgres.connect(silent.get("tenant_0").target)
    try:
        seen = serve(worker)
        until(lambda: is_told_by_numbers(worker), 90)
        other.execute("ALTER SEQUENCE tenant_0._outbox_ids OWNED BY NONE")
        until(lambda: not is_told_by_numbers(worker), 30)
        fill(silent.get("tenant_2"), 1)
        until(lambda: len(seen.ids["tenant_2"]) == 1, 60)
        other.rollback()
        fill(silent.get("tenant_0"), 1)
        until(lambda: len(seen.ids["tenant_0"]) == 1, 60)
    finally:
        other.close()
        worker.stop(5)


def test_boxes_are_asked_one_by_one_again_when_the_question_fails(
    silent: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "MANY_BOXES", 2)
    worker = silent.worker(threads=2, poll_seconds=NEVER_SOON, sweep_seconds=0.5, cleanup_seconds=None)
    try:
        serve(worker)
        place = boxes(worker)[0].store.place
        until(lambda: place.is_surveyed, 30)
        before = {box: box.wakes for box in boxes(worker)}
        monkeypatch.setattr("pysqlbox.worker.database_postgres.WRITTEN", "SELECT no_such_column")
        until(lambda: not place.is_surveyed, 30)
        until(lambda: all(box.wakes > before[box] for box in boxes(worker)), 30)
    finally:
        worker.stop(5)


def test_statistics_tell_of_databases_that_nobody_listens_to(crowd: Stores) -> None:
    worker = crowd.worker(threads=2, poll_seconds=NEVER_SOON, sweep_seconds=NEVER_SOON, cleanup_seconds=None)
    try:
        seen = serve(worker)
        fill(crowd.get("b"), 1)
        until(lambda: len(seen.ids["b"]) == 1, 30)
    finally:
        worker.stop(5)


def test_a_database_without_any_sign_is_not_asked(crowd: Stores) -> None:
    """The sweep is a second, and still nobody asks; what is written, or becomes due, is seen all the same."""
    worker = crowd.worker(
        threads=2, sweep_seconds=1, schedule_seconds=1, reap_seconds=None, cleanup_seconds=None
    )
    try:
        seen = serve(worker)
        rest(worker)
        cares: list[StoreCare] = list(worker._run._cares.values())  # type: ignore[union-attr]  # of StoresRun
        timetables = [timetable for care in cares for timetable in care._timetables]
        looked = [timetable.looked_at for timetable in timetables]
        time.sleep(2.5)
        assert [timetable.looked_at for timetable in timetables] == looked
        a, b, c = (crowd.get(key) for key in "abc")
        a.outbox.enqueue("t", "", delay=3)
        b.outbox.pause("t")
        fill(b, 1)
        c.schedules.set("often", "t", "", every=60, next_at=datetime.now(UTC))
        rest(worker, 1)
        b.outbox.resume("t")
        until(lambda: len(seen.ids["a"]) == len(seen.ids["b"]) == len(seen.ids["c"]) == 1, 60)
    finally:
        worker.stop(5)


@pytest.mark.parametrize("why", ["it goes on", "it keeps none"])
def test_what_statistics_do_not_tell_is_found_by_the_sweep(crowd: Stores, why: str) -> None:
    """A session tells of nothing while its statement goes on, though it committed; or keeps no statistics."""
    target = crowd.get("a").target
    name = target.display.rpartition("/")[2]
    setting = sql.SQL("ALTER DATABASE {} {} track_counts").format
    worker = crowd.worker(threads=2, sweep_seconds=2, reap_seconds=None, cleanup_seconds=None)
    with contextlib.closing(postgres.connect(target, autocommit=True)) as other:
        if why == "it keeps none":
            other.execute(setting(sql.Identifier(name), sql.SQL("SET")) + sql.SQL(" = off"))
    other = postgres.connect(target, autocommit=True)
    # So long that a session which is idle for that time would have told; then the message; then it goes on.
    before, after = (watcher.TOLD_SECONDS + 3, 100) if why == "it goes on" else (0, 0)
    text = f"""
        DO $$ BEGIN
            PERFORM pg_sleep({before}); PERFORM infra.outbox_enqueue('t', '');
            COMMIT; PERFORM pg_sleep({after});
        END $$
    """
    sender = threading.Thread(target=_run, args=(other, text))
    try:
        seen = serve(worker)
        if before:
            rest(worker)
        else:
            time.sleep(4)
        sender.start()
        until(lambda: len(seen.ids["a"]) == 1, before + 30)
    finally:
        other.cancel_safe()
        sender.join()
        other.execute(setting(sql.Identifier(name), sql.SQL("RESET")))
        other.close()
        worker.stop(5)


def _run(connection: psycopg.Connection[Any], text: str) -> None:
    with contextlib.suppress(psycopg.errors.QueryCanceled):
        connection.execute(text.encode())


def test_the_guarantee_needs_no_statistics(crowd: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """However quiet statistics are, a store is asked once in a while."""
    monkeypatch.setattr("pysqlbox.stores.served.PUT_OFF", 3)
    monkeypatch.setattr(
        watcher, "QUERY", watcher.WRITTEN.format(complete="true").replace("d.tup", "0 * d.tup").encode()
    )
    monkeypatch.setattr(watcher, "WHOLE_QUERY", watcher.QUERY)
    monkeypatch.setattr(watcher.Statistics, "ask", lambda self, _: _ask_plainly(self))
    worker = crowd.worker(threads=2, sweep_seconds=1, reap_seconds=None, cleanup_seconds=None)
    try:
        seen = serve(worker)
        time.sleep(2)
        fill(crowd.get("a"), 1)
        until(lambda: len(seen.ids["a"]) == 1, 30)
    finally:
        worker.stop(5)


def _ask_plainly(statistics: watcher.Statistics) -> None:
    statistics.asked_at = time.monotonic()
    statistics._connection.pgconn.send_query_params(watcher.QUERY, [])
    statistics._connection.pgconn.flush()


def _dropped(db: Database, schema: str) -> bool:
    """Whether a schema could be dropped; a worker that talks to it may hold what has to be locked."""
    try:
        db.sql(f"DROP SCHEMA {schema} CASCADE")
    except psycopg.errors.DeadlockDetected:
        return False
    return True


def test_a_surveyed_database_tells_of_schedules_and_of_schemas_that_are_deployed_anew(
    silent: Stores, tenants: dict[str, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "FEW_BOXES", 0)
    monkeypatch.setattr(survey, "MANY_BOXES", 2)
    worker = silent.worker(
        threads=2, poll_seconds=NEVER_SOON, sweep_seconds=0.5, schedule_seconds=1, cleanup_seconds=None
    )
    try:
        seen = serve(worker)
        place = boxes(worker)[0].store.place
        until(lambda: place.is_surveyed, 30)
        rest(worker)
        silent.get("tenant_1").schedules.set("often", "t", "", every=60, next_at=datetime.now(UTC))
        until(lambda: len(seen.ids["tenant_1"]) == 1, 60)
        until(lambda: _dropped(tenants["a"], "tenant_2"), 30)
        assert silent.migrate(keys=["tenant_2"])[0].ok
        silent.get("tenant_2").outbox.configure("notify", "off")
        time.sleep(2)
        fill(silent.get("tenant_2"), 1)
        until(lambda: len(seen.ids["tenant_2"]) == 1, 60)
    finally:
        worker.stop(5)
