"""``pysqlbox doctor``."""

from __future__ import annotations

import json
import os
import signal

import pytest

from pysqlbox import DatabaseUnavailable, Finding
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
    assert "         1 message was given up, " in lines[at + 1]
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


class Looks:
    """What the doctor answers, look by look; the last one ends the watch as Ctrl-C does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: object) -> None:
        self.answers = list(answers)
        monkeypatch.setattr(Deployment, "doctor", lambda _db: self.next())

    def next(self) -> list[Finding]:
        """The next answer."""
        answer = self.answers.pop(0)
        if not self.answers:
            os.kill(os.getpid(), signal.SIGINT)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, list)
        return answer


FINE = [Finding("standby", "ok", "server", "it takes writes", None)]
BAD = [Finding("standby", "error", "server", "it is in recovery", "connect to the primary")]


@pytest.mark.dialect("postgres")
@pytest.mark.parametrize(
    ("answers", "code"),
    [
        ([BAD, FINE], 0),
        ([FINE, BAD], 1),
        ([FINE, DatabaseUnavailable("away"), BAD], 1),
        ([BAD, DatabaseUnavailable("away")], 2),
    ],
)
def test_doctor_watches_until_ctrl_c_and_ends_with_the_last_code(
    run: Run, monkeypatch: pytest.MonkeyPatch, answers: list[object], code: int
) -> None:
    looks = Looks(monkeypatch, *answers)
    result = run("doctor", "--watch", "0.01s", code=code)
    assert looks.answers == []
    assert result.stdout.count("error    standby: server\n") == answers.count(BAD)
    assert result.stdout.count("1 of 1 rows are ok") == answers.count(FINE)
    assert result.stderr.count("away; trying again") == sum(isinstance(each, Exception) for each in answers)


@pytest.mark.dialect("postgres")
def test_doctor_watches_as_json_a_line_a_look(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Looks(monkeypatch, BAD, FINE)
    lines = run("doctor", "--watch", "0.01s", "--json").stdout.splitlines()
    assert [json.loads(line)[0]["level"] for line in lines] == ["error", "ok"]


def test_doctor_watches_the_database(run: Run, deployment: Deployment) -> None:
    """It is really asked again: what is mended between two looks is gone in the second one."""
    code = _code(deployment)
    kill(deployment, "1")
    real = Deployment.doctor
    seen: list[int] = []

    def look(db: Deployment) -> list[Finding]:
        found = real(db)
        seen.append(sum(each.check == "dead_letters" and each.level != "ok" for each in found))
        deployment.outbox.discard([each.id for each in deployment.outbox.dead_letters()])
        if len(seen) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Deployment, "doctor", look)
        run("doctor", "--watch", "0.01s", code=code)
    assert seen == [1, 0]
