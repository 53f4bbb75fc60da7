"""What is logged, and what never is."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest

import pysqlbox
from pysqlbox import Deployment
from tests.support.database import Database

OWNER = UUID("11111111-1111-4111-8111-111111111111")
SECRET = "card 4111-1111"


def _lines(caplog: pytest.LogCaptureFixture, logger: str) -> list[tuple[int, str]]:
    return [(each.levelno, each.getMessage()) for each in caplog.records if each.name == logger]


def test_obx_096_ibx_108_enqueue_is_logged(deployment: Deployment, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pysqlbox")
    deployment.outbox.enqueue("order.created", SECRET, correlation_id="c-1\nforged", headers={"h": SECRET})
    deployment.outbox.enqueue_many([{"topic": "t", "payload": SECRET}] * 3)
    deployment.inbox.enqueue("t", "shop", "m-1", SECRET)
    (level, line), (_, batch) = _lines(caplog, "pysqlbox.outbox")
    assert level == logging.INFO
    assert "'order.created'" in line
    assert "'c-1\\nforged'" in line
    assert "batch of 3" in batch
    ((level, line),) = _lines(caplog, "pysqlbox.inbox")
    assert level == logging.INFO
    assert "'shop'" in line
    assert "'m-1'" in line


def test_obx_097_ibx_109_claims_are_logged(deployment: Deployment, caplog: pytest.LogCaptureFixture) -> None:
    deployment.outbox.enqueue("t", SECRET)
    deployment.inbox.enqueue("t", "s", "1", SECRET)
    caplog.set_level(logging.DEBUG, "pysqlbox")
    deployment.outbox.claim(OWNER)
    deployment.inbox.claim(OWNER)
    for name in ("outbox", "inbox"):
        ((level, line),) = _lines(caplog, f"pysqlbox.{name}")
        assert level == logging.DEBUG
        assert line.startswith(f"claimed 1 message for {OWNER}")


def test_obx_100_ibx_112_reaping_is_logged(
    deployment: Deployment, db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    deployment.outbox.enqueue("t", "p")
    deployment.outbox.claim(OWNER, lease_seconds=1)
    db.advance(2)
    caplog.set_level(logging.INFO, "pysqlbox")
    deployment.outbox.reap()
    deployment.inbox.reap()
    ((level, line),) = _lines(caplog, "pysqlbox.outbox")
    assert level == logging.INFO
    assert line.startswith("reaped 1 expired lease [")
    assert _lines(caplog, "pysqlbox.inbox")[0][1].startswith("reaped 0 expired leases")


def test_ibx_107_deduplication_checks_are_logged(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "pysqlbox")
    deployment.inbox.already_processed("m-1", "shop")
    ((level, line),) = _lines(caplog, "pysqlbox.inbox")
    assert level == logging.DEBUG
    assert "message 'm-1' from 'shop': already processed False" in line


def test_obx_101_ibx_113_the_store_is_named(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "pysqlbox")
    with pysqlbox.connect(db.url, schema=db.schema, store="tenant-7") as deployment:
        deployment.outbox.enqueue("t", "p")
        deployment.outbox.claim(OWNER)
        deployment.outbox.reap()
        deployment.inbox.already_processed("1", "s")
        deployment.ledger.try_begin("k")
    assert len(caplog.records) == 5
    assert all("[tenant-7]" in each.getMessage() for each in caplog.records)


def test_obx_119_ibx_127_payloads_and_secrets_are_never_shown(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    done = deployment.outbox.enqueue("t", SECRET, headers={"h": SECRET}, message_id=None)
    deployment.outbox.enqueue_many([{"topic": "t", "payload": {"p": SECRET}}])
    deployment.inbox.enqueue("t", "s", "1", SECRET, hash=SECRET.encode())
    shown = [
        repr(done),
        repr(deployment),
        repr(deployment.outbox),
        repr(deployment.inbox),
        repr(deployment.joins),
        repr(deployment.ledger),
    ]
    claimed = [*deployment.outbox.claim(OWNER), *deployment.inbox.claim(OWNER)]
    shown += map(repr, claimed)
    shown += [repr(deployment.outbox.get(done.id)), repr(deployment.inbox.find("1", "s"))]
    deployment.outbox.fail(OWNER, [done.id], f"could not charge {SECRET}")
    shown += map(repr, deployment.outbox.dead_letters())
    for wrong in ({"topic": ""}, {"priority": 10**6}, {"headers": "{" + SECRET}, {"nothing": SECRET}):
        with pytest.raises(pysqlbox.InvalidArgument) as caught:
            deployment.outbox.enqueue_many([{"topic": "t", "payload": SECRET, **wrong}])
        shown.append(str(caught.value))
    with pytest.raises(pysqlbox.InvalidArgument) as caught:
        deployment.outbox.enqueue("t", {"card": SECRET, "x": {SECRET: object()}})
    shown.append(str(caught.value))
    assert SECRET not in caplog.text
    assert [each for each in shown if SECRET in each] == []


def test_every_record_is_about_its_deployment(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    """In attributes, for formatters that write fields; those of a box name it."""
    caplog.set_level(logging.DEBUG, "pysqlbox")
    deployment.outbox.enqueue("t", "p")
    deployment.inbox.enqueue("t", "shop", "1", "p")
    deployment.outbox.claim(OWNER)
    deployment.ledger.try_begin("key")
    deployment.schedules.set("often", "t", "p", every=60)
    deployment.store_key = "eu"
    deployment.outbox.enqueue("t", "p")
    records = [record for record in caplog.records if record.name.startswith("pysqlbox")]
    assert {record.name for record in records} >= {
        "pysqlbox.outbox", "pysqlbox.inbox", "pysqlbox.ledger", "pysqlbox.schedules",
    }  # fmt: skip
    assert {getattr(record, "deployment", None) for record in records} == {deployment.store}
    assert {getattr(record, "schema", None) for record in records} == {deployment.schema}
    boxes = {(record.name, getattr(record, "box", None)) for record in records}
    assert {("pysqlbox.outbox", "outbox"), ("pysqlbox.inbox", "inbox")} <= boxes
    assert [getattr(record, "store", None) for record in records][-1] == "eu"
