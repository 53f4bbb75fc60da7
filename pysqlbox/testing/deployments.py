"""The deployment behind the fixture ``pysqlbox_deployment``: made once a session, emptied for each test."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from pysqlbox.deploy.store import lock_key
from pysqlbox.deployment import Deployment
from pysqlbox.drivers import Target, parse_url
from pysqlbox.drivers.embedded import EmbeddedServer
from pysqlbox.errors import DriverMissing, InvalidState
from pysqlbox.names import NamedBox, parse_box
from pysqlbox.testing.dropping import drop_schema
from pysqlbox.testing.emptying import Emptier
from pysqlbox.worker import Worker

__all__ = ["TestDeployment", "deployed"]

#: What a test has left open is waited for so long, then it is an error that names the lock.
LOCK_SECONDS = 10
#: The application's own workers are asked to end, and given so long.
STOP_SECONDS = 5.0
#: Where tests bring their own server, the schema is one that nobody else has.
SCHEMA_ON_A_SERVER = "pysqlbox_test"
_PATIENCE = {
    "postgres": f"SET lock_timeout = '{LOCK_SECONDS}s';\n",
    "mssql": f"SET NOCOUNT ON;\nSET LOCK_TIMEOUT {LOCK_SECONDS * 1000};\n",
}


class TestDeployment(Deployment):
    """A deployment that knows its workers."""

    __test__ = False  # not a class of tests

    def __init__(self, target: Target, **options: Any) -> None:
        super().__init__(target, **options)
        self._workers: list[weakref.ref[Worker]] = []

    def worker(self, **options: Any) -> Worker:
        """See Deployment.worker; it is stopped at the end of the test if it still runs."""
        worker = super().worker(**options)
        self._workers.append(weakref.ref(worker))
        return worker

    def stop_workers(self) -> None:
        """Stop those that still run."""
        workers, self._workers = self._workers, []
        for reference in workers:
            worker = reference()
            if worker is not None and worker.is_running:
                worker.stop(STOP_SECONDS)


class Deployed:
    """A deployment that can be emptied."""

    def __init__(self, db: TestDeployment, raw: Any) -> None:
        self.db = db
        self._raw = raw
        dialect = db.target.dialect
        self._emptier = Emptier(raw, dialect, db.schema, before=_PATIENCE[dialect])

    def fresh(self) -> TestDeployment:
        """The deployment as it was when it was made."""
        self._emptier.restore(self._raw)
        return self.db


@contextlib.contextmanager
def deployed(
    url: str | None, *, schema: str | None = None, boxes: Sequence[str] = (), worker_id: str | None = None
) -> Iterator[Deployed]:
    """A new deployment: on a private server, or in a schema of its own of the database that ``url`` names.

    ``worker_id`` tells apart those who test in the same database at the same time.
    """
    named = [parse_box(each) for each in boxes]
    if url is None:
        with _private_server() as target, _deployed(target, schema or "infra", named) as found:
            yield found
        return
    target = parse_url(url)
    name = schema or SCHEMA_ON_A_SERVER
    if worker_id is not None:
        name = f"{name}_{worker_id}"
    with _own_schema(target, name), _deployed(target, name, named) as found:
        yield found


@contextlib.contextmanager
def _private_server() -> Iterator[Target]:
    server = EmbeddedServer(temporary=True)
    try:
        url = server.start()
    except DriverMissing as error:
        raise DriverMissing(
            "pysqlbox_deployment needs a server: pip install 'pysqlbox[embedded]', or set PYSQLBOX_TEST_URL"
        ) from error
    try:
        yield parse_url(url)
    finally:
        server.stop()


@contextlib.contextmanager
def _deployed(target: Target, schema: str, boxes: list[NamedBox]) -> Iterator[Deployed]:
    with TestDeployment(target, schema=schema, store="test") as db:
        db.migrate(boxes=boxes, test_clock=True)
        raw = db.driver.connect(target, autocommit=True)
        try:
            yield Deployed(db, raw)
        finally:
            db.stop_workers()
            raw.close()


@contextlib.contextmanager
def _own_schema(target: Target, schema: str) -> Iterator[None]:
    """A schema that is not there yet, or was left by earlier tests; dropped at the end."""
    with Deployment(target, schema=schema) as db:
        raw = db.driver.connect(target, autocommit=True)
        try:
            if not _lock(raw, target, schema):
                raise InvalidState(
                    f"schema {schema!r} of {target}: other tests use it now; set pysqlbox_schema"
                )
            is_there = db.driver.has_routine(raw, schema, "schema_version")
            if is_there and not db.driver.has_routine(raw, schema, "_set_clock"):
                raise InvalidState(
                    f"schema {schema!r} of {target}: was not deployed for tests, which would empty it:"
                    " use another one"
                )
            drop_schema(raw, target.dialect, schema)
            yield
            drop_schema(raw, target.dialect, schema)
        finally:
            raw.close()


def _lock(raw: Any, target: Target, schema: str) -> bool:
    """Keep others from the schema until the connection is closed."""
    if target.dialect == "postgres":
        row = raw.execute("SELECT pg_try_advisory_lock(%s::bigint)", [lock_key(f"test {schema}")]).fetchone()
        return bool(row[0])
    batch = (
        "DECLARE @result int; EXEC @result = sys.sp_getapplock @Resource = ?, @LockMode = N'Exclusive',"
        " @LockOwner = N'Session', @LockTimeout = 0; SELECT @result AS result;"
    )
    return int(raw.execute(batch, f"pysqlbox test {schema}").fetchone()[0]) >= 0
