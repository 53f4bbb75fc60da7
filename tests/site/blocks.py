"""The code blocks of the pages, and what stands above them of how they are tried."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")))
_BLOCK = re.compile(
    r"(?:^(?P<pad>[ ]*)<!-- (?P<mark>[^\n]+) -->\n)?"
    r"^(?P<indent>[ ]*)```(?P<language>\w*)(?P<title> [^\n]*)?\n(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
#: Pages whose blocks of these languages another test runs, all of them.
ELSEWHERE: dict[str, dict[str, str]] = {
    "README.md": {"python": "tests/unit/test_readme.py"},
    "docs/tour.md": {"python": "tests/unit/test_readme.py"},
    "docs/testing.md": {"python": "tests/testing/test_plugin.py"},
    "docs/tutorial.md": dict.fromkeys(("python", "sh", "text"), "tests/site/test_pages_run.py"),
    "docs/guestbook.md": dict.fromkeys(("python", "sh", "text"), "tests/site/test_pages_run.py"),
    "docs/service.md": dict.fromkeys(("sh", "json"), "tests/service/test_docs.py"),
}


@dataclass(frozen=True, slots=True)
class Block:
    """One block; ``mark`` is the comment right above it, if any."""

    page: str
    line: int
    language: str
    text: str
    mark: str | None

    @property
    def elsewhere(self) -> str | None:
        """The test that runs it, if it is not the one of the pages' sessions."""
        if self.mark is not None and self.mark.startswith("run by: "):
            return self.mark.removeprefix("run by: ")
        return ELSEWHERE.get(self.page, {}).get(self.language)

    @property
    def reason(self) -> str | None:
        """Why nothing runs it."""
        if self.mark is not None and self.mark.startswith("not run: "):
            return self.mark.removeprefix("not run: ")
        return None

    @property
    def is_tsql(self) -> bool:
        """Whether it is for SQL Server."""
        return (
            self.language == "sql"
            and re.search(r"^EXEC |NUMERIC_ROUNDABORT", self.text, re.MULTILINE) is not None
        )


def blocks(page: str) -> list[Block]:
    """All of a page, in their order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        indent = match["indent"]
        body = "".join(line.removeprefix(indent) for line in match["text"].splitlines(keepends=True))
        line = text.count("\n", 0, match.start("language")) + 1
        found.append(Block(page, line, match["language"], body, match["mark"]))
    return found
