"""``pysqlbox serve``: a real process, a real socket, a server that goes away and comes back."""

from __future__ import annotations

import http.client
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from click.testing import CliRunner

from pysqlbox.cli import cli
from tests.faults import servers
from tests.service.processes import PATIENCE, Served, served, until
from tests.support.boxes import SCHEMA
from tests.support.database import Database


@pytest.fixture
def service(db: Database) -> Iterator[Served]:
    """A service of the test's database."""
    with served(url=db.url, schema=db.schema) as running:
        yield running


def test_it_serves_until_sigterm(service: Served) -> None:
    status, headers, found = service.ask("POST", "/v1/inbox/try-begin", {"key": "k"})
    assert (status, found["status"]) == (200, "Acquired")
    assert "server" not in headers
    assert service.ask("GET", "/readyz")[0] == 200
    code, said = service.stop()
    assert code == 0, said
    assert said.endswith("stopped\n")


@pytest.mark.parametrize("key", ["a%20b", "a/b", "100%", "ä?ö#ü", "."])
def test_any_key_passes_through_a_real_server(service: Served, key: str) -> None:
    service.ask("POST", "/v1/inbox/try-begin", {"key": key})
    path = "/v1/inbox/" + quote(key, safe="").replace(".", "%2E")
    assert service.ask("GET", path)[2]["status"] == "Acquired"


def test_a_request_under_way_is_answered_before_the_end(service: Served, db: Database) -> None:
    """It waits for a lock on its key; the service is told to end, then the lock is let go."""
    answers: list[tuple[int, object]] = []

    def begin() -> None:
        status, _, found = service.ask("POST", "/v1/inbox/try-begin", {"key": "k"})
        answers.append((status, found["status"]))

    with db.session() as session:
        session.call("ledger_try_begin", key="k", lease_seconds=60)
        asking = threading.Thread(target=begin)
        asking.start()
        until(lambda: _waits_for_a_lock(db), "the request never reached the database")
        service.process.send_signal(signal.SIGTERM)
        until(lambda: not _listens(service.port), "it still takes connections")
        session.commit()
    asking.join(PATIENCE)
    assert answers == [(200, "Busy")]
    assert service.stop()[0] == 0


def _waits_for_a_lock(db: Database) -> bool:
    if db.dialect == "mssql":
        found = db.sql("SELECT COUNT(*) AS n FROM sys.dm_exec_requests WHERE blocking_session_id > 0")
    else:
        found = db.sql("SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    return bool(found[0]["n"])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.dialect("postgres")
def test_a_thousand_idle_clients_hold_no_connection_of_the_database(service: Served, db: Database) -> None:
    clients = []
    try:
        for _ in range(1000):
            client = socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE)
            client.sendall(b"GET /v1/inbox HTTP/1.1\r\nHost: localhost\r\n")  # and no more
            clients.append(client)
        assert service.ask("POST", "/v1/inbox/try-begin", {"key": "k"})[2]["status"] == "Acquired"
        with psycopg.connect(db.url) as watcher:
            row = watcher.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND backend_type = 'client backend'"
            ).fetchone()
        assert row is not None
        # Of the service one or two, and those of the test.
        assert row[0] <= 6
        clients[500].sendall(b"\r\n")
        assert clients[500].recv(15) == b"HTTP/1.1 200 OK"
    finally:
        for client in clients:
            client.close()
    assert service.stop()[0] == 0


def test_a_server_that_goes_away_and_comes_back() -> None:
    known = [name for name in servers.programs() if name != "pg16"]
    if not known:
        pytest.skip("no PostgreSQL here whose server programs can be started apart")
    with (
        servers.reachable(servers.programs()[known[0]]) as programs,
        servers.temporary_folder() as folder,
        servers.server(programs, servers.make_template(programs, folder)) as server,
        served("--no-dashboard", url=server.url, schema=SCHEMA) as service,
    ):
        status, headers, found = service.ask("GET", "/readyz")
        assert (status, found["name"]) == (503, "DatabaseUnavailable")
        server.start()
        until(lambda: service.ask("GET", "/readyz")[0] == 200, "it never became ready")
        assert service.ask("POST", "/v1/inbox/try-begin", {"key": "k"})[2]["status"] == "Acquired"
        server.kill()
        status, headers, found = service.ask("POST", "/v1/inbox/try-begin", {"key": "l"})
        assert (status, found["name"]) == (503, "DatabaseUnavailable")
        assert int(headers["retry-after"]) >= 1
        assert service.ask("GET", "/healthz")[0] == 200
        server.start()
        until(lambda: service.ask("GET", "/readyz")[0] == 200, "it did not come back")
        assert service.ask("POST", "/v1/inbox/try-begin", {"key": "l"})[2]["status"] == "Acquired"
        assert service.stop()[0] == 0


def test_a_client_that_sends_slowly_is_not_waited_for_for_ever(service: Served) -> None:
    """Its connection ends with the service, which does not wait for the rest of the body."""
    client = http.client.HTTPConnection("127.0.0.1", service.port, timeout=PATIENCE)
    client.putrequest("POST", "/v1/inbox/try-begin")
    client.putheader("content-type", "application/json")
    client.putheader("content-length", "100")
    client.endheaders()
    client.send(b"{")
    assert service.ask("GET", "/healthz")[0] == 200
    assert service.stop()[0] == 0
    client.close()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--listen", "0.0.0.0:0"], "--token-file must say who may do what"),
        (["--listen", "[::]:0"], "--token-file must say who may do what"),
        (["--listen", "localhost"], "must be host:port"),
        (["--listen", "127.0.0.1:99999"], "must be host:port"),
        (
            ["--listen", "192.0.2.7:0", "--token-file", "tokens.toml"],
            "an address that is free, not 192.0.2.7",
        ),
        (["--token-file", "none.toml"], "must be readable"),
    ],
)
def test_what_it_refuses(tmp_path: Path, options: list[str], reason: str) -> None:
    tokens = '[[tokens]]\nname = "a"\nrole = "admin"\ntoken = "0123456789abcdef"\n'
    (tmp_path / "tokens.toml").write_text(tokens, encoding="utf-8")
    given = [str(tmp_path / each) if each.endswith(".toml") else each for each in options]
    result = CliRunner().invoke(cli, ["serve", "--url", "postgresql://nowhere.invalid/none", *given])
    assert result.exit_code == 2, result.output
    assert reason in " ".join(result.stderr.split())


def test_a_port_that_is_taken(unused_port: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        url = f"postgresql://127.0.0.1:{unused_port}/none"
        result = CliRunner().invoke(cli, ["serve", "--url", url, "--listen", f"127.0.0.1:{port}"])
    assert result.exit_code == 2
    assert "in use" in result.stderr
