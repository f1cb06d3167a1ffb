"""What a shell offers when somebody presses Tab, and the script that makes it ask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_DISPATCHLAB_COMPLETE"
_SCENARIOS = (".yaml", ".yml")

# Note [Colons in bash]
# ~~~~~~~~~~~~~~~~~~~~~
# Bash takes `aten::add` for three words, unless a user has told it otherwise, and replaces the last of them alone. So
# the script goes by the line instead of the words, and leaves out of its answers what bash will not replace.

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


def script(command: click.Command, shell: str) -> str:
    """The script for a shell that is known to click."""
    if shell == "bash":
        return _BASH  # See Note [Colons in bash]
    kind = get_completion_class(shell)
    assert kind is not None
    completion = kind(command, {}, "dispatchlab", _VARIABLE)
    return completion.source_template % completion.source_vars() + "\n"


def candidates(kind: str, incomplete: str, params: Mapping[str, object]) -> list[str]:
    """The values of a kind that begin as `incomplete` does.

    Args:
        kind: `operator`, `row`, `scenario`, `source` or `semantics`.
        incomplete: what was typed.
        params: what was given before; operators are those of the source that it names, or of the default registry.
    """
    return sorted(value for value in _values(kind, incomplete, params) if value.startswith(incomplete))


def _values(kind: str, incomplete: str, params: Mapping[str, object]) -> Iterable[str]:
    match kind:
        case "operator":
            return _operators(params.get("source") or params.get("registry"))
        case "row":
            from dispatchlab.model.keys import RUNTIME_KEYS

            return [key.name for key in RUNTIME_KEYS]
        case "semantics":
            from dispatchlab.scenario.scenario import SEMANTICS

            return SEMANTICS
        case "source":
            from dispatchlab.registry.bundled import bundled_names
            from dispatchlab.registry.file_format import SUFFIX

            return [*bundled_names(), "live", *_files(incomplete, (*_SCENARIOS, SUFFIX))]
        case _:
            return _files(incomplete, _SCENARIOS)


def _operators(source: object) -> list[str]:
    """The operators of a scenario or a registry; none if it cannot be read, for a completion has nowhere to say so."""
    from dispatchlab.analysis.sources import operators_in
    from dispatchlab.errors import DispatchLabError
    from dispatchlab.registry.bundled import DEFAULT, open_named
    from dispatchlab.scenario.load import load_scenario

    text = source if isinstance(source, str) else DEFAULT
    try:
        if text.endswith(_SCENARIOS):
            return [str(name) for name in operators_in(load_scenario(text))]
        return [str(name) for name in open_named(text).names]
    except DispatchLabError:
        return []


def _files(incomplete: str, suffixes: tuple[str, ...]) -> list[str]:
    """The folders and files that begin as `incomplete` does; a folder ends in a slash."""
    folder = incomplete.rpartition("/")[0] + "/" if "/" in incomplete else ""
    try:
        entries = sorted(Path(folder or ".").iterdir())
    except OSError:
        return []
    return [
        f"{folder}{entry.name}{'/' if entry.is_dir() else ''}"
        for entry in entries
        if (entry.is_dir() or entry.suffix in suffixes)
        and (not entry.name.startswith(".") or incomplete.rpartition("/")[2].startswith("."))
    ]
