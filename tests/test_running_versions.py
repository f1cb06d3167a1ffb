"""What the live engine knows of PyTorch versions that are not installed: marks of calls, keys, and memory layouts."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from dispatchlab.live.bridge import call_mark, running_keys
from dispatchlab.live.bridge.call_mark import CallMark
from dispatchlab.live.introspection.slot_memory import MemoryLayout, entry_address


@pytest.fixture
def _no_cache() -> Iterator[None]:
    call_mark.file_of_libraries.cache_clear()
    running_keys.running_keys.cache_clear()
    yield
    call_mark.file_of_libraries.cache_clear()
    running_keys.running_keys.cache_clear()


class Bindings:
    """Bindings of a PyTorch that keeps the file of a library, or says another one for all of them."""

    def __init__(self, file: str | None) -> None:
        self.file, self.shown = file, ""

    def _dispatch_library(self, kind: str, namespace: str, key: str, file: str, line: int) -> Any:
        def define(schema: str, alias: str) -> None:
            self.shown = f"name: x\nschema: x() -> ()\ndebug: registered at {self.file or file}:{line}\n"

        return SimpleNamespace(define=define, reset=lambda: None)

    def _dispatch_dump(self, name: str) -> str:
        return self.shown


@pytest.mark.usefixtures("_no_cache")
@pytest.mark.parametrize("file", [None, "/dev/null"])
def test_calls_are_told_apart_whether_libraries_keep_their_file_or_not(
    monkeypatch: pytest.MonkeyPatch, file: str | None
) -> None:
    bindings = Bindings(file)
    monkeypatch.setattr(call_mark, "bindings", lambda: bindings)
    assert call_mark.file_of_libraries() == file
    assert call_mark.debug_text("my/ops.py", 7) == f"registered at {file or 'my/ops.py'}:7"
    one, other = CallMark.create(), CallMark.create()
    for number in (0, 7, 123_456):
        text = f"CPU: {one.debug(number)} [kernel]"
        found = re.search(one.pattern, text)
        assert found is not None
        assert int(found[1]) == number
        assert re.search(one.pattern + r" \[", text) is not None
        assert re.search(other.pattern, text) is None
        assert one.line(number) < 2**32
    if file is None:
        assert len(one.file) > 15  # a shorter one is lost on PyTorch 2.9, see Note [Libraries without a file]
    users = "CPU: registered at /dev/null:41 [kernel]"
    assert re.search(one.pattern, users) is None


@pytest.mark.usefixtures("_no_cache")
def test_running_keys_are_those_of_the_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["Undefined", "Dense", "Later", "UnknownUnknown", "Undefined", "CPU", "SparseUndefined", "SparseCPU", "All"]
    bindings = SimpleNamespace(
        DispatchKey=lambda number: number,
        _dispatch_key_name=lambda number: names[number] if number < len(names) else "UnknownUnknown",
        _dispatch_keyset_full=lambda: None,
        _dispatch_keyset_to_string=lambda keys: "DispatchKeySet(CPU, SparseCPU, Later)",
        _parse_dispatch_key=lambda name: None if name == "SparseCPU" else name,
        _dispatch_is_alias_key=lambda number: number == 8,
    )
    monkeypatch.setattr(running_keys, "bindings", lambda: bindings)
    found = running_keys.running_keys()
    assert dict(found.numbers) == {"Undefined": 0, "Dense": 1, "Later": 2, "CPU": 5, "SparseCPU": 7, "All": 8}
    assert found.runtime == ("Undefined", "CPU", "SparseCPU", "Later")
    assert found.slot_of["Later"] == 3
    assert found.parsed == {"Undefined", "Dense", "Later", "CPU", "All"}
    assert found.aliases == ("All",)


def _words(*values: int) -> ctypes.Array[ctypes.c_uint64]:
    return (ctypes.c_uint64 * len(values))(*values)


def _text(text: str, kept: list[object]) -> tuple[int, int]:
    """A text in memory behind its count, as old strings have it: its address and its count."""
    size = len(text)
    made = ctypes.create_string_buffer(size.to_bytes(8, "little") + bytes(16) + text.encode())
    kept.append(made)
    return ctypes.addressof(made) + 24, size


@pytest.mark.parametrize("old", [False, True])
def test_an_entry_is_found_with_strings_of_either_abi(old: bool) -> None:  # noqa: FBT001
    kept: list[object] = []
    names = [("a::b", ""), ("a::b", "out"), ("a::bb", "")]
    sentinel = _words(0, 0)
    nodes = []
    for name, overload in names:
        (at, size), (at2, size2) = _text(name, kept), _text(overload, kept)
        nodes.append(_words(0, 0, at, at2) if old else _words(0, 0, at, size, 0, 0, at2, size2))
    addresses = [ctypes.addressof(each) for each in (sentinel, *nodes)]
    for before, node, after in zip(addresses, nodes, [*addresses[2:], addresses[0]], strict=False):
        node[0], node[1] = after, before
    sentinel[0], sentinel[1] = addresses[1], addresses[-1]
    layout = MemoryLayout(0, 8, addresses[0], 1, old)
    for (name, overload), address in zip(names, addresses[1:], strict=True):
        assert entry_address(layout, name, overload) == address + 16
    assert entry_address(layout, "a::c") is None
