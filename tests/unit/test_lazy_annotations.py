"""Handlers whose annotations name what only type checkers import, without the ``__future__`` import.

Python evaluates such annotations when they are asked for, from 3.14 on; before, the ``def`` itself fails.
"""

from __future__ import annotations

import sys
from textwrap import dedent
from typing import Any

import pytest

import pysqlbox
from pysqlbox import Ack, testing
from pysqlbox.cli.loading import parameters
from pysqlbox.errors import InvalidArgument
from pysqlbox.idempotent import Idempotent

needs_lazy = pytest.mark.skipif(
    sys.version_info < (3, 14), reason="before Python 3.14 a def evaluates its annotations"
)


def _module(source: str) -> dict[str, Any]:
    """What a module defines that does not postpone its annotations itself."""
    names: dict[str, Any] = {"__name__": "lazy"}
    exec(compile(dedent(source), "lazy.py", "exec", dont_inherit=True), names)
    return names


@needs_lazy
@pytest.mark.parametrize("annotation", ["OutboxMessage", "pysqlbox.OutboxMessage", "OutboxMessage | None"])
def test_a_message_that_only_type_checkers_know(annotation: str) -> None:
    """The handler gets it as it is."""
    handler = _module(f"def handle(message: {annotation}, context: Context) -> Result: ...")["handle"]
    worker = pysqlbox.connect("postgresql://nowhere").worker()
    worker.handler("t")(handler)
    assert testing.handle(worker, testing.message("t", {})) == Ack()


@needs_lazy
def test_what_is_known_is_resolved_beside_what_is_not() -> None:
    """The payload's type counts, whatever the answer is called."""
    handler = _module("def handle(numbers: list[int]) -> NoSuchThing: handle.got = numbers")["handle"]
    worker = pysqlbox.connect("postgresql://nowhere").worker()
    worker.handler("t")(handler)
    testing.handle(worker, testing.message("t", [1, 2]))
    assert handler.got == [1, 2]


@needs_lazy
def test_an_unknown_type_is_refused_in_words() -> None:
    """As it is where annotations are postponed."""
    handler = _module("def handle(message: NoSuchThing): ...")["handle"]
    worker = pysqlbox.connect("postgresql://nowhere").worker()
    with pytest.raises(InvalidArgument, match="nothing is known by the name NoSuchThing"):
        worker.handler("t")(handler)


@needs_lazy
def test_arguments_are_counted_and_bound_all_the_same() -> None:
    """Of functions that make workers, and of consumers of a broker."""
    made = _module("def make(db: Deployment, *, threads: Threads = 1) -> Worker: ...")["make"]
    assert parameters(made) == 1
    once = Idempotent(pysqlbox.connect("postgresql://nowhere"), bus="b", group="g")
    consumer = _module("def consume(delivery: Delivery, connection: Connection): ...")["consume"]
    once("t", message_id="id", connection="connection")(consumer)
    with pytest.raises(InvalidArgument, match="no parameter 'other'"):
        once("t", message_id="id", connection="other")(consumer)
