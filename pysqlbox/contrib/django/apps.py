"""The application, for ``INSTALLED_APPS``."""

from __future__ import annotations

from django.apps import AppConfig

__all__ = ["PysqlboxConfig"]


class PysqlboxConfig(AppConfig):  # type: ignore[misc]  # Django has no type information
    """It has no models: the tables are pysqlbox's own."""

    name = "pysqlbox.contrib.django"
    label = "pysqlbox"
    verbose_name = "pysqlbox"
