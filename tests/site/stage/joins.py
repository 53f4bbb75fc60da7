"""What docs/joins.md takes for granted."""

import pysqlbox

db = pysqlbox.connect()


def after() -> None:
    assert [each.status for each in db.joins.list("shop")] == ["Pending"] * 2
    db.close()
