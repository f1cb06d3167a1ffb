"""`dispatchlab completion`: the script by which a shell completes commands, options and values."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from dispatchlab.commands.output import out


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, /, *, shell: str) -> None:
    """Print a shell's completion script for commands, options, operators, keys and scenario files.

    \b
    Examples:
      eval "$(dispatchlab completion bash)"
      dispatchlab completion fish > ~/.config/fish/completions/dispatchlab.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    out(kind(context.find_root().command, {}, "dispatchlab", "_DISPATCHLAB_COMPLETE").source() + "\n")
