"""What docs/operating.md takes for granted: people and programs with roles of their own."""

import pysqlbox

with pysqlbox.connect() as _db, _db.connection() as _connection:
    for _role in ("shop_web", "shop_worker", "oncall", "lead"):
        _connection.execute(f"CREATE ROLE {_role}")
