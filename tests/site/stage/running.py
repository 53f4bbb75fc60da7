"""What docs/running.md takes for granted: a worker, and somebody who stops it."""

import logging
import threading
import time

import pysqlbox
import pysqlbox.logs

URL: str
db = pysqlbox.connect(URL)
worker = db.worker()


@worker.handler("order.created")
def confirm(_: dict) -> None:
    pass


def _stop_soon() -> None:
    """Ends ``worker.run()``, which else would wait for a signal."""
    while not worker.is_running:
        time.sleep(0.05)
    time.sleep(0.5)
    worker.stop()


threading.Thread(target=_stop_soon, daemon=True).start()


def serve_http() -> None:
    pass
