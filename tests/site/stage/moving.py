"""What docs/moving.md takes for granted: the old table."""

import pysqlbox

with pysqlbox.connect() as _db, _db.connection() as _connection:
    _connection.execute("CREATE TABLE outbox (id bigserial PRIMARY KEY, topic text, payload text)")
