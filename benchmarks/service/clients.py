"""The two callers, each a process of its own: `… clients bare|http TARGET SECONDS CONNECTIONS`.

Each of the connections begins one new key after the other. Prints JSON: calls, seconds, and percentiles of
the time a call took, in milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import psycopg

Call = Callable[[str], Awaitable[None]]

BARE = "SELECT * FROM infra.ledger_try_begin(%s, NULL, 60)"


async def bare(target: str) -> Call:
    """The routine over a connection of its own, prepared."""
    connection = await psycopg.AsyncConnection.connect(target, autocommit=True)
    cursor = connection.cursor()

    async def call(key: str) -> None:
        await cursor.execute(BARE, [key], prepare=True)
        row = await cursor.fetchone()
        if row is None or row[0] != "Acquired":
            raise RuntimeError(f"answered {row}")

    return call


async def http(target: str) -> Call:
    """The service over a connection of its own, written and read as bytes: a client that costs little."""
    parts = urlsplit(target)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    head = (
        "POST /v1/inbox/try-begin HTTP/1.1\r\n"
        f"Host: {parts.netloc}\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )

    async def call(key: str) -> None:
        body = json.dumps({"key": key, "leaseSeconds": 60})
        writer.write((head % len(body) + body).encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        content = await reader.readexactly(length)
        if b'"Acquired"' not in content:
            raise RuntimeError(f"answered {answer!r} {content!r}")

    return call


async def measure(kind: str, target: str, seconds: float, connections: int) -> dict[str, float]:
    """Call as fast as the answers come."""
    calls = [await (bare if kind == "bare" else http)(target) for _ in range(connections)]
    run = uuid.uuid4()
    took: list[float] = []
    began = time.perf_counter()

    async def one(number: int, call: Call) -> None:
        step = 0
        while time.perf_counter() - began < seconds:
            step += 1
            start = time.perf_counter()
            await call(f"bench:{run}:{number}:{step}")
            took.append(time.perf_counter() - start)

    await asyncio.gather(*(one(number, call) for number, call in enumerate(calls)))
    elapsed = time.perf_counter() - began
    took.sort()
    shares = {f"p{share}_ms": took[int(len(took) * share / 100)] * 1000 for share in (50, 99)}
    return {"calls": len(took), "seconds": elapsed, "rate": len(took) / elapsed, **shares}


def main() -> None:
    """Measure, and print it."""
    import uvloop

    kind, target, seconds, connections = sys.argv[1:]
    found = uvloop.run(measure(kind, target, float(seconds), int(connections)))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
