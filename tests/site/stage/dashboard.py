"""What docs/dashboard.md takes for granted."""

from pathlib import Path

from starlette.applications import Starlette
from starlette.routing import Mount

import pysqlbox
import pysqlbox.service

Path("tokens.toml").write_text(
    '[[tokens]]\nname = "ops"\nrole = "admin"\ntoken = "a-secret-of-some-length"\n'
)
db = pysqlbox.connect()
tokens = pysqlbox.service.Tokens.load("tokens.toml")


def after() -> None:
    db.close()
