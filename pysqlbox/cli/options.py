"""Options that several commands share, and the deployment they lead to."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import click

from pysqlbox.deployment import Deployment, connect
from pysqlbox.locate import URL_HELP, URL_VARIABLE
from pysqlbox.worker.signals import signals

__all__ = [
    "DURATION",
    "MOMENT",
    "box_option",
    "boxes_option",
    "deployment",
    "json_option",
    "schema_option",
    "stopping",
    "url_option",
]

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_BOXES = ("outbox", "inbox")

url_option = click.option("--url", envvar=URL_VARIABLE, show_envvar=True, help=URL_HELP)
schema_option = click.option(
    "--schema", default="infra", show_default=True, help="The schema that holds everything."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def box_option(command: Command) -> Command:
    """One box."""
    return click.option("--box", "name", default="outbox", show_default=True, help="The box's name.")(command)


def boxes_option(command: Command) -> Command:
    """Some boxes."""
    text = "A box's name; may be repeated.  [default: outbox and inbox]"
    return click.option("--box", "names", multiple=True, default=DEFAULT_BOXES, help=text)(command)


@contextlib.contextmanager
def deployment(url: str | None, schema: str) -> Iterator[Deployment]:
    """The deployment that the options name, closed at the end."""
    with connect(url, schema=schema, pool_size=2) as db:
        yield db


@contextlib.contextmanager
def stopping() -> Iterator[threading.Event]:
    """An event that SIGTERM and Ctrl-C set, so that a loop ends between two steps."""
    stop = threading.Event()
    with signals(lambda _number, _frame: stop.set()):
        yield stop


class _Duration(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    name = "duration"
    _units = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}  # noqa: RUF012  # never changed

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smhdw]?)", str(value).strip())
        if match is None:
            self.fail("must be a number of seconds, or one with a unit: 30s, 5m, 2h, 7d, 2w", param, ctx)
        try:
            return timedelta(seconds=float(match[1]) * self._units[match[2]])
        except OverflowError:
            self.fail("is too long", param, ctx)


class _Moment(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """An ISO 8601 time; one without an offset is UTC."""
        if isinstance(value, datetime):
            return value
        try:
            found = datetime.fromisoformat(str(value).strip())
        except ValueError:
            self.fail("must be an ISO 8601 time, such as 2026-01-31T12:00:00+01:00", param, ctx)
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


DURATION = _Duration()
MOMENT = _Moment()
