"""Requests that are too large, too slow, or no requests at all; a database that is not there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

import pysqlbox
from pysqlbox import service
from pysqlbox.service import Limits
from pysqlbox.service.calls import Calls
from tests.service.support import is_problem, local_client

BEGIN = "/v1/inbox/try-begin"


@pytest.mark.parametrize(
    "body", ["", "{", "[" * 100_000, '{"key": NaN}', '{"key": ' + "1" * 5000 + "}", b"\xff"]
)
def test_what_is_not_json(client: TestClient, body: str | bytes) -> None:
    answer = client.post(BEGIN, content=body, headers={"content-type": "application/json"})
    assert is_problem(answer, 400, "InvalidArgument")


def test_another_content_type(client: TestClient) -> None:
    answer = client.post(BEGIN, data={"key": "k"})
    assert is_problem(answer, 415, "UnsupportedMediaType")


def test_unknown_paths_methods_and_parameters(client: TestClient) -> None:
    assert is_problem(client.get("/v2"), 404, "NotFound")
    answer = client.delete("/v1/inbox")
    assert is_problem(answer, 405, "MethodNotAllowed")
    assert "GET" in answer.headers["allow"]
    assert is_problem(client.get("/v1/inbox?x=1"), 400, "InvalidArgument")


def test_a_body_that_is_too_large(deployment: pysqlbox.Deployment) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 100

    headers = {"content-type": "application/json"}
    with local_client(service.app(deployment, limits=Limits(body_bytes=1000))) as client:
        assert is_problem(client.post(BEGIN, json={"key": "k" * 2000}), 413, "RequestEntityTooLarge")
        assert is_problem(
            client.post(BEGIN, content=endless(), headers=headers), 413, "RequestEntityTooLarge"
        )
        assert client.post(BEGIN, json={"key": "k"}).status_code == 200


def test_a_database_that_is_away(unused_port: int) -> None:
    url = f"postgresql://nobody:s3cret@127.0.0.1:{unused_port}/none"
    once = pysqlbox.Retries(attempts=1)
    with (
        pysqlbox.connect(url, connect_timeout=2, retries=once) as db,
        local_client(service.app(db)) as client,
    ):
        for answer in (client.get("/readyz"), client.post(BEGIN, json={"key": "k"})):
            assert is_problem(answer, 503, "DatabaseUnavailable")
            assert int(answer.headers["retry-after"]) >= 1
            assert "s3cret" not in answer.text
            assert "nobody" not in answer.text
        assert client.get("/healthz").status_code == 200


def test_a_call_that_takes_too_long_is_told_so_and_the_next_waits_no_longer() -> None:
    calls = Calls(Limits(threads=1, call_seconds=0.2, waiting=0))
    free = threading.Event()

    async def ask() -> None:
        with pytest.raises(service.Problem, match=r"within 0\.2 seconds") as caught:
            await calls.run(free.wait)
        assert (caught.value.status, caught.value.headers) == (503, {"retry-after": "2"})
        with pytest.raises(service.Problem, match="too many requests"):
            await calls.run(free.wait)

    try:
        asyncio.run(ask())
    finally:
        free.set()
        calls.close()
    assert asyncio.run(calls.run(lambda: 1)) == 1


def test_whoever_waits_for_a_thread_too_long_is_never_run() -> None:
    calls = Calls(Limits(threads=1, call_seconds=0.2))
    free = threading.Event()
    ran = []

    async def ask() -> None:
        first = asyncio.ensure_future(calls.run(free.wait))
        second = asyncio.ensure_future(calls.run(lambda: ran.append(1)))
        for each in await asyncio.gather(first, second, return_exceptions=True):
            assert isinstance(each, service.Problem)

    try:
        asyncio.run(ask())
    finally:
        free.set()
        calls.close()
    assert ran == []
