"""From a payload's text to an object: the other half of the JSON serializer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from pysqlbox.typed.errors import Undecodable
from pysqlbox.typed.libraries import decoder_of_library
from pysqlbox.typed.shapes import Convert, Misfit, Shapes, describe, strip

__all__ = ["decode", "decoder"]

Decoder = Callable[[str], Any]


def decode(payload: str, kind: Any) -> Any:
    """The object of a type that a payload describes; raises Undecodable, whose text holds nothing of it."""
    return decoder(kind)(payload)


def decoder(kind: Any, local_names: Mapping[str, Any] | None = None) -> Decoder:
    """What decodes payloads of a type; building it once is dearer than calling it.

    ``str`` answers the payload as it stands, as the serializer leaves text alone.
    """
    kind = strip(kind)
    if kind is str:
        return _text
    names = local_names or {}
    return decoder_of_library(kind, names) or _decoder_of_json(kind, names)


def _text(payload: str) -> str:
    return payload


def _decoder_of_json(kind: Any, local_names: Mapping[str, Any]) -> Decoder:
    shapes = Shapes(local_names)
    convert = shapes.build(kind)
    title = describe(kind)
    read = json.JSONDecoder(
        parse_float=Decimal if shapes.exact else None, parse_constant=_refuse_constant
    ).decode

    def decode(payload: str) -> Any:
        value, reason = _convert(read, convert, payload)
        if reason is not None:
            raise Undecodable(f"the payload is no {title}: {reason}")
        return value

    return decode


def _convert(read: Callable[[str], Any], convert: Convert, payload: str) -> tuple[Any, str | None]:
    """The value, or why there is none: the exceptions in between hold the payload, so none gets out."""
    try:
        return convert(read(payload)), None
    except Misfit as misfit:
        return None, str(misfit)
    except (TypeError, ValueError):  # ValueError: also a number of more digits than Python reads
        return None, "it is not JSON"
    except RecursionError:
        return None, "it is nested too deeply"


def _refuse_constant(_: str) -> None:
    raise ValueError("JSON knows neither NaN nor Infinity")
