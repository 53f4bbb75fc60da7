"""``pysqlbox dead``: look at dead letters, bring them back, or delete them."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from pysqlbox.boxes import AnyBox
from pysqlbox.cli.options import box_option, deployment, json_option, schema_option, url_option
from pysqlbox.cli.output import echo_json, fields_of, moment, printable, table

__all__ = ["dead", "replay"]

PAGE = 1000

_ids_argument = click.argument("ids", nargs=-1, type=click.IntRange(1, 2**63 - 1))
_topic_option = click.option("--topic", help="Only messages of this topic.")


@click.group()
def dead() -> None:
    """Look at dead letters, bring them back, or delete them.

    \b
    Examples:
      pysqlbox dead causes
      pysqlbox dead list --topic order.created
      pysqlbox dead show 17
      pysqlbox dead replay 17 18
      pysqlbox dead discard --all --topic test --yes
    """


@dead.command("list", short_help="List dead letters, oldest first.")
@url_option
@schema_option
@box_option
@_topic_option
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 10_000), help="How many.")
@click.option("--after", default=0, type=click.IntRange(0), help="Only ids above this one: the next page.")
@json_option
def list_(
    url: str | None,
    schema: str,
    name: str,
    topic: str | None,
    limit: int,
    after: int,
    as_json: bool,
) -> None:
    """List dead and expired messages, oldest first, without their payloads."""
    with deployment(url, schema) as db:
        letters = db.box(name).dead_letters(limit=limit, after_id=after, topic=topic)
    if as_json:
        echo_json([fields_of(letter, without=("payload", "headers")) for letter in letters])
    elif letters:
        titles = ["id", "topic", "status", "attempts", "died at (UTC)", "error"]
        rows = [
            (str(each.id), each.topic, each.status, str(each.attempt), each.died_at, each.last_error)
            for each in letters
        ]
        click.echo(table(titles, rows, right=("id", "attempts")))
        if len(letters) == limit:
            click.echo(f"more with --after {letters[-1].id}", err=True)
    else:
        click.echo("no dead letters", err=True)


@dead.command()
@url_option
@schema_option
@box_option
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 10_000), help="How many.")
@json_option
def causes(url: str | None, schema: str, name: str, limit: int, as_json: bool) -> None:
    """Count dead messages by topic and cause: one fault is one row."""
    with deployment(url, schema) as db:
        found = db.box(name).dead_causes(limit=limit)
    if as_json:
        echo_json(found)
    elif found:
        titles = ["messages", "topic", "newest (UTC)", "one of them", "cause"]
        rows = [
            (each.messages or "", each.topic, each.newest_died_at, each.sample_id or "", each.cause)
            for each in found  # the last may be about all that are older
        ]
        click.echo(table(titles, rows, right=("messages", "one of them")))
    else:
        click.echo("no dead letters", err=True)


@dead.command()
@url_option
@schema_option
@box_option
@click.argument("identity", metavar="ID", type=click.IntRange(1, 2**63 - 1))
@click.option("--payload", "only_payload", is_flag=True, help="Print the payload and nothing else, as it is.")
@json_option
def show(
    url: str | None,
    schema: str,
    name: str,
    identity: int,
    only_payload: bool,
    as_json: bool,
) -> None:
    """Show one message whole.

    \b
    Examples:
      pysqlbox dead show 17
      pysqlbox dead show 17 --payload > payload.json
    """
    with deployment(url, schema) as db:
        message = db.box(name).get(identity)
    if only_payload:
        sys.stdout.buffer.write((message.payload or "").encode())
    elif as_json:
        echo_json(fields_of(message))
    else:
        for field, value in fields_of(message, without=("payload",)).items():
            if value is not None:
                text = moment(value) if hasattr(value, "tzinfo") else str(value)
                click.echo(f"{field:<16}{printable(value.hex() if isinstance(value, bytes) else text)}")
        click.echo(f"\n{printable(message.payload or '', lines=True)}")


@dead.command()
@url_option
@schema_option
@box_option
@_ids_argument
@click.option("--all", "everything", is_flag=True, help="All dead letters, or all of --topic.")
@_topic_option
@json_option
def replay(
    url: str | None,
    schema: str,
    name: str,
    ids: tuple[int, ...],
    everything: bool,
    topic: str | None,
    as_json: bool,
) -> None:
    """Bring dead letters back: claimable at once, attempts at 0.

    \b
    Examples:
      pysqlbox dead replay 17 18
      pysqlbox dead replay --all --topic order.created
    """
    with deployment(url, schema) as db:
        box = db.box(name)
        affected = sum(box.replay(page) for page in _chosen(box, ids, everything, topic))
    _report("replayed", affected, as_json)


@dead.command()
@url_option
@schema_option
@box_option
@_ids_argument
@click.option("--all", "everything", is_flag=True, help="All dead letters, or all of --topic.")
@_topic_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def discard(
    url: str | None,
    schema: str,
    name: str,
    ids: tuple[int, ...],
    everything: bool,
    topic: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete dead letters for good.

    \b
    Examples:
      pysqlbox dead discard 17
      pysqlbox dead discard --all --topic test --yes
    """
    with deployment(url, schema) as db:
        box = db.box(name)
        chosen = _chosen(box, ids, everything, topic)
        if not yes:
            which = f"{len(ids)}" if ids else f"all{f' of {topic!r}' if topic else ''}"
            click.confirm(f"delete {which} dead letters of {name} for good?", abort=True, err=True)
        affected = sum(box.discard(page) for page in chosen)
    _report("discarded", affected, as_json)


def _chosen(box: AnyBox, ids: tuple[int, ...], everything: bool, topic: str | None) -> Iterator[list[int]]:
    """The ids in pages; exactly one of ids and --all must be given."""
    if bool(ids) == everything:
        raise click.UsageError("give either ids or --all")
    if ids and topic is not None:
        raise click.UsageError("--topic goes with --all")
    if ids:
        return iter([list(ids)])
    return _pages(box, topic)


def _pages(box: AnyBox, topic: str | None) -> Iterator[list[int]]:
    """All that are dead now; what dies meanwhile is not run after."""
    after = 0
    while letters := box.dead_letters(limit=PAGE, after_id=after, topic=topic):
        after = letters[-1].id
        yield [letter.id for letter in letters]
        if len(letters) < PAGE:
            return


def _report(verb: str, affected: int, as_json: bool) -> None:
    if as_json:
        echo_json({verb: affected})
    else:
        click.echo(f"{verb} {affected}")
