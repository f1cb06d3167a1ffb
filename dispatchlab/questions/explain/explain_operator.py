"""Explain a call of an operator of any source, and say if the source lacks kernels of the backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.keys import DispatchKey, parse_key
from dispatchlab.model.names import AmbiguousOperatorError, qualified
from dispatchlab.model.operator_view import OperatorView
from dispatchlab.model.packet import Packet, PacketOverload
from dispatchlab.model.schema import is_out_of
from dispatchlab.questions.dump.inspect_operators import inspect_operator
from dispatchlab.questions.dump.inspect_scenario import Inspection, InspectOptions
from dispatchlab.questions.explain.argument_specs import ArgumentSpec, ArgumentSpecError, Described, describe_arguments
from dispatchlab.questions.explain.hops import explain, has_kernel, schema_of, thread_keys
from dispatchlab.questions.explain.packet_calls import (
    Given,
    NoOverloadError,
    PacketCall,
    describe_call,
    read_call,
    resolve,
)
from dispatchlab.questions.explain.result import CallExplanation
from dispatchlab.questions.sources.engines import EngineName
from dispatchlab.registries.builds import backend_named, default_registry, has_kernels_for, is_of_pytorch, no_answer


@dataclass(frozen=True, slots=True)
class ExplainedOperator:
    """The explanation of a call, and the inspected operator.

    Args:
        inspection: the operator and its source.
        explanation: the explanation from the source.
        no_answer: a sentence if the source has no kernels for the backend of the call, so that the explanation is wrong
            for it; else empty.
        engine: the engine of the dispatcher.
        packet_call: for a call of a name, the tried overloads; None for a call of one operator.
    """

    inspection: Inspection
    explanation: CallExplanation
    no_answer: str = ""
    engine: EngineName = "lab"
    packet_call: PacketCall | None = None


def explain_operator(
    operator: str,
    arguments: Sequence[ArgumentSpec],
    *,
    source: str | None = None,
    engine: EngineName = "lab",
    semantics: str | None = None,
    imports: tuple[str, ...] = (),
    after: str | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    inference_mode: bool = False,
    report: Callable[[str], None] | None = None,
) -> ExplainedOperator:
    """Explain a call.

    Args:
        operator: a name; for a name with several overloads, the first one that accepts the arguments.
        arguments: texts for `describe_arguments`, or all arguments of a call for `read_call`.
        source: a scenario, a registry or `live`; default: the bundled registry with the kernels of the call.
        engine: see `InspectOptions`.
        semantics: see `InspectOptions`.
        imports: modules to import into the installed PyTorch first.
        after: see `InspectOptions`.
        include: the names of keys that a guard includes.
        exclude: the names of keys that a guard excludes.
        inference_mode: whether the call is made in inference mode.
        report: see `InspectOptions`.

    Raises:
        DispatchLabError: there is no such operator, or the source, an argument or a key cannot be used.
    """
    chosen = source is None and engine == "lab"
    if chosen:
        source, reason = default_registry()
    options = InspectOptions(engine, semantics, imports, packets=True, after=after, report=report)
    inspection = inspect_operator(operator, source=source, options=options)
    given = _given(inspection, arguments)
    if given is not None and not arguments:
        raise AmbiguousOperatorError(operator, tuple(str(each.operator) for each in inspection.snapshots))
    inspection, packet_call = _one_of(inspection, given)
    operator = str(inspection.snapshots[0].operator)
    described = _described(inspection, arguments, given)
    if chosen:
        keys = [described.options.backend, *(key for argument in described.arguments for key in argument.keys)]
        known, reason = default_registry(keys)
        if known != source:
            options = InspectOptions(semantics=semantics, report=report)
            source = known
            inspection = inspect_operator(operator, source=source, options=options)
            described = _described(inspection, arguments, given)
        if report is not None:
            report(f"note: {reason}")
    view = inspection.only_view
    included, excluded = (
        tuple(parse_key(name, inspection.privateuse1) for name in names) for names in (include, exclude)
    )
    explanation = explain(view, described, thread_keys(included, excluded, inference=inference_mode))
    explanation = replace(explanation, end=_end(explanation, view, source, options))
    lacks = unanswered(explanation, source=inspection.source, build=inspection.build, imports=inspection.imports)
    if lacks:
        explanation = replace(explanation, end=f"in {inspection.source}: {explanation.end}")
    return ExplainedOperator(inspection, explanation, lacks, engine, packet_call)


def _end(explanation: CallExplanation, view: OperatorView, source: str | None, options: InspectOptions) -> str:
    """Return the end of a call; a structured operator's composite kernel fails if the `out` overload has no kernel."""
    last, name = explanation.hops[-1], qualified(view.name)
    if last.kernel is None or last.kernel.source != str(DispatchKey.CompositeExplicitAutogradNonFunctional):
        return explanation.end
    found = inspect_operator(name.removesuffix("_"), source=source, options=options)
    others = [found.view(each.operator) for each in found.snapshots]
    for other in others:
        if other.schema and is_out_of(schema_of(other), schema_of(view)) and not has_kernel(other, last.key):
            return f"a composite kernel: it calls {other.name}, which has no kernel for {last.key}: the call fails"
    return explanation.end


def _given(inspection: Inspection, arguments: Sequence[ArgumentSpec]) -> Given | None:
    """Return the arguments of a call; None if they only describe tensors for one operator."""
    packet = inspection.packet
    names = [str(snapshot.operator) for snapshot in inspection.snapshots]
    if packet is not None and packet.overloads and packet.name not in names:
        return read_call(arguments)
    one = inspection.snapshots[0 if packet is None else names.index(packet.name)]
    try:
        describe_arguments(schema_of(inspection.view(one.operator)), arguments, privateuse1=inspection.privateuse1)
    except ArgumentSpecError as error:
        call = read_call(arguments)
        try:
            _one_of(inspection, call)
        except NoOverloadError:
            if call.has_values:
                raise
            raise error from None
        return call
    return None


def _one_of(inspection: Inspection, given: Given | None) -> tuple[Inspection, PacketCall | None]:
    """Return the inspection of the called operator, with the tried overloads."""
    packet, found = inspection.packet, None
    name = str(inspection.snapshots[0].operator) if packet is None else packet.name
    if given is not None:
        if packet is None:
            view = inspection.only_view
            packet = Packet(name, (PacketOverload(name, str(schema_of(view))),))
        found = resolve(packet, given)
        name = found.tried[-1].name
    ones = tuple(each for each in inspection.snapshots if str(each.operator) == name) or inspection.snapshots[:1]
    return inspection._replace(snapshots=ones, packet=None), found


def _described(inspection: Inspection, arguments: Sequence[ArgumentSpec], given: Given | None) -> Described:
    schema, privateuse1 = schema_of(inspection.only_view), inspection.privateuse1
    if given is None:
        return describe_arguments(schema, arguments, privateuse1=privateuse1)
    return describe_call(schema, given, privateuse1=privateuse1)


def unanswered(explanation: CallExplanation, *, source: str, build: str, imports: Sequence[str]) -> str:
    """Return a sentence if a source lacks PyTorch's kernels for the backend of a call; else empty.

    An operator of a package is answered: its kernels are those that the package registers.

    Args:
        explanation: the explanation from the source.
        source: the name of the source.
        build: the version of the recorded or running PyTorch; empty without one.
        imports: the packages that were imported into it.
    """
    for hop in explanation.hops:
        backend = backend_named(hop.key)
        if (
            backend is None
            or has_kernels_for(build, imports, backend)
            or not is_of_pytorch(explanation.operator, build)
        ):
            continue
        # A kernel for the backend itself, or for autograd, runs wherever it is registered; any other gives way to one.
        if hop.kernel is None or hop.kernel.reason not in _STAYS:
            return no_answer(source, build, backend)
    return ""


_STAYS = (Provenance.KERNEL, Provenance.AUTOGRAD, Provenance.FALLBACK)
