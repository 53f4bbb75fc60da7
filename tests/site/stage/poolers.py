"""What docs/poolers.md takes for granted."""

import pysqlbox

db = pysqlbox.connect()


def after() -> None:
    with db.connection() as connection:
        kept = connection.execute("SELECT value FROM infra.outbox_settings WHERE name = 'notify'").fetchone()
    assert kept == ("off",)
    db.close()
