"""Signatures of what others wrote, also where an annotation names what is only there for type checkers."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["signature_of"]


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
