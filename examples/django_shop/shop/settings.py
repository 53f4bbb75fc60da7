"""The settings: one PostgreSQL, which holds the shop's tables and its messages."""

import os
from urllib.parse import parse_qs, unquote, urlsplit

_url = urlsplit(os.environ["DATABASE_URL"])  # postgresql://user:password@host:port/name?host=/a/socket

SECRET_KEY = os.environ.get("SECRET_KEY", "only for trying it out")
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
INSTALLED_APPS = ["pysqlbox.contrib.django", "shop"]
ROOT_URLCONF = "shop.urls"
USE_TZ = True
TASKS = {"default": {"BACKEND": "pysqlbox.contrib.django.tasks.PysqlboxBackend"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _url.path.strip("/"),
        "USER": unquote(_url.username or ""),
        "PASSWORD": unquote(_url.password or ""),
        "HOST": _url.hostname or parse_qs(_url.query).get("host", [""])[0],
        "PORT": str(_url.port or ""),
    }
}
