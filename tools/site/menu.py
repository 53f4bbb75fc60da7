"""The pages of the site and their menu: tutorial, how-to guides, reference, explanation."""

from __future__ import annotations

from typing import Any

#: Each page of the site that is a file of the repository.
PAGES: dict[str, str] = {
    "index.md": "README.md",
    "tutorial.md": "docs/tutorial.md",
    "tour.md": "docs/tour.md",
    "worker.md": "docs/worker.md",
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
    "benchmarks.md": "benchmarks/README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}

MENU: list[dict[str, Any]] = [
    {
        "Start": [
            "index.md",
            {"Tutorial": "tutorial.md"},
            {"Tour": "tour.md"},
            {"Changes": "changelog.md"},
            {"Contributing": "contributing.md"},
        ]
    },
    {
        "Guides": [
            {"Boxes, handlers and workers": "worker.md"},
            {"In a web application": "web.md"},
            {"In order: groups": "groups.md"},
            {"Installing, asyncio, types": "python.md"},
            {"Testing an application": "testing.md"},
            {"Joins and the ledger": "joins.md"},
            {"Many stores": "stores.md"},
            {"Past one machine": "scale.md"},
            {"Schedules": "schedules.md"},
            {"The HTTP service": "service.md"},
            {"Webhooks and brokers": "relays.md"},
            {"Moving to pysqlbox": "moving.md"},
            {"Operating": "operating.md"},
            {"Deployment": "deployment.md"},
            {"Seeing": "seeing.md"},
            {"The doctor": "doctor.md"},
            {"The dashboard": "dashboard.md"},
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
        "Explanation": [
            {"How it works": "architecture.md"},
            {"What callers can rely on": "behaviour.md"},
            {"Under faults": "reliability.md"},
            {"Which queue?": "comparison.md"},
            {"SQL Server": "sqlserver.md"},
            {"Benchmarks": "benchmarks.md"},
            {"Requirements": "requirements.md"},
        ]
    },
]
