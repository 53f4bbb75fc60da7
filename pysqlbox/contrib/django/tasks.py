"""A backend of ``django.tasks`` (Django 6; on 5.2 the package django-tasks has the same interface).

    TASKS = {"default": {"BACKEND": "pysqlbox.contrib.django.tasks.PysqlboxBackend"}}

A task is a message of the outbox of Django's database, enqueued on Django's own connection: it exists exactly
if the request's transaction commits. Its queue is the topic ``tasks.<queue>``, its priority and ``run_after``
are the message's. ``manage.py pysqlbox_tasks`` works all queues; by ``add_tasks`` a worker of your own does.

A task is run at least once: one that raises is tried again under backoff, until the box's ``max_attempts``,
and is then a dead letter. Nothing keeps what it returns.
"""

from __future__ import annotations

import builtins
import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core import checks
from django.db import close_old_connections, connections
from django.utils import timezone
from django.utils.module_loading import import_string

from pysqlbox.contrib.django import atomic, deployment
from pysqlbox.errors import InvalidArgument, PackageMissing
from pysqlbox.messages import OutboxMessage, StoredOutboxMessage
from pysqlbox.worker import NonRetryable, Worker

try:
    from django.tasks import TaskContext, TaskResult, TaskResultStatus, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskError
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
except ModuleNotFoundError:
    try:
        from django_tasks import TaskContext, TaskResult, TaskResultStatus, task_backends
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import Task, TaskError
        from django_tasks.exceptions import TaskResultDoesNotExist
        from django_tasks.signals import task_enqueued, task_finished, task_started
    except ModuleNotFoundError as error:
        raise PackageMissing(
            "the backend of django.tasks needs Django 6, or before it django-tasks: pip install django-tasks"
        ) from error

__all__ = ["PysqlboxBackend", "PysqlboxResult", "add_tasks", "make_worker"]

_OPTIONS = {"box", "database", "schema", "topic", "transactional"}
#: What a message's status says of its task; whatever else a message may be, it is still to be run.
_STATUSES = {
    "InProgress": TaskResultStatus.RUNNING,
    "Done": TaskResultStatus.SUCCESSFUL,
    "Failed": TaskResultStatus.FAILED,
    "Expired": TaskResultStatus.FAILED,
    "Cancelled": TaskResultStatus.FAILED,
}


class PysqlboxResult(TaskResult):  # type: ignore[misc]  # Django has no type information
    """What the message tells of a task: how far it is, when, and its last error. Not what it returned."""

    @property
    def return_value(self) -> Any:
        """Of a task that was done: an error, rather than a None that it may not have returned."""
        if self.status == TaskResultStatus.SUCCESSFUL:
            raise NotImplementedError(
                "pysqlbox keeps no return values: let the task write its result to a table of your own"
            )
        return super().return_value


class PysqlboxBackend(BaseTaskBackend):  # type: ignore[misc]  # Django has no type information
    """``OPTIONS``: ``database`` ("default"), ``schema`` ("infra"), ``box`` ("outbox"), ``topic``, with which
    the queues' topics begin ("tasks"), ``transactional`` (False).

    With ``transactional`` a task runs inside ``transaction.atomic``, and what it writes to the database is
    committed with the message's end: once, whatever is killed when.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        self.database = str(self.options.get("database", "default"))
        self.schema = str(self.options.get("schema", "infra"))
        self.box_name = str(self.options.get("box", "outbox"))
        self.prefix = str(self.options.get("topic", "tasks"))
        self.transactional = bool(self.options.get("transactional", False))

    @property
    def box(self) -> Any:
        """The outbox of the tasks."""
        return deployment(self.database, self.schema).box(self.box_name, kind="outbox")

    def topic(self, queue: str) -> str:
        """The topic of a queue."""
        return f"{self.prefix}.{queue}"

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> PysqlboxResult:
        """Enqueue in Django's transaction, if one is open; there is a task exactly if that commits."""
        self.validate_task(task)
        result = self._result(task, args, kwargs, enqueued_at=timezone.now())
        sent = self.box.enqueue(
            self.topic(task.queue_name),
            json.dumps({"task": task.module_path, "args": result.args, "kwargs": result.kwargs}),
            due_at=_aware(task.run_after),
            priority=task.priority,
            connection=connections[self.database],
        )
        object.__setattr__(result, "id", str(sent.message_id))
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> PysqlboxResult:
        """What the message tells, as long as it is kept; what this transaction has enqueued is there too."""
        try:
            found = self.box.find(UUID(str(result_id)), connection=connections[self.database])
        except ValueError:
            found = None
        if found is None or not found.topic.startswith(f"{self.prefix}."):
            raise TaskResultDoesNotExist(result_id)
        return self._stored(found)

    def check(self, **_: Any) -> list[checks.CheckMessage]:
        """For ``manage.py check``."""
        found: list[checks.CheckMessage] = []
        if unknown := sorted(set(self.options) - _OPTIONS):
            found.append(
                checks.Error(
                    f"TASKS[{self.alias!r}]: unknown OPTIONS: {', '.join(unknown)}", id="pysqlbox.E001"
                )
            )
        if self.database not in connections:
            found.append(
                checks.Error(
                    f"TASKS[{self.alias!r}]: there is no database {self.database!r}", id="pysqlbox.E002"
                )
            )
        elif connections[self.database].vendor != "postgresql":
            found.append(
                checks.Error(
                    f"TASKS[{self.alias!r}]: database {self.database!r} is not a PostgreSQL",
                    id="pysqlbox.E003",
                )
            )
        return found

    def run(self, message: OutboxMessage, worker_id: str) -> None:
        """Run a message's task; what it raises comes out."""
        if self.transactional:  # transaction.atomic is around it, and looks after connections
            self._run(message, worker_id)
            return
        close_old_connections()
        try:
            self._run(message, worker_id)
        finally:
            close_old_connections()

    def _run(self, message: OutboxMessage, worker_id: str) -> None:
        task, args, kwargs = self._call(message)
        now = timezone.now()
        result = self._result(
            task, args, kwargs, str(message.message_id), TaskResultStatus.RUNNING,
            enqueued_at=_local(message.created_at), started_at=now, last_attempted_at=now,
            worker_ids=[*[""] * message.attempt, worker_id],
            errors=_errors(message.last_error),
        )  # fmt: skip
        task_started.send(type(self), task_result=result)
        try:
            task.call(*([TaskContext(task_result=result)] if task.takes_context else []), *args, **kwargs)
        except Exception as error:
            self._finish(result, TaskResultStatus.FAILED, _errors(f"{type(error).__name__}: {error}"))
            raise
        self._finish(result, TaskResultStatus.SUCCESSFUL, [])

    def _finish(self, result: PysqlboxResult, status: Any, errors: list[Any]) -> None:
        object.__setattr__(result, "finished_at", timezone.now())
        object.__setattr__(result, "status", status)
        result.errors.extend(errors)
        task_finished.send(type(self), task_result=result)

    def _call(self, message: OutboxMessage | StoredOutboxMessage) -> tuple[Any, list[Any], dict[str, Any]]:
        """A message's task with its arguments. One that this code does not know yet may be known later."""
        try:
            told = json.loads(message.payload)
            path, args, kwargs = told["task"], list(told["args"]), dict(told["kwargs"])
        except (ValueError, TypeError, KeyError) as error:
            raise NonRetryable("the message is not a task's") from error
        task = import_string(path)
        if not isinstance(task, Task):
            raise NonRetryable(f"{path} is not a task")
        queue = message.topic.removeprefix(f"{self.prefix}.")
        return task.using(queue_name=queue, priority=message.priority, backend=self.alias), args, kwargs

    def _stored(self, message: StoredOutboxMessage) -> PysqlboxResult:
        task, args, kwargs = self._call(message)
        status = _STATUSES.get(message.status, TaskResultStatus.READY)
        done = status == TaskResultStatus.SUCCESSFUL
        # Attempts that failed are counted, but for the last one of a message that was given up.
        workers = [""] * message.attempt
        if message.status in ("Done", "InProgress", "Failed"):
            workers.append(str(message.processed_by or message.owner_token or ""))
        return self._result(
            task, args, kwargs, str(message.message_id), status,
            enqueued_at=_local(message.created_at),
            finished_at=_local(message.processed_at or message.died_at),
            worker_ids=workers,
            errors=[] if done else _errors(message.last_error),
        )  # fmt: skip

    def _result(
        self,
        task: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        identity: str = "",
        status: Any = TaskResultStatus.READY,
        **known: Any,
    ) -> PysqlboxResult:
        times = dict.fromkeys(("enqueued_at", "started_at", "finished_at", "last_attempted_at"))
        lists: dict[str, list[Any]] = {"errors": [], "worker_ids": []}
        return PysqlboxResult(
            task=task, id=identity, status=status, args=list(args), kwargs=dict(kwargs), backend=self.alias,
            **{**times, **lists, **known},
        )  # fmt: skip


def add_tasks(worker: Worker, alias: str = "default", *, queues: Iterable[str] | None = None) -> None:
    """Have a worker of the backend's deployment and box run the tasks of these queues, or all in QUEUES."""
    backend = _backend(alias)
    wanted = sorted(backend.queues if queues is None else set(queues))
    if not wanted:
        raise InvalidArgument("queues: must be named, since QUEUES of the settings names none")
    if unknown := set(wanted) - (backend.queues or set(wanted)):
        raise InvalidArgument(f"queues: {', '.join(sorted(unknown))} must be in QUEUES of the settings")
    transactional = functools.partial(atomic, backend.database) if backend.transactional else None

    def run(message: OutboxMessage) -> None:
        backend.run(message, str(worker.owner_token))

    for queue in wanted:
        worker.add_handler(backend.topic(queue), run, transactional=transactional)


def make_worker(alias: str = "default", *, queues: Iterable[str] | None = None, **options: Any) -> Worker:
    """A worker of the tasks of these queues, or all in QUEUES; ``options`` as of ``db.worker``."""
    backend = _backend(alias)
    worker = deployment(backend.database, backend.schema).worker(boxes=[backend.box_name], **options)
    add_tasks(worker, alias, queues=queues)
    return worker


def _backend(alias: str) -> PysqlboxBackend:
    backend = task_backends[alias]
    if not isinstance(backend, PysqlboxBackend):
        raise InvalidArgument(f"alias: TASKS[{alias!r}] must have pysqlbox's backend")
    return backend


def _aware(time: datetime | None) -> datetime | None:
    """A time of Django's, whatever USE_TZ says."""
    return timezone.make_aware(time) if time is not None and timezone.is_naive(time) else time


def _local(time: datetime | None) -> datetime | None:
    """A time of the database's as Django's settings want it."""
    return time if time is None or settings.USE_TZ else timezone.make_naive(time)


def _errors(text: str | None) -> list[Any]:
    """What is known of the last failure: the exception's name and text. Its traceback is in the log only."""
    if not text:
        return []
    name = text.partition(":")[0]
    path = f"builtins.{name}" if hasattr(builtins, name) else name
    return [TaskError(exception_class_path=path, traceback=text)]
