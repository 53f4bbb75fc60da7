"""Gathers the sources of the site, and has mkdocs make it of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tools.site import commands, examples, python, routines
from tools.site.menu import MENU, PAGES

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
_PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)|<img[^>]+src=\"([^\"]+)\"")
_FENCE = re.compile(r"(^```.*?^```\n?)", re.DOTALL | re.MULTILINE)


class SiteError(Exception):
    """The site could not be built; the text is what mkdocs said."""


def build(target: Path) -> None:
    """Build the whole site into a folder, which is emptied before."""
    with tempfile.TemporaryDirectory(prefix="pysqlbox-site-") as folder:
        sources = Path(folder) / "docs"
        gather(sources)
        (Path(folder) / "mkdocs.yml").write_text(yaml.safe_dump(_settings(sources), sort_keys=False))
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean"]
        done = subprocess.run(
            [
                *command,
                "--config-file",
                str(Path(folder) / "mkdocs.yml"),
                "--site-dir",
                str(target.resolve()),
            ],
            capture_output=True,
            text=True,
            check=False,
            env=_environment(),
        )
        if done.returncode:
            raise SiteError(done.stdout + done.stderr)


def gather(sources: Path) -> None:
    """Write every page of the site into a folder: the repository's own, and the generated ones."""
    for page, origin in PAGES.items():
        text = (ROOT / origin).read_text(encoding="utf-8")
        _write(sources / page, _linked(text, page, origin, sources))
    for page, (text, origin) in examples.pages().items():
        _write(sources / page, _linked(text, page, origin, sources))
    for name, text in {**routines.pages(), **python.pages(), **commands.pages()}.items():
        _write(sources / "reference" / name, text)
    shutil.copytree(Path(__file__).parent / "assets", sources / "assets")


def _linked(text: str, page: str, origin: str, sources: Path) -> str:
    """The page with links as the site has them.

    A link to a page of the site leads there, one to another file of the repository becomes its name; pictures
    come along.
    """
    homes = {**examples.homes(), **{ROOT / source: name for name, source in PAGES.items()}}
    beside = (ROOT / origin).parent
    depth = "../" * page.count("/")

    def link(found: re.Match[str]) -> str:
        label, (path, _, anchor) = found[1], found[2].partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return found[0]
        home = homes.get((beside / path).resolve())
        if home is None:
            return (
                f"{label} (`{(beside / path).resolve().relative_to(ROOT)}`)" if label != path else f"`{path}`"
            )
        return f"[{label}]({depth}{home}{'#' if anchor else ''}{anchor})"

    def picture(found: re.Match[str]) -> str:
        path = found[2] or found[3]
        shown = (beside / path).resolve()
        copy = sources / "pictures" / shown.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(shown, copy)
        return found[0].replace(path, f"{depth}pictures/{shown.name}")

    parts = _FENCE.split(text)
    parts[::2] = (_PICTURE.sub(picture, _LINK.sub(link, part)) for part in parts[::2])
    return "".join(parts)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _environment() -> dict[str, str]:
    """The process's own, and mkdocs-material told to be quiet about its plans."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}


def _settings(sources: Path) -> dict[str, Any]:
    """What mkdocs is told: everything comes from this machine, and whatever it warns of is an error."""
    palette = [
        {
            "media": f"(prefers-color-scheme: {scheme})",
            "scheme": name,
            "primary": "custom",
            "accent": "custom",
            "toggle": {"icon": icon, "name": f"Switch to {other}"},
        }
        for scheme, name, icon, other in (
            ("light", "default", "material/weather-night", "dark"),
            ("dark", "slate", "material/weather-sunny", "light"),
        )
    ]
    return {
        "site_name": "pysqlbox",
        "site_description": "Reliable messaging in the database that an application already has",
        "docs_dir": str(sources),
        "use_directory_urls": False,
        "nav": MENU,
        "theme": {
            "name": "material",
            "font": False,
            "palette": palette,
            "features": [
                "navigation.tabs",
                "navigation.top",
                "toc.follow",
                "content.code.copy",
                "search.suggest",
            ],
        },
        "extra_css": ["assets/site.css"],
        "plugins": [
            "search",
            {
                "mkdocstrings": {
                    "handlers": {
                        "python": {
                            "paths": [str(ROOT)],
                            "options": {
                                "show_source": False,
                                "show_root_heading": True,
                                "show_root_full_path": False,
                                "show_signature_annotations": True,
                                "separate_signature": True,
                                "members_order": "source",
                                "heading_level": 2,
                                "filters": ["!^_"],
                            },
                        }
                    }
                }
            },
        ],
        "markdown_extensions": [
            "admonition",
            "tables",
            "attr_list",
            "toc",
            {"pymdownx.highlight": {"anchor_linenums": False}},
            "pymdownx.superfences",
            {"pymdownx.tabbed": {"alternate_style": True}},
        ],
        "validation": {
            "nav": {"omitted_files": "warn", "not_found": "warn", "absolute_links": "warn"},
            "links": {
                "not_found": "warn",
                "anchors": "warn",
                "absolute_links": "warn",
                "unrecognized_links": "warn",
            },
        },
    }
