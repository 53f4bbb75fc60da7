"""The worker that is measured: `python -m benchmarks.stores.worker STORES OPTIONS`, both JSON.

It says `ready`, is told by lines on its standard input when to begin and when to end, and says its figures.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pysqlbox
from pysqlbox import Stores


def main(source: str, options: str) -> int:
    """Work until the second line."""
    given: dict[str, list[str]] = json.loads(Path(source).read_text())
    stores = Stores(
        {key: pysqlbox.connect(url, schema=schema, pool_size=1) for key, (url, schema) in given.items()}
    )
    worker = stores.worker(**json.loads(options))
    seen: list[tuple[str, float, float]] = []
    lock = threading.Lock()

    @worker.handler("bench")
    def handle(message: Any, context: Any) -> None:
        now = time.time()
        with lock:
            seen.append((context.store, float(message.payload), now))

    worker.start()
    print("ready", flush=True)
    sys.stdin.readline()
    began, cpu = time.time(), time.process_time()
    sys.stdin.readline()
    spent, took = time.process_time() - cpu, time.time() - began
    worker.stop(10)
    stores.close()
    waits = sorted(now - sent for _, sent, now in seen if sent >= began)
    figures = {
        "handled": len(waits),
        "p50_ms": 1000 * waits[len(waits) // 2] if waits else None,
        "p99_ms": 1000 * waits[len(waits) * 99 // 100] if waits else None,
        "longest_ms": 1000 * waits[-1] if waits else None,
        "worker_cpu": spent / took,
    }
    print(json.dumps(figures), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
