"""``pysqlbox enqueue``: one message by hand, or many from lines."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import click

from pysqlbox.boxes import AnyBox
from pysqlbox.cli.options import (
    DURATION,
    MOMENT,
    box_option,
    deployment,
    json_option,
    schema_option,
    url_option,
)
from pysqlbox.cli.output import echo_json, fields_of

__all__ = ["enqueue", "headers_of", "payload_of"]

LINES = 1000
"""How many lines go in one call."""


@click.command()
@click.argument("topic")
@click.argument("payload", required=False)
@url_option
@schema_option
@box_option
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Where the payload is, or with --lines the payloads; - is the standard input.",
)
@click.option("--lines", is_flag=True, help="Each line of the input is a message; only for an outbox.")
@click.option("--source", help="Inbox: who sent it.")
@click.option("--message-id", help="The message's own id: a UUID, in an inbox any text.")
@click.option("--hash", "digest", help="Inbox: hash of the content, in hex.")
@click.option("--correlation-id", help="Outbox: what it belongs to.")
@click.option("--group-id", help="Messages of a group are handled in order.")
@click.option("--priority", type=click.IntRange(-32768, 32767), help="Higher ones come first.  [default: 0]")
@click.option("--dedup-key", help="Outbox: a second message with this key is a duplicate for a while.")
@click.option("--collapse-key", help="Replaces older waiting messages with this key.")
@click.option("--due-at", type=MOMENT, help="Not before this time.")
@click.option("--delay", type=DURATION, help="Not before this long from now.")
@click.option("--expires-at", type=MOMENT, help="Not after this time.")
@click.option("--expires-in", type=DURATION, help="Not after this long from now, by this machine's clock.")
@click.option("--header", "pairs", multiple=True, metavar="NAME=VALUE", help="A header; may be repeated.")
@click.option("--headers", help="All headers as a JSON object.")
@click.option("--created-at", type=MOMENT, help="A migrated message's time; in an inbox of its receipt.")
@json_option
def enqueue(
    topic: str,
    payload: str | None,
    url: str | None,
    schema: str,
    name: str,
    path: Path | None,
    lines: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Enqueue a message. Without PAYLOAD it is read from --file, or from the standard input, as it is.

    \b
    Examples:
      pysqlbox enqueue email.send '{"to": "me"}' --delay 10m
      pysqlbox enqueue order.paid --box inbox --source shop --message-id 17 '{}'
      produce | pysqlbox enqueue order.created --lines
    """
    arguments = _arguments(options)
    if lines and (payload is not None or "message_id" in arguments or "dedup_key" in arguments):
        raise click.UsageError("--lines goes without PAYLOAD, --message-id and --dedup-key")
    with deployment(url, schema) as db:
        box = db.box(name)
        _check_kind(box, arguments, lines)
        if lines:
            _enqueue_lines(box, topic, path, arguments, as_json)
            return
        text = payload_of(payload, path)
        if box.kind == "inbox" and "created_at" in arguments:
            arguments["received_at"] = arguments.pop("created_at")
        found: Any = box.enqueue(topic=topic, payload=text, **arguments)
    if as_json:
        echo_json(fields_of(found, without=("ordinal",)))
        return
    note = " (its hash differs from the one known)" if getattr(found, "hash_mismatch", False) else ""
    identity = f", message id {found.message_id}" if box.kind == "outbox" else ""
    click.echo(f"{found.outcome}: id {found.id}{identity}{note}")


def _arguments(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, under the names of enqueue's arguments."""
    for name, length in (("due_at", "delay"), ("expires_at", "expires_in")):
        if options[name] is not None and options[length] is not None:
            raise click.UsageError(f"give either --{name.replace('_', '-')} or --{length.replace('_', '-')}")
    lifetime: timedelta | None = options.pop("expires_in")
    if lifetime is not None:
        try:
            options["expires_at"] = datetime.now(UTC) + lifetime
        except OverflowError:
            raise click.UsageError("--expires-in: is too long") from None
    digest = options.pop("digest")
    if digest is not None:
        try:
            options["hash"] = bytes.fromhex(digest)
        except ValueError:
            raise click.UsageError("--hash: must be hex") from None
    options["headers"] = headers_of(options.pop("headers"), options.pop("pairs"))
    return {name: value for name, value in options.items() if value is not None}


def headers_of(text: str | None, pairs: tuple[str, ...]) -> dict[str, Any] | None:
    """The headers that --headers and --header give together."""
    try:
        found = json.loads(text) if text is not None else {}
    except ValueError:
        raise click.UsageError("--headers: must be a JSON object") from None
    if not isinstance(found, dict):
        raise click.UsageError("--headers: must be a JSON object")
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not key or not separator:
            raise click.UsageError("--header: must be NAME=VALUE")
        found[key] = value
    return found or None


def _check_kind(box: AnyBox, arguments: dict[str, Any], lines: bool) -> None:
    """Name the options that the box's kind does not have, or needs."""
    foreign: tuple[str, ...]
    needed: tuple[str, ...]
    if box.kind == "inbox":
        foreign, needed = ("correlation_id", "dedup_key"), ("source", "message_id")
        if lines:
            raise click.UsageError("--lines is for outboxes; an inbox needs each message's own id")
    else:
        foreign, needed = ("source", "hash"), ()
    for name in foreign:
        if name in arguments:
            raise click.UsageError(f"--{name.replace('_', '-')}: an {box.kind} has none")
    for name in needed:
        if name not in arguments:
            raise click.UsageError(f"--{name.replace('_', '-')}: an {box.kind} needs it")
    if box.kind == "outbox" and "message_id" in arguments:
        try:
            arguments["message_id"] = UUID(arguments["message_id"])
        except ValueError:
            raise click.UsageError("--message-id: an outbox's must be a UUID") from None


def payload_of(payload: str | None, path: Path | None) -> str:
    """The payload as it was given, to the last character."""
    if payload is not None:
        if path is not None:
            raise click.UsageError("give either PAYLOAD or --file")
        return payload
    return _decoded(_read(path))


def _read(path: Path | None) -> bytes:
    if path is not None and str(path) != "-":
        return path.read_bytes()
    if sys.stdin.isatty():
        raise click.UsageError("no payload: give it as an argument, with --file or on the standard input")
    return sys.stdin.buffer.read()


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        pass  # the error would hold the content
    raise click.UsageError("the payload is not UTF-8 text")


def _lines(path: Path | None) -> Iterator[str]:
    """The lines that are not empty, without their ends."""
    if path is None or str(path) == "-":
        yield from (_decoded(line).rstrip("\r\n") for line in sys.stdin.buffer if line.strip())
        return
    with path.open("rb") as file:
        yield from (_decoded(line).rstrip("\r\n") for line in file if line.strip())


def _enqueue_lines(
    box: AnyBox, topic: str, path: Path | None, arguments: dict[str, Any], as_json: bool
) -> None:
    """A call for every thousand lines; those before a bad one stay."""
    total = 0
    lines = _lines(path)
    while batch := list(itertools.islice(lines, LINES)):
        box.enqueue_many({"topic": topic, "payload": line, **arguments} for line in batch)
        total += len(batch)
    if as_json:
        echo_json({"enqueued": total})
    else:
        click.echo(f"enqueued {total}")
