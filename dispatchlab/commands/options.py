"""Options that several commands share, and the values that a shell completes them with."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from dispatchlab.commands.output import FORMATS
from dispatchlab.errors import DispatchLabError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    _TextType = click.ParamType[str]
else:  # generic from click 8.2 on
    _TextType = click.ParamType

_Command = TypeVar("_Command", bound=Callable[..., Any])

_SCENARIO_SUFFIXES = (".yaml", ".yml")


class OneOf(_TextType):
    """A text whose values the shell offers; whether it is valid is for the command to find out.

    Args:
        name: what click calls it.
        kind: `operator`, `row`, `scenario`, `source`, `semantics`, or `explored` for what `explore` opens.
    """

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The text, or the name that it is taken as; of semantics, that which `torch` stands for here."""
        found = super().convert(value, param, ctx)
        if self._kind == "operator":
            return _operator_of(found)
        if self._kind == "row":
            return _key_of(found)
        if self._kind not in ("semantics", "source", "explored"):
            return found
        if re.match(r"\d+\.\d+$", found) and not os.path.exists(found):
            found = _taken(found, f"torch-{found}")
        if self._kind != "semantics":
            return _live_with_package(found, param, ctx) if self._kind == "source" and ctx is not None else found
        from dispatchlab.model.installed_torch import resolved_semantics

        return resolved_semantics(found)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The values that begin as `incomplete` does."""
        from click.shell_completion import CompletionItem

        values = sorted(each for each in _values(self._kind, incomplete, ctx.params) if each.startswith(incomplete))
        if self._kind in ("scenario", "source", "explored") and not values:
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(value) for value in values]


_PACKAGES = "dispatchlab.packages"
_WITH_PACKAGES = ("source", "sources", "registry", "before", "after")
LIVE = "live"
"""As in sources/find_sources.py, which costs start-up."""


def packages_named(context: click.Context) -> Mapping[str, tuple[str, ...]]:
    """The packages that stand where a source does, by the names of their parameters; the source is `live` then."""
    found: dict[str, tuple[str, ...]] = context.meta.setdefault(_PACKAGES, {})
    return found


def reach_checkout(context: click.Context) -> None:
    """Let what is imported until the command ends be found in the checkout around this folder, after all else."""
    from pathlib import Path

    from dispatchlab.adopt.checkout import reachable

    context.with_resource(reachable(Path.cwd()))


def _live_with_package(text: str, param: click.Parameter | None, context: click.Context) -> str:
    """`live` in place of the name of a package that can be found, which is imported into it; else the text itself."""
    parts = text.split(".")
    if (
        param is None
        or param.name not in _WITH_PACKAGES
        or text == LIVE
        or not all(map(str.isidentifier, parts))
        or text.endswith((".yaml", ".yml", ".dlreg"))  # a file, if one that is not there
        or os.path.isfile(text)
    ):
        return text
    from importlib.util import find_spec

    reach_checkout(context)
    try:
        spec = find_spec(parts[0])  # which imports nothing
    except (ImportError, ValueError):
        return text
    if spec is None or (spec.origin is None and len(parts) == 1):  # a folder without code is no package
        return text
    named = packages_named(context)
    assert isinstance(named, dict)
    named[param.name or ""] = (*named.get(param.name or "", ()), text)
    return LIVE


def _operator_of(text: str) -> str:
    """The operator that a path of Python names, `torch.add` or `torch.ops.aten.add.Tensor`; else the text itself."""
    if "::" in text or not text.startswith("torch."):
        return text
    if found := re.fullmatch(r"torch\.ops\.(\w+)\.(\w+)(?:\.(\w+))?", text):
        overload = "" if found[3] in (None, "default") else f".{found[3]}"
        return _taken(text, f"{found[1]}::{found[2]}{overload}")
    if found := re.fullmatch(r"torch\.(?:Tensor\.|nn\.functional\.)?(\w+)", text):
        return _taken(text, f"aten::{found[1]}")
    if found := re.fullmatch(r"torch\.(fft|linalg|special)\.(\w+)", text):
        return _taken(text, f"aten::{found[1]}_{found[2].removeprefix(f'{found[1]}_')}")
    return text


def _key_of(text: str) -> str:
    """The key that has this name in other letters, large or small; else the text itself."""
    from dispatchlab.model.keys import DispatchKey

    if text in DispatchKey.__members__:
        return text
    names = [name for name in DispatchKey.__members__ if name.lower() == text.lower()]
    return _taken(text, names[0]) if names else text


def _taken(text: str, name: str) -> str:
    from dispatchlab.commands.output import note

    note(f"note: {text} is taken as {name}")
    return name


def versions_after(args: Sequence[str]) -> list[str]:
    """The words after `--across` that name versions of PyTorch, of those on a command line."""
    if "--across" not in args:
        return []
    from itertools import takewhile

    from dispatchlab.model.profile import NEWEST

    version = re.compile(r"v?(?:torch-)?\d+\.\d+(?:[.-]\w+)*")
    words = args[args.index("--across") + 1 :]
    return list(takewhile(lambda word: word in NEWEST or version.fullmatch(word), words))


OPERATOR = OneOf("operator", "operator")
SOURCE = OneOf("source", "source")
SCENARIO = OneOf("scenario", "scenario")
ROW = OneOf("key", "row")


class _Seed(click.types.IntParamType):
    """A whole number of 64 bits: what the random numbers begin with."""

    name = "seed"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        number = super().convert(value, param, ctx)
        assert isinstance(number, int)
        if not -(2**63) <= number < 2**64:
            self.fail("expected a number of 64 bits.", param, ctx)
        return number


SEED = _Seed()
JOBS = click.IntRange(min=1, max=61 if sys.platform == "win32" else 1024)
"""How many processes; Python waits for no more than 61 on Windows."""

MOST_GIB = 2**20

PLAIN_FORMATS = click.Choice(["rich", "text", "json"])
"""The formats of a result that is not made of blocks."""
FORMAT_HELP = "Output format. Default: rich on a terminal, text anywhere else."
IMPORT_HELP = "Import MODULE into the installed PyTorch first, for what it registers; may be repeated."


class NoEffectError(DispatchLabError):
    """An option was given that has no effect together with the others.

    Args:
        option: as it is written on the command line.
        reason: what it is for, and what to do.
    """

    option: str
    reason: str

    template = "{option} {reason}"


def given(context: click.Context) -> dict[str, str]:
    """The options that stand on the command line, by the names of their parameters."""
    return {
        param.name: param.opts[-1]
        for param in context.command.params
        if isinstance(param, click.Option)
        and param.name
        and context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
    }


def refuse(context: click.Context, names: Iterable[str], reason: str) -> None:
    """Refuse options that have no effect here.

    Args:
        context: the command line.
        names: the names of their parameters.
        reason: what they are for, and what to do; begins with a verb.

    Raises:
        NoEffectError: one of them was given.
    """
    found = given(context)
    for name in names:
        if name in found:
            raise NoEffectError(found[name], reason)


format_option = click.option("--format", type=PLAIN_FORMATS, help=FORMAT_HELP)
"""`--format`, of a command whose result is not."""


def view_format_option(*others: str) -> Callable[[_Command], _Command]:
    """`--format`, of a command whose result is made of blocks.

    Args:
        others: the formats that this result has besides those of every view.
    """
    return click.option("--format", type=click.Choice([*FORMATS, *others]), help=FORMAT_HELP)


semantics_option = click.option(
    "--semantics",
    metavar="NAME",
    type=OneOf("name", "semantics"),
    help="Semantics of the lab engine: strict, a PyTorch such as torch-2.13, torch for the model of the installed "
    "PyTorch or else the newest, pr35061, or the file of a profile. Default: those that the scenario names, or "
    "strict.",
)
"""`--semantics`, of the lab engine."""


def cluster_option(what: str) -> Callable[[_Command], _Command]:
    """`--cluster`.

    Args:
        what: what the cluster does.
    """
    return click.option(
        "--cluster",
        metavar="ADDRESS",
        help=f"{what} on the Dask cluster whose scheduler is at ADDRESS, such as tcp://10.0.0.1:8786, in place of this "
        "machine. Needs the extra dispatchlab[cluster]; see docs/cluster.md.",
    )


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


def import_option(help: str = IMPORT_HELP) -> Callable[[_Command], _Command]:
    """`--import` or `--package`, may be repeated, and `--import-timeout`."""

    def decorate(command: _Command) -> _Command:
        return click.option("--package", "--import", "imports", metavar="MODULE", multiple=True, help=help)(
            import_timeout_option(command)
        )

    return decorate


def _limit_imports(context: click.Context, option: click.Parameter, seconds: float | None) -> None:
    if seconds is not None:
        from dispatchlab.pytorch.worker.process import import_limit

        context.with_resource(import_limit(seconds))


import_timeout_option = click.option(
    "--import-timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    expose_value=False,
    callback=_limit_imports,
    help="Give each package this long to be imported, then end with exit code 124. Default: 300.",
)
"""`--import-timeout`, which is in force while the command runs."""


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


def in_bytes(context: click.Context, option: click.Parameter, gib: float | None) -> int | None:
    """The callback of an option that is given in GiB."""
    return None if gib is None else max(1, int(gib * 2**30))


force_option = click.option(
    "--force", is_flag=True, help="Write over a file that dispatchlab did not write, or that is of another kind."
)
"""`--force`, of a command that writes files."""


baseline_option = click.option(
    "--baseline", metavar="FILE", type=click.Path(), help="Leave out the findings that FILE accepts."
)
"""`--baseline`, of a command that has findings."""

write_baseline_option = click.option(
    "--write-baseline",
    metavar="FILE",
    type=click.Path(),
    help="Write the findings to FILE, as accepted ones for --baseline.",
)
"""`--write-baseline`, likewise."""


def check_baseline(context: click.Context, path: str | None, page: str | None, *, force: bool) -> None:
    """Refuse, before work is done for them, a baseline or a report that cannot be written, and --force for neither.

    Args:
        context: the context of the command.
        path: the value of `--write-baseline`.
        page: the value of `--report`.
        force: the value of `--force`.
    """
    from dispatchlab.files.file_kinds import FileKind, check_output

    if path is None and page is None:
        reason = "is for the files of --write-baseline and --report, and none is written: leave it out"
        refuse(context, ("force",), reason)
    check_page(context, page, force=force, others=True)
    if path is not None:
        check_output(path, FileKind.BASELINE, force=force)


root_option = click.option(
    "--root",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help="The checkout that paths of findings are relative to. Default: the folder with .git that this one is in.",
)


def report_option(what: str = "") -> Callable[[_Command], _Command]:
    """`--report`, of a command whose result can be kept as a page.

    Args:
        what: what is in it, a clause that goes on from `a report to keep`; empty when that needs no word.
    """
    return click.option(
        "--report",
        "page",
        metavar="FILE.html",
        type=click.Path(),
        help=f"Also write a report to keep{what}: one page that needs no network, for a browser or as a CI artifact.",
    )


class PageNameError(DispatchLabError):
    """A report to keep was asked for under a name that no browser takes for a page."""

    path: str

    template = "--report {path}: expected a file that ends in .html; --format json prints a report for programs"


def check_page(context: click.Context, path: str | None, *, force: bool, others: bool = False) -> None:
    """Refuse, before work is done for it, a report that cannot be written, and --force where nothing is.

    Args:
        context: the context of the command.
        path: the value of `--report`.
        force: the value of `--force`.
        others: whether the command writes another file.
    """
    if path is None:
        if not others:
            refuse(context, ("force",), "is for the file of --report, and nothing is written: leave it out")
        return
    from dispatchlab.files.file_kinds import FileKind, check_output

    if not path.endswith((".html", ".htm")) and not path.startswith("/dev/"):
        raise PageNameError(path)
    check_output(path, FileKind.PAGE, force=force)


progress_option = click.option(
    "--progress/--no-progress",
    default=None,
    help="Show progress on standard error. Default: bars on a terminal; elsewhere a line after 5 seconds "
    "and every 10 from then on.",
)
"""`--progress` and `--no-progress`."""


def _be_quiet(context: click.Context, option: click.Parameter, asked: bool) -> None:  # noqa: FBT001  a callback
    if asked:
        from dispatchlab.commands.output import QUIET

        context.meta[QUIET] = True


quiet_option = click.option(
    "-q",
    "--quiet",
    is_flag=True,
    expose_value=False,
    callback=_be_quiet,
    help="Print no progress and no notes on standard error; errors are printed.",
)
"""`-q` and `--quiet`."""


def _values(kind: str, incomplete: str, params: Mapping[str, object]) -> Iterable[str]:
    """The values of a kind; operators are those of the source among `params`, or of the default registry."""
    match kind:
        case "operator":
            return _operators(params.get("source") or params.get("registry"))
        case "row":
            from dispatchlab.model.keys import RUNTIME_KEYS

            return [key.name for key in RUNTIME_KEYS]
        case "semantics":
            from dispatchlab.scenario.scenario import SEMANTICS

            return ["torch", *SEMANTICS]
        case "source":
            from dispatchlab.records.file import SUFFIX, bundled_names

            return [*bundled_names(), "live", *_files(incomplete, (*_SCENARIO_SUFFIXES, SUFFIX))]
        case "explored":
            return [*_values("source", incomplete, params), *_operators(params.get("source"))]
        case _:
            return _files(incomplete, _SCENARIO_SUFFIXES)


def _operators(source: object) -> list[str]:
    """The operators of a scenario or a registry; none if it cannot be read: a completion cannot show an error."""
    from dispatchlab.errors import DispatchLabError
    from dispatchlab.records.builds import default_registry
    from dispatchlab.records.file import open_named
    from dispatchlab.scenario.load import load_scenario
    from dispatchlab.sources.find_sources import operators_in

    text = source if isinstance(source, str) else default_registry().name
    try:
        if text.endswith(_SCENARIO_SUFFIXES):
            return [str(name) for name in operators_in(load_scenario(text))]
        return [str(name) for name in open_named(text).names]
    except DispatchLabError:
        return []


def _files(incomplete: str, suffixes: tuple[str, ...]) -> list[str]:
    """The folders and files that begin as `incomplete` does; a folder ends in a slash."""
    from pathlib import Path

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
