"""Semantics of profiles: that of PyTorch 2.13 equals the one written by hand, and a synthetic one does what it says."""

from __future__ import annotations

import itertools
import json
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatchlab.engine import semantics as semantics_module
from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.engine.precedence import Slots, rules_of
from dispatchlab.engine.semantics import (
    SEMANTICS,
    Semantics,
    SignatureLife,
    UnknownSemanticsError,
    semantics_named,
    semantics_of,
    unknown_keys,
)
from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.model import profile
from dispatchlab.model.keys import ALIAS_KEYS, FORMER_KEYS, PARSED_BY_TORCH, RUNTIME_KEYS, DispatchKey
from dispatchlab.model.profile import (
    ProfileError,
    bundled_profile,
    bundled_profiles,
    nearest_profile,
    profile_of,
    profile_text,
)
from dispatchlab.model.registration import Def, Fallback, Impl, Registration
from dispatchlab.model.schema_parser import parse_schema
from dispatchlab.model.slot_set import (
    ALIAS_SLOTS,
    ALL_SLOTS,
    BACKENDS_OF_AUTOGRAD,
    DUMP_ORDER,
    KEY_BIT,
    KEY_OF_BIT,
)
from tests.engine_shorthand import FOO
from tests.handmade_torch_2_13 import (
    BUILD_ROOT,
    FALLTHROUGHS,
    KERNELS,
    REFRESH_NEEDED,
    REFRESH_UPSTREAM,
    fill_torch_2_13,
    plain_torch_2_13,
)
from tests.profiles import SYNTHETIC, entries, fallbacks_at, profiled, synthetic

K = DispatchKey
TORCH = SEMANTICS["torch-2.13"]


def known(key: DispatchKey) -> bool:
    return key not in FORMER_KEYS and key != K.Undefined


# -- PyTorch 2.13 by measurement and by hand


def test_the_profile_of_2_13_equals_what_was_written_by_hand_field_by_field() -> None:
    refresh = {key: bits for key, bits in TORCH.refresh.items() if known(key)}
    assert TORCH.alias_slots is not None
    assert (dict(TORCH.alias_slots), refresh) == (ALIAS_SLOTS, {k: v for k, v in REFRESH_UPSTREAM.items() if known(k)})
    assert (TORCH.refresh_on_release, TORCH.slot_order, TORCH.dump_order) == (None, None, DUMP_ORDER)
    assert TORCH.parsed == PARSED_BY_TORCH
    assert TORCH.existing == TORCH.keys == {*K} - {*FORMER_KEYS}
    assert TORCH.precedence.plain.slots == RUNTIME_KEYS
    flags = [field.name for field in fields(Semantics) if isinstance(getattr(TORCH, field.name), bool)]
    assert {name for name in flags if getattr(TORCH, name)} == {
        *("full_refresh_without_key", "refusal_leaves_traces", "tags_outlive_def", "fallback_without_slot"),
        *("torch_library", "notes_kernels"),
    }
    assert TORCH.signature_life is SignatureLife.OPERATOR
    assert {str(each.key): each.debug.removeprefix(BUILD_ROOT) for each in TORCH.fallbacks} == FALLTHROUGHS | KERNELS
    assert {str(each.key) for each in TORCH.fallbacks if each.kernel.is_fallthrough} == FALLTHROUGHS.keys()
    for slot, key in enumerate(RUNTIME_KEYS):
        without_slot = sum(KEY_OF_BIT) & ~ALL_SLOTS
        assert TORCH.precedence.plain.relevant[slot] == KEY_BIT[key] | BACKENDS_OF_AUTOGRAD.get(key, 0) | without_slot


def test_what_strict_refreshes_is_what_can_change() -> None:
    refresh = {key: bits for key, bits in SEMANTICS["strict"].refresh.items() if known(key)}
    assert refresh == {key: bits for key, bits in REFRESH_NEEDED.items() if known(key)}


BITS_2_13 = [bit for bit, key in KEY_OF_BIT.items() if key is not None and known(key)]
some_keys = st.frozensets(st.sampled_from(BITS_2_13), max_size=9) | st.frozensets(
    st.sampled_from([KEY_BIT[key] for key in (*ALIAS_KEYS, K.CPU, K.Dense, K.FPGA, K.NestedTensor, K.HIP)]), max_size=8
)
some_slots = st.integers(0, (1 << len(RUNTIME_KEYS)) - 1)


@settings(derandomize=True, deadline=None)
@given(some_keys, some_slots, some_slots)
def test_tables_of_2_13_equal_those_of_the_precedence_written_by_hand(
    present: frozenset[int], wanted: int, fallback_slots: int
) -> None:
    bits, fallbacks = sum(present), fallbacks_at(fallback_slots)
    kernels = entries(bits)
    filled: Slots = {}
    TORCH.precedence.fill(filled, wanted, bits, kernels, fallbacks)
    assert filled == fill_torch_2_13(wanted, bits, kernels, fallbacks)
    direct = {KEY_OF_BIT[bit] for bit in present}
    for key in (K.Undefined, K.CPU, K.AutogradCPU, K.AutogradOther, K.AutogradNestedTensor, K.NestedTensorHIP, K.HIP):
        with_fallback = {key} if fallback_slots >> key.slot & 1 else set()
        ours, theirs = (
            list(plain(key, direct, with_fallback, set()))
            for plain in (TORCH.precedence.plain.candidates, plain_torch_2_13)
        )
        assert ours == theirs


# -- a PyTorch that there never was


@pytest.fixture(scope="module")
def old() -> Semantics:
    return semantics_of(profile_of(json.loads(profile_text(synthetic()))))


def test_a_synthetic_profile_is_a_valid_one() -> None:
    assert profile_of(json.loads(profile_text(synthetic()))) == replace(
        synthetic(), keys=MappingProxyType(dict(synthetic().keys))
    )
    assert unknown_keys(synthetic()) == ()


# -- what the synthetic one prints


SCHEMA = Def(parse_schema("test::foo(Tensor x) -> Tensor"))


def row_names(dispatcher: Dispatcher) -> list[str]:
    return [line.partition(": ")[0] for line in dispatcher.dump_table(FOO).splitlines()]


def test_a_table_has_the_slots_of_the_profile_in_its_order(old: Semantics) -> None:
    profile = synthetic()
    dispatcher = Dispatcher(old, builtin_fallbacks=False)
    everything = [
        dispatcher.register(Impl(FOO, DispatchKey[name], debug=name)) for name in profile.parsed if name != "Undefined"
    ]
    present = {*profile.parsed, *(slot for covered in profile.aliases.values() for slot in covered)}
    assert row_names(dispatcher) == [name for name in profile.runtime if name in present]
    lines = [line.partition(": ")[0] for line in dispatcher.dump(FOO).splitlines()[2:]]
    aliases = {name: f"{name}[alias]" for name in profile.aliases}
    assert lines == [aliases.get(name, name) for name in profile.keys if name in profile.parsed and name != "Undefined"]
    assert row_names(dispatcher).index("FPGA") + 1 == row_names(dispatcher).index("MAIA")
    for handle in everything:
        handle.release()
    assert dispatcher.operator_entry(FOO) is None


def test_builtin_fallbacks_are_those_of_the_profile(old: Semantics) -> None:
    dispatcher = Dispatcher(old)
    with dispatcher.register(SCHEMA):
        assert dispatcher.dump_table(FOO) == (
            "Python: registered at python.cpp:2 [backend fallback]\n"
            "Fake: registered at fake.cpp:3 [backend fallback]\n"
            "Named: fallthrough registered at named.cpp:1 [backend fallback]\n"
        )


def test_an_alias_fills_what_the_profile_says(old: Semantics) -> None:
    dispatcher = Dispatcher(old, builtin_fallbacks=False)
    with dispatcher.register(Impl(FOO, K.CompositeImplicitAutograd, debug="math")):
        expected = {*synthetic().aliases["CompositeImplicitAutograd"]}
        assert {"Functionalize", "Named", "MAIA"} <= expected
        assert {*row_names(dispatcher)} == expected
        with dispatcher.register(Impl(FOO, K.HIP)):
            assert expected - {*row_names(dispatcher)} == {"AutogradHIP"}
        with dispatcher.register(Impl(FOO, K.XLA)):
            assert {*row_names(dispatcher)} == expected
        with dispatcher.register(Impl(FOO, K.MAIA)):
            assert "AutogradOther: ambiguous_autogradother [ambiguous autogradother]" in dispatcher.dump_table(FOO)


def test_a_registration_and_a_release_refresh_what_the_profile_says(old: Semantics) -> None:
    dispatcher = Dispatcher(old, builtin_fallbacks=False)
    keep = dispatcher.register(SCHEMA)
    math = dispatcher.register(Impl(FOO, K.CompositeImplicitAutograd, debug="math"))

    def stale() -> list[str]:
        return [key for violation in dispatcher.violations(FOO) for key in violation.keys]

    assert stale() == ["Named"]
    cpu = dispatcher.register(Impl(FOO, K.CPU, debug="cpu"))
    assert stale() == ["Named"]
    cpu.release()
    assert stale() == ["Named", "AutogradCPU"]
    math.release()
    assert stale() == []
    keep.release()


def test_an_unkeyed_kernel_refreshes_no_more_than_its_alias(old: Semantics) -> None:
    dispatcher = Dispatcher(old, builtin_fallbacks=False)
    with dispatcher.register(SCHEMA), dispatcher.register(Impl(FOO, debug="math")):
        assert [violation.keys for violation in dispatcher.violations(FOO)] == [("Named",)]


def test_keys_that_the_profile_lacks_are_refused(old: Semantics) -> None:
    dispatcher = Dispatcher(old, builtin_fallbacks=False)
    for key in (K.MTIA, K.AutocastMAIA, K.QuantizedMAIA, K.Lazy):
        with pytest.raises(RegistrationError) as caught:
            dispatcher.register(Impl(FOO, key))
        assert caught.value.kind is ErrorKind.UNKNOWN_KEY
    with dispatcher.register(Impl(FOO, K.Named, debug="named")):
        assert dispatcher.dump_table(FOO) == "Named: named [kernel]\n"


def test_the_lab_engine_explores_a_profile(old: Semantics) -> None:
    registrations: list[Registration] = [
        SCHEMA,
        Impl(FOO, K.CompositeImplicitAutograd, debug="math"),
        Impl(FOO, K.Named, debug="named"),
    ]
    orders = {}
    for order in itertools.permutations(range(3)):
        with LabEngine(old).sandbox() as sandbox:
            handles = [sandbox.register(registrations[at]) for at in order]
            orders[order] = (sandbox.snapshot(FOO).slots, sandbox.snapshot(FOO).table)
            for handle in handles:
                handle.release()
    assert len({*orders.values()}) == 1


# -- names and files


def test_strict_has_the_keys_of_the_newest_profile() -> None:
    newest = bundled_profile(bundled_profiles()[-1])
    strict = SEMANTICS["strict"]
    assert {str(key) for key in strict.keys} == {*newest.keys} - {*unknown_keys(newest)}
    assert [str(key) for key in strict.precedence.plain.slots] == [
        key for key in newest.runtime if key not in unknown_keys(newest)
    ]
    assert [str(each.key) for each in strict.builtin_fallbacks] == [*newest.fallbacks]
    assert strict.fallbacks == ()


def test_a_file_is_a_semantics(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(profile_text(synthetic()))
    made = semantics_named(str(path))
    assert made.name == str(path)
    assert made.keys == profiled(SYNTHETIC).keys
    path.write_text("{}")
    with pytest.raises(ProfileError):
        semantics_named(str(path))
    with pytest.raises(UnknownSemanticsError):
        semantics_named(str(tmp_path / "absent.json"))


def test_of_several_profiles_the_nearest_is_the_newest_for_a_later_major_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("torch-2.4", "torch-2.9", "torch-2.15")
    monkeypatch.setattr(profile, "bundled_profiles", lambda: names)
    asked = ((1, 0), (2, 3), (2, 8), (2, 12), (2, 99), (3, 0), (9, 0))
    nearest = ("torch-2.4", "torch-2.4", "torch-2.9", "torch-2.15", "torch-2.15", "torch-2.15", "torch-2.15")
    assert tuple(map(nearest_profile, asked)) == nearest


def test_an_unknown_version_gives_the_nearest() -> None:
    oldest, newest = bundled_profiles()[0], bundled_profiles()[-1]
    assert (nearest_profile((1, 0)), nearest_profile((9, 0))) == (oldest, newest)
    for text, near in (
        ("torch-2.99", newest),
        ("torch-2.0", oldest),
        ("torch-2.13.1", "torch-2.13"),
        ("strct", "strict"),
    ):
        with pytest.raises(UnknownSemanticsError) as caught:
            semantics_named(text)
        assert str(caught.value).endswith(f"; did you mean {near}?")


def test_a_key_that_dispatchlab_does_not_know_is_left_out() -> None:
    real = json.loads(profile_text(bundled_profile("torch-2.13")))
    real["keys"]["BrandNew"] = 999
    real["runtime"].append("BrandNew")
    real["parsed"].append("BrandNew")
    real["aliases"]["CompositeImplicitAutograd"].append("BrandNew")
    real["refresh_on_register"]["BrandNew"] = ["BrandNew"]
    real["fallbacks"]["BrandNew"] = {"kind": "kernel", "debug": "x"}
    profile = profile_of(real)
    assert unknown_keys(profile) == ("BrandNew",)
    made = semantics_of(profile)
    assert (made.keys, made.refresh, made.fallbacks) == (TORCH.keys, TORCH.refresh, TORCH.fallbacks)
    assert rules_of(profile).slots == RUNTIME_KEYS


def test_a_fallback_at_an_alias_key_serves_the_slots_that_a_kernel_there_refreshes() -> None:
    for name, served in (("torch-2.9", []), ("torch-2.10", ["FuncTorchBatched"])):
        dispatcher = Dispatcher(name, builtin_fallbacks=False)
        with dispatcher.register(SCHEMA):
            with dispatcher.register(Fallback(K.FuncTorchBatchedDecomposition, debug="everywhere")):
                assert row_names(dispatcher) == served
            with dispatcher.register(Impl(FOO, K.FuncTorchBatchedDecomposition)):
                assert row_names(dispatcher) == ["FuncTorchBatched"]


def test_a_fallback_of_a_version_that_is_not_bundled_is_pytorchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [one.debug for name in bundled_profiles() for one in bundled_profile(name).fallbacks.values()]
    for known in ("torch-2.4", "torch-2.13"):
        monkeypatch.setattr(semantics_module, "bundled_profiles", lambda known=known: (known,))
        semantics_module._sources.cache_clear()
        gone = "NamedRegistrations.cpp"  # of the key Named, which 2.13 has no more
        assert [text for text in texts if not semantics_module.is_builtin(text) and gone not in text] == []
        assert not semantics_module.is_builtin("registered at /home/me/pytorch/xla/torch_xla/csrc/aten_fallback.cpp:9")
    semantics_module._sources.cache_clear()
