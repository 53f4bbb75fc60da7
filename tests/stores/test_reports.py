"""Deploying, counting and examining several stores, on every engine."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import pysqlbox
from pysqlbox import Router, Stores
from pysqlbox.names import NamedBox
from pysqlbox.places import first_id
from tests.support.database import Database
from tests.support.engines import Engine


def test_migrate_reports_on_each_store(engine: Engine) -> None:
    """One that is broken costs the others nothing."""
    name, other = engine.create_database(), engine.create_database()
    try:
        source = {
            "new": engine.database_url(name), "old": engine.database_url(other),
            "gone": engine.database_url("pysqlbox_test_no_such_database"), "bad": "nonsense",
        }  # fmt: skip
        with Stores(source, retries=pysqlbox.Retries(attempts=1)) as stores:
            stores.migrate(["old"])
            planned = stores.migrate(["new"], dry_run=True)
            assert planned[0].changes[0] == "create the schema"
            reports = {report.key: report for report in stores.migrate(boxes=[NamedBox("orders", "inbox")])}
            assert list(reports) == list(source)
            assert {key: report.ok for key, report in reports.items()} == {
                "new": True, "old": True, "gone": False, "bad": False
            }  # fmt: skip
            assert any("created" in line for line in reports["new"].changes)
            assert "[gone]" in str(reports["gone"].error)
            again = stores.migrate(["new", "old"])
            assert all(report.ok for report in again)
            assert again[0].changes == []
            assert "orders" in stores.get("new").boxes()
    finally:
        engine.drop_database(name)
        engine.drop_database(other)


def test_stats_of_all_boxes_or_of_some(stores: Stores) -> None:
    stores.get("b").outbox.enqueue("t", "p")
    reports = {report.key: report for report in stores.stats()}
    assert all(report.ok and report.error is None for report in reports.values())
    assert list(reports["a"].stats) == ["inbox", "mail", "orders", "outbox"]
    assert {key: report.stats["outbox"][-1].ready for key, report in reports.items()} == {
        "a": 0, "b": 1, "c": 0
    }  # fmt: skip
    (report,) = stores.stats(["b"], boxes=["outbox"])
    assert [(row.topic, row.ready) for row in report.stats["outbox"]] == [("t", 1), (None, 1)]
    failed = stores.stats(boxes=["nothing"])
    assert [each.ok for each in failed] == [False] * 3
    assert "'nothing'" in str(failed[0].error)


def test_doctor_reports_on_each_store(stores: Stores) -> None:
    reports = stores.doctor()
    assert [report.key for report in reports] == ["a", "b", "c"]
    for report in reports:
        assert report.error is None
        assert report.findings
        assert report.ok == (not any(each.is_bad for each in report.findings))


def test_obx_101_ibx_113_every_line_and_error_names_the_store(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    db = stores.get("b")
    with caplog.at_level(logging.DEBUG, "pysqlbox"):
        db.outbox.enqueue("t", "p")
        db.outbox.reap()
        with pytest.raises(pysqlbox.InvalidArgument, match=r"\[b\]$"):
            db.outbox.enqueue("", "p")
        with pytest.raises(pysqlbox.NotFound, match=r"\[b\]$"):
            db.box("nothing")
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("pysqlbox")]
    assert len(lines) >= 2
    assert all("[b]" in line for line in lines)


def test_a_router_finds_the_store_of_an_id(engine: Engine) -> None:
    """By the place that it carries; one that is down does not keep the others from being found."""
    names = [engine.create_database() for _ in range(2)]
    try:
        source: dict[Any, str] = {n: engine.database_url(name) for n, name in zip((5, 9), names, strict=True)}
        source |= {"gone": engine.database_url("pysqlbox_test_no_such_database")}
        with Stores(source, retries=pysqlbox.Retries(attempts=1)) as stores:
            stores.migrate([5, 9], places={"5": 5, 9: 9})
            router = Router(stores)
            made = stores.get(9).outbox.enqueue("t", "p")
            assert made.id == first_id(9)
            assert router.of(made.id) is stores.get(9)
            assert router.of(made.message_id) is stores.get(9)
            assert router.of(first_id(5)).store_key == 5
            with pytest.raises(pysqlbox.DatabaseUnavailable, match=r"place 6.*'gone'"):
                router.of(first_id(6))
        with Stores({n: source[n] for n in (5, 9)}) as stores:
            with pytest.raises(pysqlbox.NotFound, match="place 6"):
                Router(stores).of(first_id(6))
            with pytest.raises(pysqlbox.NotFound, match="place 0"):
                Router(stores).of(1)
            with pytest.raises(pysqlbox.InvalidArgument, match="id"):
                Router(stores).of(-1)
    finally:
        for name in names:
            engine.drop_database(name)


def test_a_store_without_a_number_is_place_0_if_it_is_the_only_one(stores: Stores) -> None:
    with pytest.raises(pysqlbox.InvalidState, match="3 stores have it"):
        Router(stores).of(1)
    with Stores({"only": stores.get("a")}) as single:
        assert Router(single).of(1).store_key == "only"


def test_asynchronous_callers_have_deployments_of_their_own(tenants: dict[str, Database]) -> None:
    """The same one for a key while its configuration is; removed ones are closed."""
    found = {key: db.url for key, db in tenants.items()}

    async def discover() -> dict[str, str]:
        return dict(found)

    async def main() -> None:
        async with Stores(discover) as stores:
            router = Router(stores)
            a = await router.get_async("a")
            assert await router.get_async("a") is a
            assert a.store_key == "a"
            made = await a.outbox.enqueue("t", "p")
            with pytest.raises(pysqlbox.InvalidArgument, match=r"\[a\]$"):
                await a.outbox.enqueue("", "p")
            assert stores.get("a").outbox.get(made.id).status == "Ready"
            del found["a"]
            assert (await stores.refresh_async()).removed == ["a"]
            with pytest.raises(pysqlbox.NotFound):
                await router.get_async("a")
            await (await router.get_async("b")).outbox.stats()

    asyncio.run(main())
