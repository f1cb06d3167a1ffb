"""Inspect operators of any source, such as a registry or the installed PyTorch; see also inspect_scenario.py."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dispatchlab.errors import RequestError
from dispatchlab.model.installed_torch import model_for
from dispatchlab.model.names import OperatorName, find_names, find_operators, is_glob, name_of, qualified
from dispatchlab.model.operator_view import with_slots
from dispatchlab.model.packet import Packet, PacketOverload
from dispatchlab.model.snapshot import Snapshot
from dispatchlab.questions.dump.inspect_scenario import (
    USUAL,
    Inspection,
    InspectOptions,
    inspect_scenario,
    is_packet_of,
    packet_from,
    with_reasons,
)
from dispatchlab.questions.sources.engines import SEMANTICS_OF_TORCH
from dispatchlab.questions.sources.find_sources import (
    LIVE,
    check_source,
    is_registry_source,
    is_scenario_source,
    recorded_from,
    report_renamed,
)
from dispatchlab.questions.sources.replay_on_lab import REPLAY, bench
from dispatchlab.registries.file import UnknownRegistryError, python_layer_of
from dispatchlab.registries.model import Recorded

if TYPE_CHECKING:
    from dispatchlab.model.operator_view import OperatorView
    from dispatchlab.model.python_layer import PythonLayer

_QUERIES = "dispatchlab.live.introspection.queries"
_PYTHON_READER = "dispatchlab.live.introspection.python_registries"
_REGISTRY_READER = "dispatchlab.live.introspection.registry_reader"


def inspect_operator(operator: str, *, source: str | None = None, options: InspectOptions = USUAL) -> Inspection:
    """Inspect one operator of any source, with the lab's reasons if the source has no reasons.

    Args:
        operator: a name, or a name without overload if it is unique.
        source: a scenario, a registry or `live`; default: the default registry.
        options: how to inspect them.

    Raises:
        DispatchLabError: there is no such operator, or the source or engine cannot be used.
    """
    if is_glob(operator):
        raise RequestError(f"{operator!r} is a glob, but explain needs the name of one operator")
    if source == LIVE:
        source, options = None, options._replace(engine="torch")
    return inspect_operators(operator, source=source, options=options._replace(reasons=True))


def inspect_operators(operator: str, *, source: str | None = None, options: InspectOptions = USUAL) -> Inspection:
    """Inspect operators of any source.

    Args:
        operator: a name or pattern for `find_operators`.
        source: a scenario or a registry; default: the default registry, or with engine `torch` the installed PyTorch.
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
        return inspect_scenario(source, operator, options=options)
    if options.engine == "torch" and source is not None:
        raise RequestError(f"{source} is a recording, which --engine torch cannot run: leave one of the two out")
    if options.after is not None:
        needs = "needs the registrations of a scenario: name the scenario with --from SCENARIO"
        raise RequestError(f"--after {options.after} {needs}")
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
        operator: a name or pattern for `find_operators`.
        source: the name of the registry in output.
        semantics: the semantics of the lab engine; default: `REPLAY`.
        python: see `InspectOptions`.
        packets: see `InspectOptions`.

    Raises:
        UnknownOperatorError: there is no such operator.
        AmbiguousOperatorError: the name has several overloads.
        DispatchLabError: the registry cannot be replayed.
    """
    layer = python_layer_of(recorded) if python else None
    if layer is not None and not find_names(recorded.names, operator) and layer.of(operator):
        return _python_alone(operator, layer, source, semantics or REPLAY, recorded.imports)
    names = find_operators(operator, recorded.names, source=source, packets=packets)
    replayed = bench(recorded, semantics=semantics or REPLAY, operators=names)

    def view(name: OperatorName) -> OperatorView:
        found, held = replayed.dispatcher.explain(name), recorded.operator(name)
        assert found is not None
        return with_slots(found, held.slots) if held is not None and held.slots else found

    snapshots = tuple(
        replace(snapshot, slots=one.slots) if one is not None and one.slots else snapshot
        for name in names
        for snapshot, one in [(replayed.dispatcher.snapshot(name_of(name)), recorded.operator(name))]
    )
    packet = None
    if is_packet_of(operator, names):
        packet = packet_from(view, names, recorded.overload_order(qualified(names[0])), source)
    return Inspection(
        snapshots,
        view,
        source,
        replayed.dispatcher.semantics.name,
        build=recorded.torch,
        imports=tuple(recorded.imports),
        privateuse1=recorded.privateuse1,
        python=layer,
        packet=packet,
    )


def _python_alone(operator: str, layer: PythonLayer, source: str, semantics: str, imports: Sequence[str]) -> Inspection:
    """Return an operator that only Python knows, such as a higher-order operator."""
    from dispatchlab.model.operator_view import OperatorView

    name = name_of(operator)

    def view(name: OperatorName) -> OperatorView:
        return OperatorView(str(name), None, None, None, (), (), ())

    nothing = Snapshot.of_no_operator(name)
    return Inspection((nothing,), view, source, semantics, build=layer.torch, imports=tuple(imports), python=layer)


def _inspect_installed(operator: str, asked: InspectOptions) -> Inspection:
    """Inspect operators of the installed PyTorch, which has its own semantics.

    Raises:
        UnknownOperatorError: there is no such operator.
        AmbiguousOperatorError: the name has several overloads.
        RequestError: the options name semantics.
        DispatchLabError: PyTorch or a module cannot be imported.
    """
    if asked.semantics is not None:
        raise RequestError(SEMANTICS_OF_TORCH.format(asked.semantics))
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
        if is_packet_of(operator, chosen):
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
    return with_reasons(found, model.__getitem__)


def _live_packet(name: str, schemas: Sequence[tuple[str, str]], known: Collection[str]) -> Packet:
    """Return the overloads that PyTorch tries, with schemas; overloads of TorchScript are not in the dispatcher."""
    overloads = [(f"{name}.{overload}" if overload else name, schema) for overload, schema in schemas]
    unknown = "" if overloads else "PyTorch cannot make its list"
    return Packet(name, tuple(PacketOverload(one, text, one not in known) for one, text in overloads), unknown)
