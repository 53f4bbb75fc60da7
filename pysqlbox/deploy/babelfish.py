"""What T-SQL has to say differently so that Babelfish means the same by it."""

from __future__ import annotations

__all__ = ["json_text"]

_NAMED = {"\\n": 10, "\\r": 13, "\\t": 9, "\\b": 8, "\\f": 12}
_BACKSLASH = "NCHAR(65535)"  # stands for a backslash of the text itself meanwhile; no character has that number


def json_text(expression: str) -> str:
    """An expression for the text of a JSON string that OPENJSON answers.

    Babelfish leaves the escapes in it: quotes, backslashes and every control character.
    """
    escapes = [("\\\\", _BACKSLASH), ('\\"', "N'\"'")]
    escapes += [(text, f"NCHAR({number})") for text, number in _NAMED.items()]
    escapes += [(f"\\u{number:04x}", f"NCHAR({number})") for number in range(1, 32)]
    plain = f"{expression} COLLATE Latin1_General_100_BIN2"
    for text, meaning in escapes:
        plain = f"REPLACE({plain}, N'{text}', {meaning})"
    plain = f"REPLACE({plain}, {_BACKSLASH}, N'\\')"
    return (
        f"CASE WHEN SERVERPROPERTY('Babelfish') IS NULL THEN {expression}"
        f" WHEN CHARINDEX(N'\\', {expression}) = 0 THEN {expression} ELSE {plain} END"
    )
