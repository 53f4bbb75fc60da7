"""The pages of the site and their menu: tutorial, how-to guides, reference, explanation."""

from __future__ import annotations

from typing import Any

#: Each page of the site that is a file of the repository.
PAGES: dict[str, str] = {
    "index.md": "README.md",
    "tutorial.md": "docs/tutorial.md",
    "guestbook.md": "docs/guestbook.md",
    "tour.md": "docs/tour.md",
    "sending.md": "docs/sending.md",
    "worker.md": "docs/worker.md",
    "running.md": "docs/running.md",
    "web.md": "docs/web.md",
    "groups.md": "docs/groups.md",
    "python.md": "docs/python.md",
    "testing.md": "docs/testing.md",
    "joins.md": "docs/joins.md",
    "stores.md": "docs/stores.md",
    "scale.md": "docs/scale.md",
    "schedules.md": "docs/schedules.md",
    "service.md": "docs/service.md",
    "relays.md": "docs/relays.md",
    "once.md": "docs/once.md",
    "looking.md": "docs/looking.md",
    "upgrades.md": "docs/upgrades.md",
    "poolers.md": "docs/poolers.md",
    "decisions.md": "docs/decisions.md",
    "moving.md": "docs/moving.md",
    "operating.md": "docs/operating.md",
    "deployment.md": "docs/deployment.md",
    "seeing.md": "docs/seeing.md",
    "doctor.md": "docs/doctor.md",
    "dashboard.md": "docs/dashboard.md",
    "settings.md": "docs/settings.md",
    "behaviour.md": "docs/behaviour.md",
    "architecture.md": "docs/architecture.md",
    "comparison.md": "docs/comparison.md",
    "reliability.md": "docs/reliability.md",
    "sqlserver.md": "docs/sqlserver.md",
    "requirements.md": "docs/requirements.md",
    "examples/index.md": "examples/README.md",
    "benchmarks.md": "benchmarks/README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}

MENU: list[dict[str, Any]] = [
    {
        "Start": [
            "index.md",
            {"Tutorial": "tutorial.md"},
            {"A service of your own": "guestbook.md"},
            {"Tour": "tour.md"},
            {"Changes": "changelog.md"},
            {"Contributing": "contributing.md"},
        ]
    },
    {
        "Write": [
            {"Installing, asyncio, types": "python.md"},
            {"In a web application": "web.md"},
            {"Sending": "sending.md"},
            {"Workers": "worker.md"},
            {"Running workers": "running.md"},
            {"In order: groups": "groups.md"},
            {"Each message once": "once.md"},
            {"Joins": "joins.md"},
            {"Schedules": "schedules.md"},
            {"Testing an application": "testing.md"},
            {"Webhooks and brokers": "relays.md"},
            {"Many stores, tenants": "stores.md"},
            {"Past one machine": "scale.md"},
            {"Moving to pysqlbox": "moving.md"},
        ]
    },
    {
        "Run": [
            {"Operating": "operating.md"},
            {"Deployment": "deployment.md"},
            {"Upgrades": "upgrades.md"},
            {"PgBouncer and other poolers": "poolers.md"},
            {"The HTTP service": "service.md"},
            {"The dashboard": "dashboard.md"},
            {"Metrics and traces": "seeing.md"},
            {"The doctor": "doctor.md"},
            {"Looking things up": "looking.md"},
            {"SQL Server": "sqlserver.md"},
        ]
    },
    {
        "Examples": [
            "examples/index.md",
            {"FastAPI": "examples/fastapi_shop.md"},
            {"Django": "examples/django_shop.md"},
            {"SQLAlchemy and Alembic": "examples/alembic_shop.md"},
            {"Tenants": "examples/tenants.md"},
            {"Webhooks": "examples/webhooks.md"},
            {"RabbitMQ": "examples/rabbitmq_billing.md"},
            {"Other languages": "examples/clients.md"},
        ]
    },
    {
        "Reference": [
            {"Routines": "reference/routines.md"},
            {"Python": "reference/python.md"},
            {"Commands": "reference/commands.md"},
            {"Settings": "settings.md"},
        ]
    },
    {
        "Understand": [
            {"What callers can rely on": "behaviour.md"},
            {"Under faults": "reliability.md"},
            {"How it works": "architecture.md"},
            {"Tried, measured, rejected": "decisions.md"},
            {"Which queue?": "comparison.md"},
            {"Benchmarks": "benchmarks.md"},
            {"Requirements": "requirements.md"},
        ]
    },
]
