"""Tokens: the file that names them, and finding out whose one is.

The file is TOML. A token is kept as it is, or, better, as its SHA-256::

    [[tokens]]
    name = "billing"
    role = "producer"
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
"""

from __future__ import annotations

import hashlib
import hmac
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pysqlbox.errors import InvalidArgument
from pysqlbox.service.roles import Role, role_of

__all__ = ["SHORTEST_TOKEN", "Caller", "Tokens"]

SHORTEST_TOKEN = 16
"""Characters; what is shorter could be guessed."""
_KEYS = {"name", "role", "token", "sha256"}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: the name that the audit log keeps, and the role."""

    name: str
    role: Role


class Tokens:
    """Tokens by their SHA-256; the tokens themselves are not kept."""

    def __init__(self, entries: Iterable[Mapping[str, object]]) -> None:
        """Entries are mappings with ``name``, ``role``, and ``token`` or ``sha256``."""
        self._callers: dict[bytes, Caller] = {}
        for number, entry in enumerate(entries, 1):
            digest, caller = _read(number, entry)
            if digest in self._callers:
                raise InvalidArgument(f"tokens: number {number} must not have the token of another one")
            self._callers[digest] = caller
        if not self._callers:
            raise InvalidArgument("tokens: there must be at least one")

    @classmethod
    def load(cls, path: str | Path) -> Tokens:
        """The tokens of a TOML file."""
        try:
            found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise InvalidArgument(f"token file: must be readable: {error.strerror or error}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"token file: must be TOML: {error}") from error
        entries = found.pop("tokens", None)
        if found or not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            raise InvalidArgument("token file: must hold tables [[tokens]] and nothing else")
        return cls(entries)

    def find(self, token: str) -> Caller | None:
        """Whose token this is; how long the answer takes tells nothing of the tokens."""
        wanted = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        found = None
        for digest, caller in self._callers.items():
            if hmac.compare_digest(digest, wanted):
                found = caller
        return found

    def __len__(self) -> int:
        return len(self._callers)

    def __repr__(self) -> str:
        return f"<pysqlbox.service.Tokens of {', '.join(each.name for each in self._callers.values())}>"


def _read(number: int, entry: Mapping[str, object]) -> tuple[bytes, Caller]:
    where = f"tokens: number {number}"
    if unknown := sorted(entry.keys() - _KEYS):
        raise InvalidArgument(f"{where}: {unknown[0]!r} must be name, role, token or sha256")
    name, role, token, sha256 = (entry.get(key) for key in ("name", "role", "token", "sha256"))
    if not isinstance(name, str) or not 1 <= len(name) <= 255 or not name.isprintable():
        raise InvalidArgument(f"{where}: name must be text of 1 to 255 printable characters")
    found = role_of(role) if isinstance(role, str) else None
    if found is None:
        raise InvalidArgument(f"{where}: role must be one of {', '.join(Role)}")
    if (token is None) == (sha256 is None):
        raise InvalidArgument(f"{where}: must have either token or sha256")
    if sha256 is not None:
        if not isinstance(sha256, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
            raise InvalidArgument(f"{where}: sha256 must be 64 hex digits")
        return bytes.fromhex(sha256), Caller(name, found)
    if not isinstance(token, str) or len(token) < SHORTEST_TOKEN or not re.fullmatch(r"[!-~]+", token):
        raise InvalidArgument(
            f"{where}: token must have at least {SHORTEST_TOKEN} visible ASCII characters, without spaces"
        )
    return hashlib.sha256(token.encode()).digest(), Caller(name, found)
