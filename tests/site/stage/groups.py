"""What docs/groups.md takes for granted; its messages are handled in their order."""

import pysqlbox
from pysqlbox import OutboxMessage

db = pysqlbox.connect()
worker = db.worker()


def after() -> None:
    assert [each.group_id for each in db.outbox.list("Ready")] == ["account-7"] * 2
    assert worker.drain(timeout=60) == 2
    db.close()
