"""pgmq: its SQL, as the PyPI package `pgmq` carries it, without the extension machinery."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from psycopg.types.json import set_json_loads

from benchmarks.peers.environments import cache_folder
from benchmarks.queue.contenders import LEASE_SECONDS, Connection, Contender, Step, id_array
from benchmarks.suite.contestants.base import (
    Ability,
    Load,
    Route,
    SqlContestant,
    connect,
    halves,
    steps_of,
    text_of,
)
from benchmarks.suite.contestants.floors import Statement, pause_until
from benchmarks.suite.runner import UnavailableError
from benchmarks.suite.server import Lab

REQUIREMENT = "pgmq>=1.1.4"
"""The first whose package has the SQL in it."""
SCRIPT = "pgmq/sql/pgmq.sql"
VERSION = "pgmq/sql/VERSION"
READS = 1
"""Where a read answers how often the message was read, this time included."""

Finish = Literal["delete", "archive"]


@dataclass(frozen=True)
class Read(Contender):
    """Read a batch, finish it."""

    batch: int
    finish: Finish
    read: str = "read"

    def session(self, connection: Any) -> Step:
        """Two calls a batch; messages stay the bytes that came, as pysqlbox's do."""
        _plain(connection)
        cursor = connection.cursor(binary=True)
        read = f"SELECT * FROM pgmq.{self.read}('work', {LEASE_SECONDS}, {self.batch})"
        finish = f"SELECT pgmq.{self.finish}('work', %s::bigint[])"

        def step() -> int:
            rows = cursor.execute(read, prepare=True).fetchall()
            if rows:
                cursor.execute(finish, [id_array(rows)], prepare=True).fetchall()
            return len(rows)

        return step


@dataclass(frozen=True)
class ReadRetry(Contender):
    """Read a batch, delete one half and make the other visible again."""

    batch: int

    def session(self, connection: Any) -> Step:
        """Three calls a batch, two where nothing is given back."""
        _plain(connection)
        cursor = connection.cursor(binary=True)
        read = f"SELECT * FROM pgmq.read('work', {LEASE_SECONDS}, {self.batch})"
        finish = "SELECT pgmq.delete('work', %s::bigint[])"
        give_back = "SELECT * FROM pgmq.set_vt('work', %s::bigint[], 0)"

        def step() -> int:
            rows = cursor.execute(read, prepare=True).fetchall()
            good, again = halves(rows, READS, before=1)
            if good:
                cursor.execute(finish, [id_array(good)], prepare=True).fetchall()
            if again:
                cursor.execute(give_back, [id_array(again)], prepare=True).fetchall()
            return len(good) or -min(len(again), 1)

        return step


def _plain(connection: Connection) -> None:
    set_json_loads(_as_it_came, connection)


def _as_it_came(data: str | bytes) -> str | bytes:
    return data


def _group(route: Route) -> str:
    """Its FIFO group, as headers."""
    return json.dumps({"x-pgmq-group": route.group})


class Pgmq(SqlContestant):
    """Finished messages are deleted."""

    name = "pgmq"
    family = "pgmq"
    source = (
        "docs/api/sql/functions.md (read, delete and send_batch with arrays), docs/fifo-queues.md "
        "(create_fifo_index), read_grouped for one group, read_grouped_head for many; a logged queue"
    )
    keeps = "deletes finished messages"
    can: ClassVar[frozenset[Ability]] = frozenset(
        {"single", "bulk", "drain", "parallel", "delay", "retry", "groups"}
    )
    remaining = "SELECT count(*) FROM pgmq.q_work"
    finish: ClassVar[Finish] = "delete"

    def prepare(self, lab: Lab) -> dict[str, str]:  # noqa: ARG002 - the server needs nothing
        """Get the package, once, and its SQL out of it."""
        folder = cache_folder() / "pgmq-sql"
        if not (folder / SCRIPT).exists():
            _download(folder)
        return {"pgmq": (folder / VERSION).read_text().strip()}

    def create(self, url: str) -> None:
        """Its SQL, and a queue."""
        with connect(url) as connection:
            connection.execute((cache_folder() / "pgmq-sql" / SCRIPT).read_bytes())
            connection.execute("SELECT pgmq.create('work')")

    def fill(self, url: str, load: Load) -> None:
        """Through send_batch."""
        began = time.monotonic()
        message = "jsonb_build_object('payload', %(payload)s::text)"
        send = f"SELECT count(*) FROM pgmq.send_batch('work', array_fill({message}, ARRAY[%(count)s]))"
        if load.groups:
            send = f"""
                SELECT count(*) FROM pgmq.send_batch('work', array_fill({message}, ARRAY[%(count)s]), ARRAY(
                    SELECT jsonb_build_object('x-pgmq-group', 'customer ' || n %% {load.groups})
                    FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n ORDER BY n
                ))"""
        if load.route:
            send = f"""
                SELECT count(*) FROM pgmq.send_batch(
                    'work', array_fill({message}, ARRAY[%(count)s]),
                    array_fill('{_group(load.route)}'::jsonb, ARRAY[%(count)s])
                )"""
        if load.due_seconds:
            # Every second one: those of a batch share their delay, and ids do not matter here.
            send = f"""
                SELECT count(*) FROM (
                    SELECT pgmq.send(
                        'work', {message}, CASE n %% 2 WHEN 1 THEN %(due)s::timestamptz ELSE now() END
                    )
                    FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n
                ) AS sent"""
        with connect(url) as connection:
            if load.groups or load.route:
                connection.execute("SELECT pgmq.create_fifo_index('work')")
            row = connection.execute("SELECT now() + %s * interval '1 s'", [load.due_seconds]).fetchall()
            values = {"payload": text_of(load.payload), "due": row[0][0]}
            for first, last in steps_of(load):
                connection.execute(
                    send.encode(), {**values, "first": first, "last": last, "count": last - first + 1}
                )
        if load.due_seconds:
            pause_until(began + load.due_seconds + 0.5)

    def single(self, url: str, payload: int) -> Contender:
        """send."""
        send = "SELECT * FROM pgmq.send('work', %s::jsonb)"
        return Statement(self.name, url, send, json.dumps({"payload": text_of(payload)}), 1)

    def bulk(self, url: str, payload: int, records: int) -> Contender:
        """send_batch."""
        message = json.dumps({"payload": text_of(payload)}).replace('"', '\\"')
        messages = "{" + ",".join([f'"{message}"'] * records) + "}"
        send = "SELECT * FROM pgmq.send_batch('work', %s::jsonb[])"
        return Statement(self.name, url, send, messages, records)

    def drain(self, url: str, batch: int) -> Contender:
        """read, delete."""
        return Read(self.name, url, batch, self.finish)

    def grouped(self, url: str, batch: int, groups: int) -> Contender:
        """read_grouped takes what it can of one group; of many groups, read_grouped_head takes one each.

        (Each does far better at its own: with 5000 groups a single read_grouped takes most of a minute.)
        """
        read = "read_grouped" if groups == 1 else "read_grouped_head"
        return Read(self.name, url, batch, self.finish, read)

    def route_bulk(self, url: str, payload: int, records: int, route: Route) -> Contender:
        """send_batch, with the group in the headers."""
        message = json.dumps({"payload": text_of(payload)}).replace('"', '\\"')
        messages = "{" + ",".join([f'"{message}"'] * records) + "}"
        headers = f"array_fill('{_group(route)}'::jsonb, ARRAY[{records}])"
        send = f"SELECT * FROM pgmq.send_batch('work', %s::jsonb[], {headers})"
        return Statement(self.name, url, send, messages, records)

    def route_drain(self, url: str, batch: int, route: Route) -> Contender:  # noqa: ARG002 - one group has no more to say
        """read_grouped."""
        return self.grouped(url, batch, 1)

    def retry(self, url: str, batch: int) -> Contender:
        """read, delete, set_vt."""
        return ReadRetry(self.name, url, batch)


class PgmqArchive(Pgmq):
    """Finished messages go to the queue's archive."""

    name = "pgmq archive"
    keeps = "moves finished messages to its archive"
    finish: ClassVar[Finish] = "archive"
    can: ClassVar[frozenset[Ability]] = frozenset({"drain", "parallel"})


def _download(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    done = subprocess.run(
        [*command, "--dest", str(folder), REQUIREMENT],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    wheels = sorted(folder.glob("pgmq-*.whl"))
    if done.returncode or not wheels:
        print(done.stderr.strip(), file=sys.stderr)  # not in the results: it may name hosts
        raise UnavailableError(f"pip download {REQUIREMENT} failed")
    with zipfile.ZipFile(wheels[-1]) as wheel:
        if SCRIPT not in wheel.namelist():
            raise UnavailableError(f"{wheels[-1].name} has no {SCRIPT}")
        for name in (VERSION, SCRIPT):
            wheel.extract(name, folder)
