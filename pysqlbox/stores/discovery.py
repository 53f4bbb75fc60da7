"""Asking a source which stores there are: a mapping, or a callable that answers one now or later."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from pysqlbox.errors import InvalidArgument
from pysqlbox.names import StoreKey
from pysqlbox.stores.keys import key_text
from pysqlbox.stores.store import Given

__all__ = ["Found", "Source", "discover", "discover_async"]

Stores = Mapping[Any, Given]
#: Where the stores come from.
Source = Stores | Callable[[], Stores] | Callable[[], Awaitable[Stores]]
#: What was found, by the text of the keys.
Found = dict[str, tuple[StoreKey, Given]]


def discover(source: Source) -> Found:
    """Ask the source; one that answers later runs on an event loop of its own."""
    answer = source() if callable(source) else source
    if inspect.isawaitable(answer):
        answer = _run(answer)
    return _checked(answer)


async def discover_async(source: Source) -> Found:
    """The same on the running loop; what is not asynchronous is asked in a thread."""
    if not callable(source):
        return _checked(source)
    if inspect.iscoroutinefunction(source) or inspect.iscoroutinefunction(getattr(source, "__call__", None)):  # noqa: B004  # an async __call__
        return _checked(await cast("Awaitable[Any]", source()))
    answer = await asyncio.to_thread(source)
    return _checked(await answer if inspect.isawaitable(answer) else answer)


def _run(answer: Awaitable[Any]) -> Any:
    async def wait() -> Any:
        return await answer

    try:
        asyncio.get_running_loop()
    except RuntimeError:  # no loop runs here
        return asyncio.run(wait())
    found: list[Any] = []
    failed: list[BaseException] = []

    def in_thread() -> None:
        try:
            found.append(asyncio.run(wait()))
        except BaseException as error:  # noqa: BLE001  # raised again in the thread that asked
            failed.append(error)

    thread = threading.Thread(target=in_thread, name="pysqlbox-discovery", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]


def _checked(answer: object) -> Found:
    if not isinstance(answer, Mapping):
        raise InvalidArgument(f"source: must answer a mapping of keys, not {type(answer).__name__}")
    found: Found = {}
    given_as: dict[int, str] = {}
    for key, given in answer.items():
        text = key_text(key)
        if text in found:
            raise InvalidArgument(f"source: must not have the key {text!r} twice")
        if not isinstance(given, str):
            other = given_as.setdefault(id(given), text)
            if other != text and hasattr(given, "store_key"):
                raise InvalidArgument(
                    f"source: must not have one deployment under two keys, as {other!r} and {text!r}"
                )
        found[text] = key, given
    return found
