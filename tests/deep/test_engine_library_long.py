"""The long tests of tests/test_engine_library.py, which the quick tier leaves out."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.library import Library
from dispatchlab.errors import ErrorKind, RegistrationError
from tests.engine_shorthand import state
from tests.test_engine_library import kernel


@pytest.mark.parametrize("semantics", ["strict", "torch-2.13"])
def test_what_torch_library_refuses_is_refused_without_a_trace(semantics: str) -> None:
    dispatcher = Dispatcher(semantics)
    opened = {kind: Library("test", kind, dispatcher=dispatcher) for kind in ("DEF", "FRAGMENT", "IMPL")}
    before = state(dispatcher)
    not_a_kernel: Any = 7
    refusals: list[tuple[Any, ErrorKind]] = [
        (lambda: Library("prim", "FRAGMENT", dispatcher=dispatcher), ErrorKind.OTHER),
        (lambda: Library("test", "FRAGMNT", dispatcher=dispatcher), ErrorKind.UNKNOWN_BLOCK_KIND),
        (lambda: Library("test", "IMPORT", dispatcher=dispatcher), ErrorKind.UNKNOWN_BLOCK_KIND),
        (lambda: Library("test", "IMPL", "Cpu", dispatcher=dispatcher), ErrorKind.UNKNOWN_KEY),
        (lambda: Library("_", "DEF", dispatcher=dispatcher), ErrorKind.WILDCARD_NAMESPACE),
        (lambda: Library("x", "DEF", "CPU", dispatcher=dispatcher), ErrorKind.KEY_ON_DEF_BLOCK),
        (lambda: Library("test", "DEF", dispatcher=dispatcher), ErrorKind.DUPLICATE_LIBRARY),
        (lambda: opened["DEF"].define("foo() -> ()", alias_analysis="PURE"), ErrorKind.UNKNOWN_ALIAS_KIND),
        (lambda: opened["DEF"].define("foo() -> ()", not_a_kernel), ErrorKind.OTHER),
        (lambda: opened["DEF"].define("foo", kernel), ErrorKind.CANNOT_INFER_SCHEMA),
        # What is wrong twice is refused for its alias kind and its key before its name and its schema are read.
        (lambda: opened["DEF"].define("foo(", alias_analysis="PURE"), ErrorKind.UNKNOWN_ALIAS_KIND),
        (lambda: opened["DEF"].impl("foo(", kernel, "Cpu"), ErrorKind.UNKNOWN_KEY),
        (lambda: opened["DEF"].define("other::foo() -> ()"), ErrorKind.NAMESPACE_MISMATCH),
        (lambda: opened["IMPL"].define("foo() -> ()"), ErrorKind.DEF_IN_IMPL_BLOCK),
        (lambda: opened["IMPL"].impl("foo", not_a_kernel, "CPU"), ErrorKind.OTHER),
        (lambda: opened["IMPL"].impl("foo", kernel, "Autocast"), ErrorKind.UNKNOWN_KEY),
        (lambda: opened["FRAGMENT"].fallback(kernel, "CPU"), ErrorKind.FALLBACK_OUTSIDE_IMPL),
        (lambda: opened["IMPL"].fallback(kernel, "CPU"), ErrorKind.FALLBACK_WITH_NAMESPACE),
        (lambda: opened["IMPL"].fallback(kernel), ErrorKind.FALLBACK_WITHOUT_KEY),
    ]
    seen = []
    for attempt, expected in refusals:
        with pytest.raises(RegistrationError) as caught:
            attempt()
        seen.append((caught.value.kind, expected))
        del caught
    gc.collect()
    assert [found for found, _ in seen] == [expected for _, expected in seen]
    assert len(seen) == 19
    assert state(dispatcher) == before
