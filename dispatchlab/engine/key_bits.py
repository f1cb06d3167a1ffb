"""One bit for every place where a kernel can be registered: the 137 slots, then the keys without a slot.

A set of places is an `int`; its low 137 bits are a set of slots (`dispatchlab.model.slots`).
"""

from __future__ import annotations

from dispatchlab.model.keys import ALIAS_KEYS, PER_BACKEND_FUNCTIONALITIES, RUNTIME_KEYS, DispatchKey

_WITHOUT_SLOT = (*PER_BACKEND_FUNCTIONALITIES, *ALIAS_KEYS)

KEY_BIT: dict[DispatchKey, int] = {
    **{key: 1 << slot for slot, key in enumerate(RUNTIME_KEYS)},
    **{key: 1 << (len(RUNTIME_KEYS) + index) for index, key in enumerate(_WITHOUT_SLOT)},
}
CATCH_ALL_BIT = 1 << (len(RUNTIME_KEYS) + len(_WITHOUT_SLOT))
"""The bucket of kernels without a key, under the semantics that have one."""

KEY_OF_BIT: dict[int, DispatchKey | None] = {
    **{bit: key for key, bit in sorted(KEY_BIT.items())},
    CATCH_ALL_BIT: None,
}
"""The key of each bit, in the order in which dumps print them: by enum value, the catch-all last."""

DUMP_ORDER: dict[int, int] = {bit: place for place, bit in enumerate(KEY_OF_BIT)}
"""The place of each bit among the lines of a dump."""
