"""Which kernel a slot gets, by the consequences of the precedence that people trip over."""

from __future__ import annotations

import pytest

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.handle import RegistrationHandle
from dispatchlab.model.keys import BACKENDS, RUNTIME_KEYS, DispatchKey, parse_key
from dispatchlab.model.operator_view import OUTRANKED
from dispatchlab.model.registration import Registration
from dispatchlab.model.slot_set import ALIAS_SLOTS, keys_of
from tests.engine_shorthand import BAR, FALLTHROUGH, FOO, K, fallback, impl, refused, rows, slots, state

CIA, CEA = K.CompositeImplicitAutograd, K.CompositeExplicitAutograd
CEANF = K.CompositeExplicitAutogradNonFunctional


class Table:
    """An operator with kernels at some keys, each named after its key."""

    def __init__(self, *keys: DispatchKey, fallbacks: tuple[DispatchKey, ...] = ()) -> None:
        self.dispatcher = Dispatcher("strict", builtin_fallbacks=False)
        registrations: list[Registration] = [
            *(impl(key, str(key)) for key in keys),
            *(fallback(key, "fallback") for key in fallbacks),
        ]
        self.handles: list[RegistrationHandle] = [self.dispatcher.register(one) for one in registrations]
        self.dispatcher.check_invariants()

    def __getitem__(self, key: DispatchKey) -> str | None:
        return rows(self.dispatcher).get(str(key))

    def count(self, what: str) -> int:
        return list(rows(self.dispatcher).values()).count(what)


def test_each_alias_key_fills_its_keys_and_no_others() -> None:
    counts = {}
    for alias in ALIAS_SLOTS:
        made = Table(alias)
        table = rows(made.dispatcher)
        expected = {str(key) for key in keys_of(ALIAS_SLOTS[alias])}
        also_undefined = {"Undefined"} if alias in (CIA, CEA, CEANF) else set()
        assert set(table) == expected | also_undefined
        counts[alias.name] = len(table)
    assert counts == {
        "Autograd": 18,
        "CompositeImplicitAutograd": 104,
        "FuncTorchBatchedDecomposition": 1,
        "CompositeImplicitAutogradNestedTensor": 17,
        "CompositeExplicitAutograd": 70,
        "CompositeExplicitAutogradNonFunctional": 48,
    }


def test_undefined_takes_the_explicit_kernels_before_the_composite_one() -> None:
    assert Table(CIA)[K.Undefined] == "CompositeImplicitAutograd [math kernel]"
    assert Table(CIA, CEA)[K.Undefined] == "CompositeExplicitAutograd [default backend kernel]"
    assert Table(CIA, CEA, CEANF)[K.Undefined] == "CompositeExplicitAutogradNonFunctional [default backend kernel]"
    assert Table(CIA, K.CPU, K.QuantizedCPU)[K.Undefined] == "CompositeImplicitAutograd [math kernel]"
    assert Table(K.Autograd)[K.Undefined] is None


def test_a_backend_kernel_takes_the_composite_one_away_from_its_autograd_key_only() -> None:
    table = Table(K.CPU, CIA)
    assert table[K.AutogradCPU] is None
    assert table[K.AutogradCUDA] == "CompositeImplicitAutograd [math kernel]"
    assert Table(K.CPU, CIA, K.Autograd)[K.AutogradCPU] == "Autograd [autograd kernel]"
    assert Table(K.CPU, CIA, fallbacks=(K.AutogradCPU,))[K.AutogradCPU] == "fallback [backend fallback]"
    assert Table(CIA, fallbacks=(K.AutogradCPU,))[K.AutogradCPU] == "CompositeImplicitAutograd [math kernel]"


def test_three_backends_never_take_the_composite_kernel_away() -> None:
    kept = [
        name
        for name in BACKENDS
        if Table(parse_key(name), CIA)[parse_key(f"Autograd{name}")] == "CompositeImplicitAutograd [math kernel]"
    ]
    assert kept == ["HIP", "VE", "MTIA"]


def test_an_explicit_kernel_takes_the_composite_one_away_from_every_autograd_and_nested_tensor_key() -> None:
    table = Table(CIA, CEA)
    assert table.count("CompositeImplicitAutograd [math kernel]") == 0
    assert table[K.AutogradOther] is None
    assert table[K.NestedTensorCPU] is None
    assert Table(CIA, CEANF).count("CompositeImplicitAutograd [math kernel]") == 104 - 48


def test_backends_without_an_autograd_key_of_their_own_make_autograd_other_ambiguous() -> None:
    ambiguous = [
        key
        for key in RUNTIME_KEYS[1:]
        if Table(key, CIA)[K.AutogradOther] == "ambiguous_autogradother [ambiguous autogradother]"
    ]
    assert len(ambiguous) == 53
    assert Table(K.FPGA, K.AutogradOther, CIA)[K.AutogradOther] == "AutogradOther [kernel]"
    assert Table(K.FPGA, K.Autograd)[K.AutogradOther] == "Autograd [autograd kernel]"
    assert Table(CEA, CIA)[K.AutogradOther] is None
    assert Table(CEA, K.FPGA, CIA)[K.AutogradOther] == "ambiguous_autogradother [ambiguous autogradother]"


def test_a_fallthrough_kernel_counts_as_a_kernel() -> None:
    dispatcher = Dispatcher("strict", builtin_fallbacks=False)
    handles = [dispatcher.register(impl(K.CPU, "skip", FALLTHROUGH)), dispatcher.register(impl(CIA, "math"))]
    assert rows(dispatcher, K.CPU, K.AutogradCPU) == {"CPU": "fallthrough skip [kernel]"}
    assert len(handles) == 2


def test_keys_that_no_alias_covers_come_from_their_own_kernel_or_a_fallback() -> None:
    alone = (K.BackendSelect, K.Functionalize, K.Python, K.ADInplaceOrView, K.Tracer, K.PythonDispatcher)
    aliases = tuple(ALIAS_SLOTS)
    without, fallen = Table(*aliases), Table(*aliases, fallbacks=alone)
    assert [without[key] for key in alone] == [None] * 6
    assert [fallen[key] for key in alone] == ["fallback [backend fallback]"] * 6


def test_a_kernel_at_a_functionality_key_fills_no_slot_and_counts_for_all_of_its_instances() -> None:
    for key in (K.Dense, K.Quantized, K.Sparse, K.SparseCsr, K.NestedTensor, K.AutogradFunctionality):
        table = Table(key)
        assert (table.dispatcher.def_and_impl_count(FOO), rows(table.dispatcher)) == (1, {})
    dense = Table(K.Dense, CIA)
    assert [str(key) for key in keys_of(ALIAS_SLOTS[K.Autograd]) if dense[key] is not None] == [
        *("AutogradOther", "AutogradHIP", "AutogradVE", "AutogradMTIA", "AutogradNestedTensor")
    ]
    for key in (K.Quantized, K.Sparse, K.SparseCsr):
        assert Table(key, CIA)[K.AutogradOther] == "ambiguous_autogradother [ambiguous autogradother]"
    assert Table(K.NestedTensor, CIA)[K.AutogradNestedTensor] is None
    assert Table(K.AutogradFunctionality, CIA).count("CompositeImplicitAutograd [math kernel]") == 104


@pytest.mark.parametrize("semantics", ["strict", "torch-2.13"])
def test_a_fallback_fills_the_slots_of_earlier_and_later_operators(semantics: str) -> None:
    dispatcher = Dispatcher.for_scenario(semantics)
    early = dispatcher.register(impl(K.CPU, "fn"))
    everywhere = dispatcher.register(fallback(K.XLA, "fallback"))
    late = dispatcher.register(impl(K.XLA, "own", operator=BAR))
    assert slots(dispatcher, K.XLA) == {"XLA": "fallback [backend fallback]"}
    assert slots(dispatcher, K.XLA, operator=BAR) == {"XLA": "own [kernel]"}
    late.release()
    everywhere.release()
    assert slots(dispatcher, K.XLA) == {}
    dispatcher.check_invariants()
    early.release()


def test_a_second_fallback_of_a_key_is_refused_with_both_of_them_named() -> None:
    dispatcher = Dispatcher("strict", builtin_fallbacks=False)
    first = dispatcher.register(fallback(K.XLA, "first"))
    before = state(dispatcher)
    error = refused(dispatcher, fallback(K.XLA, "second"))
    assert error.facts == {"key": "XLA", "debug": "second", "other_debug": "first"}
    assert state(dispatcher) == before
    first.release()
    dispatcher.register(fallback(K.XLA, "second")).release()


def test_the_semantics_of_pytorch_have_38_builtin_fallbacks() -> None:
    torch = Dispatcher.for_scenario("torch-2.13")
    handle = torch.register(impl(K.CPU, "fn"))
    found = [row for row in rows(torch).values() if row.endswith("[backend fallback]")]
    fallthroughs = [row for row in found if row.startswith("fallthrough ")]
    assert {"fallbacks": len(found), "of them fallthroughs": len(fallthroughs)} == {
        "fallbacks": 38,
        "of them fallthroughs": 10,
    }
    assert not handle.is_released


def test_explain_gives_the_reason_of_a_row_and_all_that_lost_to_it() -> None:
    table = Table(K.CPU, CIA, K.Autograd, fallbacks=(K.AutogradCPU,))
    view = table.dispatcher.explain("test::foo")
    assert view is not None
    row = next(row for row in view.table if row.key == "AutogradCPU")
    assert (row.source, row.reason, row.stale) == ("Autograd", "autograd kernel", None)
    assert [(lost.source, lost.why) for lost in row.beaten] == [
        ("CompositeImplicitAutograd", "CPU has a kernel of its own"),
        ("AutogradCPU", OUTRANKED),
    ]
    assert table.dispatcher.explain("test::nobody") is None
