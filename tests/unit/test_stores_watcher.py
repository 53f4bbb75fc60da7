"""The watcher of many stores' worker: what it leaves behind."""

from __future__ import annotations

from typing import Any, cast

from pysqlbox.stores.watcher import Watcher


class _Stopped:
    stopping = True


def test_a_watcher_leaves_nothing_open_whether_it_ran_or_not() -> None:
    never, ran = (Watcher(list, cast(Any, _Stopped()), watches=False) for _ in range(2))
    ran.run()
    for watcher in (never, ran):
        watcher.end_unused()
        watcher.ring()  # nobody hears it any more, and it does no harm
        assert (watcher._bell.fileno(), watcher._string.fileno()) == (-1, -1)
