"""``pysqlbox doctor``."""

from __future__ import annotations

import json

import pytest

from pysqlbox.deployment import Deployment
from tests.cli.conftest import Run, kill


def test_doctor_tells_the_worst_first_and_its_exit_code_tells_too(run: Run, deployment: Deployment) -> None:
    kill(deployment, "1", name="orders")
    deployment.outbox.pause("on \x1b hold")
    text = run("doctor", code=1).output
    lines = text.splitlines()
    levels = [line.split()[0] for line in lines if line[:1].isalpha()]
    assert levels == sorted(levels, key=("error", "warning", "unknown", "note").index)
    at = lines.index("warning  dead_letters: box orders")
    assert "1 messages were given up" in lines[at + 1]
    assert lines[at + 2].startswith("         > ")
    assert "\x1b" not in text
    assert "note     paused: box outbox, topic on \\x1b hold" in lines
    assert lines[-1].endswith(" rows are ok")
    assert not any(line.startswith("ok ") for line in lines)


def test_doctor_shows_what_is_fine_on_request(run: Run, deployment: Deployment) -> None:
    fine = [each for each in deployment.doctor() if each.level == "ok"]
    lines = run("doctor", "--all", code=_code(deployment)).output.splitlines()
    assert sum(line.startswith("ok ") for line in lines) == len(fine)


def test_doctor_as_json_has_every_row(run: Run, deployment: Deployment) -> None:
    rows = json.loads(run("doctor", "--json", code=_code(deployment)).output)
    assert [list(row) for row in rows] == [["check", "level", "subject", "detail", "advice"]] * len(rows)
    assert [(row["check"], row["subject"]) for row in rows] == [
        (each.check, each.subject) for each in deployment.doctor()
    ]


def _code(db: Deployment) -> int:
    """The servers of these tests have autovacuum off, which is an error."""
    return 1 if any(each.is_bad for each in db.doctor()) else 0


@pytest.mark.dialect("mssql")
def test_doctor_ends_well_if_nothing_is_wrong(run: Run) -> None:
    assert "rows are ok" in run("doctor").output


def test_doctor_of_a_schema_that_is_not_there(run: Run) -> None:
    assert "run pysqlbox migrate" in run("doctor", "--schema", "nosuch", code=2).stderr
