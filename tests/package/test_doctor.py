"""``doctor`` of the package."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from pysqlbox import Deployment, Finding, connect_async


def test_doctor_answers_findings(deployment: Deployment) -> None:
    deployment.inbox.pause("t")
    findings = deployment.doctor()
    assert all(isinstance(each, Finding) for each in findings)
    (paused,) = [each for each in findings if each.check == "paused" and each.level != "ok"]
    assert (paused.level, paused.subject) == ("note", "box inbox, topic t")
    assert paused.advice is not None
    assert "inbox_resume" in paused.advice
    assert not paused.is_bad
    with deployment.transaction() as connection:
        deployment.outbox.pause("t", connection=connection)
        mine = {each.subject for each in deployment.doctor(connection=connection) if each.check == "paused"}
    assert "box outbox, topic t" in mine


@pytest.mark.parametrize(("level", "is_bad"), [("ok", False), ("note", False), ("unknown", False)])
def test_a_finding_says_whether_it_is_bad(level: Literal["ok", "note", "unknown"], is_bad: bool) -> None:
    assert Finding("c", level, "s", "d", None).is_bad is is_bad
    assert Finding("c", "warning", "s", "d", None).is_bad
    assert Finding("c", "error", "s", "d", None).is_bad


def test_doctor_for_asynchronous_callers(deployment: Deployment) -> None:
    async def work() -> list[Finding]:
        async with connect_async(deployment.target, schema=deployment.schema) as db:
            return await db.doctor()

    assert [each.check for each in asyncio.run(work())] == [each.check for each in deployment.doctor()]


@pytest.mark.dialect("postgres")
def test_doctor_on_an_asynchronous_connection(deployment: Deployment) -> None:
    import psycopg

    async def work() -> list[Finding]:
        async with (
            connect_async(deployment.target, schema=deployment.schema) as db,
            await psycopg.AsyncConnection.connect(deployment.target.dsn) as connection,
        ):
            return await db.doctor(connection=connection)

    assert {each.check for each in asyncio.run(work())} == {each.check for each in deployment.doctor()}
