"""What the docs name exists: links lead somewhere, and each command line is one that pysqlbox takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from pysqlbox.cli import cli
from tools.site import menu

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
COMMAND = re.compile(r"^\s*(?:\$ )?pysqlbox\s+([a-z].*)$")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as hosts of Markdown make them."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    texts = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {text.replace(" ", "-") for text in texts}


def _broken_links(page: Path) -> list[str]:
    """Links of a page to a file or a heading that is not there; those to elsewhere are not followed."""
    broken = []
    for link in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in _anchors(target)):
            broken.append(link)
    return broken


def _commands() -> list[tuple[str, str]]:
    """Every line of a code block that calls pysqlbox, with its page."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = "\n".join(FENCED.findall(text))
        indented = [line for line in FENCED.sub("", text).splitlines() if line.startswith("    ")]
        calls = filter(None, map(COMMAND.match, [*blocks.splitlines(), *indented]))
        found += [(str(page.relative_to(ROOT)), call[1]) for call in calls]
    return found


def _parse(line: str) -> None:
    """Read the arguments as the command would, without running it."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|>&;")
    lexer.whitespace_split = True
    shell = list(lexer)
    end = next((index for index, word in enumerate(shell) if word[0] in "|>&;"), len(shell))
    words = [
        word for index, word in enumerate(shell[:end]) if word != "…" or shell[index - 1].startswith("--")
    ]
    command: click.Command = cli
    context = click.Context(cli, info_name="pysqlbox")
    while isinstance(command, click.Group):
        assert words, f"{command.name} takes a command"
        name = words.pop(0)
        found = command.get_command(context, name)
        assert found is not None, f"there is no command {name!r}"
        command, context = found, click.Context(found, parent=context, info_name=name)
    command.parse_args(context, words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """To a file that is there, and to a heading in it."""
    assert _broken_links(page) == []


def test_every_page_is_on_the_site() -> None:
    """A page that is written is one that is found: tools/site/menu.py names it."""
    written = {str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md")}
    assert written - set(menu.PAGES.values()) == set()


def test_every_command_line_is_one_that_pysqlbox_takes() -> None:
    """Commands, options and the number of arguments; a page that shows none of ours is not looked at."""
    commands = _commands()
    assert len(commands) > 20
    wrong = []
    for page, line in commands:
        try:
            _parse(line)
        except (AssertionError, click.UsageError) as error:
            wrong.append(f"{page}: pysqlbox {line}: {error}")
    assert wrong == []
