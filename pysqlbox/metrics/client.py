"""What a process has sent, received and settled, and its connections: figures that cost no query."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pysqlbox.deployment_base import DeploymentBase
from pysqlbox.metrics.exposition import Families, Labels
from pysqlbox.metrics.topics import TOPICS, Chosen, topics_each
from pysqlbox.stores.stores import Stores

if TYPE_CHECKING:
    from pysqlbox.async_deployment import AsyncDeployment
    from pysqlbox.deployment import Deployment

__all__ = ["ClientExporter", "add_client", "begin", "deployments_of", "labels_of"]

AnyDeployment = TypeVar("AnyDeployment", bound=DeploymentBase)

#: Of each deployment the topics that are shown, by how many were asked for and by box.
_chosen: weakref.WeakKeyDictionary[DeploymentBase, dict[tuple[int | None, str], Chosen]] = (
    weakref.WeakKeyDictionary()
)
_lock = threading.Lock()


class ClientExporter:
    """What this process sends, receives and settles by the methods of deployments, as text for Prometheus.

    For processes that only send, and for `connect_async`: the database is asked nothing. It makes the
    deployments count, from then on (those of Stores from the first scrape on). An ``Exporter`` and a
    ``WorkerExporter`` tell all this as well.
    """

    def __init__(
        self,
        dbs: Deployment | AsyncDeployment | Stores | Iterable[DeploymentBase] | Mapping[Any, DeploymentBase],
        *,
        topics: int | None = TOPICS,
    ) -> None:
        """``topics``: as of ``text``."""
        self._dbs = dbs
        self._topics = topics
        begin(dbs)

    def add_to(self, families: Families) -> None:
        """Add what has been counted."""
        dbs = deployments_of(self._dbs)
        for db in dbs:
            add_client(families, db, self._topics, len(dbs))

    def __str__(self) -> str:
        families = Families()
        self.add_to(families)
        return str(families)


def begin(dbs: DeploymentBase | Stores | Iterable[DeploymentBase] | Mapping[Any, DeploymentBase]) -> None:
    """Let deployments count; Stores may not know theirs yet, and are not asked before somebody scrapes."""
    if not isinstance(dbs, Stores):
        for db in deployments_of(dbs):
            db.measure()


def labels_of(db: DeploymentBase) -> Labels:
    """What tells a store from the others; nothing for a plain deployment."""
    return (("store", None if db.store_key is None else str(db.store_key)),)


def deployments_of(
    dbs: AnyDeployment | Stores | Iterable[AnyDeployment] | Mapping[Any, AnyDeployment],
) -> list[AnyDeployment]:
    """The deployments that are meant; of Stores those that are open."""
    if isinstance(dbs, Stores):
        opened = [each.deployment for each in dbs.current() if each.deployment is not None]
        return cast("list[AnyDeployment]", opened)
    if isinstance(dbs, Mapping):
        return list(dbs.values())
    return list(dbs) if isinstance(dbs, Iterable) else [dbs]


def add_client(families: Families, db: DeploymentBase, topics: int | None, among: int) -> None:
    """What the methods of one deployment have done, and its connections; ``among`` so many deployments."""
    labels = labels_of(db)
    _add_pool(families, cast("Deployment | AsyncDeployment", db), labels)
    db.measure()
    if db.counts is None:
        return
    sent, consumed, seconds = db.counts.taken()
    label = _label(db, topics, among, [*sent.items(), *consumed.items()])
    family = families.get(
        "pysqlbox_client_sent_messages_total",
        "counter",
        "Messages that this process has sent; with an error those of calls that failed.",
    )
    shown: Counter[tuple[str, str | None, str | None]] = Counter()
    for (box, topic, error), number in sent.items():
        shown[box, label(box, topic), error] += number
    for (box, topic, error), number in shown.items():
        family.add(number, (*labels, ("box", box), ("topic", topic), ("error", error)))
    family = families.get(
        "pysqlbox_client_consumed_messages_total",
        "counter",
        "Messages that this process has claimed by hand; what workers claim they count themselves.",
    )
    claimed: Counter[tuple[str, str | None]] = Counter()
    for (box, topic), number in consumed.items():
        claimed[box, label(box, topic)] += number
    for (box, topic), number in claimed.items():
        family.add(number, (*labels, ("box", box), ("topic", topic)))
    family = families.get(
        "pysqlbox_client_operation_seconds",
        "histogram",
        "How long calls took that send, receive or settle, those of workers too.",
    )
    for (box, operation, error), found in seconds.items():
        of_call = (*labels, ("box", box), ("operation", operation), ("error", error))
        family.add_histogram(found.bounds, found.counts, found.total, of_call)


def _label(
    db: DeploymentBase, topics: int | None, among: int, counts: Iterable[tuple[tuple[Any, ...], int]]
) -> Callable[[str, str | None], str | None]:
    """What the topics of each box are called; what has none stays without."""
    weights: dict[str, Counter[str]] = {}
    for (box, topic, *_), number in counts:
        if topic is not None:
            weights.setdefault(box, Counter())[topic] += number
    names: dict[str, dict[str, str]] = {}
    with _lock:
        chosen = _chosen.setdefault(db, {})
        for box, found in weights.items():
            of_box = chosen.setdefault((topics, box), Chosen(topics))
            of_box.limit = topics_each(topics, among)
            names[box] = of_box.label(found)
    return lambda box, topic: None if topic is None else names[box][topic]


def _add_pool(families: Families, db: Deployment | AsyncDeployment, labels: Labels) -> None:
    """The connections of a deployment, in this process."""
    pool = db.pool
    idle, opened = pool.idle, pool.open
    family = families.get("pysqlbox_pool_connections", "gauge", "Connections of this process's pool.")
    family.add(max(opened - idle, 0), (*labels, ("state", "in_use")))
    family.add(idle, (*labels, ("state", "idle")))
    families.get("pysqlbox_pool_size", "gauge", "How many connections the pool may have.").add(
        pool.size, labels
    )
