"""Runs the blocks of one page as one session: ``session.py PAGE URL``, in an empty folder.

What a page takes for granted (a model, a client of mail, a worker) is in ``stage/<page>.py``, whose names the
blocks see and whose ``after`` looks at what came of them. A URL in a block is that of the server here.
"""

from __future__ import annotations

import ast
import asyncio
import functools
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg

import pysqlbox
from tests.site.blocks import Block, blocks

STAGE = Path(__file__).parent / "stage"
PATIENCE = 200


def main(page: str, url: str) -> None:
    """Every block of the page that no other test runs."""
    _lead_here(url)
    os.environ["URL"] = os.environ["PYSQLBOX_URL"] = url
    module = sys.modules["page"] = ModuleType("page")  # where annotations are looked up
    names = vars(module)
    names |= {"pysqlbox": pysqlbox, "URL": url, "url": url}
    stage = STAGE / f"{Path(page).stem}.py"
    if stage.exists():
        exec(compile(stage.read_text(encoding="utf-8"), str(stage), "exec", dont_inherit=True), names)
    with asyncio.Runner() as runner:
        for block in blocks(page):
            if block.elsewhere is None and block.reason is None and not block.is_tsql:
                print(f"{page}:{block.line}", flush=True)
                _LANGUAGES[block.language](block, names, runner)
        if "after" in names:
            ended = names["after"]()
            if inspect.isawaitable(ended):
                runner.run(_awaited(ended))


def _lead_here(url: str) -> None:
    """Whatever server a page names, it is the one that is here."""
    for name in ("connect", "connect_async"):
        original = getattr(pysqlbox, name)

        def connect(given: str | None = None, *args: Any, _original: Any = original, **options: Any) -> Any:
            del given
            return _original(url, *args, **options)

        setattr(pysqlbox, name, functools.wraps(original)(connect))


async def _awaited(value: Any) -> Any:
    return await value


def _python(block: Block, names: dict[str, Any], runner: asyncio.Runner) -> None:
    """With ``await`` and ``async with`` wherever they stand."""
    code = compile(
        "\n" * block.line + block.text,
        block.page,
        "exec",
        flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
        dont_inherit=True,
    )
    if code.co_flags & inspect.CO_COROUTINE:
        runner.run(_awaited(eval(code, names)))
    else:
        exec(code, names)


def _sql(block: Block, names: dict[str, Any], runner: asyncio.Runner) -> None:
    del names, runner
    if "\\gset" in block.text:
        _run(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", os.environ["URL"]], block.text)
        return
    with psycopg.connect(os.environ["URL"], autocommit=True) as connection:
        connection.execute(block.text.encode())


def _sh(block: Block, names: dict[str, Any], runner: asyncio.Runner) -> None:
    """A line that says where the database is names the server here."""
    del names, runner
    text = re.sub(r"^export PYSQLBOX_URL=.*$", "", block.text, flags=re.MULTILINE)
    _run(["bash", "-euo", "pipefail", "-c", text])


def _run(command: list[str], given: str | None = None) -> None:
    if shutil.which(command[0]) is None:
        print(f"skipped: {command[0]} is not installed")
        return
    subprocess.run(command, input=given, check=True, text=True, timeout=PATIENCE)


def _toml(block: Block, names: dict[str, Any], runner: asyncio.Runner) -> None:
    """A file of tokens."""
    del names, runner
    Path("tokens.toml").write_text(block.text, encoding="utf-8")
    from pysqlbox.service import Tokens

    Tokens.load("tokens.toml")


_LANGUAGES = {"python": _python, "sql": _sql, "sh": _sh, "toml": _toml}

if __name__ == "__main__":
    main(*sys.argv[1:])
