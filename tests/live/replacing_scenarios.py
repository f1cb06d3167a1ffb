"""Registrations around the key where fallbacks replace each other."""

from __future__ import annotations

from hypothesis import strategies as st

from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.registration import Block, BlockKind, Fallback, Impl
from dispatchlab.strategies import DEBUGS, KERNELS, OPERATORS, fallbacks

REPLACEABLE = DispatchKey.AutogradPrivateUse1

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
