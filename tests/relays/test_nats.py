"""The relay to NATS, against a real server: confirmed, in its group's order, back when nobody confirms."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pysqlbox
from tests.examples.support import free_port
from tests.support.database import Database


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A NATS server with a JetStream that takes the subjects order.*"""
    pytest.importorskip("nats", reason="nats-py is not installed")
    program = shutil.which("nats-server", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.skip("nats-server is not installed")
    port = free_port()
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("w+") as log:
        command = [program, "-js", "-sd", folder, "-a", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            asyncio.run(_create_stream(f"nats://127.0.0.1:{port}"))
            yield f"nats://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


async def _create_stream(url: str) -> None:
    import nats
    from nats.errors import NoServersError

    deadline = time.monotonic() + 30
    while True:
        try:
            client = await nats.connect(url, max_reconnect_attempts=1, allow_reconnect=False)
            break
        except (NoServersError, OSError):
            assert time.monotonic() < deadline, "the server does not start"
            await asyncio.sleep(0.1)
    await client.jetstream().add_stream(name="orders", subjects=["order.*"])
    await client.close()


async def _kept(url: str) -> list[Any]:
    """All that the stream holds, and empties it."""
    import nats

    client = await nats.connect(url)
    stream = client.jetstream()
    subscription = await stream.subscribe("order.*", ordered_consumer=True)
    count = (await stream.stream_info("orders")).state.messages
    found = [await subscription.next_msg(timeout=10) for _ in range(count)]
    await stream.purge_stream("orders")
    await client.close()
    return found


@pytest.mark.dialect("postgres")
def test_batches_are_confirmed_in_the_order_of_their_groups(db: Database, server: str) -> None:
    """What the stream has kept is done; what none takes is tried again, and its group waits behind it."""
    from pysqlbox.relays.nats import Nats

    with pysqlbox.connect(db.url, schema=db.schema) as deployment:
        outbox = deployment.outbox
        for number in range(40):
            outbox.enqueue("order.placed", {"n": number}, group_id=f"g{number % 4}")
        for number in range(3):
            outbox.enqueue("nobody.takes", {"n": number}, group_id="other")
        relay = Nats(server, source="/shop", timeout=5)
        worker = deployment.worker(threads=2)
        worker.on_stop(relay.close)
        for topic in ("order.placed", "nobody.takes"):
            worker.add_handler(topic, relay, batch=True)
        worker.drain(timeout=60)
        (total,) = (row for row in outbox.stats() if row.topic is None)
        assert (total.done, total.ready + total.scheduled, total.dead) == (40, 3, 0)
        first, *behind = (message.attempt for message in outbox.list("Ready", topic="nobody.takes"))
        assert first >= 1, "tried again as often as a slow machine's drain lasts"
        assert behind == [0, 0]

    kept = asyncio.run(_kept(server))
    assert {message.headers["ce-type"] for message in kept} == {"order.placed"}
    assert {message.headers["content-type"] for message in kept} == {"application/json"}
    by_group: dict[str, list[bytes]] = {}
    for message in kept:
        by_group.setdefault(message.headers["ce-subject"], []).append(message.data)
    assert by_group == {
        f"g{group}": [f'{{"n":{number}}}'.encode() for number in range(group, 40, 4)] for group in range(4)
    }


@pytest.mark.dialect("postgres")
def test_what_is_told_twice_is_kept_once(db: Database, server: str) -> None:
    """A worker that dies between confirmation and ack sends again; the stream knows the id."""
    from pysqlbox.relays.nats import Nats

    with pysqlbox.connect(db.url, schema=db.schema) as deployment:
        deployment.outbox.enqueue("order.placed", {"n": 1})
        (message,) = deployment.outbox.claim(uuid.uuid4())

        async def twice() -> list[pysqlbox.Result]:
            relay = Nats(server)
            results = await relay([message]) + await relay([message])
            await relay.close()
            return results

        assert asyncio.run(twice()) == [pysqlbox.Ack(), pysqlbox.Ack()]
    assert len(asyncio.run(_kept(server))) == 1
