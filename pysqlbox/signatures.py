"""Signatures of what others wrote, also where an annotation names what is only there for type checkers."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

from pysqlbox.errors import InvalidArgument

__all__ = ["check_takes", "is_coroutine_function", "signature_of"]


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature. From Python 3.14 on annotations are evaluated here, and no longer where the function
    is defined: one whose name is not known (yet, or outside of a type checker) then stays text, as under
    ``from __future__ import annotations``.
    """
    try:
        return inspect.signature(function)
    except NameError:
        if sys.version_info >= (3, 14):
            from annotationlib import Format

            return inspect.signature(function, annotation_format=Format.STRING)
        raise


def is_coroutine_function(function: Any) -> bool:
    """Whether calling it makes a coroutine, as far as can be told without calling it."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  # not a test for callability: an async __call__
    )


def check_takes(name: str, function: Callable[..., Any], *arguments: str) -> None:
    """Refuse what cannot be called with these positional arguments; who has no signature is believed."""
    if callable(function):
        try:
            signature_of(function).bind(*arguments)
        except ValueError:
            return
        except TypeError:
            pass
        else:
            return
    wanted = f"({', '.join(arguments)})" if arguments else "no arguments"
    raise InvalidArgument(f"{name}: must take {wanted}, and {function!r} does not")
