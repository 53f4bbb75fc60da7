"""Sessions in a signed cookie, and the token that each form carries."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from pysqlbox.dashboard.people import Person

__all__ = ["COOKIE", "Session", "Sessions"]

COOKIE = "pysqlbox_session"


@dataclass(frozen=True, slots=True)
class Session:
    """One browser's; ``person`` is None before the login."""

    id: str
    person: Person | None
    begun: int
    until: int
    is_known: bool = False
    """The person is known by something else than this session, which is to be asked every time."""


class Sessions:
    """Makes and reads cookies. A session ends when nobody has used it for a while, and at last anyhow."""

    def __init__(
        self,
        secret: bytes | None = None,
        *,
        idle_seconds: int = 3600,
        longest_seconds: int = 12 * 3600,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Without a ``secret``, which several processes behind one address must share, one is drawn."""
        self._key = secret or secrets.token_bytes(32)
        self._idle = idle_seconds
        self._longest = longest_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._ended: dict[str, int] = {}

    def begin(self, person: Person | None) -> Session:
        """A new session."""
        now = int(self._clock())
        return Session(secrets.token_urlsafe(18), person, now, now + self._idle)

    def read(self, cookie: str | None) -> Session | None:
        """The session of a cookie; None if it is not ours, has run out or was ended."""
        body, dot, signature = (cookie or "").partition(".")
        if not dot or not hmac.compare_digest(self._sign("session", body), signature.encode()):
            return None
        try:
            found = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
            name, role = found["n"], found["r"]
            session = Session(
                found["i"], None if role is None else Person(name, role), found["b"], found["u"]
            )
        except (binascii.Error, ValueError, KeyError):
            return None  # signed by a release that wrote something else
        now = self._clock()
        if now >= session.until or now >= session.begun + self._longest or session.id in self._ended:
            return None
        return session

    def renewed(self, session: Session) -> Session | None:
        """The same session for longer; None while that is not worth a new cookie."""
        until = int(self._clock()) + self._idle
        return replace(session, until=until) if until - session.until > self._idle // 10 else None

    def cookie(self, session: Session) -> str:
        """The cookie of a session."""
        person = None if session.is_known else session.person
        content = {
            "i": session.id,
            "n": None if person is None else person.name,
            "r": None if person is None else person.role,
            "b": session.begun,
            "u": session.until,
        }
        body = base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()
        return f"{body}.{self._sign('session', body).decode()}"

    def end(self, session: Session) -> None:
        """Take no cookie of this session any more."""
        now = int(self._clock())
        with self._lock:
            self._ended = {id: until for id, until in self._ended.items() if until > now}
            self._ended[session.id] = session.begun + self._longest

    def form_token(self, session: Session) -> str:
        """What the forms of a session carry, and no other site can know."""
        return self._sign("form", session.id).decode()

    def is_form_token(self, session: Session, text: str) -> bool:
        """Whether a form came from a page of this session."""
        return hmac.compare_digest(self._sign("form", session.id), text.encode("utf-8", "surrogatepass"))

    def _sign(self, purpose: str, text: str) -> bytes:
        message = f"{purpose}:{text}".encode("utf-8", "surrogatepass")
        digest = hmac.new(self._key, message, hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=")
