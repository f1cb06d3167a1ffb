"""Watch what packages ask of the dispatcher and of the registries of Python while they are imported."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from importlib import import_module
from importlib.util import resolve_name
from types import FrameType, ModuleType
from typing import Any, TypeAlias

from dispatchlab.model.python_layer import PYTHON_REGISTRIES
from dispatchlab.pytorch.bridge.call_sites import API_FILES, CallSites, torch_folder
from dispatchlab.pytorch.bridge.torch import bindings, torch
from dispatchlab.pytorch.introspection import python_journal
from dispatchlab.pytorch.introspection.module_uses import module_source, module_uses, tables_used_in
from dispatchlab.pytorch.introspection.package_paths import package_path, without_root
from dispatchlab.pytorch.introspection.python_journal import PYTORCH_FOLDERS
from dispatchlab.pytorch.recording import module_watch, watch, wrapped_functions
from dispatchlab.pytorch.recording.dispatcher_reads import (
    CALL,
    EVERYTHING,
    FALLBACK,
    MODULE,
    PRIVATEUSE1,
    TABLE,
    DispatcherRead,
    ModuleWrite,
)
from dispatchlab.pytorch.recording.wrapped_functions import WrappedFunctions

# Note [Whose question it is]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~
# PyTorch asks its own registries all the time: `custom_op` looks up whether the operator has a def, and the import of
# Inductor looks up a thousand operators. These are no reads of a package. So the callers of a question are followed
# outwards:
#
# - through the wrappers, the standard library and generated code, which ask for somebody else;
# - through functions of PyTorch. The outermost of them is what the package called. Where that registers, whatever it
#   asks belongs to the registration: it is the rules of the engines that say when it is refused;
# - up to the first line of a package, which is the site. Where the body of a module of PyTorch comes first, it is
#   PyTorch that asks, and where another frame of the recorder does, it is the recorder.
#
# A look-up at the line of the package counts although what is looked up is the argument of a registration: without the
# operator, `register_lowering(torch.ops.t.foo)` raises before anything is registered.
#
# `torch.ops.t` itself is always there and tells nothing, so it is no read.
#
# One question is noted once: a hook notes nothing while another one of the same thread has its answer looked up. A call
# of an operator is the exception, since the kernel may be code of a package, which may ask something itself.

# Note [Hooks on torch.ops]
# ~~~~~~~~~~~~~~~~~~~~~~~~~
# `torch.ops.t.foo` is looked up once and is an attribute of the namespace from then on, which no `__getattr__` is asked
# for. A `__getattribute__` would be called millions of times, since each `hash` of a packet reads an attribute of it.
# So the class gets a property for each name that is looked up. The attributes stay where they are: the property reads
# and writes them there, so that they are what they would be when it is gone. Where an object does not have the
# attribute, Python goes on to `__getattr__`, as without.
#
# What a package holds of the wrappers at the end, such as a function that it imported by name, becomes the original
# again. Dynamo keeps a table of functions by object, which is computed anew when it was computed meanwhile.

_Hook: TypeAlias = Callable[..., Any]
_About: TypeAlias = Callable[[Any, str], str]

_PASSED, _TORCH, _RECORDER, _PACKAGE = range(4)
"""Whose code a file is, for Note [Whose question it is]. An `Enum` is too slow for what is asked so often."""


class ReadWatch:
    """Notes what the code of packages asks, from the inside of a `with` block on.

    Args:
        running: gives the module body that is running; see `ModuleWatch.running`.
        roots: the folders in which packages are found.
        packages: the packages that are recorded; questions about other modules are not noted.
        modules: gives the modules whose sources are read at the end; see `PythonWatch.modules`.
        noted: is called with each read while the code that asks is running, but for those that only the source shows.
    """

    def __init__(
        self,
        running: Callable[[], str],
        roots: tuple[str, ...],
        packages: Collection[str] = (),
        modules: Callable[[], Iterable[ModuleType]] = tuple,
        noted: Callable[[DispatcherRead], None] | None = None,
    ) -> None:
        self.renames: list[ModuleWrite] = []
        """The calls that gave the backend PrivateUse1 a name."""
        self._running, self._roots, self._packages, self._modules = running, roots, tuple(packages), modules
        self._reads: dict[DispatcherRead, None] = {}
        self._noted = noted
        self._wrapped = WrappedFunctions()
        self._originals: dict[int, tuple[object, object]] = {}
        self._inside = _Inside()
        self._sites = CallSites()
        self._torch = torch_folder()
        self._api = tuple(self._torch + path.replace("/", os.sep) for path in API_FILES)
        self._codes = {str(module.__file__): _PASSED for module in (sys.modules[__name__], *_WRAPPING)}
        self._own = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "")
        self._before: Mapping[str, object] = {}
        self._fields: list[tuple[type, str]] = []
        self._dynamo = False
        self._is_on = False

    @property
    def reads(self) -> tuple[DispatcherRead, ...]:
        """What was asked, in program order, each question once; what only the source shows comes last."""
        return tuple(self._reads)

    def __enter__(self) -> ReadWatch:
        self._before = dict(sys.modules)
        self._dynamo = _DYNAMO in sys.modules
        try:
            self._is_on = True
            self._hook_operators()
            self._wrap_functions()
        except BaseException:
            self._put_back()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._read_sources()
        finally:
            self._put_back()

    def _put_back(self) -> None:
        self._is_on = False
        self._wrapped.put_back()
        for owner, name in dict.fromkeys(self._fields):  # two threads may have looked one up at once
            delattr(owner, name)
        self._fields.clear()
        for module in self._new_modules():
            for name, value in list(vars(module).items()):
                wrapper, original = self._originals.get(id(value), (None, None))
                if wrapper is not None and wrapper is value:
                    vars(module)[name] = original
        if not self._dynamo and _DYNAMO in sys.modules:
            sys.modules[_DYNAMO].get_torch_obj_rule_map.cache_clear()

    def _new_modules(self) -> list[ModuleType]:
        return [
            module
            for name, module in list(sys.modules.items())
            if self._before.get(name) is not module and isinstance(module, ModuleType)
        ]

    # -- operators

    def _hook_operators(self) -> None:
        """Hook the classes behind `torch.ops`. See Note [Hooks on torch.ops]."""
        ops = import_module("torch._ops")
        packets, overloads, rules = ops.OpOverloadPacket, ops.OpOverload, ops.HigherOrderOperator
        namespaces = [one for one in vars(ops.ops).values() if type(one) is ops._OpNamespace]
        known = [one for namespace in namespaces for one in vars(namespace).values() if type(one) is packets]
        self._hook_look_ups(ops._OpNamespace, lambda of, name: f"{_name(of)}::{name}", namespaces, packets)
        of_rules = ops.ops.higher_order
        self._hook_look_ups(type(of_rules), lambda _, name: f"higher_order higher_order::{name}", [of_rules], rules)
        self._hook_look_ups(packets, _overload, known, overloads)
        for name in ("_overload_names", "_qualified_op_name"):
            self._hook_field(packets, name, name, lambda of, _: _operator(of))
        self._hook_field(overloads, "_schema", "_schema", lambda of, _: _operator(of))
        self._wrap(packets, "__dir__", self._dir_of_packet)
        for owner, about in ((ops._OpNamespace, _all_of), (ops._Ops, _all_of), (packets, _operator)):
            for name, how in (("__dir__", "dir()"), ("__iter__", "iter()")):
                self._wrap(owner, name, functools.partial(self._asked, how, about))
        for name in ("overloads", "op_overloads"):
            self._wrap(packets, name, functools.partial(self._asked, f"{name}()", _operator))
        for owner in (overloads, ops.TorchBindOpOverload, packets, rules):
            for name in ("__call__", "redispatch", "decompose"):
                if name in vars(owner):
                    self._hook_call(owner, name)

    def _hook_look_ups(self, owner: Any, about: _About, objects: Iterable[object], kind: type) -> None:
        """Note what is looked up on objects of a class, those of them that are attributes already as well.

        Args:
            owner: the class.
            about: what is asked of, by the object and the name of the attribute.
            objects: those that are there.
            kind: the class of what is looked up.
        """
        searched: _Hook = owner.__getattr__
        inside = self._inside

        @functools.wraps(searched)
        def __getattr__(of: Any, name: str) -> Any:
            if name.startswith("__"):
                return searched(of, name)
            line = None if inside.reading else self._line()
            was_inside, inside.reading = inside.reading, True
            answer = "no"
            try:
                value = searched(of, name)
                answer = "yes"
            finally:
                inside.reading = was_inside
                if line is not None:
                    self._note("torch.ops", about(of, name), line, answer)
            self._hook_field(owner, name, "torch.ops", about)
            return value

        self._replace(owner, "__getattr__", __getattr__, searched)
        for name in {name for one in objects for name, value in vars(one).items() if isinstance(value, kind)}:
            self._hook_field(owner, name, "torch.ops", about)

    def _hook_field(self, owner: type, name: str, how: str, about: _About) -> None:
        """Note who reads an attribute that the objects of a class have, and leave it where it is."""
        if hasattr(owner, name):
            return
        self._fields.append((owner, name))
        setattr(owner, name, _Field(self, owner, name, how, about))

    def read_field(self, field: _Field, of: Any, value: object) -> None:
        """An attribute was read, from outside of the file of its class."""
        if not self._inside.reading and (line := self._line()) is not None:
            self._note(field.how, field.about(of, field.name), line, _answer(value))

    def _dir_of_packet(self, original: _Hook, packet: Any) -> Any:
        hooked = {name for owner, name in tuple(self._fields) if owner is type(packet)}
        return [name for name in original(packet) if name not in hooked or name in packet.__dict__]

    def _hook_call(self, owner: Any, name: str) -> None:
        original: _Hook = vars(owner)[name]

        @functools.wraps(original)
        def call(operator: Any, /, *arguments: Any, **named: Any) -> Any:
            if self._is_on and not self._inside.reading and (line := self._line()) is not None:
                self._note(CALL, _operator(operator), line, computed=True)
            return original(operator, *arguments, **named)

        self._replace(owner, name, call, original)

    # -- functions

    def _wrap_functions(self) -> None:
        c, asked = bindings(), self._asked
        for name in dir(c):
            if (name.startswith("_dispatch_") and not _NO_QUESTION.search(name)) or name in _JIT_QUESTIONS:
                about = functools.partial(_of_names, name)
                self._wrap(c, name, functools.partial(asked, name, about, computed=name in _COMPUTED))
        for holder in (c, import_module("torch.utils.backend_registration")):
            self._wrap(holder, "_get_privateuse1_backend_name", functools.partial(asked, "the name", _of_privateuse1))
            self._wrap(holder, "_rename_privateuse1_backend", self._renamed)
        self._wrap(torch().library, "get_kernel", functools.partial(asked, "get_kernel", _of_first, computed=True))
        registry = import_module("torch._library.simple_registry").SimpleLibraryRegistry
        for name in ("find", "get"):
            about = functools.partial(_in_registry, "torch_library")
            self._wrap(registry, name, functools.partial(asked, f"simple_registry.{name}", about))
        opdefs = import_module("torch._library.custom_ops")
        about = functools.partial(_in_registry, "custom_ops", None)
        self._wrap(opdefs, "_maybe_get_opdef", functools.partial(asked, "_maybe_get_opdef", about))
        decompositions = import_module("torch._decomp")
        self._wrap(decompositions, "get_decompositions", self._decompositions)
        about = functools.partial(str, f"decompositions {EVERYTHING}")
        self._wrap(
            decompositions, "core_aten_decompositions", functools.partial(asked, "core_aten_decompositions", about)
        )
        self._wrap(importlib.util, "find_spec", self._find_spec)

    def _asked(
        self,
        how: str,
        about: Callable[..., str],
        original: _Hook,
        *arguments: Any,
        computed: bool = False,
        **named: Any,
    ) -> Any:
        """Call a function that answers a question, and note it."""
        if not self._is_on or self._inside.reading or (line := self._line()) is None:
            return original(*arguments, **named)
        given = (*arguments, *named.values())
        answer = ""
        self._inside.reading = True
        try:
            result = original(*arguments, **named)
            answer = _answer(result)
            return result
        except Exception as error:
            answer = f"raises {type(error).__name__}"
            raise
        finally:
            try:
                subject, key = about(*given), _key(given)
                answer = package_path(answer, self._roots) or self._kernel(subject, key)
                self._note(how, subject, line, answer, key, computed=computed or subject == FALLBACK)
            except (TypeError, ValueError, AttributeError, LookupError):
                pass  # the function says what is wrong with its arguments
            finally:
                self._inside.reading = False

    def _kernel(self, operator: str, key: str) -> str:
        """The kernel of an operator at a key, as its table names it."""
        with suppress(RuntimeError):
            for row in bindings()._dispatch_dump_table(operator).splitlines():
                if row.startswith(f"{key}: "):
                    return without_root(row.removeprefix(f"{key}: "), self._roots)
        return ""

    def _decompositions(self, original: _Hook, aten_ops: Any, *more: Any, **named: Any) -> Any:
        line = None if self._inside.reading or not self._is_on else self._line()
        operators = [] if line is None else list(aten_ops)
        result = original(aten_ops if line is None else operators, *more, **named)
        if line is not None:
            table = str((*more, *named.values(), "post_autograd")[0])
            found: dict[str, list[str]] = {}
            for operator, function in result.items():
                answer = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
                found.setdefault(_operator(operator).partition(".")[0], []).append(answer)
            for name in dict.fromkeys(map(_operator, operators)):
                answer = _answer(found.get(name.partition(".")[0], []))
                self._note("get_decompositions", f"decompositions {name}", line, answer, table)
        return result

    def _renamed(self, original: _Hook, *arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        line = self._line(registering=True) if self._is_on else None
        if line is not None:
            self.renames.append(ModuleWrite(PRIVATEUSE1, "", self._running(), self._site(line)))
        return result

    def _find_spec(self, original: _Hook, name: str, package: str | None = None) -> Any:
        result = original(name, package)
        line = self._line() if self._is_on else None
        if line is not None:
            self._about_module("find_spec", resolve_name(name, package), line, _answer(result is not None))
        return result

    def _about_module(self, how: str, name: str, line: FrameType, answer: str) -> None:
        module = self._running()
        if any(_is_of(name, package) and not _is_of(module, package) for package in self._packages):
            self._note(how, f"{MODULE}{name}", line, answer)

    # -- sources

    def _read_sources(self) -> None:
        """Note what the sources of the modules ask of tables and modules."""
        for module in self._modules():
            name, source = module.__name__, module_source(module)
            path = package_path(str(module.__file__), self._roots)
            others = [package for package in self._packages if not _is_of(name, package)]
            for asked in module_uses(source, others):
                read = DispatcherRead(asked.how, f"{MODULE}{asked.module}", "", name, f"{path}:{asked.line}")
                self._reads.setdefault(read)
            for use in tables_used_in(module):
                read = DispatcherRead(TABLE, f"{use.registry} {EVERYTHING}", "", name, f"{path}:{use.line}")
                self._reads.setdefault(read)

    # -- notes

    def _line(self, *, registering: bool = False) -> FrameType | None:
        """The line of a package that asks; None when it is not a package. See Note [Whose question it is].

        Args:
            registering: ask it of a call that registers.
        """
        codes, called = self._codes, None
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            code = frame.f_code
            kind = codes.get(code.co_filename)
            if kind is None:
                kind = self._code_of(code.co_filename)
            if kind == _TORCH:
                if code.co_name == "<module>":
                    return None
                called = code
            elif kind == _RECORDER:
                return None
            elif kind == _PACKAGE:
                break
            frame = frame.f_back
        if called is None or registering or not self._registers(called.co_filename, called.co_qualname):
            return frame
        return None

    def _registers(self, file: str, function: str) -> bool:
        """Whether a function of PyTorch registers what a package asks for, or is noted by itself."""
        name = function.partition(".<locals>")[0]
        is_api = file.startswith(self._api) and not file.endswith(_READING_FILES)
        return name in _REGISTERING or name in _NOTED or (is_api and name not in _READING)

    def _code_of(self, file: str) -> int:
        if file in self._codes:
            return self._codes[file]
        if package_path(file, self._roots).startswith(PYTORCH_FOLDERS) or file.startswith(self._torch):
            kind = _TORCH
        elif file.startswith(self._own):
            kind = _RECORDER
        elif file.startswith("<") or self._sites.is_standard(file):
            kind = _PASSED
        else:
            kind = _PACKAGE
        self._codes[file] = kind
        return kind

    def _site(self, line: FrameType) -> str:
        return package_path(f"{line.f_code.co_filename}:{line.f_lineno}", self._roots)

    def _note(
        self, how: str, about: str, line: FrameType, answer: str = "", key: str = "", *, computed: bool = False
    ) -> None:
        read = DispatcherRead(how, about, key, self._running(), self._site(line), answer, computed)
        if read not in self._reads:
            self._reads[read] = None
            if self._noted is not None:
                self._noted(read)

    # -- wrappers

    def _wrap(self, owner: Any, name: str, around: _Hook) -> None:
        original = getattr(owner, name, None)
        wrapper = self._wrapped.wrap(owner, name, around)
        if wrapper is not None:
            self._originals[id(wrapper)] = wrapper, original

    def _replace(self, owner: Any, name: str, by: _Hook, original: _Hook) -> None:
        self._originals[id(by)] = by, original
        self._wrapped.replace(owner, name, by)


class _Field:
    """An attribute that the objects of a class have of their own, and whoever reads it is noted.

    It is no `property`: three functions for each of thousands of names are work for the garbage collector.
    """

    __slots__ = ("_file", "_watch", "about", "how", "name")

    def __init__(self, watch: ReadWatch, owner: type, name: str, how: str, about: _About) -> None:
        self._watch, self.name, self.how, self.about = watch, name, how, about
        self._file = sys.modules[owner.__module__].__file__

    def __get__(self, of: Any, owner: type) -> Any:
        if of is None:
            return self
        try:
            value = of.__dict__[self.name]
        except KeyError:
            raise AttributeError(f"'{owner.__name__}' object has no attribute '{self.name}'") from None
        if sys._getframe(1).f_code.co_filename != self._file:
            self._watch.read_field(self, of, value)
        return value

    def __set__(self, of: Any, value: object) -> None:
        of.__dict__[self.name] = value

    def __delete__(self, of: Any) -> None:
        try:
            del of.__dict__[self.name]
        except KeyError:
            raise AttributeError(self.name) from None


class _Inside(threading.local):
    """Whether a thread is looking up an answer: what is asked for that is no question of its own."""

    reading: bool = False


_WRAPPING = (module_watch, python_journal, watch, wrapped_functions)
"""The modules whose wrappers a call of a package goes through."""
_DYNAMO = "torch._dynamo.trace_rules"
_NO_QUESTION = re.compile(
    "autogradother_backends|clear_leaked|isTensorSubclassLike|is_alias|is_included|key_for_device|key_name|key_parse|"
    "key_set$|keys$|keyset|_library$|num_backends|set_report|tls"
)
"""Functions of the bindings that say nothing of what is registered: of keys, key sets and threads."""
_JIT_QUESTIONS = frozenset(
    (
        "_get_operation_overload",
        "_get_schema",
        "_jit_get_all_schemas",
        "_jit_get_operation",
        "_jit_get_schemas_for_operator",
        "_jit_resolve_packet",
    )
)
_WITH_OVERLOAD = ("_get_operation_overload", "_get_schema", "_dispatch_find_schema_or_throw", "_dispatch_pystub")
"""Functions whose second argument is an overload."""
_COMPUTED = frozenset(
    (
        "_dispatch_call_boxed",
        "_dispatch_dump_table",
        "_dispatch_get_computed_kernel_for_dispatch_key",
        "_dispatch_has_computed_kernel_for_dispatch_key",
    )
)
"""Functions whose answer is the kernel that would run, which may be a fallback."""
_READING_FILES = tuple(os.path.join("_library", name) for name in ("utils.py", "simple_registry.py"))
_NOTED = frozenset(
    f"{owner}.{name}"
    for owner in ("OpOverloadPacket", "OpOverload", "TorchBindOpOverload", "HigherOrderOperator")
    for name in ("__call__", "decompose", "op_overloads", "overloads", "redispatch")
)
"""Methods that are hooked: what they ask inside is no question of its own."""
_READING = frozenset(("CustomOpDef.__call__", "_maybe_get_opdef", "get_kernel", "opcheck"))
"""What is asked for in the registration API and registers nothing."""
_REGISTERING = frozenset(each.path.partition(":")[2] for registry in PYTHON_REGISTRIES for each in registry.calls)
"""The functions that register in Python, by qualified name."""
_LONG = 120
_SEVERAL = {kind.__iter__ for kind in (list, tuple, set, frozenset, dict)}
"""How values that hold several are read. What is read otherwise, as PyTorch's table for export, may work to be read."""


def _name(namespace: object) -> str:
    return str(object.__getattribute__(namespace, "__dict__").get("name", ""))


def _all_of(namespace: object) -> str:
    """All operators of a namespace, or of `torch.ops`."""
    name = _name(namespace)
    return f"{name}::{EVERYTHING}" if name else EVERYTHING


def _of_privateuse1() -> str:
    return PRIVATEUSE1


def _operator(operator: Any) -> str:
    """The full name of an operator or a packet, without the overload `default`."""
    if isinstance(operator, str):
        return operator.removesuffix(".default")
    fields = object.__getattribute__(operator, "__dict__")
    name = str(fields.get("_qualified_op_name") or fields["_name"])
    if "::" in name:
        return name
    namespace = fields.get("_namespace")  # of what `custom_op` gave
    return f"{namespace}::{name}" if namespace else f"higher_order higher_order::{name}"


def _of_names(function: str, *arguments: Any) -> str:
    """What a function of the bindings is asked about."""
    names = [one for one in arguments if isinstance(one, str)]
    operator = names[0] if names and "::" in names[0] else ""
    if not operator:
        handle = next((one for one in arguments if hasattr(one, "schema")), None)  # a handle of the dispatcher
        if handle is not None:
            return str(handle.schema).partition("(")[0]
        return FALLBACK if function == "_dispatch_has_backend_fallback" else EVERYTHING
    overload = names[1] if function in _WITH_OVERLOAD and len(names) > 1 else ""
    return f"{operator}.{overload}" if overload not in ("", "default") else operator


def _overload(packet: Any, name: str) -> str:
    return _operator(packet) if name == "default" else f"{_operator(packet)}.{name}"


def _of_first(operator: Any, *more: Any) -> str:
    return _operator(operator)


def _in_registry(registry: str, _: object, operator: Any, *more: Any) -> str:
    return f"{registry} {_operator(operator)}"


def _key(arguments: Iterable[Any]) -> str:
    """The dispatch key among arguments; empty where there is none."""
    kind = bindings().DispatchKey
    for one in arguments:
        if isinstance(one, kind):
            return str(one.name)
        if isinstance(one, str) and one in kind.__members__:
            return one
    return ""


def _answer(value: Any) -> str:
    """An answer as a short text: yes or no, names, a text; empty when only a kernel would say more."""
    if isinstance(value, Iterator):  # which is the package's to read
        return "yes"
    text = "; ".join(dict.fromkeys(_texts(value))) if _has_several(value) else _text(value)
    return text if len(text) <= _LONG else f"{len(text):,} characters, SHA-256 {sha256(text.encode()).hexdigest()[:12]}"


def _has_several(value: object) -> bool:
    return getattr(type(value), "__iter__", None) in _SEVERAL


def _texts(values: Any) -> Iterator[str]:
    """The names and schemas in an answer, without what has no text but an address; or whether there is anything."""
    found = [one for each in values for one in (_texts(each) if _has_several(each) else (_text(each),))]
    names = sorted(each for each in found if each not in ("yes", "no") and not each.startswith("__"))
    yield from names or (["yes"] if "yes" in found else ["no"])


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | bindings().FunctionSchema):
        return str(value) or "default"
    kind = type(value).__name__
    if kind == "SimpleOperatorEntry":  # which `find` makes where there is none
        return "no" if value.fake_impl.kernel is None else str(value.fake_impl.kernel.source)
    return "" if kind == "_SafeKernelFunction" else "yes"


def _is_of(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")
