"""The reference of the command line, from its own help."""

from __future__ import annotations

from collections.abc import Iterator

import click

from pysqlbox.cli import cli

_WIDTH = 100


def pages() -> dict[str, str]:
    """One page, with a chapter for each command."""
    return {"commands.md": "\n".join(_page())}


def _page() -> Iterator[str]:
    yield "# Commands\n"
    yield "What `pysqlbox COMMAND --help` says.\n"
    root = click.Context(cli, info_name="pysqlbox", terminal_width=_WIDTH, max_content_width=_WIDTH)
    yield from _chapter(cli, root, 2, "pysqlbox")


def _chapter(command: click.Command, context: click.Context, level: int, title: str) -> Iterator[str]:
    yield f"\n{'#' * level} {title}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                inner = click.Context(
                    found,
                    parent=context,
                    info_name=name,
                    terminal_width=_WIDTH,
                    max_content_width=_WIDTH,
                )
                yield from _chapter(found, inner, min(level + 1, 3), f"{title} {name}")
