"""Read the user's frames of an exception: override handlers, the call in a handler, a lost class."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from traceback import walk_tb
from types import FrameType
from typing import Any, Final

from dispatchlab.live.bridge.torch import torch
from dispatchlab.live.failure.program_watch import ProgramWatch, position_of, raw_chain
from dispatchlab.model.failure import Event, operator_name

_PROTOCOLS: Final = ("__torch_function__", "__torch_dispatch__")
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
    if isinstance(error, AssertionError):
        yield from _lost_classes(frame)
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


def _lost_classes(frame: FrameType) -> Iterator[Event]:
    """Return the tensors that an assertion expects to have a subclass, but do not have it."""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    scope = {**frame.f_globals, **frame.f_locals}
    for node in ast.walk(ast.parse(line)):
        match node:
            case ast.Call(func=ast.Name(id="isinstance"), args=[value, kind]):
                pass
            case ast.Compare(left=ast.Call(func=ast.Name(id="type"), args=[value]), comparators=[kind]):
                pass
            case _:
                continue
        wanted, given = (_value(part, scope) for part in (kind, value))
        subclass = isinstance(wanted, type) and issubclass(wanted, torch().Tensor)
        if subclass and isinstance(given, torch().Tensor) and not isinstance(given, wanted):
            yield Event("lost subclass", wanted.__name__, f"{ast.unparse(value)} = {_made_by(frame, value)}")


def _value(part: ast.expr, scope: dict[str, Any]) -> Any:
    """Return the value of a name or an attribute, without repeating calls."""
    if isinstance(part, ast.Name):
        return scope.get(part.id)
    return getattr(_value(part.value, scope), part.attr, None) if isinstance(part, ast.Attribute) else None


def _made_by(frame: FrameType, value: ast.expr) -> str:
    """Return the last expression that was assigned to a name before the failing line."""
    if isinstance(value, ast.Name):
        for number in range(frame.f_lineno - 1, frame.f_code.co_firstlineno - 1, -1):
            name, equals, made = linecache.getline(frame.f_code.co_filename, number).strip().partition(" = ")
            if equals and name == value.id:
                return made
    return "..."
