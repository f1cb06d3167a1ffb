"""Options that several commands share, and texts that are read alike: operators, keys, sources, semantics."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from dispatchlab.commands.output import FORMATS, note

if TYPE_CHECKING:
    _TextType = click.ParamType[str]
else:  # generic from click 8.2 on
    _TextType = click.ParamType

_Command = TypeVar("_Command", bound=Callable[..., Any])

LIVE = "live"
"""As in questions/sources/find_sources.py, which costs start-up."""


class _Text(_TextType):
    """An option type whose other spellings are accepted, with a note."""

    def __init__(self, name: str, read: Callable[[str], str]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text as the rest of the program reads it."""
        text = str(super().convert(value, param, ctx))
        if not text.strip():
            self.fail("expected a value but found an empty text: leave it out", param, ctx)
        return self._read(text)


def _operator_of(text: str) -> str:
    """Return the operator that a Python path names: `torch.add` or `torch.ops.aten.add.Tensor`; else the text."""
    if "::" in text or not text.startswith("torch."):
        return text
    if found := re.fullmatch(r"torch\.ops\.(\w+)\.(\w+)(?:\.(\w+))?", text):
        overload = "" if found[3] in (None, "default") else f".{found[3]}"
        return _taken(text, f"{found[1]}::{found[2]}{overload}")
    more = "; the function can call other operators first: `dispatchlab trace` shows the calls of a program"
    if found := re.fullmatch(r"torch\.(?:Tensor\.|nn\.functional\.)?(\w+)", text):
        return _taken(text, f"aten::{found[1]}", more)
    if found := re.fullmatch(r"torch\.(fft|linalg|special)\.(\w+)", text):
        return _taken(text, f"aten::{found[1]}_{found[2].removeprefix(f'{found[1]}_')}", more)
    return text


def _key_of(text: str) -> str:
    """Return the key that has this name in other letters, large or small; else the text itself."""
    from dispatchlab.model.keys import DispatchKey

    if text in DispatchKey.__members__:
        return text
    names = [name for name in DispatchKey.__members__ if name.lower() == text.lower()]
    return _taken(text, names[0]) if names else text


def _source_of(text: str) -> str:
    if os.sep in text and os.path.splitext(text)[1] in ("", ".py") and not os.path.exists(text):
        from dispatchlab.files import no_module

        raise no_module(text)
    from dispatchlab.model.profile import torch_name

    return text if os.path.exists(text) else torch_name(text)


def _semantics_of(text: str) -> str:
    from dispatchlab.model.installed_torch import resolved_semantics

    return resolved_semantics(_source_of(text))


def _taken(text: str, name: str, more: str = "") -> str:
    note(f"note: {text} is taken as {name}{more}")
    return name


OPERATOR = _Text("operator", _operator_of)
ROW = _Text("key", _key_of)
SOURCE = _Text("source", _source_of)
SEMANTICS = _Text("name", _semantics_of)


def with_package(source: str) -> tuple[str, tuple[str, ...]]:
    """Return a source as `source_with_package` does; packages of the checkout are found, too, and paths to modules."""
    from dispatchlab.questions.sources.find_sources import source_with_package

    if source == "." and (packages := packages_of_checkout()):
        reach_checkout()
        return LIVE, packages
    if source == "." or source.endswith(".py") or os.path.isfile(os.path.join(source, "__init__.py")):
        from dispatchlab.questions.setup.checkout import module_at

        if (at := module_at(source)) is not None:
            sys.path.insert(0, str(at[1]))
            return LIVE, (at[0],)
    return source_with_package(source, reach=reach_checkout)


class Source(NamedTuple):
    """The subject of a command.

    Args:
        name: the source; `live` for packages, which are imported into the installed PyTorch.
        imports: the packages.
    """

    name: str
    imports: tuple[str, ...] = ()


def named_subject(source: str | None, operators: Iterable[str] = ()) -> tuple[str | None, tuple[str, ...]]:
    """Return the source that was named, or else `live` with the packages of the checkout, or else None.

    Args:
        source: what was named; None for nothing.
        operators: the operators that were named; without settings, the package of the checkout is the source only for
            an operator that PyTorch does not have.
    """
    is_named = source is not None
    if not is_named and (packages_of_checkout() or any(map(_is_of_package, operators))):
        source = "."
    name, packages = (None, ()) if source is None else with_package(source)
    if source == "." and packages:
        why = "by [tool.dispatchlab] of pyproject.toml" if packages_of_checkout() else "the package of this checkout"
        note(f"note: about {' and '.join(packages)}, {why}")
    return name if is_named or packages else None, packages


def _is_of_package(operator: str) -> bool:
    """Return whether an operator is in a namespace that the newest PyTorch does not have, if PyTorch is installed."""
    namespace, colons, _ = operator.partition("::")
    if not colons or namespace in ("aten", "higher_order"):
        return False
    from dispatchlab.model.installed_torch import installed_torch
    from dispatchlab.registries.file import newest_bundled, open_bundled

    own = (name.startswith(f"{namespace}::") for name in open_bundled(newest_bundled()).names)
    return bool(installed_torch()) and not any(own)


def subject(source: str | None, *, keys: Iterable[str] = (), operators: Iterable[str] = ()) -> Source:
    """Return the subject of a command: `named_subject`, or else a bundled registry of PyTorch.

    Args:
        source: what was named; None for nothing.
        keys: the dispatch keys that it is about, for which a registry of PyTorch may lack kernels.
        operators: as in `named_subject`.
    """
    named, imports = named_subject(source, operators)
    if named is not None:
        return Source(named, imports)
    from dispatchlab.registries.builds import default_registry

    name, reason = default_registry(keys)
    note(f"note: {reason}")
    return Source(name)


def packages_of_checkout() -> tuple[str, ...]:
    """Return the packages that the checkout around this folder names in [tool.dispatchlab]."""
    from pathlib import Path

    for folder in (Path.cwd(), *Path.cwd().parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            if b"[tool.dispatchlab]" not in file.read_bytes():
                return ()
            from dispatchlab.questions.check.configuration import settings_of

            return settings_of(folder).packages
    return ()


def is_registry(sources: tuple[str, ...]) -> bool:
    """Return whether sources are one registry or package, and not scenarios."""
    if len(sources) != 1 or sources[0].endswith((".yaml", ".yml")):
        return False
    if os.path.isdir(sources[0]) and not os.path.isfile(os.path.join(sources[0], "__init__.py")):
        return False
    from dispatchlab.questions.sources.find_sources import is_registry_source

    return is_registry_source(sources[0]) or with_package(sources[0])[0] == LIVE


def reach_checkout() -> None:
    """Let imports find the checkout around this folder, after all else, until the command ends."""
    from pathlib import Path

    from dispatchlab.questions.setup.checkout import reachable

    click.get_current_context().with_resource(reachable(Path.cwd()))


def format_option(*others: str) -> Callable[[_Command], _Command]:
    """Add `--format` to a command whose result is made of blocks.

    Args:
        others: the formats that this result has besides those of every view.
    """
    what = "Output format. Default: rich on a terminal, text anywhere else."
    return click.option("--format", type=click.Choice([*FORMATS, *others]), help=what)


semantics_option = click.option(
    "--semantics",
    metavar="NAME",
    type=SEMANTICS,
    help="Use this dispatcher in the lab engine: torch-2.13, strict (idealised), pr35061 (a proposal of 2020), the "
    "file of a model, or torch (that of the installed PyTorch). Default: what the source names, or the newest PyTorch.",
)
"""`--semantics`, of the lab engine."""


def engine_option(help: str, *, default: str | None = "lab") -> Callable[[_Command], _Command]:
    """`--engine`.

    Args:
        help: what the engine is for.
        default: the engine when the option is left out; None to leave that to the command.
    """
    return click.option(
        "--engine",
        type=click.Choice(["lab", "torch"]),
        default=default,
        show_default=default is not None,
        help=help,
    )


from_option = click.option(
    "--from",
    "source",
    metavar="SOURCE",
    type=SOURCE,
    help="Read a scenario, a recorded registry, the name of a bundled registry, `live` (the installed PyTorch), or a "
    "package, which is imported into the installed PyTorch. Default: the packages in [tool.dispatchlab] of the "
    "checkout; for an operator that PyTorch does not have, the package of the checkout; else the bundled registry of "
    "the installed PyTorch.",
)
"""`--from`, of a command about an operator."""

after_option = click.option(
    "--after",
    metavar="SEQUENCE",
    help="Run only these steps of the scenario, for example '+0 +2 -0': register 0 and 2, then release 0. Default: "
    "register everything, in the order of the file.",
)
"""`--after`, of a command about a scenario."""

operators_option = click.option(
    "--operator",
    "operators",
    metavar="OP",
    multiple=True,
    type=OPERATOR,
    help="Select operators by name or glob; may be repeated.",
)
"""`--operator`, may be repeated."""

allow_import_option = click.option(
    "--allow-import",
    is_flag=True,
    help="Import the functions that a scenario names. That runs their code: only for files you trust.",
)
"""`--allow-import`."""


def baseline_options(command: _Command) -> _Command:
    """Add `--baseline` and `--write-baseline` to a command with findings."""
    accepts = click.option("--baseline", metavar="FILE", type=click.Path(), help="Hide the findings that FILE accepts.")
    writes = click.option(
        "--write-baseline",
        metavar="FILE",
        type=click.Path(),
        help="Write the findings to FILE for --baseline.",
    )
    return accepts(writes(command))


def report_option(what: str = "") -> Callable[[_Command], _Command]:
    """Add `--report` to a command whose result can be kept as a page.

    Args:
        what: what is in it, a clause that goes on from `a report to keep`; empty when that needs no word.
    """
    return click.option(
        "--report",
        "page",
        metavar="FILE.html",
        type=click.Path(),
        callback=_writable_page,
        help=f"Also write a report{what} to FILE. It is one page that needs no network, for a browser or for CI.",
    )


def _writable_page(context: click.Context, option: click.Parameter, path: str | None) -> str | None:
    """Return the name of a page; refuse an unwritable one before work is done for it."""
    if path is None:
        return None
    from dispatchlab.files import FileKind, check_output

    if not path.endswith((".html", ".htm")) and not path.startswith("/dev/"):
        raise click.BadParameter(
            f"{path}: expected a file that ends in .html; --format json prints a report for programs", context, option
        )
    check_output(path, FileKind.PAGE)
    return path
