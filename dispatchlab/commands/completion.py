"""`dispatchlab completion`: the script that makes a shell complete; `shells` answers it."""

from __future__ import annotations

import click

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
    out(_script(context.find_root().command, shell))


def _script(command: click.Command, shell: str) -> str:
    """The script for a shell."""
    from dispatchlab.commands.shells import Bash, Fish, Zsh

    # The variable is `cli.COMPLETE_VARIABLE`, as click names it after the program.
    kind = {"bash": Bash, "fish": Fish, "zsh": Zsh}[shell]
    completion = kind(command, {}, "dispatchlab", "_DISPATCHLAB_COMPLETE")
    return completion.source_template % completion.source_vars() + "\n"
