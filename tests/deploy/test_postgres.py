"""What only PostgreSQL has: restricted roles, poolers, grants, dependent objects."""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import psycopg
import pytest

import pysqlbox
from pysqlbox.cli import main
from pysqlbox.deploy.migrate import migrate
from pysqlbox.drivers.postgres import connect
from pysqlbox.drivers.url import parse_url
from pysqlbox.errors import AccessDenied, DatabaseUnavailable, InvalidState, PysqlboxError
from pysqlbox.names import NamedBox
from tests.deploy.release import Release
from tests.support.database import execute_once
from tests.support.engines import Engine

PGBOUNCER = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
pytestmark = pytest.mark.dialect("postgres")


@pytest.fixture
def owner_url(empty_url: str) -> Iterator[str]:
    """A role that owns the schema `infra` and may create nothing anywhere else."""
    database = urlsplit(empty_url).path.removeprefix("/")
    for statement in (
        "CREATE ROLE pysqlbox_owner LOGIN PASSWORD 'secret'",
        f"REVOKE ALL ON DATABASE {database} FROM PUBLIC",
        f"GRANT CONNECT ON DATABASE {database} TO pysqlbox_owner",
        "REVOKE ALL ON SCHEMA public FROM PUBLIC",
        "CREATE SCHEMA infra AUTHORIZATION pysqlbox_owner",
    ):
        execute_once(empty_url, statement)
    parts = urlsplit(empty_url)
    host = parts.netloc.rpartition("@")[2]
    try:
        yield parts._replace(netloc=f"pysqlbox_owner:secret@{host}").geturl()
    finally:
        for statement in ("DROP OWNED BY pysqlbox_owner CASCADE", "DROP ROLE pysqlbox_owner"):
            execute_once(empty_url, statement)


def test_role_that_owns_only_its_schema(owner_url: str) -> None:
    """No right beyond the schema is needed."""
    assert migrate(owner_url, boxes=[NamedBox("orders", "inbox")]).changes
    assert not migrate(owner_url).changes
    with pytest.raises(AccessDenied, match="permission denied for database"):
        migrate(owner_url, schema="another")


def test_says_what_it_may_see(owner_url: str, empty_url: str, release: Release) -> None:
    """An owner who is no superuser sees of others' sessions little but their number."""
    release.migrate(owner_url)
    release.view("note, id")
    with psycopg.connect(parse_url(empty_url).dsn) as holder:
        holder.execute("SELECT * FROM infra.outbox_items")
        found = rf"in use by session {holder.info.backend_pid} \(user \w+\), for infra.outbox_items"
        with pytest.raises(DatabaseUnavailable, match=found):
            release.migrate(owner_url, wait_seconds=0)


def test_grants_survive(empty_url: str, release: Release) -> None:
    """Whoever could call a routine or read a view still can, however it was created anew; nobody else."""
    release.migrate(empty_url)
    execute_once(empty_url, "CREATE ROLE pysqlbox_reader")
    try:
        execute_once(empty_url, "REVOKE ALL ON FUNCTION infra.outbox_total FROM PUBLIC")
        execute_once(empty_url, "GRANT EXECUTE ON FUNCTION infra.outbox_total TO pysqlbox_reader")
        execute_once(empty_url, "GRANT SELECT ON infra.outbox_items TO pysqlbox_reader WITH GRANT OPTION")
        release.routine("total", "renamed", "count(*)")
        release.view("note, id")
        release.migrate(empty_url)
        rows = execute_once(
            empty_url,
            "SELECT proacl::text AS acl FROM pg_proc WHERE proname = 'outbox_total' UNION ALL"
            " SELECT relacl::text FROM pg_class WHERE relname = 'outbox_items'",
        )
        assert "pysqlbox_reader=X/" in str(rows[0]["acl"])
        assert "{=X/" not in str(rows[0]["acl"])
        assert ",=X/" not in str(rows[0]["acl"])
        assert "pysqlbox_reader=r*/" in str(rows[1]["acl"])
    finally:
        execute_once(empty_url, "DROP OWNED BY pysqlbox_reader")
        execute_once(empty_url, "DROP ROLE pysqlbox_reader")


def test_foreign_view_in_the_way_is_named(empty_url: str, release: Release) -> None:
    """Somebody's own view on ours is never dropped; the error names it."""
    release.migrate(empty_url)
    execute_once(empty_url, "CREATE VIEW public.report AS SELECT id FROM infra.outbox_items")
    release.routine("total", "n", "count(*) + 1")
    assert release.migrate(empty_url).changes  # not in the way of this
    release.view("note, id")
    with pytest.raises(PysqlboxError, match="depend"):
        release.migrate(empty_url)
    assert execute_once(empty_url, "SELECT count(*) AS n FROM public.report") == [{"n": 0}]


def test_session_defaults_do_not_matter(empty_url: str, release: Release) -> None:
    """A database with its own search_path, isolation and timeouts deploys alike, without false drift."""
    database = urlsplit(empty_url).path.removeprefix("/")
    release.migrate(empty_url)
    for setting in (
        "search_path = infra, public",
        "default_transaction_isolation = serializable",
        "statement_timeout = '1s'",
    ):
        execute_once(empty_url, f"ALTER DATABASE {database} SET {setting}")
    assert not release.status(empty_url).changes
    release.second_version()
    release.write("admin/slow.sql", "SELECT pg_sleep(1.5);\n", "SELECT 1;\n")
    release.migrate(empty_url)
    release.remove("admin/slow.sql")
    release.migrate(empty_url)
    assert not release.status(empty_url).changes


def test_behind_pgbouncer_in_transaction_mode(empty_url: str) -> None:
    """Nothing outlives a transaction on the server's side."""
    if not Path(PGBOUNCER).exists():
        pytest.skip("pgbouncer is not installed")
    with pgbouncer(empty_url) as url:
        assert migrate(url).changes
        assert not migrate(url).changes
        with contextlib.closing(connect(parse_url(url))) as connection:
            locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
            assert connection.execute(locks).fetchone() == (0,)


@contextlib.contextmanager
def pgbouncer(url: str) -> Iterator[str]:
    """A pooler in transaction mode before the database; yields its URL."""
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    host = query["host"][0] if "host" in query else parts.hostname
    port = query["port"][0] if "port" in query else parts.port or 5432
    database = parts.path.removeprefix("/")
    user = parts.username or getpass.getuser()
    folder = Path(tempfile.mkdtemp(prefix="pysqlbox-pooler-"))
    listen = free_port()
    (folder / "users.txt").write_text(f'"{user}" ""\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n{database} = host={host} port={port} dbname={database} user={user}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {listen}\nauth_type = any\n"
        f"auth_file = {folder}/users.txt\npool_mode = transaction\nunix_socket_dir =\n"
        "default_pool_size = 2\nserver_reset_query =\n"
    )
    # It refuses to run as root; the server's own user may enter the folder of its socket.
    owner = Path(host).stat().st_uid if host and Path(host).is_dir() else pwd.getpwnam("nobody").pw_uid
    owner = owner if os.geteuid() == 0 else os.geteuid()
    for path in (folder, *folder.iterdir()):
        os.chown(path, owner, -1)
    process = subprocess.Popen(
        [PGBOUNCER, "-q", str(folder / "pgbouncer.ini")],
        user=owner,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        pooled = f"postgresql://{quote(user)}@127.0.0.1:{listen}/{database}"
        wait_for(pooled)
        yield pooled
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(folder)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(url: str) -> None:
    """Waits until the pooler answers."""
    deadline = time.monotonic() + 10
    while True:
        try:
            psycopg.connect(url, connect_timeout=3).close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_does_not_hold_every_text_is_refused(
    engine: Engine, capsys: pytest.CaptureFixture[str], encoding: str
) -> None:
    name = f"pysqlbox_test_{uuid.uuid4().hex[:12]}"
    engine.execute(
        f"CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    )
    try:
        url = engine.database_url(name)
        for allow in (False, True):
            with pytest.raises(InvalidState, match=rf"encoding is {encoding}.*ENCODING 'UTF8'"):
                migrate(url, allow_unfit_database=allow)
        for command in ("migrate", "status"):
            with pytest.raises(SystemExit, match="2"):
                main([command, "--url", url])
            said = capsys.readouterr().err
            assert encoding in said
            assert "restore it there" in said
        assert execute_once(url, "SELECT 1 FROM pg_namespace WHERE nspname = 'infra'") == []
    finally:
        engine.drop_database(name)


def test_the_environments_encoding_is_not_ours(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "SQL_ASCII")
    migrate(empty_url)
    with pysqlbox.connect(empty_url) as db:
        assert db.outbox.enqueue("t", "ж").outcome == "created"
        (message,) = db.outbox.claim(uuid.uuid4())
        assert message.payload == "ж"
