"""Messages as webhooks: a POST for each, signed, and acknowledged when the endpoint has answered 2xx."""

from __future__ import annotations

import email.utils
import http.client
import ssl
import time
from collections.abc import Callable, Iterable
from datetime import UTC
from urllib.parse import SplitResult, urlsplit

from pysqlbox.errors import InvalidArgument
from pysqlbox.messages import InboxMessage, OutboxMessage
from pysqlbox.relays import cloudevents
from pysqlbox.relays.breaker import Breaker
from pysqlbox.relays.signing import key_of, sign
from pysqlbox.worker.results import DeadLetter, Release, Result, Retry

__all__ = ["Webhook"]

Message = OutboxMessage | InboxMessage

#: A pause that an endpoint asks for is kept up to a day.
_LONGEST_PAUSE = 86_400.0


class Webhook:
    """A handler that posts each message: ``worker.handler("order.placed")(Webhook(url, secret=…))``.

    2xx is done. 410 gives the message up: the receiver wants no more of them. 429 and 503 are tried again
    when Retry-After says, or under backoff; everything else too, redirects included, which are not followed.
    An endpoint that has failed several times in a row is left alone for a while: its messages are handed
    back without an attempt counted. One that is not there never costs more than ``timeout`` a message.
    """

    def __init__(
        self,
        url: str | Callable[[Message], str],
        *,
        secret: str | Iterable[str] = (),
        source: str | None = None,
        timeout: float = 10.0,
        breaker: Callable[[], Breaker] = Breaker,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """``url`` may be a function of the message, which the caller answers for: it is called as it stands.

        ``secret``: as Standard Webhooks writes it (``whsec_…``); several while they are being changed; none:
        unsigned. ``source``: makes the body a CloudEvent from there. ``breaker`` makes one for each endpoint.
        """
        if not callable(url):
            _split(url)
        if timeout <= 0:
            raise InvalidArgument("timeout: must be above 0")
        self._url = url
        self._keys = [key_of(each) for each in ([secret] if isinstance(secret, str) else secret)]
        self._source = source
        self._timeout = timeout
        self._new_breaker = breaker
        self._breakers: dict[str, Breaker] = {}
        self._tls = tls

    def __call__(self, message: Message) -> Result | None:
        """Post one message."""
        url = self._url(message) if callable(self._url) else self._url
        parts = _split(url)
        breaker = self._breakers.setdefault(f"{parts.scheme}://{parts.netloc}", self._new_breaker())
        if wait := breaker.wait():
            return Release(delay=wait)
        body, headers = self._request(message)
        try:
            status, retry_after = self._post(parts, body, headers)
        except (OSError, http.client.HTTPException) as error:
            breaker.failed()
            return Retry(error=f"{parts.netloc}: {type(error).__name__}: {error}")
        if 200 <= status < 300:
            breaker.succeeded()
            return None
        if status == 410:
            breaker.succeeded()
            return DeadLetter(f"{parts.netloc}: 410 Gone, the receiver wants no more of these")
        if status in (429, 503) or status >= 500:
            breaker.failed()
        else:
            breaker.succeeded()  # it is there, and it is this message that it does not want
        return Retry(
            delay=retry_after, error=f"{parts.netloc}: {status} {http.client.responses.get(status, '')}"
        )

    def _request(self, message: Message) -> tuple[bytes, dict[str, str]]:
        if self._source is None:
            body, kind = message.payload.encode(), cloudevents.content_type(message.payload)
        else:
            body, kind = cloudevents.structured(message, self._source).encode(), cloudevents.CONTENT_TYPE
        headers = {"content-type": kind, "user-agent": "pysqlbox"}
        identity = str(message.message_id)
        if self._keys:
            headers |= sign(self._keys, identity, int(time.time()), body)
        else:
            headers["webhook-id"] = identity
        return body, headers

    def _post(self, parts: SplitResult, body: bytes, headers: dict[str, str]) -> tuple[int, float | None]:
        """The status, and how many seconds the endpoint asks to wait."""
        host = parts.hostname or ""
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = self._tls or ssl.create_default_context()
            connection = http.client.HTTPSConnection(host, parts.port, timeout=self._timeout, context=context)
        else:
            connection = http.client.HTTPConnection(host, parts.port, timeout=self._timeout)
        try:
            path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            return answer.status, _retry_after(answer.getheader("retry-after"))
        finally:
            connection.close()


def _split(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise InvalidArgument("url: must be http://host… or https://host…, without a user")
    return parts


def _retry_after(value: str | None) -> float | None:
    """Seconds or a date; None if there is nothing that can be read, or nothing to wait for."""
    if not value:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        seconds = float(text[:9])
    else:
        try:
            seconds = email.utils.parsedate_to_datetime(text).astimezone(UTC).timestamp() - time.time()
        except (ValueError, OverflowError):  # no date, or one at the end of time
            return None
    return min(seconds, _LONGEST_PAUSE) if seconds > 0 else None
