"""Many stores: deployments under keys, a router, and one worker for all of them."""

from __future__ import annotations

from pysqlbox.stores.reports import Refreshed, StoreDoctor, StoreMigration, StoreStats, StoreUpkeep
from pysqlbox.stores.ring import HashRing
from pysqlbox.stores.router import Router
from pysqlbox.stores.stores import Stores
from pysqlbox.stores.strategies import DrainFirst, RoundRobin, Strategy, Weighted

__all__ = [
    "DrainFirst",
    "HashRing",
    "Refreshed",
    "RoundRobin",
    "Router",
    "StoreDoctor",
    "StoreMigration",
    "StoreStats",
    "StoreUpkeep",
    "Stores",
    "Strategy",
    "Weighted",
]
