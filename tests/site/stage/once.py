"""What docs/once.md takes for granted: a signed delivery, a worker of the inbox, and a handler."""

import time

import pysqlbox
from pysqlbox.relays.signing import key_of, sign
from pysqlbox.worker import Context

db = pysqlbox.connect()
worker = db.worker(boxes=["inbox"], threads=1)
secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
handle = print


def after() -> None:
    body = b'{"amount": 7}'
    headers = sign([key_of(secret)], "evt_1", int(time.time()), body)
    assert [receive(headers, body) for _ in range(2)] == ["created", "updated"]
    assert worker.drain(timeout=60) == 1
    assert receive(headers, body) == "done"
    assert once.is_processed(once.key("order.created", 17))
    with db.connection() as connection:
        assert connection.execute("SELECT total FROM bookings").fetchall() == [(7,)]
        assert connection.execute("SELECT count(*) FROM bills").fetchone() == (1,)
    db.close()
