"""What docs/seeing.md takes for granted; its worker stops after a moment, its port is a free one."""

import threading

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider

import pysqlbox
from pysqlbox import Stores, metrics

db = pysqlbox.connect()
stores = Stores({"a": db})
worker = db.worker()
tracer_provider, meter_provider = TracerProvider(), MeterProvider()
_serving = metrics.serving
metrics.serving = lambda _, told: _serving(("127.0.0.1", 0), told)
threading.Timer(2, lambda: worker.stop()).start()


def after() -> None:
    text: str = globals()["text"]
    assert "pysqlbox_up 1" in text
    db.close()
