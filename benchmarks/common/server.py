"""The server that is measured: a private one with durable settings, the embedded one, or a given one."""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pysqlbox.drivers.embedded import EmbeddedServer

SYSTEM_ROOT = Path("/usr/lib/postgresql")
SETTINGS_TOLD = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "shared_buffers",
    "max_wal_size",
    "autovacuum",
)


class ServerFailedError(RuntimeError):
    """The server did not start; the message has what its programs said."""


@dataclass(frozen=True)
class Server:
    """A running server. `is_local`: its backends run on this machine, so their CPU time can be read."""

    conninfo: str
    is_local: bool

    def about(self) -> dict[str, str]:
        """Version and the settings that durability and memory hang on."""
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            told = {"version": str(connection.execute("SHOW server_version").fetchone()[0])}  # type: ignore[index]  # SHOW always answers a row
            for name in SETTINGS_TOLD:
                row = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
                told[name] = str(row[0]) if row else ""
        return told

    @contextlib.contextmanager
    def database(self, name: str) -> Iterator[str]:
        """A new database for one scenario, dropped at its end; yields how to connect to it."""
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
            connection.execute(drop)
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            try:
                yield make_conninfo(self.conninfo, dbname=name)
            finally:
                connection.execute(drop)


def newest_system_server() -> str:
    """The newest server that the system's packages installed, else the embedded one."""
    found = sorted(
        (int(path.parts[-3]), str(path.parent))
        for path in SYSTEM_ROOT.glob("*/bin/initdb")
        if path.parts[-3].isdecimal()
    )
    return found[-1][1] if found else "embedded"


@contextlib.contextmanager
def running(where: str, *, scratch: Path | None, settings: Mapping[str, str]) -> Iterator[Server]:
    """Start (or reach) what `where` names: a folder of server programs, `embedded`, or a connection URL."""
    if "://" in where or "=" in where:
        if settings:
            raise ServerFailedError("settings can only be given to a private server")
        yield Server(where, is_local=False)
        return
    folder = Path(tempfile.mkdtemp(prefix="pysqlbox-bench-", dir=scratch))
    try:
        if where == "embedded":
            with EmbeddedServer(folder / "data") as embedded:
                _change_settings(embedded.url, settings)
                yield Server(embedded.url, is_local=True)
        else:
            with _system_server(Path(where), folder, settings) as conninfo:
                yield Server(conninfo, is_local=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _change_settings(conninfo: str, settings: Mapping[str, str]) -> None:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for name, value in settings.items():
            connection.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), value))
        connection.execute("SELECT pg_reload_conf()")


@contextlib.contextmanager
def _system_server(programs: Path, folder: Path, settings: Mapping[str, str]) -> Iterator[str]:
    owner = _unprivileged_user() if os.geteuid() == 0 else None
    if owner:
        shutil.chown(folder, owner)
    data, log = folder / "data", folder / "log"
    initdb = ("-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8")
    _run(owner, str(programs / "initdb"), *initdb)
    options = ["-c listen_addresses=''", f"-c unix_socket_directories='{folder}'"]
    options += [f"-c {name}='{value}'" for name, value in settings.items()]
    control = (str(programs / "pg_ctl"), "-D", str(data), "-w")
    _run(owner, *control, "-l", str(log), "-o", " ".join(options), "start")
    try:
        yield make_conninfo(host=str(folder), user="postgres", dbname="postgres")
    finally:
        _run(owner, *control, "-m", "immediate", "stop")


def _unprivileged_user() -> str:
    """PostgreSQL refuses to run as root: the packages' own user, else nobody."""
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _run(owner: str | None, *command: str) -> None:
    """Run one of the server's programs; its output goes to a file, since a started server keeps it open."""
    user = pwd.getpwnam(owner or getpass.getuser())
    with tempfile.TemporaryFile(mode="w+") as said:
        done = subprocess.run(
            command,
            stdout=said,
            stderr=subprocess.STDOUT,
            cwd="/",
            env={"PATH": os.environ.get("PATH", ""), "HOME": "/", "LC_ALL": "C.UTF-8"},
            user=user.pw_uid if owner else None,
            group=user.pw_gid if owner else None,
            extra_groups=[] if owner else None,
            check=False,
        )
        said.seek(0)
        if done.returncode:
            raise ServerFailedError(f"{Path(command[0]).name}: {said.read().strip()[-500:]}")
