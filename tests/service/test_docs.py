"""docs/service.md keeps its word: its commands run, its answers look like that, its applications answer."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import pysqlbox
from pysqlbox import service
from tests.service.processes import PATIENCE, ROOT
from tests.service.support import TOKENS, bearer, live
from tests.support.database import Database

PAGE = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^```sh\n(.*?)^```\n(?:\n```json\n(.*?)^```)?", PAGE, re.DOTALL | re.MULTILINE)
PROGRAMS = {
    name: program
    for program in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    for name in ("fastapi", "django", "starlette.applications")
    if f"from {name}" in program and (name != "starlette.applications" or "django" not in program)
}


def test_the_commands_run_and_answer_as_it_says(deployment: pysqlbox.Deployment) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    assert len(COMMANDS) >= 7
    with live(service.app(deployment, tokens=service.Tokens(TOKENS), dashboard=False)) as url:
        for command, shown in COMMANDS:
            done = subprocess.run(
                ["bash", "-ec", command],
                env={"URL": url, "TOKEN": "token-of-the-admin", "PATH": "/usr/bin:/bin"},
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            if shown:
                assert _shape(json.loads(done.stdout)) == _shape(json.loads(shown)), done.stdout


def _shape(value: Any) -> Any:
    """What stays the same: keys, types, and words that are no ids or times."""
    if isinstance(value, dict):
        return {key: _shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_shape(each) for each in value]
    is_word = isinstance(value, str) and value.isalpha()
    return value if is_word or isinstance(value, bool) else type(value)


@pytest.mark.dialect("postgres")
@pytest.mark.parametrize("name", ["fastapi", "django", "starlette.applications"])
def test_it_mounts_as_it_says(
    name: str, db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(name, reason=f"{name} is not installed")
    tokens = "".join(
        f'[[tokens]]\nname = "{each["name"]}"\nrole = "{each["role"]}"\ntoken = "{each["token"]}"\n'
        for each in TOKENS
    )
    (tmp_path / "tokens.toml").write_text(tokens, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSQLBOX_URL", db.url)
    if name == "django":
        from django.conf import settings

        if not settings.configured:
            settings.configure(DATABASES={}, USE_TZ=True)
        monkeypatch.setattr(settings, "ROOT_URLCONF", "tests.service.no_urls", raising=False)
        monkeypatch.setattr(settings, "ALLOWED_HOSTS", ["*"])
    found: dict[str, Any] = {}
    exec(compile(PROGRAMS[name], name, "exec"), found)
    try:
        with TestClient(found["app"]) as client:
            assert client.get("/queue/readyz").json()["status"] == "ok"
            body = {"key": "k"}
            assert client.post("/queue/v1/inbox/try-begin", json=body).status_code == 401
            answer = client.post("/queue/v1/inbox/try-begin", json=body, headers=bearer("producer"))
            assert answer.json()["status"] == "Acquired"
            assert client.get("/elsewhere").status_code == 404
    finally:
        found["db"].close()
