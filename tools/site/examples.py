"""The examples as pages: what their README says, and under it every file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
_LANGUAGES = {
    ".cs": "csharp",
    ".go": "go",
    ".ini": "ini",
    ".java": "java",
    ".mjs": "javascript",
    ".psql": "sql",
    ".py": "python",
    ".sqlcmd": "sql",
}
#: What tests and package managers leave behind.
_NOT_OURS = {"__pycache__", "node_modules"}


def folders() -> list[Path]:
    """Each example's."""
    return sorted(readme.parent for readme in (ROOT / "examples").glob("*/README.md"))


def homes() -> dict[Path, str]:
    """The page of each folder and README, and the place on it of each other file."""
    found = {ROOT / "examples": "examples/index.md"}
    for folder in folders():
        page = f"examples/{folder.name}.md"
        found |= {folder: page, folder / "README.md": page}
        found |= {file: f"{page}#{_anchor(file, folder)}" for file in _files(folder)}
    return found


def pages() -> dict[str, tuple[str, str]]:
    """Each page's text, and which file's links its own are."""
    return {
        f"examples/{folder.name}.md": (
            "\n".join(_page(folder)),
            str((folder / "README.md").relative_to(ROOT)),
        )
        for folder in folders()
    }


def _page(folder: Path) -> Iterator[str]:
    yield (folder / "README.md").read_text(encoding="utf-8")
    for file in _files(folder):
        name = file.relative_to(folder).as_posix()
        text = file.read_text(encoding="utf-8").rstrip("\n")
        yield f"\n## {name} {{ #{_anchor(file, folder)} }}\n\n```{_LANGUAGES[file.suffix]}\n{text}\n```\n"


def _files(folder: Path) -> list[Path]:
    """All of it that has something to say, what lies on top first."""
    found = [file for file in folder.rglob("*") if file.suffix in _LANGUAGES and file.stat().st_size]
    ours = [file for file in found if not _NOT_OURS & set(file.parts)]
    return sorted(ours, key=lambda file: (len(file.parts), file))


def _anchor(file: Path, folder: Path) -> str:
    return file.relative_to(folder).as_posix().replace("/", "-").replace(".", "-")
