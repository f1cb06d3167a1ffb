"""Explain a call under a mode of Python: what is asked for an implementation, in which order, and which one runs.

The hops of the dispatcher come from `explain`. This module goes on where they reach the mode: `fake` is FakeTensorMode;
what traces is in `explain_tracing`, DTensor in `explain_dtensor`, and what takes the hops through keys of its own in
`explain_transform`: the transforms of torch.func, and autocast.
Source: torch/_ops.py (resolve_key), torch/_subclasses/fake_tensor.py (_dispatch_impl).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from dispatchlab.call.explain import CallExplanation, Described, by_priority, explain, schema_of, thread_keys
from dispatchlab.call.explain_dtensor import KNOWN_RESULTS, SQUEEZES, sharded, unsure_rule
from dispatchlab.call.explain_tracing import (
    NOT_IMPLEMENTED,
    TABLE_REGISTRIES,
    compiled,
    exported,
    is_preservable,
    run_decompositions,
    traced_by_make_fx,
)
from dispatchlab.call.explain_transform import Step, explain_transformed
from dispatchlab.call.implementation import Implementation, ImplementedBy, Registered, implementation_of
from dispatchlab.call.tensor_keys import PYTHON_KEYS
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.keys import BACKENDS, FUNCTIONALITY_KEYS, DispatchKey
from dispatchlab.model.operator_view import OperatorView
from dispatchlab.model.python_layer import Compiler, Decompositions, Mode, PythonRegistration

REGISTRIES_OF: dict[Mode, tuple[str, ...]] = {
    "fake": ("decompositions", "meta_functions", "fake_rules", "fake_checks", "fast_fake_rules", "torch_library"),
    "make_fx": ("py_kernels",),
    "compile": ("py_kernels", "aot_decompositions"),
    "export": ("py_kernels", "aot_decompositions", "export_decompositions"),
    "dtensor": ("py_kernels", "decompositions", "dtensor_rules", "dtensor_handlers"),
    "functionalize": (),
    "grad": (),
    "vmap": (),
    "autocast": (),
}
"""The registries of Python without which nothing can be said of a mode."""


def registries_of(mode: Mode, compiler: Compiler, decompositions: Decompositions) -> tuple[str, ...]:
    """The registries of Python without which nothing can be said of a mode with these options."""
    needed = REGISTRIES_OF[mode]
    if mode == "make_fx":
        needed += TABLE_REGISTRIES[decompositions]
    elif mode == "compile" and compiler == "inductor":
        needed += (*TABLE_REGISTRIES["inductor"], "inductor_lowerings")
    return tuple(dict.fromkeys(needed))


RULES_OF = (2, 13)
"""The version of PyTorch that the rules for make_fx, torch.export and DTensor are read from."""


@dataclass(frozen=True, slots=True)
class Later:
    """What runs after the mode is done with a call.

    Args:
        when: when it runs.
        chain: as in `ModeExplanation`.
    """

    when: str
    chain: tuple[Implementation, ...]


@dataclass(frozen=True, slots=True)
class ModeExplanation:
    """A call under a mode.

    Args:
        mode: the mode.
        call: the hops of the dispatcher up to the mode, or up to the implementation that runs before it.
        chain: what runs, and what follows when it gives up, in order.
        symbolic: the same when a size is symbolic; empty where that makes no difference.
        unsure: what cannot be known beforehand; empty when all is.
        option: the compiler of torch.compile, or the table of decompositions of make_fx; empty for the other modes.
        later: what runs afterwards: when the graph runs, by `run_decompositions()`, on the local tensors; None where
            nothing does.
        steps: each hop of a transform or of autocast in a line; empty for the other modes.
        notes: what holds for every call in the mode.
    """

    mode: Mode
    call: CallExplanation
    chain: tuple[Implementation, ...]
    symbolic: tuple[Implementation, ...] = ()
    unsure: str = ""
    option: str = ""
    later: Later | None = None
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def python_dispatcher(self) -> bool:
        """Whether the Python dispatcher is on; make_fx turns it on when sizes are symbolic."""
        return self.mode in ("compile", "export")

    @property
    def runs(self) -> Implementation:
        """What runs first."""
        return self.chain[0]


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

    Raises:
        NotCallableError: the operator has no schema.
    """
    if mode == "dtensor":
        with_dtensors = _with_dtensors(view, described, registrations, (include, exclude), derives=version >= (2, 11))
        return _of_version(with_dtensors, version)
    if mode == "functionalize" or mode == "grad" or mode == "vmap" or mode == "autocast":
        registered = Registered(view, registrations, schema_of(view), _is_sparse(described))
        done = explain_transformed(mode, registered, described, thread_keys(include, exclude))
        return ModeExplanation(
            mode, done.call, (done.runs,), (), _unsure(done.call, None), steps=done.steps, notes=done.notes
        )
    thread = thread_keys((*include, DispatchKey.Python, DispatchKey.PythonTLSSnapshot), exclude)
    inside = [replace(one, keys=one.keys | PYTHON_KEYS) if one.keys else one for one in described.arguments]
    call = explain(view, replace(described, arguments=tuple(inside)), thread)
    found = _registered(view, described, registrations)
    if call.hops[-1].key == DispatchKey.Python:
        call = replace(call, end=_REACHED[mode], known=True)
    match mode:
        case "fake":
            early = _before_the_mode(call)
            chain = (early,) if early else tuple(_fake(found, symbolic=False))
            symbolic = () if early else tuple(_fake(found, symbolic=True))
            return ModeExplanation(mode, call, chain, symbolic if symbolic != chain else (), _unsure(call, early))
        case "make_fx":
            early = _before_the_mode(call)
            chain = (early,) if early else tuple(traced_by_make_fx(found, decompositions, symbolic=False))
            other = _python_kernel_of_hops(call, found) or early
            symbolic = (other,) if other else tuple(_symbolic_make_fx(found, decompositions))
            differs = symbolic if symbolic != chain else ()
            made = ModeExplanation(mode, call, chain, differs, _unsure(call, early), decompositions)
            return _of_version(made, version)
        case "compile":
            early = _python_kernel_of_hops(call, found) or _before_the_mode(call)
            first = _no_tensor(found) or early or _refused_by_dynamo(found)
            chain = (first,) if first else tuple(compiled(found, compiler))
            unsure = _unsure(call, first)
            if not unsure and chain[-1].where == "Inductor":
                unsure = _PASSES
            later = None
            if chain[-1].kind is ImplementedBy.GRAPH_NODE:
                later = Later("when the compiled code runs", (_kernel_of(view, described, (include, exclude)),))
            return ModeExplanation(mode, call, chain, (), unsure, compiler, later)
        case "export":
            early = _python_kernel_of_hops(call, found) or _before_the_mode(call)
            before = explain(view, described, thread_keys((*include, DispatchKey.PreDispatch), exclude))
            if DispatchKey.PreDispatch in [hop.key for hop in before.hops]:
                end = "the Python dispatcher calls the mode of make_fx at PreDispatch, before autograd"
                before = replace(before, hops=before.hops[:1], end=end, known=True)
            refused = None if found.is_composite else _no_result(found)
            if refused is not None:
                return _of_version(ModeExplanation(mode, before, (refused,)), version)
            decomposed = tuple(run_decompositions(found))
            if early is not None and not is_preservable(found):
                decomposed = (early,)
            traced = tuple(exported(found))
            # Another operator in the graph is another question.
            later = Later("by run_decompositions()", decomposed) if traced[0].function == view.name else None
            exports = ModeExplanation(mode, before, traced, (), "", "", later)
            return _of_version(exports, version)
        case _:
            assert_never(mode)


def _of_version(under: ModeExplanation, version: tuple[int, int]) -> ModeExplanation:
    """With a word on the version, where it is not the one that the rules are read from."""
    if version == RULES_OF:
        return under
    rules, shown = (".".join(map(str, one)) for one in (RULES_OF, version))
    text = f"the order in which PyTorch asks is that of {rules}, and what the registries have is of {shown}"
    return replace(under, unsure=f"{under.unsure}; {text}" if under.unsure else text)


def _symbolic_make_fx(found: Registered, decompositions: Decompositions) -> Iterator[Implementation]:
    """What make_fx asks when sizes are symbolic. Then it finds the results of the graph's nodes by FakeTensorMode."""
    for one in traced_by_make_fx(found, decompositions, symbolic=True):
        yield (_no_result(found, symbolic=True) if one.kind is ImplementedBy.GRAPH_NODE else None) or one


def _no_tensor(found: Registered) -> Implementation | None:
    """Why Dynamo traces no call of an operator that gives a plain value; None where it gives none.

    Source: torch/_dynamo/variables/builder.py (wrap_fx_proxy_cls): a float is a constant, numbers in a list or a tuple
    are, too, and a symbolic number is part of the graph.
    """
    returned = [str(one.type) for one in found.schema.returns]
    if len(returned) != 1 or returned[0] not in _PLAIN:
        return None
    kind = "number" if returned[0] not in ("bool", "str") else "string" if returned[0] == "str" else "bool"
    return Implementation(
        ImplementedBy.UNSUPPORTED,
        "Dynamo",
        "",
        "",
        f"Dynamo traces no operator that returns a {kind}: it has to be a tensor",
    )


_PLAIN = ("bool", "int", "str", "ScalarType", "Layout", "MemoryFormat")
"""Types of a result that Dynamo takes for a constant of no operator's call."""


def _refused_by_dynamo(found: Registered) -> Implementation | None:
    """Why Dynamo traces no call of an operator, or none with these arguments; None where it does."""
    if found.sparse:
        return Implementation(ImplementedBy.UNSUPPORTED, "Dynamo", "", "", "Dynamo takes no sparse tensors")
    return _no_result(found)


def _no_result(found: Registered, *, symbolic: bool = False) -> Implementation | None:
    """Why FakeTensorMode knows no result of an operator that is traced; None where it does, or may."""
    chain = tuple(_fake(found, symbolic=symbolic))
    row = found.row("Meta")
    # The backend fallback for Meta is asked, and always raises.
    raises = chain[0].kind is ImplementedBy.META and row is not None and row.reason is Provenance.FALLBACK
    first = chain[1 if raises else 0]
    if first.function in _RAISE:
        why = "its result depends on the data of a tensor, and this rule raises"
        return replace(first, kind=ImplementedBy.UNSUPPORTED, why=why, gives_up="")
    return first if first.kind is ImplementedBy.UNSUPPORTED else None


_RAISE = ("torch._subclasses.fake_impls:dyn_shape", "torch._subclasses.fake_impls:data_dep")
"""Fake-tensor rules that refuse every call."""


def _registered(view: OperatorView, described: Described, registrations: Sequence[PythonRegistration]) -> Registered:
    first = next((one.keys for one in described.arguments if one.keys), None)
    numbers = [] if first is None else [key.backend for key in by_priority(first) if key.backend is not None]
    backend = BACKENDS[numbers[0]] if numbers else ""
    return Registered(view, registrations, schema_of(view), _is_sparse(described), backend)


def _with_dtensors(
    view: OperatorView,
    described: Described,
    registrations: Sequence[PythonRegistration],
    keys: tuple[tuple[DispatchKey, ...], tuple[DispatchKey, ...]],
    *,
    derives: bool,
) -> ModeExplanation:
    """A call whose tensors are all DTensors: no mode is on, and their own keys bring the call to DTensor."""
    inside = [replace(one, keys=one.keys | PYTHON_KEYS) if one.keys else one for one in described.arguments]
    call = explain(view, replace(described, arguments=tuple(inside)), thread_keys(*keys))
    if not any(one.keys for one in described.arguments):
        last = call.hops[-1].kernel
        why = "no argument is a tensor, so that DTensor is not asked"
        plain = Implementation(ImplementedBy.KERNEL, str(call.hops[-1].key), last.debug if last else "", "", why)
        return ModeExplanation("dtensor", call, (plain,))
    early = _before_the_mode(call)
    if early is not None:
        return ModeExplanation("dtensor", call, (early,), (), _unsure(call, early))
    call = replace(call, end="the kernel of Python calls DTensor with the operator", known=True)
    found = _registered(view, described, registrations)
    chain = tuple(sharded(found, derives=derives))
    handled = chain[0].kind is ImplementedBy.DTENSOR_HANDLER
    if not handled and view.name not in KNOWN_RESULTS:
        refused = _no_result(found)
        if "dynamic_output_shape" in view.tags and view.name != "aten::index.Tensor":
            why = "the shape of its result depends on data, and DTensor finds it by FakeTensorMode without symbols"
            refused = Implementation(ImplementedBy.UNSUPPORTED, _FAKE, "", "", why)
        if refused is not None:
            return ModeExplanation("dtensor", call, (refused,))
    if chain[0].kind is ImplementedBy.UNSUPPORTED:
        return ModeExplanation("dtensor", call, chain)
    later = None
    if not handled:
        above = tuple(key for key in FUNCTIONALITY_KEYS if key >= DispatchKey.Python)
        kernel = _kernel_of(view, described, (keys[0], (*keys[1], *above)))
        if view.name in SQUEEZES:
            why = "DTensor calls it with the dimensions that have one element in the whole tensor"
            kernel = replace(kernel, function=SQUEEZES[view.name], why=why)
        later = Later("on the local tensors", (kernel,))
    return ModeExplanation("dtensor", call, chain, (), unsure_rule(found, chain), "", later)


def _kernel_of(
    view: OperatorView, described: Described, keys: tuple[tuple[DispatchKey, ...], tuple[DispatchKey, ...]]
) -> Implementation:
    """The kernel in which a call without a mode ends."""
    last = explain(view, described, thread_keys(*keys)).hops[-1]
    if last.kernel is None or last.refusal is not None:
        why = f"nothing can run at {last.key}: {last.refusal}"
        return Implementation(ImplementedBy.UNSUPPORTED, str(last.key), "", "", why)
    return Implementation(ImplementedBy.KERNEL, str(last.key), last.kernel.debug, "", last.why)


_REACHED: dict[Mode, str] = {
    "fake": "the kernel of Python calls FakeTensorMode.__torch_dispatch__ with the operator",
    "make_fx": "the kernel of Python calls the mode of make_fx with the operator",
    "compile": "the kernel of Python calls the modes of AOTAutograd with the operator",
    "export": "the kernel of Python calls the modes of AOTAutograd with the operator",
    "dtensor": "the kernel of Python calls DTensor with the operator",
}


_PASSES = (
    "a pass of Inductor over the graph may take the operator out or put another in its place before the lowering, and "
    "Inductor calls the operator itself where a tensor is complex"
)


def _unsure(call: CallExplanation, early: Implementation | None) -> str:
    if early is None and not call.known:
        key = call.hops[-1].key
        return f"nobody knows whether the kernel at {key} redispatches: what is shown is what runs if it does"
    return ""


def _is_sparse(described: Described) -> bool:
    return any("Sparse" in str(key) for argument in described.arguments for key in argument.keys)


def _before_the_mode(call: CallExplanation) -> Implementation | None:
    """The kernel that ends the call before it reaches the mode; None when the call reaches it or may."""
    last = call.hops[-1]
    if last.key == DispatchKey.Python or not call.known:
        return None
    if last.kernel is None or last.refusal is not None:
        return Implementation(
            ImplementedBy.UNSUPPORTED, str(last.key), "", "", f"nothing can run at {last.key}: {last.refusal}"
        )
    composite = last.kernel.reason is Provenance.MATH
    return Implementation(
        ImplementedBy.COMPOSITE if composite else ImplementedBy.KERNEL,
        str(last.key),
        last.kernel.debug,
        "",
        "its key comes before Python, and what it calls dispatches anew, under the mode"
        if composite
        else "its key comes before Python, and it does not redispatch",
    )


def _python_kernel_of_hops(call: CallExplanation, found: Registered) -> Implementation | None:
    """The Python kernel that the Python dispatcher runs in place of the kernel of a hop, before the mode is reached."""
    for hop in call.hops:
        if hop.key == DispatchKey.Python:
            return None
        key = found.resolved(hop.key)
        registered = found.one("py_kernels", key)
        if registered is not None:
            why = "the Python dispatcher is on, and "
            why += f"it has a kernel for {key}" + ("" if key == str(hop.key) else f", which {hop.key} resolves to")
            return implementation_of(registered, ImplementedBy.PYTHON_KERNEL, str(hop.key), why)
    return None


# -- FakeTensorMode

_FAKE = "FakeTensorMode"

_ANSWERED = ("prim::device", "aten::size", "aten::stride", "aten::storage_offset")
_DIRECTLY = ("aten::is_coalesced", "aten::dense_dim", "aten::sparse_dim")
_SYMBOLIC_META = frozenset(
    f"aten::{name}"
    for name in (
        "empty.memory_format",
        "empty_strided",
        "as_strided_scatter",
        "as_strided",
        "as_strided_",
        "zeros",
        "detach",
        "view_as_real",
        "view_as_complex",
        "set_.source_Storage_storage_offset",
        "_sparse_coo_tensor_with_dims_and_tensors",
    )
)
"""Operators whose C++ Meta kernel takes symbolic sizes, so that no decomposition is looked for."""
_SPECIAL = ("aten::view", "aten::_unsafe_view", "aten::slice.Tensor")
"""Operators whose fake-tensor rule comes before a decomposition when a size is symbolic."""
_MAY_RUN_REAL = ("debugprims", "prims", "aten", "xla", "vision", "torchtext", "torchaudio", "quantized")
"""Namespaces whose kernels FakeTensorMode runs on zeros when there is nothing else."""
_DECOMPOSITIONS = "torch._decomp.decompositions:"


def _fake(found: Registered, *, symbolic: bool) -> Iterator[Implementation]:
    """What FakeTensorMode asks, in order, up to the first that cannot give up."""
    name = found.view.name
    if name in _ANSWERED or name in _DIRECTLY:
        yield Implementation(
            ImplementedBy.DIRECT, _FAKE, name, "", "the mode answers it from the tensor itself, first of all"
        )
        return
    fast = found.one("fast_fake_rules") if symbolic else None
    if fast is not None:
        yield implementation_of(
            fast, ImplementedBy.FAST_RULE, _FAKE, "a size is symbolic, and fast rules are asked first"
        )
        return
    if (
        found.one("meta_functions") is None
        and "view_copy" not in found.view.tags
        and name not in _SYMBOLIC_META
        and not (symbolic and name in _SPECIAL)
    ):
        decomposed = next(_decomposed_fake(found, symbolic=symbolic), None)
        if decomposed is not None:
            yield decomposed
            return
    if found.namespace in ("prims", "rngprims"):
        meta = found.one("torch_library", "fake")
        if meta is not None:
            yield implementation_of(meta, ImplementedBy.PRIM_META, _FAKE, "a prim has a meta function of its own")
            return
        if found.namespace == "prims" and (debug := found.kernel_at("Meta")) is not None:
            yield Implementation(ImplementedBy.PRIM_META, _FAKE, debug, "", "a prim has a meta function of its own")
            return
    library = found.one("torch_library", "fake")
    if library is not None:
        yield implementation_of(
            library, ImplementedBy.LIBRARY_FAKE, _FAKE, "there is no decomposition, and torch.library comes next"
        )
        return
    for registry in ("fake_rules", "fake_checks"):
        for rule in found.all(registry):
            why = "by the operator" if registry == "fake_rules" else "by a property of the operator"
            yield implementation_of(
                rule,
                ImplementedBy.FAKE_RULE,
                _FAKE,
                f"rules come before Meta kernels, this one {why}",
                NOT_IMPLEMENTED,
            )
    meta_row = found.row("Meta")
    if meta_row is not None:
        raised = "when it raises NotImplementedError"
        why = "the kernel of the slot Meta, on meta tensors"
        yield Implementation(ImplementedBy.META, _FAKE, meta_row.debug, "", why, raised)
    yield _last_resort(found, symbolic=symbolic)


def _decomposed_fake(found: Registered, *, symbolic: bool) -> Iterator[Implementation]:
    table = found.one("decompositions", "post_autograd")
    if table is not None and (symbolic or (table.function.startswith(_DECOMPOSITIONS) and not found.sparse)):
        why = "there is no meta function in Python, and decompositions in Python are preferred to C++"
        yield implementation_of(table, ImplementedBy.DECOMPOSITION, _FAKE, why)
    composite = found.one("py_kernels", "CompositeImplicitAutograd")
    if composite is not None:
        yield implementation_of(
            composite, ImplementedBy.COMPOSITE, _FAKE, "a Python kernel for CompositeImplicitAutograd decomposes it"
        )
    debug = found.kernel_at("CompositeImplicitAutograd")
    if debug is not None:
        yield Implementation(
            ImplementedBy.COMPOSITE, _FAKE, debug, "", "the kernel for CompositeImplicitAutograd decomposes it"
        )


def _last_resort(found: Registered, *, symbolic: bool) -> Implementation:
    """What runs when there is no Meta kernel."""
    if found.namespace not in ("aten", "prim", "prims"):
        mutable = any(one.alias is not None and one.alias.is_write for one in found.schema.arguments)
        if {"out", "inplace"} & {*found.view.tags} or (mutable and not found.schema.returns):
            why = "there is no Meta kernel, and what an operator that only writes to its arguments gives is known"
            return Implementation(ImplementedBy.TRIVIAL_FAKE, _FAKE, "", "", why)
    if found.namespace in _MAY_RUN_REAL and not symbolic and "inplace_view" not in found.view.tags:
        why = "there is no Meta kernel, so the kernel of the device runs on tensors of zeros"
        return Implementation(ImplementedBy.REAL_KERNEL, _FAKE, found.view.name, "", why)
    reason = (
        "a size is symbolic" if symbolic else f"operators of {found.namespace} are not run on zeros to find the result"
    )
    why = f"there is no Meta kernel, and {reason}; torch.library.register_fake would give it one"
    return Implementation(ImplementedBy.UNSUPPORTED, _FAKE, "", "", why)
