"""Dispatch keys: their names, their order, and what each one covers.

Order and numbers are those of c10/core/DispatchKey.h in PyTorch 2.13 (markers such as `EndOfFunctionalityKeys` are left
out); keys that only other versions have come after them. The order of another version is a fact of its profile. Three
kinds: functionality keys (0 to 46, some of which exist once for each backend), the runtime keys of those
that do (`CPU`, `SparseCUDA`, ...), and alias keys, each of which stands for a set of runtime keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import cast

from dispatchlab._short_repr import member_repr
from dispatchlab.errors import DispatchLabError, did_you_mean


class DispatchKey(IntEnum):
    """A dispatch key; its number is PyTorch 2.13's enum value, which is also the order of lines in its dumps.

    >>> from dispatchlab import DispatchKey
    >>> DispatchKey.AutogradCUDA > DispatchKey.CUDA, DispatchKey["Autograd"].is_alias
    (True, True)
    """

    Undefined = 0
    Dense = 1
    FPGA = 2
    Vulkan = 3
    Metal = 4
    Quantized = 5
    CustomRNGKeyId = 6
    MkldnnCPU = 7
    Sparse = 8
    SparseCsr = 9
    NestedTensor = 10
    BackendSelect = 11
    Fake = 12
    Python = 13
    FuncTorchDynamicLayerBackMode = 14
    Functionalize = 15
    Conjugate = 16
    Negative = 17
    ZeroTensor = 18
    ADInplaceOrView = 19
    AutogradOther = 20
    AutogradFunctionality = 21
    AutogradNestedTensor = 22
    Tracer = 23
    AutocastCPU = 24
    AutocastMTIA = 25
    AutocastMAIA = 26
    AutocastXPU = 27
    AutocastIPU = 28
    AutocastHPU = 29
    AutocastXLA = 30
    AutocastMPS = 31
    AutocastCUDA = 32
    AutocastPrivateUse1 = 33
    FuncTorchBatched = 34
    BatchedNestedTensor = 35
    FuncTorchVmapMode = 36
    Batched = 37
    VmapMode = 38
    FuncTorchGradWrapper = 39
    DeferredInit = 40
    PythonTLSSnapshot = 41
    FuncTorchDynamicLayerFrontMode = 42
    TESTING_ONLY_GenericWrapper = 43
    TESTING_ONLY_GenericMode = 44
    PreDispatch = 45
    PythonDispatcher = 46
    CPU = 49
    CUDA = 50
    HIP = 51
    XLA = 52
    MPS = 53
    IPU = 54
    XPU = 55
    HPU = 56
    VE = 57
    Lazy = 58
    MTIA = 59
    MAIA = 60
    PrivateUse1 = 61
    PrivateUse2 = 62
    PrivateUse3 = 63
    Meta = 64
    QuantizedCPU = 66
    QuantizedCUDA = 67
    QuantizedHIP = 68
    QuantizedXLA = 69
    QuantizedMPS = 70
    QuantizedIPU = 71
    QuantizedXPU = 72
    QuantizedHPU = 73
    QuantizedVE = 74
    QuantizedLazy = 75
    QuantizedMTIA = 76
    QuantizedMAIA = 77
    QuantizedPrivateUse1 = 78
    QuantizedPrivateUse2 = 79
    QuantizedPrivateUse3 = 80
    QuantizedMeta = 81
    SparseCPU = 83
    SparseCUDA = 84
    SparseHIP = 85
    SparseXLA = 86
    SparseMPS = 87
    SparseIPU = 88
    SparseXPU = 89
    SparseHPU = 90
    SparseVE = 91
    SparseLazy = 92
    SparseMTIA = 93
    SparseMAIA = 94
    SparsePrivateUse1 = 95
    SparsePrivateUse2 = 96
    SparsePrivateUse3 = 97
    SparseMeta = 98
    SparseCsrCPU = 100
    SparseCsrCUDA = 101
    SparseCsrHIP = 102
    SparseCsrXLA = 103
    SparseCsrMPS = 104
    SparseCsrIPU = 105
    SparseCsrXPU = 106
    SparseCsrHPU = 107
    SparseCsrVE = 108
    SparseCsrLazy = 109
    SparseCsrMTIA = 110
    SparseCsrMAIA = 111
    SparseCsrPrivateUse1 = 112
    SparseCsrPrivateUse2 = 113
    SparseCsrPrivateUse3 = 114
    SparseCsrMeta = 115
    NestedTensorCPU = 117
    NestedTensorCUDA = 118
    NestedTensorHIP = 119
    NestedTensorXLA = 120
    NestedTensorMPS = 121
    NestedTensorIPU = 122
    NestedTensorXPU = 123
    NestedTensorHPU = 124
    NestedTensorVE = 125
    NestedTensorLazy = 126
    NestedTensorMTIA = 127
    NestedTensorMAIA = 128
    NestedTensorPrivateUse1 = 129
    NestedTensorPrivateUse2 = 130
    NestedTensorPrivateUse3 = 131
    NestedTensorMeta = 132
    AutogradCPU = 134
    AutogradCUDA = 135
    AutogradHIP = 136
    AutogradXLA = 137
    AutogradMPS = 138
    AutogradIPU = 139
    AutogradXPU = 140
    AutogradHPU = 141
    AutogradVE = 142
    AutogradLazy = 143
    AutogradMTIA = 144
    AutogradMAIA = 145
    AutogradPrivateUse1 = 146
    AutogradPrivateUse2 = 147
    AutogradPrivateUse3 = 148
    AutogradMeta = 149
    Autograd = 150
    CompositeImplicitAutograd = 151
    FuncTorchBatchedDecomposition = 152
    CompositeImplicitAutogradNestedTensor = 153
    CompositeExplicitAutograd = 154
    CompositeExplicitAutogradNonFunctional = 155
    Named = 156

    __repr__ = member_repr

    @classmethod
    def _missing_(cls, value: object) -> DispatchKey | None:
        # See Note [Markers]
        if not isinstance(value, int) or value not in _MARKERS:
            return None
        made = int.__new__(cls, value)
        made._name_, made._value_ = f"StartOf{_MARKERS[value]}Backends", value
        return cast(DispatchKey, cls._value2member_map_.setdefault(value, made))

    def __str__(self) -> str:
        marked = _MARKERS.get(self)
        return self.name if marked is None else f"{_PREFIXES_OF_MARKERS[marked]}Undefined"

    @property
    def is_alias(self) -> bool:
        """True for the six alias keys, which stand for sets of runtime keys."""
        return DispatchKey.Autograd <= self < DispatchKey.Named

    @property
    def is_runtime(self) -> bool:
        """True when the key has a slot in every operator's table."""
        return self in SLOT_OF_KEY

    @property
    def slot(self) -> int:
        """The index of the key's slot in every operator's table; a KeyError for a key that is not a runtime key."""
        return SLOT_OF_KEY[self]

    @property
    def functionality(self) -> DispatchKey:
        """The functionality key of this key; `Undefined` for an alias key, which has none."""
        if self < _FIRST_MARKER or self >= DispatchKey.Named:
            return self
        return DispatchKey.Undefined if self.is_alias else PER_BACKEND_FUNCTIONALITIES[(self - _FIRST_MARKER) // 17]

    @property
    def backend(self) -> int | None:
        """The number of the backend component, from 0 (CPU) to 15 (Meta), or None for a key that has none."""
        if self < DispatchKey.CPU or self >= DispatchKey.Autograd or self in _MARKERS:
            return None
        return (self - DispatchKey.CPU) % 17


# Note [Markers]
# ~~~~~~~~~~~~~~
# Before the instances of a functionality for each backend stands a marker, and a set that has such a functionality and
# no backend has the marker for its highest key: a call goes there that excluded the backend of its tensors, or that
# a program redispatched with a set made by hand. PyTorch prints it `QuantizedUndefined`, or `Undefined` for `Dense`,
# which is not the key `Undefined`. Nothing can be registered at one, so a marker is no member: no iteration shows it,
# and only its number gives it.
_FIRST_MARKER = DispatchKey.CPU - 1
_PREFIXES_OF_MARKERS = {
    "Dense": "",
    **{name: name for name in ("Quantized", "Sparse", "SparseCsr", "NestedTensor")},
    "AutogradFunctionality": "Autograd",
}
_MARKERS = {_FIRST_MARKER + 17 * at: name for at, name in enumerate(_PREFIXES_OF_MARKERS)}


BACKENDS: tuple[str, ...] = (
    *("CPU", "CUDA", "HIP", "XLA", "MPS", "IPU", "XPU", "HPU"),
    *("VE", "Lazy", "MTIA", "MAIA", "PrivateUse1", "PrivateUse2", "PrivateUse3", "Meta"),
)
"""The backend components, lowest bit first."""

DEVICE_OF_BACKEND: Mapping[str, str] = MappingProxyType(
    {name: name.lower() for name in (*BACKENDS, "FPGA", "Vulkan", "Metal") if not name.startswith("PrivateUse")}
    | {"PrivateUse1": "privateuseone"}
)
"""The type of the devices of each backend that has some, as PyTorch writes it."""

PARSED_DEVICES: tuple[str, ...] = (
    *(device for device in DEVICE_OF_BACKEND.values() if device != "metal"),
    *("mkldnn", "opengl", "opencl", "ideep"),
)
"""The device types that PyTorch parses from text (c10/core/Device.cpp)."""

PER_BACKEND_FUNCTIONALITIES: tuple[DispatchKey, ...] = (
    DispatchKey.Dense,
    DispatchKey.Quantized,
    DispatchKey.Sparse,
    DispatchKey.SparseCsr,
    DispatchKey.NestedTensor,
    DispatchKey.AutogradFunctionality,
)
"""The functionality keys that exist once for each backend; none of them is a runtime key itself."""

MARKERS: tuple[DispatchKey, ...] = tuple(map(DispatchKey, _MARKERS))
"""The highest keys of sets with a per-backend functionality and no backend. See Note [Markers]."""

FUNCTIONALITY_KEYS: tuple[DispatchKey, ...] = tuple(key for key in DispatchKey if key < DispatchKey.CPU)
"""All 47 functionality keys, lowest priority first."""

ALIAS_KEYS: tuple[DispatchKey, ...] = tuple(key for key in DispatchKey if key.is_alias)

FORMER_KEYS: tuple[DispatchKey, ...] = (DispatchKey.Named,)
"""The keys that PyTorch 2.13 lacks and another version has; all of them are functionality keys with a slot."""

MOVED_KEYS: frozenset[DispatchKey] = frozenset({DispatchKey.Fake, DispatchKey.Python, DispatchKey.MAIA, *FORMER_KEYS})
"""The keys whose place among the others is not the same in all versions."""


AUTOCAST_KEY_OF_BACKEND: Mapping[str, DispatchKey] = MappingProxyType(
    {key.name.removeprefix("Autocast"): key for key in FUNCTIONALITY_KEYS if key.name.startswith("Autocast")}
)
"""The autocast key of each backend that has one, by the name of the backend."""

AUTOCAST_KEYS: tuple[DispatchKey, ...] = tuple(AUTOCAST_KEY_OF_BACKEND.values())
"""The autocast keys, lowest priority first."""


def _runtime_keys() -> tuple[DispatchKey, ...]:
    keys: list[DispatchKey] = []
    for key in FUNCTIONALITY_KEYS:
        if key in PER_BACKEND_FUNCTIONALITIES:
            first = DispatchKey.CPU + 17 * PER_BACKEND_FUNCTIONALITIES.index(key)
            keys += [DispatchKey(value) for value in range(first, first + 16)]
        else:
            keys.append(key)
    return tuple(keys)


RUNTIME_KEYS: tuple[DispatchKey, ...] = _runtime_keys()
"""All 137 runtime keys in the order of the slots of a table, `Undefined` first."""

SLOT_KEYS: tuple[DispatchKey, ...] = RUNTIME_KEYS + FORMER_KEYS
"""The runtime keys of all versions, by their bit in sets of slots: those of 2.13, then the others."""

SLOT_OF_KEY: dict[DispatchKey, int] = {key: slot for slot, key in enumerate(SLOT_KEYS)}
"""The slot of each runtime key."""

AUTOGRAD_KEY_OF_BACKEND: tuple[DispatchKey, ...] = tuple(
    DispatchKey.AutogradOther if name in ("HIP", "VE") else DispatchKey[f"Autograd{name}"] for name in BACKENDS
)
"""The autograd key of each backend component (`getAutogradKeyFromBackend` in c10/core/DispatchKeySet.h)."""

# Note [Keys that upstream cannot parse]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# c10::parseDispatchKey looks a text up in a table that is extended by hand for each new backend, so 42 of
# the 137 runtime keys can be named by C++ only, and by `torch._C.DispatchKey` where bindings take a key and no text. We
# parse every key; `Library` refuses those that a version does not parse, as `torch.library` does, and a scenario, which
# stands for C++ as well, names them all.
_PARSED_BACKENDS: dict[str, tuple[str, ...]] = {
    "": BACKENDS,
    "Quantized": ("CPU", "CUDA", "XPU", "PrivateUse1"),
    "Sparse": ("CPU", "CUDA", "HIP", "MPS", "XPU", "VE", "PrivateUse1", "Meta"),
    "SparseCsr": ("CPU", "CUDA", "HIP", "MPS", "XPU", "VE", "PrivateUse1", "Meta"),
    "NestedTensor": ("CPU", "CUDA", "XPU", "HPU", "PrivateUse1", "Meta"),
    "Autograd": (
        *("CPU", "CUDA", "XLA", "MPS", "IPU", "XPU", "HPU", "Lazy"),
        *("PrivateUse1", "PrivateUse2", "PrivateUse3", "Meta"),
    ),
}


def _parsed_by_torch() -> frozenset[DispatchKey]:
    per_backend = {DispatchKey[prefix + name] for prefix, names in _PARSED_BACKENDS.items() for name in names}
    return frozenset({*FUNCTIONALITY_KEYS, *ALIAS_KEYS, *per_backend})


PARSED_BY_TORCH: frozenset[DispatchKey] = _parsed_by_torch()
"""The 107 keys that PyTorch 2.13 parses from text. See Note [Keys that upstream cannot parse]."""


class UnknownKeyError(DispatchLabError):
    """No dispatch key has this name."""

    text: str
    privateuse1: str = ""

    def __str__(self) -> str:
        own = (self.privateuse1,) if self.privateuse1 else ()
        meant = did_you_mean(self.text, (*own, *DispatchKey.__members__))
        if not meant and self.text.islower():
            meant = "; for a device of your own, write PrivateUse1, or name the package that renames PrivateUse1 to it"
        return f"{self.text!r} is not a dispatch key{meant}"


def parse_key(text: str, privateuse1: str = "") -> DispatchKey:
    """Return the key with this name, exactly as a dump writes it.

    Args:
        text: one name; case counts and nothing is trimmed.
        privateuse1: the name that a package gave the PrivateUse1 backend, which also names the key.

    Returns:
        A runtime, functionality or alias key. `Undefined` is a key here; registrations read it as "no key".

    Raises:
        UnknownKeyError: no key has this name; the error names the nearest key.
    """
    if privateuse1 and text == privateuse1:
        return DispatchKey.PrivateUse1
    try:
        return DispatchKey[text]
    except KeyError:
        raise UnknownKeyError(text, privateuse1) from None
