"""Explain a call that is traced into a graph: under make_fx, torch.compile and torch.export.

Each function yields what is asked once the call has reached the mode, in order, up to the first that cannot give up.
Source: torch/fx/experimental/proxy_tensor.py (proxy_call), torch/_subclasses/functional_tensor.py (_can_decompose),
torch/utils/_python_dispatch.py (autograd_would_have_decomposed), torch/_functorch/aot_autograd.py,
torch/export/exported_program.py (_override_composite_implicit_decomp), torch/_inductor/graph.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from dispatchlab.call.implementation import Implementation, ImplementedBy, Registered, implementation_of
from dispatchlab.model.python_layer import Compiler, Decompositions

NOT_IMPLEMENTED = "when it returns NotImplemented"
COMPOSITE_IMPLICIT = "CompositeImplicitAutograd"
_MAKE_FX = "make_fx"
_FUNCTIONAL = "FunctionalTensorMode"

TABLE_REGISTRIES: dict[Decompositions, tuple[str, ...]] = {
    "none": (),
    "core_aten": ("export_decompositions", "py_kernels"),
    "inductor": ("decompositions", "inductor_decompositions"),
    "all": ("decompositions",),
    "pre_autograd": ("decompositions",),
}
"""The registries of Python that a table of decompositions is made of."""


def traced_by_make_fx(found: Registered, table: Decompositions, *, symbolic: bool) -> Iterator[Implementation]:
    """What `make_fx(decomposition_table=...)` asks."""
    if found.view.name == "prim::device":
        yield Implementation(ImplementedBy.DIRECT, _MAKE_FX, found.view.name, "", "the mode answers it first of all")
        return
    decomposed = _of_table(found, table)
    if decomposed is not None:
        yield decomposed
        if not decomposed.gives_up:
            return
    yield from _recorded(found, real=not symbolic)


def compiled(found: Registered, compiler: Compiler) -> Iterator[Implementation]:
    """What AOTAutograd and the compiler ask."""
    match compiler:
        case "inductor":
            yield from _by_aot_autograd(found, _of_table(found, "inductor"), tuple(_by_inductor(found)))
        case "aot_eager":
            yield from _by_aot_autograd(found, None, tuple(_recorded(found, real=False)))
        case _:
            assert_never(compiler)


def exported(found: Registered) -> Iterator[Implementation]:
    """What torch.export asks, which traces before autograd and without a table."""
    yield from _recorded(found, real=False, before_autograd=True)


def run_decompositions(found: Registered) -> Iterator[Implementation]:
    """What `ExportedProgram.run_decompositions()` asks, with the default table, for an operator of the graph."""
    node = tuple(_recorded(found, real=False))
    preservable = is_preservable(found)
    if not preservable or found.has_backend_kernel:
        yield from _by_aot_autograd(found, None if preservable else _of_table(found, "core_aten"), node)
        return
    # Its composite kernel is replaced by what the table has, and it passes autograd by.
    decomposed = _of_table(found, "core_aten")
    if decomposed is not None:
        yield decomposed
    if decomposed is None or decomposed.gives_up:
        why = "the default table leaves it as it is, although it is composite"
        yield Implementation(ImplementedBy.GRAPH_NODE, _MAKE_FX, found.view.name, "", why)


# -- the parts of the path


def _by_aot_autograd(
    found: Registered, decomposed: Implementation | None, end: tuple[Implementation, ...]
) -> Iterator[Implementation]:
    """Functionalization, then the tables of decompositions of the compiler and of AOTAutograd, then what is left."""
    composite = _composite(found)
    if composite is not None and found.view.name not in _METADATA and _decomposes_when_functionalized(found):
        yield composite
        return
    functional = _functionalized(found)
    if functional is not None:
        yield functional
        return
    own = found.one("aot_decompositions")
    if decomposed is None and own is not None:
        why = "the table of AOTAutograd has it, whatever the compiler"
        decomposed = implementation_of(own, ImplementedBy.DECOMPOSITION, _MAKE_FX, why, NOT_IMPLEMENTED)
    if decomposed is not None:
        yield decomposed
        if not decomposed.gives_up:
            return
    yield from end


def _decomposes_when_functionalized(found: Registered) -> bool:
    schema = found.schema
    unsafe = "maybe_aliasing_or_mutating" in found.view.tags or found.view.name == "aten::native_batch_norm"
    return unsafe or any(one.alias is not None for one in schema.arguments) or not found.has_backend_kernel


def _functionalized(found: Registered) -> Implementation | None:
    name = found.view.name
    debug = found.kernel_at("Functionalize")
    if any(one.alias is not None and one.alias.is_write for one in found.schema.arguments):
        if debug is None and found.namespace not in ("aten", "prim", "prims"):
            why = f"{name} writes to its arguments and has no kernel for Functionalize: auto_functionalized wraps it"
        else:
            why = f"{name} writes to its arguments: the graph has the functional operator, and copies at its end"
        return Implementation(ImplementedBy.FUNCTIONALIZATION, _FUNCTIONAL, debug or "", "", why)
    effect = next((one for one in found.all("torch_library") if one.key.startswith("effect ")), None)
    if effect is not None and not any(one.alias is not None for one in found.schema.arguments):
        why = f"{name} has an effect ({effect.key.removeprefix('effect ')}): with_effects wraps it"
        return implementation_of(effect, ImplementedBy.FUNCTIONALIZATION, _FUNCTIONAL, why)
    if name == "aten::lift_fresh":
        why = "the tensor is functional already, so the kernel for Functionalize gives a view of it"
        return Implementation(ImplementedBy.FUNCTIONALIZATION, _FUNCTIONAL, debug or "", "", why)
    return None


def _recorded(found: Registered, *, real: bool, before_autograd: bool = False) -> Iterator[Implementation]:
    """What becomes of an operator that no table has."""
    name = found.view.name
    if not before_autograd and name not in _SIZES and not found.has_backend_kernel:
        composite = _composite(found)
        if composite is not None:
            yield composite
            return
    if name == "aten::is_nonzero":
        why = "it is traced as (x != 0).item()"
        yield Implementation(ImplementedBy.DIRECT, _MAKE_FX, name, "", why)
        return
    if real and "data_dependent_output" in found.view.tags:
        why = "it takes a value out of a tensor that is traced; tracing_mode='symbolic' may trace it"
        yield Implementation(ImplementedBy.UNSUPPORTED, _MAKE_FX, "", "", why)
        return
    if name == "aten::lift_fresh":
        why = "the graph calls lift_fresh_copy in its place, as what it lifts becomes a constant"
        yield Implementation(ImplementedBy.GRAPH_NODE, _MAKE_FX, "aten::lift_fresh_copy", "", why)
        return
    if before_autograd:
        why = "torch.export traces before autograd and has no table of decompositions: the graph calls the operator"
    else:
        why = "no table of decompositions has it: the graph calls the operator"
    yield Implementation(ImplementedBy.GRAPH_NODE, _MAKE_FX, name, "", why)


def _by_inductor(found: Registered) -> Iterator[Implementation]:
    """What Inductor asks for a node of the graph."""
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
        why = "no decomposition takes its place, and there is a lowering"
        yield implementation_of(lowering, ImplementedBy.LOWERING, "Inductor", why)
    else:
        why = "there is no decomposition and no lowering: Inductor makes a fallback, which calls the operator"
        yield Implementation(ImplementedBy.IMPLICIT_FALLBACK, "Inductor", "", "", why)


# -- tables of decompositions


def _of_table(found: Registered, table: Decompositions) -> Implementation | None:
    """What a table of decompositions has for the operator."""
    name = found.view.name
    if name == "aten::sym_numel":
        function = "torch._decomp.decompositions:sym_numel"
        return Implementation(ImplementedBy.DECOMPOSITION, _MAKE_FX, function, "", "make_fx adds it to every table")
    match table:
        case "none":
            return None
        case "all":
            why = "the table of all decompositions has it"
            registered = found.one("decompositions", "post_autograd")
        case "pre_autograd":
            why = "the table of decompositions before autograd has it"
            registered = found.one("decompositions", "pre_autograd")
        case "core_aten":
            why = "the table of decompositions to core ATen has it"
            registered = found.one("export_decompositions")
            if registered is None and is_preservable(found) and name not in _PRESERVED:
                return _composite(found, "the table of decompositions to core ATen has it by its composite kernel")
        case "inductor":
            random = _random(found)
            if random is not None:
                return random
            why = "the table of decompositions of Inductor has it, and AOTAutograd applies that after autograd"
            registered = found.one("inductor_decompositions")
            if registered is not None and registered.function.endswith(_BY_COMPOSITE):
                return _composite(found, "the table of decompositions of Inductor has it by its composite kernel")
        case _:
            assert_never(table)
    if registered is None:
        return None
    return implementation_of(registered, ImplementedBy.DECOMPOSITION, _MAKE_FX, why, NOT_IMPLEMENTED)


def _composite(found: Registered, why: str = "") -> Implementation | None:
    """The composite kernel, as `OpOverload.decompose` finds it: Python's before that of C++."""
    why = why or "autograd was passed by, and would have run the composite kernel"
    python = found.one("py_kernels", COMPOSITE_IMPLICIT)
    if python is not None:
        return implementation_of(python, ImplementedBy.COMPOSITE, _MAKE_FX, why)
    debug = found.kernel_at(COMPOSITE_IMPLICIT)
    return None if debug is None else Implementation(ImplementedBy.COMPOSITE, _MAKE_FX, debug, "", why)


def is_preservable(found: Registered) -> bool:
    """Whether torch.export may leave an operator in the graph that has a composite kernel: it has to be functional."""
    tags, name = found.view.tags, found.view.name
    return (
        found.has(COMPOSITE_IMPLICIT)
        and "maybe_aliasing_or_mutating" not in tags
        and name not in _METADATA
        and name != "aten::native_batch_norm"
        and all(one.alias is None for one in found.schema.arguments)
    )


_PRESERVED = frozenset(
    f"aten::{name}"
    for name in (
        "upsample_bilinear2d.vec",
        "upsample_nearest2d.vec",
        "silu_backward",
        "mish_backward",
        "_fused_rms_norm",
    )
)
"""Composite operators that the default table of torch.export leaves as they are."""
_METADATA = frozenset(
    {
        *(
            f"aten::{name}"
            for name in (
                "is_contiguous",
                "is_contiguous.memory_format",
                "is_strides_like_format",
                "is_non_overlapping_and_dense",
                "size",
                "sym_size",
                "stride",
                "sym_stride",
                "storage_offset",
                "sym_storage_offset",
                "numel",
                "sym_numel",
                "dim",
            )
        ),
        "prim::device",
    }
)
"""Operators that FunctionalTensorMode asks the tensor inside for."""
_SIZES = ("aten::size", "aten::stride", "aten::storage_offset")

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


def _random(found: Registered) -> Implementation | None:
    """The decomposition of an operator that draws random numbers, which Inductor adds to its table."""
    namespace, _, name = found.view.name.partition("::")
    if namespace != "aten":
        return None
    why = "Inductor adds decompositions that draw random numbers to its table, unless its fallback_random is set"
    registered = found.one("decompositions", "post_autograd")
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
    return Implementation(ImplementedBy.DECOMPOSITION, _MAKE_FX, function, "", why, gives_up)
