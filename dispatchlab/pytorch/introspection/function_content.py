"""What a function is, apart from where it lies: its code, and every value that a call of it can reach.

`Contents` reads functions and other values into short texts by path, such as `t::foo CPU: closure factor` -> `2.0`. Two
processes that read the same texts have functions that do the same, as far as Python can see.
"""

from __future__ import annotations

import abc
import ctypes
import dis
import functools
import sys
import warnings
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType, UnionType
from typing import Any, Final, NamedTuple, TypeAlias
from weakref import ReferenceType

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
# packages' modules are read.

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
        if self.is_reflective:
            loaded = [name for name in sys.modules if name in self._modules]
            self._queue.append((f"{MODULE}names", loaded))
            for name in sorted(loaded):
                own = {each: value for each, value in list(vars(sys.modules[name]).items()) if each[:2] != "__"}
                self._queue += [(f"{MODULE}{name}: global {each}", value) for each, value in own.items()]
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
        while self._queue:
            if len(self.texts) >= MOST_VALUES:
                self.is_cut = True
                self._queue.clear()
                return
            path, value = self._queue.popleft()
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
                return "partial", (("function", value.func), ("arguments", value.args), ("keywords", value.keywords))
            case CodeType():
                return f"code {_code_digest(value)}", self._names(value, {})
            case _Module():
                return value.module.__name__, self._globals_of(value)
            case ModuleType():
                return f"module {value.__name__}", ()
            case type():
                return self._class(value)
            case list() | tuple() | deque():
                return f"{_type_name(type(value))} of {len(value)}", (
                    (f"[{at}]", each) for at, each in enumerate(value)
                )
            case dict() | MappingProxyType():
                keys = [_key_text(key) for key in value]
                entries = list(zip(keys, list(value.values()), strict=False))
                text = f"{_type_name(type(value))} of {len(value)}"
                return text, (*((f"[{key}]", each) for key, each in entries), (ORDER_OF_KEYS, digest(*keys)))
            case set() | frozenset():
                keys = list(map(_key_text, value))
                has_order = all(type(each) in _PLAIN for each in value)  # else it is by address
                order = ((ORDER_OF_KEYS, digest(*keys)),) if has_order else ()
                return f"{_type_name(type(value))} {digest(*sorted(keys))}", order
            case BuiltinFunctionType():
                if value.__module__ in self._modules:
                    self.opaque.add(f"a function of {value.__module__}")
                return f"{getattr(value, '__module__', None)}:{value.__qualname__}", _self_of(value)
            case classmethod() | staticmethod():
                return _type_name(type(value)), (("function", value.__func__),)
            case property():
                return "property", (("get", value.fget), ("set", value.fset))
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
        yield from ((f"attribute {name}", each) for name, each in vars(value).items() if "dynamo" not in name)
        scope = value.__globals__.get("__name__")
        if scope in self._modules or (value.__module__ in self._modules and not _is_of_module(value, scope)):
            yield from self._names(value.__code__, value.__globals__)

    def _names(self, code: CodeType, scope: Mapping[str, Any]) -> Iterator[_Edge]:
        """The globals that code names, and what it names in modules of the packages."""
        names = frozenset(_names_in(code))
        self.names |= names
        for name in sorted(names):
            if name in scope:
                value = scope[name]
                if isinstance(value, ModuleType) and value.__name__ in self._modules:
                    value = _Module(value, names)
                yield f"global {name}", value
            elif name in self._modules and name in sys.modules:  # imported by the code itself
                yield f"import {name}", _Module(sys.modules[name], names)
        if any(map(_is_not_loaded, _imports_in(code))):  # what it finds then, may be anything of the packages
            self.names.add("modules")

    def _globals_of(self, module: _Module) -> Iterator[_Edge]:
        scope = vars(module.module)
        if "__getattr__" in scope:
            yield "global __getattr__", scope["__getattr__"]
        for name in sorted(module.names & scope.keys()):
            value = scope[name]
            is_followed = isinstance(value, ModuleType) and value.__name__ in self._modules
            yield f"global {name}", _Module(value, module.names) if is_followed else value

    def _class(self, value: type) -> tuple[str, Iterable[_Edge]]:
        name = f"class {_type_name(value)}"
        if value.__module__ not in self._modules:
            return name, ()
        own = {each: content for each, content in vars(value).items() if each not in _OF_EVERY_CLASS}
        if "_abc_impl" in own:
            own["_abc_impl"] = frozenset(reference() for reference in vars(abc)["_get_dump"](value)[0])
        bases = ((f"base {at}", base) for at, base in enumerate(value.__bases__))
        heirs: list[type[Any]] = type.__subclasses__(value)
        return name, (*_attributes(own), *bases, ("subclasses", list(map(_type_name, heirs))))

    def _object(self, value: Any) -> tuple[str, Iterable[_Edge]]:
        kind: type[Any] = type(value)
        shown = _shown_by(kind)
        if shown is not None:
            return shown(value), ()
        edges: list[_Edge] = [] if kind.__module__ not in self._modules else [("class", kind)]
        own = getattr(value, "__dict__", None)
        if isinstance(own, dict):
            edges += _attributes(own)
        for base in kind.__mro__:
            slots = vars(base).get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if hasattr(value, name) and name not in ("__dict__", "__weakref__"):
                    edges.append((f"attribute {name}", getattr(value, name)))
        if isinstance(value, torch().Tensor):
            return _tensor_text(value), (*edges, *self._tensor(value))
        if isinstance(value, dict):
            edges.append(("items", dict(value)))
        elif isinstance(value, list | tuple):
            edges.append(("items", list(value)))
        elif any(base.__module__.partition(".")[0] in _STANDARD or _is_of_c(base) for base in kind.__mro__[:-1]):
            edges += _made_of(value)
        edges += [(f"what {name} gives", getattr(value, name)()) for name in _ASKED if hasattr(kind, name)]
        if not edges and (kind.__module__ in _HIDING or any(map(_is_of_c, kind.__mro__[:-1]))):
            self.opaque |= {f"an object of {name}" for name in {_type_name(kind)} - _HIDES_NOTHING}
        return _type_name(kind), edges

    def _tensor(self, value: Any) -> Iterator[_Edge]:
        """What a tensor has beside its numbers."""
        if value.layout is not torch().strided:
            yield "values", value.detach().to_dense() if value.layout is not torch()._mkldnn else None
            return
        yield "layout", (value.stride(), value.storage_offset(), value.is_inference())
        if value.device.type == "cpu" and value.numel():
            storage = value.untyped_storage().data_ptr()
            yield "storage", f"of {self._storages.setdefault(storage, len(self._storages))}"
        hooks = getattr(value, "_backward_hooks", None)
        yield "hooks", list((hooks or {}).values())
        yield "gradient", value.grad if value.is_leaf and value.requires_grad else None


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


def _attributes(own: Mapping[str, object]) -> Iterator[_Edge]:
    """The attributes of an object or a class, and their order."""
    yield from ((f"attribute {name}", each) for name, each in list(own.items()))
    yield f"attributes: {ORDER_OF_KEYS}", digest(*own)


def _is_of_c(kind: type) -> bool:
    """Whether the objects of a class hold something that C alone knows."""
    return not kind.__flags__ & _HEAP_TYPE or type(kind).__name__ == "pybind11_type"


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
    else:
        with suppress(TypeError, AttributeError, ValueError), warnings.catch_warnings(action="ignore"):
            yield "made of", value.__reduce_ex__(2)[1:]


_STANDARD: Final = sys.stdlib_module_names - {"abc", "enum", "typing"}
_HIDING: Final = sys.stdlib_module_names | {"builtins"}
"""The modules of classes of C whose objects may hold something that they do not show."""
_HIDES_NOTHING: Final = frozenset(
    {
        *("object", "getset_descriptor", "member_descriptor", "method_descriptor", "wrapper_descriptor"),
        *("classmethod_descriptor", "method-wrapper", "PyCapsule", "_abc:_abc_data", "collections:_tuplegetter"),
        *("random:SystemRandom", "typing:TypeVar", "torch:_C._ModuleInfo"),
    }
)
_HEAP_TYPE: Final = 1 << 9
"""The flag of classes that were not compiled into a library as they are."""
_ASKED: Final = ("hexdigest", "locked", "get_state")
"""Methods that show what an object of C holds, without a change of it."""

_OWN_WRAPPERS: Final = "dispatchlab/pytorch/recording/wrapped_functions.py"
"""Wrappers that are there while registrations are watched; who wraps a function then, wraps the one of PyTorch."""

_PLAIN: Final = frozenset({type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented)})
_OF_EVERY_CLASS: Final = frozenset({"__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__"})


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


def _imports_in(code: CodeType) -> Iterator[str]:
    """The modules that code imports when it runs."""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            yield str(instruction.argval).partition(".")[0]
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _imports_in(each)


@functools.cache
def _is_not_loaded(module: str) -> bool:
    """Whether a module is not imported and lies beside the packages, not where packages are installed."""
    if not module or module in sys.modules or module in sys.stdlib_module_names:
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
    return digest(code.co_code.hex(), *consts, *names, *map(str, numbers))


def _self_of(value: BuiltinFunctionType) -> Iterator[_Edge]:
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
    if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
        return lambda value: f"array {value.dtype} {value.shape} {digest(value.tobytes().hex())}"
    of_torch = (torch().dtype, torch().device, torch().layout, torch().memory_format, torch().finfo, torch().iinfo)
    simple = (*of_torch, c.DispatchKey, c.DispatchKeySet, UnionType)
    if issubclass(kind, simple) or kind.__module__ == "re" or isinstance(getattr(kind, "__members__", None), dict):
        return repr
    if kind.__name__ == "RLock":
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
    return f"TorchScript {digest(str(value.graph))}"


def _tensor_text(value: Any) -> str:
    text = f"tensor {value.dtype} {tuple(value.shape)} {value.device} {value.requires_grad} {value.layout}"
    text += f" {value.is_conj()} {value.is_neg()} {getattr(value, 'names', '')}"
    text += "" if value.is_inference() else f" {value._version}"
    is_fake = value.device.type != "cpu" or type(value).__module__.startswith("torch._subclasses")
    if is_fake or value.layout is not torch().strided:
        return text
    return f"{text} {digest(repr(value.detach().flatten().tolist()))}"
