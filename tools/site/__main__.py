"""``python -m tools.site``: builds the site, offline. Dead links and pages without a menu are errors."""

from __future__ import annotations

import argparse
from pathlib import Path

from tools.site.build import ROOT, build


def main() -> None:
    """Build into a folder."""
    parser = argparse.ArgumentParser(prog="python -m tools.site", description=__doc__)
    parser.add_argument("--to", type=Path, default=ROOT / "build" / "site", help="where the site is put")
    target: Path = parser.parse_args().to
    build(target)
    print(f"{target / 'index.html'}")


if __name__ == "__main__":
    main()
