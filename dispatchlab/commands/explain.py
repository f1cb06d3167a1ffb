"""`dispatchlab explain`: which kernel a call would run, and why, without running it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dispatchlab.analysis.engines import EngineName, SemanticsOfTorchError, engine_for
from dispatchlab.analysis.sources import (
    LIVE,
    AmbiguousOperatorError,
    ImportOfRecordError,
    find_operators,
    is_registry_source,
    operators_in,
    recorded_from,
)
from dispatchlab.call.argument_spec import describe_arguments
from dispatchlab.call.explain import explain, schema_of, thread_keys
from dispatchlab.call.explanation import CallExplanation
from dispatchlab.commands.output import Format, chosen_format, note, out
from dispatchlab.errors import DispatchLabError, UnknownOperatorError
from dispatchlab.model.keys import BACKENDS, parse_key
from dispatchlab.model.operator_view import OperatorView, TableRow
from dispatchlab.registry.bundled import DEFAULT
from dispatchlab.registry.find import find_names, is_glob

if TYPE_CHECKING:
    from dispatchlab.explore.protocol import Engine
    from dispatchlab.model.names import OperatorName
    from dispatchlab.scenario.scenario import Scenario


class OneOperatorError(DispatchLabError):
    """A pattern was given where one operator is explained."""

    def __init__(self, asked: str) -> None:
        super().__init__(asked)
        self.asked = asked

    def __str__(self) -> str:
        return f"{self.asked!r} is a pattern, and one call is explained at a time: name an operator"


class RecordOnTorchError(DispatchLabError):
    """What is on record was to be asked of the PyTorch that is installed."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.source = source

    def __str__(self) -> str:
        return f"--engine torch does not run what {self.source} has recorded: leave one of the two out"


_LIKE_LIVE = "torch-2.13"


@dataclass(frozen=True, slots=True)
class Asked:
    """Which operator, of what; the fields are options of the command."""

    operator: str
    source: str | None = None
    engine: EngineName = "lab"
    semantics: str | None = None
    imports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """An operator, and who was asked for it.

    Args:
        view: the operator.
        source: where it comes from, in words.
        semantics: how the dispatcher behaves.
        build: the version of the PyTorch that was recorded, if one was.
        bare: the dispatcher has none of PyTorch's backend fallbacks.
    """

    view: OperatorView
    source: str
    semantics: str
    build: str = ""
    bare: bool = False


def found_for(asked: Asked) -> Found:
    """The operator that was asked for, with its table.

    Raises:
        DispatchLabError: there is no such operator, or the source or engine cannot be used.
    """
    if is_glob(asked.operator):
        raise OneOperatorError(asked.operator)
    if asked.source is not None and not is_registry_source(asked.source):
        return _in_scenario(asked, asked.source)
    if asked.engine == "torch":
        if asked.source not in (None, LIVE):
            raise RecordOnTorchError(str(asked.source))
        return _live(asked)
    return _live(asked) if asked.source == LIVE else _recorded(asked, asked.source or DEFAULT)


def _recorded(asked: Asked, source: str) -> Found:
    from dispatchlab.analysis.replay_on_lab import bench

    if asked.imports:
        raise ImportOfRecordError(asked.imports)
    recorded = recorded_from(source, report=note)
    name = _one(asked.operator, find_names(recorded.names, asked.operator), tuple(recorded.names), source)
    semantics = asked.semantics or "strict"
    replayed = bench(recorded, semantics=semantics, operators=(name,))
    view = replayed.dispatcher.explain(name)
    assert view is not None
    return Found(view, source, semantics, recorded.torch)


def _one(asked: str, found: tuple[str, ...], known: tuple[str, ...], source: str) -> str:
    if not found:
        raise UnknownOperatorError(asked, known, source)
    if len(found) > 1:
        raise AmbiguousOperatorError(asked, found)
    return found[0]


def _in_scenario(asked: Asked, source: str) -> Found:
    from dispatchlab.scenario.load import load_scenario

    scenario = load_scenario(source)
    (name,) = find_operators(asked.operator, operators_in(scenario), namespace=scenario.namespace, source=source)
    with engine_for(asked.engine, asked=asked.semantics, in_file=scenario.semantics, imports=asked.imports) as engine:
        view = _after(scenario, engine, name, tell=True)
        semantics = engine.semantics
    if asked.engine == "torch":
        with engine_for("lab", asked=_LIKE_LIVE, in_file=None) as model:
            view = _with_reasons(view, _after(scenario, model, name, tell=False))
    return Found(view, source, semantics, bare=not semantics.startswith("torch"))


def _after(scenario: Scenario, engine: Engine, name: OperatorName, *, tell: bool) -> OperatorView:
    """The operator after the registrations of a scenario, in the order of the file."""
    from dispatchlab.commands.dump import Explains
    from dispatchlab.commands.output import note
    from dispatchlab.explore.run_sequence import SandboxSession, run
    from dispatchlab.model.operator_view import view_of
    from dispatchlab.model.registration import describe

    with engine.sandbox() as sandbox:
        session = SandboxSession(sandbox, scenario.registrations, scenario.operators)  # holds what is in force
        for step, refusal in run(session, tuple(range(len(scenario.registrations)))):
            if refusal is not None and tell:
                note(f"{describe(scenario.registrations[step])} was refused: {refusal.kind}: {refusal.message}")
        view = sandbox.explain(name) if isinstance(sandbox, Explains) else None
        return view_of(sandbox.snapshot(name), sandbox.violations(name)) if view is None else view


# Note [Reasons for a live table]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# PyTorch prints its table and not what lost to each row. So the registrations that it prints are replayed on the lab
# engine, under the semantics of PyTorch, and the reasons are taken from there, for each row that is the same in both.
# The kernel that is shown is always the one that PyTorch printed.


def _live(asked: Asked) -> Found:
    from dispatchlab.analysis.replay_on_lab import bench
    from dispatchlab.live.worker.engine import LiveEngine
    from dispatchlab.model.operator_view import view_of

    if asked.semantics is not None:
        raise SemanticsOfTorchError(asked.semantics)
    with LiveEngine(imports=asked.imports) as engine:
        known = engine.ask("dispatchlab.live.introspection.queries:operator_names")
        source = f"PyTorch {engine.worker.version}{''.join(f' + {name}' for name in asked.imports)}"
        names = tuple(map(str, known))
        name = _one(asked.operator, find_names(names, asked.operator), names, source)
        wanted = next(one for one in known if str(one) == name)
        ((snapshot, violations),) = engine.ask("dispatchlab.live.introspection.queries:look_at", (wanted,))
        recorded = engine.ask("dispatchlab.live.introspection.registry_reader:record_operators", (name,))
        semantics = engine.semantics
    seen = view_of(snapshot, violations)
    replayed = bench(recorded, semantics=_LIKE_LIVE)
    return Found(_with_reasons(seen, replayed.dispatcher.explain(name)), source, semantics)


def _with_reasons(seen: OperatorView, model: OperatorView | None) -> OperatorView:
    """What PyTorch printed, with the reasons of the lab engine. See Note [Reasons for a live table]."""
    reasons = {} if model is None else {row.key: row for row in model.table}
    return replace(seen, table=tuple(_reasoned(row, reasons) for row in seen.table))


def _reasoned(row: TableRow, reasons: Mapping[str, TableRow]) -> TableRow:
    same = reasons.get(row.key)
    if same is None or same.text != row.text:
        return row
    return replace(row, source=same.source, beaten=same.beaten)


_META = BACKENDS.index("Meta")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainRequest:
    """What was asked for; each field is an option of the command."""

    operator: str
    args: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    source: str | None = None
    engine: EngineName = "lab"
    semantics: str | None = None
    imports: tuple[str, ...] = ()
    format: Format | None = None
    color: bool = True


def explain_call(request: ExplainRequest) -> int:
    """Show which kernel a call runs.

    Returns:
        The exit code: 0, also when the call would fail, since that is what was asked.

    Raises:
        DispatchLabError: the source, the operator, an argument or a key cannot be used.
    """
    thread = thread_keys(tuple(map(parse_key, request.include)), tuple(map(parse_key, request.exclude)))
    asked = Asked(request.operator, request.source, request.engine, request.semantics, request.imports)
    found = found_for(asked)
    described = describe_arguments(schema_of(found.view), request.args)
    told = explain(found.view, described, thread)
    if found.build.endswith("+cpu") and any(hop.key.backend not in (None, 0, _META) for hop in told.hops):
        note(f"{found.source} is of a build for the CPU alone ({found.build}): it has no kernels for other devices")
    if found.bare and told.hops[-1].refusal is not None:
        note(f"{found.semantics} starts without PyTorch's backend fallbacks: --semantics torch-2.13 has them")
    _show(request, told, found.source, found.semantics)
    return 0


def _show(request: ExplainRequest, told: CallExplanation, source: str, semantics: str) -> None:
    match chosen_format(request.format):
        case "text":
            from dispatchlab.render.explain import explanation_text

            out(explanation_text(told))
        case "json":
            from dispatchlab.render.explain import explanation_json

            out(explanation_json(told, source=source, engine=request.engine, semantics=semantics))
        case "rich":
            from dispatchlab.render.rich_trees import print_explanation
            from dispatchlab.render.rich_view import console

            terminal = console(sys.stdout, color=request.color)
            with terminal.capture() as captured:
                print_explanation(terminal, told)
            out(captured.get())
