"""The nodes of a Citus cluster, as its own catalog lists them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from pysqlbox.drivers import Target, driver_for, parse_url
from pysqlbox.errors import DatabaseUnavailable, InvalidState, PysqlboxError

__all__ = ["Node", "list_nodes"]

#: Primaries, also those that Citus holds for inactive: what they have is to be handled all the same.
_NODES = """
    SELECT n.groupid, n.nodename, n.nodeport, n.groupid = g.groupid
    FROM pg_catalog.pg_dist_node AS n
    CROSS JOIN pg_catalog.pg_dist_local_group AS g
    WHERE n.noderole = 'primary'
    ORDER BY n.groupid
"""
_HAS_CITUS = "SELECT 1 FROM pg_catalog.pg_extension WHERE extname = 'citus'"


@dataclass(frozen=True, slots=True)
class Node:
    """A node under the address by which the others know it."""

    group: int
    host: str
    port: int
    #: Whether it is the one that was asked.
    is_asked: bool
    #: How that one was reached.
    asked: Target

    @property
    def is_loopback(self) -> bool:
        """Whether the address means another machine to everybody who reads it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host in ("localhost", "")

    def at(self, host: str, port: int) -> Target:
        """Its database at some address, everything else being as for the one that was asked."""
        from psycopg.conninfo import conninfo_to_dict, make_conninfo

        given = conninfo_to_dict(self.asked.dsn) | {"hostaddr": None, "host": host, "port": port}
        return parse_url(make_conninfo("", **given))


def list_nodes(entrance: Target, others: Iterable[Target] = ()) -> list[Node]:
    """The nodes of the cluster, by group; ``others`` are asked if the entrance does not answer."""
    try:
        return _ask(entrance)
    except DatabaseUnavailable as first:
        for target in others:
            if target != entrance:
                try:
                    return _ask(target)
                except PysqlboxError:  # what the entrance said is what counts
                    continue
        raise first from first.__cause__


def _ask(target: Target) -> list[Node]:
    driver = driver_for(target.dialect)
    connection = driver.connect(target, autocommit=True)
    try:
        if not connection.execute(_HAS_CITUS).fetchall():
            raise InvalidState(f"{target}: must be a node of a Citus cluster; it has no extension citus")
        rows = connection.execute(_NODES).fetchall()
    except driver.database_error() as error:
        raise driver.map_error(error, target) from error
    finally:
        connection.close()
    nodes = [Node(int(group), str(host), int(port), bool(local), target) for group, host, port, local in rows]
    if not any(node.group == 0 for node in nodes):
        raise InvalidState(
            f"{target}: the coordinator is not among the nodes that Citus lists: run"
            " SELECT citus_set_coordinator_host('its name', its port) there"
        )
    return nodes
