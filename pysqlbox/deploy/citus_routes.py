"""Forwarders for Citus: by them a message for a key is written on the node that has the key's rows.

``orders`` gives ``outbox_enqueue_by_orders(key, topic, payload, …)``, whose other arguments and whose result
are those of ``outbox_enqueue``, and ``outbox_enqueue_many_by_orders(key, messages)``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pysqlbox.deploy.render import render_file
from pysqlbox.errors import InvalidArgument
from pysqlbox.names import (
    DEFAULT_BOXES,
    IDENTIFIER_LIMIT,
    NamedBox,
    check_schema_name,
    quote_identifier,
    quote_literal,
)

__all__ = ["render_routes", "route_name"]

#: What is forwarded, by the name of its template.
_ROUTINES = ("enqueue", "enqueue_many")
_SIGNATURE = re.compile(
    r"CREATE OR REPLACE FUNCTION [^(]+\((?P<arguments>.*?)\)\s*"
    r"(?P<returns>RETURNS TABLE \([^)]*\))?\s*LANGUAGE",
    re.DOTALL,
)
_NAME = r'(?:"(?:[^"]|"")+"|[A-Za-z_][A-Za-z0-9_$]*)'
_TABLE = re.compile(rf"(?:{_NAME}\.)?(?P<table>{_NAME})")

#: Makes and distributes one forwarder. Its key has the type of the table's distribution column.
_MAKE = """DO $pysqlbox$
DECLARE
    -- As search_path has it where this is run.
    found CONSTANT regclass := to_regclass({table});
    key_type CONSTANT text := (
        SELECT format_type(a.atttypid, NULL)
        FROM pg_catalog.pg_dist_partition AS p
        INNER JOIN pg_catalog.pg_attribute AS a
            ON a.attrelid = p.logicalrelid
                AND a.attname = pg_catalog.column_to_column_name(p.logicalrelid, p.partkey)
        WHERE p.logicalrelid = found AND p.partmethod = 'h'
    );
    full_name CONSTANT text := (
        SELECT format('%I.%I', n.nspname, c.relname)
        FROM pg_catalog.pg_class AS c
        INNER JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        WHERE c.oid = found
    );
    old regprocedure;
BEGIN
    IF found IS NULL THEN
        RAISE EXCEPTION 'there is no table %', {table};
    ELSIF key_type IS NULL THEN
        RAISE EXCEPTION 'table % is not distributed by a column: create_distributed_table() is first', found;
    END IF;
    -- What an earlier release made may have other arguments.
    FOR old IN
        SELECT p.oid::regprocedure
        FROM pg_catalog.pg_proc AS p
        WHERE p.pronamespace = to_regnamespace({schema})
            AND p.proname = {name}
            AND p.prosrc LIKE '%pysqlbox forwards%'
    LOOP
        EXECUTE format('DROP FUNCTION %s', old);
    END LOOP;
    EXECUTE replace(replace({create}, '<key_type>', key_type), '<table>', quote_literal(full_name));
    PERFORM create_distributed_function(
        (SELECT p.oid::regprocedure FROM pg_catalog.pg_proc AS p
            WHERE p.pronamespace = to_regnamespace({schema}) AND p.proname = {name}),
        'key', colocate_with => full_name, force_delegation => true
    );
END;
$pysqlbox$;
"""

#: The guard: whoever calls it in a way that Citus does not forward is told so, for the message would be
#: written here, apart from the rows.
_FORWARDER = """CREATE FUNCTION {target}(
    key <key_type>,{arguments}
)
{returns}LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $forwarder$
    -- pysqlbox forwards this to the node that has the rows of the key.
    -- key: of the distribution column of the table; never null
#variable_conflict use_column
BEGIN
    IF NOT EXISTS (
        SELECT
        FROM pg_catalog.pg_dist_placement AS p
        INNER JOIN pg_catalog.pg_dist_local_group AS g ON g.groupid = p.groupid
        WHERE p.shardid = pg_catalog.get_shard_id_for_distribution_column(<table>::regclass, key)
    ) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'PB003',
            MESSAGE = 'key: its rows are on another node, and Citus has not forwarded this call: write it as '
                'SELECT * FROM {name}(…) alone, with values or parameters for arguments';
    END IF;
    {call}
END;
$forwarder$"""


def route_name(box: str, routine: str, table: str) -> str:
    """What the forwarder of a box's routine for a table is called."""
    name = f"{box}_{routine}_by_{_table_name(table)}"
    if len(name.encode()) > IDENTIFIER_LIMIT["postgres"]:
        raise InvalidArgument(
            f"citus_routes: {name!r} must have at most {IDENTIFIER_LIMIT['postgres']} bytes;"
            " give the table a view, or the box a shorter name"
        )
    return name


def render_routes(table: str, *, schema: str = "infra", boxes: Iterable[NamedBox] = ()) -> str:
    """Write the script that makes the forwarders of every outbox; psql runs it on the coordinator."""
    check_schema_name("postgres", schema)
    outboxes = [box for box in (*DEFAULT_BOXES, *boxes) if box.kind == "outbox"]
    return "\n".join(_parts(table, schema, outboxes)) + "\n"


def _parts(table: str, schema: str, boxes: Iterable[NamedBox]) -> Iterator[str]:
    yield "-- Forwarders for Citus; run it with psql on the coordinator, after pysqlbox migrate --citus."
    yield "\\set ON_ERROR_STOP on"
    yield "BEGIN;"
    yield "SET LOCAL client_min_messages = warning;"
    yield "SET LOCAL citus.enable_ddl_propagation = on;"
    for box in boxes:
        for routine in _ROUTINES:
            name = route_name(box.name, routine, table)
            yield _MAKE.format(
                table=_literal(table),
                schema=_literal(quote_identifier("postgres", schema)),
                name=_literal(name),
                create=_dollars(_forwarder(schema, box, routine, name)),
            )
    yield "COMMIT;"


def _forwarder(schema: str, box: NamedBox, routine: str, name: str) -> str:
    """The statement that creates one, with the arguments and the result of what it forwards to."""
    text = render_file("postgres", f"outbox/{routine}.sql", schema=schema, box=box)
    found = _SIGNATURE.search(text)
    assert found is not None, routine
    arguments = [line.strip().rstrip(",") for line in found["arguments"].strip().splitlines()]
    given = [line.removeprefix("INOUT ").split()[0] for line in arguments if not line.startswith("OUT ")]
    called = (
        f"{_qualified(schema, f'{box.name}_{routine}')}({', '.join(f'{each} => {each}' for each in given)})"
    )
    if found["returns"]:
        call = f"RETURN QUERY SELECT * FROM {called};"
    else:
        out = [line.split()[1] for line in arguments if line.startswith(("OUT ", "INOUT "))]
        columns = ", ".join(f"e.{each}" for each in out)
        call = f"SELECT {columns} INTO {', '.join(out)} FROM {called} AS e;"
    return _FORWARDER.format(
        target=_qualified(schema, name),
        arguments="".join(f"\n    {line}," for line in arguments).rstrip(","),
        returns=f"{found['returns']}\n" if found["returns"] else "",
        name=_qualified(schema, name).replace("'", "''"),
        call=call,
    )


def _table_name(table: str) -> str:
    found = _TABLE.fullmatch(table.strip())
    if found is None:
        raise InvalidArgument("citus_routes: must be the name of a table, with or without its schema")
    name = found["table"]
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()


def _qualified(schema: str, name: str) -> str:
    return f"{quote_identifier('postgres', schema)}.{quote_identifier('postgres', name)}"


def _literal(text: str) -> str:
    return quote_literal("postgres", text)


def _dollars(text: str) -> str:
    """A long text as a literal that stays readable."""
    return f"$create${text}$create$"
