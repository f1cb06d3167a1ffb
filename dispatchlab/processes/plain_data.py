"""Plain data as bytes: values that come from a file or another machine are read without running anything.

`plain_bytes` writes a value, a `PlainReader` reads it.
"""

# Note [Plain data]
# ~~~~~~~~~~~~~~~~~
# A value is a table of nodes as compressed JSON. A node is null, a truth value, a number, a text, or a list of what it
# is and the places of its parts, which are earlier nodes. So what is shared is written once, nothing refers to itself,
# and no node is read twice. Classes are our own dataclasses, named tuples, enums and errors, whose parts are their
# fields, and have the types that these are annotated with.
#
# What is read may have come from anybody. So its size is bounded before it is unpacked, its nodes before they are
# parsed, and each value before it is made: how deep it is, and how many nodes it is when what is shared counts as often
# as it is met, since comparing and hashing take that long. All that is hashed or looked through for its type is bounded
# together, because many keys may be the same large one. A set or a mapping whose keys have the same hash is refused,
# because it takes the square of their number.

from __future__ import annotations

import json
import re
import sys
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from types import UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from dispatchlab.errors import DispatchLabError

_BYTES: Final = 1 << 24  # of a value that is written
_NODES: Final = 1 << 19  # likewise
_UNFOLDED: Final = 1 << 21
_DEPTH: Final = 100
_ALIKE: Final = 100
_MODULE: Final = re.compile(r"dispatchlab(\.[a-z]\w*)+", re.ASCII)
_CONTAINERS: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "tuple": tuple,
    "list": list,
    "set": set,
    "frozenset": frozenset,
    "dict": lambda parts: dict(zip(parts[::2], parts[1::2], strict=True)),
}
_TAGS: Final[dict[type, str]] = {tuple: "tuple", list: "list", set: "set", frozenset: "frozenset", dict: "dict"}


class NotPlainError(DispatchLabError):
    """A value cannot be written as plain data, or bytes are not such a value."""

    reason: str

    template = "this is no plain data: {reason}"


def plain_bytes(value: object) -> bytes:
    """Write a value.

    Raises:
        NotPlainError: it holds something else than plain data, or is too large.
    """
    nodes: list[object] = []
    known: dict[Hashable, int] = {}
    try:
        _place(value, nodes, known, [])
        content = json.dumps(nodes, separators=(",", ":"), ensure_ascii=True).encode()
    except RecursionError:
        raise NotPlainError("it is nested too deep") from None
    _checked_size(content)
    return zlib.compress(content, 1)


class PlainReader:
    """Reads values, of which all together are bounded.

    Args:
        count: how many values of the largest size it reads.
    """

    def __init__(self, count: int = 1) -> None:
        self._bytes, self._nodes, self._work = count * _BYTES, count * _NODES, count * _UNFOLDED

    def read(self, data: bytes, kind: Any) -> Any:
        """Read a value.

        Args:
            data: what `plain_bytes` gave.
            kind: the type that it must have, an annotation.

        Raises:
            NotPlainError: the bytes are something else, or too much was read.
        """
        unpacking = zlib.decompressobj()
        try:
            content = unpacking.decompress(data, min(self._bytes, _BYTES) + 1)
            self._bytes -= len(content)
            self._nodes -= _checked_size(content)
            if self._bytes < 0 or self._nodes < 0:
                raise NotPlainError("there is too much of it")
            if not content.isascii():  # one wide character makes a text four times as large
                raise NotPlainError("it is no ASCII")
            nodes = json.loads(content)
        except (zlib.error, ValueError, RecursionError) as error:
            raise NotPlainError(f"it is damaged ({type(error).__name__})") from None
        if not unpacking.eof or unpacking.unused_data or not isinstance(nodes, list) or not nodes:
            raise NotPlainError("it is not one table")
        table = _Table(nodes, self._work)
        value = table.value()
        self._work = table.work
        if not fits(value, kind):
            raise NotPlainError(f"a {type(value).__name__} is not what is kept here")
        return value


def fits(value: object, kind: Any) -> bool:
    """Whether a value is of a type, an annotation, with all that is in it but for the fields of objects."""
    if kind is Any or kind is object or isinstance(kind, TypeVar):
        return True
    if kind is None:
        return value is None
    origin, of = get_origin(kind), get_args(kind)
    if origin is None:
        if kind is float:
            return type(value) in (int, float)
        return type(value) is int if kind is int else isinstance(kind, type) and isinstance(value, kind)
    if origin is Union or origin is UnionType:
        return any(fits(value, one) for one in of)
    if origin is Literal:
        return value in of
    if not isinstance(origin, type) or not isinstance(value, origin):
        return False
    if isinstance(value, tuple) and origin is tuple and not (len(of) == 2 and of[1] is Ellipsis):
        return len(value) == len(of) and all(map(fits, value, of))
    if isinstance(value, Mapping):
        return all(fits(key, of[0]) and fits(one, of[1]) for key, one in value.items())
    return isinstance(value, tuple | list | set | frozenset) and all(fits(one, of[0]) for one in value)


def _checked_size(content: bytes) -> int:
    """No less than the number of its nodes.

    Raises:
        NotPlainError: it is too large.
    """
    if len(content) > _BYTES:
        raise NotPlainError(f"it is larger than {_BYTES >> 20} MiB")
    count = content.count(b",") + content.count(b"[") + content.count(b"{")
    if count > _NODES:
        raise NotPlainError(f"it has more than {_NODES:,} nodes")
    return count


# -- writing


def _place(value: Any, nodes: list[object], known: dict[Hashable, int], kept: list[object]) -> int:
    """The place of a value in the table, where it is put when it is not there.

    Args:
        value: the value.
        nodes: the table.
        known: the places of texts and numbers, by their value, and of other values, by their identity.
        kept: keeps alive what is known by identity.
    """
    kind = type(value)
    is_leaf = value is None or kind in (bool, int, float, str)
    key = (kind, repr(value) if kind is float else value) if is_leaf else id(value)
    if key in known:
        return known[key]
    node: object
    if kind is int and abs(value) >> 63:
        node = ["int", hex(value)]
    elif is_leaf:
        node = value
    elif kind is bytes:
        node = ["bytes", b64encode(value).decode()]
    else:
        tag, parts = _parts(value)
        node = [tag, *(_place(part, nodes, known, kept) for part in parts)]
        kept.append(value)
    known[key] = len(nodes)
    nodes.append(node)
    return known[key]


def _parts(value: Any) -> tuple[str, list[Any]]:
    kind = type(value)
    tag = _TAGS.get(kind)
    if tag == "dict":
        return tag, [part for item in value.items() for part in item]
    if tag is not None:
        return tag, list(value)
    tag = f"{kind.__module__}:{kind.__qualname__}"
    if isinstance(value, Enum):
        return tag, [value.name]
    names = _class_named(tag)[1]
    try:
        return tag, [getattr(value, name) for name in names]
    except AttributeError as error:
        raise NotPlainError(f"{kind.__name__} has no {error.name}") from None


# -- reading


class _Table:
    """The nodes of a value, each made once and in their order."""

    def __init__(self, nodes: list[Any], work: int) -> None:
        self.work = work  # how many nodes may still be hashed, or looked through for their types
        self._nodes = nodes
        self._made: list[Any] = []
        self._sizes: list[int] = []
        self._depths: list[int] = []

    def value(self) -> Any:
        """The last of them."""
        for node in self._nodes:
            try:
                value, size, depth = self._read(node)
            except (TypeError, ValueError, KeyError) as error:  # of a class that looks at its fields, or no hash
                raise NotPlainError(f"a node cannot be read ({type(error).__name__})") from None
            if size > _UNFOLDED or depth > _DEPTH:
                raise NotPlainError("it is nested too deep")
            self._made.append(value)
            self._sizes.append(size)
            self._depths.append(depth)
        return self._made[-1]

    def _read(self, node: Any) -> tuple[Any, int, int]:
        if not isinstance(node, list):
            if isinstance(node, dict):
                raise NotPlainError("a node is a mapping")
            return node, 1, 0
        tag, *places = node
        if tag == "int" or tag == "bytes":
            (text,) = places
            if not isinstance(text, str):
                raise NotPlainError(f"{tag} without a text")
            return int(text, 16) if tag == "int" else b64decode(text, validate=True), 1, 0
        count = len(self._made)
        if not isinstance(tag, str) or not all(type(place) is int and 0 <= place < count for place in places):
            raise NotPlainError("a node refers to one that is not there")
        size = 1 + sum(self._sizes[place] for place in places)
        depth = 1 + max((self._depths[place] for place in places), default=0)
        if size > _UNFOLDED or depth > _DEPTH:
            raise NotPlainError("it is nested too deep")
        if tag not in ("tuple", "list"):
            self.work -= size
            if self.work < 0:
                raise NotPlainError("there is too much of it")
        parts = [self._made[place] for place in places]
        make = _CONTAINERS.get(tag)
        if make is None:
            return _made(tag, parts), size, depth
        if tag in ("set", "frozenset", "dict"):
            keys = parts[::2] if tag == "dict" else parts
            if len(keys) - len(set(map(hash, keys))) > _ALIKE:
                raise NotPlainError("many keys have the same hash")
        return make(parts), size, depth


def _made(tag: str, parts: list[Any]) -> Any:
    kind, names, hints = _class_named(tag)
    if issubclass(kind, Enum):
        (name,) = parts
        return kind[name]
    if len(parts) != len(names) or not all(fits(part, hints[name]) for part, name in zip(parts, names, strict=True)):
        raise NotPlainError(f"{tag} has other fields")
    if issubclass(kind, tuple):
        return kind(*parts)
    value: Any = object.__new__(kind) if not issubclass(kind, BaseException) else kind.__new__(kind)
    for name, part in zip(names, parts, strict=True):
        object.__setattr__(value, name, part)
    if issubclass(kind, DispatchLabError):
        _check_sentence(value)
    return value


def _check_sentence(error: DispatchLabError) -> None:
    try:
        str(error)
    except Exception:
        raise NotPlainError(f"a {type(error).__name__} has no sentence") from None


@cache
def _class_named(tag: str) -> tuple[type[Any], tuple[str, ...], Mapping[str, Any]]:
    """A class whose objects are plain data, the names of its fields, and their types."""
    module, _, name = tag.partition(":")
    if not _MODULE.fullmatch(module) or not name.isidentifier():
        raise NotPlainError(f"{tag:.100} is no class of dispatchlab")
    try:
        kind = getattr(sys.modules.get(module) or import_module(module), name, None)
    except ImportError:
        kind = None
    if not isinstance(kind, type) or kind.__module__ != module:
        raise NotPlainError(f"there is no {tag:.100}")
    if issubclass(kind, Enum):
        return kind, (), {}
    if issubclass(kind, DispatchLabError):
        return kind, kind._fields, dict.fromkeys(kind._fields, object)
    if is_dataclass(kind):
        names = tuple(field.name for field in fields(kind))
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        names = kind._fields
    else:
        raise NotPlainError(f"a {name} is no plain data")
    return kind, names, get_type_hints(kind)
