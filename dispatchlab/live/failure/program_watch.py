"""Run a program and note what happens in it: imports and libraries that fail, registrations, warnings, the exception.

Nothing is predicted: what the program does is noted while it does it. PyTorch is patched when the program imports it,
so that environment variables that the program sets before still count.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import json
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType, TracebackType
from typing import Any, Final

from dispatchlab.live.failure.positions import position_of
from dispatchlab.live.failure.registered_functions import note_function, note_result, schema_of, watch_formulas
from dispatchlab.model.failure import Event, EventKind, Position, Raised

CHILDREN: Final = "DISPATCHLAB_WHY_EVENTS"
"""The environment variable that names the file in which processes that the program starts leave their events."""

_OURS: Final = os.path.abspath(__file__).rpartition(os.path.join("live", "failure"))[0]
_BACKTRACE: Final = re.compile(r"\n(?:Exception raised from .*|frame #\d+: .*|C\+\+ CapturedTraceback:.*)", re.DOTALL)
_TRACED: Final = re.compile(r'^ *File "([^"]+)", line (\d+), in (\S+)$', re.MULTILINE)
_LONGEST: Final = 20_000
_KEPT_CALLS: Final = 3
_KEPT_NUMBERS: Final = 65_536
_REGISTERS: Final = ("define", "impl", "fallback", "custom_op", "register_fake", "register_autograd")


_STARTED: Final[list[ProgramWatch]] = []


class ProgramWatch:
    """Events of this process, in order.

    Args:
        folder: the folder whose files are the user's; files of installed packages are not.
    """

    def __init__(self, folder: str) -> None:
        self.folder = os.path.realpath(folder)
        self.events: list[Event] = []
        self.calls: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {}
        self.states: set[tuple[str, str]] = set()

    def note(self, kind: EventKind, subject: str, detail: str = "", at: Position | None = None) -> None:
        """Add an event; its line is the caller's when none is given."""
        if kind in _REGISTERS and not self.registers(sys._getframe(1)):
            return
        event = Event(kind, subject, detail[:_LONGEST], at or self.position(sys._getframe(1)))
        self.events.append(event)
        if path := os.environ.get(CHILDREN):
            leave_event(path, event)

    def position(self, frame: FrameType | None) -> Position | None:
        """Return the innermost line of the user at or around a frame."""
        while frame is not None:
            if self.is_users(frame.f_code.co_filename):
                return position_of(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
            frame = frame.f_back
        return None

    def is_users(self, file: str) -> bool:
        """Return whether a file belongs to the user, and to no installed package."""
        generated = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or "torchinductor_"
        if file.startswith(("<", _OURS)) or "site-packages" in file or generated in file:
            return False
        return not file.startswith((sys.base_prefix + os.sep, sys.prefix + os.sep)) or self.folder.startswith(
            sys.prefix
        )

    @classmethod
    def current(cls) -> ProgramWatch:
        """Return what watches this process; one that has noted nothing where none was started."""
        return next(iter(_STARTED), cls(os.getcwd()))

    def registers(self, frame: FrameType | None) -> bool:
        """Return whether a registration at a frame is not of PyTorch itself, which registers more when it is used."""
        while frame is not None:
            file = frame.f_code.co_filename
            if not file.startswith((_OURS, *_registering_files())):
                return not file.startswith(_torch_folder())
            frame = frame.f_back
        return True

    def start(self) -> None:
        """Watch from now on."""
        _STARTED.append(self)
        if "torch" in sys.modules:
            watch_torch(sys.modules["torch"], self)
        else:
            sys.meta_path.insert(0, _TorchFinder(self))
        sys.meta_path.append(_MissingModules(self))
        _watch_extensions(self)
        _watch_warnings(self)


@functools.cache
def _torch_folder() -> str:
    return os.path.dirname(str(sys.modules["torch"].__file__)) + os.sep


@functools.cache
def _registering_files() -> tuple[str, ...]:
    """Return the parts of PyTorch that register what others ask for."""
    folder = _torch_folder()
    return (folder + "library.py", folder + "_library" + os.sep, "<", functools.__file__, contextlib.__file__)


def leave_event(path: str, event: Event) -> None:
    """Append an event to the file that processes of one program share."""
    at = event.at
    row = [event.kind, event.subject, event.detail, *((at.file, at.line, at.function, at.text) if at else ())]
    with suppress(OSError), open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def left_events(path: str) -> tuple[Event, ...]:
    """Return the events that processes left in a file."""
    rows = []
    with suppress(OSError), open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return tuple(Event(row[0], row[1], row[2], Position(*row[3:]) if row[3:] else None) for row in rows)


def raised_of(error: BaseException) -> tuple[Raised, ...]:
    """Return an exception and what led to it, each once, without backtraces of C++."""
    return tuple(
        Raised(f"{type(raised).__module__}.{type(raised).__qualname__}", plain_text(raised))
        for raised in raw_chain(error, hidden=False)
    )


def plain_text(error: BaseException) -> str:
    """Return the message of an exception, without a backtrace of C++."""
    try:
        text = str(error)
    except Exception as broken:
        text = f"<its message raises {type(broken).__name__}>"
    return _BACKTRACE.sub("", text)[:_LONGEST].strip()


def raw_chain(error: BaseException, *, hidden: bool = True) -> Iterator[BaseException]:
    """Return an exception and all that led to it, with what `from None` hides or without."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ and not hidden else current.__context__)


def frames_of(error: BaseException, watch: ProgramWatch) -> tuple[tuple[Position, ...], tuple[str, ...]]:
    """Return the user's frames of the first exception of a chain that has some, and all functions on its stacks.

    The lines that Dynamo names as the user's code come after them, and then the line that raised inside.
    """
    found: tuple[Position, ...] = ()
    inner: tuple[Position, ...] = ()
    functions: list[str] = []
    for current in raw_chain(error):
        frames = list(traceback.walk_tb(current.__traceback__))
        users = tuple(
            position_of(frame.f_code.co_filename, line, frame.f_code.co_name)
            for frame, line in frames
            if watch.is_users(frame.f_code.co_filename)
        )
        functions += [f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_name}" for frame, _ in frames[-200:]]
        found, inner = found or users, users or inner
    traced = tuple(
        position_of(match[1], int(match[2]), match[3])
        for match in _TRACED.finditer(plain_text(error).rpartition("from user code:")[2])
        if "from user code:" in plain_text(error) and watch.is_users(match[1])
    )
    hidden = len(list(raw_chain(error))) > len(list(raw_chain(error, hidden=False)))
    last = tuple(frame for frame in inner[-1:] if hidden and frame not in found)
    return (*found, *traced, *last), tuple(functions)


# -- imports


class _MissingModules(importlib.abc.MetaPathFinder):
    """Asked last: a module that comes here cannot be found."""

    def __init__(self, watch: ProgramWatch) -> None:
        self.watch = watch

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        at = self.watch.position(sys._getframe(1))
        asked = _importer(sys._getframe(1))
        if at is not None and asked is not None and self.watch.is_users(asked):
            self.watch.note("missing module", name, f"No module named {name!r}", at)


def _importer(frame: FrameType | None) -> str | None:
    """Return the file whose import statement leads here."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<frozen importlib") and not file.startswith(_OURS):
            return file
        frame = frame.f_back
    return None


def _watch_extensions(watch: ProgramWatch) -> None:
    """Note extension modules that cannot be loaded."""
    loader = importlib.machinery.ExtensionFileLoader
    create = loader.create_module

    @functools.wraps(create)
    def create_module(self: Any, spec: ModuleSpec) -> ModuleType:
        try:
            return create(self, spec)
        except ImportError as error:
            watch.note("failed import", spec.name, plain_text(error))
            raise

    loader.create_module = create_module  # type: ignore[method-assign]


def _watch_warnings(watch: ProgramWatch) -> None:
    show = warnings.showwarning

    @functools.wraps(show)
    def showwarning(message: Any, category: type[Warning], *rest: Any, **options: Any) -> None:
        watch.note("warning", category.__name__, str(message))
        show(message, category, *rest, **options)

    warnings.showwarning = showwarning


class _TorchFinder(importlib.abc.MetaPathFinder):
    """Finds torch as the other finders do, and patches it once it is imported."""

    def __init__(self, watch: ProgramWatch) -> None:
        self.watch = watch

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            with suppress(Exception):
                watch_torch(module, self.watch)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


# -- PyTorch


def watch_torch(torch: Any, watch: ProgramWatch) -> None:
    """Patch the functions of `torch.library` and `torch.ops` that register, load and release."""
    import torch.library

    library = torch.library.Library
    _after(library, "define", lambda result, self, schema, *_, **__: watch.note("define", _named(self.ns, str(schema))))
    _after(library, "_destroy", lambda result, self: _note_released(watch, self._op_defs, self._op_impls))
    _after(torch.library, "_del_library", lambda result, *given: _note_released(watch, given[3], given[1]))
    _watch_impl(library, watch)
    _after(library, "fallback", functools.partial(_note_fallback, watch))
    _after(torch.library, "register_fake", lambda result, op, *_, **__: watch.note("register_fake", _op_text(op)))
    _after(
        torch.library, "register_autograd", lambda result, op, *_, **__: watch.note("register_autograd", _op_text(op))
    )
    _watch_custom_op(torch, watch)
    watch_formulas(torch, watch)
    _watch_libraries(torch, watch)
    _watch_modes(torch, watch)
    logging.getLogger("torch.export").addFilter(functools.partial(_note_log, watch))


def _note_log(watch: ProgramWatch, record: logging.LogRecord) -> bool:
    """Note what torch.export logs: load() says there alone which operator it does not find."""
    if record.levelno >= logging.WARNING:
        text = record.getMessage() + (logging.Formatter().formatException(record.exc_info) if record.exc_info else "")
        watch.note("warning", record.name, text)
    return True


def _after(owner: Any, name: str, then: Callable[..., None]) -> None:
    """Call something after a function, with its result and arguments; what it raises stays here."""
    function = getattr(owner, name, None)
    if function is None:
        return

    @functools.wraps(function)
    def patched(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        with suppress(Exception):
            then(result, *args, **kwargs)
        return result

    setattr(owner, name, patched)


def _named(namespace: str, schema: str) -> str:
    name = schema.partition("(")[0].strip()
    return name if "::" in name else f"{namespace}::{name}"


def _op_text(op: Any) -> str:
    if isinstance(op, str):
        return op
    return str(getattr(op, "_qualname", "") or getattr(op, "_name", "") or op)


def _note_fallback(watch: ProgramWatch, result: Any, library: Any, fn: Any, key: str = "", **_: Any) -> None:
    key = str(key or library.dispatch_key)
    watch.note("fallback", key)
    note_function(watch, "_", f"fallback for {key}", fn)


def _note_released(watch: ProgramWatch, defs: set[str], impls: set[str]) -> None:
    """Note what went with a Library; nothing is left to go when it was destroyed before."""
    for name in sorted(defs):
        watch.note("collected", name, "def")
    for name in sorted(impls):
        parts = name.split("/")
        watch.note("collected", f"{parts[0]}::{parts[1]}" if len(parts) > 1 else name, parts[-1])
    defs.clear()
    impls.clear()


def _watch_impl(library: Any, watch: ProgramWatch) -> None:
    """Note each kernel, and keep the arguments of its first calls."""
    impl = library.impl

    @functools.wraps(impl)
    def patched(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **kwargs: Any) -> Any:
        name = op_name if isinstance(op_name, str) else getattr(op_name, "_name", str(op_name))
        full = name if "::" in name else f"{self.ns}::{name}"
        key = dispatch_key or self.dispatch_key or "CompositeImplicitAutograd"
        result = impl(self, op_name, _keeping(watch, full, key, fn, kwargs), dispatch_key, **kwargs)
        watch.note("impl", full, key)
        note_function(watch, full, key, fn, keyset=bool(kwargs.get("with_keyset")))
        return result

    library.impl = patched


def _keeping(watch: ProgramWatch, operator: str, key: str, fn: Any, options: dict[str, Any]) -> Any:
    """Return a kernel that keeps copies of the arguments of its first calls; others as they are."""
    ours = getattr(getattr(fn, "__code__", None), "co_filename", "")
    if (
        not ours
        or not watch.is_users(ours)
        or options.get("with_keyset")
        or key == "Meta"
        or key.startswith("Autograd")
    ):
        return fn

    @functools.wraps(fn)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return watched_call(watch, operator, fn, args, kwargs)

    return kernel


def watched_call(watch: ProgramWatch, operator: str, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a kernel, keep copies of its first arguments, and note which of them it writes without saying so."""
    before = keep_call(watch, operator, args, kwargs)
    result = fn(*args, **kwargs)
    with suppress(Exception):
        note_result(watch, operator, result)
    if before is not None:
        with suppress(Exception):
            _note_writes(watch, operator, before, (args, kwargs))
        with suppress(Exception):
            _note_aliases(watch, operator, args, result)
    return result


def _note_writes(watch: ProgramWatch, operator: str, before: Any, after: Any) -> None:
    schema = schema_of(operator)
    names = [argument.name for argument in schema.arguments]
    declared = {argument.name for argument in schema.arguments if argument.is_write}
    pairs = [*zip(names, before[0], after[0], strict=False)]
    pairs += [(name, before[1][name], value) for name, value in after[1].items()]
    written = [name for name, old, new in pairs if name not in declared and not _same(old, new)]
    if written:
        watch.note("wrote undeclared", operator, ", ".join(written))


def _note_aliases(watch: ProgramWatch, operator: str, args: tuple[Any, ...], result: Any) -> None:
    """Note results that share the storage of an argument, where the schema says that they are new."""
    import torch

    schema = schema_of(operator)
    results = result if isinstance(result, tuple | list) else (result,)
    storages = {
        value.untyped_storage().data_ptr()
        for value, returned in zip(results, schema.returns, strict=False)
        if isinstance(value, torch.Tensor) and returned.alias_info is None and value.numel()
    }
    shared = [
        argument.name
        for argument, value in zip(schema.arguments, args, strict=False)
        if isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() in storages
    ]
    if shared:
        watch.note("returned alias", operator, ", ".join(shared))


def _same(old: Any, new: Any) -> bool:
    import torch

    if isinstance(old, list | tuple):
        return all(_same(*pair) for pair in zip(old, new, strict=False))
    if not isinstance(old, torch.Tensor):
        return True
    return bool(old.shape == new.shape and torch.equal(old.nan_to_num(), new.detach().nan_to_num()))


def keep_call(watch: ProgramWatch, operator: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Keep copies of the arguments of an operator's first calls, where they are small, and return them."""
    if (state := _state_of_call(args)) and (operator, state) not in watch.states:
        watch.states.add((operator, state))
        watch.note("called", operator, state)
    calls = watch.calls.setdefault(operator, [])
    if len(calls) >= _KEPT_CALLS:
        return None
    with suppress(Exception):
        calls.append(copy_of((args, kwargs)))
        return calls[-1]
    return None


def _state_of_call(args: tuple[Any, ...]) -> str:
    """Return the modes that a call is made under, in words, with the dtypes of its tensors where they differ."""
    import torch
    from torch.utils._pytree import tree_leaves

    states = [f"autocast {device}" for device in ("cpu", "cuda", "xpu") if torch.is_autocast_enabled(device)]
    if torch.is_inference_mode_enabled():
        states.append("inference mode")
    dtypes = dict.fromkeys(str(a.dtype) for a in args if isinstance(a, torch.Tensor) and a.is_floating_point())
    mixed = f"; {' and '.join(dtypes)}" if states and len(dtypes) > 1 else ""
    if any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in tree_leaves(args)):
        states.append("gradients")
    return ", ".join(states) + mixed


def copy_of(value: Any) -> Any:
    """Return a value with its tensors copied.

    Raises:
        ValueError: a tensor is large, or is none of plain numbers.
    """
    import torch
    from torch.utils._pytree import tree_map_only

    def copied(tensor: Any) -> Any:
        if tensor.numel() > _KEPT_NUMBERS or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise ValueError
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)

    return tree_map_only(torch.Tensor, copied, value)


def _watch_custom_op(torch: Any, watch: ProgramWatch) -> None:
    """Note each custom operator, and keep the arguments of the first calls of its kernels."""
    definition = torch.library.CustomOpDef
    register = definition.register_kernel

    @functools.wraps(register)
    def register_kernel(self: Any, device_types: Any, fn: Any = None, /) -> Any:
        def registered(function: Any) -> Any:
            @functools.wraps(function)
            def kernel(*args: Any, **named: Any) -> Any:
                return watched_call(watch, self._qualname, function, args, named)

            register(self, device_types, kernel)
            return function

        return registered if fn is None else registered(fn)

    definition.register_kernel = register_kernel

    def made(result: None, self: Any, *_: Any, **__: Any) -> None:
        watch.note("custom_op", self._qualname, self._schema)
        note_function(watch, self._qualname, "custom_op", self._init_fn)

    _after(definition, "__init__", made)


def _watch_libraries(torch: Any, watch: ProgramWatch) -> None:
    ops = type(torch.ops)
    load = ops.load_library

    @functools.wraps(load)
    def load_library(self: Any, path: Any) -> Any:
        try:
            result = load(self, path)
        except Exception as error:
            reason = error.__cause__ or error
            watch.note("failed library", str(path), plain_text(reason))
            raise
        watch.note("loaded library", str(path))
        return result

    ops.load_library = load_library


def _watch_modes(torch: Any, watch: ProgramWatch) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    def entered(result: Any, self: Any) -> None:
        if not type(self).__module__.startswith("torch"):
            base = "TorchDispatchMode" if isinstance(self, TorchDispatchMode) else "TorchFunctionMode"
            watch.note("entered mode", type(self).__name__, base)

    _after(torch.overrides.TorchFunctionMode, "__enter__", entered)
    _after(TorchDispatchMode, "__enter__", entered)
    _after(torch, "compile", lambda result, *_, **__: watch.note("compiled", "torch.compile"))


def events_in_children(watch: ProgramWatch, path: str) -> Iterator[Event]:
    """Return the events of processes that the program started, without its own."""
    own = list(watch.events)
    for event in left_events(path):
        if event in own:
            own.remove(event)
        else:
            yield event


def innermost(error: BaseException) -> TracebackType | None:
    """Return the last frame of a traceback."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at
