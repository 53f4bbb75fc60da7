"""Signatures as Standard Webhooks has them: HMAC-SHA256 over the delivery's id, its time and its body."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence

from pysqlbox.errors import InvalidArgument
from pysqlbox.wording import counted

__all__ = ["Unsigned", "key_of", "sign", "verify"]

_PREFIX = "whsec_"


class Unsigned(Exception):
    """A delivery is not what its sender signed, or too old, or not signed at all."""


def key_of(secret: str) -> bytes:
    """The key behind a secret, which is written ``whsec_`` and base64."""
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error as error:
        raise InvalidArgument("secret: must be base64, with or without whsec_ before it") from error
    if not 24 <= len(key) <= 64:
        raise InvalidArgument("secret: must be 24 to 64 bytes in base64")
    return key


def sign(keys: Sequence[bytes], identity: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers of a delivery; with several keys, while they are changed, a signature for each."""
    signed = f"{identity}.{timestamp}.".encode() + body
    return {
        "webhook-id": identity,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{_signature(key, signed)}" for key in keys),
    }


def verify(
    headers: Mapping[str, str],
    body: bytes,
    secrets: str | Sequence[str],
    *,
    tolerance: float = 300,
    now: float | None = None,
) -> str:
    """The id of a delivery that one of the secrets signed; Unsigned if none did, or too long ago.

    For receivers: the id is the ``message_id`` for ``inbox_enqueue``, which then takes each delivery once.
    """
    given = {name.lower(): value for name, value in headers.items()}
    identity, stamp, signatures = (
        given.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature")
    )
    if not (identity and signatures and stamp.isascii() and stamp.isdigit() and len(stamp) < 20):
        raise Unsigned("the headers webhook-id, webhook-timestamp and webhook-signature must be there")
    if abs((time.time() if now is None else now) - int(stamp)) > tolerance:
        raise Unsigned(f"the delivery was signed more than {counted(tolerance, 'second')} from now")
    signed = f"{identity}.{stamp}.".encode() + body
    for secret in [secrets] if isinstance(secrets, str) else secrets:
        wanted = _signature(key_of(secret), signed).encode()
        for each in signatures.split():
            version, _, signature = each.partition(",")
            if version == "v1" and hmac.compare_digest(signature.encode(), wanted):
                return identity
    raise Unsigned("no signature fits")


def _signature(key: bytes, signed: bytes) -> str:
    return base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
