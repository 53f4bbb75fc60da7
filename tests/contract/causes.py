"""Errors and the causes that both dialects make of them."""

from __future__ import annotations

import random
import re

CAUSES: dict[str, str] = {
    "ValueError: invalid literal": "ValueError: invalid literal",
    "order 17 not found": "order # not found",
    "order #17 not found\nTraceback (most recent call last)": "order # not found",
    "order 17 of 3, 4 and 5.": "order # of #, # and #.",
    "first\r\nsecond": "first",
    "  blanks around \t\n": "blanks around",
    "a\tb\x01c 1": "a b c #",
    "HTTP 503: upstream": "HTTP #: upstream",
    "ORA-00942: table or view": "ORA-#: table or view",
    "worker-3 of pool_12 said no": "worker-# of pool_# said no",
    "took 12.5s, 10%": "took #.#s, #%",
    "-1 is less than 0.5": "# is less than #",
    "at 2026-01-31T12:00:00.123Z": "at #",
    "on 2026-01-31 12:00:00": "on # #",
    "id 3fa85f64-5717-4562-b3fc-2c963f66afa6 is gone": "id # is gone",
    "id={ABCDEFAB-CDEF-ABCD-EFAB-CDEFABCDEF01}, really": "id={#}, really",
    "<Foo object at 0x7F3a9C01>": "<Foo object at #>",
    "commit deadbeef is bad": "commit # is bad",
    "commit 9f8e7d6 is bad": "commit # is bad",
    "a bad face added a cafe": "a bad face added a cafe",
    "charge ch_1NG8Du2eZvKYlo2C was declined": "charge # was declined",
    "Base64DecodingException: no": "Base#DecodingException: no",
    "KeyError: 'customer'": "KeyError: ?",
    'relation "orders_2024" does not exist': "relation ? does not exist",
    "can't find 'x' in O'Brien's list": "can't find ? in O'Brien's list",
    "it's 'that's it' again": "it's ? again",
    "'' and \"\" are empty": "? and ? are empty",
    "an open 'quote at the end": "an open 'quote at the end",
    'an open "quote at the end': "an open 'quote at the end",
    "a \"Table 'x' of y\" and 'z \"q\" r'": "a ? and ?",
    "`tick` and 1": "`tick` and #",
    "open /var/lib/x1/file.txt: No such file": "open <path>: No such file",
    r"open C:\Users\ann\x.txt, no": "open <path>, no",
    r"open \\server\share\x": "open <path>",
    "open ./x or ~/y or a/b/c": "open <path> or <path> or <path>",
    "I/O error, and/or N/A": "I/O error, and/or N/A",
    "mail to ann.b@example.com bounced": "mail to <address> bounced",
    "@ and a@ and @b": "@ and a@ and @b",
    "GET https://example.com:8443/a?b=c&d=1 failed": "GET <address> failed",
    "see http://a/1,http://b/2; or ftp+x://c": "see <address>,<address>; or <address>",
    "connect to 10.0.0.5:5432 refused": "connect to # refused",
    "connect to fe80::1ff:fe23 refused": "connect to # refused",
    "connect to localhost:8080 refused": "connect to localhost:# refused",
    "db-3.example.com: down": "db-#.example.com: down",
    'json {"a": "b", "c": 1}': "json {?: ?, ?: #}",
    "[1, 2] != [3]": "[#, #] != [#]",
    "🐘 ünïcode 漢字 7": "🐘 ünïcode 漢字 #",
    "100% %s {box} $1": "#% %s {box} $#",
    "'; DROP TABLE x; --": "'; DROP TABLE x; --",
    "trailing: 5:": "trailing: #:",
    "x" * 300: "x" * 200,
    "7" * 1500: "#",
    "\ue000private 1": "private #",
}
"""What becomes of each error."""


_MARK = r"(?:(?<![A-Za-z0-9])'|'(?![A-Za-z]))"
_DELIMITERS = re.escape(" <>\"',;()[]{}|=?*&!`")


def cause_of(error: str) -> str:
    """What the routines have to make of an error; the empty text where they take the status."""
    line = re.split("[\r\n]", error[:1000])[0]
    line = re.sub("[\x01-\x1f\ue000]", " ", re.sub("[#1-9]", "0", line).replace("\\", "/")).strip(" ")
    line = re.sub('"[^"]*"', "?", line)
    line = re.sub(_MARK + "(?:[^']|(?<=[A-Za-z0-9])'(?=[A-Za-z]))*?" + _MARK, "?", line)
    line = re.sub(r"[A-Za-z0-9+.-]*://[^] <>\"',;()[{}|]*", "<address>", line)
    words = re.split(f"([{_DELIMITERS}]|[:.](?= |$))", line.replace('"', "'"))
    return "".join(_folded(word) for word in words).strip(" ")[:200]


def _folded(word: str) -> str:
    if "@" in word and 0 < word.index("@") < len(word) - 1:
        return "<address>"
    is_path = word[:1] == "/" or word[:2] in ("./", "~/") or word[1:3] == ":/" or word.count("/") > 1
    if len(word) > 1 and is_path:
        return "<path>"
    if "0" in word and re.fullmatch("(?:0[xX])?[0a-fA-F:.-]*", word):
        return "#"
    if len(word) >= 8 and re.fullmatch("[a-fA-F]+", word):
        return "#"
    if len(word) >= 16 and re.search("0[^0]+0", word):
        return "#"
    return re.sub("0+", "#", word)


_PIECES = (
    *" \t\n:;.,?!'\"`/\\@#-_+=()[]{}<>|&*~%$\x01\x1f",
    *"aAfFgGxXzé漢🐘0379",
    *("://", "http", "0x", "deadbeef", "can't", "'quoted'", '"quoted"', "./", "~/", "C:\\", ": ", ". "),
    *(
        "17",
        "2026-01-31",
        "3fa85f64-5717-4562-b3fc-2c963f66afa6",
        "a@b",
        "order",
        "Error",
        "ch_1NG8Du2eZvKYlo2C",
    ),
)


def random_errors(count: int, seed: int = 7) -> list[str]:
    """Texts of pieces that mean something to the rules, in any order."""
    draw = random.Random(seed)
    return ["".join(draw.choices(_PIECES, k=draw.randint(1, 30))) + draw.choice("xX0 ") for _ in range(count)]
