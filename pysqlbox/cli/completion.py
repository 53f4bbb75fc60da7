"""``pysqlbox completion``: what a shell needs to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

__all__ = ["completion"]


@click.command(short_help="Print what a shell needs to complete commands.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands and options in a shell.

    \b
    bash: echo 'eval "$(pysqlbox completion bash)"' >> ~/.bashrc
    zsh:  echo 'eval "$(pysqlbox completion zsh)"' >> ~/.zshrc
    fish: pysqlbox completion fish > ~/.config/fish/completions/pysqlbox.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.ClickException(f"this click knows no completion for {shell}; install a newer one")
    click.echo(kind(ctx.find_root().command, {}, "pysqlbox", "_PYSQLBOX_COMPLETE").source())
