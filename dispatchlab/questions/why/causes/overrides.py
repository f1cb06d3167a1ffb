"""`__torch_function__`, `__torch_dispatch__` and modes: what the rows cannot see in the message."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dispatchlab.model.failure import Event, Failure, operator_name
from dispatchlab.questions.why.cause import looks_for, saw
from dispatchlab.questions.why.facts import Words
from dispatchlab.questions.why.wording import listed


def _handler(failure: Failure, name: str, protocol: str = "") -> Event | None:
    """Return the handler of a class, as its definition was found."""
    found = [e for e in failure.of("handler") if e.subject == name and e.detail.startswith(protocol)]
    return found[-1] if found else None


def _at(event: Event | None) -> str:
    return f" ({event.at})" if event is not None and event.at is not None else ""


def _wrapped(failure: Failure, name: str) -> str:
    """Return the attribute in which a class keeps its tensor; empty when there seems to be none."""
    body = failure.source.partition(f"class {name}(")[2].partition("\nclass ")[0]
    found = re.search(r"\b(?:self|t|r|out)\.(\w+) = \w+(?: *#.*)?$", body, re.MULTILINE)
    return found[1] if found else ""


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
        types = re.findall(r"<class '([\w.<>]+)'>", failure.text.partition(found[0])[2])
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
    )


@looks_for("WHY802")
def lost_subclass(words: Words) -> Mapping[str, object] | None:
    """Recognise results of a tensor subclass that are plain tensors: Parameter, deepcopy, an assertion."""
    failure = words.failure
    found = failure.search(r"Creating a Parameter from an instance of type (\w+) requires that detach\(\) returns an")
    copied = failure.search(r"default implementation of __deepcopy__\(\) for (wrapper subclasses|\w+) only works")
    lost = next(iter(failure.of("lost subclass")), None)
    if found is None and copied is None and lost is None:
        return None
    handlers = [e for e in failure.of("handler") if e.detail.startswith("__torch_dispatch__ tensor")]
    name = found[1] if found else lost.subject if lost else handlers[-1].subject if handlers else "the subclass"
    event = _handler(failure, name, "__torch_dispatch__")
    what = "aten.clone, so copy.deepcopy loses the class"
    if found is not None:
        what = f"aten.detach, so Parameter({name}(...)) loses the class"
    elif lost is not None:
        what = f"what the program made with `{lost.detail}`, which lost the class"
    line = event.detail.partition("return ")[2] if event else ""
    returns = f": `return {line}`" if line else ""
    return saw(case="lost wrapper" if event else "lost class", name=name, at=_at(event), what=what, returns=returns)


@looks_for("WHY803")
def handler_recursion(words: Words) -> Mapping[str, object] | None:
    """Recognise __torch_function__ or __torch_dispatch__ that leads back to itself."""
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
    inner = _wrapped(failure, name)
    kind = "super"
    if handler == "__repr__":
        kind = "repr"
    elif len(failure.of("entered mode")) > 5:
        kind = "mode"
    elif re.search(r"print\(|\{args|str\(|repr\(|log\w*\.", frame.text) and "func(*" not in frame.text:
        kind = "print"
    elif "func" not in frame.text and "super()" not in frame.text:
        kind = "inside"
    elif handler == "__torch_dispatch__" and inner:
        kind = "wrapper"
    guard = "_DisableTorchDispatch" if handler == "__torch_dispatch__" else "DisableTorchFunctionSubclass"
    return saw(case=kind, handler=handler, frame=frame, text=frame.text, name=name, inner=inner, guard=guard)


@looks_for("WHY804")
def unhandled_dispatch(words: Words) -> Mapping[str, object] | None:
    """Recognise a handler that raises for an operator: NotImplementedError, a table without it, an assertion."""
    failure = words.failure
    call = next(iter(failure.of("handling")), None)
    if call is None or not failure.frames or failure.frames[-1].function != call.detail:
        return None
    first, at = failure.chain[-1], failure.frames[-1]
    refused = first.name in ("TypeError", "RuntimeError", "ValueError") and at.text.startswith("raise")
    if first.name not in ("NotImplementedError", "KeyError", "AssertionError") and not refused:
        return None
    name = operator_name(call.subject) if "::" in call.subject else call.subject
    packet = re.search(r"torch\.ops\.(\w+\.\w+)(?![\w.])", failure.source)
    compared = packet is not None and call.subject.replace("::", ".").startswith(packet[1])
    return saw(
        case="packet" if compared else "no case",
        handler=call.detail,
        frame=at,
        name=name,
        text=at.text,
        raised=f"{first.name}: {first.text.partition(chr(10))[0][:120]}",
        packet=packet[1] if packet else "",
        torch_name=f"torch.ops.{name.replace('::', '.')}" if "::" in name else name,
    )


@looks_for("WHY805")
def no_handler(words: Words) -> Mapping[str, object] | None:
    """Recognise a class that PyTorch's functions cannot ask, and a handler that returns nothing or drops keywords."""
    failure = words.failure
    entered = {event.subject for event in failure.of("entered mode")}
    for event in failure.of("handler"):
        protocol, _, line = event.detail.partition(" ")
        handler = f"{event.subject}.{protocol}{_at(event)}"
        if "NoneType" in failure.text and "return " not in line:
            return saw(case="returns nothing", handler=handler)
        if event.subject in entered and "func(*args)" in line and failure.kinds & {"AssertionError", "TypeError"}:
            return saw(case="drops keywords", handler=handler)
    found = failure.search(
        r"TypeError: (\w+)\(\): argument '(\w+)' [^\n]*?must be (?:Tensor|tuple of Ten)[^\n]*?, not (\w+)"
    )
    if found is None or f"class {found[3]}" not in failure.source:
        return None
    return saw(case="no handler", name=found[3], function=found[1], argument=found[2])


@looks_for("WHY806")
def not_flattened(words: Words) -> Mapping[str, object] | None:
    """Recognise a wrapper subclass without __tensor_flatten__ and __tensor_unflatten__ under compile or export."""
    failure = words.failure
    signature = failure.search(r"(\w+)\.(__tensor_(?:un)?flatten__)\(\) ([^\n]*argument[^\n]*)")
    if signature is not None:
        name, method, what = signature.groups()
        return saw(
            case="flatten signature", name=name, method=method, what=what, inner=_wrapped(failure, name) or "elem"
        )
    bare = failure.search(r"type object '(\w+)' has no attribute '__tensor_(?:un)?flatten__'")
    if bare is not None and _handler(failure, bare[1], "__torch_dispatch__") is None:
        return saw(case="bare subclass", name=bare[1])
    traced = any("torch._dynamo" in name or "torch._functorch._aot" in name for name in failure.stack)
    broken = failure.kinds & {"Unsupported", "InternalTorchDynamoError", "BackendCompilerFailed", "AttributeError"}
    for event in failure.of("handler") if traced and broken else ():
        missing = [m for m in ("__tensor_flatten__", "__tensor_unflatten__") if m not in event.detail]
        named = event.subject in failure.text or "__tensor_" in failure.text
        if "__torch_dispatch__ tensor" in event.detail and missing and named:
            inner = _wrapped(failure, event.subject) or "elem"
            return saw(case="not flattened", name=event.subject, at=_at(event), missing=listed(missing), inner=inner)
    return None


@looks_for("WHY807")
def lost_attribute(words: Words) -> Mapping[str, object] | None:
    """Recognise an attribute of a tensor subclass that PyTorch does not copy to results."""
    failure = words.failure
    for lost in failure.of("lost attribute"):
        if re.search(rf"\.{lost.detail} = ", failure.source):
            return saw(case="lost attribute", name=lost.subject, attribute=lost.detail)
    return None


@looks_for("WHY811")
def mode_misses(words: Words) -> Mapping[str, object] | None:
    """Recognise a check of what a mode saw, where it is off, stands at another layer, or was never entered."""
    failure = words.failure
    modes = failure.of("entered mode")
    asserted = f"{failure.at.text if failure.at else ''} {failure.text}"
    record = re.search(r"\bin\b|len\(|any\(|count|seen|saw|log|record|call|ops\b|names|empty", asserted)
    if not failure.kinds & {"AssertionError", "SystemExit"} or record is None:
        return None
    if not modes:
        made = re.search(r"class (\w+)\([\w.]*(Torch(?:Dispatch|Function)Mode)\)", failure.source)
        return saw(case="never entered", name=made[1], kind=made[2], mode_at="") if made else None
    name, kind, at = modes[-1].subject, modes[-1].detail, modes[-1].at
    threads = "threading" in failure.source or "ThreadPool" in failure.source
    return saw(case="thread" if threads else kind, name=name, kind=kind, mode_at=at)
