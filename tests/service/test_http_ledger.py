"""The ledger of a deployment and that of a service: one test body for both."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

import pytest

import pysqlbox
from pysqlbox import service
from pysqlbox.idempotent import Busy, HttpLedger, Idempotent
from pysqlbox.ledger import Ledger
from tests.service.support import TOKENS, live
from tests.support.database import Database


@dataclass
class Delivery:
    """What a broker hands over."""

    message_id: str


@pytest.fixture(params=["deployment", "service"])
def ledger(request: pytest.FixtureRequest, deployment: pysqlbox.Deployment) -> Iterator[Ledger | HttpLedger]:
    """A ledger, here or behind a service."""
    if request.param == "deployment":
        yield deployment.ledger
        return
    with (
        live(service.app(deployment, tokens=service.Tokens(TOKENS), dashboard=False)) as url,
        HttpLedger(url, "token-of-the-producer") as found,
    ):
        yield found


def test_a_key_is_taken_once_and_marked(ledger: Ledger | HttpLedger) -> None:
    claim = ledger.try_begin("a/b ключ", owner="me", lease_seconds=timedelta(minutes=1))
    assert claim
    assert claim.lease_id is not None
    assert ledger.try_begin("a/b ключ", lease_seconds=60).status == "Busy"
    assert ledger.mark_processed("a/b ключ", uuid4()) == 0
    assert ledger.get("a/b ключ").status != "Processed"
    assert ledger.mark_processed("a/b ключ", claim.lease_id) == 1
    entry = ledger.get("a/b ключ")
    assert (entry.status, entry.attempts, entry.lease_until) == ("Processed", 1, None)
    assert entry.first_seen_at is not None
    assert entry.first_seen_at.utcoffset() == timedelta(0)
    assert ledger.try_begin("a/b ключ", lease_seconds=60).status == "Processed"


def test_a_released_key_and_one_that_ran_out(ledger: Ledger | HttpLedger, db: Database) -> None:
    first = ledger.try_begin("k", lease_seconds=30)
    assert first.lease_id is not None
    assert ledger.release("k", first.lease_id) == 1
    assert ledger.release("k", first.lease_id) == 0
    assert ledger.try_begin("k", lease_seconds=30)
    db.advance(31)
    assert ledger.try_begin("k", lease_seconds=30)
    assert ledger.mark_processed("k", None) == 1
    assert ledger.get("unknown").status == "Unknown"


def test_bad_arguments(ledger: Ledger | HttpLedger) -> None:
    for bad in ("", "k" * 513):
        with pytest.raises(pysqlbox.InvalidArgument, match="key"):
            ledger.try_begin(bad, lease_seconds=30)
    for bad in ("\0", "\ud800"):  # what the driver refuses has no name
        with pytest.raises(pysqlbox.InvalidArgument):
            ledger.try_begin(bad, lease_seconds=30)
    with pytest.raises(pysqlbox.InvalidArgument, match="lease"):
        ledger.try_begin("k", lease_seconds=0)


def test_handlers_run_once(ledger: Ledger | HttpLedger) -> None:
    once = Idempotent(ledger, bus="rabbit", group="billing", lease=30)
    calls: list[str] = []

    @once("order.created")
    def handle(delivery: Delivery) -> str:
        calls.append(delivery.message_id)
        return "handled"

    @once("order.paid")
    async def handle_async(delivery: Delivery) -> str:
        calls.append(delivery.message_id)
        return "handled"

    assert [handle(Delivery("1")), handle(Delivery("1"))] == ["handled", None]
    assert asyncio.run(handle_async(Delivery("1"))) == "handled"
    assert asyncio.run(handle_async(Delivery("1"))) is None
    assert calls == ["1", "1"]
    assert once.is_processed(once.key("order.created", "1"))
    assert not once.is_processed(once.key("order.created", "2"))
    assert once.mark_processed(once.key("order.created", "2"))
    assert handle(Delivery("2")) is None


@pytest.mark.parametrize("lease", [30, None])
def test_a_handler_that_fails(ledger: Ledger | HttpLedger, lease: int | None) -> None:
    once = Idempotent(ledger, bus="rabbit", group="billing", lease=lease, release_on_error=lease is not None)
    calls = []

    @once("order.created")
    def handle(delivery: Delivery) -> None:
        calls.append(delivery.message_id)
        if len(calls) == 1:
            raise RuntimeError("once")

    with pytest.raises(RuntimeError, match="once"):
        handle(Delivery("1"))
    handle(Delivery("1"))
    # With a lease it is given back; without one it was marked before, and is not handled again.
    assert calls == ["1"] * (2 if lease else 1)


def test_one_of_many_handles_and_the_others_are_told_busy(ledger: Ledger | HttpLedger) -> None:
    once = Idempotent(ledger, bus="rabbit", group="billing", lease=30)
    inside, leave = threading.Event(), threading.Event()

    @once("order.created")
    def handle(delivery: Delivery) -> str:
        del delivery
        inside.set()
        assert leave.wait(60)
        return "handled"

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(handle, Delivery("1"))
        assert inside.wait(60)
        with pytest.raises(Busy) as caught:
            handle(Delivery("1"))
        assert caught.value.expires_at is not None
        leave.set()
        assert first.result(60) == "handled"
    assert handle(Delivery("1")) is None


def test_a_service_takes_no_connection_and_cleans_nothing(deployment: pysqlbox.Deployment) -> None:
    with live(service.app(deployment, dashboard=False)) as url, HttpLedger(url) as ledger:
        once = Idempotent(ledger, bus="b", group="g")
        with pytest.raises(pysqlbox.InvalidArgument, match="connection"):
            once.attempt("k", connection=object())
        with pytest.raises(pysqlbox.InvalidArgument, match="connection"):
            ledger.try_begin("k", connection=object())
        with pytest.raises(pysqlbox.InvalidState, match="pysqlbox cleanup"):
            once.cleanup()


def test_tokens_and_mounted_paths(deployment: pysqlbox.Deployment) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    inner = service.app(deployment, tokens=service.Tokens(TOKENS), dashboard=False)
    with live(Starlette(routes=[Mount("/queue", inner)])) as url:
        with HttpLedger(f"{url}/queue/", "token-of-the-producer") as ledger:
            assert ledger.try_begin("k")
        for token in (None, "another token", "token-of-the-viewer"):
            with HttpLedger(f"{url}/queue", token) as refused, pytest.raises(pysqlbox.AccessDenied):
                refused.try_begin("k")
        with HttpLedger(url) as elsewhere, pytest.raises(pysqlbox.NotFound):
            elsewhere.try_begin("k")


def test_many_threads_share_few_connections(deployment: pysqlbox.Deployment) -> None:
    with live(service.app(deployment, dashboard=False)) as url, HttpLedger(url) as ledger:
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda n: ledger.try_begin(f"k{n // 2}").status, range(80)))
        assert found.count("Acquired") == 40
        assert len(ledger._idle) <= 8
        kept = [connection.sock for connection, _ in ledger._idle]
        ledger.get("k1")
        assert [connection.sock for connection, _ in ledger._idle] == kept


@pytest.mark.parametrize(
    "answers", [[b"", None], [b"HTTP/1.1 503 No\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n", None]]
)
def test_what_passes_is_tried_again(answers: list[bytes | None]) -> None:
    with _scripted(answers) as (url, asked), HttpLedger(url, timeout=20) as ledger:
        assert ledger.get("k").status == "Unknown"
        assert len(asked) == 2


def test_what_does_not_pass_is_said_in_time(unused_port: int) -> None:
    ledger = HttpLedger(f"http://127.0.0.1:{unused_port}", timeout=1)
    started = time.monotonic()
    with pytest.raises(pysqlbox.DatabaseUnavailable) as caught:
        ledger.try_begin("k")
    assert isinstance(caught.value.__cause__, OSError)
    assert time.monotonic() - started < 30
    with _scripted([b"HTTP/1.1 503 No\r\nretry-after: 60\r\ncontent-length: 0\r\n\r\n"]) as (url, asked):
        with HttpLedger(url, timeout=5) as waiting, pytest.raises(pysqlbox.DatabaseUnavailable):
            waiting.try_begin("k")
        assert len(asked) == 1


def test_what_is_no_service(unused_port: int) -> None:
    for answer in (b"<html>", b"[1]"):
        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(answer)
        with (
            _scripted([head + answer]) as (url, _),
            HttpLedger(url) as ledger,
            pytest.raises(pysqlbox.PysqlboxError, match="must be that of a pysqlbox service"),
        ):
            ledger.get("k")
    for url in ("ftp://h", "http://", "http://u:p@h", "http://h?x=1", "nonsense", f"http://h:{unused_port}x"):
        with pytest.raises(pysqlbox.InvalidArgument, match="url"):
            HttpLedger(url)
    for token in ("", " x", "a\nb"):
        with pytest.raises(pysqlbox.InvalidArgument, match="token"):
            HttpLedger("http://h", token)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_opens_connections_of_its_own(deployment: pysqlbox.Deployment) -> None:
    with live(service.app(deployment, dashboard=False)) as url, HttpLedger(url) as ledger:
        ledger.get("k")
        (kept,) = ledger._idle
        ledger._pid += 1  # as if it were the parent's
        ledger.get("k")
        assert kept not in ledger._idle
        kept[0].close()


@contextmanager
def _scripted(answers: list[bytes | None]) -> Iterator[tuple[str, list[bytes]]]:
    """A server that answers one request after the other; None is what a service says of an unknown key."""
    body = b'{"status":"Unknown","attempts":0,"firstSeen":null,"lastSeen":null}'
    good = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)

        def serve() -> None:
            for answer in answers:
                client, _ = listener.accept()
                with client:
                    asked.append(client.recv(65536))
                    client.sendall(good if answer is None else answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
        thread.join(60)
