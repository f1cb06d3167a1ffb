"""`__torch_function__`, `__torch_dispatch__` and modes: conditions that the rows cannot express."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dispatchlab.model.failure import Event, Failure
from dispatchlab.questions.why.cause import looks_for, saw
from dispatchlab.questions.why.facts import Words
from dispatchlab.questions.why.wording import listed


def _handler(failure: Failure, name: str, protocol: str = "") -> Event | None:
    """Return the handler of a class that was found."""
    found = [e for e in failure.of("handler") if e.subject == name and e.detail.startswith(protocol)]
    return found[-1] if found else None


def _at(event: Event | None) -> str:
    return f" ({event.at})" if event is not None and event.at is not None else ""


@looks_for("WHY801")
def function_not_handled(words: Words) -> Mapping[str, object] | None:
    """Recognise a call whose handlers all return NotImplemented."""
    failure = words.failure
    found = failure.search(
        r"Multiple dispatch failed for '([\w.]+)'; all (__torch_(?:function|dispatch)__) handlers returned NotImpl|"
        r"no implementation found for '([\w.]+)' on types that implement (__torch_function__)"
    )
    operands = failure.search(r"TypeError: unsupported operand type\(s\) for ([^:]+): '(\w+)' and '(\w+)'")
    if found is not None:
        function, protocol = (found[1] or found[3]).removeprefix("torch._ops."), found[2] or found[4]
        types = re.findall(r"(?:<class '|mode object <)([\w.<>]+)(?:'>| object)", failure.text.partition(found[0])[2])
        names = [name.rpartition(".")[2] for name in dict.fromkeys(types)] or ["the class"]
        event = _handler(failure, names[0], protocol)
    else:
        names = [name for name in operands.groups()[1:] if _handler(failure, name)] if operands else []
        event = _handler(failure, names[0]) if names else None
        if event is None or operands is None:
            return None
        protocol = event.detail.partition(" ")[0]
        function = f"the operator {operands[1]}" + (f" of {listed(names)}" if len(names) == 2 else "")
    dispatched = protocol == "__torch_dispatch__"
    example = function if "." in function else "aten.add.Tensor" if dispatched else "torch.add"
    return saw(
        case="not dispatched" if dispatched else "not handled",
        name=names[0],
        protocol=protocol,
        at=_at(event),
        function=function,
        example=example,
        names=listed(names),
        mode=names[0] in words.entered_modes or failure.search("mode object <"),
    )


@looks_for("WHY802")
def lost_subclass(words: Words) -> Mapping[str, object]:
    """Find the handler of a class that was lost."""
    lost = next(iter(words.failure.of("lost subclass")), None)
    handler = _handler(words.failure, lost.subject, "__torch_dispatch__") if lost else None
    line = handler.detail.partition("return ")[2] if handler else ""
    return saw(lost_handler=handler, lost_at=handler.at if handler else "", lost_return=line)


@looks_for("WHY803")
def handler_recursion(words: Words) -> Mapping[str, object] | None:
    """Recognise a __torch_function__ or __torch_dispatch__ that calls itself."""
    failure = words.failure
    functions = [frame.function for frame in failure.frames]
    names = ("__repr__", "__torch_dispatch__", "__torch_function__")
    handler = next((name for name in names if functions.count(name) > 20), None)
    if "RecursionError" not in failure.kinds or handler is None:
        return None
    frames = [frame for frame in failure.frames if frame.function == handler]
    frame = max(frames, key=lambda f: sum(f.line == other.line for other in frames))
    own = next((e for e in failure.of("handler") if e.detail.startswith(f"{handler} tensor")), None)
    name = own.subject if own else "subclass"
    words["cls"] = name
    kind = "super"
    if handler == "__repr__":
        kind = "repr"
    elif len(failure.of("entered mode")) > 5:
        kind = "mode"
    elif re.search(r"print\(|\{args|str\(|repr\(|log\w*\.", frame.text) and "func(*" not in frame.text:
        kind = "print"
    elif "func" not in frame.text and "super()" not in frame.text:
        kind = "inside"
    elif handler == "__torch_dispatch__" and words.holding:
        kind = "wrapper"
    guard = "_DisableTorchDispatch" if handler == "__torch_dispatch__" else "DisableTorchFunctionSubclass"
    return saw(case=kind, handler=handler, frame=frame, text=frame.text, name=name, inner=words.holding, guard=guard)
