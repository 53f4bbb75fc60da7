"""Connection URLs and ODBC strings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from pysqlbox.drivers.url import odbc_string, parse_url, read_odbc, with_database, wrap_odbc
from pysqlbox.errors import InvalidArgument


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "postgresql+asyncpg"])
def test_postgres(scheme: str) -> None:
    """All of PostgreSQL's schemes mean the same."""
    target = parse_url(f"{scheme}://me:se%40cret@host:5433/db?sslmode=require")
    assert target.dialect == "postgres"
    assert target.dsn == "postgresql://me:se%40cret@host:5433/db?sslmode=require"
    assert str(target) == "postgresql://host:5433/db"


def test_postgres_socket() -> None:
    """A socket's folder stands in the query."""
    target = parse_url("postgresql:///db?host=/tmp/x")
    assert target.dsn == "postgresql:///db?host=/tmp/x"
    assert str(target) == "postgresql:///tmp/x/db"


def test_postgres_with_several_hosts() -> None:
    """As libpq takes them, for a failover."""
    text = "postgresql://me:secret@one:5432,[::1]:5433,three/db?target_session_attrs=read-write"
    target = parse_url(text)
    assert target.dsn == text
    assert str(target) == "postgresql://one:5432,[::1]:5433,three/db"
    assert with_database(text, "other") == text.replace("/db?", "/other?")
    assert conninfo_to_dict(target.dsn)["host"] == "one,::1,three"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("host=h dbname=d user=u password=topsecret", "postgresql://h/d"),
        ("host=h,i port=5433 dbname = d", "postgresql://h:5433,i:5433/d"),
        ("dbname=d host=/tmp/x", "postgresql:///tmp/x/d"),
        (r"user='a b' password='it\'s \\top' host=h", "postgresql://h/"),
        ("service=mine", "service=mine"),
        ("service=mine dbname=d password=topsecret", "service=mine postgresql:///d"),
    ],
)
def test_libpqs_keywords(text: str, shown: str) -> None:
    """They are read as libpq reads them."""
    target = parse_url(text)
    assert (target.dialect, str(target)) == ("postgres", shown)
    assert conninfo_to_dict(target.dsn) == conninfo_to_dict(text)
    assert conninfo_to_dict(with_database(text, "o'o")) == conninfo_to_dict(text) | {"dbname": "o'o"}
    if "password" in text:
        password = str(conninfo_to_dict(text)["password"])
        assert password not in repr(target)
        assert target.redact(f"wrong: {password}") == "wrong: ***"


def test_mssql() -> None:
    """A URL becomes an ODBC string; what it adds is passed on."""
    target = parse_url(
        "mssql://me:se%3Bcr%7Det@host:1533/my%20db?driver=ODBC Driver 18 for SQL Server&Encrypt=no"
    )
    assert target.dialect == "mssql"
    assert target.driver == "ODBC Driver 18 for SQL Server"
    assert read_odbc(target.dsn) == {
        "SERVER": "host,1533",
        "DATABASE": "my db",
        "UID": "me",
        "PWD": "se;cr}et",
        "Encrypt": "no",
    }
    assert str(target) == "mssql://host:1533/my db"


def test_mssql_without_user_is_trusted() -> None:
    """No user: the operating system's."""
    assert read_odbc(parse_url("mssql://host/db").dsn)["Trusted_Connection"] == "yes"


def test_freetds_gets_its_own_words() -> None:
    """FreeTDS wants the port apart, and the protocol's version."""
    entries = read_odbc(parse_url("mssql://u:p@host/db?driver=FreeTDS").dsn)
    assert (entries["SERVER"], entries["PORT"], entries["TDS_Version"]) == ("host", "1433", "7.4")


def test_odbc_string() -> None:
    """A raw ODBC string is taken as it stands."""
    target = parse_url("DRIVER={ODBC Driver 18 for SQL Server};SERVER=tcp:h,1433;UID=u;PWD={se;c}}ret}")
    assert target.driver == "ODBC Driver 18 for SQL Server"
    assert read_odbc(target.dsn) == {"SERVER": "tcp:h,1433", "UID": "u", "PWD": "se;c}ret"}
    assert "se;c" not in str(target)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "x",
        "mysql://u:topsecret@h/d",
        "postgresql://u:topsecret@h:port/d",
        "postgresql://u:topsecret@h:1,i:port/d",
        "postgresql://u:topsecret@h:1:2/d",
        "mssql://u:topsecret@h:1,i:2/d",
        "host=h password='topsecret",
        "host=h password=topsecret nothing",
        "mssql://u:topsecret@/d",
        "SERVER=h;PWD={topsecret",
        "http://u:topsecret@[bad/",
    ],
)
def test_bad_urls(url: str) -> None:
    """One sentence that never repeats the password."""
    with pytest.raises(InvalidArgument, match="url:") as caught:
        parse_url(url)
    assert "topsecret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_redaction() -> None:
    """The password goes out of a driver's text, as written and as decoded."""
    target = parse_url("postgresql://u:p%40ssword@h/d")
    assert target.redact("no p@ssword, no p%40ssword") == "no ***, no ***"
    assert "ssword" not in repr(target)


@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z][A-Za-z_]{0,8}", fullmatch=True), st.text("ab;{}= '\"\\é", max_size=9)
    )
)
def test_odbc_strings_read_back(entries: dict[str, str]) -> None:
    """Whatever a value holds, it comes back."""
    assert read_odbc(odbc_string(entries)) == entries


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p@h:5433/old?sslmode=require", "postgresql://u:p@h:5433/new%2Fone?sslmode=require"),
        ("postgresql:///old?host=/tmp/x", "postgresql:///new%2Fone?host=/tmp/x"),
        ("mssql://u:p@h/old?driver=FreeTDS", "mssql://u:p@h/new%2Fone?driver=FreeTDS"),
        ("mssql://u:p@h", "mssql://u:p@h/new%2Fone"),
        ("DRIVER={O D};SERVER=h;database={ol;d};UID=u", "DRIVER={O D};SERVER=h;UID=u;DATABASE=new/one"),
        ("SERVER=h;Initial Catalog=old", "SERVER=h;DATABASE=new/one"),
    ],
)
def test_another_database_of_the_same_server(url: str, expected: str) -> None:
    assert with_database(url, "new/one") == expected


ODBC = "DRIVER={ODBC Driver 18 for SQL Server};SERVER=h,1433;DATABASE=db;UID=u;PWD={s&c=r e%t}"


def test_wrapped_odbc_string() -> None:
    """An ODBC string inside a URL, as SQLAlchemy has it, for who takes only URLs."""
    url = wrap_odbc(ODBC)
    assert url.startswith("mssql:///?odbc_connect=")
    assert parse_url(url) == parse_url(ODBC)
    assert parse_url(url.replace("mssql://", "mssql+pyodbc://")) == parse_url(ODBC)
    assert parse_url(with_database(url, "other db")) == parse_url(with_database(ODBC, "other db"))


@pytest.mark.parametrize(
    "url", ["mssql://h/?odbc_connect=x", "mssql:///d?odbc_connect=x", f"{wrap_odbc(ODBC)}&a=b"]
)
def test_nothing_stands_beside_a_wrapped_string(url: str) -> None:
    """What would be dropped is refused, and no secret is repeated."""
    with pytest.raises(InvalidArgument, match="odbc_connect must be alone") as caught:
        parse_url(url)
    assert "s&c" not in str(caught.value)


@pytest.mark.parametrize("value", ["", "-1", "1.5", "soon", "86401", "999999"])
def test_query_timeout_is_whole_seconds(value: str) -> None:
    """Neither a URL nor an ODBC string takes another one."""
    for url in (f"mssql://u:p@h/d?query_timeout={value}", f"SERVER=h;QueryTimeout={value}"):
        with pytest.raises(InvalidArgument, match="query_timeout must be whole seconds"):
            parse_url(url)


def test_query_timeout_is_no_business_of_odbc() -> None:
    """It is read, and taken out of what the driver manager gets."""
    for url in ("mssql://u:p@h/d?query_timeout=9", "SERVER=h;Query_Timeout=9;UID=u"):
        target = parse_url(url)
        assert target.query_timeout == 9
        assert "timeout" not in target.dsn.lower()
    assert parse_url("mssql://u:p@h/d").query_timeout is None
