"""The nodes of a Citus cluster as stores: one deployment on each, outside Citus's own metadata.

A node's key and place are the id of its group, which a node keeps when its server is replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from pysqlbox.deploy.citus import Node, list_nodes
from pysqlbox.deployment import Deployment
from pysqlbox.drivers import Target
from pysqlbox.errors import InvalidArgument, PysqlboxError
from pysqlbox.locate import locate
from pysqlbox.names import StoreKey, quote_identifier
from pysqlbox.stores.each import AT_ONCE
from pysqlbox.stores.reports import StoreMigration
from pysqlbox.stores.stores import Stores

__all__ = ["Address", "CitusStores"]

#: From the host and port under which the nodes know one of them to those under which it is reached from here.
Address = Callable[[str, int], tuple[str, int]]


class CitusStores(Stores):
    """A store for each node, found again and again through any one of them."""

    def __init__(
        self, url: str | Target | None = None, *, address: Address | None = None, **options: Any
    ) -> None:
        """``url`` leads to any node; ``address`` translates the addresses that Citus lists, if they need it.

        The other options are those of ``Stores``.
        """
        if address is not None and not callable(address):
            raise InvalidArgument("address: must be a callable that answers a host and a port")
        entrance, server = locate(url)
        if server is not None or entrance.dialect != "postgres":
            if server is not None:
                server.stop()
            raise InvalidArgument("url: must lead to a node of a Citus cluster")
        super().__init__(self._find, **options)
        self._entrance = entrance
        self._address = address

    def _find(self) -> dict[int, Target]:
        """The nodes as Citus lists them now."""
        known = {int(each.key): each.deployment.target for each in self.known() if each.deployment}
        nodes = list_nodes(self._entrance, known.values())
        return {node.group: self._target(node, known.get(node.group)) for node in nodes}

    def _target(self, node: Node, known: Target | None) -> Target:
        if self._address is not None:
            return node.at(*self._address(node.host, node.port))
        if node.is_loopback and node.is_asked:
            return node.asked
        if node.is_loopback and known is not None:
            return known  # another node was asked this time, from where the address means nothing
        return node.at(node.host, node.port)

    def migrate(
        self,
        keys: Iterable[StoreKey] | None = None,
        parallel: int = AT_ONCE,
        *,
        places: Mapping[Any, int] | None = None,
        notify: bool = False,
        **options: Any,
    ) -> list[StoreMigration]:
        """Deploy each node, with its group's id for a place; a node that is there already stays as it is.

        Unless ``notify`` leaves them as they are, notifications are turned off: a transaction that has sent
        one cannot be committed on two nodes.
        """
        if places is not None:
            raise InvalidArgument("places: must be left out, for a node's place is the id of its group")
        wanted = [store.key for store in self.current(keys)]
        reports = super().migrate(wanted, parallel, places={key: int(key) for key in wanted}, **options)
        if notify or options.get("dry_run", False):
            return reports
        return [self._quieten(report) if report.ok else report for report in reports]

    def _quieten(self, report: StoreMigration) -> StoreMigration:
        """Turn off the notifications of a node's boxes."""
        try:
            db = self.get(report.key)
            turned = [name for name in db.boxes() if _notifies(db, name)]
            for name in turned:
                db.box(name).configure("notify", "off")
        except PysqlboxError as error:
            return replace(report, ok=False, error=str(error.concerns(report.key)))
        if not turned:
            return report
        return replace(report, changes=[*report.changes, f"turned notifications off: {', '.join(turned)}"])


def _notifies(db: Deployment, box: str) -> bool:
    schema, table = (quote_identifier("postgres", name) for name in (db.schema, f"{box}_settings"))
    with db.connection() as connection:
        try:
            rows = connection.execute(f"SELECT value FROM {schema}.{table} WHERE name = 'notify'").fetchall()
        except db.driver.database_error() as error:
            raise db.driver.map_error(error, db.target) from error
    return bool(rows != [("off",)])
