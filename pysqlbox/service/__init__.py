"""The HTTP service: the ledger, messages in, and operating, as an ASGI application.

``app(db)`` makes it, to run with ``pysqlbox serve`` or to mount in FastAPI, Starlette or Django. It needs the
extra ``pysqlbox[serve]``.
"""

from __future__ import annotations

from pysqlbox.extras import needed_for

with needed_for("the HTTP service", "serve"):
    import starlette  # noqa: F401

from pysqlbox.service.access import Access, Authenticator
from pysqlbox.service.application import app
from pysqlbox.service.limits import Limits
from pysqlbox.service.problems import Problem
from pysqlbox.service.roles import Role
from pysqlbox.service.tokens import Caller, Tokens

__all__ = ["Access", "Authenticator", "Caller", "Limits", "Problem", "Role", "Tokens", "app"]
