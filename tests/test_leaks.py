"""Registrations that are left behind."""

from __future__ import annotations

from typing import Any

import pytest

from dispatchlab import Dispatcher, Library
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.registration import Claim, Def, Fallback, Impl, Kernel
from dispatchlab.model.schema_parser import parse_name, parse_schema
from dispatchlab.questions.leaks import Watch, leaks_text

FOO = parse_name("test::foo")
SCHEMA = parse_schema("test::foo(Tensor x) -> Tensor")


def lines(watch: Watch) -> list[str]:
    return [line.partition(": ")[2] for line in watch.leaks()]


def test_what_is_released_is_no_leak() -> None:
    dispatcher = Dispatcher(builtin_fallbacks=False)
    watch = Watch()
    with dispatcher.register(Def(SCHEMA)), dispatcher.register(Impl(FOO, DispatchKey.CPU, Kernel(), "mine")):
        assert "test::foo: + CPU: mine :: (none) [ boxed ]" in lines(watch)
    assert watch.leaks() == ()


def test_each_sort_of_registration_is_listed() -> None:
    dispatcher = Dispatcher(builtin_fallbacks=False)
    handles = [dispatcher.register(Def(SCHEMA, debug="the def"))]
    watch = Watch()
    handles.append(dispatcher.register(Impl(FOO, DispatchKey.CPU, Kernel(), "mine")))
    handles.append(dispatcher.register(Fallback(DispatchKey.Tracer, debug="a fallback")))
    handles.append(dispatcher.register(Claim("test")))
    fallback, *others = lines(watch)
    assert (fallback.startswith("fallbacks: + "), "a fallback" in fallback) == (True, True)
    assert others == ["namespaces: + test", "test::foo: + CPU: mine :: (none) [ boxed ]"]
    assert leaks_text(watch.leaks()).count("\n") == 4
    for handle in handles[1:]:
        handle.release()
    assert watch.leaks() == ()
    handles[0].release()
    assert "test::foo: - debug: the def" in lines(watch)


def test_dispatchers_that_came_later_are_nobodys_business() -> None:
    watch = Watch()
    dispatcher = Dispatcher(builtin_fallbacks=False)
    with dispatcher.register(Def(SCHEMA)):
        assert watch.leaks() == ()
        assert dispatcher.operators() == (FOO,)


def test_what_is_allowed_may_stay() -> None:
    dispatcher = Dispatcher(builtin_fallbacks=False)
    watch = Watch()
    watch.allow("other::*", "test::f*")
    with dispatcher.register(Def(SCHEMA)):
        assert watch.leaks() == ()


def test_a_library_in_a_reference_cycle_is_collected_before_it_is_blamed() -> None:
    dispatcher = Dispatcher(builtin_fallbacks=False)
    watch = Watch()

    def leave() -> None:
        library = Library("test", "FRAGMENT", dispatcher=dispatcher)
        library.define("foo(Tensor x) -> Tensor")
        cycle: list[object] = [library]
        cycle.append(cycle)

    leave()
    assert watch.leaks() == ()
    assert dispatcher.operators() == ()


def test_on_the_running_pytorch_what_others_register_is_a_leak_and_what_it_registers_is_none() -> None:
    torch: Any = pytest.importorskip("torch")
    watch = Watch()
    torch.testing.assert_close(torch.ones(1), torch.ones(1))
    torch.library.opcheck(torch.ops.aten.sin.default, (torch.ones(1),))
    assert watch.leaks() == ()
    library = torch.library.Library("dispatchlab_leaky", "DEF")
    library.define("op(Tensor x) -> Tensor")
    kernels = torch.library.Library("aten", "IMPL")
    kernels.impl("relu", lambda x: x, "PrivateUse1")
    found = watch.leaks()
    assert any(line.startswith("torch: aten::relu: + PrivateUse1: registered at ") for line in found)
    assert "torch: dispatchlab_leaky::op: + schema: dispatchlab_leaky::op(Tensor x) -> Tensor" in found
    for each in (library, kernels):
        each._destroy()
    assert watch.leaks() == ()
