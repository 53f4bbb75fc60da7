"""The backend of django.tasks: tasks are messages of Django's transaction, and results what these tell."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib.util import find_spec
from typing import Any
from uuid import uuid4

import pytest

import pysqlbox
from pysqlbox.worker import fixed
from tests.package.support import django_alias
from tests.support.database import Database

pytest.importorskip("django", reason="django is not installed")
if find_spec("django.tasks") is None:
    pytest.importorskip("django_tasks", reason="neither Django 6 nor django-tasks is installed")

pytestmark = pytest.mark.dialect("postgres")
BACKEND = "pysqlbox.contrib.django.tasks.PysqlboxBackend"
Configure = Callable[..., Any]


@pytest.fixture
def alias(db: Database) -> Iterator[str]:
    """The database as Django's settings name it."""
    from pysqlbox.contrib.django import deployment

    with django_alias(db) as name:
        yield name
        deployment(name, db.schema).close()


@pytest.fixture
def configure(db: Database, alias: str) -> Iterator[Configure]:
    """Sets TASKS, and answers the backend and the tasks of the test application."""
    from django.test.utils import override_settings

    from tests.package import django_tasks_here

    with contextlib.ExitStack() as stack:

        def settings(**options: Any) -> Any:
            chosen = {"database": alias, "schema": db.schema, **options}
            params = {"BACKEND": BACKEND, "QUEUES": ["default", "mail"], "OPTIONS": chosen}
            stack.enter_context(override_settings(TASKS={"default": params}))
            django_tasks_here.DONE.clear()
            return django_tasks_here.task_backends["default"], django_tasks_here

        yield settings


def drain(**options: Any) -> int:
    """Works the tasks until nothing is left that could be run now."""
    from pysqlbox.contrib.django.tasks import make_worker

    return make_worker(threads=1, backoff=fixed(3600), **options).drain(timeout=60)


def test_a_task_is_there_exactly_if_the_transaction_commits(configure: Configure, alias: str) -> None:
    from django.db import transaction

    from tests.package.django_tasks_here import TaskResultDoesNotExist, TaskResultStatus

    backend, tasks = configure()
    with transaction.atomic(using=alias):
        gone = tasks.told.enqueue("rolled back")
        assert tasks.told.get_result(gone.id).status == TaskResultStatus.READY, "its own transaction sees it"
        transaction.set_rollback(True, using=alias)
    with pytest.raises(TaskResultDoesNotExist):
        backend.get_result(gone.id)
    with transaction.atomic(using=alias):
        kept = tasks.told.enqueue("ab", times=2)
    bare = tasks.told.enqueue("without a transaction")
    assert (kept.status, kept.args, kept.kwargs) == (TaskResultStatus.READY, ["ab"], {"times": 2})
    assert drain() == 2
    assert tasks.DONE == ["abab", "without a transaction"]
    for result in (kept, bare):
        result.refresh()
        assert result.status == TaskResultStatus.SUCCESSFUL
        assert result.attempts == 1
        assert result.enqueued_at <= result.finished_at
    found = tasks.told.get_result(kept.id)
    with pytest.raises(NotImplementedError, match="no return values"):
        _ = found.return_value
    with pytest.raises(TaskResultDoesNotExist):
        backend.get_result(str(uuid4()))
    with pytest.raises(TaskResultDoesNotExist):
        backend.get_result("what is that?")


def test_priority_delay_and_queue(configure: Configure, db: Database) -> None:
    from django.utils import timezone

    _, tasks = configure()
    tasks.told.enqueue("plain")
    tasks.told.using(priority=50).enqueue("urgent")
    tasks.told.using(priority=-50).enqueue("sometime")
    tasks.told.using(run_after=timezone.now() + timedelta(hours=1)).enqueue("later")
    sent = tasks.told.using(queue_name="mail").enqueue("mailed")
    rows = db.sql("SELECT topic, count(*) FROM {schema}.outbox_messages GROUP BY topic ORDER BY topic")
    assert [tuple(row.values()) for row in rows] == [("tasks.default", 4), ("tasks.mail", 1)]
    assert drain(queues=["default"]) == 3
    assert tasks.DONE == ["urgent", "plain", "sometime"]
    assert tasks.told.get_result(sent.id).task.queue_name == "mail"
    db.advance(3601)
    assert drain() == 2
    assert sorted(tasks.DONE[3:]) == ["later", "mailed"]


def test_a_task_that_raises_is_tried_again_and_then_failed(configure: Configure, db: Database) -> None:
    from tests.package.django_tasks_here import TaskResultStatus

    _, tasks = configure()
    result = tasks.fail.enqueue("milk")
    drain(max_attempts=2)
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.READY, 1), "it will be run again"
    assert result.errors[0].exception_class is ValueError
    assert result.errors[0].traceback == "ValueError: no milk"
    db.advance(3601)
    drain(max_attempts=2)
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 2)
    assert tasks.DONE == [(1, ["milk"]), (2, ["milk"])]


def test_coroutine_functions_and_callers_that_await(configure: Configure) -> None:
    from asgiref.sync import async_to_sync, sync_to_async
    from django.db import connections

    from tests.package.django_tasks_here import TaskResultStatus

    backend, tasks = configure()

    async def send() -> str:
        result = await tasks.later.aenqueue("on")
        assert (await tasks.later.aget_result(result.id)).status == TaskResultStatus.READY
        await sync_to_async(lambda: connections[backend.database].close())()
        return str(result.id)

    identity = async_to_sync(send)()
    assert drain() == 1
    assert tasks.DONE == ["later on"]
    assert tasks.later.get_result(identity).status == TaskResultStatus.SUCCESSFUL


@pytest.mark.parametrize("transactional", [True, False])
def test_what_a_transactional_task_wrote_is_rolled_back_with_it(
    configure: Configure, db: Database, alias: str, transactional: bool
) -> None:
    _, tasks = configure(transactional=transactional)
    db.sql("CREATE TABLE {schema}.effects (message int)")
    try:
        tasks.count.enqueue(alias, db.schema, stumble=True)
        tasks.count.enqueue(alias, db.schema, stumble=False)
        drain()
        assert len(db.sql("SELECT message FROM {schema}.effects")) == (1 if transactional else 2)
    finally:
        db.sql("DROP TABLE {schema}.effects")


def test_signals(configure: Configure) -> None:
    from pysqlbox.contrib.django import tasks as ours

    _, tasks = configure()
    heard: list[tuple[str, str]] = []
    keep = []
    for name in ("task_enqueued", "task_started", "task_finished"):

        def hear(sender: Any, task_result: Any, name: str = name, **_: Any) -> None:
            assert sender is ours.PysqlboxBackend
            heard.append((name, str(task_result.status)))

        keep.append(hear)
        getattr(ours, name).connect(hear)
    try:
        tasks.told.enqueue("x")
        drain()
        tasks.fail.enqueue("y")
        drain(max_attempts=1)
    finally:
        for name, each in zip(("task_enqueued", "task_started", "task_finished"), keep, strict=True):
            getattr(ours, name).disconnect(each)
    told = [("task_enqueued", "READY"), ("task_started", "RUNNING"), ("task_finished", "SUCCESSFUL")]
    assert heard == [*told, *told[:2], ("task_finished", "FAILED")]


def test_what_is_no_task_is_given_up(configure: Configure, deployment: pysqlbox.Deployment) -> None:
    configure()
    for payload in ("{}", "[]", "nonsense", '{"task": "json.loads", "args": ["1"], "kwargs": {}}'):
        deployment.outbox.enqueue("tasks.default", payload)
    assert drain() == 4
    errors = {each.last_error for each in deployment.outbox.dead_letters()}
    assert errors == {"NonRetryable: the message is not a task's", "NonRetryable: json.loads is not a task"}


def test_settings_are_checked(configure: Configure, alias: str) -> None:
    from django.test.utils import override_settings

    from pysqlbox.contrib.django.tasks import PysqlboxBackend, add_tasks, make_worker

    backend, tasks = configure()
    assert backend.check() == []
    for options, error in (({"boxx": 1}, "E001"), ({"database": "gone"}, "E002")):
        found = PysqlboxBackend("a", {"OPTIONS": {"database": alias, **options}}).check()
        assert [each.id for each in found] == [f"pysqlbox.{error}"]
    with pytest.raises(pysqlbox.InvalidArgument, match="must be in QUEUES"):
        make_worker(queues=["unknown"])
    with pytest.raises(Exception, match="not valid for backend"):
        tasks.told.using(queue_name="unknown")
    with (
        override_settings(TASKS={"default": {"BACKEND": _dummy()}}),
        pytest.raises(pysqlbox.InvalidArgument, match="must have pysqlbox's"),
    ):
        make_worker()
    configure(database=alias)
    worker = make_worker(queues=["mail"])
    add_tasks(worker, queues=["default"])
    assert worker.drain(timeout=60) == 0


def _dummy() -> str:
    from tests.package.django_tasks_here import task_backends

    return f"{type(task_backends).__module__}.backends.dummy.DummyBackend"


def test_the_command_works_them(configure: Configure, capsys: pytest.CaptureFixture[str]) -> None:
    from django.core.management import load_command_class

    _, tasks = configure()
    tasks.told.enqueue("commanded")
    tasks.told.using(queue_name="mail").enqueue("not this one")
    command = load_command_class("pysqlbox.contrib.django", "pysqlbox_tasks")
    command.run_from_argv(["manage.py", "pysqlbox_tasks", "--queue", "default", "--drain"])
    assert tasks.DONE == ["commanded"]
    assert "1 done, 0 to be tried again, 0 given up" in capsys.readouterr().out
