"""What is asked for a call that is traced into a graph: under make_fx, torch.compile and torch.export.

Each function yields what is asked once the call has reached the mode, in order, up to the first that cannot give up.
Source: torch/fx/experimental/proxy_tensor.py (proxy_call), torch/_subclasses/functional_tensor.py (_can_decompose),
torch/utils/_python_dispatch.py (autograd_would_have_decomposed), torch/_functorch/aot_autograd.py,
torch/export/exported_program.py (_override_composite_implicit_decomp), torch/_inductor/graph.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from dispatchlab.model.python_layer import EFFECT, Compiler, Decompositions
from dispatchlab.questions.explain.registered import Registered, implementation_of, unsupported
from dispatchlab.questions.explain.result import Implementation, ImplementedBy

NOT_IMPLEMENTED = "when it returns NotImplemented"
_MAKE_FX = "make_fx"
_FUNCTIONAL = "FunctionalTensorMode"


def traced_by_make_fx(operator: Registered, table: Decompositions, *, symbolic: bool) -> Iterator[Implementation]:
    """What `make_fx(decomposition_table=...)` asks."""
    if operator.view.name == "prim::device":
        yield implementation_of(operator.view.name, ImplementedBy.DIRECT, _MAKE_FX, "the mode answers it first of all")
        return
    decomposed = _of_table(operator, table)
    if decomposed is not None:
        yield decomposed
        if not decomposed.gives_up:
            return
    yield _recorded(operator, real=not symbolic)


def compiled(operator: Registered, compiler: Compiler) -> Iterator[Implementation]:
    """What AOTAutograd and the compiler ask."""
    match compiler:
        case "inductor":
            yield from _by_aot_autograd(operator, _of_table(operator, "inductor"), tuple(_by_inductor(operator)))
        case "aot_eager":
            yield from _by_aot_autograd(operator, None, (_recorded(operator, real=False),))
        case _:
            assert_never(compiler)


def exported(operator: Registered) -> Implementation:
    """What torch.export makes of an operator; it traces before autograd and without a table."""
    if not operator.keeps_writes:
        composite = _composite(operator, "torch.export keeps no view and no write that is composite")
        if composite is not None and operator.view.name not in _METADATA and _is_unsafe(operator):
            return composite
        functional = _functionalized(operator)
        if functional is not None:
            return functional
    return _recorded(operator, real=False, before_autograd=True)


def run_decompositions(operator: Registered) -> Iterator[Implementation]:
    """What `ExportedProgram.run_decompositions()` asks, with the default table, for an operator of the graph."""
    preservable = is_preservable(operator)
    if not preservable or operator.keeps_kernel:
        node = (_recorded(operator, real=False),)
        yield from _by_aot_autograd(operator, None if preservable else _of_table(operator, "core_aten"), node)
        return
    # Its composite kernel is replaced by what the table has, and it passes autograd by.
    decomposed = _of_table(operator, "core_aten")
    if decomposed is not None:
        yield decomposed
    if decomposed is None or decomposed.gives_up:
        why = "the default table leaves it as it is, although it is composite"
        yield implementation_of(operator.view.name, ImplementedBy.GRAPH_NODE, _MAKE_FX, why)


# -- the parts of the path


def _by_aot_autograd(
    operator: Registered, decomposed: Implementation | None, end: tuple[Implementation, ...]
) -> Iterator[Implementation]:
    """Functionalization, then the tables of decompositions of the compiler and of AOTAutograd, then what is left."""
    composite = _composite(operator)
    if composite is not None and operator.view.name not in _METADATA and _decomposes_when_functionalized(operator):
        yield composite
        return
    functional = _functionalized(operator)
    if functional is not None:
        yield functional
        return
    own = operator.first("aot_decompositions")
    if decomposed is None and own is not None:
        why = "the table of AOTAutograd has it, whatever the compiler"
        decomposed = implementation_of(own, ImplementedBy.DECOMPOSITION, _MAKE_FX, why, NOT_IMPLEMENTED)
    if decomposed is not None:
        yield decomposed
        if not decomposed.gives_up:
            return
    yield from end


def _decomposes_when_functionalized(operator: Registered) -> bool:
    return _is_unsafe(operator) or not operator.keeps_kernel


def _is_unsafe(operator: Registered) -> bool:
    """Whether its schema, a tag or what is known of it says that a result may alias an argument, or that it writes."""
    tags, name = operator.view.tags, operator.view.name
    return "maybe_aliasing_or_mutating" in tags or name in _UNSAFE or operator.aliases


def _functionalized(operator: Registered) -> Implementation | None:
    name = operator.view.name
    debug = operator.kernel_at("Functionalize")
    if operator.writes:
        if debug is None and operator.namespace not in ("aten", "prim", "prims"):
            why = f"{name} writes to its arguments and has no kernel for Functionalize: auto_functionalized wraps it"
        else:
            why = f"{name} writes to its arguments: the graph has the functional operator, and copies at its end"
        return implementation_of(debug or "", ImplementedBy.FUNCTIONALIZATION, _FUNCTIONAL, why)
    effects = (entry for entry in operator.active("torch_library") if entry.is_effect)
    effect = next(effects, None)
    if effect is not None and not operator.aliases:
        why = f"{name} has an effect ({effect.key.removeprefix(EFFECT)}): with_effects wraps it"
        return implementation_of(effect, ImplementedBy.FUNCTIONALIZATION, _FUNCTIONAL, why)
    if name == "aten::lift_fresh":
        why = "the tensor is functional already, so the kernel for Functionalize gives a view of it"
        return implementation_of(debug or "", ImplementedBy.FUNCTIONALIZATION, _FUNCTIONAL, why)
    return None


def _recorded(operator: Registered, *, real: bool, before_autograd: bool = False) -> Implementation:
    """What becomes of an operator that no table has."""
    name = operator.view.name
    if not before_autograd and name not in _SIZES and not operator.keeps_kernel:
        composite = _composite(operator)
        if composite is not None:
            return composite
    if name == "aten::is_nonzero":
        return implementation_of(name, ImplementedBy.DIRECT, _MAKE_FX, "it is traced as (x != 0).item()")
    if real and "data_dependent_output" in operator.view.tags:
        why = "it takes a value out of a tensor that is traced; tracing_mode='symbolic' may trace it"
        return unsupported(_MAKE_FX, why)
    why = "no table of decompositions has it: the graph calls the operator"
    if name == "aten::lift_fresh":
        name = "aten::lift_fresh_copy"
        why = "the graph calls lift_fresh_copy in its place, as what it lifts becomes a constant"
    elif before_autograd:
        why = "torch.export traces before autograd and has no table of decompositions: the graph calls the operator"
    return implementation_of(name, ImplementedBy.GRAPH_NODE, _MAKE_FX, why)


def _by_inductor(operator: Registered) -> Iterator[Implementation]:
    """What Inductor asks for a node of the graph."""
    user = operator.first("inductor_user_lowerings")
    if user is not None:
        why = "no decomposition takes its place, and lowerings of users come first"
        yield implementation_of(user, ImplementedBy.USER_LOWERING, "Inductor", why, "when it returns None")
    fallback = operator.first("inductor_fallbacks")
    lowering = operator.first("inductor_lowerings")
    if fallback is not None:
        why = "Inductor has a fallback for it: the compiled code calls the operator"
        yield implementation_of(fallback, ImplementedBy.FALLBACK, "Inductor", why)
    elif lowering is not None:
        why = "no decomposition takes its place, and there is a lowering"
        yield implementation_of(lowering, ImplementedBy.LOWERING, "Inductor", why)
    else:
        why = "there is no decomposition and no lowering: Inductor makes a fallback, which calls the operator"
        yield implementation_of("", ImplementedBy.IMPLICIT_FALLBACK, "Inductor", why)


# -- tables of decompositions


def _of_table(operator: Registered, table: Decompositions) -> Implementation | None:
    """What a table of decompositions has for the operator."""
    name = operator.view.name
    if name == "aten::sym_numel":
        function = "torch._decomp.decompositions:sym_numel"
        return implementation_of(function, ImplementedBy.DECOMPOSITION, _MAKE_FX, "make_fx adds it to every table")
    match table:
        case "none":
            return None
        case "all":
            why = "the table of all decompositions has it"
            registered = operator.first("decompositions", "post_autograd")
        case "pre_autograd":
            why = "the table of decompositions before autograd has it"
            registered = operator.first("decompositions", "pre_autograd")
        case "core_aten":
            why = "the table of decompositions to core ATen has it"
            registered = operator.first("export_decompositions")
            preserved, first = (_PRESERVED, registered is None) if operator.keeps_kernels else (_PRESERVED[:2], True)
            if first and is_preservable(operator) and name not in preserved:
                return _composite(operator, "the table of decompositions to core ATen has it by its composite kernel")
        case "inductor":
            random = _random(operator)
            if random is not None:
                return random
            why = "the table of decompositions of Inductor has it, and AOTAutograd applies that after autograd"
            registered = operator.first("inductor_decompositions")
            if registered is not None and registered.function.endswith(_BY_COMPOSITE):
                return _composite(operator, "the table of decompositions of Inductor has it by its composite kernel")
        case _:
            assert_never(table)
    if registered is None:
        return None
    return implementation_of(registered, ImplementedBy.DECOMPOSITION, _MAKE_FX, why, NOT_IMPLEMENTED)


def _composite(operator: Registered, why: str = "") -> Implementation | None:
    """The composite kernel, which takes the operator apart."""
    if operator.composite is None:
        return None
    why = why or "autograd was passed by, and would have run the composite kernel"
    return implementation_of(operator.composite, ImplementedBy.COMPOSITE, _MAKE_FX, why)


def is_preservable(operator: Registered) -> bool:
    """Whether run_decompositions() may leave an operator that has a composite kernel: it has to be functional."""
    if not operator.keeps_writes or operator.composite is None:
        return False
    return operator.view.name not in _METADATA and not _is_unsafe(operator)


_UNSAFE = ("aten::native_batch_norm", "aten::batch_norm", "aten::_batch_norm_impl_index")
"""Operators that write, although their schemas do not say so; a tag says it of the last two since 2.6."""


_PRESERVED = tuple(
    f"aten::{name}"
    for name in (
        *("upsample_bilinear2d.vec", "upsample_nearest2d.vec"),
        *("silu_backward", "mish_backward", "_fused_rms_norm"),
    )
)
"""Composite operators that the default table of torch.export leaves as they are. Before 2.10 those are the first two,
and the composite kernels of all others come before what the table has."""
_SIZES = ("aten::size", "aten::stride", "aten::storage_offset")
_METADATA = (
    *_SIZES,
    *("aten::is_contiguous", "aten::is_contiguous.memory_format", "aten::is_strides_like_format"),
    *("aten::is_non_overlapping_and_dense", "aten::sym_size", "aten::sym_stride", "aten::sym_storage_offset"),
    *("aten::numel", "aten::sym_numel", "aten::dim", "prim::device"),
)
"""Operators that FunctionalTensorMode asks the tensor inside for."""

_BY_COMPOSITE = "._special_op_to_decompose_cia"
"""What the default table of torch.export has for a composite operator of a package, and Inductor's table after it."""

_RANDOM = frozenset(
    {
        *("cauchy", "cauchy_", "exponential", "exponential_", "geometric", "geometric_", "log_normal", "log_normal_"),
        *("native_dropout", "normal", "normal_", "normal_functional", "rrelu_with_noise", "rrelu_with_noise_"),
        "uniform_",
    }
)
"""Operators of aten that draw random numbers, all overloads of each. Inductor adds decompositions of them."""
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


def _random(operator: Registered) -> Implementation | None:
    """The decomposition of an operator that draws random numbers, which Inductor adds to its table."""
    namespace, _, name = operator.view.name.partition("::")
    if namespace != "aten":
        return None
    why = "Inductor adds decompositions that draw random numbers to its table, unless its fallback_random is set"
    registered = operator.first("decompositions", "post_autograd")
    if name.partition(".")[0] in _RANDOM and registered is not None:
        return implementation_of(registered, ImplementedBy.DECOMPOSITION, _MAKE_FX, why)
    gives_up = ""
    if name in _RANDOM_OF_INDUCTOR:
        function = f"torch._inductor.decomposition:{_RANDOM_OF_INDUCTOR[name]}"
    elif name == "bernoulli.p" or name.partition(".")[0] == "bernoulli_":
        function = f"torch._decomp.decompositions_for_rng:{'bernoulli_p' if name == 'bernoulli.p' else 'bernoulli_'}"
        gives_up = f"{NOT_IMPLEMENTED}, as it does on the CPU"
    else:
        return None
    return implementation_of(function, ImplementedBy.DECOMPOSITION, _MAKE_FX, why, gives_up)
