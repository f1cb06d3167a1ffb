"""The long tests of tests/test_torch_stand_in.py, which the quick tier leaves out."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from dispatchlab import ErrorKind
from dispatchlab.live.bridge.error_parser import facts_of, kind_of
from tests import test_torch_stand_in

c = test_torch_stand_in.c


def _refused(c: Any, how: str) -> str:
    kept = []

    def library(kind: str, namespace: str, key: str = "", line: int = 0) -> Any:
        kept.append(c._dispatch_library(kind, namespace, key, "/tmp/a.cpp", line))
        return kept[-1]

    def once(at: int) -> None:
        match how:
            case "def twice":
                library("FRAGMENT", "test", line=at).def_("foo(Tensor x) -> Tensor")
            case "another schema" if at == 1:
                library("FRAGMENT", "test", line=at).def_("foo(Tensor x, Tensor y) -> Tensor")
            case "another schema":
                library("FRAGMENT", "test", line=at).impl_t_t("foo", debug="fn")
            case "a fallback twice":
                library("IMPL", "_", "XLA", line=at).fallback_fallthrough()
            case "a library twice":
                library("DEF", "test", line=at)
            case "a key that is none" if at == 2:
                c._dispatch_print_registrations_for_dispatch_key("no_key")

    once(1)
    with pytest.raises(RuntimeError) as caught:
        once(2)
    return str(caught.value)


@pytest.mark.parametrize(
    ("how", "kind", "facts"),
    [
        (
            "def twice",
            ErrorKind.DUPLICATE_DEF,
            {
                "schema": "test::foo(Tensor x) -> Tensor",
                "debug": "registered at /tmp/a.cpp:2",
                "other_debug": "registered at /tmp/a.cpp:1",
            },
        ),
        (
            "another schema",
            ErrorKind.SCHEMA_MISMATCH,
            {
                "operator": "test::foo",
                "def_schema": "test::foo(Tensor x, Tensor y) -> Tensor",
                "def_debug": "registered at /tmp/a.cpp:1",
                "inferred_schema": "(Tensor _0) -> Tensor _0",
                "inferred_debug": "fn",
                "reason": "The number of arguments is different. 2 vs 1.",
            },
        ),
        (
            "a fallback twice",
            ErrorKind.DUPLICATE_FALLBACK,
            {"key": "XLA", "other_debug": "registered at /tmp/a.cpp:1", "debug": "registered at /tmp/a.cpp:2"},
        ),
        (
            "a library twice",
            ErrorKind.DUPLICATE_LIBRARY,
            {"namespace": "test", "other_debug": "registered at /tmp/a.cpp:1", "debug": "registered at /tmp/a.cpp:2"},
        ),
        ("a key that is none", ErrorKind.UNKNOWN_KEY, {"key": "no_key"}),
    ],
)
def test_a_refusal_has_the_words_of_pytorch(c: Any, how: str, kind: ErrorKind, facts: dict[str, str]) -> None:
    text = _refused(c, how)
    assert kind_of(text) is kind
    assert facts_of(kind, text) == facts
    gc.collect()
    assert c._dispatch_find_dangling_impls() == []
