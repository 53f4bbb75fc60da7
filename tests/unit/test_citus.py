"""What Citus needs, as far as it shows without a cluster."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from pysqlbox import InvalidArgument, Stores
from pysqlbox.cli import cli
from pysqlbox.deploy.citus import Node
from pysqlbox.deploy.citus_routes import render_routes, route_name
from pysqlbox.drivers import parse_url
from pysqlbox.names import NamedBox


def test_forwarders_have_the_arguments_of_what_they_forward_to() -> None:
    text = render_routes("shop.orders", boxes=[NamedBox("mail", "outbox"), NamedBox("in_mail", "inbox")])
    for name in ("outbox_enqueue", "outbox_enqueue_many", "mail_enqueue", "mail_enqueue_many"):
        assert text.count(f'CREATE FUNCTION "infra"."{name}_by_orders"(') == 1
    assert "inbox_enqueue" not in text
    assert "in_mail" not in text
    assert "dedup_key => dedup_key, collapse_key => collapse_key" in text
    assert "INOUT message_id uuid DEFAULT NULL" in text
    assert "RETURNS TABLE (ordinal bigint, id bigint, message_id uuid, outcome text)" in text
    assert "to_regclass('shop.orders')" in text


def test_names_are_quoted() -> None:
    text = render_routes('"Odd""; name"', schema="Odd schema")
    assert 'CREATE FUNCTION "Odd schema"."outbox_enqueue_by_Odd""; name"(' in text
    assert 'to_regclass(\'"Odd""; name"\')' in text


@pytest.mark.parametrize("table", ["", "a.b.c", "orders; DROP TABLE x", "or ders", '"orders'])
def test_a_table_is_a_name(table: str) -> None:
    with pytest.raises(InvalidArgument, match="citus_routes"):
        render_routes(table)


def test_names_that_are_too_long_are_refused() -> None:
    assert route_name("outbox", "enqueue", "Orders") == "outbox_enqueue_by_orders"
    with pytest.raises(InvalidArgument, match="63"):
        render_routes("o" * 50)


def test_a_node_is_reached_with_everything_else_that_the_url_says() -> None:
    asked = parse_url("postgresql://ann:s3cret@entrance:6000/shop?application_name=a")
    at = Node(2, "n2", 5433, False, asked).at("n2", 5433)
    for part in (
        "host='n2'",
        "port='5433'",
        "user='ann'",
        "password='s3cret'",
        "dbname='shop'",
        "application_name='a'",
    ):
        assert part in at.dsn
    assert "entrance" not in at.dsn
    assert "s3cret" not in str(at)


def test_what_must_not_stand_together() -> None:
    def said(*arguments: str) -> str:
        result = CliRunner().invoke(cli, arguments)
        assert result.exit_code == 2
        return result.output

    assert "--citus: must stand without" in said(
        "migrate", "--citus", "--place", "1", "--url", "postgresql://h/d"
    )
    assert "--citus: must stand without" in said("migrate", "--citus", "--stores", "a:b")
    assert "--citus-routes" in said("render", "--dialect", "mssql", "--citus-routes", "orders")
    with pytest.raises(InvalidArgument, match="Citus"):
        Stores.citus("mssql://u:p@h/d")
    with pytest.raises(InvalidArgument, match="address"):
        Stores.citus("postgresql://h/d", address="n1")  # type: ignore[arg-type]  # what is tried
