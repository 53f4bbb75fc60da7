"""``migrate`` and ``status``: a deployment from its connection to its report."""

from __future__ import annotations

import contextlib
import glob
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pysqlbox.deploy import fitness
from pysqlbox.deploy.plan import Deployment, Plan
from pysqlbox.deploy.steps import current, open_store
from pysqlbox.deploy.store import Store
from pysqlbox.deploy.waiting import FIRST_PAUSE, LOCK_SECONDS, LONGEST_PAUSE, Blocked, is_blocked, watching
from pysqlbox.drivers import Target, driver_for, parse_url
from pysqlbox.errors import DatabaseUnavailable
from pysqlbox.extras import needed_for
from pysqlbox.names import NamedBox, check_schema_name
from pysqlbox.paths import migrations_root
from pysqlbox.places import check_place
from pysqlbox.wording import counted

logger = logging.getLogger(__name__)


def migrate(
    url: str | Target,
    *,
    schema: str = "infra",
    boxes: Iterable[NamedBox] = (),
    roles: bool = False,
    dry_run: bool = False,
    root: Path | None = None,
    migrations: Path | None = None,
    test_clock: bool = False,
    allow_unfit_database: bool = False,
    wait_seconds: float = 60,
    on_wait: Callable[[str], None] = logger.warning,
    place: int | None = None,
) -> Plan:
    """Deploy a schema, or bring a deployed one up to date, in one transaction; answer what was done.

    ``boxes`` are added to the default ones and to those deployed earlier. ``place`` numbers the deployment
    from 0 to 127, once for good; later calls may leave it out. ``root`` and ``migrations`` take
    the place of the release's own ``sql/`` and ``migrations/``. ``allow_unfit_database`` deploys although the
    database's settings lack what T-SQL's routines need; the plan's warnings then say what. Where a table or
    view is in use, it tries again for ``wait_seconds``, and tells ``on_wait`` each time who was in the way.
    """
    directory = migrations or migrations_root()
    target = parse_url(url) if isinstance(url, str) else url
    wanted = list(boxes)
    number = check_place(place)

    def attempt(store: Store) -> Plan:
        warnings = fitness.require(store, allow=allow_unfit_database or dry_run)
        deployment = Deployment(
            store,
            boxes=wanted,
            roles=roles,
            root=root,
            migrations=directory,
            test_clock=test_clock,
            place=number,
        )
        deployment.plan.warnings = warnings
        if not dry_run and deployment.plan.changes:
            _run(deployment, directory)
        return deployment.plan

    if dry_run:
        with _transaction(target, schema) as store:
            return attempt(store)
    return _until_free(target, schema, attempt, wait_seconds, on_wait)


def _until_free(
    target: Target,
    schema: str,
    attempt: Callable[[Store], Plan],
    wait_seconds: float,
    on_wait: Callable[[str], None],
) -> Plan:
    """Attempt until no lock is in the way; what was done is undone before each pause."""
    began = time.monotonic()
    pause = FIRST_PAUSE
    while True:
        try:
            with _transaction(target, schema) as store, watching(target, store.session()) as watcher:
                store.lock()
                store.limit_waits(LOCK_SECONDS)
                return attempt(store)
        except Blocked as error:
            waited = time.monotonic() - began
            if waited + pause > wait_seconds:
                raise DatabaseUnavailable(
                    f"{target}: schema {schema!r} is in use by {watcher.seen}; gave up after"
                    f" {counted(round(waited), 'second')}, and nothing was changed; wait longer (--wait),"
                    " or end that session"
                ) from error.__cause__
            on_wait(f"schema {schema!r} is in use by {watcher.seen}; trying again in {pause:g} s")
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def status(
    url: str | Target,
    *,
    schema: str = "infra",
    root: Path | None = None,
    migrations: Path | None = None,
    test_clock: bool = False,
) -> Plan:
    """Compare a schema with the release, without a lock and without changing anything."""
    return migrate(url, schema=schema, dry_run=True, root=root, migrations=migrations, test_clock=test_clock)


def _run(deployment: Deployment, directory: Path) -> None:
    """Let yoyo apply the pending migrations; then whatever boxes added later lack, and the routines."""
    with needed_for("deploying", "deploy"):
        from yoyo import read_migrations

    from pysqlbox.deploy.backends import joined_backend

    if deployment.plan.schema:
        deployment.store.create_schema()
    token = current.set(deployment)
    try:
        backend = joined_backend(deployment.store)
        pending = backend.to_apply(read_migrations(glob.escape(str(directory))))
        for migration in pending:
            migration.load()  # a broken one ends the deployment, where yoyo would pass over it
        backend.apply_migrations_only(pending)
        deployment.apply_tables()
        deployment.apply_routines()
        deployment.apply_place()
    finally:
        current.reset(token)


@contextlib.contextmanager
def _transaction(url: str | Target, schema: str) -> Iterator[Store]:
    """A store on a connection of its own: committed at the end, rolled back on any error."""
    target = parse_url(url) if isinstance(url, str) else url
    check_schema_name(target.dialect, schema)
    driver = driver_for(target.dialect)
    connection = driver.connect(target)
    try:
        store = open_store(connection, schema)
        store.begin()
        yield store
        connection.commit()
    except driver.database_error() as error:
        if is_blocked(target.dialect, error):
            raise Blocked(f"{target}: schema {schema!r} is in use") from error
        if getattr(error, "sqlstate", None) == "53200":
            raise DatabaseUnavailable(
                f"{target}: out of shared memory; a deployment locks every table it creates:"
                " add fewer boxes at a time, or raise max_locks_per_transaction"
            ) from error
        raise driver.map_error(error, target) from error
    finally:
        connection.close()  # without a commit this rolls back
