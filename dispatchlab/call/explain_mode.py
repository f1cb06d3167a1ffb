"""Explain a call under a mode of Python: what is asked for an implementation, in which order, and which one runs.

The hops of the dispatcher come from `explain`. This module goes on where they reach the mode: `fake` is FakeTensorMode,
`compile` is torch.compile, which traces with AOTAutograd and compiles with Inductor.
Source: torch/_ops.py (resolve_key), torch/_subclasses/fake_tensor.py (_dispatch_impl),
torch/_subclasses/functional_tensor.py, torch/fx/experimental/proxy_tensor.py (proxy_call), torch/_inductor/graph.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from dispatchlab.call.explain import CallExplanation, Described, explain, schema_of, thread_keys
from dispatchlab.call.implementation import Implementation, ImplementedBy, Registered, implementation_of
from dispatchlab.call.tensor_keys import PYTHON_KEYS
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.operator_view import OperatorView
from dispatchlab.model.python_layer import Mode, PythonRegistration

REGISTRIES_OF: dict[Mode, tuple[str, ...]] = {
    "fake": ("decompositions", "meta_functions", "fake_rules", "fake_checks", "fast_fake_rules", "torch_library"),
    "compile": ("py_kernels", "aot_decompositions", "inductor_decompositions", "inductor_lowerings"),
}
"""The registries of Python without which nothing can be said of a mode."""


@dataclass(frozen=True, slots=True)
class ModeExplanation:
    """A call under a mode.

    Args:
        mode: the mode.
        call: the hops of the dispatcher up to the mode, or up to the implementation that runs before it.
        chain: what runs, and what follows when it gives up, in order.
        symbolic: the same when a size is symbolic; empty where that makes no difference.
        unsure: what cannot be known beforehand; empty when all is.
    """

    mode: Mode
    call: CallExplanation
    chain: tuple[Implementation, ...]
    symbolic: tuple[Implementation, ...] = ()
    unsure: str = ""

    @property
    def python_dispatcher(self) -> bool:
        """Whether the Python dispatcher is on."""
        return self.mode == "compile"

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
) -> ModeExplanation:
    """Explain a call under a mode.

    Args:
        mode: the mode.
        view: the operator.
        described: its arguments.
        registrations: what Python registered for it.
        include: the keys that a guard includes besides.
        exclude: the keys that a guard excludes.

    Raises:
        NotCallableError: the operator has no schema.
    """
    thread = thread_keys((*include, DispatchKey.Python, DispatchKey.PythonTLSSnapshot), exclude)
    inside = [replace(one, keys=one.keys | PYTHON_KEYS) if one.keys else one for one in described.arguments]
    call = explain(view, replace(described, arguments=tuple(inside)), thread)
    found = Registered(view, registrations, schema_of(view), _is_sparse(described))
    if call.hops[-1].key == DispatchKey.Python:
        call = replace(call, end=_REACHED[mode], known=True)
    match mode:
        case "fake":
            early = _before_the_mode(call)
            chain = (early,) if early else tuple(_fake(found, symbolic=False))
            symbolic = () if early else tuple(_fake(found, symbolic=True))
            return ModeExplanation(mode, call, chain, symbolic if symbolic != chain else (), _unsure(call, early))
        case "compile":
            early = _python_kernel_of_hops(call, found) or _before_the_mode(call)
            chain = (early,) if early else tuple(_compiled(found))
            unsure = _unsure(call, early)
            if not unsure and chain[-1].where == "Inductor":
                unsure = _PASSES
            return ModeExplanation(mode, call, chain, (), unsure)
        case _:
            assert_never(mode)


_REACHED: dict[Mode, str] = {
    "fake": "the kernel of Python calls FakeTensorMode.__torch_dispatch__ with the operator",
    "compile": "the kernel of Python calls the modes of AOTAutograd with the operator",
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
_NOT_IMPLEMENTED = "when it returns NotImplemented"

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
                _NOT_IMPLEMENTED,
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


# -- torch.compile


_RANDOM = ("cauchy", "exponential", "geometric", "log_normal", "normal", "native_dropout")
_RANDOM_OF_INDUCTOR = {
    "rand_like": "rand_like",
    "rand_like.generator": "rand_like",
    "randn_like": "randn_like",
    "randn_like.generator": "randn_like",
    "randint_like": "randint_like",
    "randint_like.low_dtype": "randint_like_low",
    "rrelu_with_noise_functional": "rrelu_with_noise_functional",
}
"""Decompositions of Inductor that no registry has, by the operator of aten: they depend on its configuration."""


def _random(found: Registered) -> Implementation | None:
    """The decomposition of an operator that draws random numbers, which Inductor adds to its table."""
    namespace, _, name = found.view.name.partition("::")
    if namespace != "aten":
        return None
    why = "Inductor adds decompositions that draw random numbers to its table, unless its fallback_random is set"
    registered = found.one("decompositions", "post_autograd")
    if name.partition(".")[0] in _RANDOM and registered is not None:
        return implementation_of(registered, ImplementedBy.DECOMPOSITION, "make_fx", why)
    if name in _RANDOM_OF_INDUCTOR:
        function = f"torch._inductor.decomposition:{_RANDOM_OF_INDUCTOR[name]}"
    elif name == "bernoulli.p":
        function = "torch._decomp.decompositions_for_rng:bernoulli_p"
    else:
        return None
    return Implementation(ImplementedBy.DECOMPOSITION, "make_fx", function, "", why)


def _compiled(found: Registered) -> Iterator[Implementation]:
    """What AOTAutograd and Inductor ask after the dispatcher, in order, up to the first that cannot give up."""
    if any(one.alias is not None and one.alias.is_write for one in found.schema.arguments):
        name = found.view.name
        debug = found.kernel_at("Functionalize")
        if debug is None and found.namespace not in ("aten", "prim", "prims"):
            why = f"{name} writes to its arguments and has no kernel for Functionalize: auto_functionalized wraps it"
        else:
            why = f"{name} writes to its arguments: the graph has the functional operator, and copies at its end"
        yield Implementation(ImplementedBy.FUNCTIONALIZATION, "FunctionalTensorMode", debug or "", "", why)
        return
    if found.view.name == "aten::lift_fresh":
        why = "the tensor is functional already, so the kernel for Functionalize gives a view of it"
        yield Implementation(
            ImplementedBy.FUNCTIONALIZATION, "FunctionalTensorMode", found.kernel_at("Functionalize") or "", "", why
        )
        return
    table = found.one("inductor_decompositions")
    random = _random(found)
    if random is not None:
        yield random
        return
    if table is not None:
        why = "the table of decompositions of Inductor has it, and AOTAutograd applies that after autograd"
        yield implementation_of(table, ImplementedBy.DECOMPOSITION, "make_fx", why, _NOT_IMPLEMENTED)
    else:
        own = found.one("aot_decompositions")
        if own is not None:
            why = "the table of AOTAutograd has it, whatever the compiler"
            yield implementation_of(own, ImplementedBy.DECOMPOSITION, "make_fx", why, _NOT_IMPLEMENTED)
    user = found.one("inductor_user_lowerings")
    if user is not None:
        why = "no decomposition takes its place, and lowerings of users come first"
        yield implementation_of(user, ImplementedBy.USER_LOWERING, "Inductor", why, "when it returns None")
    fallback = found.one("inductor_fallbacks")
    lowering = found.one("inductor_lowerings")
    if fallback is not None:
        why = "Inductor has a fallback for it: the compiled code calls the operator"
        yield implementation_of(fallback, ImplementedBy.FALLBACK, "Inductor", why)
    elif lowering is not None:
        yield implementation_of(
            lowering, ImplementedBy.LOWERING, "Inductor", "no decomposition takes its place, and there is a lowering"
        )
    else:
        why = "there is no decomposition and no lowering: Inductor makes a fallback, which calls the operator"
        yield Implementation(ImplementedBy.IMPLICIT_FALLBACK, "Inductor", "", "", why)
