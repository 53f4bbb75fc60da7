"""The commands that deploy, compare and render."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pysqlbox.cli import many
from pysqlbox.cli.many import parallel_option, stores_option
from pysqlbox.cli.options import json_option, schema_option, url_option
from pysqlbox.cli.output import echo_json
from pysqlbox.drivers import Target
from pysqlbox.locate import locate
from pysqlbox.names import DIALECTS, Dialect, NamedBox, parse_box
from pysqlbox.places import PLACES, first_id, last_id

if TYPE_CHECKING:
    from pysqlbox.deploy.plan import Plan

Command = TypeVar("Command", bound=Callable[..., Any])


class _BoxType(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    name = "name:kind"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> NamedBox:
        try:
            return value if isinstance(value, NamedBox) else parse_box(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _box_option(command: Command) -> Command:
    text = "A box besides outbox and inbox, e.g. orders:inbox; may be repeated. Later deployments keep it."
    return click.option("--box", "boxes", multiple=True, type=_BoxType(), help=text)(command)


def _roles_option(command: Command) -> Command:
    return click.option(
        "--roles", is_flag=True, help="Also create the roles producer, worker, operator and viewer."
    )(command)


def _unfit_option(command: Command) -> Command:
    text = (
        "SQL Server: deploy although READ_COMMITTED_SNAPSHOT is off or the compatibility level is below 150."
    )
    return click.option("--allow-unfit-database", "allow_unfit", is_flag=True, help=text)(command)


def _place_option(command: Command) -> Command:
    text = (
        "Number the deployment, once for good: its ids and drawn message_ids carry the number from then on,"
        " so that those of several stores never collide."
    )
    return click.option("--place", type=click.IntRange(0, PLACES - 1), help=text)(command)


@click.command()
@url_option
@schema_option
@stores_option
@parallel_option
@json_option
@_box_option
@_place_option
@_roles_option
@_unfit_option
@click.option(
    "--citus",
    is_flag=True,
    help="Deploy on every node of the Citus cluster that the URL leads to, each with a place of its own.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option(
    "--wait",
    "wait_seconds",
    type=click.FloatRange(min=0),
    default=60,
    show_default=True,
    help="How many seconds to go on trying while a table or view is in use.",
)
def migrate(
    url: str | None,
    schema: str,
    stores_name: str | None,
    parallel: int,
    as_json: bool,
    boxes: tuple[NamedBox, ...],
    place: int | None,
    roles: bool,
    allow_unfit: bool,
    citus: bool,
    dry_run: bool,
    wait_seconds: float,
) -> None:
    """Deploy the schema, or bring it up to date. Running it again changes nothing.

    With --stores or --citus one that fails stops no other; the exit code is then 2. JSON has a report for
    each store. A node that was added to the cluster gets its deployment by running it again, before it gets
    shards.
    """
    if citus:
        if stores_name is not None or place is not None:
            raise click.UsageError("--citus: must stand without --stores and --place; each node gets a place")
        many.migrate_citus(
            url,
            schema,
            parallel,
            as_json,
            boxes=boxes,
            roles=roles,
            dry_run=dry_run,
            wait_seconds=wait_seconds,
        )
        return
    if stores_name is not None:
        if place is not None:
            raise click.UsageError("--place: must be given to one deployment, not to many")
        many.migrate(
            stores_name, parallel, as_json,
            boxes=boxes, roles=roles, dry_run=dry_run, wait_seconds=wait_seconds,
            allow_unfit_database=allow_unfit,
        )  # fmt: skip
        return
    from pysqlbox.deploy import migrate as deploy

    with _target(url) as target:
        plan = deploy.migrate(
            target,
            schema=schema,
            boxes=boxes,
            roles=roles,
            dry_run=dry_run,
            wait_seconds=wait_seconds,
            on_wait=partial(click.echo, err=True),
            allow_unfit_database=allow_unfit,
            place=place,
        )
    if as_json:
        version = plan.version if dry_run else plan.target
        echo_json({"version": version, "changes": plan.lines(done=not dry_run), "warnings": _warnings(plan)})
        return
    _warn(plan)
    if not plan.changes:
        click.echo(f"schema {schema!r} is up to date at version {plan.version}; nothing to do")
        return
    for line in plan.lines(done=not dry_run):
        click.echo(line)
    verb = "would be" if dry_run else "is now"
    click.echo(f"schema {schema!r} {verb} at version {plan.target}")


@click.command()
@url_option
@schema_option
@stores_option
@parallel_option
@json_option
def status(url: str | None, schema: str, stores_name: str | None, parallel: int, as_json: bool) -> None:
    """Show versions, drift and pending work; change nothing. Exit code 1: there is some of either."""
    if stores_name is not None:
        many.status(stores_name, parallel, as_json)
        return
    from pysqlbox.deploy import migrate as deploy

    with _target(url) as target:
        plan = deploy.status(target, schema=schema)
    pending = plan.lines(done=False) if plan.version else ["everything"]
    if as_json:
        echo_json(
            {
                "version": plan.version, "target": plan.target, "place": plan.place,
                "pending": pending, "drifted": plan.drifted, "warnings": _warnings(plan),
            }
        )  # fmt: skip
    else:
        _show_status(schema, plan, pending)
    if plan.changes or plan.drifted:
        click.get_current_context().exit(1)


def _show_status(schema: str, plan: Plan, pending: list[str]) -> None:
    shown = "not deployed" if plan.version == 0 else f"version {plan.version}"
    click.echo(f"schema {schema!r}: {shown}; this release has version {plan.target}")
    if plan.place is not None:
        click.echo(f"place {plan.place}: ids from {first_id(plan.place)} to {last_id(plan.place)}")
    _warn(plan)
    if plan.version == 0:
        click.echo("pending: everything; run pysqlbox migrate")
        return
    for identity in plan.drifted:
        click.echo(f"drift: {identity} was changed by hand")
    for line in pending:
        click.echo(f"pending: {line}")
    if not plan.changes:
        click.echo("nothing is pending")


@click.command(short_help="Print the deployment as one script for psql or sqlcmd.")
@click.option("--dialect", required=True, type=click.Choice(DIALECTS), help="Whom the script is for.")
@schema_option
@_box_option
@_place_option
@_roles_option
@_unfit_option
@click.option(
    "--citus-routes",
    "table",
    metavar="TABLE",
    help="Print, in place of the deployment, the forwarders by which a message for a key of this distributed"
    " table is written on the node that has the key's rows.",
)
def render(
    dialect: Dialect,
    schema: str,
    boxes: tuple[NamedBox, ...],
    place: int | None,
    roles: bool,
    allow_unfit: bool,
    table: str | None,
) -> None:
    """Print the whole deployment as one idempotent script for psql or sqlcmd."""
    if table is not None:
        from pysqlbox.deploy.citus_routes import render_routes

        if dialect != "postgres":
            raise click.UsageError("--citus-routes: must stand beside --dialect postgres")
        click.echo(render_routes(table, schema=schema, boxes=boxes), nl=False)
        return
    from pysqlbox.deploy.script import render_script

    script = render_script(
        dialect, schema=schema, boxes=boxes, roles=roles, allow_unfit_database=allow_unfit, place=place
    )
    click.echo(script, nl=False)


@contextlib.contextmanager
def _target(url: str | None) -> Iterator[Target]:
    """The database that the URL or the environment names; an embedded server runs while it is needed."""
    target, server = locate(url)
    with server or contextlib.nullcontext():
        yield target


def _warnings(plan: Plan) -> list[str]:
    edited = "was edited after it was applied; released tables change by a migration"
    return [*plan.warnings, *(f"{identity} {edited}" for identity in plan.edited)]


def _warn(plan: Plan) -> None:
    for warning in _warnings(plan):
        click.echo(f"warning: {warning}", err=True)
