"""What docs/stores.md takes for granted at its end."""

from fastapi import FastAPI

import pysqlbox
from pysqlbox import Manager, Stores, Upkeep

stores = Stores({"a": pysqlbox.connect()})
worker = stores.worker()


def after() -> None:
    stores.close()
