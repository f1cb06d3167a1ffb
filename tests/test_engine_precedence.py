"""The table that calls use, computed on sets of slots, equals the precedence computed key by key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dispatchlab.engine import precedence
from dispatchlab.engine.fallbacks import Fallbacks
from dispatchlab.engine.kernel import RegisteredKernel
from dispatchlab.engine.precedence import Precedence, Slots, computed_table, with_own
from dispatchlab.engine.reference_precedence import plain_shape
from dispatchlab.engine.semantics import SEMANTICS
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.keys import ALIAS_KEYS, PER_BACKEND_FUNCTIONALITIES, RUNTIME_KEYS, DispatchKey
from dispatchlab.model.slot_set import ALL_SLOTS, CATCH_ALL_BIT, KEY_BIT
from tests.effort import examples
from tests.engine_shorthand import BOXED, FALLTHROUGH
from tests.handmade_torch_2_13 import REFRESH_NEEDED

STRICT, TORCH_2_13 = SEMANTICS["strict"], SEMANTICS["torch-2.13"]

REGISTRABLE_KEYS = tuple(key for key in DispatchKey if key != DispatchKey.Undefined)
# Aliases and functionality keys decide most, so every other key is one of them.
registrable_keys = st.one_of(
    st.sampled_from(ALIAS_KEYS), st.sampled_from(PER_BACKEND_FUNCTIONALITIES), st.sampled_from(REGISTRABLE_KEYS)
)
kernel_sets = st.sets(registrable_keys, max_size=12)
fallback_sets = st.dictionaries(st.sampled_from(RUNTIME_KEYS), st.booleans(), max_size=8)
exactly = examples(400)


def kernels_at(keys: set[DispatchKey]) -> dict[int, tuple[RegisteredKernel, ...]]:
    return {KEY_BIT[key]: (RegisteredKernel(BOXED, f"k{key}", key),) for key in keys}


def fallbacks_at(keys: dict[DispatchKey, bool]) -> Fallbacks:
    entries = {
        KEY_BIT[key]: RegisteredKernel(FALLTHROUGH if skip else BOXED, f"f{key}", key) for key, skip in keys.items()
    }
    return Fallbacks(entries)


def shape(slots: Slots) -> dict[tuple[str, Provenance], int]:
    return {(held.registered.debug, held.reason): bits for held, bits in slots.items()}


def plain(
    which: Precedence, kernels: dict[int, tuple[RegisteredKernel, ...]], fallbacks: Fallbacks
) -> dict[tuple[str, Provenance], int]:
    found: dict[tuple[str, Provenance], int] = {}
    table = plain_shape(which.plain, sum(kernels), fallbacks.slots, fallbacks.fallthrough_slots)
    for (source, reason), bits in table.items():
        if reason is Provenance.AMBIGUOUS:
            debug = "ambiguous_autogradother"
        else:
            debug = (fallbacks.by_slot[source] if reason is Provenance.FALLBACK else kernels[source][0]).debug
        found[debug, reason] = found.get((debug, reason), 0) | bits
    return found


@exactly
@given(kernel_sets, fallback_sets)
def test_the_fast_table_of_pytorch_equals_the_plain_one(
    keys: set[DispatchKey], fallen: dict[DispatchKey, bool]
) -> None:
    kernels, fallbacks = kernels_at(keys), fallbacks_at(fallen)
    fast = computed_table(TORCH_2_13.precedence, sum(kernels), kernels, fallbacks)
    assert shape(fast) == plain(TORCH_2_13.precedence, kernels, fallbacks)


@exactly
@given(
    st.sets(st.sampled_from([key for key in REGISTRABLE_KEYS if not key.is_alias]), max_size=12),
    fallback_sets,
    st.sets(st.none()),
)
def test_the_fast_table_of_2020_equals_the_plain_one(
    keys: set[DispatchKey], fallen: dict[DispatchKey, bool], catch_all: set[None]
) -> None:
    kernels, fallbacks = kernels_at(keys), fallbacks_at(fallen)
    if catch_all:
        kernels[CATCH_ALL_BIT] = (RegisteredKernel(BOXED, "catchall", None),)
    fast = computed_table(precedence.PR35061, sum(kernels), kernels, fallbacks)
    assert shape(fast) == plain(precedence.PR35061, kernels, fallbacks)


@exactly
@given(kernel_sets, fallback_sets, st.integers(0, ALL_SLOTS))
def test_a_part_of_the_table_is_that_part_of_the_whole_one(
    keys: set[DispatchKey], fallen: dict[DispatchKey, bool], wanted: int
) -> None:
    kernels, fallbacks = kernels_at(keys), fallbacks_at(fallen)
    for which in (TORCH_2_13.precedence, precedence.PR35061):
        whole = computed_table(which, sum(kernels), kernels, fallbacks)
        part: Slots = {}
        which.fill(part, wanted, sum(kernels), kernels, fallbacks)
        assert with_own(part, wanted & sum(kernels), kernels) == {
            held: bits & wanted for held, bits in whole.items() if bits & wanted
        }


@exactly
@given(kernel_sets, registrable_keys, fallback_sets)
def test_a_change_at_a_key_changes_no_slot_outside_of_its_refresh_set(
    keys: set[DispatchKey], changed: DispatchKey, fallen: dict[DispatchKey, bool]
) -> None:
    kernels, fallbacks = kernels_at(keys), fallbacks_at(fallen)
    without = {bit: entries for bit, entries in kernels.items() if bit != KEY_BIT[changed]}
    with_it = {**without, KEY_BIT[changed]: kernels.get(KEY_BIT[changed], kernels_at({changed})[KEY_BIT[changed]])}
    before, after = (computed_table(TORCH_2_13.precedence, sum(one), one, fallbacks) for one in (without, with_it))
    differing = 0
    for held in {**before, **after}:
        differing |= before.get(held, 0) ^ after.get(held, 0)
    assert differing & ~REFRESH_NEEDED[changed] == 0


def test_pytorch_refreshes_too_little_for_59_keys_and_the_functionality_keys() -> None:
    too_little = [key for key in REGISTRABLE_KEYS if STRICT.refresh[key] & ~TORCH_2_13.refresh[key]]
    assert len([key for key in too_little if key not in PER_BACKEND_FUNCTIONALITIES]) == 59
    assert [str(key) for key in too_little if key in PER_BACKEND_FUNCTIONALITIES] == ["Dense", "NestedTensor"]
