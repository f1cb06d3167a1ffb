"""Observe calls of operators without a mode, by callbacks of PyTorch's `RecordFunction`, as its profiler does."""

from __future__ import annotations

import ctypes
import platform
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple, TypeAlias

from dispatchlab.live.bridge.running_keys import raw_bits
from dispatchlab.live.bridge.torch import bindings, torch

# Note [Callbacks of RecordFunction]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# `Dispatcher::call` runs the callbacks of the thread around each call: before the kernel, with the arguments, and after
# it, also if the kernel raises. They change no key set and no mode, so the call is the call of a plain run. A
# redispatch runs no callbacks.
#
# `start` returns a `unique_ptr` through memory of its caller. On x86-64 its address is the first argument; on other
# processors ctypes cannot see it. Calls with known tensors show where a RecordFunction has the arguments, and a tensor
# its keys. PyTorch keeps copies of the callbacks for other threads, so they stay alive.
#
# If a handler of Python has raised, its exception is set while `end` runs, and Python refuses a function that returns
# then. So `end` takes the exception out, and the frame that has made the call gets it back, in place of the SystemError
# for the missing exception. No exception leaves a callback: Ctrl-C is raised at the next line of the program.

Value: TypeAlias = tuple[int, int]
"""The payload and the tag of an IValue; the tag of None is 0."""

_TENSOR = 1
_NEAR = 1 << 16  # arguments of a call from C++ are in the stack frame of its RecordFunction


class _Callback(ctypes.Structure):
    """`at::RecordFunctionCallback`."""

    _fields_ = (
        ("start", ctypes.c_void_p),
        ("end", ctypes.c_void_p),
        ("sampling_probability", ctypes.c_double),
        ("scopes", ctypes.c_char * 10),
        ("needs", ctypes.c_char * 3),
    )


_START = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_END = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_callbacks: list[object] = []
_codes: set[CodeType] = set()
_take = ctypes.PyDLL(None).PyErr_Fetch
_taken = (ctypes.c_void_p * 3)()
_TAKEN_AT = tuple(ctypes.byref(_taken, ctypes.sizeof(ctypes.c_void_p) * at) for at in range(3))


class _Layout(NamedTuple):
    """The bytes to the arguments of a RecordFunction, to the keys of a tensor, to the elements of a list; its tag."""

    inputs: int
    keys: int
    elements: int
    list_tag: int


class CallObserver:
    """Calls functions around each call of an operator in this thread, between `start` and `stop`.

    Args:
        began: gets the name, the overload, and a function that returns the last arguments, as many as wanted.
        ended: is called when the latest call that is not over ends, with `raised`.
        failed: gets the exception of the calls that raised, when Python has it; None if C++ has caught it.
    """

    def __init__(
        self,
        began: Callable[[str, str, Callable[[int], list[Value]]], None],
        ended: Callable[..., None],
        failed: Callable[[BaseException | None], None],
    ) -> None:
        self._began, self._ended, self._failed = began, ended, failed
        self._unwinding: list[int] = []
        self._owed: Any = None
        self._cancel: Callable[[], None] | None = None
        self._handle: int | None = None
        self._thread = 0
        self._interrupt: Any = None

    def start(self) -> bool:
        """Start; return False if calls cannot be observed here. See Note [Callbacks of RecordFunction]."""
        layout, self._thread = _layout(), threading.get_ident()
        if layout is None:
            return False
        library = _library()

        def began(function: int) -> None:
            def last_values(count: int) -> list[Value]:
                start, length = _words(function + layout.inputs, 2)
                words = _words(start + 16 * (length - count), 2 * count)
                return [(words[at], words[at + 1] & 0xFFFFFFFF) for at in range(0, 2 * count, 2)]

            if threading.get_ident() == self._thread and self._handle is not None:
                self._caught()
                self._unwinding.append(library.unwinding())
                self._began(library.name(function).decode(), library.overload(function).decode(), last_values)

        def ended(_: int) -> None:
            if threading.get_ident() != self._thread or self._handle is None or not self._unwinding:
                return
            raised = library.unwinding() > self._unwinding.pop()
            if not raised:
                self._caught()
            self._owed = _exception_taken() or self._owed
            frame = _calling_frame(sys._getframe())
            if raised and self._cancel is None and frame is not None:
                self._cancel = _at_next_event(frame, lambda error: self._raised(frame, error))
            self._ended(raised=raised)

        self._handle = _added(began, ended)
        if threading.current_thread() is threading.main_thread() and callable(signal.getsignal(signal.SIGINT)):
            self._interrupt = signal.signal(signal.SIGINT, self._interrupted)
        return True

    def keys(self, value: Value) -> int:
        """Return the bits of the keys of the tensors in an argument."""
        (payload, tag), layout = value, _layout()
        if layout is None or tag not in (_TENSOR, layout.list_tag):
            return 0
        if tag == _TENSOR:
            return int(_words(payload + layout.keys, 1)[0])
        first, end = _words(payload + layout.elements, 2)
        found, tags = 0, [(at, _words(at, 2)[1] & 0xFFFFFFFF) for at in range(first, end, 16)]
        for at, each in tags:
            found |= self.keys((_words(at, 1)[0], _TENSOR)) if each == _TENSOR else 0
        return found

    def stop(self) -> None:
        """Stop; a second call is harmless, and another thread cannot remove the callbacks."""
        handle, self._handle = self._handle, None
        if handle is None or threading.get_ident() != self._thread:
            return
        _library().remove(handle)
        if self._interrupt is not None and signal.getsignal(signal.SIGINT) == self._interrupted:
            signal.signal(signal.SIGINT, self._interrupt)

    def _caught(self) -> None:
        if self._cancel is not None:
            self._cancel()
            self._cancel = self._owed = None
            self._failed(None)

    def _raised(self, frame: FrameType, error: BaseException | None) -> None:
        """Report the exception that a frame has got, and raise the exception that was taken out."""
        owed, self._cancel, self._owed = self._owed, None, None
        if owed is None or not isinstance(error, SystemError):
            self._failed(error)
            return
        self._failed(owed[0])
        raise owed[0].with_traceback(TracebackType(owed[1], frame, frame.f_lasti, frame.f_lineno))

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        program, act = _calling_frame(frame), self._interrupt
        if program is None:
            act(number, frame)
        else:
            _at_next_event(program, lambda _: act(number, program))


def _at_next_event(frame: FrameType, act: Callable[[BaseException | None], object]) -> Callable[[], None]:
    """Call a function at the next line or exception of a frame, with the exception; return what cancels this."""
    before, kept = sys.gettrace(), frame.f_trace

    def cancel() -> None:
        if frame.f_trace is tracer:
            frame.f_trace = kept
            sys.settrace(before)

    def tracer(_: FrameType, event: str, value: Any) -> None:
        if frame.f_trace is tracer:
            cancel()
            act(value[1] if event == "exception" else None)

    frame.f_trace = tracer
    sys.settrace(lambda *_: None)
    return cancel


def _calling_frame(frame: FrameType | None) -> FrameType | None:
    """Return the frame that made the call whose callback runs; None outside of a callback."""
    while frame is not None and frame.f_code not in _codes:
        frame = frame.f_back
    return None if frame is None else frame.f_back


def _exception_taken() -> tuple[BaseException, TracebackType | None] | None:
    """Return the exception that a callback has taken out, and its traceback; None without one."""
    if not _taken[0]:
        return None
    ctypes.pythonapi.PyErr_NormalizeException(*_TAKEN_AT)
    values: list[Any] = [ctypes.cast(each, ctypes.py_object).value if each else None for each in _taken]
    for at, each in enumerate(_taken):
        ctypes.pythonapi.Py_DecRef(ctypes.c_void_p(each))
        _taken[at] = None
    return values[1], values[2]


def _words(address: int, count: int) -> Any:
    return (ctypes.c_uint64 * count).from_address(address)


def _added(began: Callable[[int], None], ended: Callable[[int], None]) -> int:
    """Add callbacks to this thread, and return their handle."""

    def start(result: int, function: int) -> int:
        _words(result, 1)[0] = 0
        began(function)
        return result

    def end(function: int, _: int) -> None:
        _take(*_TAKEN_AT)  # before all else
        ended(function)

    functions = _START(start), _END(end)
    _callbacks.extend(functions)
    _codes.update((start.__code__, end.__code__))
    addresses = (ctypes.cast(each, ctypes.c_void_p) for each in functions)
    return int(_library().add(_Callback(*addresses, 1.0, b"\1", b"\1")))


class _Library:
    """PyTorch's functions; AttributeError or OSError on a platform or in a version that has others."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(f"{torch().__path__[0]}/lib/libtorch_cpu.so")
        self.name = self._function("_ZNK2at14RecordFunction4nameEv", ctypes.c_char_p, ctypes.c_void_p)
        self.overload = self._function("_ZNK2at14RecordFunction13overload_nameEv", ctypes.c_char_p, ctypes.c_void_p)
        self.count = self._function("_ZNK2at14RecordFunction10num_inputsEv", ctypes.c_size_t, ctypes.c_void_p)
        add = "_ZN2at22addThreadLocalCallbackENS_22RecordFunctionCallbackE"
        self.add = self._function(add, ctypes.c_uint64, _Callback)
        self.remove = self._function("_ZN2at14removeCallbackEm", None, ctypes.c_uint64)
        self.unwinding = self._function("_ZSt19uncaught_exceptionsv", ctypes.c_int)

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        found = getattr(self._library, name)
        found.restype, found.argtypes = result, arguments
        return found


@cache
def _library() -> _Library:
    return _Library()


@cache
def _layout() -> _Layout | None:
    """Find the layout by calls with known tensors; None if calls cannot be observed."""
    try:
        if sys.platform != "linux" or platform.machine() != "x86_64":
            return None
        library, c = _library(), bindings()
    except (AttributeError, OSError):
        return None
    inputs, lists = list[int](), list[tuple[int, int]]()

    def find_inputs(function: int) -> None:
        count, words = library.count(function), _words(function, 64)
        for at in range(63):
            if words[at + 1] == count and abs(words[at] - function) < _NEAR and not words[at] % 8:
                payload, tag = _words(words[at], 2)
                inputs.extend([8 * at] * (payload == x._cdata and tag & 0xFFFFFFFF == _TENSOR))

    def find_list(function: int) -> None:
        payload, tag = _words(_words(function + inputs[0], 1)[0], 2)
        words = _words(payload, 8)
        for at in range(2, 7):
            if words[at + 1] - words[at] == 32 and _words(words[at], 1)[0] == x._cdata:
                lists.append((8 * at, tag & 0xFFFFFFFF))

    with ExitStack() as plain:  # a program may have modes
        plain.enter_context(c.DisableTorchFunction())
        plain.enter_context(c._DisableTorchDispatch())
        above = c._dispatch_keyset_full() - c._dispatch_keyset_full_after(c.DispatchKey.ADInplaceOrView)
        plain.enter_context(c._ExcludeDispatchKeyGuard(above))
        x, y = torch().empty((1,), device="cpu"), torch().empty((1,), device="meta")
        for look, call in ((find_inputs, lambda: torch().equal(x, x)), (find_list, lambda: torch().cat([x, x]))):
            handle = _added(look, lambda _: None)
            call()  # type: ignore[no-untyped-call]
            library.remove(handle)
    bits = [(each, raw_bits(c._dispatch_keys(each))) for each in (x, y)]
    keys = [8 * at for at in range(2, 48) if all(_words(each._cdata, 48)[at] == known for each, known in bits)]
    return _Layout(inputs[0], keys[0], *lists[0]) if inputs and lists and keys else None
