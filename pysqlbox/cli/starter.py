"""The worker STARTER: what happens to its messages.

    pysqlbox migrate
    python -m STARTER
    pysqlbox work STARTER:make_worker

The first deploys, once and after each upgrade of pysqlbox; the second sends a message; the third handles what
was sent, until SIGTERM or Ctrl-C.

PYSQLBOX_URL says which database: postgresql://…, mssql://…, or embedded: for a PostgreSQL of your own.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pysqlbox

log = logging.getLogger(__name__)


@pysqlbox.message("STARTER.greeting")
@dataclass
class Greeting:
    """A message; its fields travel as JSON."""

    name: str


def greet(greeting: Greeting) -> None:
    """Handles one. Returning is done; after an exception it is tried again, later and later."""
    log.info("hello, %s", greeting.name)


def make_worker(db: pysqlbox.Deployment) -> pysqlbox.Worker:
    """The worker, with a handler for each topic."""
    worker = db.worker(threads=4)
    worker.handler(Greeting)(greet)
    return worker


def send(db: pysqlbox.Deployment) -> None:
    """Sends a message in a transaction: it is there if that commits."""
    with db.transaction() as connection:
        # connection.execute("INSERT INTO …"): this and the message are kept together, or neither is.
        db.outbox.publish(Greeting("world"), connection=connection)


if __name__ == "__main__":
    with pysqlbox.connect() as deployment:
        send(deployment)
