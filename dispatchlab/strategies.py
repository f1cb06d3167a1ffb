"""Strategies of hypothesis for your tests: registrations, scenarios and sequences of steps.

Keys, kernels and schemas are drawn so that they can affect each other. Needs hypothesis.

>>> from hypothesis import given
>>> from dispatchlab import check_order
>>> from dispatchlab.strategies import scenarios
>>> @given(scenarios(max_size=3))
... def test_a_generated_scenario_has_a_verdict(scenario):
...     assert check_order(scenario.registrations, semantics="torch-2.13").verdict
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from dispatchlab.model.cpp_signature import cpp_signature
from dispatchlab.model.keys import ALIAS_KEYS, FORMER_KEYS, PARSED_BY_TORCH, DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import AliasKind, Block, BlockKind, Def, Fallback, Impl, Kernel, KernelForm
from dispatchlab.model.schema_parser import parse_inferred, parse_schema
from dispatchlab.model.sequence import Step, StepSequence
from dispatchlab.scenario.scenario import Scenario

__all__ = ["OPERATORS", "registrations", "scenarios", "sequences"]

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


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    kind = draw(st.sampled_from([BlockKind.DEF, BlockKind.FRAGMENT, BlockKind.IMPL]))
    key = draw(st.none() | KEYS) if kind is BlockKind.IMPL else None
    inner = draw(
        st.lists(st.one_of(impls, unparsed_impls, defs()) if kind is not BlockKind.IMPL else impls, max_size=3)
    )
    return Block("test", kind, tuple(inner), key, draw(DEBUGS))


registrations = st.one_of(defs(), defs_by_name, impls, impls, impls, unparsed_impls, fallbacks, blocks())
"""Registrations of two overloads of one name: defs, kernels of every form, fallbacks and library blocks."""


@st.composite
def scenarios(draw: st.DrawFn, *, min_size: int = 2, max_size: int = 4) -> Scenario:
    """Draw scenarios of some registrations, observed on both operators.

    Args:
        draw: given by hypothesis.
        min_size: at least so many registrations.
        max_size: at most so many.
    """
    some = draw(st.lists(registrations, min_size=min_size, max_size=max_size))
    return Scenario("Generated.", tuple(some), OPERATORS)


@st.composite
def sequences(draw: st.DrawFn, count: int, *, max_size: int = 8) -> StepSequence:
    """Return sequences of registrations and releases, in which each step is possible.

    Where an engine refuses a registration, its release cannot be run.

    Args:
        draw: given by hypothesis.
        count: how many registrations there are.
        max_size: at most so many steps.
    """
    steps: list[Step] = []
    active: set[int] = set()
    for index in draw(st.lists(st.integers(0, count - 1), max_size=max_size)) if count else ():
        steps.append(~index if index in active else index)
        active ^= {index}
    return tuple(steps)
