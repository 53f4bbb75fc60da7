"""The benchmark suite's runner: turns, what is left out, what fails, and going on where a run ended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from benchmarks.common.databases import Databases
from benchmarks.common.server import Server
from benchmarks.suite.contestants.base import Load, steps_of, text_of
from benchmarks.suite.main import main
from benchmarks.suite.runner import Contestant, Level, Metric, Plan, Runner, Scenario, UnavailableError
from benchmarks.suite.server import Lab
from benchmarks.suite.store import RATE, Key, Measured, Store


class Runs(Contestant):
    """One that is there, or is not."""

    source, keeps = "here", "nothing"

    def __init__(self, name: str, *, missing: bool = False) -> None:
        self.name = name
        self._missing = missing

    def prepare(self, lab: Lab) -> dict[str, str]:  # noqa: ARG002
        if self._missing:
            raise UnavailableError("no such\n  package")
        if self.name == "refusing":
            raise OSError("connection refused")
        return {self.name: "1"}


class Counting(Scenario[Runs]):
    """Notes who is measured."""

    name: ClassVar[str] = "counting"
    title: ClassVar[str] = "Counting"
    level: ClassVar[Level] = "sql"
    metrics: ClassVar[tuple[Metric, ...]] = (Metric(RATE, "throughput", "messages/s"),)
    variants: ClassVar[tuple[str, ...]] = ("one",)

    def __init__(self, *contestants: Runs) -> None:
        self._contestants = contestants
        self.taken: list[str] = []

    @property
    def contestants(self) -> Sequence[Runs]:
        return self._contestants

    def measure(self, lab: Lab, contestant: Runs, variant: str) -> Measured:  # noqa: ARG002
        self.taken.append(contestant.name)
        if contestant.name == "broken":
            raise ValueError("it broke")
        return Measured({RATE: 1.0})


class Late(Counting):
    """Is asked once."""

    name: ClassVar[str] = "late"
    max_rounds: ClassVar[int | None] = 1


class Optional(Counting):
    """Only when it is named."""

    name: ClassVar[str] = "optional"
    opt_in: ClassVar[bool] = True


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "suite.jsonl")
    store.start({})
    return store


def runner(store: Store, plan: Plan, *scenarios: Counting) -> Runner:
    lab = Lab(Databases(Server("", is_local=True), False), True, 1.0, _ignore)
    return Runner(scenarios, lab, store, plan, _ignore)


def _ignore(_text: str) -> None:
    pass


def test_contestants_take_turns(store: Store) -> None:
    scenario = Counting(Runs("a"), Runs("b"), Runs("c"))
    assert runner(store, Plan(3), scenario).run()
    assert scenario.taken == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]


def test_goes_on_where_it_ended(store: Store) -> None:
    scenario = Counting(Runs("a"), Runs("b"))
    assert not runner(store, Plan(1, minutes=-1), scenario).run()
    runner(store, Plan(1), scenario).run()
    with store.path.open("a") as file:
        file.write('{"scenario": "coun')
    again = Store(store.path)
    again.load()
    runner(again, Plan(2), scenario).run()
    assert scenario.taken == ["a", "b", "b", "a"]


def test_missing_ones_are_told(store: Store) -> None:
    scenario = Counting(Runs("a"), Runs("b", missing=True), Runs("refusing"))
    ran = runner(store, Plan(1), scenario)
    ran.run()
    assert scenario.taken == ["a"]
    assert ran.about()["missing"] == {
        "sql: b": "no such package",
        "sql: refusing": "OSError: connection refused",
    }
    assert ran.about()["versions"] == {"sql: a": {"a": "1"}}


def test_a_failure_is_kept_and_ends_nothing(store: Store) -> None:
    scenario = Counting(Runs("broken"), Runs("b"))
    assert runner(store, Plan(1), scenario).run()
    problems = {taken.key: taken.measured.problem for taken in store}
    assert problems == {
        Key("counting", "one", "broken", 0): "ValueError: it broke",
        Key("counting", "one", "b", 0): None,
    }


@pytest.mark.parametrize(
    ("only", "taken"),
    [
        ((), (["a", "b"], [])),
        (("a",), (["a"], [])),
        (("counting",), (["a", "b"], [])),
        (("optional",), ([], ["a", "b"])),
        (("optional/b",), ([], ["b"])),
    ],
)
def test_what_is_asked_for(store: Store, only: tuple[str, ...], taken: tuple[list[str], list[str]]) -> None:
    first, second = Counting(Runs("a"), Runs("b")), Optional(Runs("a"), Runs("b"))
    runner(store, Plan(1, only), first, second).run()
    assert (first.taken, second.taken) == taken


def test_one_variant_is_asked_for(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = Counting(Runs("a"))
    runner(store, Plan(1, variants=("another",)), scenario).run()
    assert scenario.taken == []
    runner(store, Plan(1, variants=("one",)), scenario).run()
    assert scenario.taken == ["a"]
    assert main(["--variant", "no such thing"]) == 2
    assert "no such thing" in capsys.readouterr().err


def test_what_is_asked_once_comes_last(store: Store) -> None:
    scenario = Late(Runs("a"))
    runner(store, Plan(3), scenario).run()
    assert [taken.key.round for taken in store] == [2]


def test_nothing_is_begun_that_would_end_too_late(store: Store) -> None:
    first, second = Counting(Runs("a")), Late(Runs("a"))
    # The method of this one instance is replaced, by one that has no use for the lab.
    second.expected_seconds = lambda lab: 3600.0  # type: ignore[method-assign]  # noqa: ARG005
    assert not runner(store, Plan(1, minutes=1), first, second).run()
    assert (first.taken, second.taken) == (["a"], [])


def test_what_was_interrupted_is_not_kept(store: Store) -> None:
    scenario = Counting(Runs("a"), Runs("broken"), Runs("c"))
    ran = runner(store, Plan(1), scenario)
    ran.stopping = lambda: "broken" in scenario.taken
    with pytest.raises(KeyboardInterrupt):
        ran.run()
    assert [taken.key.contestant for taken in store] == ["a"]
    assert ran.measured == {"counting"}


def test_a_part_does_not_take_the_place_of_the_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = Store(tmp_path / "suite.jsonl")
    kept.start({})
    kept.add(Key("joins", "1 join", "pysqlbox", 0), Measured({RATE: 1.0}))
    before = kept.path.read_text()
    assert main(["--only", "joins", "--out", str(tmp_path)]) == 2
    assert "--resume" in capsys.readouterr().err
    assert kept.path.read_text() == before


def test_a_finished_run_is_one_compressed_file_that_another_goes_on_with(store: Store) -> None:
    store.start({"date": "today"})
    key = Key("s", "v", "c", 1)
    store.add(key, Measured({RATE: 2.5}))
    store.pack()
    assert not store.path.exists()
    before = store.packed.read_bytes()
    again = Store(store.path)
    again.load()
    assert (again.about, [taken.key for taken in again]) == ({"date": "today"}, [key])
    again.start(again.about)
    again.pack()
    assert again.packed.read_bytes() == before, "the same measurements make the same file"
    again.start(again.about)
    again.add(Key("s", "v", "c", 2), Measured({RATE: 3.0}))
    broken_off = Store(store.path)
    broken_off.load()
    assert len(broken_off) == 2, "a run that was broken off counts, not what was packed before"


def test_measurements_come_back(store: Store) -> None:
    key = Key("s", "v", "c", 1)
    store.add(key, Measured({RATE: 2.5}, 10, 4.0, {"rate": [(0.5, 2.0)]}, "slow"))
    again = Store(store.path)
    again.load()
    (taken,) = again
    assert (taken.key, taken.measured.curves) == (key, {"rate": [(0.5, 2.0)]})
    assert (taken.measured.values, taken.measured.problem) == ({RATE: 2.5}, "slow")


def test_big_messages_are_filled_in_small_steps() -> None:
    assert list(steps_of(Load(2500))) == [(0, 999), (1000, 1999), (2000, 2499)]
    assert next(steps_of(Load(17, payload=1_000_000))) == (0, 7)
    assert len(text_of(10_000)) == 10_000
