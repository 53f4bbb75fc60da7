"""What docs/schedules.md takes for granted."""

from datetime import datetime, timedelta

import pysqlbox
from pysqlbox.worker import Context

db = pysqlbox.connect()
worker = db.worker()


def after() -> None:
    assert [each.name for each in db.schedules.list()] == ["poll"]
    db.close()
