"""The shared libraries of this process: where calls of a function go through, which function an address is in, and
where a library keeps what is local to a thread. For Linux on x86-64 with glibc."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np


class _Header(ctypes.Structure):
    """`Elf64_Phdr`."""

    _fields_ = [
        ("type", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        *((name, ctypes.c_uint64) for name in ("offset", "virtual", "physical", "in_file", "in_memory", "aligned")),
    ]


class _Info(ctypes.Structure):
    """`struct dl_phdr_info`."""

    _fields_ = [
        ("base", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.POINTER(_Header)),
        ("count", ctypes.c_uint16),
        ("added", ctypes.c_uint64),
        ("removed", ctypes.c_uint64),
        ("thread_module", ctypes.c_size_t),
        ("thread_data", ctypes.c_void_p),
    ]


class _Place(ctypes.Structure):
    """`Dl_info`."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


class Library(NamedTuple):
    """A loaded library.

    Args:
        name: its file.
        base: the address that its own addresses are counted from.
        dynamic: the address of its dynamic section; 0 for none.
        thread_module: its number among those that have something local to a thread; 0 for none.
    """

    name: str
    base: int
    dynamic: int
    thread_module: int


_PT_DYNAMIC = 2
_STRINGS, _SYMBOLS, _JUMPS, _JUMP_BYTES, _STRING_BYTES = 5, 6, 23, 2, 10
_JUMP_SLOT = 7


def libraries() -> tuple[Library, ...]:
    """The libraries of this process."""
    found: list[Library] = []

    def visit(info: ctypes._Pointer[_Info], size: int, data: object) -> int:
        one = info.contents
        dynamic = next(
            (one.base + one.headers[at].virtual for at in range(one.count) if one.headers[at].type == _PT_DYNAMIC), 0
        )
        found.append(Library((one.name or b"").decode(errors="replace"), one.base, dynamic, one.thread_module))
        return 0

    visitor = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Info), ctypes.c_size_t, ctypes.c_void_p)
    ctypes.CDLL(None).dl_iterate_phdr(visitor(visit), None)
    return tuple(found)


def function_slots(symbol: str) -> Iterator[int]:
    """The addresses of the pointers through which loaded libraries call a function of another or of themselves."""
    for library in libraries():
        if "torch" in library.name or "c10" in library.name:
            yield from _function_slots(library, symbol.encode())


def _function_slots(library: Library, symbol: bytes) -> Iterator[int]:
    tags: dict[int, int] = {}
    at = library.dynamic
    while at:
        tag, value = (ctypes.c_uint64 * 2).from_address(at)
        if tag == 0:
            break
        tags[tag], at = value, at + 16
    if not {_STRINGS, _SYMBOLS, _JUMPS, _JUMP_BYTES, _STRING_BYTES} <= tags.keys():
        return
    strings = ctypes.string_at(tags[_STRINGS], tags[_STRING_BYTES])
    offset = strings.find(b"\0" + symbol + b"\0") + 1
    if not offset:
        return
    # Each is 24 bytes: where, kind and number of the symbol, and an addend; a symbol begins with its name's offset.
    jumps = np.frombuffer(
        memoryview((ctypes.c_uint64 * (tags[_JUMP_BYTES] // 8)).from_address(tags[_JUMPS])), np.uint64
    )
    jumps = jumps.reshape(-1, 3)
    numbers = (jumps[:, 1] >> np.uint64(32)).astype(np.int64)
    if not len(numbers):
        return
    words = (ctypes.c_uint32 * (6 * (int(numbers.max()) + 1))).from_address(tags[_SYMBOLS])
    names = np.frombuffer(memoryview(words), np.uint32).reshape(-1, 6)[:, 0]
    wanted = (names[numbers] == offset) & ((jumps[:, 1] & np.uint64(2**32 - 1)) == _JUMP_SLOT)
    for place in jumps[wanted, 0].tolist():
        yield library.base + int(place)


@cache
def function_at(address: int) -> str:
    """The symbol of the function that an address is in; empty where no library exports it."""
    place = _Place()
    if not ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(place)) or place.symbol is None:
        return ""
    symbol: bytes = place.symbol
    return symbol.decode(errors="replace")


def thread_local_module(address: int, thread: int) -> tuple[int, int] | None:
    """The library whose thread-local data an address of a thread is in: its number, and how far into the data.

    Args:
        address: an address that belongs to the thread.
        thread: the address of the thread's control block, which is what `pthread_self` gives.
    """
    vector = ctypes.c_uint64.from_address(thread + 8).value
    for library in libraries():
        if library.thread_module:
            block = ctypes.c_uint64.from_address(vector + 16 * library.thread_module).value
            if block <= address < block + _MOST_THREAD_BYTES and "c10" in library.name:
                return library.thread_module, address - block
    return None


_MOST_THREAD_BYTES = 1 << 16
