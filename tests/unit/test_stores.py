"""Stores and routers: keys, discovery, refresh; no database is asked."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

import pysqlbox
from pysqlbox import HashRing, InvalidArgument, InvalidState, NotFound, Router, Stores
from tests.worker.support import until

A = "postgresql://host/a"
B = "postgresql://host/b"
C = "postgresql://host/c"
TENANT = UUID("11111111-2222-3333-4444-555555555555")


class Source:
    """A discovery that answers what a test says, and counts."""

    def __init__(self, **found: Any) -> None:
        self.found: dict[Any, Any] = found
        self.asked = 0
        self.error: Exception | None = None

    def __call__(self) -> dict[Any, Any]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return dict(self.found)


def _is_closed(db: pysqlbox.Deployment) -> bool:
    return db._pool._closed


def test_obx_066_ibx_091_a_router_finds_the_store_of_a_key() -> None:
    with Stores({"a": A, "b": B}) as stores:
        router = Router(stores)
        assert router.get("a").target.display == A
        assert router.get("b").target.display == B
        assert stores.keys() == ["a", "b"]
        assert "a" in stores
        assert "c" not in stores
        assert len(stores) == 2


def test_obx_067_ibx_092_an_unknown_key_is_not_found() -> None:
    with Stores({"a": A}) as stores, pytest.raises(NotFound, match="'nobody'"):
        Router(stores).get("nobody")


@pytest.mark.parametrize(
    ("key", "asked"), [(TENANT, str(TENANT)), (str(TENANT), TENANT), (7, "7"), ("7", 7), ("x", "x")]
)
def test_obx_068_keys_are_text_uuid_or_numbers(key: Any, asked: Any) -> None:
    """And the same where their text is."""
    with Stores({key: A}) as stores:
        found = Router(stores).get(asked)
        assert found is Router(stores).get(key)
        assert found.store_key == key


@pytest.mark.parametrize("key", [None, True, 1.5, "", "x" * 256, b"a"])
def test_other_keys_are_refused(key: Any) -> None:
    with Stores({"a": A}) as stores, pytest.raises(InvalidArgument, match="key: "):
        Router(stores).get(key)
    with Stores({key: A}) as stores, pytest.raises(InvalidArgument, match="key: "):
        stores.keys()


def test_obx_115_ibx_123_obx_064_ibx_089_a_store_is_made_once_and_keeps_its_key() -> None:
    with Stores(Source(a=A)) as stores:
        router = Router(stores)
        first = router.get("a")
        assert router.get("a") is first
        assert first.outbox is router.get("a").outbox
        assert (first.store_key, first.store) == ("a", "a")
    with pysqlbox.connect(A) as plain:
        assert plain.store_key is None


def test_obx_060_ibx_085_each_key_has_a_store_of_its_own() -> None:
    with Stores({"a": A, "b": B}) as stores:
        assert stores.get("a") is not stores.get("b")


def test_obx_071_obx_072_obx_073_ibx_095_ibx_096_ibx_097_a_refresh_changes_only_what_differs() -> None:
    source = Source(a=A, b=B)
    with Stores(source) as stores:
        a, b = stores.get("a"), stores.get("b")
        source.found = {"a": A, "c": C, "b": B + "2"}
        changes = stores.refresh()
        assert (changes.added, changes.changed, changes.removed, changes.broken) == (["c"], ["b"], [], [])
        assert stores.get("a") is a
        assert stores.get("b") is not b
        del source.found["c"]
        assert stores.refresh().removed == ["c"]
        with pytest.raises(NotFound):
            stores.get("c")
        assert stores.get("a") is a


def test_a_deployment_of_the_same_database_is_no_change() -> None:
    """Discovery may make a deployment each time it is asked."""
    with Stores(lambda: {"a": pysqlbox.connect(A, schema="other")}) as stores:
        first = stores.get("a")
        stores.refresh()
        assert stores.get("a") is first
        assert first.schema == "other"


def test_deployments_that_were_given_are_not_closed() -> None:
    with pysqlbox.connect(A) as db:
        with Stores({"a": db}) as stores:
            assert stores.get("a") is db
            own = stores.refresh()
        assert own.added == []
        with pytest.raises(pysqlbox.DatabaseUnavailable):  # and not InvalidState
            db.outbox.stats()


def test_a_store_that_is_gone_is_closed_when_nobody_holds_it() -> None:
    source = Source(a=A)
    with Stores(source) as stores:
        (store,) = stores.current()
        assert store.hold()
        db = stores.get("a")
        source.found = {}
        stores.refresh()
        assert not _is_closed(db)
        store.release()
        assert _is_closed(db)
        assert not store.hold()


def test_obx_070_ibx_094_the_interval_is_five_minutes() -> None:
    assert Stores({}).refresh_seconds == 300
    for wrong in (0, -1, None, "5", True):
        with pytest.raises(InvalidArgument, match="refresh_seconds"):
            Stores({}, refresh_seconds=wrong)  # type: ignore[arg-type]


def test_obx_069_ibx_093_discovery_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("pysqlbox.stores.stores.time.monotonic", lambda: now[0])
    source = Source(a=A)
    with Stores(source, refresh_seconds=60) as stores:
        assert source.asked == 0
        stores.get("a")
        now[0] += 59
        stores.get("a")
        assert source.asked == 1
        source.found["b"] = B
        now[0] += 2
        assert stores.get("b").target.display == B  # who would find nothing waits for it
        assert source.asked == 2
        now[0] += 61
        stores.get("a")  # who finds something does not
        until(lambda: source.asked == 3)


def test_a_broken_source_keeps_the_last_good_mapping(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("pysqlbox.stores.stores.time.monotonic", lambda: now[0])
    source = Source(a=A)
    with Stores(source) as stores:
        first = stores.get("a")
        source.error = OSError("the table is away")
        with pytest.raises(OSError, match="away"):
            stores.refresh()
        now[0] += 301
        with caplog.at_level(logging.ERROR, "pysqlbox.stores"):
            assert stores.current()[0].deployment is first
        assert "the table is away" in caplog.text
        asked = source.asked
        stores.get("a")
        assert source.asked == asked  # not again before the next interval
        source.error = None
        now[0] += 301
        source.found = {}
        assert stores.keys() == []


def test_a_source_that_fails_from_the_beginning_raises() -> None:
    source = Source()
    source.error = OSError("no table")
    with Stores(source) as stores:
        for _ in range(2):
            with pytest.raises(OSError, match="no table"):
                stores.get("a")
        source.error = None
        source.found = {"a": A}
        assert stores.get("a").store_key == "a"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (["a"], "must answer a mapping"),
        ({"a": 5}, "must map to URLs"),
        ({7: A, "7": B}, "'7' twice"),
    ],
)
def test_a_wrong_mapping_is_refused_whole(answer: Any, text: str) -> None:
    source: list[Any] = [{"a": A}]
    with Stores(lambda: source[0]) as stores:
        first = stores.get("a")
        source[0] = answer
        with pytest.raises(InvalidArgument, match=text):
            stores.refresh()
        assert stores.get("a") is first


def test_one_deployment_has_one_key() -> None:
    with (
        pysqlbox.connect(A) as db,
        Stores({"a": db, "b": db}) as stores,
        pytest.raises(InvalidArgument, match="two keys"),
    ):
        stores.keys()


def test_one_bad_url_costs_the_others_nothing() -> None:
    source = Source(a=A, bad="nonsense", c=C)
    with Stores(source) as stores:
        assert stores.refresh().broken == ["bad"]
        assert stores.get("c").store_key == "c"
        with pytest.raises(InvalidArgument, match=r"url: .*\[bad\]") as caught:
            stores.get("bad")
        assert caught.value.store == "bad"
        a = stores.get("a")
        source.found = {"a": "nonsense", "bad": B}
        changes = stores.refresh()
        assert (changes.broken, changes.changed, changes.removed) == (["a"], ["bad"], ["c"])
        assert stores.get("a") is a  # its last good configuration
        assert stores.get("bad").target.display == B


def test_a_mapping_is_read_again_at_a_refresh() -> None:
    mapping = {"a": A}
    with Stores(mapping) as stores:
        assert stores.keys() == ["a"]
        mapping["b"] = B
        assert stores.keys() == ["a"]
        assert stores.refresh().added == ["b"]


def test_an_asynchronous_source() -> None:
    loops: list[asyncio.AbstractEventLoop] = []
    found = {"a": A}

    async def discover() -> dict[str, str]:
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return dict(found)

    with Stores(discover) as stores:
        assert stores.get("a").store_key == "a"

    async def main(stores: Stores) -> None:
        assert (await Router(stores).get_async("a")).store_key == "a"
        assert loops[-1] is asyncio.get_running_loop()
        found["b"] = B
        assert (await stores.refresh_async()).added == ["b"]
        assert stores.refresh().added == []  # also from within a loop, on another one
        assert loops[-1] is not asyncio.get_running_loop()
        with pytest.raises(NotFound):
            await stores.get_async("nobody")

    with Stores(discover) as stores:
        asyncio.run(main(stores))


def test_a_callable_that_answers_an_awaitable() -> None:
    async def discover() -> dict[str, str]:
        return {"a": A}

    with Stores(lambda: discover()) as stores:
        assert stores.keys() == ["a"]
    with Stores(lambda: discover()) as stores:
        assert asyncio.run(stores.get_async("a")).store_key == "a"


def test_many_threads_ask_a_source_once() -> None:
    gate = threading.Barrier(8)
    asked: list[int] = []

    def discover() -> dict[str, str]:
        asked.append(1)
        time.sleep(0.05)
        return {"a": A}

    found: list[pysqlbox.Deployment] = []
    with Stores(discover) as stores:

        def get() -> None:
            gate.wait()
            found.append(stores.get("a"))

        threads = [threading.Thread(target=get) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(asked) == 1
        assert len({id(db) for db in found}) == 1


def test_closed_stores_are_closed() -> None:
    stores = Stores({"a": A})
    db = stores.get("a")
    stores.close()
    for ask in (lambda: stores.get("a"), stores.keys, stores.refresh):
        with pytest.raises(InvalidState, match="closed"):
            ask()
    with pytest.raises(InvalidState, match="closed"):
        db.outbox.stats()


def test_errors_name_the_store(caplog: pytest.LogCaptureFixture) -> None:
    url = "postgresql://127.0.0.1:1/x"
    options: dict[str, Any] = {"retries": pysqlbox.Retries(attempts=2, give_up_seconds=1)}
    with Stores({TENANT: url}, **options) as stores, caplog.at_level(logging.WARNING):
        db = stores.get(TENANT)
        asks: list[Callable[[], object]] = [
            db.outbox.stats, lambda: db.box("orders"), db.boxes, db.migrate, db.transaction().__enter__
        ]  # fmt: skip
        for ask in asks:
            with pytest.raises(pysqlbox.DatabaseUnavailable, match=str(TENANT)) as caught:
                ask()
            assert caught.value.store == TENANT
    assert f"[{TENANT}]" in caplog.text


def test_reports_of_stores_that_cannot_be_reached() -> None:
    options: dict[str, Any] = {"retries": pysqlbox.Retries(attempts=1), "connect_timeout": 2}
    with Stores({"a": "postgresql://127.0.0.1:1/x", "bad": "nonsense"}, **options) as stores:
        for reports in (stores.migrate(), stores.stats(), stores.doctor()):
            assert [(each.key, each.ok) for each in reports] == [("a", False), ("bad", False)]
            assert all(each.error and f"[{each.key}]" in each.error for each in reports)
        assert [each.key for each in stores.stats(["bad"])] == ["bad"]
        with pytest.raises(NotFound, match="nobody"):
            stores.stats(["nobody"])
        with pytest.raises(InvalidArgument, match="parallel"):
            stores.migrate(parallel=0)
        with pytest.raises(InvalidArgument, match="list of keys"):
            stores.stats("bad")


def test_a_ring_spreads_keys_and_a_node_more_takes_only_its_share() -> None:
    keys = [f"customer-{n}" for n in range(4000)]
    three, four = HashRing(["n1", "n2", "n3"]), HashRing(["n1", "n2", "n3", "n4"])
    shares = [sum(three(key) == node for key in keys) for node in three.nodes]
    assert min(shares) > 900
    moved = [key for key in keys if three(key) != four(key)]
    assert {four(key) for key in moved} == {"n4"}
    assert 600 < len(moved) < 1500
    assert three("customer-1") == HashRing(["n3", "n2", "n1"])("customer-1")
    for nodes, points in (([], 1), (["a"], 0), (["a"], True)):
        with pytest.raises(InvalidArgument):
            HashRing(nodes, points=points)


def test_a_router_by_a_ring_or_a_table() -> None:
    with Stores({"a": A, "b": B}) as stores:
        ring = HashRing(["a", "b"])
        assert Router(stores, by=ring).get("customer-1").store_key == ring("customer-1")
        assert Router(stores, by={"big": "b"}.__getitem__).get("big").store_key == "b"
