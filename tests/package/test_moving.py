"""Moving over: what docs/moving.md shows does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pysqlbox import Deployment

PAGE = (Path(__file__).parents[2] / "docs" / "moving.md").read_text(encoding="utf-8")


@pytest.mark.dialect("postgres")
def test_a_table_of_ones_own_is_carried_over(deployment: Deployment) -> None:
    """Each waiting row once, with its own time, in order; a second run moves nothing."""
    (statement,) = re.findall(r"^```sql\n(WITH .*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    statement = statement.replace("infra.", f'"{deployment.schema}".')
    with deployment.transaction() as connection:
        connection.execute(
            "CREATE TABLE outbox (id bigserial PRIMARY KEY, topic text, payload text,"
            " created_at timestamptz, sent_at timestamptz)"
        )
        connection.execute(
            "INSERT INTO outbox (topic, payload, created_at, sent_at)"
            " SELECT 'order.placed', n::text, timestamptz '2025-01-01Z' + n * interval '1 day',"
            " CASE WHEN n <= 3 THEN now() END FROM generate_series(1, 10) AS n"
        )
    try:
        for _ in range(2):
            with deployment.transaction() as connection:
                connection.execute(statement)
        waiting = deployment.outbox.list("Ready")
        assert [deployment.outbox.get(each.id).payload for each in waiting] == list(map(str, range(4, 11)))
        assert [each.created_at.day for each in waiting] == list(range(5, 12))
    finally:
        with deployment.transaction() as connection:
            connection.execute("DROP TABLE outbox")
