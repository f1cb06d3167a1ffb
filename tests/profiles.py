"""Profiles for tests: the bundled ones and a PyTorch that there never was, and tables computed in both ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from dispatchlab.engine.fallbacks import Fallbacks
from dispatchlab.engine.kernel import RegisteredKernel
from dispatchlab.engine.precedence import Precedence, Slots, computed_table
from dispatchlab.engine.reference_precedence import plain_shape
from dispatchlab.engine.semantics import Semantics, semantics_of
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.profile import BuiltinFallback, Profile, bundled_profile, bundled_profiles
from dispatchlab.model.registration import Kernel, KernelForm
from dispatchlab.model.slot_set import KEY_BIT, KEY_OF_BIT, keys_of, set_bits

SYNTHETIC = "torch-1.99"
PROFILES = (*bundled_profiles(), SYNTHETIC)


def profile_named(name: str) -> Profile:
    """A bundled profile, or the synthetic one."""
    return synthetic() if name == SYNTHETIC else bundled_profile(name)


@cache
def profiled(name: str) -> Semantics:
    """The semantics of a profile."""
    return semantics_of(profile_named(name))


def synthetic() -> Profile:
    """Fewer keys, other orders, another expansion, other refreshes, another order of levels."""
    real = bundled_profile("torch-2.13")
    gone = {key for key in real.keys if key.endswith(("MAIA", "MTIA", "Lazy"))} - {"MAIA"}
    names = ["Undefined", "Dense", "FPGA", "MAIA"] + [
        key for key in real.keys if key not in gone and key not in ("Undefined", "Dense", "FPGA", "MAIA", "Fake")
    ]
    names.insert(names.index("Python") + 1, "Fake")
    names.insert(names.index("Conjugate"), "Named")
    runtime = [key for key in real.runtime if key not in gone and key not in ("MAIA", "Fake")]
    runtime.insert(runtime.index("FPGA") + 1, "MAIA")
    runtime.insert(runtime.index("Python") + 1, "Fake")
    runtime.insert(runtime.index("Conjugate"), "Named")

    def left(mapping: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        return {
            key: tuple(one for one in found if one not in gone) for key, found in mapping.items() if key not in gone
        }

    aliases = left(real.aliases)
    aliases["CompositeImplicitAutograd"] += ("Functionalize", "Named")
    takes = left(real.takes_composite)
    del takes["XLA"]  # this one forgets XLA, and knows of HIP
    takes["HIP"] = ("AutogradHIP",)
    ambiguous = {slot: (*keys, "MAIA") for slot, keys in left(real.ambiguous).items()}
    refresh = left(real.refresh_on_register)
    refresh["MAIA"] = ("MAIA", "AutogradOther")
    refresh["Named"] = ("Named",)
    refresh["CompositeImplicitAutograd"] += ("Functionalize",)  # and not Named
    released = {**refresh, "CPU": ("CPU",)}
    levels = [*real.precedence]
    at = levels.index("Autograd")
    levels[at], levels[at + 1] = levels[at + 1], levels[at]
    return replace(
        real,
        torch="1.99.0",
        keys={key: number for number, key in enumerate(names)},
        runtime=tuple(runtime),
        parsed=tuple(key for key in names if key in real.parsed or key == "Named"),
        aliases=aliases,
        precedence=tuple(levels),
        takes_composite=takes,
        ambiguous=ambiguous,
        refresh_on_register=refresh,
        refresh_on_release=released,
        full_refresh_without_key=False,
        fallbacks={
            "Named": BuiltinFallback("fallthrough", "registered at named.cpp:1"),
            "Python": BuiltinFallback("kernel", "registered at python.cpp:2"),
            "Fake": BuiltinFallback("kernel", "registered at fake.cpp:3"),
        },
        several_defs=False,
    )


def entries(bits: int) -> dict[int, tuple[RegisteredKernel, ...]]:
    return {bit: (RegisteredKernel(Kernel(), str(key), key),) for bit, key in KEY_OF_BIT.items() if bits & bit}


def by_slot(table: Slots) -> dict[int, tuple[DispatchKey | None, Provenance]]:
    """Slot -> where its kernel is registered, and why it is there."""
    return {
        slot: (None if held.reason is Provenance.AMBIGUOUS else held.registered.key, held.reason)
        for held, bits in table.items()
        for slot in set_bits(bits)
    }


def fallbacks_at(slots: int, *, odd: bool = False) -> Fallbacks:
    kernel = Kernel(KernelForm.FALLTHROUGH if odd else KernelForm.BOXED)
    return Fallbacks({KEY_BIT[key]: RegisteredKernel(kernel, f"fallback {key}", key) for key in keys_of(slots)})


def check_both_ways(precedence: Precedence, bits: int, fallbacks: Fallbacks) -> None:
    """Compare the table on sets of slots with the one made key by key."""
    plain = plain_shape(precedence.plain, bits, fallbacks.slots, fallbacks.fallthrough_slots)
    assert by_slot(computed_table(precedence, bits, entries(bits), fallbacks)) == {
        slot: (None if reason is Provenance.AMBIGUOUS else KEY_OF_BIT[source], reason)
        for (source, reason), held in plain.items()
        for slot in set_bits(held)
    }
