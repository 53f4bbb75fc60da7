"""Relays without a database: signatures, envelopes, the circuit breaker, a receiver that misbehaves."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import UUID

import pytest

from pysqlbox import DeadLetter, InvalidArgument, OutboxMessage, Release, Retry
from pysqlbox.relays import cloudevents
from pysqlbox.relays.breaker import Breaker
from pysqlbox.relays.signing import Unsigned, key_of, sign, verify
from pysqlbox.relays.webhook import Webhook

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MESSAGE = OutboxMessage(
    id=7,
    message_id=UUID("01890000-0000-7000-8000-000000000007"),
    topic="order.placed",
    payload='{"order": 7}',
    correlation_id="c",
    group_id="Änn",
    priority=0,
    headers={"traceparent": "00-a-b-01", "other": 1},
    attempt=0,
    created_at=NOW,
    due_at=None,
    expires_at=None,
    last_error=None,
    locked_until=NOW,
)


class Receiver(ThreadingHTTPServer):
    """Keeps what it gets, and answers what it is told to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.status = 200
        self.headers: dict[str, str] = {}
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_port}/hooks?a=b"


class _Answer(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.append((self.path, {name.lower(): each for name, each in self.headers.items()}, body))
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver."""
    running = Receiver()
    yield running
    running.shutdown()
    running.server_close()


def test_the_specifications_own_example() -> None:
    """What the reference libraries sign with this secret."""
    headers = sign([key_of(SECRET)], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_signature_fits_its_delivery_only() -> None:
    """Another body, id, time or secret, no headers, a replay: all refused."""
    headers = sign([key_of(SECRET)], "m", 1000, b"body")
    assert verify(headers, b"body", SECRET, now=1200) == "m"
    other = "whsec_" + base64.b64encode(b"k" * 24).decode()
    assert verify(headers, b"body", [other, SECRET], now=1000) == "m"
    assert verify(sign([key_of(other), key_of(SECRET)], "m", 1000, b""), b"", SECRET, now=1000) == "m"
    for change in (
        {"webhook-id": "n"},
        {"webhook-timestamp": "1001"},
        {"webhook-timestamp": "²"},
        {"webhook-signature": "v2" + headers["webhook-signature"][2:]},
        {"webhook-signature": ""},
    ):
        with pytest.raises(Unsigned):
            verify(headers | change, b"body", SECRET, now=1000)
    for body, secret, now in ((b"Body", SECRET, 1000), (b"body", other, 1000), (b"body", SECRET, 1301)):
        with pytest.raises(Unsigned):
            verify(headers, body, secret, now=now)
    for bad in ("whsec_short", "whsec_!", "whsec_" + base64.b64encode(b"k" * 65).decode()):
        with pytest.raises(InvalidArgument, match="secret: must"):
            key_of(bad)


def test_a_webhook_is_signed_and_acknowledged(receiver: Receiver) -> None:
    """The body is the payload; the id is the message's, the same at every try."""
    hook = Webhook(receiver.url, secret=SECRET)
    assert hook(MESSAGE) is None
    path, headers, body = receiver.got[0]
    assert path == "/hooks?a=b"
    assert body == b'{"order": 7}'
    assert headers["content-type"] == "application/json"
    assert verify(headers, body, SECRET) == str(MESSAGE.message_id)


def test_a_webhook_as_a_cloudevent(receiver: Receiver) -> None:
    """Structured: attributes and data in one object."""
    assert Webhook(receiver.url, source="/shop")(MESSAGE) is None
    _, headers, body = receiver.got[0]
    assert headers["content-type"] == "application/cloudevents+json"
    assert json.loads(body) == {
        "specversion": "1.0",
        "id": str(MESSAGE.message_id),
        "source": "/shop",
        "type": "order.placed",
        "time": "2026-01-02T03:04:05Z",
        "subject": "Änn",
        "correlationid": "c",
        "traceparent": "00-a-b-01",
        "datacontenttype": "application/json",
        "data": {"order": 7},
    }
    text = json.loads(cloudevents.structured(replace(MESSAGE, payload="no json"), "/shop"))
    assert (text["datacontenttype"], text["data"]) == ("text/plain", "no json")
    assert cloudevents.binary(MESSAGE, "/shop")["ce-subject"] == "%C3%84nn"
    with pytest.raises(InvalidArgument, match="source: must"):
        cloudevents.attributes(MESSAGE, "")


@pytest.mark.parametrize(
    "payload",
    ["1.10", "123456789012345678901234567890", "1e400", ' {"a": 1, "a": 2} ', '"Ä"', "null", "[]"],
)
def test_a_payload_that_is_json_is_the_data_as_it_stands(payload: str) -> None:
    """Digit for digit: nothing reads and writes it anew."""
    event = cloudevents.structured(replace(MESSAGE, payload=payload), "/shop")
    assert event.endswith(f'"data": {payload}}}')
    assert json.loads(event)["datacontenttype"] == "application/json"
    assert cloudevents.content_type(payload) == "application/json"


@pytest.mark.parametrize("payload", ["NaN", "[Infinity]", "{'a': 1}", "", "[" * 100_000, 'no "json"'])
def test_a_payload_that_only_looks_like_json_is_text(payload: str) -> None:
    """What Python alone reads would make of the event what no other reader takes."""
    event = json.loads(cloudevents.structured(replace(MESSAGE, payload=payload), "/shop"))
    assert (event["datacontenttype"], event["data"]) == ("text/plain", payload)
    assert cloudevents.content_type(payload).startswith("text/plain")


@pytest.mark.parametrize(
    ("status", "headers", "wanted"),
    [
        (204, {}, None),
        (410, {}, DeadLetter("HOST: 410 Gone, the receiver wants no more of these")),
        (429, {"Retry-After": "17"}, Retry(delay=17.0, error="HOST: 429 Too Many Requests")),
        (503, {"Retry-After": "999999999"}, Retry(delay=86_400.0, error="HOST: 503 Service Unavailable")),
        (503, {"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}, Retry(error="HOST: 503 Service Unavailable")),
        (
            503,
            {"Retry-After": "Mon, 01 Jan 0001 00:00:00 +2359"},
            Retry(error="HOST: 503 Service Unavailable"),
        ),
        (500, {"Retry-After": "soon"}, Retry(error="HOST: 500 Internal Server Error")),
        (400, {}, Retry(error="HOST: 400 Bad Request")),
        (302, {"Location": "http://127.0.0.1:1/"}, Retry(error="HOST: 302 Found")),
    ],
)
def test_what_an_answer_means(
    receiver: Receiver, status: int, headers: dict[str, str], wanted: object
) -> None:
    """Done, given up, or tried again; a redirect is not followed."""
    receiver.status, receiver.headers = status, headers
    found = Webhook(receiver.url)(MESSAGE)
    host = f"127.0.0.1:{receiver.server_port}"
    assert str(found).replace(host, "HOST") == str(wanted)
    assert len(receiver.got) == 1


def test_a_dead_endpoint_is_left_alone(receiver: Receiver) -> None:
    """After three failures it is asked no more for the pause; then once; an answer closes the circuit."""
    now = [0.0]
    hook = Webhook(receiver.url, breaker=lambda: Breaker(failures=3, pause=30, clock=lambda: now[0]))
    receiver.status = 500
    for _ in range(3):
        assert isinstance(hook(MESSAGE), Retry)
    assert hook(MESSAGE) == Release(delay=30.0)
    now[0] = 31
    assert isinstance(hook(MESSAGE), Retry)
    assert hook(MESSAGE) == Release(delay=60.0)
    assert len(receiver.got) == 4
    receiver.status = 200
    now[0] = 91
    assert hook(MESSAGE) is None
    assert hook(MESSAGE) is None


def test_other_endpoints_go_on(receiver: Receiver) -> None:
    """Each has its own circuit; nobody listens at the other one."""
    gone = "http://127.0.0.1:1/"
    hook = Webhook(
        lambda message: gone if message.priority else receiver.url, breaker=lambda: Breaker(failures=1)
    )
    refused = hook(replace(MESSAGE, priority=1))
    assert isinstance(refused, Retry)
    assert "127.0.0.1:1: ConnectionRefusedError" in (refused.error or "")
    assert isinstance(hook(replace(MESSAGE, priority=1)), Release)
    assert hook(MESSAGE) is None


def test_an_endpoint_that_does_not_answer_costs_its_timeout() -> None:
    """It takes the connection and says nothing."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        hook = Webhook(f"http://127.0.0.1:{silent.getsockname()[1]}/", timeout=0.2)
        began = time.monotonic()
        found = hook(MESSAGE)
        assert time.monotonic() - began < 10
    assert isinstance(found, Retry)
    assert "TimeoutError" in (found.error or "")


def test_one_caller_tries_an_open_circuit() -> None:
    """And no other one before it has reported, or as long again has passed."""
    now = [0.0]
    breaker = Breaker(failures=1, pause=10, longest_pause=15, clock=lambda: now[0])
    breaker.failed()
    assert breaker.is_open
    assert breaker.wait() == 10
    now[0] = 10
    assert (breaker.wait(), breaker.wait()) == (0, 10)
    breaker.failed()
    assert breaker.wait() == 15
    breaker.succeeded()
    assert breaker.wait() == 0
    assert breaker.wait() == 0
    with pytest.raises(InvalidArgument, match="pause: must"):
        Breaker(pause=0)


@pytest.mark.parametrize("url", ["ftp://h/", "http://", "http://me@h/", "/hooks", "http://me:pw@h/"])
def test_urls_that_are_refused(url: str) -> None:
    """At once, and what may be a secret in it is not repeated."""
    with pytest.raises(InvalidArgument, match="url: must be http") as caught:
        Webhook(url)
    assert "me" not in str(caught.value).replace("message", "")
