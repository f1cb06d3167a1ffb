"""Calls of `torch.library`: the lab engine refuses, shows and keeps what the running PyTorch does."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.semantics import semantics_named
from dispatchlab.errors import RegistrationError
from dispatchlab.live.bridge.torch import bindings, torch
from dispatchlab.live.bridge.torch_library_calls import numbered, reset_custom_ops
from dispatchlab.live.sandbox.kept_in_python import number_of
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.registration import TorchLibraryFunction
from tests import effort
from tests.live.torch_library_histories import check_histories
from tests.torch_library_scenarios import FOO, OPERATORS, block

pytestmark = pytest.mark.skipif(
    not semantics_named("torch").torch_library, reason="the lab engine follows other rules than this PyTorch"
)


def test_the_number_of_a_call_is_found_through_wrappers_with_names_that_have_no_value() -> None:
    def wrapped(function: Callable[..., object]) -> Callable[..., object]:
        def wrapper() -> object:
            return unset, function  # noqa: F821  it was deleted, as it should be here

        unset = None
        del unset
        return wrapper

    assert number_of(wrapped(wrapped(numbered(7)))) == 7
    assert number_of(wrapped(print)) is None


def test_what_allow_override_lets_in_is_equal_after_every_step() -> None:
    seen = check_histories(2000, effort.share(150), overrides=True)
    assert {"registered", "released", "duplicate_kernel", "meta_beside_composite"} <= set(seen)


def test_refusals_dumps_and_what_python_keeps_are_equal_after_every_step() -> None:
    seen = check_histories(0, effort.share(400))
    assert {"registered", "released", "duplicate_def", "no_such_schema"} <= set(seen)
    if effort.percent == 100:
        assert {"meta_beside_composite", "duplicate_rule", "not_functional", "other"} <= set(seen)


SCHEMA = "(Tensor x) -> Tensor"
REFUSED = {
    "meta beside composite": SCHEMA,
    "keyword tensor": "(*, Tensor x) -> Tensor",
    "no device": "(int n) -> Tensor",
}
"""The schema of a `custom_op` that is refused, by the reason."""


@pytest.mark.parametrize("reason", REFUSED)
def test_a_refused_custom_op_leaves_in_the_lab_what_it_leaves_in_a_program(reason: str) -> None:
    namespace = f"refused_{reason.replace(' ', '_')}"

    def made(schema: str) -> object:
        def kernel(*arguments: object) -> object:
            return arguments

        custom_op = torch().library.custom_op
        return custom_op(f"{namespace}::foo", mutates_args=(), device_types="cpu", schema=schema)(kernel)

    def dump() -> str:
        return str(bindings()._dispatch_dump(f"{namespace}::foo")).replace(f"{namespace}::", "test::")

    first, dispatcher = made(SCHEMA), Dispatcher("torch")
    custom_op = re.findall("debug: (.*)", dump())[0]
    handles = [dispatcher.register(block(TorchLibraryFunction.CUSTOM_OP, FOO, custom_op, on=["cpu"]))]
    assert dispatcher.dump(OPERATORS[0]) == dump()
    if reason == "meta beside composite":
        library = torch().library.Library(namespace, "FRAGMENT")
        library.impl("foo", lambda x: x, "CompositeImplicitAutograd")
        (debug,) = re.findall("CompositeImplicitAutograd.*?: (.*?) ::", dump())
        composite = block(TorchLibraryFunction.IMPL, FOO, debug, key=DispatchKey.CompositeImplicitAutograd)
        handles.append(dispatcher.register(composite))
    refused = block(TorchLibraryFunction.CUSTOM_OP, FOO, custom_op, on=["cpu"], schema=REFUSED[reason])
    for _ in range(2):
        with pytest.raises((RuntimeError, ValueError, NotImplementedError)):
            made(REFUSED[reason])
        with pytest.raises(RegistrationError):
            dispatcher.register(refused)
        assert dispatcher.snapshot(OPERATORS[0]).dump == dump()
    assert bool(dump()) is (reason != "keyword tensor")
    if reason == "meta beside composite":
        library._destroy()
        handles.pop().release()
        assert dispatcher.dump(OPERATORS[0]) == dump()
    del first
    second = made(SCHEMA)
    handles.append(dispatcher.register(block(TorchLibraryFunction.CUSTOM_OP, FOO, custom_op, on=["cpu"])))
    assert dispatcher.dump(OPERATORS[0]) == dump()
    reset_custom_ops(f"{namespace}::")
    del second
