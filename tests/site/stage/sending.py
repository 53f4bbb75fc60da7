"""What docs/sending.md takes for granted: a model of SQLAlchemy's, a Django that knows the database."""

from dataclasses import dataclass
from types import SimpleNamespace

import django
import sqlalchemy
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

URL: str
_given = conninfo_to_dict(URL)
settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": _given["dbname"],
            "USER": _given["user"],
            "HOST": _given["host"],
            "PORT": _given.get("port", ""),
        }
    },
    USE_TZ=True,
)
django.setup()
engine = sqlalchemy.create_engine(URL.replace("postgresql:", "postgresql+psycopg:", 1))
async_session = async_sessionmaker(create_async_engine(engine.url))


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)

    #: Django's way of the same model.
    objects = SimpleNamespace(create=lambda **_: None)

    def __init__(self, id: int) -> None:
        # The page adds the same order again and again.
        super().__init__(id=id + next(_numbers))


_numbers = iter(range(1000, 2000))
