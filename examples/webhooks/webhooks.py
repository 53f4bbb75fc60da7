"""A receiver of webhooks in plain WSGI: each delivery is kept once, and handled after it was answered.

PYSQLBOX_URL says where. Any WSGI server takes ``application``; so does Flask's or Django's dispatcher.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import make_server

import pysqlbox
from pysqlbox.worker import Context

db = pysqlbox.connect()
worker = db.worker(boxes=["inbox"], threads=2)


@worker.handler("payment.received", transactional=True)
def book(message: pysqlbox.InboxMessage, context: Context) -> None:
    """The booking and the message's end are one transaction: no payment is booked twice."""
    payment = json.loads(message.payload)
    context.connection.execute(
        "INSERT INTO payment (reference, cents) VALUES (%s, %s)", (payment["reference"], payment["cents"])
    )


def receive(environ: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Keeps a delivery. The sender may repeat it as often as it likes: its id is known by then."""
    identity = environ.get("HTTP_WEBHOOK_ID")
    if not identity:
        return "400 Bad Request", {"error": "the header Webhook-Id is missing"}
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)).decode()
    kept = db.inbox.enqueue("payment.received", source="bank", message_id=identity, payload=body)
    return "202 Accepted", {"outcome": kept.outcome}


def totals() -> tuple[str, dict[str, Any]]:
    """What is booked."""
    with db.connection() as connection:
        row = connection.execute("SELECT count(*), coalesce(sum(cents), 0) FROM payment").fetchone()
    return "200 OK", {"payments": row[0], "cents": int(row[1])}


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """The WSGI application."""
    route = environ["REQUEST_METHOD"], environ["PATH_INFO"]
    if route == ("POST", "/webhooks"):
        status, answer = receive(environ)
    elif route == ("GET", "/totals"):
        status, answer = totals()
    else:
        status, answer = "404 Not Found", {"error": "there are POST /webhooks and GET /totals"}
    start_response(status, [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]


def main(port: int) -> None:
    """Serves until SIGTERM, with the worker in the same process."""
    db.migrate()
    with db.connection() as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS payment (reference text PRIMARY KEY, cents int NOT NULL)"
        )
    with db, worker, make_server("127.0.0.1", port, application) as server:
        # What the signal raised would be lost in the midst of a request; shutdown() waits for its end.
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
        server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
