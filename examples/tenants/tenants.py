"""One service, a database for each tenant: messages beside the tenant's data, one worker for all.

The file of TENANTS is JSON, tenant → URL. It is read again every few seconds: who is added is served, who is
taken out is let go once what is in hand is done.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from wsgiref.simple_server import make_server

import pysqlbox
from pysqlbox.worker import Context


def tenants() -> dict[str, str]:
    """Every tenant's database."""
    found: dict[str, str] = json.loads(Path(os.environ["TENANTS"]).read_text())
    return found


stores = pysqlbox.Stores(tenants, refresh_seconds=2)
router = pysqlbox.Router(stores)
worker = stores.worker(threads=4)


@worker.handler("order.placed", transactional=True)
def ship(message: pysqlbox.OutboxMessage, context: Context) -> None:
    """In the tenant's database, in one transaction with the message's end; context.store is the tenant."""
    context.connection.execute(
        "INSERT INTO shipment (order_id, tenant) VALUES (%s, %s)",
        (json.loads(message.payload)["order"], str(context.store)),
    )


def prepare(db: pysqlbox.Deployment) -> None:
    """Deploys to a tenant's database; where all is there it changes nothing."""
    db.migrate()
    with db.connection() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS orders (id serial PRIMARY KEY)")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS shipment (order_id int PRIMARY KEY, tenant text NOT NULL)"
        )


def place_order(db: pysqlbox.Deployment) -> dict[str, Any]:
    """The order and its message, by one commit in the tenant's database."""
    with db.transaction() as connection:
        order = connection.execute("INSERT INTO orders DEFAULT VALUES RETURNING id").fetchone()[0]
        db.outbox.enqueue("order.placed", {"order": order}, connection=connection)
    return {"order": order}


def totals(db: pysqlbox.Deployment) -> dict[str, Any]:
    """What was shipped to whom."""
    with db.connection() as connection:
        rows = connection.execute("SELECT tenant, count(*) FROM shipment GROUP BY tenant").fetchall()
    return {"shipped": dict(rows)}


ROUTES = {("PUT", ""): prepare, ("POST", "orders"): place_order, ("GET", "totals"): totals}


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """PUT /tenant deploys; POST /tenant/orders; GET /tenant/totals."""
    _, tenant, *rest = environ["PATH_INFO"].split("/")
    action = ROUTES.get((environ["REQUEST_METHOD"], "/".join(rest)))
    try:
        answer = {"error": "no such route"} if action is None else action(router.get(tenant)) or {}
        status = "404 Not Found" if action is None else "200 OK"
    except pysqlbox.NotFound as error:
        status, answer = "404 Not Found", {"error": str(error)}
    start_response(status, [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]


def main(port: int) -> None:
    """Serves until SIGTERM, with the worker of all tenants in the same process."""
    for report in stores.migrate():  # a tenant whose database is away does not keep the others
        print(report.key, "deployed" if report.ok else report.error, flush=True)
    with stores, worker, make_server("127.0.0.1", port, application) as server:
        # What the signal raised would be lost in the midst of a request; shutdown() waits for its end.
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
        server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
