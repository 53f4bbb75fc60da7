"""Tasks as an application writes them, for whichever of the two packages is here."""

from __future__ import annotations

from typing import Any

from django.db import connections

try:
    from django.tasks import TaskResultStatus, task, task_backends
    from django.tasks.exceptions import TaskResultDoesNotExist
except ModuleNotFoundError:
    from django_tasks import TaskResultStatus, task, task_backends
    from django_tasks.exceptions import TaskResultDoesNotExist

__all__ = [
    "DONE", "TaskResultDoesNotExist", "TaskResultStatus", "count", "fail", "later", "task_backends", "told",
]  # fmt: skip

#: What was run, in its order.
DONE: list[Any] = []


@task()  # type: ignore[untyped-decorator]  # Django has no type information
def told(word: str, *, times: int = 1) -> str:
    """Leaves its argument."""
    DONE.append(word * times)
    return word


@task(takes_context=True)  # type: ignore[untyped-decorator]  # Django has no type information
def fail(context: Any, word: str) -> None:
    """Never succeeds."""
    DONE.append((context.attempt, context.task_result.args))
    raise ValueError(f"no {word}")


@task()  # type: ignore[untyped-decorator]  # Django has no type information
async def later(word: str) -> None:
    """A coroutine function."""
    DONE.append(f"later {word}")


@task()  # type: ignore[untyped-decorator]  # Django has no type information
def count(alias: str, schema: str, *, stumble: bool) -> None:
    """Writes by Django's connection."""
    with connections[alias].cursor() as cursor:
        cursor.execute(f'INSERT INTO "{schema}".effects (message) VALUES (1)')
    if stumble:
        raise RuntimeError("after it wrote")
