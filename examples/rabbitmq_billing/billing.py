"""A service that consumes RabbitMQ and writes one bill for each order, however often the broker delivers it.

PYSQLBOX_URL says where the bills are, BROKER where the queue ``orders`` is.
"""

from __future__ import annotations

import json
import os
import signal

import pysqlbox
from pysqlbox.contrib.rabbitmq import Consumer, Delivery
from pysqlbox.idempotent import Idempotent

db = pysqlbox.connect()
#: A delivery whose key is known is acknowledged and passed over. The lease is longer than a bill takes.
once = Idempotent(db, bus="rabbitmq", group="billing", lease=60)


def bill(delivery: Delivery) -> None:
    """Writes the bill. Killed before its key is marked, it would run again: hence the upsert."""
    order = json.loads(delivery.body)
    with db.transaction() as connection:
        connection.execute(
            "INSERT INTO bills (order_id, cents) VALUES (%s, %s) ON CONFLICT DO NOTHING",
            (order["id"], order["cents"]),
        )


def main() -> None:
    """Consumes until SIGTERM."""
    db.migrate()
    with db.connection() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS bills (order_id int PRIMARY KEY, cents int NOT NULL)")
    consumer = Consumer(once, os.environ["BROKER"], "orders", bill, alias="order.placed", threads=4)
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    consumer.run()
    db.close()


if __name__ == "__main__":
    main()
