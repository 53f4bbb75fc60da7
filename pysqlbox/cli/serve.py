"""``pysqlbox serve``: the HTTP service and the dashboard in a process of their own."""

from __future__ import annotations

import socket
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from pysqlbox.cli.many import open_stores, stores_option
from pysqlbox.cli.options import DURATION, schema_option, stopping, url_option
from pysqlbox.cli.work import logging_to_stderr
from pysqlbox.deployment import Deployment, connect
from pysqlbox.errors import InvalidArgument
from pysqlbox.extras import needed_for
from pysqlbox.retry import Retries
from pysqlbox.stores import Stores

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette

    from pysqlbox.service import Tokens

__all__ = ["serve"]

_RETRIES = Retries(attempts=2, give_up_seconds=2.0)
"""A client is better off with a 503 soon than with an answer late."""
_SPARE_CONNECTIONS = 4
"""For the dashboard, beside one for each thread of the service."""


class _Address(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    name = "host:port"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Host and port; an IPv6 address is in brackets."""
        if isinstance(value, tuple):
            return value
        host, colon, port = str(value).rpartition(":")
        if not colon or not host or not port.isdecimal() or not port.isascii() or int(port) > 65535:
            self.fail("must be host:port, such as 127.0.0.1:8080 or [::1]:8080", param, ctx)
        return host.strip("[]"), int(port)


@click.command(short_help="Serve the HTTP interface and the dashboard.")
@url_option
@schema_option
@stores_option
@click.option(
    "--listen",
    type=_Address(),
    default="127.0.0.1:8080",
    show_default=True,
    help="Where to listen; port 0 is any that is free.",
)
@click.option("--token-file", type=click.Path(dir_okay=False), help="TOML: who may do what, by which token.")
@click.option(
    "--threads",
    type=click.IntRange(1, 1000),
    default=16,
    show_default=True,
    help="How many requests are with the database at once.",
)
@click.option(
    "--stop-timeout",
    type=DURATION,
    default="10s",
    show_default=True,
    help="How long requests may take to end after SIGTERM.",
)
@click.option("--dashboard/--no-dashboard", default=True, show_default=True, help="The pages at /.")
@click.option("--access-log", is_flag=True, help="Log every request.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What to log.",
)
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How to log."
)
def serve(
    url: str | None,
    schema: str,
    stores_name: str | None,
    listen: tuple[str, int],
    token_file: str | None,
    threads: int,
    stop_timeout: timedelta,
    dashboard: bool,
    access_log: bool,
    log_level: str,
    log_format: str,
) -> None:
    """Serve the ledger, messages in, operating and the dashboard by HTTP until SIGTERM or Ctrl-C.

    Without a token file it listens on this machine only, and whoever is on it may do everything. With
    --stores every request says by ?store= which store it is about, and each has its pages.

    \b
    Examples:
      pysqlbox serve --url postgresql://…
      pysqlbox serve --listen 0.0.0.0:8080 --token-file /etc/pysqlbox/tokens.toml
      pysqlbox serve --stores shop.tenants:stores
    """
    with needed_for("the HTTP service", "serve"):
        import uvicorn
    from pysqlbox.service import Limits, Tokens, app
    from pysqlbox.service.access import is_loopback

    host, port = listen
    tokens = None if token_file is None else Tokens.load(token_file)
    if tokens is None and not is_loopback(host):
        raise InvalidArgument(
            f"listen: {host} can be reached from other machines, for which --token-file must say who may do"
            " what; without it only 127.0.0.1, ::1 and localhost are listened on"
        )
    with (
        logging_to_stderr(log_level, log_format),
        stopping(),
        _bound(host, port) as listener,
        _opened(url, schema, stores_name, threads) as db,
    ):
        _say(listener, tokens)
        application = app(db, tokens=tokens, limits=Limits(threads=threads), dashboard=dashboard)
        config = uvicorn.Config(
            application,
            log_config=None,
            access_log=access_log,
            server_header=False,
            date_header=True,
            timeout_graceful_shutdown=max(1, int(stop_timeout.total_seconds())),
            lifespan="on",
        )
        _serve(config, application, listener)
    click.echo("stopped", err=True)


def _serve(config: uvicorn.Config, application: Starlette, listener: socket.socket) -> None:
    """Serve until a signal; pages that are kept live end first, for they would never end by themselves."""
    import uvicorn

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            application.state.end_streams()
            await super().shutdown(sockets)

    Server(config).run(sockets=[listener])


def _opened(
    url: str | None, schema: str, stores_name: str | None, threads: int
) -> AbstractContextManager[Deployment | Stores]:
    """What is served; many stores are connected as their module says."""
    if stores_name is not None:
        return open_stores(stores_name)
    return connect(
        url, schema=schema, pool_size=threads + _SPARE_CONNECTIONS, pool_timeout=10.0, connect_timeout=3,
        retries=_RETRIES,
    )  # fmt: skip


def _bound(host: str, port: int) -> socket.socket:
    """A socket that listens there; bound here, so that whoever reads the port knows the one there is."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidArgument(
            f"listen: must be an address of this machine, not {host}: {error.strerror or error}"
        ) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise InvalidArgument(
            f"listen: must be an address that is free, not {host}:{port}: {error.strerror or error}"
        ) from error
    return listener


def _say(listener: socket.socket, tokens: Tokens | None) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    who = f"{len(tokens)} tokens" if tokens is not None else "without tokens, for this machine only"
    click.echo(f"http://{shown}:{port}/ ({who})", err=True)
