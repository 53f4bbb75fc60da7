"""The demo's day, from opening to closing."""

from __future__ import annotations

import time
from uuid import UUID

import click

from pysqlbox.cli.demo import closing, shop
from pysqlbox.cli.demo.board import Board
from pysqlbox.cli.demo.crew import Crew, hiring
from pysqlbox.deployment import Deployment, connect
from pysqlbox.drivers.embedded import EmbeddedServer
from pysqlbox.wording import counted

__all__ = ["demo"]

#: Whoever waits longer than this for the next thing to happen has found a bug.
PATIENCE_SECONDS = 60.0
DOOMED = "the courier that will be killed"


@click.command(short_help="Watch a small shop at work on a PostgreSQL of its own.")
@click.option(
    "--orders", default=5_000, show_default=True, type=click.IntRange(1_000, 1_000_000), help="How many."
)
@click.option("--couriers", default=2, show_default=True, type=click.IntRange(1, 6), help="Worker processes.")
@click.pass_context
def demo(ctx: click.Context, orders: int, couriers: int) -> None:
    """Watch a small shop on a temporary embedded PostgreSQL, mishaps included, and check its accounts.

    Orders are written together with their messages, and some of them rolled back. Worker processes carry the
    messages to an inbox, some twice; one is killed. Others book them. At the end a join closes the day.
    Exit code 1: something does not add up.
    """
    click.echo("starting an embedded PostgreSQL in a temporary directory …")
    with EmbeddedServer(temporary=True) as server, connect(server.url, pool_size=4) as db:
        plan = db.migrate()
        tables, routines = len(plan.tables), len(plan.routines)
        click.echo(f"deployed {db.schema!r}: {tables} table files, {routines} routines and views")
        with db.connection() as connection:
            connection.execute(shop.CREATE)
        asleep_after = orders // (couriers + 1) // 4
        with hiring(server.url, **{shop.ASLEEP_AFTER: str(asleep_after)}) as crew:
            happened = _live(db, crew, shop.Day(orders), couriers)
        ok = closing.report(db, happened)
    if not ok:
        ctx.exit(1)


def _live(db: Deployment, crew: Crew, day: shop.Day, couriers: int) -> closing.Happened:
    """The whole day."""
    began = time.monotonic()
    board = Board(ordered=day.orders, carried=day.orders, booked=day.orders)
    crew.hire(DOOMED, "doomed_courier")
    crew.hire("the bookkeeper", "bookkeeper")
    for number in range(couriers):
        crew.hire(f"courier {number + 1}", "courier")
    board.say(f"the shop opens: {couriers + 1} couriers and a bookkeeper, a process each")
    day.begin(db)
    orphans = _business(db, crew, day, board)
    board.say(f"{len(day.declined):,} cards were declined: those orders were rolled back with their messages")
    join_id = _close(db, crew, board)
    board.done()
    seconds = time.monotonic() - began
    return closing.Happened(day, orphans, join_id, couriers + 1, crew.dismiss(), seconds)


def _business(db: Deployment, crew: Crew, day: shop.Day, board: Board) -> set[UUID]:
    """Until everything that was ordered is booked; answers what the killed courier had in its hands."""
    orphans: set[UUID] = set()
    killed = False
    moved_at = time.monotonic()
    before: tuple[int, ...] = ()
    while True:
        over = day.over
        carried, dead, booked = _progress(db)
        still = time.monotonic() - moved_at
        if over:
            board.resize(ordered=day.placed, carried=day.placed, booked=day.placed - dead)
        board.show(ordered=day.placed, carried=carried + dead, booked=booked)
        all_carried = over and carried + dead == day.placed
        if not killed:
            asleep = shop.asleep(db)
            killed = len(asleep) >= shop.COURIER_THREADS or (bool(asleep) and still > 1) or all_carried
            if killed:
                crew.kill(DOOMED)
                orphans = shop.held_like(db, asleep[0]) | set(asleep) if asleep else set()
                board.say(f"SIGKILL for a courier with {counted(len(orphans), 'message')} in its hands")
        elif all_carried and booked == carried:
            return orphans
        crew.check()
        if (now := (day.placed, carried, dead, booked)) != before:
            before, moved_at = now, time.monotonic()
        elif still > PATIENCE_SECONDS:
            raise click.ClickException(f"nothing has moved for {PATIENCE_SECONDS:.0f} seconds: {now}")
        time.sleep(0.1)


def _close(db: Deployment, crew: Crew, board: Board) -> UUID:
    """Close the tills; the join brings about the closing of the day."""
    join_id = shop.close_tills(db)
    board.say(f"closing {shop.TILLS} tills, and after the last of them the day: a join")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not closing.is_closed(db):
        crew.check()
        if time.monotonic() > deadline:
            left = [row for box in (db.outbox, db.inbox) for row in box.stats()]
            raise click.ClickException(f"the day was not closed: {db.joins.get(join_id)}, {left}")
        time.sleep(0.05)
    orders, cents = shop.query(db, "SELECT orders, cents FROM shop.daily_closing")[0]
    board.say(f"the day is closed: {orders:,} orders, {cents / 100:,.2f}")
    return join_id


def _progress(db: Deployment) -> tuple[int, int, int]:
    """How many orders were carried, given up, and booked."""
    placed = next((row for row in db.outbox.stats() if row.topic == "order.placed"), None)
    booked = db.inbox.stats()[-1].done
    return (placed.done, placed.dead, booked) if placed is not None else (0, 0, booked)
