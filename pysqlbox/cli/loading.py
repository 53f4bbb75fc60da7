"""What ``MODULE:NAME`` means on the command line."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from pysqlbox.signatures import signature_of

__all__ = ["load", "parameters"]


def load(target: str, hint: str) -> Any:
    """The attribute that ``module:name`` means; the current directory is looked in first."""
    module_name, separator, path = target.partition(":")
    if not separator or not module_name or not path:
        raise click.BadParameter("must be module:name, such as shop.worker:worker", param_hint=hint)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise click.BadParameter(f"there is no module {error.name!r}", param_hint=hint) from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise click.BadParameter(f"module {module_name!r} has no {path!r}", param_hint=hint) from error
    return found


def parameters(function: Any) -> int:
    """How many arguments a function must be given."""
    found = signature_of(function).parameters.values()
    return sum(1 for p in found if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
