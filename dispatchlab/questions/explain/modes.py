"""Explain a call under a mode of Python: what is asked for an implementation, in which order, and which one runs.

The hops of the dispatcher come from `hops`. This module goes on where they reach the mode: what FakeTensorMode asks is
in `fake_tensor`, what traces in `graph_modes`, DTensor in `dtensor`, and what takes the hops through keys of its own in
`transforms`: the transforms of torch.func, and autocast. Source: torch/_ops.py (resolve_key).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from dispatchlab.call.tensor_keys import PYTHON_KEYS
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.keys import BACKENDS, FUNCTIONALITY_KEYS, DispatchKey
from dispatchlab.model.operator_view import OperatorView
from dispatchlab.model.profile import MODE_RULES, Names
from dispatchlab.model.python_layer import Compiler, Decompositions, Mode, PythonRegistration
from dispatchlab.questions.explain.argument_specs import Described
from dispatchlab.questions.explain.dtensor import KNOWN_RESULTS, SQUEEZES, sharded, unsure_rule
from dispatchlab.questions.explain.fake_tensor import FAKE, faked, no_result
from dispatchlab.questions.explain.graph_modes import (
    compiled,
    exported,
    is_preservable,
    run_decompositions,
    traced_by_make_fx,
)
from dispatchlab.questions.explain.hops import explain, schema_of, thread_keys
from dispatchlab.questions.explain.mode_facts import MODES
from dispatchlab.questions.explain.registered import Registered, implementation_of, unsupported
from dispatchlab.questions.explain.result import (
    CallExplanation,
    Implementation,
    ImplementedBy,
    Later,
    ModeExplanation,
    by_priority,
)
from dispatchlab.questions.explain.transforms import explain_transformed, kernel_of

RULES_OF = (2, 13)
"""The version of PyTorch that the rules for make_fx, torch.export and DTensor are read from."""


def explain_under(
    mode: Mode,
    view: OperatorView,
    described: Described,
    registrations: Sequence[PythonRegistration],
    *,
    include: tuple[DispatchKey, ...] = (),
    exclude: tuple[DispatchKey, ...] = (),
    compiler: Compiler = "inductor",
    decompositions: Decompositions = "none",
    version: tuple[int, int] = RULES_OF,
    rules: Names = MODE_RULES,
) -> ModeExplanation:
    """Explain a call under a mode.

    Args:
        mode: the mode.
        view: the operator.
        described: its arguments.
        registrations: what Python registered for it.
        include: the keys that a guard includes besides.
        exclude: the keys that a guard excludes.
        compiler: the backend of torch.compile, for `compile`.
        decompositions: the table of decompositions, for `make_fx`.
        version: the version of the PyTorch that is explained.
        rules: what that does under modes, see `Profile.mode_rules`.

    Raises:
        NotCallableError: the operator has no schema.
    """
    call = _Call(_registered(view, described, registrations, rules), described, include, exclude)
    match mode:
        case "fake":
            return _under_fake_tensor(call)
        case "make_fx":
            return _of_version(_under_make_fx(call, decompositions), version)
        case "compile":
            return _under_compile(call, compiler, takes_data="compile_takes_data" in rules)
        case "export":
            return _of_version(_under_export(call), version)
        case "dtensor":
            return _of_version(_with_dtensors(call, rules), version)
        case "functionalize" | "grad" | "vmap" | "autocast":
            return explain_transformed(mode, call.operator, described, thread_keys(include, exclude))
        case _:
            assert_never(mode)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call, and the guards around it."""

    operator: Registered
    described: Described
    include: tuple[DispatchKey, ...]
    exclude: tuple[DispatchKey, ...]

    def hops(self, *, python: bool = False, include: tuple[DispatchKey, ...] = ()) -> CallExplanation:
        """Its hops, with tensors that intercept calls where `python` says so, and with more keys that are included."""
        described = self.described
        if python:
            arguments = (
                replace(argument, keys=argument.keys | PYTHON_KEYS) if argument.keys else argument
                for argument in described.arguments
            )
            described = replace(described, arguments=tuple(arguments))
        return explain(self.operator.view, described, thread_keys((*self.include, *include), self.exclude))

    def hops_under(self, mode: Mode) -> CallExplanation:
        """Its hops up to a mode of Python that is on."""
        call = self.hops(python=True, include=(DispatchKey.Python, DispatchKey.PythonTLSSnapshot))
        return replace(call, end=MODES[mode].reached, known=True) if call.hops[-1].key == DispatchKey.Python else call

    def kernel(self) -> Implementation:
        """The kernel in which it ends without a mode."""
        last = self.hops().hops[-1]
        runs = kernel_of(last, last.why)
        return runs if runs.kind is ImplementedBy.UNSUPPORTED else replace(runs, kind=ImplementedBy.KERNEL)


def _registered(
    view: OperatorView, described: Described, registrations: Sequence[PythonRegistration], rules: Names
) -> Registered:
    first = next((argument.keys for argument in described.arguments if argument.keys), None)
    numbers = [] if first is None else [key.backend for key in by_priority(first) if key.backend is not None]
    backend = BACKENDS[numbers[0]] if numbers else ""
    sparse = any("Sparse" in str(key) for argument in described.arguments for key in argument.keys)
    known = ("graphs_keep_kernels" in rules, "export_keeps_writes" in rules)
    return Registered(view, registrations, schema_of(view), sparse, backend, *known)


def _of_version(explanation: ModeExplanation, version: tuple[int, int]) -> ModeExplanation:
    """With a word on the version, where it is not the one that the rules are read from."""
    if version == RULES_OF:
        return explanation
    rules, asked = (".".join(map(str, numbers)) for numbers in (RULES_OF, version))
    text = f"the order in which PyTorch asks is that of {rules}, and what the registries have is of {asked}"
    return replace(explanation, unsure=f"{explanation.unsure}; {text}" if explanation.unsure else text)


# -- each mode


def _under_fake_tensor(call: _Call) -> ModeExplanation:
    hops = call.hops_under("fake")
    early = _before_the_mode(hops)
    if early is not None:
        return ModeExplanation("fake", hops, (early,))
    chain, symbolic = (tuple(faked(call.operator, symbolic=symbolic)) for symbolic in (False, True))
    return ModeExplanation("fake", hops, chain, symbolic if symbolic != chain else (), hops.unsure)


def _under_make_fx(call: _Call, decompositions: Decompositions) -> ModeExplanation:
    hops, operator = call.hops_under("make_fx"), call.operator
    early = _before_the_mode(hops)
    chain = (early,) if early else tuple(traced_by_make_fx(operator, decompositions, symbolic=False))
    first = _python_kernel_of_hops(hops, operator) or early
    symbolic = (first,) if first else tuple(_symbolic_make_fx(operator, decompositions))
    unsure = "" if early else hops.unsure
    return ModeExplanation("make_fx", hops, chain, symbolic if symbolic != chain else (), unsure, decompositions)


def _symbolic_make_fx(operator: Registered, decompositions: Decompositions) -> Iterator[Implementation]:
    """What make_fx asks when sizes are symbolic. Then it finds the results of the graph's nodes by FakeTensorMode."""
    for asked in traced_by_make_fx(operator, decompositions, symbolic=True):
        refused = no_result(operator, symbolic=True) if asked.kind is ImplementedBy.GRAPH_NODE else None
        yield refused or asked


def _under_compile(call: _Call, compiler: Compiler, *, takes_data: bool) -> ModeExplanation:
    hops, operator = call.hops_under("compile"), call.operator
    early = _python_kernel_of_hops(hops, operator) or _before_the_mode(hops)
    first = _no_tensor(operator) or early or _refused_by_dynamo(operator, takes_data=takes_data)
    if first is not None:
        return ModeExplanation("compile", hops, (first,), option=compiler)
    chain = tuple(compiled(operator, compiler))
    unsure = hops.unsure
    if not unsure and chain[-1].where == "Inductor":
        unsure = _PASSES
    runs_later = chain[-1].kind is ImplementedBy.GRAPH_NODE
    later = Later("when the compiled code runs", (call.kernel(),)) if runs_later else None
    return ModeExplanation("compile", hops, chain, (), unsure, compiler, later)


_PASSES = (
    "a pass of Inductor over the graph may take the operator out or put another in its place before the lowering, and "
    "Inductor calls the operator itself where a tensor is complex"
)


def _no_tensor(operator: Registered) -> Implementation | None:
    """Why Dynamo traces no call of an operator that gives a plain value; None where it gives none.

    Source: torch/_dynamo/variables/builder.py (wrap_fx_proxy_cls): a float is a constant, numbers in a list or a tuple
    are, too, and a symbolic number is part of the graph.
    """
    kinds = [_CONSTANTS.get(str(result.type)) for result in operator.schema.returns]
    if len(kinds) != 1 or kinds[0] is None:
        return None
    return unsupported("Dynamo", f"Dynamo traces no operator that returns a {kinds[0]}: it has to be a tensor")


_NUMBERS = ("int", "ScalarType", "Layout", "MemoryFormat")
_CONSTANTS = {"bool": "bool", "str": "string", **dict.fromkeys(_NUMBERS, "number")}
"""What Dynamo calls the results that it takes for constants of no operator's call, by their types."""


def _refused_by_dynamo(operator: Registered, *, takes_data: bool) -> Implementation | None:
    """Why Dynamo traces no call of an operator, or none with these arguments; None where it does."""
    if operator.sparse:
        return unsupported("Dynamo", "Dynamo takes no sparse tensors")
    if not takes_data and (_has_unknown_shape(operator) or "data_dependent_output" in operator.view.tags):
        why = "its result depends on the data of a tensor, which this Dynamo traces by options of its config alone"
        return unsupported("Dynamo", why)
    return no_result(operator)


def _has_unknown_shape(operator: Registered) -> bool:
    """Whether the shape of a result depends on data, whatever the arguments."""
    return "dynamic_output_shape" in operator.view.tags and operator.view.name != "aten::index.Tensor"


def _under_export(call: _Call) -> ModeExplanation:
    under, operator = call.hops_under("export"), call.operator
    early = _python_kernel_of_hops(under, operator) or _before_the_mode(under)
    hops = call.hops(include=(DispatchKey.PreDispatch,))
    if DispatchKey.PreDispatch in [hop.key for hop in hops.hops]:
        end = "the Python dispatcher calls the mode of make_fx at PreDispatch, before autograd"
        hops = replace(hops, hops=hops.hops[:1], end=end, known=True)
    refused = no_result(operator) if operator.composite is None else None
    if refused is not None:
        return ModeExplanation("export", hops, (refused,))
    decomposed = tuple(run_decompositions(operator))
    if early is not None and not is_preservable(operator):
        decomposed = (early,)
    node = exported(operator)
    # Another operator in the graph is another question. Before 2.6, one that gives nothing is taken out.
    is_left = node.function == operator.view.name and (operator.keeps_writes or bool(operator.schema.returns))
    later = Later("by run_decompositions()", decomposed) if is_left else None
    return ModeExplanation("export", hops, (node,), later=later)


def _with_dtensors(call: _Call, rules: Names) -> ModeExplanation:
    """A call whose tensors are all DTensors: no mode is on, and their own keys bring the call to DTensor."""
    hops, operator = call.hops(python=True), call.operator
    if not any(argument.keys for argument in call.described.arguments):
        last = hops.hops[-1]
        why = "no argument is a tensor, so that DTensor is not asked"
        debug = last.kernel.debug if last.kernel else ""
        return ModeExplanation("dtensor", hops, (implementation_of(debug, ImplementedBy.KERNEL, str(last.key), why),))
    early = _before_the_mode(hops)
    if early is not None:
        return ModeExplanation("dtensor", hops, (early,))
    hops = replace(hops, end=MODES["dtensor"].reached, known=True)
    chain = tuple(sharded(operator, derives="dtensor_derives" in rules))
    handled = chain[0].kind is ImplementedBy.DTENSOR_HANDLER
    refused = None if handled else _refused_by_dtensor(operator)
    if refused is not None or chain[0].kind is ImplementedBy.UNSUPPORTED:
        return ModeExplanation("dtensor", hops, chain if refused is None else (refused,))
    later = None
    if not handled:
        above = tuple(key for key in FUNCTIONALITY_KEYS if key >= DispatchKey.Python)
        kernel = replace(call, exclude=(*call.exclude, *above)).kernel()
        if operator.view.name in SQUEEZES and "dtensor_squeezes" in rules:
            why = "DTensor calls it with the dimensions that have one element in the whole tensor"
            kernel = replace(kernel, function=SQUEEZES[operator.view.name], why=why)
        later = Later("on the local tensors", (kernel,))
    return ModeExplanation("dtensor", hops, chain, (), unsure_rule(operator, chain), "", later)


def _refused_by_dtensor(operator: Registered) -> Implementation | None:
    """Why DTensor finds no result of an operator by FakeTensorMode; None where it does, or does not ask for it."""
    view = operator.view
    if view.name in KNOWN_RESULTS:
        return None
    if _has_unknown_shape(operator):
        why = "the shape of its result depends on data, and DTensor finds it by FakeTensorMode without symbols"
        return unsupported(FAKE, why)
    return no_result(operator)


# -- what runs before the mode


def _before_the_mode(call: CallExplanation) -> Implementation | None:
    """The kernel that ends the call before it reaches the mode; None when the call reaches it or may."""
    last = call.hops[-1]
    if last.key == DispatchKey.Python or not call.known:
        return None
    why = "its key comes before Python, and it does not redispatch"
    if last.kernel is not None and last.kernel.reason is Provenance.MATH:
        why = "its key comes before Python, and what it calls dispatches anew, under the mode"
    return kernel_of(last, why)


def _python_kernel_of_hops(call: CallExplanation, operator: Registered) -> Implementation | None:
    """The Python kernel that the Python dispatcher runs in place of the kernel of a hop, before the mode is reached."""
    for hop in call.hops:
        if hop.key == DispatchKey.Python:
            return None
        key = operator.resolved(hop.key)
        registered = operator.first("py_kernels", key)
        if registered is not None:
            resolved = "" if key == str(hop.key) else f", which {hop.key} resolves to"
            why = f"the Python dispatcher is on, and it has a kernel for {key}{resolved}"
            return implementation_of(registered, ImplementedBy.PYTHON_KERNEL, str(hop.key), why)
    return None
