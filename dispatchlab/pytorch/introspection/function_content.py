"""What a function is, apart from where it lies: its code, and every value that a call of it can reach.

`Contents` reads functions and other values into short texts by path, such as `t::foo CPU: closure factor` -> `2.0`. Two
processes that read the same texts have functions that do the same, as far as Python can see.
"""

from __future__ import annotations

import abc
import ctypes
import dis
import functools
import io
import logging
import re
import sys
import warnings
from bisect import bisect_right
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from hashlib import blake2b
from importlib.util import find_spec, resolve_name
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType, UnionType
from typing import Any, Final, NamedTuple, TypeAlias
from weakref import ReferenceType, finalize, getweakrefs

from dispatchlab.model.python_layer import PYTHON_REGISTRIES
from dispatchlab.pytorch.bridge.torch import torch
from dispatchlab.pytorch.introspection.queries import kept_packet

# Note [What a function can reach]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A call of a function depends on its code, its defaults, its closure, what it is bound to, and on the globals that its
# code names; and so for each function and object among these. All of that is read, breadth first, each object once.
# Positions in files are left out. An object of C is its type, and what it says that it can be made of again
# (`__reduce_ex__`) or answers when asked; a tensor is its numbers, its layout, and which tensors share its storage.
# The order of keys is read by itself, since few functions look at it.
#
# Not followed are the globals of PyTorch and the standard library: there are too many, and what a package changes there
# is compared by itself. The globals of a package that code does not name can still be reached through `sys.modules`,
# `globals()` or `getattr`; where reached code names one of these, or imports what is not loaded yet, all globals of the
# packages' modules are read. Those that a text in the code has as a word are always read: formats and patterns name
# what they look up. What lies in no loaded module, such as a plugin or what `exec` made, is taken for a package's.

MOST_VALUES: Final = 250_000
"""So many values are read; the rest is not, and `Contents.is_cut` says so."""

MODULE: Final = "module "
"""What the path to a global begins with that no code names."""

ORDER_OF_KEYS: Final = "order of keys"
"""The last step of the path to the order of the keys of a dictionary."""

_LONGEST: Final = 120
_REFLECTION: Final = frozenset(
    {
        *("__dict__", "__globals__", "__import__", "__subclasses__", "attrgetter", "eval", "exec", "f_globals"),
        *("dir", "gc", "getattr", "globals", "importlib", "inspect", "modules", "vars"),
        *("locate", "resolve_name", "Unpickler"),
        *(name for registry in PYTHON_REGISTRIES for name in registry.names_in_code if "_" in name),
    }
)
_Edge: TypeAlias = tuple[str, object]


class _Module(NamedTuple):
    """A module of the packages, and the names that code may look up in it."""

    module: ModuleType
    names: frozenset[str]


class Contents:
    """Reads values; what was read is in `texts`.

    Args:
        modules: the names of the modules whose globals are followed: those of the packages.
        named: texts for objects that show nothing of themselves, by `id`.
    """

    def __init__(self, modules: Collection[str], named: Mapping[int, str]) -> None:
        self.texts: dict[str, str] = {}
        """By path, what was found there."""
        self.is_cut = False
        self._modules, self._named = frozenset(modules), named
        self._queue = deque[tuple[str, object]]()
        self._first: dict[int, str] = {}  # the path by which each object was reached first
        self._kept: list[object] = []  # as long as it lives, nothing else has its id
        self._storages: dict[int, int] = {}
        self._memory = _Memory()
        self._held: dict[int, tuple[str, ModuleType]] = {}  # the modules of packages that values hold
        self._steps: set[str] = set()
        self._words: set[str] = set()
        self.opaque: set[str] = set()
        """The objects of C that show nothing of what they hold, and the functions of C of the packages."""
        self.names: set[str] = set()
        """Everything that the code which is reached names."""

    def read(self, roots: Iterable[tuple[str, object]]) -> None:
        """Read values, and all that they reach.

        Args:
            roots: a path for each value; what was read is not read again, but for texts.
        """
        self._queue.extend((path, value) for path, value in roots if path not in self.texts or isinstance(value, str))
        self._drain()

    def read_modules(self) -> None:
        """Read the globals of the modules where code that is reached may look at what it does not name."""
        loaded = [name for name in sys.modules if name in self._modules]
        if self.is_reflective:
            self._queue.append((f"{MODULE}names", loaded))
        for name in sorted(loaded):
            own = {each: value for each, value in list(vars(sys.modules[name]).items()) if each[:2] != "__"}
            read = own if self.is_reflective else own.keys() & self._words
            self._queue += [(f"{MODULE}{name}: global {each}", own[each]) for each in sorted(read)]
            if self.is_reflective:
                self._queue.append((f"{MODULE}{name}: {ORDER_OF_KEYS}", digest(*own)))
        self._drain()

    def address(self, number: int) -> str:
        """A text for a whole number that may be the address of an object; the number itself where it is none."""
        path = self._first.get(number)
        return f"the address of {path}" if path is not None else self._memory.text(number)

    @property
    def is_reflective(self) -> bool:
        """Whether code that is reached may look at what it does not name."""
        return not self.names.isdisjoint(_REFLECTION)

    def _drain(self) -> None:
        while self._queue or self._read_held():
            if len(self.texts) >= MOST_VALUES:
                self.is_cut = True
                self._queue.clear()
                return
            path, value = self._queue.popleft()
            if isinstance(value, ModuleType) and self._is_package(value):
                self._held.setdefault(id(value), (path, value))
            if type(value) in _PLAIN:
                self.texts[path] = _short(repr(value))
                continue
            first = self._first.setdefault(id(value), path)
            if first != path and not isinstance(value, _Module):
                self.texts[path] = f"as {first}"
                continue
            self._kept.append(value)
            try:
                text, edges = self._described(value)
                edges = list(edges)
            except Exception as error:  # code of the package, which may raise anything
                text, edges = f"{_type_name(type(value))} that raises {type(error).__name__}", []
                self.opaque.add(f"an object of {_type_name(type(value))}")
            self.texts[path] = text
            separator = ": " if ":" not in path.rpartition("::")[2] else ", "
            self._queue.extend((f"{path}{separator}{step}", target) for step, target in edges)

    def _read_held(self) -> bool:
        """Read of the modules that values hold what code that is reached names, but for what was read."""
        for path, module in self._held.values():
            for name in sorted(self.names & vars(module).keys()):
                if (step := f"{path}: global {name}") not in self._steps:
                    self._steps.add(step)
                    self._queue.append((step, vars(module)[name]))
        return bool(self._queue)

    def _is_of_package(self, kind: type) -> bool:
        """Whether a package made a class, as it did where the module that the class names does not hold it."""
        if kind.__module__ in self._modules:
            return True
        found: object = sys.modules.get(kind.__module__)
        for name in kind.__qualname__.split("."):
            found = getattr(found, "__dict__", {}).get(name)
        return found is not kind and _is_of_python(kind) and "<locals>" not in kind.__qualname__

    def _is_package(self, value: object) -> bool:
        """Whether this is a module of a package, as one is taken for that is not loaded by its name."""
        if not isinstance(value, ModuleType) or value.__name__ in self._modules:
            return isinstance(value, ModuleType)
        top = value.__name__.partition(".")[0]
        is_bare = type(value) is ModuleType and sys.modules.get(value.__name__) is not value
        return is_bare and (top in self._modules or top not in sys.modules)

    def _described(self, value: object) -> tuple[str, Iterable[_Edge]]:
        """A value in a few words, and what it is made of."""
        named = self._named.get(id(value))
        if named is not None:
            return named, ()
        match value:
            case FunctionType():
                return self._function(value)
            case MethodType():
                return "bound method", (("function", value.__func__), ("self", value.__self__))
            case functools.partial():
                edges = (("function", value.func), ("arguments", value.args), ("keywords", value.keywords))
                return "partial", (*edges, *self._own(value))
            case CodeType():
                return f"code {_code_digest(value)}", self._names(value, {})
            case _Module():
                return value.module.__name__, self._globals_of(value)
            case ModuleType():
                return f"module {value.__name__}", ()
            case type():
                return self._class(value)
            case list() | tuple() | deque():
                items = list(_with_base(value, list, tuple, deque).__iter__(value))
                entries = [(f"[{at}]", each) for at, each in enumerate(items)]
                if isinstance(value, deque):
                    entries.append(("most", value.maxlen))
                return f"{_type_name(type(value))} of {len(items)}", (*entries, *self._own(value))
            case dict() | MappingProxyType():
                pairs = list(_with_base(value, OrderedDict, dict, MappingProxyType).items(value))
                keys = [_key_text(key) for key, _ in pairs]
                entries = [(f"[{key}]", each) for key, (_, each) in zip(keys, pairs, strict=True)]
                entries += _keys_of(keys, [key for key, _ in pairs])
                if isinstance(value, defaultdict):
                    entries.append(("default", value.default_factory))
                text = f"{_type_name(type(value))} of {len(pairs)}"
                return text, (*entries, (ORDER_OF_KEYS, digest(*keys)), *self._own(value))
            case set() | frozenset():
                items = sorted(_with_base(value, set, frozenset).__iter__(value), key=_key_text)
                keys = list(map(_key_text, items))
                has_order = all(type(each) in _PLAIN for each in items)  # else it is by address
                order = ((ORDER_OF_KEYS, digest(*map(_key_text, value))),) if has_order else ()
                entries = [(f"[{at}]", each) for at, each in enumerate(items) if type(each) not in _PLAIN]
                return f"{_type_name(type(value))} {digest(*keys)}", (*order, *entries, *self._own(value))
            case BuiltinFunctionType():
                if value.__module__ in self._modules:
                    self.opaque.add(f"a function of {value.__module__}")
                return f"{getattr(value, '__module__', None)}:{value.__qualname__}", _self_of(value)
            case classmethod() | staticmethod():
                return _type_name(type(value)), (("function", value.__func__),)
            case property():
                return "property", (("get", value.fget), ("set", value.fset), ("delete", value.fdel))
        return self._object(value)

    def _function(self, value: FunctionType) -> tuple[str, Iterable[_Edge]]:
        if value.__code__.co_filename.endswith(_OWN_WRAPPERS):
            return "function", (("function", getattr(value, "__wrapped__", None)),)
        return f"{value.__module__}:{value.__qualname__} {_code_digest(value.__code__)}", self._parts(value)

    def _parts(self, value: FunctionType) -> Iterator[_Edge]:
        for at, default in enumerate(value.__defaults__ or ()):
            yield f"default {at}", default
        for name, default in (value.__kwdefaults__ or {}).items():
            yield f"default {name}", default
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            try:
                yield f"closure {name}", cell.cell_contents
            except ValueError:
                yield f"closure {name}", "empty"
        yield from (
            (f"attribute {name}", each)
            for name, each in vars(value).items()
            if not name.startswith(("_torchdynamo", "__dynamo"))
        )
        scope = value.__globals__.get("__name__")
        if scope in self._modules or not _is_of_module(value, scope):
            yield from self._names(value.__code__, value.__globals__)

    def _names(self, code: CodeType, scope: Mapping[str, Any]) -> Iterator[_Edge]:
        """The globals that code names, and what it names in modules of the packages."""
        names = frozenset(_names_in(code))
        self.names |= names
        self._words.update(_words_in(code))
        for name in sorted(names):
            if name in scope:
                value = scope[name]
                yield f"global {name}", _Module(value, names) if self._is_package(value) else value
            elif name in self._modules and name in sys.modules:  # imported by the code itself
                yield f"import {name}", _Module(sys.modules[name], names)
        imported = _imports_in(code, str(scope.get("__package__") or ""))
        if any(_is_not_loaded(each, self._modules) for each in imported):  # what it finds, may be anything of a package
            self.names.add("modules")

    def _globals_of(self, module: _Module) -> Iterator[_Edge]:
        scope = vars(module.module)
        if "__getattr__" in scope:
            yield "global __getattr__", scope["__getattr__"]
        for name in sorted(module.names & scope.keys()):
            value = scope[name]
            yield f"global {name}", _Module(value, module.names) if self._is_package(value) else value

    def _class(self, value: type) -> tuple[str, Iterable[_Edge]]:
        name = f"class {_type_name(value)}"
        if not self._is_of_package(value):
            return name, ()
        own = {each: content for each, content in vars(value).items() if each not in _OF_EVERY_CLASS}
        if "_abc_impl" in own:
            own["_abc_impl"] = frozenset(reference() for reference in vars(abc)["_get_dump"](value)[0])
        bases = ((f"base {at}", base) for at, base in enumerate(value.__bases__))
        heirs: list[type[Any]] = type.__subclasses__(value)
        edges = (*_attributes(own), *bases, ("subclasses", list(map(_type_name, heirs))))
        return name, (*edges, ("metaclass", type(value))) if self._is_of_package(type(value)) else edges

    def _object(self, value: Any) -> tuple[str, Iterable[_Edge]]:
        kind: type[Any] = type(value)
        shown = _shown_by(kind)
        if shown is not None:
            more = self._own(value) if kind.__module__ in self._modules else ()
            return shown(value), (*more, *((f"attribute {name}", each) for name, each in attributes_added(value)))
        edges = list(self._own(value))
        if isinstance(value, BaseException):
            edges += (("cause", value.__cause__), ("context", value.__context__))
        if isinstance(value, torch().Tensor):
            return _tensor_text(value), (*edges, *self._tensor(value))
        if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
            items = (("items", list(value.flat)),) if value.dtype.hasobject else ()
            numbers = "" if items else f" {digest(value.tobytes().hex())}"
            return f"array {value.dtype} {value.shape}{numbers} {value.strides} {value.flags.writeable}", items
        if kind is re.Pattern:
            return "pattern", (("pattern", value.pattern), ("flags", value.flags))
        seen: list[_Edge] = []
        if any(base.__module__.partition(".")[0] in _STANDARD or _is_of_c(base) for base in kind.__mro__[:-1]):
            seen += _made_of(value)
        seen += [(f"what {name} gives", getattr(value, name)()) for name in _ASKED if hasattr(kind, name)]
        shows = edges or isinstance(getattr(value, "__dict__", None), dict)
        is_hiding = not shows and (kind.__module__ in _HIDING or any(map(_is_of_c, kind.__mro__[:-1])))
        if not seen and (is_hiding or any(map(_hides, kind.__mro__[:-1]))):
            self.opaque |= {f"an object of {name}" for name in {_type_name(kind)} - _HIDES_NOTHING}
        return _type_name(kind), edges + seen

    def _own(self, value: Any) -> Iterator[_Edge]:
        """What an object has beside what its class of C keeps: its class where a package made that, its attributes."""
        kind: type[Any] = type(value)
        if kind in _CONTAINERS:
            return
        if self._is_of_package(kind):
            yield "class", kind
        own = getattr(value, "__dict__", None)
        if isinstance(value, logging.Logger):  # which notes what it was asked for, and forgets it where a level is set
            own = {name: each for name, each in vars(value).items() if name != "_cache"}
        if isinstance(own, dict) and own:
            yield from _attributes(own)
        for base in kind.__mro__:
            slots = vars(base).get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if hasattr(value, name) and name not in ("__dict__", "__weakref__"):
                    yield f"attribute {name}", getattr(value, name)
        ends = [each.__callback__ for each in getweakrefs(value) if each.__callback__ is not None]
        called = [vars(finalize)["_registry"].get(each, each) if isinstance(each, finalize) else each for each in ends]
        called = [(each.func, each.args, each.kwargs) if hasattr(each, "func") else (each,) for each in called]
        if own_calls := [each for each in called if not str(each[0].__module__).startswith(("torch.", "weakref"))]:
            yield "called at its end", own_calls

    def _tensor(self, value: Any) -> Iterator[_Edge]:
        """What a tensor has beside its numbers."""
        if value.layout is not torch().strided:
            for name in _OF_SPARSE:
                with suppress(RuntimeError, AttributeError), warnings.catch_warnings(action="ignore"):
                    yield name, getattr(value.detach(), name)()
            return
        yield "layout", (value.stride(), value.storage_offset(), value.is_inference())
        if value.device.type == "cpu" and value.numel():
            storage = value.untyped_storage()
            yield "storage", f"of {self._storages.setdefault(storage.data_ptr(), len(self._storages))}"
            if type(value) is torch().Tensor and not value.is_quantized:
                yield "bytes", _bytes_of(storage)
        for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            yield name, list((getattr(value, name, None) or {}).values())
        yield "gradient", value.grad if value.is_leaf and value.requires_grad else None
        if not value.is_leaf:
            self.opaque.add("the history of a tensor")


class _Memory:
    """The memory of the process when it was made."""

    def __init__(self) -> None:
        lines: Sequence[str] = ()
        with suppress(OSError):
            lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        parts = [tuple(int(each, 16) for each in line.partition(" ")[0].split("-")) for line in lines]
        self._begins, self._ends = [part[0] for part in parts], [part[1] for part in parts]

    def text(self, number: int) -> str:
        """What stands for a number: `an address` where it lies in the memory, else itself."""
        at = bisect_right(self._begins, number) - 1
        return "an address" if at >= 0 and number < self._ends[at] else str(number)


def _is_of_module(value: FunctionType, name: object) -> bool:
    """Whether the globals of a function are those of a module, though it may say that it is of another one."""
    return isinstance(name, str) and getattr(sys.modules.get(name), "__dict__", None) is value.__globals__


def _keys_of(texts: Sequence[str], keys: Sequence[object]) -> Iterator[_Edge]:
    """The keys that are objects, by their texts, and by their places where several have one text."""
    counts = Counter(texts)
    for at, (text, key) in enumerate(zip(texts, keys, strict=True)):
        if type(key) not in _PLAIN:
            yield f"key {text if counts[text] == 1 else f'[{at}]'}", key


def _attributes(own: Mapping[str, object]) -> Iterator[_Edge]:
    """The attributes of an object or a class, and their order."""
    yield from ((f"attribute {name}", each) for name, each in list(own.items()))
    yield f"attributes: {ORDER_OF_KEYS}", digest(*own)


def attributes_added(value: Any) -> Iterator[_Edge]:
    """The attributes of an operator or a library of PyTorch that no code of its class has set."""
    known = _named_by(type(value).__mro__)
    if known is not None:
        overload = sys.modules["torch._ops"].OpOverload
        for name in sorted(vars(value).keys() - known):
            if name[:2] != "__" and not isinstance(each := vars(value)[name], overload):
                yield name, each


@functools.cache
def _named_by(kinds: tuple[type, ...]) -> frozenset[str] | None:
    """The names in the code of a class of operators or libraries and those above it; None of any other one."""
    ops = sys.modules["torch._ops"]
    if not issubclass(kinds[0], (ops.OpOverload, ops.OpOverloadPacket, torch().library.Library)):
        return None
    functions = (each for base in kinds for each in vars(base).values() if isinstance(each, FunctionType))
    return frozenset(name for function in functions for name in function.__code__.co_names)


def _bytes_of(storage: Any) -> str:
    """A digest of all of a storage, of which a tensor may show a part."""
    whole = torch().empty(0, dtype=torch().uint8).set_(storage)
    return blake2b(whole.numpy(), digest_size=8).hexdigest()


def _with_base(value: object, *kinds: Any) -> Any:
    """The class of the standard library that an object is of, whose methods no package has replaced."""
    return next(kind for kind in kinds if isinstance(value, kind))


def _is_of_python(kind: type) -> bool:
    """Whether Python code made a class."""
    return bool(kind.__flags__ & _HEAP_TYPE and not kind.__flags__ & _IMMUTABLE_TYPE)


def _is_of_c(kind: type) -> bool:
    """Whether the objects of a class hold something that C alone knows."""
    return not _is_of_python(kind) or type(kind).__name__ == "pybind11_type"


def _hides(kind: type) -> bool:
    """Whether a class of C is above those of Python whose objects hold something beside their attributes."""
    return type(kind).__name__ == "pybind11_type" or (
        _is_of_c(kind)
        and kind.__module__ in _HIDING
        and kind not in _CONTAINERS
        and _type_name(kind) not in _HIDES_NOTHING
    )


def _made_of(value: Any) -> Iterator[_Edge]:
    """What an object of C says that it can be made of again, or shows otherwise."""
    if isinstance(value, ContextVar):
        yield "value", value.get(None)
    elif isinstance(value, ReferenceType):
        yield "object", value()
    elif type(value).__name__ == "instancemethod":  # of pybind11; Python has no name for its class
        yield "function", value.__func__
    elif isinstance(value, ctypes._SimpleCData | ctypes.Structure | ctypes.Array | ctypes.Union):
        yield "bytes", bytes(value)
    elif type(value).__module__ == "sqlite3" and hasattr(value, "iterdump"):
        yield "content", list(value.iterdump())
    elif isinstance(value, io.IOBase) and not isinstance(value, io.BytesIO | io.StringIO):
        yield "file", (getattr(value, "name", None), value.closed)
        with suppress(OSError, ValueError):
            yield "position", value.tell()
    else:
        with suppress(TypeError, AttributeError, ValueError), warnings.catch_warnings(action="ignore"):
            yield "made of", value.__reduce_ex__(2)[1:]


_OF_SPARSE: Final = (
    *("is_coalesced", "_indices", "_values", "values", "crow_indices", "col_indices", "ccol_indices", "row_indices"),
    "to_dense",
)
"""Methods that show what a tensor holds which is not strided."""
_STANDARD: Final = sys.stdlib_module_names - {"abc", "enum", "typing"}
_HIDING: Final = sys.stdlib_module_names | {"builtins"}
"""The modules of classes of C whose objects may hold something that they do not show."""
_HIDES_NOTHING: Final = frozenset(
    {
        *("object", "getset_descriptor", "member_descriptor", "method_descriptor", "wrapper_descriptor"),
        *("classmethod_descriptor", "method-wrapper", "PyCapsule", "_abc:_abc_data", "collections:_tuplegetter"),
        *("random:SystemRandom", "typing:TypeVar", "torch:_C._ModuleInfo", "_thread:_local", "type", "str", "bytes"),
        *("int", "float", "complex", "BaseException", "Exception", "_random:Random", "functools:_lru_cache_wrapper"),
    }
)
_HEAP_TYPE: Final = 1 << 9
"""The flag of classes that were not compiled into a library as they are."""
_IMMUTABLE_TYPE: Final = 1 << 8
"""The flag of classes of C that were made when they were loaded."""
_CONTAINERS: Final = frozenset({dict, list, tuple, set, frozenset, deque, OrderedDict, defaultdict, MappingProxyType})
_ASKED: Final = ("hexdigest", "locked", "get_state")
"""Methods that show what an object of C holds, without a change of it."""

_OWN_WRAPPERS: Final = "dispatchlab/pytorch/recording/wrapped_functions.py"
"""Wrappers that are there while registrations are watched; who wraps a function then, wraps the one of PyTorch."""

_PLAIN: Final = frozenset({type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented)})
_OF_EVERY_CLASS: Final = frozenset(
    {"__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__", "_autograd_function_id"}
)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... {digest(text)}"


def digest(*texts: str) -> str:
    """A short digest of texts."""
    return blake2b("\0".join(texts).encode(errors="surrogatepass"), digest_size=8).hexdigest()


def _type_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}:{kind.__qualname__}"


def _key_text(key: object) -> str:
    """A key of a dictionary, without an address."""
    if type(key) in _PLAIN:
        return _short(repr(key))
    if isinstance(key, tuple):
        return f"({', '.join(map(_key_text, key))})"
    name = getattr(key, "__qualname__", None)
    if isinstance(name, str):
        return f"{getattr(key, '__module__', '')}:{name}"
    kind: type[Any] = type(key)
    shown = _shown_by(kind)
    return _type_name(kind) if shown is None else shown(key)


def _names_in(code: CodeType) -> Iterator[str]:
    """The names of code, and the texts in it that may be names which nothing else shows."""
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, str) and ("cache" in each.lower() or each.isupper()):
            yield each
        if isinstance(each, CodeType):
            yield from _names_in(each)


def _words_in(code: CodeType) -> Iterator[str]:
    """The words in the texts of code."""
    consts = list(code.co_consts)
    for each in consts:
        if isinstance(each, str | bytes):
            yield from _WORD.findall(each if isinstance(each, str) else each.decode("latin-1"))
        elif isinstance(each, tuple | frozenset):
            consts += each
        elif isinstance(each, CodeType):
            yield from _words_in(each)


_WORD: Final = re.compile(r"[^\W\d]\w*")


def _imports_in(code: CodeType, package: str) -> Iterator[str]:
    """The modules that code of a package imports when it runs, and what it imports of them."""
    module = ""
    level = 0
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_CONST" and type(instruction.argval) is int:
            level = instruction.argval
        elif instruction.opname == "IMPORT_NAME":
            module = str(instruction.argval)
            with suppress(ImportError, ValueError):
                module = resolve_name("." * level + module, package)
            yield module
        elif instruction.opname == "IMPORT_FROM" and not hasattr(sys.modules.get(module), instruction.argval):
            yield f"{module}.{instruction.argval}"
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _imports_in(each, package)


def _is_not_loaded(module: str, packages: Collection[str]) -> bool:
    """Whether a module is not imported and is of a package, or lies beside one and not where packages are installed."""
    top = module.partition(".")[0]
    if not module or module in sys.modules or top in sys.stdlib_module_names:
        return False
    return top in packages or _lies_beside(top)


@functools.cache
def _lies_beside(module: str) -> bool:
    if module in sys.modules:
        return False
    with suppress(ImportError, ValueError):
        spec = find_spec(module)
        return spec is not None and "-packages" not in str(spec.origin)
    return False


def _code_digest(code: CodeType) -> str:
    """Code without the places where it stands."""
    consts = [_code_digest(each) if isinstance(each, CodeType) else f"{type(each)} {each!r}" for each in code.co_consts]
    names = (*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars)
    numbers = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    return digest(code.co_code.hex(), code.co_exceptiontable.hex(), *consts, *names, *map(str, numbers))


def _self_of(value: BuiltinFunctionType) -> Iterator[_Edge]:
    """What a function of C is bound to; and the overloads that it tries if it calls an operator, which it lists."""
    if "Automatically bound operator" in (value.__doc__ or ""):
        yield "overloads", value.__doc__
    owner = value.__self__
    if owner is not None and not isinstance(owner, ModuleType):
        yield "self", owner


def _shown_by(kind: type[Any]) -> Callable[[Any], str] | None:
    """How an object of this class shows what it is, where it does so by itself; None where its parts do."""
    ops, c = sys.modules["torch._ops"], torch()._C
    if issubclass(kind, ops.OpOverload):
        return _overload_text
    if issubclass(kind, ops.OpOverloadPacket):
        return lambda value: f"operator {value._qualified_op_name}"
    if issubclass(kind, (c.ScriptFunction, c.ScriptMethod)):
        return _script_text
    of_torch = (torch().dtype, torch().device, torch().layout, torch().memory_format, torch().finfo, torch().iinfo)
    simple = (*of_torch, c.DispatchKey, c.DispatchKeySet, UnionType)
    if issubclass(kind, simple) or (type(kind).__name__ == "pybind11_type" and hasattr(kind, "__members__")):
        return repr
    if kind.__name__ == "RLock" and kind.__module__ == "_thread":
        return lambda value: f"RLock {repr(value).split()[0]}"
    if issubclass(kind, torch().library.Library):
        return lambda value: f"library {value.ns} {value.kind} {value.dispatch_key}"
    return None


def _overload_text(value: Any) -> str:
    """An overload, and whether `torch.ops` has another object for it by now."""
    name, _, overload = value.name().partition(".")
    packet = kept_packet(name)
    is_kept = packet is not None and vars(packet).get(overload or "default") is value
    return f"overload {value.name()} {value._schema}{'' if is_kept else ', which torch.ops has no more'}"


def _script_text(value: Any) -> str:
    return f"TorchScript {digest(str(value.inlined_graph))}"


def _tensor_text(value: Any) -> str:
    text = f"tensor {value.dtype} {tuple(value.shape)} {value.device} {value.requires_grad} {value.layout}"
    text += f" {value.is_conj()} {value.is_neg()} {getattr(value, 'names', '')}"
    text += "" if value.is_inference() else f" {value._version}"
    is_fake = value.device.type != "cpu" or type(value).__module__.startswith("torch._subclasses")
    if is_fake or value.layout is not torch().strided:
        return text
    return f"{text} {digest(repr(value.detach().flatten().tolist()))}"
