"""The disk is full for a while: errors are errors, nothing confirmed is lost, and all goes on afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from pysqlbox.errors import PysqlboxError
from tests.faults.figures import Figures
from tests.faults.load import Load, is_expected
from tests.faults.servers import (
    SECONDS,
    Programs,
    Server,
    deploy_books,
    own,
    server,
    temporary_folder,
    wait_until,
)
from tests.faults.verdict import conclude

SIZE = "160m"
TIMES = max(2, int(SECONDS / 20))
_FULL = ("53100", "58030")
"""disk_full, and io_error: what becomes of it where a file was extended before it was written."""


@contextlib.contextmanager
def small_disk() -> Iterator[Path]:
    """A file system in memory that is soon full; skips where none may be mounted."""
    with temporary_folder() as folder:
        disk = folder / "disk"
        disk.mkdir()
        mounted = (
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0700", "tmpfs", str(disk)],
                capture_output=True,
                text=True,
                check=False,
            )
            if shutil.which("mount")
            else None
        )
        if mounted is None or mounted.returncode:
            why = mounted.stderr.strip().splitlines()[0] if mounted and mounted.stderr.strip() else "no mount"
            pytest.skip(f"no small file system can be mounted here, which mostly takes root: {why}")
        try:
            own(disk)
            yield disk
        finally:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)


@contextlib.contextmanager
def filled(disk: Path) -> Iterator[None]:
    """The disk with no room left, until the end of the block."""
    ballast = disk / "ballast"
    # Unbuffered: what could not be written would be tried again when the file is closed.
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"\0" * 4096):
            pass
    assert shutil.disk_usage(disk).free < 65536
    try:
        yield
    finally:
        ballast.unlink()


def is_full(error: Exception) -> bool:
    """Whether it is one that clients must reckon with here."""
    cause = error.__cause__ if isinstance(error, PysqlboxError) else error
    return is_expected(error) or (isinstance(cause, psycopg.Error) and cause.sqlstate in _FULL)


def test_tables_cannot_grow(known: Programs, record: Callable[[Figures], None]) -> None:
    """The tables' disk is full, the log's is not: the server stays up, refuses, and goes on by itself."""
    with small_disk() as disk, server(known) as running:
        _create(running, disk, running.folder / "wal")
        with Load(running.url, expects=is_full) as load:
            for _ in range(TIMES):
                load.hold(150, SECONDS / TIMES)
                before = load.refusals
                with filled(disk):
                    wait_until(lambda least=before + 5: load.refusals >= least, "nobody noticed")  # type: ignore[misc]
                assert running.is_running()
            load.hold(150)
        figures = Figures("disk of the tables full", known.id, faults=TIMES)
        record(conclude(running, load, figures))


def test_the_log_cannot_grow(known: Programs, record: Callable[[Figures], None]) -> None:
    """The log's disk is full: the server goes down, and once there is room it starts and goes on."""
    with small_disk() as disk, server(known, wal_recycle="off", max_wal_size="64MB") as running:
        _create(running, running.folder / "data", disk / "wal")
        with Load(running.url, expects=is_full) as load:
            for _ in range(TIMES):
                load.hold(150, SECONDS / TIMES)
                with filled(disk):
                    wait_until(lambda: not running.answers(), "the server has room for its log")
                wait_until(lambda: running.answers() or _restarted(running), "the server does not come back")
            load.hold(150)
        figures = Figures("disk of the log full", known.id, faults=TIMES)
        record(conclude(running, load, figures))


def _restarted(running: Server) -> bool:
    """What a service manager does."""
    if running.is_running():
        return False
    return running.try_start()


def _create(running: Server, data: Path, wal: Path) -> None:
    """A deployed server whose files and log lie where they are told to."""
    if data != running.data:
        data = data / "data"
        os.symlink(data, running.data)
    running.run(
        "initdb",
        *("-D", data, "-X", wal, "--wal-segsize=1"),
        *("-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"),
    )
    running.start()
    deploy_books(running.url)
