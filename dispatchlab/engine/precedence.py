"""Precedence: the kernel that each slot gets, computed level by level on whole sets of slots.

A level of the precedence is one bit operation: the slots that it covers, less those that are already taken. What each
slot gets is also computed key by key, straight from the published order, in `reference_precedence`; the invariants
compare the two. Source: aten/src/ATen/core/dispatch/OperatorEntry.cpp (`computeDispatchTableEntryWithDebug`); for
`pr35061` the look-up of PR #35061.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from dispatchlab.engine.fallbacks import Fallbacks
from dispatchlab.engine.kernel import AMBIGUOUS, RegisteredKernel, TableEntry
from dispatchlab.engine.reference_precedence import Plain, plain_pr35061, plain_torch_2_13
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.keys import DispatchKey as Key
from dispatchlab.model.slot_set import (
    ALIAS_SLOTS,
    ALL_SLOTS,
    BACKENDS_OF_AUTOGRAD,
    CATCH_ALL_BIT,
    KEY_BIT,
    NESTED_TENSOR_SLOTS,
    UNDEFINED_SLOT,
    slots_of,
)

Kernels: TypeAlias = Mapping[int, tuple[RegisteredKernel, ...]]
"""The kernels of an operator: the bit of a key -> what is registered there, newest first and never empty."""

Slots: TypeAlias = dict[TableEntry, int]
"""Which slots hold which entry; a slot in no set holds no kernel."""

Fill: TypeAlias = Callable[[int, int, Kernels, Fallbacks], Slots]
"""(the slots wanted, the keys that have kernels, the kernels, the fallbacks) -> what those slots hold."""


class Precedence(NamedTuple):
    """A precedence, twice: `fill` on sets of slots, and `plain`, key by key, to check it against."""

    fill: Fill
    plain: Plain


_AUTOGRAD = KEY_BIT[Key.Autograd]
_MATH = KEY_BIT[Key.CompositeImplicitAutograd]
_NESTED = KEY_BIT[Key.CompositeImplicitAutogradNestedTensor]
_EXPLICIT = KEY_BIT[Key.CompositeExplicitAutograd]
_NON_FUNCTIONAL = KEY_BIT[Key.CompositeExplicitAutogradNonFunctional]
_BATCHED = KEY_BIT[Key.FuncTorchBatchedDecomposition]
_ANY_ALIAS = _AUTOGRAD | _MATH | _NESTED | _EXPLICIT | _NON_FUNCTIONAL | _BATCHED

_MATH_SLOTS = ALIAS_SLOTS[Key.CompositeImplicitAutograd] | UNDEFINED_SLOT
_EXPLICIT_SLOTS = ALIAS_SLOTS[Key.CompositeExplicitAutograd] | UNDEFINED_SLOT
_NON_FUNCTIONAL_SLOTS = ALIAS_SLOTS[Key.CompositeExplicitAutogradNonFunctional] | UNDEFINED_SLOT
_NESTED_SLOTS = ALIAS_SLOTS[Key.CompositeImplicitAutogradNestedTensor]
_AUTOGRAD_SLOTS = ALIAS_SLOTS[Key.Autograd]
_BATCHED_SLOTS = ALIAS_SLOTS[Key.FuncTorchBatchedDecomposition]

# Note [Backends that take the composite kernel away]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# The slots of the dense backends and those of their autograd keys stand in the same order, so "the autograd slots of
# the backends that have kernels" is a shift. A kernel at the functionality key `Dense` itself has no slot, yet
# upstream's set containment takes it for a kernel of every dense backend; likewise `Quantized` and its kind for
# AutogradOther.
_OTHER = slots_of((Key.AutogradOther,))
_OTHER_BACKENDS = BACKENDS_OF_AUTOGRAD[Key.AutogradOther] | sum(
    KEY_BIT[key] for key in (Key.Quantized, Key.Sparse, Key.SparseCsr)
)
_NESTED_AUTOGRAD = slots_of((Key.AutogradNestedTensor,))
_NESTED_BACKENDS = NESTED_TENSOR_SLOTS | KEY_BIT[Key.NestedTensor]
_DENSE = KEY_BIT[Key.Dense]
_DENSE_AUTOGRAD = slots_of(
    key for key in BACKENDS_OF_AUTOGRAD if key not in (Key.AutogradOther, Key.AutogradNestedTensor)
)
_TO_AUTOGRAD = Key.AutogradCPU.slot - Key.CPU.slot
_DENSE_BACKENDS = _DENSE_AUTOGRAD >> _TO_AUTOGRAD


def _fill_torch_2_13(wanted: int, present: int, kernels: Kernels, fallbacks: Fallbacks) -> Slots:
    slots: Slots = {}
    direct = present & wanted
    rest = wanted ^ direct
    while direct:
        bit = direct & -direct
        direct ^= bit
        held = kernels[bit][0].because(Provenance.KERNEL)
        slots[held] = bit
    if present & _ANY_ALIAS:
        if present & _NON_FUNCTIONAL and (taken := rest & _NON_FUNCTIONAL_SLOTS):
            slots[kernels[_NON_FUNCTIONAL][0].because(Provenance.DEFAULT_BACKEND)] = taken
            rest ^= taken
        if present & _EXPLICIT and (taken := rest & _EXPLICIT_SLOTS):
            slots[kernels[_EXPLICIT][0].because(Provenance.DEFAULT_BACKEND)] = taken
            rest ^= taken
        if present & _NESTED and (taken := rest & _NESTED_SLOTS):
            slots[kernels[_NESTED][0].because(Provenance.NESTED)] = taken
            rest ^= taken
        if present & _MATH:
            if rest & _OTHER and present & _OTHER_BACKENDS:
                slots[AMBIGUOUS] = _OTHER
                rest ^= _OTHER
            if not present & _EXPLICIT and (taken := rest & _MATH_SLOTS & ~_suppressed(present)):
                slots[kernels[_MATH][0].because(Provenance.MATH)] = taken
                rest ^= taken
        if present & _AUTOGRAD and (taken := rest & _AUTOGRAD_SLOTS):
            slots[kernels[_AUTOGRAD][0].because(Provenance.AUTOGRAD)] = taken
            rest ^= taken
        if present & _BATCHED and (taken := rest & _BATCHED_SLOTS):
            slots[kernels[_BATCHED][0].because(Provenance.BATCHED)] = taken
            rest ^= taken
    if rest & fallbacks.slots:
        slots.update(fallbacks.entries_in(rest))
    return slots


def _suppressed(present: int) -> int:
    """The autograd slots where a backend's kernel takes the composite one away, AutogradOther aside."""
    # See Note [Backends that take the composite kernel away]
    slots = _DENSE_AUTOGRAD if present & _DENSE else (present & _DENSE_BACKENDS) << _TO_AUTOGRAD
    return slots | _NESTED_AUTOGRAD if present & _NESTED_BACKENDS else slots


def _fill_pr35061(wanted: int, present: int, kernels: Kernels, fallbacks: Fallbacks) -> Slots:
    slots: Slots = {}
    direct = present & wanted
    rest = wanted ^ direct
    while direct:
        bit = direct & -direct
        direct ^= bit
        slots[kernels[bit][0].because(Provenance.KERNEL)] = bit
    called = fallbacks.slots & ~fallbacks.fallthrough_slots
    if rest & called:
        slots.update(fallbacks.entries_in(rest & called))
        rest &= ~called
    if present & CATCH_ALL_BIT and rest:
        slots[kernels[CATCH_ALL_BIT][0].because(Provenance.CATCH_ALL)] = rest
    return slots


TORCH_2_13 = Precedence(_fill_torch_2_13, plain_torch_2_13)
PR35061 = Precedence(_fill_pr35061, plain_pr35061)


def computed_table(precedence: Precedence, present: int, kernels: Kernels, fallbacks: Fallbacks) -> Slots:
    """What every slot should hold, from what is registered and nothing else."""
    return precedence.fill(ALL_SLOTS, present, kernels, fallbacks)
