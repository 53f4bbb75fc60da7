"""What docs/relays.md takes for granted: a worker, and a delivery that somebody has signed."""

import time

import pysqlbox
from pysqlbox.relays.signing import key_of, sign

db = pysqlbox.connect()
worker = db.worker()
secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
body = b'{"order": 17}'
headers = sign([key_of(secret)], "0196f2a0-0000-7000-8000-000000000001", int(time.time()), body)


def after() -> None:
    assert [each.message_id for each in db.inbox.list("Processing")] == [headers["webhook-id"]]
    db.close()
