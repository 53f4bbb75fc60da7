"""What is told of a fork, and how a child ends that comes back from a handler."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from pysqlbox.worker import forking
from pysqlbox.worker.forking import EXIT_CODE, end_child, keep_for_parent, watch
from tests.unit.standins import Parts


class Watched:
    """Counts how often it was told."""

    told = 0

    def begin_anew(self) -> None:
        self.told += 1


@pytest.fixture(autouse=True)
def nothing_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this test keeps is not kept for ever."""
    monkeypatch.setattr(forking, "_inherited", [])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_is_told_and_its_parent_is_not() -> None:
    watched = Watched()
    watch(watched)
    pid = os.fork()
    if pid == 0:
        os._exit(watched.told)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert watched.told == 0


def test_what_is_watched_may_go() -> None:
    watched = Watched()
    watch(watched)
    reference = weakref.ref(watched)
    del watched
    gc.collect()
    assert reference() is None


def test_what_is_the_parents_is_not_collected() -> None:
    """It would end connections that are the parent's."""
    kept = Watched()
    keep_for_parent(kept)
    reference = weakref.ref(kept)
    del kept
    gc.collect()
    assert reference() is not None


def test_a_child_that_comes_back_ends_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    end: Callable[[Any], object] = end_child  # which here does not end anything
    end(Parts().box.log)
    assert codes == [EXIT_CODE]
    assert "the child came back" in caplog.text
