"""Upgrading a schema in use: deployed from a release's script, migrated while clients of that release go on.

Releases that were kept (``tools/keep_schema.py``) are upgraded to this one. As long as there is none, and
after that too, this one is upgraded to a next one made up here, which changes a table, so that every routine
is dropped and created under the running clients.
"""

from __future__ import annotations

import lzma
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pysqlbox
from pysqlbox.deploy.migrate import migrate, status
from pysqlbox.deploy.script import render_script
from pysqlbox.drivers import parse_url
from pysqlbox.names import DIALECTS
from pysqlbox.paths import migrations_root, sql_root
from tests.deploy.test_script import run
from tests.support.patience import of as patience_of
from tools.keep_schema import RELEASES

KEPT = sorted({path.name.split(".postgres")[0] for path in RELEASES.glob("*.postgres.sql.xz")})
#: Producers wait once so many messages are to be handled: a migration may take minutes on a slow engine.
AHEAD = 100
ADDED = {
    "postgres": "ALTER TABLE {{ box.dead }} ADD COLUMN remark text;\n",
    "mssql": "ALTER TABLE {{ box.dead }} ADD remark nvarchar(50);\n",
}


class Traffic:
    """Two producers and a worker of the old release, which the upgrade must not disturb."""

    def __init__(self, db: pysqlbox.Deployment) -> None:
        self.db = db
        self.sent: list[int] = []
        self.handled: list[int] = []
        self.failed: list[Exception] = []
        self._over = threading.Event()
        self._lock = threading.Lock()

    def _produce(self) -> None:
        while not self._over.is_set():
            if len(self.sent) > len(self.handled) + AHEAD:
                time.sleep(0.05)
                continue
            try:
                message = self.db.outbox.enqueue("t", "x", group_id="g" if len(self.sent) % 5 == 0 else None)
            except pysqlbox.PysqlboxError as error:
                self.failed.append(error)
                return
            with self._lock:
                self.sent.append(message.id)

    def _handle(self, message: pysqlbox.OutboxMessage) -> None:
        with self._lock:
            self.handled.append(message.id)

    @contextmanager
    def running(self) -> Iterator[None]:
        """While the block runs; afterwards what was sent has been handled."""
        worker = self._worker()
        producers = [threading.Thread(target=self._produce) for _ in range(2)]
        worker.start()
        for thread in producers:
            thread.start()
        try:
            self.goes_on()
            yield
            self.goes_on()
        finally:
            self._over.set()
            for thread in producers:
                thread.join()
            worker.stop()
        patience = patience_of(self.db.target.dialect)
        deadline = time.monotonic() + 120 * patience
        while self._left():
            assert time.monotonic() < deadline, "something stays behind"
            self._worker().drain(timeout=60 * patience)
            time.sleep(0.1)

    def _worker(self) -> pysqlbox.Worker:
        """Its leases are short: a claim whose answer got lost in the upgrade comes back within the test.

        But no shorter than a claim takes: Babelfish's first one on a connection may take ten seconds.
        """
        worker = self.db.worker(threads=2, lease_seconds=int(10 * patience_of(self.db.target.dialect)))
        worker.add_handler("t", self._handle)
        return worker

    def _left(self) -> int:
        (total,) = (row for row in self.db.outbox.stats() if row.topic is None)
        return total.ready + total.scheduled + total.in_flight

    def goes_on(self) -> None:
        """Twenty more are handled."""
        wanted = len(self.handled) + 20
        deadline = time.monotonic() + 60 * patience_of(self.db.target.dialect)
        while len(self.handled) < wanted and not self.failed:
            assert time.monotonic() < deadline, "nothing is handled any more"
            time.sleep(0.02)


def check(traffic: Traffic) -> None:
    """No producer saw an error, and each message that was sent was handled: at least once, as promised."""
    assert traffic.failed == []
    assert set(traffic.handled) == set(traffic.sent)


@pytest.fixture
def following(tmp_path: Path) -> tuple[Path, Path]:
    """A next release: its sql/ and its migrations/."""
    root, migrations = tmp_path / "sql", tmp_path / "migrations"
    shutil.copytree(sql_root(), root)
    shutil.copytree(migrations_root(), migrations, ignore=shutil.ignore_patterns("__pycache__"))
    number = 1 + max(int(path.name[:4]) for path in migrations.glob("[0-9]*.py"))
    for dialect in DIALECTS:
        (root / dialect / f"tables/queue/{number:04}_remark.sql").write_text(ADDED[dialect])
    first = (migrations / "0001.tables.py").read_text()
    (migrations / f"{number:04}.remark.py").write_text(
        first.replace("apply_tables(1)", f"apply_tables({number})")
    )
    return root, migrations


def test_to_the_next_release_under_load(empty_url: str, following: tuple[Path, Path]) -> None:
    """This release's script deploys; the next release migrates while this release's clients run."""
    root, migrations = following
    run(empty_url, render_script(parse_url(empty_url).dialect))
    with pysqlbox.connect(empty_url, pool_size=4) as db:
        before = db.schema_version()
        traffic = Traffic(db)
        with traffic.running():
            plan = migrate(empty_url, root=root, migrations=migrations)
        assert len(plan.routines) > 50
        assert db.schema_version() == before + 1
        check(traffic)
    assert not status(empty_url, root=root, migrations=migrations).changes


@pytest.mark.parametrize(
    "release", KEPT or [pytest.param("", marks=pytest.mark.skip("nothing was released yet"))]
)
def test_from_a_kept_release_under_load(empty_url: str, release: str) -> None:
    """Its script deploys; this release migrates while clients run."""
    dialect = parse_url(empty_url).dialect
    run(empty_url, lzma.decompress((RELEASES / f"{release}.{dialect}.sql.xz").read_bytes()).decode())
    with pysqlbox.connect(empty_url, pool_size=4) as db:
        traffic = Traffic(db)
        with traffic.running():
            migrate(empty_url)
        check(traffic)
    assert not status(empty_url).changes
