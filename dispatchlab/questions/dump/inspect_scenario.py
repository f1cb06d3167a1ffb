"""Inspect operators of a scenario: run its steps on an engine, then observe operators."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from dispatchlab.errors import RequestError
from dispatchlab.model.installed_torch import model_for
from dispatchlab.model.names import (
    OperatorName,
    find_names,
    find_operators,
    in_order,
    is_glob,
    name_of,
    overload_of,
    overloads_in,
    qualified,
)
from dispatchlab.model.packet import Packet, PacketOverload
from dispatchlab.model.registration import Block, Def, TorchLibraryFunction, defined_by, describe
from dispatchlab.model.sequence import Step, StepSequence, format_sequence, parse_sequence
from dispatchlab.model.snapshot import Refusal, Snapshot
from dispatchlab.prover.run_sequence import SandboxSession, run
from dispatchlab.questions.sources.engines import EngineName, engine_for
from dispatchlab.scenario.load import load_scenario
from dispatchlab.scenario.scenario import Scenario, operators_in

if TYPE_CHECKING:
    from dispatchlab.engine.semantics import Semantics
    from dispatchlab.model.operator_view import OperatorView, TableRow
    from dispatchlab.model.python_layer import PythonLayer, PythonRegistration
    from dispatchlab.model.registration import Registration
    from dispatchlab.prover.protocol import Engine, Sandbox
    from dispatchlab.registries.model import Recorded


class Inspection(NamedTuple):
    """Operators at one moment, and the engine that showed them.

    Args:
        snapshots: the operators, in the order of their names, including operators that do not exist.
        view: a function that returns one of these operators with the reasons behind its table.
        source: their origin, for a reader.
        semantics: the semantics of the engine.
        sequence: the steps before.
        refused: the steps of the sequence that were refused, each with its registration as a text and the reason.
        warnings: the warnings of the engine during these steps.
        build: the version of the running or recorded PyTorch, if there is one.
        imports: the packages that were imported into it.
        privateuse1: the name that a package gave the PrivateUse1 backend; empty without a name.
        bare: whether the dispatcher has no backend fallbacks of PyTorch.
        python: the registrations of Python; None if the source does not record them.
        packet: for a name with several overloads, the order in which a call tries them.
        defined: the operators that the sequence defined, in order.
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
        """Return Python's registrations for an operator."""
        return () if self.python is None else self.python.of(str(snapshot.operator))

    @property
    def only_view(self) -> OperatorView:
        """The view of the one operator."""
        (snapshot,) = self.snapshots
        return self.view(snapshot.operator)


@runtime_checkable
class Explains(Protocol):
    """A sandbox that knows the reasons behind its tables."""

    def explain(self, name: OperatorName, /) -> OperatorView | None:
        """Return an operator with its reasons; None if it has no registrations."""


class InspectOptions(NamedTuple):
    """The options for the inspection of operators.

    Args:
        engine: `lab` or `torch`; `torch` needs a scenario or the installed PyTorch.
        semantics: the semantics of the lab engine; default: those that the source names, else the model of its
            registry's PyTorch, else the newest model.
        imports: modules to import into the installed PyTorch first.
        allow_import: import the functions that a scenario names.
        reasons: see Note [Reasons for a live table].
        python: also read the registrations of Python; then an operator that only Python knows is found, too.
        packets: a name without overload means all its overloads, and `Inspection.packet` has the order of a call.
        after: the steps of a scenario to run first, `+0 +2 -0`; default: all its registrations.
        report: see `recorded_from`.
    """

    engine: EngineName = "lab"
    semantics: str | None = None
    imports: tuple[str, ...] = ()
    allow_import: bool = False
    reasons: bool = False
    python: bool = False
    packets: bool = False
    after: str | None = None
    report: Callable[[str], None] | None = None


USUAL = InspectOptions()


def inspect_scenario(
    path: str,
    operator: str | None = None,
    *,
    most: int | None = None,
    options: InspectOptions = USUAL,
) -> Inspection:
    """Run steps of a scenario, then inspect operators.

    Args:
        path: the scenario file.
        operator: a name or pattern for `find_operators`; default: the operators of the scenario.
        most: inspect only this number of operators; default: all.
        options: how to inspect them.

    Raises:
        DispatchLabError: the scenario, the sequence, the operator or the engine cannot be used.
    """
    scenario = load_scenario(path, allow_import=options.allow_import)
    sequence = _sequence(options.after, scenario)
    own = tuple(map(str, operators_in(scenario)))
    beneath = _beneath(scenario)
    asked = operator
    if operator is not None and "::" not in operator and scenario.namespace:
        asked = f"{scenario.namespace}::{operator}"
    every = own if beneath is None else tuple(sorted({*own, *beneath.names}))
    if asked is not None and operator is not None and beneath is not None and not find_names(every, asked):
        asked = operator  # `mul.Tensor` may well be one of aten
    found_names = own if asked is None else find_operators(asked, every, source=path, packets=options.packets)
    names = tuple(map(name_of, found_names))[:most]
    is_packet = asked is not None and options.packets and is_packet_of(asked, found_names)
    if beneath is not None:
        if options.engine == "lab":
            semantics = options.semantics or scenario.semantics
            shown = _with_rules(_over_registry(scenario, beneath, names, sequence, path, semantics), scenario)
            shown = _with_packet(shown, found_names, beneath) if is_packet else shown
            if options.python:
                from dispatchlab.registries.file import python_layer_of

                shown = shown._replace(python=python_layer_of(beneath))
            return shown
        foreign = next((name for name in found_names if name in beneath.names), None)
        if foreign is not None:
            raise RequestError(
                f"{foreign} is not of {path} alone, and a sandbox on the installed PyTorch has none of its other "
                f"kernels: use --engine torch --from {(scenario.packages or ('MODULE',))[0]}, or --from {path} without "
                "--engine"
            )
    with engine_for(
        options.engine, asked=options.semantics, in_file=scenario.semantics, imports=options.imports
    ) as made:
        found = _after(scenario, made, names, sequence, path)
    found = _with_packet(found, found_names) if is_packet else found
    if options.engine == "lab":
        return _with_rules(found, scenario)
    if options.reasons:
        with engine_for("lab", asked=model_for(made.semantics), in_file=None) as model:
            found = with_reasons(found, _after(scenario, model, names, sequence, path).view)
    return found


def _beneath(scenario: Scenario) -> Recorded | None:
    """Return the registry beneath a scenario; without a registry, do not import the modules that read registries."""
    if scenario.registry is None:
        return None
    from dispatchlab.questions.sources.find_sources import registry_of_scenario

    return registry_of_scenario(scenario)


def _with_packet(found: Inspection, names: Sequence[str], beneath: Recorded | None = None) -> Inspection:
    """Return the inspection with the overloads in the order of a call: the registry's first, then the scenario's."""
    name = qualified(names[0])
    first: tuple[str, ...] = ()
    if beneath is not None:
        there = overloads_in(beneath.names, name)
        first = tuple(map(overload_of, there)) if len(there) == 1 else beneath.overload_order(name)
    own = (overload_of(each) for each in found.defined if qualified(each) == name)
    order = tuple(dict.fromkeys((*first, *own)))
    return found._replace(packet=packet_from(found.view, names, order, found.source))


def _over_registry(
    scenario: Scenario,
    beneath: Recorded,
    names: tuple[OperatorName, ...],
    sequence: StepSequence,
    source: str,
    semantics: str | None,
) -> Inspection:
    """Run a sequence over the registry beneath a scenario. See Note [A record stands on a registry]."""
    from dispatchlab.engine.lab_engine import LabEngine

    over, ground = ground_of(scenario, beneath, names, semantics)
    found = _after(scenario, LabEngine(over), names, sequence, source, ground=ground)
    return found._replace(
        semantics=over.name,
        build=beneath.torch,
        imports=(*beneath.imports, *scenario.packages),
        bare=False,
    )


def ground_of(
    scenario: Scenario, beneath: Recorded, names: Sequence[OperatorName], semantics: str | None
) -> tuple[Semantics, tuple[Registration, ...]]:
    """Return the registrations beneath a scenario on a registry. See Note [A record stands on a registry].

    A def that the scenario repeats is left out, because a step of the scenario makes it.

    Args:
        scenario: the scenario.
        beneath: the registry.
        names: operators to observe, in addition to those of the scenario.
        semantics: the name of the semantics; None for the model of the registry's PyTorch.

    Returns:
        The semantics with the registry's fallbacks at keys that they have, and the registrations of its operators.
    """
    from dispatchlab.questions.sources.find_sources import foundations_in
    from dispatchlab.questions.sources.replay_on_lab import for_registry
    from dispatchlab.registries.replay import fallback_registration, operator_registrations

    over = for_registry(semantics or model_for(beneath.torch), torch=beneath.torch)
    fallbacks = tuple(fallback_registration(one) for one in beneath.fallbacks if one.key in over.existing)
    repeated = {scenario.registrations[at] for at in foundations_in(scenario, beneath)}
    defined = {one.operator for one in repeated if isinstance(one, Def)}
    ground: list[Registration] = []
    for name in dict.fromkeys((*names, *operators_in(scenario))):
        known = beneath.operator(name)
        if known is not None:
            ground += (one for one in operator_registrations(known) if not isinstance(one, Def) or name not in defined)
    return replace(over, fallbacks=fallbacks), tuple(ground)


_MAKE_RULED_KERNELS = frozenset((TorchLibraryFunction.CUSTOM_OP, TorchLibraryFunction.REGISTER_AUTOGRAD))


def _with_rules(found: Inspection, scenario: Scenario) -> Inspection:
    """Return the inspection; kernels of `custom_op` and `register_autograd` redispatch by a known rule."""
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


def is_packet_of(asked: str, names: Sequence[str]) -> bool:
    return len(names) > 1 and not is_glob(asked)


def packet_from(
    view: Callable[[OperatorName], OperatorView], names: Sequence[str], order: Sequence[str], source: str
) -> Packet:
    """Return the overloads with a def, in this order; if one is missing in the order, the order is unknown."""
    schemas = {name: schema for name in names if (schema := view(name_of(name)).schema) is not None}
    known = {*map(overload_of, schemas)} <= {*order}
    unknown = "" if known else f"{source} does not say in which order a call tries them"
    found = tuple(PacketOverload(name, schemas[name]) for name in in_order(tuple(schemas), order if known else ()))
    return Packet(qualified(names[0]), found, unknown)


def _sequence(after: str | None, scenario: Scenario) -> StepSequence:
    """Return the given sequence, or else all registrations in the order of the file."""
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
    """Run a sequence on an engine, in a sandbox where `ground` is in force, then observe operators."""
    active: set[int] = set()
    defined: dict[str, None] = {}
    refused: list[tuple[Step, str, Refusal]] = []
    with engine.sandbox() as sandbox, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        held = tuple(map(sandbox.register, ground))
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
    """Return a sandbox's view of an operator, with the reasons if it knows them."""
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


def with_reasons(found: Inspection, model: Callable[[OperatorName], OperatorView | None]) -> Inspection:
    """Return PyTorch's output with the reasons of the lab engine. See Note [Reasons for a live table]."""

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
