"""Connection URLs: what they mean, and how to show them without their password."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from pysqlbox.errors import InvalidArgument
from pysqlbox.names import Dialect

#: Also as SQLAlchemy writes it, with the driver that it is to take: we take ours.
_POSTGRES = re.compile(r"postgres(ql)?(\+\w+)?")
_MSSQL = {"mssql", "mssql+pyodbc"}
_ODBC_KEYS = {"driver", "dsn", "server"}
_DATABASE_KEYS = {"database", "initial catalog"}
_SECRET_KEYS = {"pwd", "password", "accesstoken"}
#: One of these stands in any of libpq's keyword strings, and in no ODBC string.
_LIBPQ_KEYS = {"host", "hostaddr", "dbname", "service"}
_TIMEOUT_KEYS = {"query_timeout", "querytimeout"}
_LONGEST_TIMEOUT = 86_400
#: What the server calls a connection to which nobody has given another name.
OWN_NAME = "pysqlbox"
#: As SQLAlchemy has it: mssql:///?odbc_connect=<the ODBC string, quoted>.
WRAPPED = "odbc_connect"
_FORMS = "postgresql://user:password@host:port/db, mssql://user:password@host:port/db or an ODBC string"
_PORT = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(:\d{0,5})?")


@dataclass(frozen=True, slots=True)
class Target:
    """A database to connect to; ``dsn`` is what its driver takes and may hold a password."""

    dialect: Dialect
    dsn: str = field(repr=False)
    display: str
    driver: str | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    #: T-SQL only: the seconds until a call is cut off, 0 for never; None leaves it to the driver's default.
    query_timeout: int | None = None

    def __str__(self) -> str:
        return self.display

    def redact(self, text: str) -> str:
        """Take the password out of a text that a driver wrote."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def parse_url(url: str) -> Target:
    """Read a URL, libpq's keywords or an ODBC string; anything else is an InvalidArgument.

    That never repeats a password.
    """
    if _looks_like_odbc(url):
        return _parse_odbc(url)
    if _looks_like_libpq(url):
        return _parse_libpq(url)
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise InvalidArgument(f"url: must be {_FORMS}")
    try:
        parts = urlsplit(url.strip())
        if _POSTGRES.fullmatch(parts.scheme):
            return _parse_postgres(parts)
        if parts.scheme in _MSSQL:
            return _parse_mssql(parts, parts.port)
    except ValueError as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument(f"url: host or port is malformed, must be {_FORMS}") from error
    raise InvalidArgument(f"url: unknown scheme {scheme!r}, must be {_FORMS}")


def with_database(url: str, name: str) -> str:
    """The same URL or string, naming another database."""
    if _looks_like_libpq(url):
        return _keywords(_read_libpq(url) | {"dbname": name})
    if not _looks_like_odbc(url):
        parts = urlsplit(url)
        wrapped = dict(parse_qsl(parts.query)).get(WRAPPED)
        if wrapped is not None and parts.scheme in _MSSQL:
            return wrap_odbc(with_database(wrapped, name))
        return _geturl(parts._replace(path=f"/{quote(name, safe='')}"))
    entries = {key: value for key, value in read_odbc(url).items() if key.lower() not in _DATABASE_KEYS}
    return odbc_string(entries | {"DATABASE": name})


def wrap_odbc(text: str) -> str:
    """An ODBC string as a URL, for whoever takes nothing else: the yoyo command, say."""
    return f"mssql:///?{WRAPPED}={quote(text, safe='')}"


def _parse_postgres(parts: SplitResult) -> Target:
    # libpq takes several hosts, each with its port: those that one of them fails over to.
    if not all(_PORT.fullmatch(each) for each in _host(parts).split(",")):
        raise InvalidArgument(f"url: host or port is malformed, must be {_FORMS}")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    dsn = _geturl(parts._replace(scheme="postgresql"))
    secrets = _secrets(parts.password, query.get("password"))
    host = _host(parts) or query.get("host", "")
    return Target("postgres", dsn, f"postgresql://{host}{parts.path}", secrets=secrets)


def _looks_like_libpq(text: str) -> bool:
    """Whether a text is ``host=h dbname=d`` and so on."""
    if "://" in text.partition("=")[0]:
        return False
    return any(re.search(rf"(?:^|\s){known}\s*=", text) for known in _LIBPQ_KEYS)


def _parse_libpq(text: str) -> Target:
    entries = _read_libpq(text)
    host = entries.get("host") or entries.get("hostaddr") or ""
    if "host" in entries and "port" in entries and "," not in entries["port"]:
        host = ",".join(f"{each}:{entries['port']}" for each in host.split(","))
    display = f"postgresql://{host}/{entries.get('dbname', '')}"
    if "service" in entries:
        display = f"service={entries['service']}" + (f" {display}" if host or "dbname" in entries else "")
    return Target("postgres", _keywords(entries), display, secrets=_secrets(entries.get("password")))


def _read_libpq(text: str) -> dict[str, str]:
    """Split libpq's keywords, whose values may be quoted, with backslashes before quotes and backslashes."""
    pattern = re.compile(r"\s*(\w+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|((?:[^\s'\\]|\\.)*))(?=\s|$)", re.DOTALL)
    entries: dict[str, str] = {}
    position, text = 0, text.strip()
    while position < len(text):
        match = pattern.match(text, position)
        if match is None:
            raise InvalidArgument("url: the keywords are malformed, must be host=… dbname=… user=… …")
        key, quoted, plain = match.groups()
        entries[key] = re.sub(r"\\(.)", r"\1", plain if quoted is None else quoted, flags=re.DOTALL)
        position = match.end()
    return entries


def _keywords(entries: dict[str, str]) -> str:
    """Entries as libpq's keywords, each value quoted."""
    escaped = {key: re.sub(r"(['\\])", r"\\\1", value) for key, value in entries.items()}
    return " ".join(f"{key}='{value}'" for key, value in escaped.items())


def _geturl(parts: SplitResult) -> str:
    """The URL again; ``geturl()`` drops the slashes of an empty host."""
    whole = parts.geturl()
    scheme = f"{parts.scheme}:"
    return whole if parts.netloc else f"{scheme}//{whole.removeprefix(scheme).removeprefix('//')}"


def _parse_mssql(parts: SplitResult, port: int | None) -> Target:
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    wrapped = query.pop(WRAPPED, None)
    if wrapped is not None:
        if parts.netloc or parts.path not in ("", "/") or query:
            raise InvalidArgument(f"url: {WRAPPED} must be alone, for it holds the whole ODBC string")
        return _parse_odbc(wrapped)
    if not parts.hostname:
        raise InvalidArgument("url: an mssql URL must name a host: mssql://user:password@host/database")
    query_timeout = _take_timeout(query)
    driver = next((query.pop(key) for key in list(query) if key.lower() == "driver"), None)
    entries: dict[str, str] = {}
    host = unquote(parts.hostname)
    if driver is not None and _is_freetds(driver):
        entries |= {"SERVER": host, "PORT": str(port or 1433), "TDS_Version": "7.4", "ClientCharset": "UTF-8"}
    else:
        entries["SERVER"] = f"{host},{port}" if port else host
    database = unquote(parts.path.removeprefix("/"))
    if database:
        entries["DATABASE"] = database
    if parts.username is not None:
        entries["UID"] = unquote(parts.username)
        entries["PWD"] = unquote(parts.password or "")
    else:
        entries["Trusted_Connection"] = "yes"
    given = {key.lower() for key in query}
    entries = {key: value for key, value in entries.items() if key.lower() not in given} | query
    display = f"mssql://{_host(parts)}/{database}"
    return Target(
        "mssql",
        odbc_string(entries),
        display,
        driver=driver,
        secrets=_secrets(parts.password),
        query_timeout=query_timeout,
    )


def _parse_odbc(text: str) -> Target:
    entries = read_odbc(text)
    query_timeout = _take_timeout(entries)
    by_key = {key.lower(): value for key, value in entries.items()}
    secrets = _secrets(*(value for key, value in by_key.items() if key in _SECRET_KEYS))
    shown = by_key.get("server") or by_key.get("dsn") or by_key.get("servername") or "?"
    display = f"odbc:{shown}/{by_key.get('database', '')}"
    rest = {key: value for key, value in entries.items() if key.lower() != "driver"}
    return Target(
        "mssql",
        odbc_string(rest),
        display,
        driver=by_key.get("driver"),
        secrets=secrets,
        query_timeout=query_timeout,
    )


def _take_timeout(entries: dict[str, str]) -> int | None:
    """The query timeout among the entries, which no ODBC driver knows, taken out of them."""
    found = [entries.pop(key) for key in list(entries) if key.lower() in _TIMEOUT_KEYS]
    if not found:
        return None
    if not re.fullmatch(r"[0-9]{1,5}", found[-1]) or int(found[-1]) > _LONGEST_TIMEOUT:
        raise InvalidArgument(f"url: query_timeout must be whole seconds, 0 (never) to {_LONGEST_TIMEOUT}")
    return int(found[-1])


def _looks_like_odbc(text: str) -> bool:
    key, separator, _ = text.strip().partition("=")
    if not separator or "://" in key:
        return False
    return any(re.search(rf"(?:^|;)\s*{known}\s*=", text, re.IGNORECASE) for known in _ODBC_KEYS)


def read_odbc(text: str) -> dict[str, str]:
    """Split an ODBC connection string into its entries, with the braces of values removed."""
    entries: dict[str, str] = {}
    pattern = re.compile(r"\s*([^=;{}]+?)\s*=\s*(?:\{((?:[^}]|\}\})*)\}|([^;{][^;]*|))\s*(?:;|$)")
    position = 0
    text = text.strip()
    while position < len(text):
        if text[position] == ";":
            position += 1
            continue
        match = pattern.match(text, position)
        if match is None:
            raise InvalidArgument("url: the ODBC string is malformed, must be KEY=value;KEY={value};…")
        key, braced, plain = match.groups()
        entries[key] = plain.strip() if braced is None else braced.replace("}}", "}")
        position = match.end()
    return entries


def odbc_string(entries: dict[str, str]) -> str:
    """Join entries to an ODBC connection string, braces around whatever needs them."""
    return ";".join(f"{key}={_brace(value)}" for key, value in entries.items())


def _brace(value: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_.,:/\\-]*", value):
        return value
    return "{" + value.replace("}", "}}") + "}"


def _is_freetds(driver: str) -> bool:
    name = driver.lower()
    return "freetds" in name or "tdsodbc" in name


def _host(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _secrets(*values: str | None) -> tuple[str, ...]:
    """The passwords as written and as decoded, the longest first."""
    found = {form for value in values if value for form in (value, unquote(value)) if len(form) > 3}
    return tuple(sorted(found, key=len, reverse=True))
