"""``pysqlbox pause``, ``resume`` and ``configure``: what a box does, and whether it does anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from pysqlbox.cli.options import box_option, deployment, json_option, schema_option, url_option
from pysqlbox.cli.output import echo_json, printable

__all__ = ["configure", "pause", "resume"]

Command = TypeVar("Command", bound=Callable[..., Any])


def _topic_argument(command: Command) -> Command:
    return click.argument("topic", required=False)(command)


@click.command()
@url_option
@schema_option
@box_option
@_topic_argument
@json_option
def pause(url: str | None, schema: str, name: str, topic: str | None, as_json: bool) -> None:
    """Stop handing out messages of a TOPIC, or of the whole box.

    What is leased goes on. Enqueueing goes on, too.

    \b
    Examples:
      pysqlbox pause order.created
      pysqlbox pause --box orders
    """
    with deployment(url, schema) as db:
        affected = db.box(name).pause(topic)
    _tell("paused", name, topic, affected, as_json)


@click.command()
@url_option
@schema_option
@box_option
@_topic_argument
@json_option
def resume(url: str | None, schema: str, name: str, topic: str | None, as_json: bool) -> None:
    """Hand out messages of a TOPIC, or of the whole box, again.

    A topic that was paused by name stays so when the whole box is resumed.

    \b
    Examples:
      pysqlbox resume order.created
      pysqlbox resume --box orders
    """
    with deployment(url, schema) as db:
        affected = db.box(name).resume(topic)
    _tell("resumed", name, topic, affected, as_json)


@click.command(short_help="Change a setting of a box.")
@url_option
@schema_option
@box_option
@click.argument("setting")
@click.argument("value")
@json_option
def configure(url: str | None, schema: str, name: str, setting: str, value: str, as_json: bool) -> None:
    """Change a SETTING of a box to a VALUE, and print it as it is kept.

    Settings are dedup_window_seconds, max_attempts (0: no limit), backoff_base_seconds, backoff_cap_seconds
    and notify (on or off).

    \b
    Examples:
      pysqlbox configure max_attempts 20
      pysqlbox configure notify off --box orders
    """
    with deployment(url, schema) as db:
        kept = db.box(name).configure(setting, value)
    if as_json:
        echo_json({setting: kept})
    else:
        click.echo(f"{setting} = {kept}")


def _tell(done: str, name: str, topic: str | None, affected: int, as_json: bool) -> None:
    if as_json:
        echo_json({done: affected})
    else:
        what = name if topic is None else f"{printable(topic)} of {name}"
        click.echo(f"{done} {what}" if affected else f"{what}: nothing to do")
