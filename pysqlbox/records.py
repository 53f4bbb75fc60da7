"""Records of a batch: mappings whose keys are the arguments of enqueue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pysqlbox.arguments import aware, delay, headers, payload_text
from pysqlbox.errors import InvalidArgument
from pysqlbox.serializer import Serializer

__all__ = ["Records"]

_TIMES = frozenset({"due_at", "expires_at", "created_at", "received_at"})


class Records:
    """The keys that records of one kind of box may have; a delay may also be called what the routine does."""

    def __init__(self, required: tuple[str, ...], optional: tuple[str, ...]) -> None:
        self._keys = frozenset((*required, *optional))
        self._times = _TIMES & self._keys

    def read(
        self, messages: Iterable[Mapping[str, object]] | None, serializer: Serializer
    ) -> list[dict[str, object]] | None:
        """Records as the routine takes them; a key that enqueue does not have is refused."""
        if messages is None:
            return None
        if isinstance(messages, str | bytes | Mapping):
            raise InvalidArgument("messages: must be a list of mappings")
        keys, times = self._keys, self._times
        records = []
        for message in messages:
            if not isinstance(message, Mapping):
                raise InvalidArgument("messages: must be a list of mappings")
            record = dict(message)
            found = record.keys()
            if not found <= keys:
                raise InvalidArgument(
                    f"messages: {sorted(map(str, found - keys))[0]!r} is no argument of enqueue; leave it out"
                )
            if type(record.get("payload")) is not str:
                record["payload"] = payload_text("payload", record.get("payload"), serializer)
            if record.get("headers") is not None:
                record["headers"] = headers(record["headers"])  # type: ignore[arg-type]  # it checks itself
            for name in found & times:
                aware(name, record[name])
            if "delay" in found:
                if "delay_seconds" in found:
                    raise InvalidArgument("messages: must have delay or delay_seconds, and not both")
                record["delay_seconds"] = record.pop("delay")
            if "delay_seconds" in record:
                record["delay_seconds"] = delay("delay", record["delay_seconds"])  # type: ignore[arg-type]  # it checks itself
            hash_ = record.get("hash")
            if isinstance(hash_, bytes | bytearray | memoryview):
                record["hash"] = bytes(hash_).hex()
            records.append(record)
        return records
