"""Random scenarios, drawn from keys, kernels and schemas that have something to do with one another."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from dispatchlab.model.cpp_signature import cpp_signature
from dispatchlab.model.keys import ALIAS_KEYS, FORMER_KEYS, PARSED_BY_TORCH, DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import AliasKind, Block, BlockKind, Def, Fallback, Impl, Kernel, KernelForm
from dispatchlab.model.schema_parser import parse_inferred, parse_schema

OPERATORS = (OperatorName("test", "foo"), OperatorName("test", "foo", "out"))
_ONE = parse_inferred("(Tensor _0) -> Tensor _0")
KERNELS = (
    Kernel(KernelForm.BOXED),
    Kernel(KernelForm.FALLTHROUGH),
    Kernel(KernelForm.UNBOXED, _ONE, cpp_signature(_ONE)),
)
SCHEMAS = (
    "(Tensor x) -> Tensor",
    "(Tensor x, Tensor y) -> Tensor",
    "(Tensor(a!) x) -> Tensor(a!)",
    "(int x) -> int",
    "(SymInt x) -> Tensor",
)
ALIAS_KINDS = [None, AliasKind.CONSERVATIVE, AliasKind.FROM_SCHEMA, AliasKind.PURE_FUNCTION]
MANY = ", ".join(f"int a{index}" for index in range(70))

# Half of the draws come from the keys that have something to do with one another.
KEYS = st.one_of(
    st.sampled_from(
        [*ALIAS_KEYS, *(DispatchKey[name] for name in ("CPU", "AutogradCPU", "AutogradOther", "QuantizedCPU"))]
    ),
    st.sampled_from(sorted(PARSED_BY_TORCH - {DispatchKey.Undefined})),
)
FREE_FALLBACKS = [DispatchKey[name] for name in ("CPU", "FPGA", "NestedTensorCPU", "AutogradNestedTensor", "Fake")]
REPLACEABLE = DispatchKey.AutogradPrivateUse1
DEBUGS = st.sampled_from(["here", "there", ""])


@st.composite
def defs(draw: st.DrawFn) -> Def:
    arguments = draw(st.sampled_from([*SCHEMAS, f"({MANY}) -> ()"]))
    schema = parse_schema(f"{draw(st.sampled_from(OPERATORS))}{arguments}")
    made = Def(schema, draw(st.sampled_from(ALIAS_KINDS)), debug=draw(DEBUGS))
    kernel = draw(st.none() | st.none() | st.sampled_from(KERNELS))
    return (
        made if kernel is None else replace(made, kernel=kernel, key=draw(st.none() | KEYS), kernel_debug=draw(DEBUGS))
    )


defs_by_name = st.builds(
    lambda name, kernel, key, debug, kernel_debug: Def(
        name, AliasKind.CONSERVATIVE, debug=debug, kernel=kernel, key=key, kernel_debug=kernel_debug
    ),
    st.sampled_from(OPERATORS),
    st.sampled_from([kernel for kernel in KERNELS if kernel.inferred is not None]),
    st.none() | KEYS,
    DEBUGS,
    DEBUGS,
)


UNPARSED = sorted({*DispatchKey} - PARSED_BY_TORCH - {*FORMER_KEYS})
"""Keys that `torch.library` cannot name; the bindings can, where they take a key and no text, as for boxed kernels."""

impls = st.builds(Impl, st.sampled_from(OPERATORS), st.none() | KEYS, st.sampled_from(KERNELS), DEBUGS)
unparsed_impls = st.builds(
    Impl, st.sampled_from(OPERATORS), st.sampled_from(UNPARSED), st.sampled_from(KERNELS[:2]), DEBUGS
)
FREE_UNPARSED = [DispatchKey[name] for name in ("QuantizedHIP", "SparseLazy", "NestedTensorXLA", "AutogradVE")]
fallbacks = st.builds(
    Fallback, st.sampled_from([*FREE_FALLBACKS, *FREE_UNPARSED]), st.sampled_from(KERNELS[:2]), DEBUGS
)
replacing = st.builds(Fallback, st.just(REPLACEABLE), st.sampled_from(KERNELS[:2]), DEBUGS)
fallback_blocks = st.builds(
    lambda inner: Block(None, BlockKind.IMPL, tuple(inner), debug="a block"),
    st.lists(replacing | fallbacks, min_size=1, max_size=3),
)
own_kernels = st.builds(
    Impl,
    st.just(OPERATORS[0]),
    st.sampled_from([REPLACEABLE, DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd]),
    st.sampled_from(KERNELS[:2]),
    DEBUGS,
)
with_replacing = st.one_of(replacing, replacing, replacing, fallback_blocks, own_kernels, fallbacks)
"""Registrations around the key where fallbacks replace each other."""


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    kind = draw(st.sampled_from([BlockKind.DEF, BlockKind.FRAGMENT, BlockKind.IMPL]))
    key = draw(st.none() | KEYS) if kind is BlockKind.IMPL else None
    inner = draw(
        st.lists(st.one_of(impls, unparsed_impls, defs()) if kind is not BlockKind.IMPL else impls, max_size=3)
    )
    return Block("test", kind, tuple(inner), key, draw(DEBUGS))


registrations = st.one_of(defs(), defs_by_name, impls, impls, impls, unparsed_impls, fallbacks, blocks())
