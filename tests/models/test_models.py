"""The protocols' models, each searched by spin to the end, and with each planted fault, which must be found.

A model is a file beside this one; its head says what it shows and what its switches plant. Every order of its
steps is searched, so a result does not hang on the machine.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

MODELS = Path(__file__).parent
COMPILER = shutil.which("gcc") or shutil.which("cc")
DEPTH = "1000000"
"""Steps that a search may go deep; one that would have to go deeper says so, and fails here."""

HOLD = {
    "low_marks": ["", "SLOW_ANY_HOLDER REACH_OVERLAP", "SLOW_TOO_FEW REACH_PAST"],
    "fifo": ["", "WITH_CLEANUP"],
    "join_probes": [""],
}
"""Switches under which everything holds; a REACH among them cannot be reached then."""
TOGETHER = {"FAULT_END_SEEN": "WITH_CLEANUP", "REACH_ROW_ENDS": "WITH_CLEANUP"}
"""Switches that mean nothing without another one."""

pytestmark = [
    pytest.mark.skipif(shutil.which("spin") is None, reason="spin is not installed"),
    pytest.mark.skipif(COMPILER is None, reason="there is no C compiler"),
]


def planted(model: str) -> list[str]:
    """The faults and reachable states that a model's head names."""
    head = (MODELS / f"{model}.pml").read_text().partition("*/")[0]
    return re.findall(r"^     ((?:FAULT|REACH)_[A-Z_]+)", head, re.MULTILINE)


HOLDING = [(model, switches) for model, several in HOLD.items() for switches in several]
PLANTED = [(model, switch) for model in HOLD for switch in planted(model)]


def search(folder: Path, model: str, switches: str) -> str:
    """What the search of a model told, which must have come to its end or to an error."""
    assert COMPILER is not None
    defined = [f"-D{switch}" for switch in switches.split()]
    run(folder, "spin", *defined, "-a", str(MODELS / f"{model}.pml"))
    run(folder, COMPILER, "-O2", "-w", "-DSAFETY", "-o", "pan", "pan.c")
    told = run(folder, "./pan", f"-m{DEPTH}", "-w24")
    assert "max search depth too small" not in told
    assert "out of memory" not in told
    return told


def run(folder: Path, *command: str) -> str:
    """What a program said, which must have ended well."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command[0]}: {done.stdout}{done.stderr}"
    return done.stdout


def errors(told: str) -> int:
    """How many a search found."""
    found = re.search(r"errors: (\d+)", told)
    assert found, told
    return int(found[1])


def test_every_model_is_searched() -> None:
    assert {path.stem for path in MODELS.glob("*.pml")} == set(HOLD)


@pytest.mark.parametrize(("model", "switches"), HOLDING, ids=["-".join(one).strip("-") for one in HOLDING])
def test_a_model_holds(model: str, switches: str, tmp_path: Path) -> None:
    told = search(tmp_path, model, switches)
    assert errors(told) == 0, told
    assert "Search not completed" not in told


@pytest.mark.parametrize(("model", "switch"), PLANTED, ids=["-".join(one) for one in PLANTED])
def test_what_is_planted_is_found(model: str, switch: str, tmp_path: Path) -> None:
    told = search(tmp_path, model, f"{switch} {TOGETHER.get(switch, '')}")
    assert errors(told) > 0, told
    assert "assertion violated" in told
