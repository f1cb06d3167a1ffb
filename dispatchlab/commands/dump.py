"""`dispatchlab dump`: an operator of a scenario, a registry or the installed PyTorch; listings and counts.

As JSON, one object on one line; a field is never renamed or dropped within a version:

    version           1
    source, torch     where the registry comes from, and the PyTorch that it is of
    operators         [{name, schema, dangling, kernels: [{key, debug, inferred, flags, active}]}]; the kernels at
                      the keys that were asked for, all of them when none were
    counts            [{key, operators, inactive, fallthrough, fallback}], with --counts in place of `operators`
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dispatchlab.analysis.engines import EngineName, SemanticsOfTorchError, engine_for
from dispatchlab.analysis.sources import (
    AmbiguousOperatorError,
    find_operators,
    operators_in,
    recorded_from,
    table_rows,
)
from dispatchlab.commands.output import Format, chosen_format, note, out
from dispatchlab.errors import DispatchLabError, UnknownOperatorError
from dispatchlab.explore.protocol import Sandbox
from dispatchlab.explore.run_sequence import SandboxSession, run
from dispatchlab.model.keys import DispatchKey, parse_key
from dispatchlab.model.names import OperatorName
from dispatchlab.model.operator_view import OperatorView
from dispatchlab.model.registration import describe
from dispatchlab.model.sequence import StepSequence, format_sequence, parse_sequence
from dispatchlab.model.snapshot import NOTHING_REGISTERED, Snapshot
from dispatchlab.registry.bundled import DEFAULT
from dispatchlab.registry.find import find, find_names, is_glob, key_counts
from dispatchlab.registry.model import name_of
from dispatchlab.render.formatting import JSON_VERSION
from dispatchlab.render.text import operator_text
from dispatchlab.scenario.load import load_scenario
from dispatchlab.scenario.scenario import Scenario

if TYPE_CHECKING:
    from dispatchlab.registry.find import KeyCount
    from dispatchlab.registry.model import Recorded, RecordedKernel, RecordedOperator


def list_registry(request: RegistryDumpRequest, recorded: Recorded) -> int:
    """List the operators that are asked for, or count their kernels.

    Returns:
        The exit code, 0; that nothing was found is told.

    Raises:
        UnknownKeyError: a key is none.
        UnknownOperatorError: no operator has this name, or matches this glob.
    """
    asked, keys = request.operator or "*", tuple(map(parse_key, request.keys))
    if asked != "*" and not find_names(recorded.names, asked):
        raise UnknownOperatorError(asked, recorded.names, request.source)
    found = list(find(recorded, asked, keys=keys, dangling=request.dangling, overridden=request.overridden))
    if request.counts:
        counts = [count for count in key_counts(recorded, found) if not keys or count.key in keys]
        out(_counts_json(request, recorded, counts) if _is_json(request) else "".join(_count_lines(counts)))
        return 0
    if _is_json(request):
        out(_operators_json(request, recorded, found, keys))
    else:
        out("".join(_line(operator, keys, overridden=request.overridden) for operator in found))
    if not found:
        note(f"no operator of {request.source} is like that")
    return 0


def _is_json(request: RegistryDumpRequest) -> bool:
    return chosen_format(request.format) == "json"


def _line(operator: RecordedOperator, keys: Sequence[DispatchKey], *, overridden: bool) -> str:
    kernels = [kernel for kernel in operator.kernels if not keys or kernel.key in keys]
    if overridden:
        told = "; ".join(_overrides(kernels))
    else:
        told = "; ".join(f"{kernel.key}: {kernel.debug}" for kernel in kernels if keys and kernel.active)
    return f"{operator.name}  {told}\n" if told else f"{operator.name}\n"


def _overrides(kernels: Sequence[RecordedKernel]) -> Iterator[str]:
    """Each kernel that took the place of another, with both."""
    for newer, older in pairwise(kernels):
        if not older.active:
            yield f"{newer.key}: {newer.debug or '(no debug text)'} over {older.debug or '(no debug text)'}"


def _count_lines(counts: Sequence[KeyCount]) -> Iterator[str]:
    width = max((len(str(count.key)) for count in counts), default=0)
    for count in counts:
        parts = [f"{count.operators:>5} operator{'' if count.operators == 1 else 's'}"]
        parts += [f"{count.inactive} overridden"] * bool(count.inactive)
        parts += [f"{count.fallthrough} fallthrough"] * bool(count.fallthrough)
        parts += ["a backend fallback"] * count.fallback
        yield f"{count.key!s:<{width}}  {', '.join(parts)}\n"


def _operators_json(
    request: RegistryDumpRequest, recorded: Recorded, found: Sequence[RecordedOperator], keys: Sequence[DispatchKey]
) -> str:
    operators = [
        {
            "name": str(operator.name),
            "schema": operator.schema,
            "dangling": operator.is_dangling,
            "kernels": [
                {
                    "key": str(kernel.key),
                    "debug": kernel.debug,
                    "inferred": kernel.inferred,
                    "flags": kernel.flags.split(),
                    "active": kernel.active,
                }
                for kernel in operator.kernels
                if not keys or kernel.key in keys
            ],
        }
        for operator in found
    ]
    return _json(request, recorded, {"operators": operators})


def _counts_json(request: RegistryDumpRequest, recorded: Recorded, counts: Sequence[KeyCount]) -> str:
    rows = [
        {
            "key": str(count.key),
            "operators": count.operators,
            "inactive": count.inactive,
            "fallthrough": count.fallthrough,
            "fallback": count.fallback,
        }
        for count in counts
    ]
    return _json(request, recorded, {"counts": rows})


def _json(request: RegistryDumpRequest, recorded: Recorded, value: dict[str, object]) -> str:
    head: dict[str, object] = {"version": JSON_VERSION, "source": request.source, "torch": recorded.torch}
    return json.dumps(head | value, ensure_ascii=False) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryDumpRequest:
    """What was asked for; each field is an option of the command.

    Args:
        operator: a name, a name without overload, or a glob; None for all, which needs one of the listings.
        source: `live`, the name of a bundled registry, or a file.
        listing: list the operators, a line each, instead of showing them.
        dangling: list those without a def.
        overridden: list those with a kernel that took the place of another, and both of these.
        counts: show how many kernels each key has instead.
        keys: the rows of the tables that are shown; in a listing, operators with a kernel of their own at one of them.
    """

    operator: str | None = None
    source: str = DEFAULT
    semantics: str | None = None
    keys: tuple[str, ...] = ()
    listing: bool = False
    dangling: bool = False
    overridden: bool = False
    counts: bool = False
    imports: tuple[str, ...] = ()
    format: Format | None = None
    color: bool = True


def dump_registry(request: RegistryDumpRequest) -> int:
    """Show operators of a registry, list them, or count.

    Returns:
        The exit code, 0.

    Raises:
        DispatchLabError: the source, the operator or a key cannot be used.
    """
    recorded = recorded_from(request.source, imports=request.imports, report=note)
    if request.counts or request.listing or request.dangling or request.overridden or request.operator is None:
        return list_registry(request, recorded)
    rows = table_rows(request.keys)
    names = _names(request.operator, recorded, request.source)
    _show_registry(request, recorded, names, rows)
    return 0


def _names(asked: str, recorded: Recorded, source: str) -> tuple[str, ...]:
    names = find_names(recorded.names, asked)
    if not names:
        raise UnknownOperatorError(asked, recorded.names, source)
    if len(names) > 1 and not is_glob(asked):
        raise AmbiguousOperatorError(asked, names)
    return names


def _show_registry(request: RegistryDumpRequest, recorded: Recorded, names: Sequence[str], rows: Sequence[str]) -> None:
    from dispatchlab.analysis.replay_on_lab import bench

    semantics = request.semantics or "strict"
    replayed = bench(recorded, semantics=semantics, operators=names)
    dispatcher = replayed.dispatcher
    match chosen_format(request.format):
        case "text":
            from dispatchlab.render.text import only_rows

            out("\n".join(f"{dispatcher.dump(name)}\n{only_rows(dispatcher.dump_table(name), rows)}" for name in names))
        case "json":
            from dispatchlab.render.json_view import dump_json

            views = [(name, dispatcher.explain(name)) for name in names]
            seen = [(dispatcher.snapshot(name_of(name)), view) for name, view in views if view is not None]
            out(dump_json(seen, scenario=request.source, engine="lab", semantics=semantics, sequence=(), keys=rows))
        case "rich":
            from dispatchlab.render.rich_view import console, print_operator

            terminal = console(sys.stdout, color=request.color)
            with terminal.capture() as captured:
                for name in names:
                    view = dispatcher.explain(name)
                    assert view is not None
                    print_operator(terminal, view, keys=rows)
            out(captured.get())


_INSTALLED = "dispatchlab.live.introspection.queries"


class NoSourceError(DispatchLabError):
    """Nothing says where the operator comes from."""

    def __str__(self) -> str:
        return "the dispatcher is empty: name a scenario whose registrations to make, with --from SCENARIO"


class SequenceWithoutSourceError(DispatchLabError):
    """A sequence was given and nothing that it could number."""

    def __init__(self, sequence: str) -> None:
        super().__init__(sequence)
        self.sequence = sequence

    def __str__(self) -> str:
        return f"--after {self.sequence} numbers the registrations of a scenario: name it with --from SCENARIO"


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpRequest:
    """What was asked for; each field is an option of the command."""

    operator: str
    source: str | None = None
    after: str | None = None
    engine: EngineName = "lab"
    semantics: str | None = None
    keys: tuple[str, ...] = ()
    format: Format | None = None
    color: bool = True
    allow_import: bool = False
    imports: tuple[str, ...] = ()


@runtime_checkable
class Explains(Protocol):
    """A sandbox that knows the reasons behind what it shows."""

    def explain(self, name: OperatorName, /) -> OperatorView | None:
        """An operator with its reasons; None when nothing is registered for it."""


def dump(request: DumpRequest) -> int:
    """Run the sequence, tell what is refused on the way, and show the operators.

    Returns:
        The exit code: 0. A refusal on the way is told and does not change it, since what is shown is what the
        dispatcher knows then.

    Raises:
        DispatchLabError: the scenario, the sequence, the operator or a key cannot be used.
    """
    keys = table_rows(request.keys)
    if request.source is None:
        return _dump_installed(request, keys)
    scenario = load_scenario(request.source, allow_import=request.allow_import)
    sequence = _sequence(request.after, scenario)
    known = operators_in(scenario)
    names = find_operators(request.operator, known, namespace=scenario.namespace, source=request.source)
    with engine_for(
        request.engine, asked=request.semantics, in_file=scenario.semantics, imports=request.imports
    ) as engine:
        with engine.sandbox() as sandbox:
            session = SandboxSession(sandbox, scenario.registrations, scenario.operators)  # holds what is in force
            refused = _run(session, scenario, sequence)
            seen = [(sandbox.snapshot(name), _view(sandbox, name)) for name in names]
        semantics = engine.semantics
    for snapshot, _ in seen:
        if not snapshot.exists:
            note(f"{NOTHING_REGISTERED} {snapshot.operator} after {format_sequence(sequence)}")
    _show_dispatcher(request, seen, semantics, keys, sequence, refused)
    return 0


def _dump_installed(request: DumpRequest, keys: tuple[str, ...]) -> int:
    """Show operators of the running PyTorch itself, with what was imported."""
    if request.engine != "torch":
        raise NoSourceError
    if request.after is not None:
        raise SequenceWithoutSourceError(request.after)
    from dispatchlab.live.worker.engine import LiveEngine
    from dispatchlab.model.operator_view import view_of

    if request.semantics is not None:
        raise SemanticsOfTorchError(request.semantics)
    with LiveEngine(imports=request.imports) as engine:
        known = engine.ask(f"{_INSTALLED}:operator_names")
        source = f"PyTorch {engine.worker.version}{''.join(f' + {name}' for name in request.imports)}"
        names = find_operators(request.operator, known, namespace="", source=source)
        found = engine.ask(f"{_INSTALLED}:look_at", names)
        seen = [(snapshot, view_of(snapshot, violations)) for snapshot, violations in found]
        _show_dispatcher(request, seen, engine.semantics, keys)
    return 0


def _show_dispatcher(
    request: DumpRequest,
    seen: Sequence[tuple[Snapshot, OperatorView]],
    semantics: str,
    keys: tuple[str, ...],
    sequence: StepSequence = (),
    refused: Sequence[tuple[int, str]] = (),
) -> None:
    shown = [(snapshot, view) for snapshot, view in seen if snapshot.exists]
    match chosen_format(request.format):
        case "text":
            out("\n".join(operator_text(snapshot, keys=keys) for snapshot, _ in shown))
        case "json":
            from dispatchlab.render.json_view import dump_json

            text = dump_json(
                seen,
                scenario=request.source,
                engine=request.engine,
                semantics=semantics,
                sequence=sequence,
                refused=refused,
                keys=keys,
            )
            out(text)
        case "rich":
            from dispatchlab.render.rich_view import console, print_operator

            terminal = console(sys.stdout, color=request.color)
            with terminal.capture() as captured:
                for _, view in shown:
                    print_operator(terminal, view, keys=keys)
            out(captured.get())


def _sequence(after: str | None, scenario: Scenario) -> StepSequence:
    """All registrations in the order of the file, unless a sequence is given."""
    count = len(scenario.registrations)
    if after is None:
        return tuple(range(count))
    return () if after == format_sequence(()) else parse_sequence(after, count=count)


def _run(session: SandboxSession, scenario: Scenario, sequence: StepSequence) -> list[tuple[int, str]]:
    """Run a sequence; the registrations that were refused, with the reasons."""
    refused: list[tuple[int, str]] = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step, refusal in run(session, sequence):
            if refusal is not None:
                index = ~step if step < 0 else step
                refused.append((index, refusal.message))
                verb = "could not be released" if step < 0 else "was refused"
                what = f"{format_sequence((step,))} {describe(scenario.registrations[index])}"
                note(f"{what} {verb}: {refusal.kind}: {refusal.message}")
    for warning in told:
        note(f"note: {warning.message}")
    return refused


def _view(sandbox: Sandbox, name: OperatorName) -> OperatorView:
    view = sandbox.explain(name) if isinstance(sandbox, Explains) else None
    if view is not None:
        return view
    from dispatchlab.model.operator_view import view_of

    snapshot: Snapshot = sandbox.snapshot(name)
    return view_of(snapshot, sandbox.violations(name))


_LISTINGS = ("listing", "dangling", "overridden", "counts")


class DumpOptionsError(DispatchLabError):
    """Options of one kind of source were given with another."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


def dump_anything(options: Mapping[str, Any], *, color: bool) -> int:
    """Show what `options`, those of the command line by name, ask for.

    Returns:
        The exit code.

    Raises:
        DispatchLabError: the options do not go together, or the source cannot be used.
    """
    from dispatchlab.analysis.sources import LIVE, is_registry_source

    rest = dict(options)
    listings = {name: rest.pop(name) for name in _LISTINGS}
    source, live = rest["source"], rest["engine"] == "torch"
    if rest["operator"] is None and not any(listings.values()):
        raise DumpOptionsError("which operator? name one, or a glob such as 'aten::add*'; --list lists what there is")
    if live and source is None and any(listings.values()):
        source = LIVE
    elif (live and source is None) or (source is not None and not is_registry_source(source)):
        return _dump_dispatcher(rest, listings, color=color)
    elif live:
        raise DumpOptionsError(f"--engine torch does not run what {source} has recorded: leave one of the two out")
    if rest["after"] is not None:
        raise DumpOptionsError(f"--after {rest['after']} numbers the registrations of a scenario: name it with --from")

    for name in ("after", "engine", "allow_import"):
        del rest[name]
    if source is None:
        del rest["source"]
    else:
        rest["source"] = source
    return dump_registry(RegistryDumpRequest(**rest, **listings, color=color))


def _dump_dispatcher(options: dict[str, Any], listings: Mapping[str, bool], *, color: bool) -> int:

    asked = [name for name, on in listings.items() if on]
    if asked:
        option = "--list" if asked[0] == "listing" else f"--{asked[0]}"
        raise DumpOptionsError(f"{option} is for registries, and {options['source']} is a scenario: name an operator")
    return dump(DumpRequest(**options, color=color))
