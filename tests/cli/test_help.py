"""The help of every command, as a terminal of 80 columns shows it."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from pysqlbox.cli import cli


def _commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from _commands(command, *path, name)


COMMANDS = dict(_commands(cli))


def _help(*path: str) -> str:
    result = CliRunner().invoke(cli, [*path, "--help"], terminal_width=80)
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize("path", [(), *COMMANDS], ids=" ".join)
def test_it_fits_a_terminal(path: tuple[str, ...]) -> None:
    """No line is broken by the terminal, and no command's purpose ends in dots."""
    usage, *lines = _help(*path).splitlines()
    assert usage.startswith("Usage: ")
    assert [line for line in lines if len(line) > 80 or line.endswith("...")] == []


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_option_says_what_it_is_for(path: tuple[str, ...]) -> None:
    """Whatever its name."""
    options = [option for option in COMMANDS[path].params if isinstance(option, click.Option)]
    assert [option.name for option in options if not option.help] == []


def test_the_first_page_has_every_command_once() -> None:
    """In a chapter, with its purpose."""
    lines = _help().partition("\nBegin:\n")[2].splitlines()
    told = [line.split()[0] for line in lines if line.startswith("  ") and len(line.split()) > 2]
    assert sorted(told) == sorted(cli.commands)
