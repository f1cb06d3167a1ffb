"""Recorded registries on the lab engine, without torch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.registration import Def, Fallback, Impl, KernelForm
from dispatchlab.model.schema_difference import DifferenceKind, schema_difference
from dispatchlab.questions.sources.replay_on_lab import bench, for_registry, registry_on
from dispatchlab.registries.replay import inferred_of, operator_registrations, registrations_of, replay, schema_of
from tests.registry_cases import BAR, DANGLING, FOO, SMALL


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
