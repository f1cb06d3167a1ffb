"""The state of modules that are loaded already, and what has changed in it: `SharedState` finds it by identity."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from operator import is_
from types import CellType, FunctionType, MappingProxyType, ModuleType
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dispatchlab._gc_pause import collector_paused

# Note [State that packages share]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A package may replace a function of PyTorch or of the standard library, or write into a table there: a hook of
# torch.nn, a node of pytree, a level of logging. What any function does later can depend on that. So everything that
# the modules which are loaded reach is copied once, one level of each object: attributes of modules, classes and
# objects, the items of dictionaries, lists and sets, the code and defaults of functions. Later all of it is compared by
# identity (Note [Comparing without a touch]). What has changed is read as values are.
#
# Of a part of PyTorch or of the standard library that a package is the first to import, nobody knows what it was before
# somebody wrote into it. Of these all plain values and names are digested, and the values that packages made are read.
#
# Left out is what Python and PyTorch note for themselves: which modules are loaded, lines of sources, warnings that
# were given, what is kept by address, the order in which classes and libraries that stay were made, how often fake
# tensors were called, and what a name calls a cache, unless code of a package has that name. The first call of some
# functions notes what TorchDynamo's `disable` makes of them, which a later call would note as well: left out, too, as
# long as it makes the same. An address is a number that lies in the memory of the process; that of an object which a
# package reaches is told apart. Not followed are slots of objects, the operators of PyTorch (Note [Tables of Python]),
# what lies more than five steps from a module, and what C keeps.


class SharedChange(NamedTuple):
    """Something that is not as it was.

    Args:
        path: where it is, such as `torch.nn.functional.relu`.
        value: what is there now; a text where nothing is any more.
        is_attribute: whether it is an attribute of a module or a class, and not what one of these holds.
    """

    path: str
    value: object
    is_attribute: bool


class Known(NamedTuple):
    """What tells noise from values.

    Args:
        names: what code of the packages names.
        address: a text for a number; of one that is no address the number itself.
    """

    names: Collection[str]
    address: Callable[[int], str]

    def is_noise(self, key: object, holder: Any = None) -> bool:
        """Whether what a holder keeps by a key is what Python and PyTorch note for themselves."""
        if key == "__dynamo_disable" and holder is not None:
            return _is_disabled(holder)
        if type(key) is int:
            return key >= _ADDRESSES and self.address(key) != str(key)
        if type(key) is tuple:
            return any(map(self.is_noise, key))
        return _is_noise(key) and key not in self.names

    def has_order(self, path: str) -> bool:
        """Whether it says something in which order a list has its values, and not just which it keeps alive."""
        return path not in _KEPT_ALIVE or path.rpartition(".")[2] in self.names


class _Owner(NamedTuple):
    """What holds values, and its way from a module: the owner that holds it, and under which key.

    `view` gives the values at any time; `keys` is None where there are none, as in a list.
    """

    parent: _Owner | None
    key: object
    kind: type
    view: Any
    keys: Any

    @property
    def path(self) -> str:
        """Where it is."""
        if self.parent is None:
            return str(self.key)
        return _step(self.parent.path, self.parent.kind, self.key)


class SharedState:
    """Remembers what the modules that are loaded reach; `changes` gives what is not as it was.

    >>> state = SharedState()
    >>> torch.nn.functional.relu = 3
    >>> [change.path for change in state.changes(Known((), str))]
    ['torch.nn.functional.relu']
    """

    def __init__(self) -> None:
        self.caches: set[str] = set()
        """The names of what is taken for caches and not compared."""
        self._owners: list[_Owner] = []
        self._seen: set[int] = {id(self), id(sys.modules)}
        with collector_paused():
            self._walk(sys.modules, self._seen)
            self._before = [
                (each, () if each.keys is None else tuple(each.keys), tuple(each.view)) for each in self._owners
            ]
            self._memory = _Memory(self._owners)

    def changes(self, known: Known) -> Iterator[SharedChange]:
        """What is not as it was."""
        for number in self._memory.suspects():
            owner, keys, before = self._before[number]
            if not (_are_same(owner.view, before) and (owner.keys is None or _are_same(owner.keys, keys))):
                yield from _changes_of(owner, keys, before, known)

    def new_state(
        self, modules: Collection[str], is_of_package: Callable[[str], bool], known: Known
    ) -> Iterator[SharedChange]:
        """What modules reach that came later, without what was there before.

        Args:
            modules: their names; none of them is of a package.
            is_of_package: whether a module is of a package, by its name.
            known: tells noise from values.

        Returns:
            A digest of each object, and each value of a class or a function of a package.
        """
        self._owners = []
        self._walk({name: sys.modules[name] for name in modules}, set())
        for owner in self._owners:
            texts = []
            for key, value in list(owner.keys.items()) if owner.keys is not None else [("", one) for one in owner.view]:
                if known.is_noise(key, owner.keys) or issubclass(type(value), ModuleType):
                    continue
                made_by = getattr(value if type(value) is FunctionType else type(value), "__module__", None)
                if isinstance(made_by, str) and is_of_package(made_by):
                    yield SharedChange(_step(owner.path, owner.kind, key), value, is_attribute=False)
                else:
                    name = _key_text(key)
                    shown = _without_process(value) if _PROCESS_NAME.search(name) else value
                    texts.append(f"{name}: {_shallow(shown, known.address)}")
            has_order = owner.keys is None and not isinstance(owner.view, set)
            yield SharedChange(owner.path, str(texts if has_order else sorted(texts)), is_attribute=False)

    def _walk(self, modules: Mapping[str, object], seen: set[int]) -> None:
        """Find what modules reach that was not seen, the nearest first."""
        known = self._seen
        level: list[tuple[_Owner, object, Any]] = []
        for name, module in sorted(modules.items()):
            if issubclass(type(module), ModuleType) and id(module) not in seen and id(module) not in known:
                seen.add(id(module))
                top = name.partition(".")[0]
                if top != "dispatchlab" and name not in _OF_OPERATORS:
                    self._take([] if {top, name} & _NOT_FOLLOWED else level, None, name, ModuleType, vars(module))
        for _ in range(_LEVELS):
            following: list[tuple[_Owner, object, Any]] = []
            for parent, key, value in level:
                if id(value) not in seen and id(value) not in known:
                    seen.add(id(value))
                    self._follow(following, parent, key, value)
            level = following

    def _take(
        self, level: list[tuple[_Owner, object, Any]], parent: _Owner | None, key: object, kind: type, of: Any
    ) -> None:
        """Take an owner of values, and what it holds as the next to be followed."""
        has_keys = kind is not list
        owner = _Owner(parent, key, kind, of.values() if has_keys else of, of if has_keys else None)
        self._owners.append(owner)
        if not has_keys:
            level += [(owner, "", value) for value in of if type(value) not in _PLAIN]
        elif kind is dict:
            level += [(owner, key, value) for key, value in of.items() if type(value) not in _PLAIN]
        else:
            for key, value in of.items():
                if type(value) not in _PLAIN and not _is_noise(key):
                    level.append((owner, key, value))
                elif type(value) in _TABLES:
                    self.caches.add(str(key))

    def _follow(self, level: list[tuple[_Owner, object, Any]], parent: _Owner, key: object, value: Any) -> None:
        kind = type(value)
        if kind is FunctionType:
            if "dispatchlab" not in value.__code__.co_filename:
                self._owners.append(_Owner(parent, key, kind, _Parts(value), None))
                if value.__closure__:
                    self._take(level, parent, key, list, _Cells(value.__closure__))
                if value.__kwdefaults__:
                    self._take(level, parent, key, dict, value.__kwdefaults__)
                if value.__dict__:
                    self._take(level, parent, key, FunctionType, value.__dict__)
        elif kind is dict:
            self._take(level, parent, key, dict, value)
        elif kind is list or kind is set:
            self._take(level, parent, key, list, value)
        elif kind is tuple or kind is frozenset:
            level += [(parent, key, each) for each in value if type(each) not in _PLAIN]
        elif issubclass(kind, type):
            if not _is_own(value, _WEAK):
                self._take(level, parent, key, type, vars(value))
        elif kind is MappingProxyType:
            self._take(level, parent, key, dict, value)
        elif kind in _WRAPPERS:
            level += [(parent, key, each) for each in _WRAPPERS[kind](value) if each is not None]
        elif not issubclass(kind, ModuleType) and not _is_own(kind, _NOT_READ):
            try:
                own = object.__getattribute__(value, "__dict__")
            except (AttributeError, TypeError):
                own = None
            is_read = _is_own(kind, _READ_ELSEWHERE)
            if type(own) is dict:
                self._take([] if is_read else level, parent, key, object, own)
            if is_read:
                return
            if issubclass(kind, dict) and (kind.__iter__, kind.values, kind.items) in _MAPPINGS:
                self._take(level, parent, key, dict, value)
            elif issubclass(kind, list | set) and kind.__iter__ in (list.__iter__, set.__iter__):
                self._take(level, parent, key, list, value)


class _Parts:
    """The parts of a function as they are at any time."""

    __slots__ = ("function",)

    def __init__(self, function: FunctionType) -> None:
        self.function = function

    def __len__(self) -> int:
        return len(_PART_NAMES)

    def __iter__(self) -> Iterator[object]:
        one = self.function
        return iter((one.__code__, one.__defaults__, one.__kwdefaults__, one.__doc__, not one.__dict__))


class _Cells:
    """What the cells of a function hold at any time."""

    __slots__ = ("cells",)

    def __init__(self, cells: tuple[CellType, ...]) -> None:
        self.cells = cells

    def __len__(self) -> int:
        return len(self.cells)

    def __iter__(self) -> Iterator[object]:
        for cell in self.cells:
            try:
                yield cell.cell_contents
            except ValueError:
                yield _GONE


# Note [Comparing without a touch]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Who looks at a value takes a reference to it, and that writes into the page on which the value lies. A forked process
# gets a copy of each such page first: 12,000 for all values, which takes longer than to compare them. So what Python
# writes where a value changes is read as memory: the version of a dictionary (PEP 509), and what lists, sets, cells and
# functions point to. Only what is not as it was there is compared by identity.
#
# Python 3.13 has no such versions, and an ordered dictionary keeps its order elsewhere. These are always compared. So
# is everything where objects that are made for it do not have these words where CPython has them.


class _Memory:
    """The words of owners that are others when what they hold is."""

    def __init__(self, owners: list[_Owner]) -> None:
        self._always: list[int] = []
        self._kept: list[object] = []  # what is alive stays where it is
        self._blocks: list[tuple[int, int, bytes]] = []
        self._found: dict[tuple[int, ...], list[tuple[int, int]]] = {}  # by places the owners, and where objects begin
        if _has_known_places():
            for number, owner in enumerate(owners):
                self._look(number, owner)
        else:
            self._always += range(len(owners))
        numbers, places = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for of, pairs in self._found.items():
            owner_of, begins = np.array(pairs, np.int64).T
            numbers.append(np.repeat(owner_of, len(of)))
            places.append(np.add.outer(begins, of).ravel())
        self._numbers, self._places = np.concatenate(numbers), np.concatenate(places)
        self._before = _words(self._places)

    def suspects(self) -> list[int]:
        """The numbers of the owners that may not hold what they held."""
        moved = set(self._numbers[_words(self._places) != self._before].tolist())
        for number, at, before in self._blocks:
            if number not in moved and ctypes.string_at(at, len(before)) != before:
                moved.add(number)
        return sorted(moved.union(self._always))

    def _look(self, number: int, owner: _Owner) -> None:
        """Note where the words of an owner are."""
        view, mapping = owner.view, owner.keys
        if type(view) is _Cells:
            self._found.setdefault(_OF_CELL, []).extend((number, id(cell)) for cell in view.cells)
            return
        if type(view) is _Parts:
            self._found.setdefault(_OF_FUNCTION, []).append((number, id(view.function)))
            mapping = view.function.__dict__
        elif mapping is None:
            of = _OF_SET if isinstance(view, set) else _OF_LIST
            self._found.setdefault(of, []).append((number, id(view)))
            size, items = (_word(id(view) + at) for at in of)
            if length := 2 * (size + 1) if of is _OF_SET else size:
                self._blocks.append((number, items, ctypes.string_at(items, length * _WORD)))
            return
        elif type(mapping) is MappingProxyType:
            mapping = gc.get_referents(mapping)[0]
        if isinstance(mapping, dict) and not isinstance(mapping, OrderedDict) and sys.version_info < (3, 13):
            self._kept.append(mapping)
            self._found.setdefault(_OF_DICT, []).append((number, id(mapping)))
        else:
            self._always.append(number)


class DictVersions(NamedTuple):
    """The versions of some dictionaries, which are others once one of these was written."""

    dicts: Sequence[Mapping[Any, Any]]
    memory: npt.NDArray[np.uint64]
    places: npt.NDArray[np.int64]
    versions: bytes

    def are_same(self) -> bool:
        """Whether none was written since."""
        return self.memory[self.places].tobytes() == self.versions


def versions_of(dicts: Sequence[Mapping[Any, Any]]) -> DictVersions | None:
    """The versions that dictionaries have now; None where Python keeps none. See Note [Comparing without a touch]."""
    if not dicts or sys.version_info >= (3, 13) or not _has_known_places() or not all(map(_is_dict, dicts)):
        return None
    memory, places = _memory(np.array([*map(id, dicts)], np.int64) + _OF_DICT[0])
    return DictVersions(dicts, memory, places, memory[places].tobytes())


def _is_dict(value: object) -> bool:
    return isinstance(value, dict)


@cache
def _has_known_places() -> bool:
    """Whether objects have the words where they are looked for."""

    def function(x: int = 1, *, y: int = 1) -> None:
        """One."""

    mapping = function.__dict__
    values, version = [function, mapping], _word(id(mapping) + _OF_DICT[0])
    cell, table = CellType(values), set[object]()
    mapping["one"] = values
    function.__kwdefaults__ = {"y": 2}
    parts = (function.__code__, function.__defaults__, function.__kwdefaults__, function.__doc__, mapping)
    return (
        [_word(id(function) + at) for at in _OF_FUNCTION] == list(map(id, parts))
        and (version != _word(id(mapping) + _OF_DICT[0]) or sys.version_info >= (3, 13))
        and _word(id(cell) + _OF_CELL[0]) == id(values)
        and _word(id(values) + _OF_LIST[0]) == len(values)
        and _word(_word(id(values) + _OF_LIST[1]) + _WORD) == id(mapping)
        and _word(id(table) + _OF_SET[0]) + 1 == _SMALLEST_SET
    )


def _words(addresses: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """The words at some addresses."""
    memory, places = _memory(addresses)
    found: npt.NDArray[np.uint64] = memory[places]
    return found


def _memory(addresses: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """The memory that has some addresses, and where in it their words are."""
    begin, end = (int(addresses.min()), int(addresses.max()) + _WORD) if len(addresses) else (0, 0)
    memory = memoryview((ctypes.c_char * (end - begin)).from_address(begin))
    return np.frombuffer(memory, np.uint64), (addresses - begin) // _WORD


def _word(address: int) -> int:
    return int.from_bytes(ctypes.string_at(address, _WORD), sys.byteorder)


_WORD: Final = 8
_FIRST: Final = object.__basicsize__
_OF_CELL: Final = (_FIRST,)
_OF_DICT: Final = (_FIRST + _WORD,)
"""Where a dictionary has its version."""
_OF_LIST: Final = _FIRST, _FIRST + _WORD
"""Where a list has its size, and a pointer to its items."""
_OF_SET: Final = _FIRST + 2 * _WORD, _FIRST + 3 * _WORD
"""Where a set has the mask of its table, which is one less than its size, and a pointer to it."""
_SMALLEST_SET: Final = 8
_OF_FUNCTION: Final = tuple(_FIRST + at * _WORD for at in (4, 5, 6, 8, 9))
"""Where a function has the parts of `_PART_NAMES`."""


def _are_same(view: Any, before: tuple[object, ...]) -> bool:
    return len(view) == len(before) and all(map(is_, view, before))


def _changes_of(
    owner: _Owner, keys: tuple[object, ...], before: tuple[object, ...], known: Known
) -> Iterator[SharedChange]:
    if owner.kind is FunctionType and owner.keys is None:
        for name, old, new in zip(_PART_NAMES, before, owner.view, strict=True):
            value = owner.view.function.__dict__ if name == "__dict__" else new
            is_noted = name == "__dict__" and value and all(known.is_noise(each, value) for each in value)
            if old is not new and not is_noted:
                yield SharedChange(f"{owner.path}.{name}", value, is_attribute=True)
    elif isinstance(owner.view, set):
        old = set(before)
        yield from (SharedChange(_step(owner.path, dict, one), one, is_attribute=False) for one in owner.view - old)
        yield from (SharedChange(_step(owner.path, dict, one), _GONE, is_attribute=False) for one in old - owner.view)
    elif owner.keys is None:
        kept = list if known.has_order(owner.path) else set
        yield SharedChange(owner.path, kept(owner.view), is_attribute=False)
    else:
        old_values = dict(zip(keys, before, strict=True))
        is_attribute = owner.kind in (ModuleType, type, FunctionType)
        for key, value in list(owner.keys.items()):
            if old_values.pop(key, _GONE) is not value and not known.is_noise(key, owner.keys):
                named = type(value) is int or _PROCESS_NAME.search(str(key))
                shown = _without_process(value) if named else value
                yield SharedChange(_step(owner.path, owner.kind, key), shown, is_attribute)
        for key in old_values:
            if not known.is_noise(key):
                yield SharedChange(_step(owner.path, owner.kind, key), _GONE, is_attribute)


def _of_static(value: Any) -> Iterable[object]:
    return (value.__func__,)


def _of_property(value: Any) -> Iterable[object]:
    return value.fget, value.fset


_LEVELS: Final = 4
_GONE: Final = "taken out"
_PROCESS: Final = "the number of the process"
_PROCESS_NAME: Final = re.compile("pid|process", re.IGNORECASE)
"""Names of what may hold it."""
_TABLES: Final = (dict, list, set, OrderedDict)
_PLAIN: Final = frozenset({type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented)})
_WRAPPERS: Final = {staticmethod: _of_static, classmethod: _of_static, property: _of_property}
_MAPPINGS: Final = tuple((kind.__iter__, kind.values, kind.items) for kind in (dict, OrderedDict))
"""How mappings are read whose classes run no code of their own for it."""
_PART_NAMES: Final = ("__code__", "__defaults__", "__kwdefaults__", "__doc__", "__dict__")
_NOISE: Final = frozenset(
    {
        "__warningregistry__",
        "__builtins__",
        "__annotations__",
        "__abstractmethods__",
        "__loader__",
        "_autograd_function_id",  # the number of a class in the order in which they were made
        "_lazy_seed_tracker",
        "NO_SERIALIZED_TYPE_NAME_FOUND",
        "simple_call_counter",
    }
)
_KEPT_ALIVE: Final = frozenset({"torch.library._keep_alive"})
"""Lists that keep libraries from being released, until the process ends."""
_NOT_FOLLOWED: Final = frozenset(
    {"_frozen_importlib", "_frozen_importlib_external", "_warnings", "_weakrefset", "abc", "importlib", "inspect"}
    | {"linecache", "re", "threading", "tokenize", "traceback", "typing", "warnings", "zipimport"}
)
"""Modules of which only the attributes are compared, and nothing that these hold."""
_OF_OPERATORS: Final = ("torch.ops", "torch.classes")
_WEAK: Final = ("dispatchlab", "weakref", "_weakref", "functools")
_NOT_READ: Final = ("torch._ops", *_WEAK)
"""Modules whose objects are not compared."""
_READ_ELSEWHERE: Final = ("torch._library",)
"""Modules of whose objects only the attributes are compared, and nothing that these hold."""
_NUMBER: Final = re.compile(r"\b(?:0x[0-9a-f]{9,}|[1-9][0-9]{9,18})\b")
_ADDRESSES: Final = 1 << 32
"""Whole numbers from here on are taken for addresses."""


def _is_disabled(attributes: Any) -> bool:
    """Whether the attributes of a function keep what `torch._dynamo.disable` makes of it."""
    made = attributes.get("__dynamo_disable")
    with suppress(Exception):  # a package may have replaced it
        of = dict(zip(made.__code__.co_freevars, made.__closure__, strict=True))["fn"].cell_contents
        disable = sys.modules["torch._dynamo"].disable
        codes = [disable(_is_noise, recursive, wrapping=False).__code__ for recursive in (True, False)]
        return vars(of) is attributes and made.__code__ in codes
    return False


def _is_noise(key: object) -> bool:
    return type(key) is str and (key in _NOISE or "cache" in key.lower())


def _is_own(kind: type, modules: tuple[str, ...]) -> bool:
    return str(kind.__module__).startswith(modules)


def _step(path: str, kind: type, key: object) -> str:
    if kind is list:
        return path
    if kind is not dict:
        return f"{path}.{key}"
    return f"{path}[{_key_text(key)}]"


def _key_text(key: object) -> str:
    if type(key) is tuple:
        return ", ".join(map(_key_text, key))
    return repr(key)[:60] if type(key) in _PLAIN else str(getattr(key, "__qualname__", type(key).__qualname__))


def _without_process(value: object) -> object:
    """A value without the number of the process, alone or in a tuple."""
    if type(value) is tuple:
        return tuple(map(_without_process, value))
    return _PROCESS if type(value) is int and value == os.getpid() else value


def _shallow(value: Any, address: Callable[[int], str]) -> str:
    """A value of PyTorch or of the standard library in a few words that no address is in."""
    kind = type(value)
    if kind is str or kind is int:
        return _NUMBER.sub(lambda found: address(int(found[0], 0)), repr(value))
    if kind in _PLAIN:
        return repr(value)
    if kind is tuple or kind is frozenset:
        texts = [_shallow(each, address) for each in value]
        return str(sorted(texts) if kind is frozenset else texts)
    if kind is FunctionType or issubclass(kind, type):
        return f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', '')}"
    return kind.__qualname__
