"""``pysqlbox new``: a worker module to start from: this package's module ``starter`` under another name."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

import click

__all__ = ["new"]

_STARTER = Path(__file__).with_name("starter.py")


@click.command()
@click.argument("name")
def new(name: str) -> None:
    """Write NAME.py, a worker module to start from.

    It declares a message, sends it in a transaction, and handles it. An existing file is left alone.
    """
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,49}", name) or keyword.iskeyword(name):
        raise click.BadParameter(
            "must be a module's name: a letter, then up to 49 of a-z, 0-9 and underscore", param_hint="NAME"
        )
    path = Path(f"{name}.py")
    text = _STARTER.read_text(encoding="utf-8").replace("STARTER", name)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise click.ClickException(f"{path} is there already; take another name, or remove it") from None
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror or error}") from error
    click.echo(f"{path} is written; PYSQLBOX_URL says which database. Next:\n")
    steps = {
        "pysqlbox migrate": "deploys",
        f"python -m {name}": "sends a message",
        f"pysqlbox work {name}:make_worker": "handles it",
    }
    width = max(map(len, steps))
    for command, does in steps.items():
        click.echo(f"  {command:<{width}}  {does}")
