"""What Prometheus and OpenTelemetry are told of many stores: each figure with its store's key."""

from __future__ import annotations

from pysqlbox import Stores, metrics, otel
from tests.metrics.reading import read, value
from tests.otel.told import Told, attribute, check_conventions
from tests.worker.support import nothing, until


def test_every_figure_carries_its_stores_key(stores: Stores) -> None:
    for number, key in enumerate(stores.keys(), 1):
        stores.get(key).outbox.enqueue_payloads("t", ["p"] * number)
    worker = stores.worker(threads=2, reap_seconds=None, cleanup_seconds=None, schedule_seconds=None)
    worker.add_handler("t", nothing)
    told = metrics.WorkerExporter(worker)
    before = read(str(told))
    for number, key in enumerate("abc", 1):
        assert value(before, "pysqlbox_up", store=key) == 1
        assert value(before, "pysqlbox_ready_messages", store=key, box="outbox", topic="t") == number
    worker.start()
    try:
        until(lambda: worker.stats().acked == 6, 60)
        until(lambda: not any(stores.get(key).outbox.stats()[-1].in_flight for key in "abc"), 60)
        after = read(str(told))
        health = {(each.store, each.box) for each in worker.health().boxes}
    finally:
        worker.stop(5)
    for number, key in enumerate("abc", 1):
        labels = {"store": key, "box": "outbox", "topic": "t"}
        assert value(after, "pysqlbox_worker_consumed_messages_total", **labels) == number
        assert value(after, "pysqlbox_worker_settled_messages_total", **labels, outcome="acked") == number
        assert value(after, "pysqlbox_worker_waiting_seconds_count", **labels) == number
    shown = {
        (each.labels["store"], each.labels["box"]) for each in after if each.name == "pysqlbox_worker_stalled"
    }
    assert shown == health
    assert {key for key, _ in shown} == set("abc")


def test_spans_carry_their_stores_key(stores: Stores) -> None:
    told = Told()
    otel.instrument(told.tracer_provider, told.meter_provider)
    worker = stores.worker(threads=2, reap_seconds=None, cleanup_seconds=None, schedule_seconds=None)
    try:
        worker.add_handler("t", nothing)
        for key in "ab":
            stores.get(key).outbox.enqueue("t", "p")
        worker.start()
        until(lambda: worker.stats().acked == 2 and len(told.spans("settle")) >= 2, 60)
    finally:
        worker.stop(5)
        otel.uninstrument()
    for kind in ("send", "receive", "process", "settle"):
        spans = told.spans(kind)
        assert sorted(str(attribute(span, "messaging.pysqlbox.store")) for span in spans) == ["a", "b"], kind
        for span in spans:
            check_conventions(span)
    told.close()
