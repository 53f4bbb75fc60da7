"""The errors pysqlbox raises; the driver's own exception stays as ``__cause__``.

PysqlboxError
 ├── InvalidArgument      (also a ValueError)   an argument broke a rule
 ├── NotFound             (also a LookupError)  no such join, message, box or store
 ├── InvalidState         the step is not allowed now
 ├── SchemaMismatch       schema missing, or newer than this release
 ├── DatabaseUnavailable  unreachable, or a transient fault after retries
 ├── AccessDenied         the database refuses a right
 ├── DriverMissing        a database driver is not installed
 └── PackageMissing       (also an ImportError) a package of an extra is not installed
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pysqlbox.names import StoreKey

__all__ = [
    "AccessDenied",
    "DatabaseUnavailable",
    "DriverMissing",
    "InvalidArgument",
    "InvalidState",
    "NotFound",
    "PackageMissing",
    "PysqlboxError",
    "SchemaMismatch",
]


class PysqlboxError(Exception):
    """Base of everything pysqlbox raises on purpose."""

    #: The key of the store that it concerns, where there are several; the text ends with it.
    store: StoreKey | None = None

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.store is None else f"{text} [{self.store}]"

    def concerns(self, store: StoreKey | None) -> Self:
        """Note the store that it concerns, unless one is noted already."""
        if self.store is None:
            self.store = store
        return self


class InvalidArgument(PysqlboxError, ValueError):
    """An argument is null, empty, too long, out of range or malformed; nothing was written."""


class NotFound(PysqlboxError, LookupError):
    """There is no such join, message, box or store."""


class InvalidState(PysqlboxError):
    """The step is not allowed in the state the message or join is in."""


class SchemaMismatch(PysqlboxError):
    """The schema is missing, or newer than this release understands."""


class DatabaseUnavailable(PysqlboxError):
    """The database cannot be reached, or a transient fault outlived the retries."""


class AccessDenied(PysqlboxError):
    """The database refused a right that the step needs."""


class DriverMissing(PysqlboxError):
    """A Python package or an ODBC driver that the URL needs is not installed."""


class PackageMissing(PysqlboxError, ImportError):
    """A Python package that this part of pysqlbox needs is not installed; the text names the extra."""
