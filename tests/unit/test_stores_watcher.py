"""The watcher of many stores' worker: what it leaves behind."""

from __future__ import annotations

from typing import Any, cast

from pysqlbox.stores.watcher import Watcher


class _Stopped:
    stopping = True


def test_a_watcher_that_has_ended_leaves_nothing_open() -> None:
    watcher = Watcher(list, cast(Any, _Stopped()), watches=False)
    watcher.run()
    watcher.ring()  # nobody hears it any more, and it does no harm
    assert (watcher._bell.fileno(), watcher._string.fileno()) == (-1, -1)
