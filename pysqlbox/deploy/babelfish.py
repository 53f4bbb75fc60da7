"""What T-SQL has to say differently so that Babelfish means the same by it."""

from __future__ import annotations

__all__ = ["json_long_text", "json_text"]

_NAMED = {"\\n": 10, "\\r": 13, "\\t": 9, "\\b": 8, "\\f": 12}
_BACKSLASH = "NCHAR(65535)"  # stands for a backslash of the text meanwhile; no character has that number


def json_text(expression: str) -> str:
    """An expression for the text of a JSON string that OPENJSON answers.

    Babelfish leaves the escapes in it: quotes, backslashes and every control character.
    """
    is_plain = f"SERVERPROPERTY('Babelfish') IS NULL OR CHARINDEX(N'\\', {expression}) = 0"
    return f"CASE WHEN {is_plain} THEN {expression} ELSE {_plain(expression)} END"


def json_long_text(key: str, record: str) -> str:
    """The same for a text of any length, by its key in a JSON object.

    In Babelfish what OPENJSON answers by a WITH clause must not be longer than 4000 characters.
    """
    return f"(SELECT TOP (1) {json_text('f.value')} FROM OPENJSON({record}) AS f WHERE f.[key] = N'{key}')"


def _plain(text: str) -> str:
    """The text without escapes, by nested replacements."""
    escapes = [("\\\\", _BACKSLASH), ('\\"', "N'\"'")]
    escapes += [(escape, f"NCHAR({number})") for escape, number in _NAMED.items()]
    escapes += [(f"\\u{number:04x}", f"NCHAR({number})") for number in range(1, 32)]
    plain = f"{text} COLLATE Latin1_General_100_BIN2"
    for escape, meaning in escapes:
        plain = f"REPLACE({plain}, N'{escape}', {meaning})"
    return f"REPLACE({plain}, {_BACKSLASH}, N'\\')"
