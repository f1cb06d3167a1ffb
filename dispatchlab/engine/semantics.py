"""Semantics: the choices that define the modelled dispatcher, in one small record.

`strict` is the commutative engine that the design promises, with the keys of the newest PyTorch there is a profile of.
`torch-2.13` and similar semantics do what that PyTorch does, including its defects, so a run here predicts a run there:
they are made of profiles, which are measured, and name the backend fallbacks that PyTorch ships. `pr35061`
is the engine as PR #35061 first proposed it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pkgutil import resolve_name

from dispatchlab._short_repr import CodeEnum
from dispatchlab.engine import precedence
from dispatchlab.engine.precedence import (
    Precedence,
    PrecedenceRules,
    bits_named,
    known_keys,
    precedence_by_levels,
    rules_of,
)
from dispatchlab.errors import DispatchLabError, did_you_mean
from dispatchlab.model.keys import FORMER_KEYS, SLOT_KEYS, SLOT_OF_KEY, DispatchKey
from dispatchlab.model.profile import (
    NEWEST,
    TORCH,
    BuiltinFallback,
    Names,
    Profile,
    bundled_profile,
    bundled_profiles,
    nearest_profile,
    read_profile,
    semantics_names,
    torch_name,
    version_of,
)
from dispatchlab.model.registration import Fallback, Kernel, KernelForm
from dispatchlab.model.slot_set import DUMP_ORDER, KEY_BIT, UNDEFINED_SLOT, set_bits, slots_of_key


class SignatureLife(CodeEnum):
    """The time during which the C++ signature of a kernel is compared with those of other kernels."""

    KERNEL = "as long as the kernel is registered"
    OPERATOR = "as long as the operator exists, and even when the kernel is refused"
    NEVER = "signatures are not compared"


class SlotOrder:
    """The order of slots in the tables of a version; equal only to itself.

    Args:
        slots: the slots, first to last.
    """

    __slots__ = ("place",)

    def __init__(self, slots: Iterable[int]) -> None:
        self.place = {slot: at for at, slot in enumerate(slots)}.__getitem__


def in_order(slots: Iterable[int], order: SlotOrder | None) -> list[int]:
    """Return slots in the order of a table, see Note [Keys in the order of a version]."""
    return sorted(slots) if order is None else sorted(slots, key=order.place)


@dataclass(frozen=True, slots=True)
class Semantics:
    """The choices in which dispatchers differ.

    Args:
        name: how users call it.
        precedence: which kernel a slot gets, given all that is registered.
        refresh: the slots that are recomputed when a kernel is registered at a key.
        refresh_on_release: the slots that are refreshed after a release; None for the same slots.
        full_refresh_without_key: registering a kernel without a key recomputes every slot.
        catch_all: whether a kernel without a key gets its own bucket instead of CompositeImplicitAutograd.
        keys: the keys that a registration can name.
        parsed: the keys that `torch.library` can name, because PyTorch parses their texts; C++ and scenarios name all.
        existing: the keys that there are.
        alias_slots: for an alias key, the slots that a fallback at it serves; None for those of PyTorch 2.13.
        slot_order: the order of slots in a table; None where their numbers are their order.
        dump_order: the bit of a key -> its place in a dump.
        signature_life: see `SignatureLife`.
        refusal_leaves_traces: whether the writes of a refused registration stay, see Note [Traces of a refusal].
        tags_outlive_def: whether the tags of a released def stay.
        fallback_without_slot: a fallback at a functionality key such as `Dense` is accepted, and serves no operator.
        replaceable_fallbacks: the keys where a fallback replaces the builtin one, see Note [Fallbacks that replace].
        replaced_fallback_returns: whether the release of such a fallback restores the builtin one, and a second one is
            refused; else every fallback replaces the one before, and every release empties the key.
        kernels_in_wildcard_block: whether an IMPL library of the namespace `_` can have kernels of named operators.
        several_defs: an operator can be defined again by an equal schema; the alias kinds are merged.
        torch_library: whether the functions of `torch.library` refuse and keep the same as in PyTorch 2.13 and later;
            else a call of them only makes its registrations.
        notes_kernels: whether `torch.library` notes each kernel, which calls with `allow_override` need.
        schema_2020: dumps print schemas as 2020 did, `-> (Tensor)`, and no `debug:` line.
        warn_each_override: warn of every override of a kernel, not only of the first in a process.
        fallbacks: the backend fallbacks that a scenario finds before it registers anything.
        builtin_fallbacks: the backend fallbacks that PyTorch ships.
    """

    name: str
    precedence: Precedence
    refresh: Mapping[DispatchKey, int]
    full_refresh_without_key: bool = False
    catch_all: bool = False
    keys: frozenset[DispatchKey] = frozenset(DispatchKey)
    parsed: frozenset[DispatchKey] = frozenset(DispatchKey)
    existing: frozenset[DispatchKey] = frozenset(DispatchKey)
    refresh_on_release: Mapping[DispatchKey, int] | None = None
    alias_slots: Mapping[DispatchKey, int] | None = None
    slot_order: SlotOrder | None = None
    dump_order: Mapping[int, int] = field(default_factory=lambda: DUMP_ORDER)
    signature_life: SignatureLife = SignatureLife.KERNEL
    refusal_leaves_traces: bool = False
    tags_outlive_def: bool = False
    fallback_without_slot: bool = False
    replaceable_fallbacks: frozenset[DispatchKey] = frozenset()
    replaced_fallback_returns: bool = False
    kernels_in_wildcard_block: bool = True
    several_defs: bool = False
    torch_library: bool = False
    notes_kernels: bool = True
    schema_2020: bool = False
    warn_each_override: bool = True
    fallbacks: tuple[Fallback, ...] = ()
    builtin_fallbacks: tuple[Fallback, ...] = ()

    def __repr__(self) -> str:
        return f"<Semantics {self.name}>"

    @property
    def is_atomic(self) -> bool:
        """Make all parts of a registration, or none of them."""
        return not self.refusal_leaves_traces

    @property
    def released(self) -> Mapping[DispatchKey, int]:
        """The slots that are recomputed when a kernel of a key is released."""
        return self.refresh if self.refresh_on_release is None else self.refresh_on_release

    def slots_of_key(self, key: DispatchKey) -> int:
        """Return the slots that a fallback at `key` serves: its slot, or the slots of an alias; none for `Dense`."""
        if self.alias_slots is not None and key.is_alias:
            return self.alias_slots.get(key, 0)
        return slots_of_key(key)

    def in_order(self, slots: Iterable[int]) -> list[int]:
        """Return slots in the order of a table."""
        return in_order(slots, self.slot_order)

    def keys_in(self, bits: int) -> tuple[DispatchKey, ...]:
        """Return the runtime keys of a set of slots, in the order of a table."""
        return tuple(SLOT_KEYS[slot] for slot in self.in_order(set_bits(bits)))


# Note [Keys in the order of a version]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# PyTorch changes the order of its keys: MAIA was a key of its own behind FPGA before it became a backend, and Python
# and Fake have changed places. No order of all keys agrees with that of every version. So a key is one bit, the same
# in every version, which is all that precedences, refreshes and states need; and a version's order is looked up where
# something is printed, or the first of several is named. Where it is that of the bits, nothing is looked up.


def semantics_of(profile: Profile, name: str | None = None) -> Semantics:
    """Return the dispatcher that a profile describes.

    Keys of the profile that dispatchlab does not know are left out: `unknown_keys` lists them.

    Args:
        profile: the profile.
        name: its name for users; default: its PyTorch.
    """
    rules = rules_of(profile)
    fallbacks, keys = fallbacks_of(profile), known_keys(profile.keys)
    refresh = _refresh(rules, profile.refresh_on_register)
    return Semantics(
        name or profile.name,
        precedence_by_levels(profile, rules),
        refresh,
        refresh_on_release=(
            None
            if profile.refresh_on_release == profile.refresh_on_register
            else _refresh(rules, profile.refresh_on_release)
        ),
        full_refresh_without_key=profile.full_refresh_without_key,
        keys=frozenset(keys),
        parsed=frozenset(known_keys(profile.parsed)),
        existing=frozenset(keys),
        # A fallback at an alias key is one at each slot that a registration there recomputes, and until PyTorch 2.9
        # that is none for FuncTorchBatchedDecomposition, whose kernel fills FuncTorchBatched.
        alias_slots={key: slots & ~UNDEFINED_SLOT for key, slots in refresh.items() if key.is_alias},
        slot_order=_slot_order(rules),
        dump_order=_dump_order(keys),
        signature_life=SignatureLife[profile.signature_life.upper()],
        refusal_leaves_traces=profile.refusal_leaves_traces,
        tags_outlive_def=profile.tags_outlive_def,
        fallback_without_slot=profile.fallback_without_slot,
        replaceable_fallbacks=frozenset(known_keys(profile.replaceable_fallbacks)),
        kernels_in_wildcard_block=profile.kernels_in_wildcard_block,
        several_defs=profile.several_defs,
        torch_library=(version_of(profile.torch) or (9,)) >= _LIBRARY_SINCE,
        warn_each_override=profile.warn_each_override,
        fallbacks=fallbacks,
        builtin_fallbacks=fallbacks,
    )


_LIBRARY_SINCE = (2, 13)
"""The PyTorch from which on the rules of `torch.library` are those of the lab; older ones are asked live."""


def strict_of(profile: Profile) -> Semantics:
    """Return the commutative engine, with the keys and the precedence of a profile."""
    rules, keys = rules_of(profile), known_keys(profile.keys)
    return Semantics(
        "strict",
        precedence_by_levels(profile, rules),
        _refresh(rules, {}),
        keys=frozenset(keys),
        existing=frozenset(keys),
        alias_slots={alias: rules.covers[alias] & ~UNDEFINED_SLOT for alias in rules.levels},
        slot_order=_slot_order(rules),
        dump_order=_dump_order(keys),
        replaceable_fallbacks=frozenset(known_keys(profile.replaceable_fallbacks)),
        replaced_fallback_returns=True,
        torch_library=True,
        builtin_fallbacks=fallbacks_of(profile),
    )


def unknown_keys(profile: Profile) -> tuple[str, ...]:
    """Return the keys of a profile that this package does not know."""
    return tuple(name for name in profile.keys if name not in DispatchKey.__members__)


def _refresh(rules: PrecedenceRules, measured: Mapping[str, Names]) -> Mapping[DispatchKey, int]:
    """Return the refreshed slots for every key of a kernel; without measurements, the slots that it can change."""
    return {
        key: bits_named(measured[key.name]) if key.name in measured else rules.reach(key)
        for key in DispatchKey
        if key != DispatchKey.Undefined
    }


def _slot_order(rules: PrecedenceRules) -> SlotOrder | None:
    order = [SLOT_OF_KEY[key] for key in rules.slots]
    return None if order == sorted(order) else SlotOrder(order)


def _dump_order(keys: Sequence[DispatchKey]) -> Mapping[int, int]:
    order = {KEY_BIT[key]: at for at, key in enumerate(keys)}
    return DUMP_ORDER if [*order] == [bit for bit in DUMP_ORDER if bit in order] else order


def _pr35061() -> Semantics:
    keys = frozenset(DispatchKey) - {*FORMER_KEYS}
    return Semantics(
        "pr35061",
        precedence.PR35061,
        {
            key: slots_of_key(key) if key is DispatchKey.Autograd else KEY_BIT[key] & slots_of_key(key)
            for key in DispatchKey
        },
        catch_all=True,
        keys=frozenset(key for key in keys if not key.is_alias or key is DispatchKey.Autograd),
        existing=keys,
        signature_life=SignatureLife.NEVER,
        several_defs=True,
        schema_2020=True,
        builtin_fallbacks=fallbacks_of(bundled_profile(bundled_profiles()[-1])),
    )


@cache
def _made(name: str) -> Semantics:
    if name == "strict":
        return strict_of(bundled_profile(bundled_profiles()[-1]))
    return _pr35061() if name == "pr35061" else semantics_of(bundled_profile(name))


class _Named(Mapping[str, Semantics]):
    """The semantics by name; each is made on first use."""

    def __getitem__(self, name: str) -> Semantics:
        if name not in self:
            raise KeyError(name)
        return _made(name)

    def __contains__(self, name: object) -> bool:
        return name in semantics_names()

    def __iter__(self) -> Iterator[str]:
        return iter(semantics_names())

    def __len__(self) -> int:
        return len(semantics_names())


SEMANTICS: Mapping[str, Semantics] = _Named()
"""All of them, by name: `strict`, those of the bundled profiles, oldest first, and `pr35061`."""


class UnknownSemanticsError(DispatchLabError):
    """No semantics has this name."""

    text: str

    def __str__(self) -> str:
        version = version_of(self.text)
        if self.text in NEWEST:
            hint = f"; the newest is {bundled_profiles()[-1]}"
        elif version is not None:
            hint = f"; did you mean {nearest_profile(version)}?"
        else:
            hint = did_you_mean(self.text, SEMANTICS)
        return f"unknown semantics {self.text!r}: expected one of torch, {', '.join(SEMANTICS)}{hint}"


def semantics_named(name: str | None) -> Semantics:
    """Return the semantics with this name, or of the profile in a file; without a name, those of the newest PyTorch.

    The name `torch` stands for the model of the installed PyTorch.

    Raises:
        UnknownSemanticsError: there is neither.
        ProfileError: the file is not a profile.
    """
    if name is None:
        name = bundled_profiles()[-1]
    if name == TORCH:
        from dispatchlab.model.installed_torch import resolved_semantics

        name = resolved_semantics(name)
    if torch_name(name) in SEMANTICS:
        return SEMANTICS[torch_name(name)]
    if name.endswith(".json") and os.path.exists(name):
        return semantics_of(read_profile(name), name)
    raise UnknownSemanticsError(name)


# Where the kernels are that are no fallthroughs, see Note [Kernels above the engine].
_KERNELS = "dispatchlab.lab.builtin_kernels"
_PYTHON = "dispatchlab.lab.overrides.torch_dispatch"

# Note [Kernels above the engine]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# What runs at a key calls operators, records gradients and asks handlers: it stands above the engine, which must not
# import it. In PyTorch the libraries that are loaded later register such kernels with the dispatcher of c10. Here they
# are named, and the name is imported when a call first gets to the key; a program that only registers never does.

_FUNCTIONS: dict[str, str] = {
    "Meta": f"{_KERNELS}:meta",
    "Python": f"{_PYTHON}:python_fallback",
    "FuncTorchDynamicLayerBackMode": f"{_KERNELS}:dynamic_layer_back",
    "Functionalize": f"{_KERNELS}:functionalize",
    "Conjugate": f"{_KERNELS}:conjugate",
    "Negative": f"{_KERNELS}:negative",
    "ZeroTensor": f"{_KERNELS}:zero_tensor",
    "Tracer": f"{_KERNELS}:tracer",
    "FuncTorchBatched": f"{_KERNELS}:functorch_batched",
    "BatchedNestedTensor": f"{_KERNELS}:batched_nested_tensor",
    "Batched": f"{_KERNELS}:batched",
    "FuncTorchGradWrapper": f"{_KERNELS}:functorch_grad_wrapper",
    "PythonTLSSnapshot": f"{_PYTHON}:snapshot_fallback",
    "FuncTorchDynamicLayerFrontMode": f"{_KERNELS}:dynamic_layer_front",
    "PreDispatch": f"{_KERNELS}:pre_dispatch",
    "PythonDispatcher": f"{_KERNELS}:python_dispatcher",
}
"""What runs at a key; the autograd keys share one function, and a key that is not here runs nothing."""

_AUTOGRAD = "dispatchlab.lab.autograd_fallback:autograd_fallback"


@dataclass(frozen=True, slots=True)
class NamedFunction:
    """A function that is imported on its first call, because its package is above the engine.

    Args:
        reference: `package.module:function`.
    """

    reference: str

    def __call__(self, *arguments: object) -> object:
        return _loaded(self.reference)(*arguments)


_loaded: Callable[[str], Callable[..., object]] = cache(resolve_name)


def fallbacks_of(profile: Profile) -> tuple[Fallback, ...]:
    """Return PyTorch's own backend fallbacks, without those at keys that dispatchlab does not know."""
    return tuple(
        Fallback(DispatchKey[key], _kernel(key, found), found.debug)
        for key, found in profile.fallbacks.items()
        if key in DispatchKey.__members__
    )


def _kernel(key: str, found: BuiltinFallback) -> Kernel:
    if found.kind == "fallthrough":
        return Kernel(KernelForm.FALLTHROUGH)
    reference = _AUTOGRAD if key.startswith("Autograd") else _FUNCTIONS.get(key)
    if reference is None:
        return Kernel(KernelForm.BOXED)
    return Kernel(KernelForm.BOXED, function=NamedFunction(reference), takes_stack=True, with_keyset=True)


def is_builtin(debug: str) -> bool:
    """Return whether a fallback with this debug text is one of PyTorch's, of any version and at any key."""
    return any(source in debug for source in _sources())


@cache
def _sources() -> frozenset[str]:
    """Return the files of PyTorch that have a fallback, such as `aten/src/ATen/core/VariableFallbackKernel.cpp`."""
    texts = [one.debug for name in bundled_profiles() for one in bundled_profile(name).fallbacks.values()]
    return frozenset(found[0] for text in texts if (found := _SOURCE.search(text)) is not None)


_SOURCE = re.compile(r"(?:aten/src|torch/csrc)/[^ ]*\.cpp")
