"""Signals are taken for a while, by whom they are meant for."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from pysqlbox.worker.signals import signals

NUMBERS = (signal.SIGINT, signal.SIGTERM)


def _kill_and_fail() -> None:
    for number in NUMBERS:
        os.kill(os.getpid(), number)
    raise ZeroDivisionError


def test_both_are_taken_and_given_back() -> None:
    """Also if what is done meanwhile fails."""
    got: list[int] = []
    before = [signal.getsignal(number) for number in NUMBERS]
    with pytest.raises(ZeroDivisionError), signals(lambda number, _frame: got.append(number)):
        _kill_and_fail()
    assert got == list(NUMBERS)
    assert [signal.getsignal(number) for number in NUMBERS] == before


def test_in_another_thread_signals_are_left_alone() -> None:
    """Python would refuse it."""
    before = [signal.getsignal(number) for number in NUMBERS]
    during: list[object] = []

    def take() -> None:
        with signals(lambda *_: None):
            during.extend(signal.getsignal(number) for number in NUMBERS)

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    assert during == before
