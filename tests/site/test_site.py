"""The site builds offline and whole: no dead link, no orphan, nothing from another host, nothing left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pysqlbox
from tools.routines import routines
from tools.site.build import SiteError, build
from tools.site.menu import PAGES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once; whatever mkdocs warns of is an error."""
    target = tmp_path_factory.mktemp("site")
    build(target)
    return target


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    """Neither scripts, styles, fonts nor pictures: it is read where there is no network."""
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(PAGES)
    loaded = re.compile(
        r"<(?:script|img|iframe)[^>]+src=[\"']?(https?:)?//|<link[^>]+href=[\"']?(https?:)?//"
    )
    remote = [str(page.name) for page in pages if loaded.search(page.read_text(encoding="utf-8"))]
    assert remote == []


def test_the_reference_has_every_routine(site: Path) -> None:
    """Under its name, or a box's placeholder."""
    text = (site / "reference" / "routines.html").read_text(encoding="utf-8")
    told = set(re.findall(r'<h3 id="([^"]+)"', text))
    public = {routine.name for routine in routines("postgres") if not routine.internal}
    for name in public:
        rest = re.sub(r"^(outbox|inbox)_", "", name)
        assert {name, f"box_{rest}"} & told, name


def test_the_reference_has_every_public_name(site: Path) -> None:
    """Everything that `import pysqlbox` offers has an entry."""
    text = (site / "reference" / "python.html").read_text(encoding="utf-8")
    told = {name.rpartition(".")[2] for name in re.findall(r'<h[3-5] id="([^"]+)"', text)}
    names = {name for name in pysqlbox.__all__ if not name.startswith("_") and name != "Result"}
    assert names - told == set()


def test_the_reference_has_every_module_that_pages_and_examples_import(site: Path) -> None:
    """And so do the programs of those who read them."""
    files = [*ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.py"), ROOT / "README.md"]
    sources = "".join(file.read_text(encoding="utf-8") for file in files)
    imported = set(re.findall(r"^ *from (pysqlbox[.\w]*) import ", sources, re.MULTILINE))
    beside = re.findall(r"^ *from pysqlbox(?:\.contrib)? import (.+)", sources, re.MULTILINE)
    imported |= {f"pysqlbox.{name}" for names in beside for name in names.split(", ") if name.islower()}
    imported -= {"pysqlbox.contrib", "pysqlbox.alembic", "pysqlbox.message"}
    text = (site / "reference" / "python.html").read_text(encoding="utf-8")
    told = set(re.findall(r'<h2 id="([^"]+)"', text))
    assert len(imported) > 10
    assert imported - told == set()


def test_the_examples_are_pages_with_their_files(site: Path) -> None:
    """Whoever installed the package has no checkout: the code stands there, and links lead to it."""
    page = (site / "examples" / "fastapi_shop.html").read_text(encoding="utf-8")
    assert 'id="shop-py"' in page
    assert "lifespan" in page
    assert "#shop-py" in page
    for folder in (ROOT / "examples").iterdir():
        assert not folder.is_dir() or (site / "examples" / f"{folder.name}.html").is_file(), folder


def test_the_settings_name_every_variable() -> None:
    """Whatever the package reads from its environment."""
    sources = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("pysqlbox/**/*.py"))
    read = set(re.findall(r"[\"'](PYSQLBOX_[A-Z_]+)[\"']", sources))
    told = set(re.findall(r"PYSQLBOX_[A-Z_]+", (ROOT / "docs/settings.md").read_text(encoding="utf-8")))
    assert {name for name in read - told if not name.startswith("PYSQLBOX_DEMO_")} == set()


def test_a_dead_link_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the error says which."""
    from tools.site import build as builder

    gather = builder.gather

    def broken(sources: Path) -> None:
        gather(sources)
        page = sources / "joins.md"
        page.write_text(page.read_text(encoding="utf-8") + "\n[gone](nowhere.md)\n", encoding="utf-8")

    monkeypatch.setattr(builder, "gather", broken)
    with pytest.raises(SiteError, match=r"nowhere\.md"):
        build(tmp_path / "site")
