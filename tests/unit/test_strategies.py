"""Which store is asked next."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest

from pysqlbox import DrainFirst, InvalidArgument, RoundRobin, Stores, Weighted
from pysqlbox.stores import Strategy

TENANT = UUID("11111111-2222-3333-4444-555555555555")


def _asked(strategy: Strategy, messages: dict[str, int], batch: int = 1) -> list[str]:
    """Who is asked, in that order, until every store has said that it has nothing."""
    left = dict(messages)
    waiting = list(left)
    order: list[str] = []
    while waiting:
        key = strategy.choose(waiting, ())
        assert key is not None
        order.append(key)
        claimed = min(batch, left[key])
        left[key] -= claimed
        strategy.answered(key, claimed)
        if not claimed:
            waiting.remove(key)
    return order


def test_obx_062_ibx_087_round_robin_takes_one_batch_from_each_in_order() -> None:
    assert _asked(RoundRobin(), {"a": 2, "b": 1, "c": 3}) == list("abcabcacc")
    strategy = RoundRobin()
    assert [strategy.choose(["a", "b"], ()) for _ in range(3)] == ["a", "b", "a"]
    assert strategy.choose(["a", "b", "c"], ()) == "c"  # a new one has waited longest


def test_obx_063_ibx_088_drain_first_stays_until_there_is_nothing() -> None:
    assert _asked(DrainFirst(), {"a": 2, "b": 1, "c": 3}) == list("aaabbcccc")


def test_drain_first_waits_for_the_store_that_it_drains() -> None:
    """But not for one that fails or is slow, which is not going."""
    strategy = DrainFirst()
    assert strategy.choose(["a", "b"], ()) == "a"
    assert strategy.choose(["b"], {"a"}) is None
    strategy.answered("a", 5)
    assert strategy.choose(["a", "b"], {"a"}) == "a"
    assert strategy.choose(["b"], {"b"}) == "b"


def test_weights_are_shares() -> None:
    strategy = Weighted({"a": 3, TENANT: 2})
    keys = ["a", "b", str(TENANT)]
    counts = Counter(strategy.choose(keys, ()) for _ in range(600))
    assert counts == {"a": 300, "b": 100, str(TENANT): 200}


def test_who_was_idle_has_saved_nothing_up() -> None:
    strategy = Weighted({})
    for _ in range(100):
        strategy.choose(["a"], ())
    assert Counter(strategy.choose(["a", "b"], ()) for _ in range(20)) == {"a": 10, "b": 10}


@pytest.mark.parametrize("weight", [0, -1, True, "2", float("inf"), float("nan")])
def test_a_weight_is_a_number_above_0(weight: object) -> None:
    with pytest.raises(InvalidArgument, match="weights"):
        Weighted({"a": weight})  # type: ignore[dict-item]


def test_wrong_options_of_a_worker_are_refused() -> None:
    stores = Stores({})
    for wrong in ({"connections": 0}, {"sweep_seconds": 0}, {"strategy": "fair"}, {"threads": 0}):
        with pytest.raises(InvalidArgument, match=next(iter(wrong))):
            stores.worker(**wrong)
