"""`dispatchlab completion`: the script that makes a shell complete; the values are those of `options.OneOf`."""

from __future__ import annotations

import click

from dispatchlab.commands.output import out

_VARIABLE = "_DISPATCHLAB_COMPLETE"

# Note [Colons in bash]
# ~~~~~~~~~~~~~~~~~~~~~
# Bash takes `aten::add` for three words, unless a user has set COMP_WORDBREAKS otherwise, and replaces the last of them
# alone. So the script goes by the line instead of the words, and leaves out of its answers what bash will not replace.

_BASH = r"""_dispatchlab_completion() {
    local line="${COMP_LINE:0:COMP_POINT}" words at word kept="" type value
    read -ra words <<< "$line"
    at=$((${#words[@]} - 1))
    [[ "$line" == *[[:space:]] ]] && at=$((at + 1))
    word="${words[at]:-}"
    [[ "$COMP_WORDBREAKS" == *:* && "$word" == *:* ]] && kept="${word%"${word##*:}"}"
    while IFS=, read -r type value; do
        if [[ "$type" == plain ]]; then
            COMPREPLY+=("${value#"$kept"}")
            [[ "$value" == */ ]] && compopt -o nospace
        elif [[ "$type" == file ]]; then
            compopt -o default
        fi
    done < <(env COMP_WORDS="$line" COMP_CWORD="$at" VARIABLE=bash_complete "$1")
}

complete -o nosort -F _dispatchlab_completion dispatchlab
""".replace("VARIABLE", _VARIABLE)


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
    """The script for a shell that is known to click."""
    if shell == "bash":
        return _BASH  # See Note [Colons in bash]
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    completion = kind(command, {}, "dispatchlab", _VARIABLE)
    return completion.source_template % completion.source_vars() + "\n"
