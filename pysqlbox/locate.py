"""Where the database is: what a URL, the environment or an embedded server say."""

from __future__ import annotations

import os
import re

from pysqlbox.drivers import Target, parse_url
from pysqlbox.drivers.embedded import EmbeddedServer, default_data_directory
from pysqlbox.errors import InvalidArgument

__all__ = ["URL_HELP", "URL_VARIABLE", "locate"]

URL_VARIABLE = "PYSQLBOX_URL"
URL_HELP = (
    "postgresql://…, mssql://user:password@host:port/db?driver=… or an ODBC string;"
    " embedded: for a PostgreSQL in your data directory."
)
_EMBEDDED = re.compile(r"embedded:([A-Za-z0-9][A-Za-z0-9_-]{0,62})?")


def locate(url: str | Target | None) -> tuple[Target, EmbeddedServer | None]:
    """The database that a URL means, and the embedded server if one was started for it; stop that at the end.

    Without a URL ``PYSQLBOX_URL`` counts. No server is started unless the URL says ``embedded:``.
    """
    if isinstance(url, Target):
        return url, None
    text = (os.environ.get(URL_VARIABLE) if url is None else url) or ""
    if not text.strip():
        raise InvalidArgument(
            "url: there is none; give one (postgresql://… or mssql://…), set PYSQLBOX_URL, or say embedded:"
            " for a PostgreSQL in your data directory"
        )
    if not text.startswith("embedded:"):
        return parse_url(text), None
    match = _EMBEDDED.fullmatch(text)
    if match is None:
        raise InvalidArgument(
            "url: must be embedded: or embedded:NAME, with letters, digits, - and _ as name"
        )
    directory = default_data_directory()
    if match[1]:
        directory = directory.with_name(f"{directory.name}-{match[1]}")
    server = EmbeddedServer(directory)
    return parse_url(server.start()), server
