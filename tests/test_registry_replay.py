"""All of PyTorch 2.13 on the lab engine, from the bundled registry, without torch."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest

from dispatchlab.analysis.replay_on_lab import Bench, bench, for_registry, registry_on
from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.profile import model_for
from dispatchlab.model.registration import Def, Fallback, Impl, KernelForm
from dispatchlab.model.schema_difference import DifferenceKind, schema_difference
from dispatchlab.registry.file import open_bundled
from dispatchlab.registry.model import Registry, dump_text
from dispatchlab.registry.replay import inferred_of, operator_registrations, registrations_of, replay, schema_of
from tests.recorded_tables import PRINTED_SAMPLE, STEP, printed
from tests.registry_cases import BAR, DANGLING, FOO, SMALL

OPERATORS = (Path(__file__).parent / "data" / "torch-2.13-operators.txt").read_text()
"""Dump and table of five operators, as PyTorch 2.13 prints them."""

EVERYTHING = "ac26d93d3cffaed79b00b655640fd962cb4df3d591fbcf9fb6078d97d4e75a67"
"""SHA-256 of the dump and the table of every operator, by name, as PyTorch 2.13 prints them."""


@cache
def pytorch() -> Registry:
    return open_bundled("torch-2.13-cpu").load()


@cache
def replayed(semantics: str = "strict") -> Bench:
    return bench(pytorch(), semantics=semantics)


def shown(dispatcher: Dispatcher) -> str:
    """The digest of all dumps and tables."""
    digest, names = sha256(), sorted(map(str, dispatcher.operators()))
    assert len(names) == 3598
    for name in names:
        digest.update(dispatcher.dump(name).encode())
        digest.update(dispatcher.dump_table(name).encode())
    return digest.hexdigest()


@pytest.mark.parametrize("text", OPERATORS.split("\nname: "))
def test_five_operators_print_as_in_pytorch(text: str) -> None:
    expected_dump, expected_table = f"name: {text.removeprefix('name: ')}".rstrip("\n").split("\n\n")
    name = expected_dump.partition("\n")[0].removeprefix("name: ")
    alone = bench(open_bundled("torch-2.13-cpu"), operators=[name])
    assert alone.dispatcher.operators() == (replayed().dispatcher.find_op(name),)
    for dispatcher in (alone.dispatcher, replayed().dispatcher):
        assert dispatcher.dump(name) == f"{expected_dump}\n"
        assert dispatcher.dump_table(name) == f"{expected_table}\n"


@pytest.mark.parametrize("name", PRINTED_SAMPLE)
def test_a_sample_of_every_bundled_version_prints_as_in_its_pytorch(name: str) -> None:
    registry = open_bundled(name)
    sample = registry.names[::STEP]
    for semantics in ("strict", model_for(registry.torch)):
        held = bench(registry, semantics=semantics, operators=sample)
        assert len(held.dispatcher.operators()) == len(sample) > 10
        assert printed(held.dispatcher) == PRINTED_SAMPLE[name]


def test_no_slot_is_stale_under_strict() -> None:
    dispatcher = replayed().dispatcher
    dispatcher.check_invariants()
    assert dispatcher.dump_slots("aten::add.Tensor") == dispatcher.dump_table("aten::add.Tensor")


def test_a_replayed_registry_reads_back_equal() -> None:
    assert registry_on(replayed().dispatcher, pytorch().torch) == pytorch()


def test_when_the_handles_go_nothing_is_left() -> None:
    dispatcher = Dispatcher(for_registry("strict"), builtin_fallbacks=False)
    handles = replay(SMALL, dispatcher.register)
    assert len(dispatcher.operators()) == 3
    assert registry_on(dispatcher, "2.13.0") == replace(SMALL, imports=())
    for handle in handles:
        handle.release()
    assert dispatcher.operators() == ()


def test_a_registry_is_registered_def_first_and_of_each_key_the_oldest_first() -> None:
    assert [type(each) for each in registrations_of(SMALL)] == [Fallback, Impl, Def, Impl, Def, *4 * [Impl]]
    assert [type(each) for each in registrations_of(SMALL, fallbacks_first=False)][-1] is Fallback
    foo = operator_registrations(FOO)
    assert isinstance(foo[0], Def)
    assert (str(foo[0].schema), foo[0].debug, foo[0].tags) == (FOO.schema, FOO.debug, FOO.tags)
    impls = [each for each in foo[1:] if isinstance(each, Impl)]
    assert [(each.key, each.debug, each.kernel.form) for each in impls] == [
        (K.CPU, "registered at foo.cpp:12", KernelForm.UNBOXED),
        (K.Meta, "registered at foo.cpp:13", KernelForm.UNBOXED),
        (K.Meta, "registered at meta.py:7", KernelForm.BOXED),
        (K.Autograd, "", KernelForm.UNBOXED),
    ]
    assert {each.kernel.signature for each in impls} == {None}


def test_a_boxed_kernel_with_a_schema_takes_symbolic_integers() -> None:
    _, impl = operator_registrations(BAR)
    assert isinstance(impl, Impl)
    assert (impl.kernel.form, impl.kernel.symint, impl.kernel.flags) == (KernelForm.UNBOXED, True, "boxed")


def test_a_kernel_that_does_not_fit_is_refused() -> None:
    wrong = replace(FOO, schema="test::foo(Tensor x, int n) -> Tensor")
    with pytest.raises(RegistrationError) as caught:
        bench(replace(SMALL, operators=(DANGLING, BAR, wrong)))
    assert caught.value.kind is ErrorKind.SCHEMA_MISMATCH
    assert caught.value.facts["reason"] == "The number of arguments is different. 2 vs 1."


def test_a_schema_prints_as_it_was_recorded_and_reads_as_any_other() -> None:
    text = "static_runtime::select_tensor(Tensor(a) a, Tensor(b) b, bool use_b) -> Tensor(b|a)"
    other = text.replace("b|a", "a|b")
    assert (str(schema_of(text)), str(schema_of(other))) == (text, other)
    assert schema_of(text).returns == schema_of(other).returns
    assert str(schema_of("ext::f(__torch__.torch.classes.ext.Mine x) -> ()")) == (
        "ext::f(__torch__.torch.classes.ext.Mine x) -> ()"
    )


def test_opaque_values_of_python_are_a_type_of_their_own() -> None:
    text = "ext::group(PyObject mesh, int dim) -> PyObject"
    schema, inferred = schema_of(text), inferred_of("(PyObject _0, int _1) -> PyObject _0")
    assert (str(schema), str(inferred)) == (text, "(PyObject _0, int _1) -> PyObject _0")
    assert schema_difference(schema, inferred, symint_kernel=False) is None
    other = schema_difference(schema, inferred_of("(Tensor _0, int _1) -> PyObject _0"), symint_kernel=False)
    assert other is not None
    assert other.kind is DifferenceKind.ARGUMENT_TYPE


def test_the_dump_of_a_record_needs_no_engine() -> None:
    dispatcher = replayed().dispatcher
    assert [name for name in pytorch() if dump_text(name) != dispatcher.dump(name.name)] == []
