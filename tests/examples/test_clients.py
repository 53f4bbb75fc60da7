"""The clients in other languages: each sends in a transaction, claims what it sent, and settles it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

import pysqlbox
from pysqlbox.drivers.mssql import query, run_batch
from pysqlbox.drivers.url import read_odbc
from tests.examples.support import EXAMPLES
from tests.support.database import Database
from tests.worker.proxy import Proxy

CLIENTS = EXAMPLES / "clients"
JARS = [Path("/usr/share/java/postgresql.jar")]
#: Where Debian puts the sources of Go's packages, and those that the client imports.
GO_PATH = Path("/usr/share/gocode")
GO_PACKAGES = ("github.com/lib/pq", "github.com/google/uuid")
PSQL = shutil.which("psql")


@pytest.fixture
def shop(database: Callable[[str], str], request: pytest.FixtureRequest) -> Iterator[pysqlbox.Deployment]:
    """A deployed database with a table of orders."""
    with pysqlbox.connect(database(request.node.name)) as db:
        db.migrate()
        with db.connection() as connection:
            connection.execute("CREATE TABLE orders (id serial PRIMARY KEY, customer text NOT NULL)")
        yield db


def client(*command: str | Path, **env: str) -> str:
    """What a client prints."""
    done = subprocess.run(
        [*map(str, command)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


#: What npm is asked for where neither Debian nor anybody else has brought it.
NODE_PACKAGES = {"pg": "pg@8", "tedious": "tedious@19"}


def node(file: str, package: str, *, schema: str = "infra", **env: str) -> str:
    """Runs a client of Node, or skips where it or its driver cannot be had."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not installed")
    folders = [Path(each) for each in os.environ.get("NODE_PATH", "").split(os.pathsep) if each]
    folders += [CLIENTS / "node/node_modules", Path("/usr/share/nodejs")]
    found = next((folder for folder in folders if (folder / package).is_dir()), None) or fetched(package)
    # Modules in the new syntax are not looked up in NODE_PATH, so the client runs beside its packages.
    with tempfile.TemporaryDirectory() as folder:
        text = (CLIENTS / "node" / file).read_text().replace("infra.", f"{schema}.")
        (Path(folder) / file).write_text(text)
        (Path(folder) / "node_modules").symlink_to(found)
        return client(program, Path(folder) / file, **env)


def fetched(package: str) -> Path:
    """A folder of the user's cache with a package from npm; skips where npm cannot fetch it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pysqlbox" / "node"
    home = cache / NODE_PACKAGES[package]
    npm = shutil.which("npm")
    if not home.exists():
        if npm is None:
            pytest.skip(f"Node's package {package} is not installed, and neither is npm")
        cache.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix="draft-", dir=cache))
        try:
            # Nothing of the package runs while it is installed.
            command = [npm, "install", "--prefix", str(draft), "--ignore-scripts", "--no-audit", "--no-fund"]
            done = subprocess.run(
                [*command, NODE_PACKAGES[package]], capture_output=True, text=True, timeout=120, check=False
            )
            if done.returncode != 0:
                pytest.skip(f"npm cannot fetch {package}: {(done.stderr.splitlines() or ['no message'])[-1]}")
            with contextlib.suppress(OSError):  # another process was quicker
                draft.rename(home)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return home / "node_modules"


def check(db: pysqlbox.Deployment, said: str) -> None:
    """One order, one message, and that is done."""
    assert "1 handled" in said
    assert "Ann" in said
    (total,) = (row for row in db.outbox.stats() if row.topic is None)
    assert (total.done, total.ready, total.in_flight) == (1, 0, 0)
    with db.connection() as connection:
        assert connection.execute("SELECT customer FROM orders").fetchall() == [("Ann",)]


def test_psql(shop: pysqlbox.Deployment) -> None:
    """psql alone."""
    if PSQL is None:
        pytest.skip("psql is not installed")
    check(shop, client(PSQL, "-X", shop.target.dsn, "-f", CLIENTS / "sql/client.psql"))


def test_node(shop: pysqlbox.Deployment) -> None:
    """pg."""
    check(shop, node("client.mjs", "pg", DATABASE_URL=shop.target.dsn))


def test_java(shop: pysqlbox.Deployment, tmp_path: Path) -> None:
    """JDBC, which speaks TCP only, so that the server's socket gets a port."""
    java, compiler = shutil.which("java"), shutil.which("javac")
    jar = next((jar for jar in JARS if jar.exists()), None)
    if java is None or compiler is None or jar is None:
        pytest.skip("a JDK or PostgreSQL's JDBC driver (Debian: libpostgresql-jdbc-java) is not installed")
    url = urlsplit(shop.target.dsn)
    client(compiler, "-d", tmp_path, CLIENTS / "java/Client.java")
    with contextlib.closing(Proxy(_socket(shop), lambda _: None)) as proxy:
        said = client(
            java, "-cp", f"{jar}{os.pathsep}{tmp_path}", "Client",
            DATABASE_URL=f"jdbc:postgresql://127.0.0.1:{proxy.port}{url.path}?user={url.username}",
        )  # fmt: skip
    check(shop, said)


def test_go(shop: pysqlbox.Deployment, tmp_path: Path) -> None:
    """database/sql with lib/pq, both of Debian."""
    go = shutil.which("go")
    if go is None or not all((GO_PATH / "src" / name).is_dir() for name in GO_PACKAGES):
        pytest.skip(
            "Go, lib/pq or google/uuid (Debian: golang-github-lib-pq-dev, …-google-uuid-dev) is missing"
        )
    offline = {"GOPATH": str(GO_PATH), "GO111MODULE": "off", "GOFLAGS": "", "CGO_ENABLED": "0"}
    program = tmp_path / "client"
    client(go, "build", "-o", program, CLIENTS / "go/client.go", **offline, GOCACHE=str(_go_cache()))
    check(shop, client(program, DATABASE_URL=shop.target.dsn))


def _go_cache() -> Path:
    """Go's own cache, or ours where there is no home: compiling the standard library takes half a minute."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pysqlbox" / "go"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def _socket(db: pysqlbox.Deployment) -> str:
    url = urlsplit(db.target.dsn)
    return f"{parse_qs(url.query)['host'][0]}/.s.PGSQL.{url.port or 5432}"


@pytest.fixture
def mssql_shop(db: Database) -> Iterator[pysqlbox.Deployment]:
    """The deployment of the T-SQL engine, with a table of orders."""
    with pysqlbox.connect(db.url, schema=db.schema) as found:
        with found.connection() as connection:
            run_batch(
                connection, "CREATE TABLE dbo.orders (id int IDENTITY PRIMARY KEY, customer nvarchar(100))"
            )
        try:
            yield found
        finally:
            with found.connection() as connection:
                run_batch(connection, "DROP TABLE dbo.orders")


def check_mssql(db: pysqlbox.Deployment) -> None:
    """One order, one message, and that is done."""
    (total,) = (row for row in db.outbox.stats() if row.topic is None)
    assert (total.done, total.ready, total.in_flight) == (1, 0, 0)
    with db.connection() as connection:
        assert [tuple(row) for row in query(connection, "SELECT customer FROM dbo.orders")] == [("Ann",)]


@pytest.mark.dialect("mssql")
def test_sqlcmd(mssql_shop: pysqlbox.Deployment) -> None:
    """Its statements, through ODBC."""
    text = (CLIENTS / "sql/client.sqlcmd").read_text()
    with mssql_shop.connection() as connection:
        run_batch(connection, text.replace("infra.", f"{mssql_shop.schema}."))
    check_mssql(mssql_shop)


@pytest.mark.dialect("mssql")
def test_tedious(mssql_shop: pysqlbox.Deployment) -> None:
    """tedious, on the deployment's own schema."""
    entries = {key.lower(): value for key, value in read_odbc(mssql_shop.target.dsn).items()}
    server, _, port = entries["server"].removeprefix("tcp:").partition(",")
    said = node(
        "client-mssql.mjs",
        "tedious",
        schema=mssql_shop.schema,
        MSSQL_SERVER=server,
        MSSQL_PORT=port or entries.get("port", "1433"),
        MSSQL_USER=entries["uid"],
        MSSQL_PASSWORD=entries["pwd"],
        MSSQL_DATABASE=entries["database"],
    )
    assert "order of Ann" in said
    assert "1 handled" in said
    check_mssql(mssql_shop)
