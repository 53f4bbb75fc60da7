"""What docs/joins.md takes for granted."""

import pysqlbox

db = pysqlbox.connect()


def after() -> None:
    assert [each.status for each in db.joins.list("shop")] == ["Pending"] * 2
    with db.connection() as connection:
        assert connection.execute("SELECT count(*) FROM bills").fetchone() == (1,)
    db.close()
