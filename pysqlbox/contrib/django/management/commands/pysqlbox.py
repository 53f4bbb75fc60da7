"""``manage.py pysqlbox …``: the command line on Django's database ``default``."""

from __future__ import annotations

import os
from typing import Any

from django.core.management.base import BaseCommand

from pysqlbox.__main__ import main
from pysqlbox.contrib.django import database_url
from pysqlbox.locate import URL_VARIABLE

__all__ = ["Command"]


class Command(BaseCommand):  # type: ignore[misc]  # Django has no type information
    """Hands its arguments on as they stand."""

    help = "The command line of pysqlbox on the database default: manage.py pysqlbox --help lists it."
    requires_system_checks: tuple[str, ...] = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Without Django's own parsing, which would take ``--help`` and ``--version`` for itself."""
        os.environ.setdefault(URL_VARIABLE, database_url())
        main(argv[2:], f"{os.path.basename(argv[0])} pysqlbox")

    def handle(self, *args: Any, **options: Any) -> None:
        """For ``call_command``: its positional arguments are the command line's."""
        del options
        os.environ.setdefault(URL_VARIABLE, database_url())
        main([*map(str, args)])
