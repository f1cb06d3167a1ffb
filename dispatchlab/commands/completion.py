"""`dispatchlab completion`: the script that makes bash, zsh or fish ask while a command line is typed, and the answers.

The values are those of `options.OneOf`. See Note [Completed words].
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

import click
from click.shell_completion import (
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

from dispatchlab.commands.output import out
from dispatchlab.escape import bash_word

# Note [Completed words]
# ~~~~~~~~~~~~~~~~~~~~~~
# A file or an operator may be called `$(touch X)`. Bash puts what it is offered on the line as it is, and runs it with
# the next Enter: so it is offered what is quoted already. Zsh and fish quote by themselves. All three read a line for
# each value: one with a control character is not offered, nor one that a command would take for an option.
#
# Bash takes `aten::add` for three words, unless a user has set COMP_WORDBREAKS otherwise, and replaces the last of them
# alone. So the script hands over the line instead of the words, and what bash will not replace is left out of the
# answers. Nothing but files, which bash quotes itself, is offered for a word with quotes.

_BASH = """_dispatchlab_completion() {
    local type value
    while IFS=, read -r type value; do
        if [[ "$type" == plain ]]; then
            COMPREPLY+=("$value")
            [[ "$value" == */ ]] && compopt -o nospace
        elif [[ "$type" == file ]]; then
            compopt -o default
        fi
    done < <(env COMP_WORDS="${COMP_LINE:0:COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "$1")
}

complete -o nosort -F _dispatchlab_completion %(prog_name)s
"""

_FISH = """function %(complete_func)s
    set -l response (env %(complete_var)s=fish_complete COMP_WORDS=(commandline -cp | string collect) \\
        COMP_CWORD=(commandline -t | string collect) %(prog_name)s)
    for completion in $response
        set -l metadata (string split --max 1 "," -- $completion)
        switch $metadata[1]
            case file
                __fish_complete_path $metadata[2]
            case plain
                printf "%%s\\n" $metadata[2]
        end
    end
end

complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


def is_offered(value: str, incomplete: str) -> bool:
    """Whether a value can be completed: it is printable, and is no option where none was begun."""
    return value.isprintable() and (not value.startswith("-") or incomplete.startswith("-"))


class TypedWords(NamedTuple):
    """The words of a line of bash.

    Args:
        words: each without its quotes; the last is being typed, and can be empty.
        has_quotes: the last has quotes, open or closed.
        kept: how much of the last bash will not replace, in characters without quotes.
    """

    words: tuple[str, ...]
    has_quotes: bool
    kept: int


def typed_words(line: str, breaks: str) -> TypedWords:
    """Split a line of bash up to the cursor, without running or expanding anything in it.

    Args:
        line: what was typed.
        breaks: COMP_WORDBREAKS.
    """
    words, has_quotes, kept, quote = [""], False, 0, ""
    characters = iter(line)
    for character in characters:
        if character == "\\" and quote != "'":
            words[-1] += next(characters, "")
        elif quote:
            if character == quote:
                quote = ""
            else:
                words[-1] += character
        elif character in "'\"":
            quote, has_quotes = character, True
        elif character.isspace():
            if words[-1] or has_quotes:
                words.append("")
            has_quotes, kept = False, 0
        else:
            words[-1] += character
            if character in breaks:
                kept = len(words[-1])
    return TypedWords(tuple(words), has_quotes, kept)


class _Safe(ShellComplete):
    """Offers what `is_offered`."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """The values for the word that is being typed."""
        items = super().get_completions(args, incomplete)
        return [item for item in items if is_offered(item.value, incomplete) or item.type == "file"]


@add_completion_class
class Bash(_Safe):
    """Answers for bash."""

    name = "bash"
    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one that is being typed, and that one."""
        words = self._typed().words
        return list(words[1:-1]), words[-1] if len(words) > 1 else ""

    def complete(self) -> str:
        """The answer: a line for each value."""
        return "\n".join(self._lines())

    def format_completion(self, item: CompletionItem) -> str:
        """One line of the answer."""
        return f"{item.type},{item.value}"

    def _typed(self) -> TypedWords:
        return typed_words(os.environ.get("COMP_WORDS", ""), os.environ.get("COMP_WORDBREAKS", ""))

    def _lines(self) -> Iterator[str]:
        typed = self._typed()
        arguments, incomplete = self.get_completion_args()
        kept = incomplete[: typed.kept]
        for item in self.get_completions(arguments, incomplete):
            if typed.has_quotes or item.type != "plain":
                yield "file,"
            else:
                yield f"plain,{bash_word(item.value.removeprefix(kept))}"


@add_completion_class
class Zsh(_Safe, ZshComplete):
    """Answers for zsh."""


@add_completion_class
class Fish(_Safe, FishComplete):
    """Answers for fish, which takes a tilde for a home folder in what it is offered, too."""

    source_template = _FISH

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one that is being typed, and that one."""
        words = split_arg_string(os.environ["COMP_WORDS"])[1:]
        incomplete = "".join(split_arg_string(os.environ["COMP_CWORD"])[:1])
        return words[:-1] if incomplete and words[-1:] == [incomplete] else words, incomplete

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """The values for the word that is being typed."""
        items = super().get_completions(args, incomplete)
        return [item for item in items if not item.value.startswith("~") or item.type == "file"]


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
    # The variable is `cli.COMPLETE_VARIABLE`, as click names it after the program.
    kind = {"bash": Bash, "fish": Fish, "zsh": Zsh}[shell]
    completion = kind(command, {}, "dispatchlab", "_DISPATCHLAB_COMPLETE")
    return completion.source_template % completion.source_vars() + "\n"
