"""Sets of dispatch table slots as bits, and one bit for each key where a kernel can be registered.

A set of runtime keys is one `int`, with a bit for each runtime key of any version (0 is `Undefined`), so that a level
of the table's precedence is one bit operation. Source: c10/core/DispatchKeySet.cpp (`getRuntimeDispatchKeySet`,
`getBackendKeySetFromAutograd`) and aten/src/ATen/core/dispatch/OperatorEntry.cpp (`updateDispatchTable_`).

A set of keys where kernels are registered is one `int`, too: its low bits are those of the slots, and the bits
above stand for functionality keys, alias keys and the catch-all bucket.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dispatchlab.model.keys import (
    ALIAS_KEYS,
    BACKENDS,
    PER_BACKEND_FUNCTIONALITIES,
    SLOT_KEYS,
    SLOT_OF_KEY,
    DispatchKey,
)

ALL_SLOTS = (1 << len(SLOT_KEYS)) - 1
UNDEFINED_SLOT = 1


def slots_of(keys: Iterable[DispatchKey]) -> int:
    """Return the slots of runtime keys, as bits."""
    bits = 0
    for key in keys:
        bits |= 1 << SLOT_OF_KEY[key]
    return bits


def key_bits(keys: Iterable[DispatchKey]) -> int:
    """Return keys as bits."""
    bits = 0
    for key in keys:
        bits |= KEY_BIT[key]
    return bits


def set_bits(bits: int) -> Iterator[int]:
    """Return the positions of the set bits, ascending: the slots of a set, or the members of one."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def keys_of(bits: int) -> tuple[DispatchKey, ...]:
    """Return the runtime keys of a set of slots, in table order."""
    return tuple(SLOT_KEYS[slot] for slot in set_bits(bits))


def _instances(prefix: str, but: tuple[str, ...] = ()) -> int:
    return slots_of(DispatchKey[prefix + name] for name in BACKENDS if name not in but)


NESTED_TENSOR_SLOTS = _instances("NestedTensor")
_PLAIN_BACKENDS = slots_of(
    (DispatchKey.FPGA, DispatchKey.Vulkan, DispatchKey.Metal, DispatchKey.CustomRNGKeyId, DispatchKey.MkldnnCPU)
)
_AUTOGRAD = _instances("Autograd") | slots_of((DispatchKey.AutogradOther, DispatchKey.AutogradNestedTensor))
BACKEND_SLOTS = (
    _PLAIN_BACKENDS | _instances("") | _instances("Quantized") | _instances("Sparse") | _instances("SparseCsr")
)
"""The slots whose key is a backend key (`isBackendDispatchKey`); NestedTensor keys are none."""

ALIAS_SLOTS: dict[DispatchKey, int] = {
    DispatchKey.Autograd: _AUTOGRAD,
    DispatchKey.CompositeImplicitAutograd: BACKEND_SLOTS | _AUTOGRAD | NESTED_TENSOR_SLOTS,
    DispatchKey.FuncTorchBatchedDecomposition: slots_of((DispatchKey.FuncTorchBatched,)),
    DispatchKey.CompositeImplicitAutogradNestedTensor: (
        NESTED_TENSOR_SLOTS | slots_of((DispatchKey.AutogradNestedTensor,))
    ),
    DispatchKey.CompositeExplicitAutograd: BACKEND_SLOTS,
    DispatchKey.CompositeExplicitAutogradNonFunctional: (
        _PLAIN_BACKENDS
        | _instances("", but=("XLA", "Lazy"))
        | _instances("Quantized", but=("XLA", "Lazy"))
        | _instances("SparseCsr", but=("XLA", "Lazy"))
    ),
}
"""The runtime keys that each alias key stands for."""


def slots_of_key(key: DispatchKey) -> int:
    """Return the slots that a kernel at `key` may fill: its slot, or the slots of an alias; none for `Dense`."""
    if key in ALIAS_SLOTS:
        return ALIAS_SLOTS[key]
    return 1 << SLOT_OF_KEY[key] if key in SLOT_OF_KEY else 0


# Note [Backends of an autograd key]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A kernel of a backend takes the composite kernel away from "its" autograd slot. Upstream's table of which backends
# an autograd key has forgets HIP, VE and MTIA: their autograd slots exist, and nothing ever suppresses the composite
# kernel there. HIP and VE tensors carry AutogradOther, whose set does not name them either.
FORGOTTEN_BACKENDS = ("HIP", "VE", "MTIA")
"""The backends whose kernels do not take the composite kernel away. See Note [Backends of an autograd key]."""

BACKENDS_OF_AUTOGRAD: dict[DispatchKey, int] = {
    **{
        DispatchKey[f"Autograd{name}"]: slots_of((DispatchKey[name],))
        for name in BACKENDS
        if name not in FORGOTTEN_BACKENDS
    },
    DispatchKey.AutogradOther: BACKEND_SLOTS & ~_instances(""),
    DispatchKey.AutogradNestedTensor: NESTED_TENSOR_SLOTS,
}
"""The backends whose kernels stand before a composite one on an autograd slot.

See Note [Backends of an autograd key].
"""

_WITHOUT_SLOT = (*PER_BACKEND_FUNCTIONALITIES, *ALIAS_KEYS)

KEY_BIT: dict[DispatchKey, int] = {
    **{key: 1 << slot for slot, key in enumerate(SLOT_KEYS)},
    **{key: 1 << (len(SLOT_KEYS) + index) for index, key in enumerate(_WITHOUT_SLOT)},
}
CATCH_ALL_BIT = 1 << (len(SLOT_KEYS) + len(_WITHOUT_SLOT))
"""The bucket of kernels without a key, under the semantics that have one."""

KEY_OF_BIT: dict[int, DispatchKey | None] = {
    **{bit: key for key, bit in sorted(KEY_BIT.items())},
    CATCH_ALL_BIT: None,
}
"""The key of each bit, in the order in which dumps print them: by enum value, the catch-all last."""

DUMP_ORDER: dict[int, int] = {bit: at for at, bit in enumerate(KEY_OF_BIT)}
"""The position of each bit among the lines of a dump of PyTorch 2.13."""
