"""Dispatch keys, sets of slots and key sets against the tables read off the running PyTorch 2.13."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatchlab.call.local_key_set import DEFAULT_EXCLUDED, DEFAULT_INCLUDED
from dispatchlab.model.key_set import BACKEND_BITS, FULL_BITS, DispatchKeySet
from dispatchlab.model.keys import (
    ALIAS_KEYS,
    AUTOGRAD_KEY_OF_BACKEND,
    BACKENDS,
    FUNCTIONALITY_KEYS,
    PARSED_BY_TORCH,
    RUNTIME_KEYS,
    DispatchKey,
    UnknownKeyError,
    parse_key,
)
from dispatchlab.model.slot_set import (
    ALIAS_SLOTS,
    BACKEND_SLOTS,
    BACKENDS_OF_AUTOGRAD,
    keys_of,
)
from tests.effort import examples
from tests.handmade_torch_2_13 import REFRESH_NEEDED, REFRESH_UPSTREAM

TORCH: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "keys-2.13.json").read_text())


def names(slots: int) -> list[str]:
    return [str(key) for key in keys_of(slots)]


def test_runtime_keys_stand_in_the_order_of_the_table() -> None:
    assert [str(key) for key in RUNTIME_KEYS] == TORCH["runtime_table_order"]
    assert len(RUNTIME_KEYS) == 137


def test_every_key_has_upstreams_number() -> None:
    for name, facts in TORCH["runtime_keys"].items():
        assert DispatchKey[name] == facts["enum_value"]
        assert DispatchKey[name].slot == facts["table_index"]
    assert [(key.name, key.value) for key in ALIAS_KEYS] == [
        (row["name"], row["value"]) for row in TORCH["alias_keys_in_enum_order"]
    ]


def test_every_runtime_key_has_upstreams_functionality_and_backend() -> None:
    for name, facts in TORCH["runtime_keys"].items():
        key = DispatchKey[name]
        assert str(key.functionality) == facts["functionality"]
        backend = None if key.backend is None else BACKENDS[key.backend]
        assert backend == TORCH["backend_component_of_runtime_key"][name]


def test_the_parser_knows_what_upstreams_parser_accepts() -> None:
    assert {str(key) for key in PARSED_BY_TORCH} == set(TORCH["parse_accepted"])
    assert len(set(RUNTIME_KEYS) - PARSED_BY_TORCH) == 42
    for text in TORCH["parse_errors"]:
        if text not in DispatchKey.__members__:
            with pytest.raises(UnknownKeyError):
                parse_key(text)


def test_an_unknown_key_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UnknownKeyError) as caught:
        parse_key("AutogradCuda")
    assert str(caught.value) == "'AutogradCuda' is not a dispatch key; did you mean AutogradCUDA?"


def test_the_name_of_a_device_is_answered_with_private_use_1() -> None:
    assert parse_key("npu", "npu") is DispatchKey.PrivateUse1
    with pytest.raises(UnknownKeyError, match=r"'nqu' is not a dispatch key; did you mean npu\?"):
        parse_key("nqu", "npu")
    with pytest.raises(UnknownKeyError, match="; for a device of your own, write PrivateUse1, or name the package"):
        parse_key("npu")


@pytest.mark.parametrize("alias", ALIAS_KEYS, ids=str)
def test_alias_keys_stand_for_upstreams_runtime_keys(alias: DispatchKey) -> None:
    assert names(ALIAS_SLOTS[alias]) == TORCH["alias_sets"][str(alias)]


def test_backend_keys_and_autograd_keys_have_upstreams_backends() -> None:
    assert names(BACKEND_SLOTS) == TORCH["is_backend_dispatch_key"]
    rows = {str(key): sorted(names(slots)) for key, slots in BACKENDS_OF_AUTOGRAD.items()}
    assert rows == {
        key: sorted(row["runtime_keys_by_has"]) for key, row in TORCH["backend_keyset_from_autograd"].items()
    }
    for backend, autograd in enumerate(AUTOGRAD_KEY_OF_BACKEND):
        assert str(autograd) == TORCH["autograd_key_from_backend_component"][BACKENDS[backend]]


def test_upstream_refreshes_too_few_slots_for_59_keys() -> None:
    missing = {}
    for name, slots in TORCH["refresh_on_kernel_change_needed"].items():
        if name == "Undefined":
            continue
        key = DispatchKey[name]
        assert sorted(names(REFRESH_NEEDED[key])) == sorted(slots)
        assert sorted(names(REFRESH_UPSTREAM[key])) == sorted(TORCH["refresh_on_kernel_change_upstream"][name])
        if left := names(REFRESH_NEEDED[key] & ~REFRESH_UPSTREAM[key]):
            missing[name] = sorted(left)
    assert missing == {name: sorted(slots) for name, slots in TORCH["refresh_missing_upstream"].items()}
    assert len(missing) == 59


def test_every_runtime_key_has_upstreams_bits() -> None:
    for name, facts in TORCH["runtime_keys"].items():
        key_set = DispatchKeySet.of(DispatchKey[name])
        assert key_set.bits == facts["raw_repr"]
        assert str(key_set.highest()) == facts["highestPriorityTypeId"]
    assert DispatchKeySet.full().bits == TORCH["full_raw_repr"]


def test_full_after_a_key_is_upstreams() -> None:
    for name, bits in TORCH["full_after"].items():
        assert DispatchKeySet.full_after(DispatchKey[name]).bits == bits


def test_full_after_undefined_and_alias_keys_has_the_low_backend_bits_alone() -> None:
    for key in DispatchKey:
        if key.is_alias or key is DispatchKey.Undefined:
            assert DispatchKeySet.full_after(key).bits == 0x2000000000007FFF


def test_default_sets_of_a_thread_print_as_upstream_prints_them() -> None:
    for row in (TORCH["tls_include_default"], TORCH["tls_exclude_default"]):
        assert str(DispatchKeySet(row["raw"])) == row["repr"]
    sets = TORCH["tls_include_default"]["raw"], TORCH["tls_exclude_default"]["raw"]
    assert (DEFAULT_INCLUDED.bits, DEFAULT_EXCLUDED.bits) == sets


def test_difference_leaves_every_backend_bit() -> None:
    both = DispatchKeySet.of(DispatchKey.CPU, DispatchKey.CUDA)
    left = both - DispatchKeySet.of(DispatchKey.CUDA)
    assert (str(left), left.bits) == ("DispatchKeySet()", 0b11)


def test_a_set_has_keys_that_nobody_put_there() -> None:
    mixed = DispatchKeySet.of(DispatchKey.CPU, DispatchKey.AutogradCUDA)
    assert all(mixed.has(key) for key in (DispatchKey.CUDA, DispatchKey.AutogradCPU))


key_sets = st.integers(0, FULL_BITS).map(DispatchKeySet)
keys = st.sampled_from(sorted({*FUNCTIONALITY_KEYS, *RUNTIME_KEYS}))


@examples(100)
@given(key_sets, keys)
def test_adding_then_removing_a_key_clears_its_functionality_only(some: DispatchKeySet, key: DispatchKey) -> None:
    again = some.add(key).remove(key)
    assert again.bits & BACKEND_BITS == some.add(key).bits & BACKEND_BITS
    assert again == some.add(key) - DispatchKeySet.of(key)
    assert key == DispatchKey.Undefined or not again.bits >> len(BACKENDS) + key.functionality - 1 & 1


@examples(100)
@given(key_sets)
def test_the_highest_key_is_the_last_one_listed(some: DispatchKeySet) -> None:
    listed = list(some)
    assert [key.slot for key in listed] == sorted(key.slot for key in listed)
    if some.highest_backend() is not None and some.highest_functionality() != DispatchKey.Undefined:
        assert listed[-1] == some.highest()
        assert some.slot() == some.highest().slot
