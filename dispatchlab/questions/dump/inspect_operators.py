"""Inspect operators of a scenario, a registry or the installed PyTorch, with the reasons behind their tables."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.installed_torch import model_for
from dispatchlab.model.names import OperatorName, in_order, overload_of, overloads_in, qualified
from dispatchlab.model.packet import Packet, PacketOverload
from dispatchlab.model.registration import Block, TorchLibraryFunction
from dispatchlab.model.sequence import Step, StepSequence, format_sequence, parse_sequence
from dispatchlab.model.snapshot import Refusal, Snapshot
from dispatchlab.questions.sources.engines import EngineName, SemanticsOfTorchError, engine_for
from dispatchlab.questions.sources.find_sources import (
    LIVE,
    check_source,
    find_operators,
    foundations_in,
    is_registry_source,
    is_scenario_source,
    operators_in,
    recorded_from,
    registry_of_scenario,
    report_renamed,
)
from dispatchlab.questions.sources.replay_on_lab import bench, for_registry
from dispatchlab.registries.file import UnknownRegistryError, python_layer_of
from dispatchlab.registries.find import find_names, is_glob
from dispatchlab.registries.model import Recorded, name_of
from dispatchlab.registries.replay import fallback_registration, operator_registrations
from dispatchlab.registries.replay import run as run_registrations

if TYPE_CHECKING:
    from dispatchlab.engine.semantics import Semantics
    from dispatchlab.model.operator_view import OperatorView, TableRow
    from dispatchlab.model.python_layer import PythonLayer, PythonRegistration
    from dispatchlab.model.registration import Registration
    from dispatchlab.prover.protocol import Engine, Sandbox
    from dispatchlab.scenario.scenario import Scenario

_QUERIES = "dispatchlab.live.introspection.queries"
_PYTHON_READER = "dispatchlab.live.introspection.python_registries"
_REGISTRY_READER = "dispatchlab.live.introspection.registry_reader"


class OneOperatorError(DispatchLabError):
    """A pattern was given where one operator is explained."""

    asked: str

    template = "{asked!r} is a glob, and explain takes one operator: name it"


class RecordOnTorchError(DispatchLabError):
    """The installed PyTorch was to show what is recorded in a file."""

    source: str

    template = "{source} is a recording, which --engine torch cannot run: leave one of the two out"


class ForeignOperatorOnTorchError(DispatchLabError):
    """The installed PyTorch was to show an operator of its own as a record has it."""

    operator: str
    source: str
    packages: tuple[str, ...]

    def __str__(self) -> str:
        package = (self.packages or ("MODULE",))[0]
        return (
            f"{self.operator} is not of {self.source} alone, and a sandbox on the installed PyTorch has none of its "
            f"other kernels: use --engine torch --from {package}, or --from {self.source} without --engine"
        )


class SequenceWithoutScenarioError(DispatchLabError):
    """A sequence was given and no scenario whose registrations it could number."""

    sequence: str

    template = "--after {sequence} numbers the registrations of a scenario: name it with --from SCENARIO"


class Inspection(NamedTuple):
    """Operators at one moment, and the engine that showed them.

    Args:
        snapshots: the operators, in the order of their names; one that does not exist is here too.
        view: an operator of these with the reasons behind its table.
        source: where they come from, for a reader.
        semantics: how the engine behaves.
        sequence: what was registered and released before.
        refused: the steps of the sequence that were refused, each with its registration as a text and the reason.
        warnings: what the engine warned of meanwhile.
        build: the version of the PyTorch that runs, or was recorded, if one was.
        imports: the packages that it had imported.
        privateuse1: the name that a package gave the PrivateUse1 backend; empty when none did.
        bare: the dispatcher has none of PyTorch's backend fallbacks.
        python: what Python had registered besides; None when the source has no record of it.
        packet: where a name without overload was asked for that has several, how a call tries them.
        defined: the operators that the sequence has defined, in order.
    """

    snapshots: tuple[Snapshot, ...]
    view: Callable[[OperatorName], OperatorView]
    source: str
    semantics: str
    sequence: StepSequence = ()
    refused: tuple[tuple[Step, str, Refusal], ...] = ()
    warnings: tuple[str, ...] = ()
    build: str = ""
    imports: tuple[str, ...] = ()
    privateuse1: str = ""
    bare: bool = False
    python: PythonLayer | None = None
    packet: Packet | None = None
    defined: tuple[str, ...] = ()

    def python_rows(self, snapshot: Snapshot) -> tuple[PythonRegistration, ...]:
        """Return what Python had registered for an operator."""
        return () if self.python is None else self.python.of(str(snapshot.operator))

    @property
    def only_view(self) -> OperatorView:
        """The view of the one operator."""
        (snapshot,) = self.snapshots
        return self.view(snapshot.operator)


@runtime_checkable
class Explains(Protocol):
    """A sandbox that knows the reasons behind what it shows."""

    def explain(self, name: OperatorName, /) -> OperatorView | None:
        """An operator with its reasons; None when nothing is registered for it."""


class InspectOptions(NamedTuple):
    """How operators are inspected.

    Args:
        engine: `lab`, or `torch` for a scenario and the installed PyTorch.
        semantics: those of the lab engine; those that the source names when left out, or else `strict`.
        imports: modules that the live PyTorch imports first.
        allow_import: import the functions that a scenario names.
        reasons: see Note [Reasons for a live table].
        python: with what Python has registered besides; an operator that only Python knows is one then, too.
        packets: a name without overload means all of its overloads, and `Inspection.packet` says how a call tries them.
        report: see `recorded_from`.
    """

    engine: EngineName = "lab"
    semantics: str | None = None
    imports: tuple[str, ...] = ()
    allow_import: bool = False
    reasons: bool = False
    python: bool = False
    packets: bool = False
    report: Callable[[str], None] | None = None


_USUAL = InspectOptions()


def inspect_operator(operator: str, *, source: str | None = None, options: InspectOptions = _USUAL) -> Inspection:
    """Inspect one operator of any source, with the lab's reasons where the source itself has none.

    Args:
        operator: a name, or a name without overload when that is unique.
        source: a scenario, a registry or `live`; the default registry when left out.
        options: how to inspect them.

    Raises:
        DispatchLabError: there is no such operator, or the source or engine cannot be used.
    """
    if is_glob(operator):
        raise OneOperatorError(operator)
    if source == LIVE:
        source, options = None, options._replace(engine="torch")
    return inspect_operators(operator, source=source, options=options._replace(reasons=True))


def inspect_operators(
    operator: str, *, source: str | None = None, after: str | None = None, options: InspectOptions = _USUAL
) -> Inspection:
    """Inspect operators of any source.

    Args:
        operator: as `find_operators` reads it.
        source: a scenario or a registry; when left out the default registry, or the installed PyTorch on `torch`.
        after: the steps of a scenario to run first, `+0 +2 -0`.
        options: how to inspect them.

    Raises:
        DispatchLabError: there is no such operator, or the source, the engine or the sequence cannot be used.
    """
    if source == LIVE and options.engine == "torch":
        source = None
    if source is not None and not is_registry_source(source):
        if not is_scenario_source(source) and not os.path.exists(source):
            raise UnknownRegistryError(source)
        check_source(source)
        return inspect_scenario(source, operator, after=after, options=options)
    if options.engine == "torch" and source is not None:
        raise RecordOnTorchError(source)
    if after is not None:
        raise SequenceWithoutScenarioError(after)
    if options.engine == "torch":
        return _inspect_installed(operator, options)
    reason = ""
    if source is None:
        from dispatchlab.registries.builds import default_registry  # costs start-up, and a named source needs none

        source, reason = default_registry()
    recorded = recorded_from(source, imports=options.imports, report=options.report)
    found = inspect_registry(
        recorded, operator, source=source, semantics=options.semantics, python=options.python, packets=options.packets
    )
    if reason and options.report is not None:
        options.report(f"note: {reason}")
    return found


def inspect_registry(
    recorded: Recorded,
    operator: str,
    *,
    source: str,
    semantics: str | None = None,
    python: bool = False,
    packets: bool = False,
) -> Inspection:
    """Inspect operators of a registry, replayed on the lab engine.

    Args:
        recorded: the registry.
        operator: as `find_operators` reads it.
        source: what to call the registry.
        semantics: those of the lab engine; `strict` when left out.
        python: see `InspectOptions`.
        packets: see `InspectOptions`.

    Raises:
        UnknownOperatorError: there is no such operator.
        AmbiguousOperatorError: a name without overload has several.
        DispatchLabError: the registry cannot be replayed.
    """
    layer = python_layer_of(recorded) if python else None
    if layer is not None and not find_names(recorded.names, operator) and layer.of(operator):
        return _python_alone(operator, layer, source, semantics or "strict", recorded.imports)
    names = find_operators(operator, recorded.names, source=source, packets=packets)
    semantics = semantics or "strict"
    replayed = bench(recorded, semantics=semantics, operators=names)

    def view(name: OperatorName) -> OperatorView:
        found = replayed.dispatcher.explain(name)
        assert found is not None
        return found

    snapshots = tuple(replayed.dispatcher.snapshot(name_of(name)) for name in names)
    packet = None
    if _is_packet(operator, names):
        packet = _packet(view, names, recorded.overload_order(qualified(names[0])), source)
    return Inspection(
        snapshots,
        view,
        source,
        semantics,
        build=recorded.torch,
        imports=tuple(recorded.imports),
        privateuse1=recorded.privateuse1,
        python=layer,
        packet=packet,
    )


def _is_packet(asked: str, names: Sequence[str]) -> bool:
    return len(names) > 1 and not is_glob(asked)


def _packet(
    view: Callable[[OperatorName], OperatorView], names: Sequence[str], order: Sequence[str], source: str
) -> Packet:
    """The overloads that have a def, in an order; where it lacks one of them, the order is not known."""
    schemas = {name: schema for name in names if (schema := view(name_of(name)).schema) is not None}
    known = {*map(overload_of, schemas)} <= {*order}
    unknown = "" if known else f"{source} does not say in which order a call tries them"
    found = tuple(PacketOverload(name, schemas[name]) for name in in_order(tuple(schemas), order if known else ()))
    return Packet(qualified(names[0]), found, unknown)


def _python_alone(operator: str, layer: PythonLayer, source: str, semantics: str, imports: Sequence[str]) -> Inspection:
    """An operator that the dispatcher does not know and Python does: a higher-order operator, say."""
    from dispatchlab.model.operator_view import OperatorView

    name = name_of(operator)

    def view(name: OperatorName) -> OperatorView:
        return OperatorView(str(name), None, None, None, (), (), ())

    nothing = Snapshot.of_no_operator(name)
    return Inspection((nothing,), view, source, semantics, build=layer.torch, imports=tuple(imports), python=layer)


def inspect_scenario(
    path: str,
    operator: str | None = None,
    *,
    after: str | None = None,
    most: int | None = None,
    options: InspectOptions = _USUAL,
) -> Inspection:
    """Run steps of a scenario and inspect operators then.

    Args:
        path: the scenario file.
        operator: as `find_operators` reads it; those that the scenario is about when left out.
        after: the steps, `+0 +2 -0`; all registrations in the order of the file when left out.
        most: how many operators to inspect, the first ones; all of them when left out.
        options: how to inspect them.

    Raises:
        DispatchLabError: the scenario, the sequence, the operator or the engine cannot be used.
    """
    from dispatchlab.scenario.load import load_scenario

    scenario = load_scenario(path, allow_import=options.allow_import)
    sequence = _sequence(after, scenario)
    own = tuple(map(str, operators_in(scenario)))
    beneath = registry_of_scenario(scenario)
    asked = operator
    if operator is not None and "::" not in operator and scenario.namespace:
        asked = f"{scenario.namespace}::{operator}"
    every = own if beneath is None else tuple(sorted({*own, *beneath.names}))
    if asked is not None and operator is not None and beneath is not None and not find_names(every, asked):
        asked = operator  # `mul.Tensor` may well be one of aten
    found_names = own if asked is None else find_operators(asked, every, source=path, packets=options.packets)
    names = tuple(map(name_of, found_names))[:most]
    is_packet = asked is not None and options.packets and _is_packet(asked, found_names)
    if beneath is not None:
        if options.engine == "lab":
            asked_semantics = options.semantics or scenario.semantics or "strict"
            shown = _with_rules(_over_registry(scenario, beneath, names, sequence, path, asked_semantics), scenario)
            shown = _with_packet(shown, found_names, beneath) if is_packet else shown
            return shown._replace(python=python_layer_of(beneath)) if options.python else shown
        foreign = next((name for name in found_names if name in beneath.names), None)
        if foreign is not None:
            raise ForeignOperatorOnTorchError(foreign, path, scenario.packages)
    with engine_for(
        options.engine, asked=options.semantics, in_file=scenario.semantics, imports=options.imports
    ) as made:
        found = _after(scenario, made, names, sequence, path)
    found = _with_packet(found, found_names) if is_packet else found
    if options.engine == "lab":
        return _with_rules(found, scenario)
    if options.reasons:
        with engine_for("lab", asked=model_for(made.semantics), in_file=None) as model:
            found = _with_reasons(found, _after(scenario, model, names, sequence, path).view)
    return found


def _with_packet(found: Inspection, names: Sequence[str], beneath: Recorded | None = None) -> Inspection:
    """The same with the overloads as a call tries them: those of the registry beneath, then those of the scenario."""
    name = qualified(names[0])
    first: tuple[str, ...] = ()
    if beneath is not None:
        there = overloads_in(beneath.names, name)
        first = tuple(map(overload_of, there)) if len(there) == 1 else beneath.overload_order(name)
    own = (overload_of(each) for each in found.defined if qualified(each) == name)
    order = tuple(dict.fromkeys((*first, *own)))
    return found._replace(packet=_packet(found.view, names, order, found.source))


def _over_registry(
    scenario: Scenario,
    beneath: Recorded,
    names: tuple[OperatorName, ...],
    sequence: StepSequence,
    source: str,
    semantics: str,
) -> Inspection:
    """Run a sequence over the registry that a scenario stands on. See Note [A record stands on a registry]."""
    from dispatchlab.engine.lab_engine import LabEngine

    over, ground = ground_of(scenario, beneath, names, semantics)
    found = _after(scenario, LabEngine(over), names, sequence, source, ground=ground)
    return found._replace(
        semantics=semantics,
        build=beneath.torch,
        imports=(*beneath.imports, *scenario.packages),
        bare=False,
    )


def ground_of(
    scenario: Scenario, beneath: Recorded, names: Sequence[OperatorName], semantics: str
) -> tuple[Semantics, tuple[Registration, ...]]:
    """What is registered beneath a scenario that stands on a registry. See Note [A record stands on a registry].

    A def that the scenario repeats is left out here, so that it is made by the scenario when its step is run.

    Args:
        scenario: the scenario.
        beneath: the registry.
        names: operators that are looked at besides those of the scenario.
        semantics: the name of the semantics.

    Returns:
        The semantics with the fallbacks of the registry, and the registrations of its operators.
    """
    from dispatchlab.model.registration import Def

    fallbacks = tuple(map(fallback_registration, beneath.fallbacks))
    repeated = {scenario.registrations[at] for at in foundations_in(scenario, beneath)}
    defined = {one.operator for one in repeated if isinstance(one, Def)}
    ground: list[Registration] = []
    for name in dict.fromkeys((*names, *operators_in(scenario))):
        known = beneath.operator(name)
        if known is not None:
            ground += (one for one in operator_registrations(known) if not isinstance(one, Def) or name not in defined)
    return replace(for_registry(semantics, torch=beneath.torch), fallbacks=fallbacks), tuple(ground)


_MAKE_RULED_KERNELS = frozenset((TorchLibraryFunction.CUSTOM_OP, TorchLibraryFunction.REGISTER_AUTOGRAD))


def _with_rules(found: Inspection, scenario: Scenario) -> Inspection:
    """The same, where kernels that `custom_op` and `register_autograd` made are known to redispatch by a rule."""
    made: dict[str, set[str]] = {}
    for one in scenario.registrations:
        if isinstance(one, Block) and one.made_by is not None and one.made_by.function in _MAKE_RULED_KERNELS:
            made.setdefault(str(one.made_by.operator.within(one.namespace or "")), set()).add(one.debug)
    if not made:
        return found

    def view(name: OperatorName) -> OperatorView:
        seen = found.view(name)
        debugs = made.get(str(name), set())
        keys = (row.key for row in seen.table if row.debug and row.debug in debugs)
        return replace(seen, by_rule=tuple(dict.fromkeys((*seen.by_rule, *keys))))

    return found._replace(view=view)


def _inspect_installed(operator: str, asked: InspectOptions) -> Inspection:
    """Inspect operators of the installed PyTorch, which has its own semantics.

    Raises:
        UnknownOperatorError: there is no such operator.
        AmbiguousOperatorError: a name without overload has several.
        SemanticsOfTorchError: semantics were asked for.
        DispatchLabError: PyTorch or a module cannot be imported.
    """
    if asked.semantics is not None:
        raise SemanticsOfTorchError(asked.semantics)
    from dispatchlab.live.worker.engine import LiveEngine
    from dispatchlab.model.operator_view import view_of

    with LiveEngine(imports=asked.imports) as engine:
        known = {str(name): name for name in engine.ask(f"{_QUERIES}:operator_names")}
        source = f"PyTorch {engine.worker.version}{''.join(f' + {name}' for name in asked.imports)}"
        if asked.python and not find_names(tuple(known), operator):
            layer = engine.ask(f"{_PYTHON_READER}:read_operators", (operator,))
            if layer.of(operator):
                return _python_alone(operator, layer, source, engine.semantics, asked.imports)
        chosen = find_operators(operator, tuple(known), source=source, packets=asked.packets)
        packet = None
        if _is_packet(operator, chosen):
            name = qualified(chosen[0])
            packet = _live_packet(name, engine.ask(f"{_QUERIES}:packet_schemas", name), known)
        layer = engine.ask(f"{_PYTHON_READER}:read_operators", tuple(chosen)) if asked.python else None
        seen = engine.ask(f"{_QUERIES}:look_at", tuple(known[name] for name in chosen))
        recorded = engine.ask(f"{_REGISTRY_READER}:record_operators", chosen) if asked.reasons else None
        semantics = engine.semantics
        by_rule = (
            engine.ask(f"{_QUERIES}:keys_by_rule", tuple(known[name] for name in chosen)) if asked.reasons else None
        )
        build, renamed = engine.worker.version, engine.ask(f"{_QUERIES}:privateuse1_name")
    report_renamed(renamed, asked.report)
    views = {
        snapshot.operator: replace(view_of(snapshot, violations), by_rule=by_rule[at] if by_rule else ())
        for at, (snapshot, violations) in enumerate(seen)
    }
    found = Inspection(
        tuple(snapshot for snapshot, _ in seen),
        views.__getitem__,
        source,
        semantics,
        build=build,
        imports=tuple(asked.imports),
        privateuse1=renamed,
        python=layer,
        packet=packet,
    )
    if recorded is None:
        return found
    replayed = bench(recorded, semantics=model_for(semantics))
    model = {name: replayed.dispatcher.explain(name) for name in views}
    return _with_reasons(found, model.__getitem__)


def _live_packet(name: str, schemas: Sequence[tuple[str, str]], known: Collection[str]) -> Packet:
    """What PyTorch tries: overloads with their schemas, of which the dispatcher does not know those of TorchScript."""
    overloads = [(f"{name}.{overload}" if overload else name, schema) for overload, schema in schemas]
    unknown = "" if overloads else "PyTorch cannot make its list"
    return Packet(name, tuple(PacketOverload(one, text, one not in known) for one, text in overloads), unknown)


def _sequence(after: str | None, scenario: Scenario) -> StepSequence:
    """All registrations in the order of the file, unless a sequence is given."""
    count = len(scenario.registrations)
    if after is None:
        return tuple(range(count))
    return () if after == format_sequence(()) else parse_sequence(after, count=count)


def _after(
    scenario: Scenario,
    engine: Engine,
    names: tuple[OperatorName, ...],
    sequence: StepSequence,
    source: str,
    *,
    ground: Sequence[Registration] = (),
) -> Inspection:
    """Run a sequence on an engine, in a sandbox where `ground` is in force, and look at operators then."""
    from dispatchlab.model.registration import defined_by, describe
    from dispatchlab.prover.run_sequence import SandboxSession, run

    active: set[int] = set()
    defined: dict[str, None] = {}
    refused: list[tuple[Step, str, Refusal]] = []
    with engine.sandbox() as sandbox, warnings.catch_warnings(record=True) as caught:
        held = run_registrations(ground, sandbox.register)
        warnings.simplefilter("always")
        session = SandboxSession(sandbox, scenario.registrations, scenario.operators)  # holds what is in force
        for step, refusal in run(session, sequence):
            if refusal is not None:
                refused.append((step, describe(scenario.registrations[max(step, ~step)]), refusal))
            elif step >= 0:
                active.add(step)
                defined |= dict.fromkeys(map(str, defined_by((scenario.registrations[step],))))
            else:
                active.discard(~step)
                still = {*map(str, defined_by([scenario.registrations[index] for index in active]))}
                defined = {name: None for name in defined if name in still}
        snapshots = tuple(map(sandbox.snapshot, names))
        views = {snapshot.operator: view_in(sandbox, snapshot) for snapshot in snapshots}
        del held
    return Inspection(
        snapshots,
        views.__getitem__,
        source,
        engine.semantics,
        sequence,
        tuple(refused),
        tuple(str(warning.message) for warning in caught),
        privateuse1=scenario.privateuse1,
        bare=not engine.semantics.startswith("torch"),
        defined=tuple(defined),
    )


def view_in(sandbox: Sandbox, snapshot: Snapshot) -> OperatorView:
    """An operator as a sandbox shows it, with the reasons behind its table where the sandbox knows them."""
    view = sandbox.explain(snapshot.operator) if isinstance(sandbox, Explains) else None
    if view is not None:
        return view
    from dispatchlab.model.operator_view import view_of

    return view_of(snapshot, sandbox.violations(snapshot.operator))


# Note [Reasons for a live table]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# PyTorch prints its table and not what lost to each row. So the registrations that it prints are replayed on the lab
# engine, under the model of that PyTorch or of the nearest version, and the reasons are taken from there, for each row
# that is the same in both. The kernel that is shown is always the one that PyTorch printed.


def _with_reasons(found: Inspection, model: Callable[[OperatorName], OperatorView | None]) -> Inspection:
    """What PyTorch printed, with the reasons of the lab engine. See Note [Reasons for a live table]."""

    def view(name: OperatorName) -> OperatorView:
        seen, modelled = found.view(name), model(name)
        rows = {} if modelled is None else {row.key: row for row in modelled.table}
        return replace(seen, table=tuple(_reasoned(row, rows) for row in seen.table))

    return found._replace(view=view)


def _reasoned(row: TableRow, reasons: Mapping[str, TableRow]) -> TableRow:
    same = reasons.get(row.key)
    if same is None or same.text != row.text:
        return row
    return replace(row, source=same.source, beaten=same.beaten)
