"""Read the user's frames of an exception: override handlers, the call in a handler, a lost class."""

from __future__ import annotations

import inspect
import linecache
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import reduce
from traceback import walk_tb
from types import FrameType
from typing import Any, Final

from dispatchlab.live.bridge.torch import torch
from dispatchlab.live.failure.program_watch import ProgramWatch, position_of, raw_chain
from dispatchlab.model.failure import Event, operator_name

_PROTOCOLS: Final = ("__torch_function__", "__torch_dispatch__")
_EXPECTED: Final = re.compile(r"(?:isinstance|type)\(([\w.]+)(?:, |\) (?:is|==|is not|!=) )([\w.]+)")
_OPERATION: Final = re.compile(
    r"^\w+ = (?:([\w.]+) [-+*/@%&|^]{1,2} ([\w.]+)|torch\.(?:\w+\.)*(\w+)\(([\w.]+)\b[^()]*\)"
    r"|([\w.]+)\.(?!as_subclass)(\w+)\([^()]*\))$"
)
_FLATTENING: Final = ("__tensor_flatten__", "__tensor_unflatten__")


def events_of_frames(error: BaseException, watch: ProgramWatch) -> tuple[Event, ...]:
    """Return the facts from the user's frames of an exception and of its causes."""
    found: dict[tuple[str, str, str], Event] = {}
    for raised in raw_chain(error, hidden=False):
        stack = [frame for frame, _ in walk_tb(raised.__traceback__)]
        frames = [frame for frame in stack if watch.is_users(frame.f_code.co_filename)]
        for frame in (*frames[:2], *frames[-3:], *filter(_is_handler_of_package, stack[-1:])):
            with suppress(Exception):
                for event in _events(frame, watch, error):
                    found.setdefault((event.kind, event.subject, event.detail), event)
        with suppress(Exception):
            for event in _lost_classes(error, frames):
                found.setdefault((event.kind, event.subject, ""), event)
    if called := _called_operator(error):
        found["calling", called, ""] = Event("calling", called)
    return tuple(found.values())


def _called_operator(error: BaseException) -> str:
    """Return the operator that PyTorch was asked to call, to check or to register first; empty if there is none."""
    for frame, _ in walk_tb(error.__traceback__):
        argument = {"__call__": "self", "opcheck": "op"}.get(frame.f_code.co_name, "qualname")
        given = frame.f_locals.get(argument)
        names = (getattr(given, name, "") for name in ("_qualname", "_name", "_qualified_op_name"))
        name = str(given if isinstance(given, str) else next(filter(None, names), ""))
        if "::" in name and frame.f_globals.get("__name__", "").partition(".")[0] == "torch":
            return operator_name(name)
    return ""


def _events(frame: FrameType, watch: ProgramWatch, error: BaseException) -> Iterator[Event]:
    for value in (*_named_classes(error, watch), *frame.f_globals.values(), *frame.f_locals.values()):
        if isinstance(value, type) and value.__module__.partition(".")[0] != "torch":
            yield from _handlers(value, watch)
    if frame.f_code.co_name in _PROTOCOLS and "func" in frame.f_locals:
        at = position_of(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        yield Event("handling", _function_name(frame.f_locals["func"]), frame.f_code.co_name, at)
    if isinstance(error, AttributeError):
        owner = type(error.obj)
        if issubclass(owner, torch().Tensor) and owner.__module__.partition(".")[0] != "torch":
            yield Event("lost attribute", owner.__name__, str(error.name))


def _named_classes(error: BaseException, watch: ProgramWatch) -> list[Any]:
    """Return what the message, and the modes that the program entered, name in any module."""
    named = set(re.findall(r"\w+", str(error)))
    named.update(event.subject for event in watch.events if event.kind == "entered mode")
    spaces = [getattr(module, "__dict__", {}) for module in [*sys.modules.values()]]
    return [names[name] for names in spaces for name in sorted(named & names.keys())]


def _is_handler_of_package(frame: FrameType) -> bool:
    """Return whether a frame is in a handler that is not PyTorch's own."""
    package = frame.f_globals.get("__name__", "").partition(".")[0]
    return frame.f_code.co_name in _PROTOCOLS and package != "torch"


def _handlers(kind: type, watch: ProgramWatch) -> Iterator[Event]:
    """Return the handlers of a class, and its other attributes that compile uses."""
    for protocol in _PROTOCOLS:
        function = getattr(kind, protocol, None)
        code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None) if function else None
        if code is None or not watch.is_users(code.co_filename):
            continue
        words = [protocol]
        if issubclass(kind, torch().Tensor):
            words += ["tensor", *(name for name in _FLATTENING if hasattr(kind, name))]
        text = inspect.getsource(code)
        if "**kwargs" in text and re.findall(r"(?<!\*)\bkwargs\b.{5}", text) == ["kwargs=None"]:
            words += ["unguarded"]
        last = [line.strip() for line in text.splitlines() if line.strip().startswith("return ")]
        at = position_of(code.co_filename, code.co_firstlineno, kind.__name__)
        yield Event("handler", kind.__name__, " ".join([*words, *last[-1:]]), at)


def _function_name(function: Any) -> str:
    name = getattr(function, "_name", "") or getattr(function, "_qualified_op_name", "")
    if name:
        return str(name)
    from torch.overrides import resolve_name

    return str(resolve_name(function) or getattr(function, "__name__", function))


def _lost_classes(error: BaseException, frames: Sequence[FrameType]) -> Iterator[Event]:
    """Return the tensors that an assertion, or an attribute, expects to have a subclass, but do not have it."""
    tensor = torch().Tensor
    if isinstance(error, AttributeError) and type(error.obj) is tensor:
        for made, scope in _assigned(frames, error.obj):
            for left, right, function, first, own, method in _OPERATION.findall(made):
                names = (left, right, first, own) if hasattr(tensor, function or method or "add") else ()
                kinds = [
                    type(value) for value in (_value(name, scope) for name in names) if hasattr(value, str(error.name))
                ]
                yield from (Event("lost subclass", kind.__name__, made) for kind in filter(_has_handler, kinds))
    line = linecache.getline(frames[-1].f_code.co_filename, frames[-1].f_lineno)
    for names in _EXPECTED.findall(line) if isinstance(error, AssertionError) else ():
        given, wanted = (_value(name, {**frames[-1].f_globals, **frames[-1].f_locals}) for name in names)
        if _has_handler(wanted) and isinstance(given, tensor) and not isinstance(given, wanted):
            yield Event("lost subclass", wanted.__name__, next((made for made, _ in _assigned(frames, given)), ""))


def _has_handler(kind: Any) -> bool:
    """Return whether a value is a class of tensors with a handler that is not PyTorch's."""
    bases = kind.__mro__ if isinstance(kind, type) and issubclass(kind, torch().Tensor) else ()
    own = [vars(base) for base in bases if base.__module__.partition(".")[0] != "torch"]
    return any(protocol in names for names in own for protocol in _PROTOCOLS)


def _assigned(frames: Sequence[FrameType], value: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the last line of each frame that assigned a value to a name, and the variables, the innermost first."""
    for frame in reversed(frames):
        scope = {**frame.f_globals, **frame.f_locals}
        numbers = range(frame.f_lineno - 1, frame.f_code.co_firstlineno - 1, -1)
        lines = (linecache.getline(frame.f_code.co_filename, number).partition("  #")[0].strip() for number in numbers)
        assigned = (line for line in lines if " = " in line and scope.get(line.partition(" = ")[0]) is value)
        yield from ((line, scope) for line in [*assigned][:1])


def _value(name: str, scope: dict[str, Any]) -> Any:
    """Return the value of a name or an attribute, without repeating calls."""
    first, *rest = name.split(".")
    return reduce(lambda value, attribute: getattr(value, attribute, None), rest, scope.get(first))
