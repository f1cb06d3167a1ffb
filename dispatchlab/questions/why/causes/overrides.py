"""`__torch_function__`, `__torch_dispatch__` and modes: handlers that refuse, lose the class, or call themselves."""

from __future__ import annotations

import re
from typing import Final

from dispatchlab.model.failure import Event, Failure, Fix, operator_name
from dispatchlab.questions.why.cause import Explanation, cause
from dispatchlab.questions.why.causes.wording import listed

_HEAD: Final = "@classmethod def __torch_{}__(cls, func, types, args=(), kwargs=None): ..."


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


def _returns(event: Event | None) -> str:
    """Return the last return statement of a handler, quoted."""
    line = event.detail.partition("return ")[2] if event else ""
    return f": `return {line}`" if line else ""


@cause("WHY801", "no handler takes a function", wrong="a kernel: the call never reaches the dispatcher")
def function_not_handled(failure: Failure) -> Explanation | None:
    """Recognise a call whose handlers all return NotImplemented."""
    found = failure.search(
        r"Multiple dispatch failed for '([\w.]+)'; all __(torch_function|torch_dispatch)__ handlers returned NotImpl"
    ) or failure.search(r"no implementation found for '([\w.]+)' on types that implement __(torch_function)__")
    operands = failure.search(r"TypeError: unsupported operand type\(s\) for ([^:]+): '(\w+)' and '(\w+)'")
    if found is not None:
        function, protocol = found[1].removeprefix("torch._ops."), f"__{found[2]}__"
        types = re.findall(r"<class '([\w.<>]+)'>", failure.text.partition(found[0])[2])
        names = [name.rpartition(".")[2] for name in dict.fromkeys(types)] or ["the class"]
    elif operands is not None:
        names = [name for name in operands.groups()[1:] if _handler(failure, name)]
        if not names:
            return None
        event = _handler(failure, names[0])
        function, protocol = f"the operator {operands[1]}", event.detail.partition(" ")[0] if event else ""
        if len(names) == 2:
            function += f" of {names[0]} and {names[1]}"
    else:
        return None
    event = _handler(failure, names[0], protocol)
    if protocol == "__torch_dispatch__":
        taken = f"if func is torch.ops.{function}: ..." if "." in function else "take it"
        fix = f"{taken}  # in {names[0]}.{protocol}; or return func(*unwrapped_args, **(kwargs or {{}}))"
    else:
        example = function if "." in function else "torch.add"
        fix = f"handle {function} in {names[0]}.{protocol}, for example HANDLED[{example}] = ..."
    return Explanation(
        f"{names[0]}.{protocol}{_at(event)} returned NotImplemented for {function}, and no other handler takes it",
        (Fix(text=fix, needs="your handler"), Fix(text=f"or unwrap the {listed(names)} before the call")),
    )


@cause("WHY802", "a subclass that is lost", wrong="registering the parameter by hand")
def lost_subclass(failure: Failure) -> Explanation | None:
    """Recognise results of a tensor subclass that are plain tensors: Parameter, deepcopy, an assertion."""
    found = failure.search(
        r"Creating a Parameter from an instance of type (\w+) requires that (detach)\(\) returns an instance"
    )
    copied = failure.search(r"default implementation of __deepcopy__\(\) for (wrapper subclasses|\w+) only works")
    lost = next(iter(failure.of("lost subclass")), None)
    if found is None and copied is None and lost is None:
        return None
    handlers = [e for e in failure.of("handler") if e.detail.startswith("__torch_dispatch__ tensor")]
    name = found[1] if found else lost.subject if lost else handlers[-1].subject if handlers else "the subclass"
    event = _handler(failure, name, "__torch_dispatch__")
    what = (
        f"aten.detach, so Parameter({name}(...)) loses the class"
        if found
        else "aten.clone, so copy.deepcopy loses the class"
        if lost is None
        else f"what the program made with `{lost.detail}`, which lost the class"
    )
    if event is None:
        return Explanation(
            f"{name} does not keep its class: its __torch_function__ is off or returns plain tensors for {what}",
            (
                Fix(text=f"remove __torch_function__ = torch._C._disabled_torch_function_impl from {name}"),
                Fix(text="return super().__torch_function__(func, types, args, kwargs)  # keeps the class"),
            ),
        )
    return Explanation(
        f"{name}.__torch_dispatch__{_at(event)} returns a plain tensor for {what}{_returns(event)}",
        (
            Fix(
                text=f"wrap results again: return tree_map_only(torch.Tensor, {name}, func(*args, **kwargs)), "
                "at least for aten.detach, aten.clone and aten._to_copy"
            ),
        ),
    )


@cause("WHY803", "a handler that calls itself", wrong="sys.setrecursionlimit: it never ends")
def handler_recursion(failure: Failure) -> Explanation | None:
    """Recognise __torch_function__ or __torch_dispatch__ that leads back to itself."""
    if "RecursionError" not in failure.kinds:
        return None
    functions = [frame.function for frame in failure.frames]
    for name in ("__repr__", "__torch_dispatch__", "__torch_function__"):
        if functions.count(name) > 20:
            break
    else:
        return None
    frames = [frame for frame in failure.frames if frame.function == name]
    frame = max(frames, key=lambda f: sum(f.line == other.line for other in frames))
    modes = failure.of("entered mode")
    again = len(modes) > 5
    own = next((e for e in failure.of("handler") if e.detail.startswith(f"{name} tensor")), None)
    class_name = own.subject if own else "the subclass"
    fixes: tuple[str, ...]
    if name == "__repr__":
        why = "prints self, whose __repr__ it is"
        fixes = ("print the wrapped tensor in __repr__, not self: it calls operators, which print again",)
    elif again:
        why = "runs with the mode entered again: it is off in its own handler, and `with` turns it on"
        fixes = (
            "leave the mode off in the handler: remove the `with` around func(*args, **kwargs) and what follows it",
        )
    elif re.search(r"print\(|\{args|str\(|repr\(|log\w*\.", frame.text) and "func(*" not in frame.text:
        why = "prints an argument, and printing a tensor calls operators, which come here again"
        fixes = ("print func and types alone, or the wrapped tensor: an argument's __repr__ calls operators",)
    elif name == "__torch_dispatch__":
        why = f"gives func an argument that is still a {class_name}"
        inner = _wrapped(failure, class_name)
        unwrap = f"args, kwargs = tree_map_only({class_name}, lambda t: t.{inner or 'elem'}, (args, kwargs or {{}}))"
        fixes = (
            f"{unwrap}  # first: it reaches lists and kwargs, too",
            "return super().__torch_dispatch__(func, types, args, kwargs or {})  # for a class that wraps nothing",
        )
        fixes = fixes if inner else fixes[::-1]
    else:
        why = f"gives func an argument that is still a {class_name}"
        fixes = (
            "return super().__torch_function__(func, types, args, kwargs)",
            "or: with torch._C.DisableTorchFunctionSubclass(): return func(*args, **(kwargs or {}))",
        )
    return Explanation(
        f"{name} at {frame} calls itself: `{frame.text}` {why}",
        tuple(Fix(text=fix) for fix in fixes),
    )


@cause("WHY804", "an operator that a handler does not take", wrong="a kernel for another backend")
def unhandled_dispatch(failure: Failure) -> Explanation | None:
    """Recognise a handler that raises for an operator: NotImplementedError, a table without it, an assertion."""
    call = next(iter(failure.of("handling")), None)
    refused = failure.kinds & {"NotImplementedError", "KeyError", "AssertionError", "TypeError", "RuntimeError"}
    if call is None or not refused or not failure.frames or failure.frames[-1].function != call.detail:
        return None
    first, at = failure.chain[-1], failure.frames[-1]
    if first.name in ("TypeError", "RuntimeError") and not at.text.startswith("raise"):
        return None
    name = operator_name(call.subject) if "::" in call.subject else call.subject
    torch_name = f"torch.ops.{call.subject.replace('::', '.')}" if "::" in call.subject else call.subject
    packet = re.search(r"torch\.ops\.(\w+\.\w+)(?![\w.])", failure.source)
    raised = first.text.splitlines()[0][:120] if first.text else ""
    sentence = f"{call.detail} at {at} has no case for {name}: `{at.text}` raises {first.name}: {raised}"
    if packet is not None and call.subject.replace("::", ".").startswith(packet[1]):
        return Explanation(
            f"{sentence}; it is compared with the packet torch.ops.{packet[1]}, and func is an overload",
            (Fix(text=f"if func.overloadpacket is torch.ops.{packet[1]}: ...  # or func is {torch_name}"),),
        )
    return Explanation(
        sentence,
        (
            Fix(
                text=f"handle {torch_name} there, or for all others: return func(*unwrapped_args, **(kwargs or {{}}))",
                needs="your handler",
            ),
        ),
    )


@cause("WHY805", "a class without a handler", wrong="a kernel or a fake: the call never reaches the dispatcher")
def no_handler(failure: Failure) -> Explanation | None:
    """Recognise a class that PyTorch's functions cannot ask, and a handler that does not take what it is given."""
    wrapper = failure.search(r"TypeError: (\w+) must define __torch_dispatch__")
    if wrapper is not None:
        return Explanation(
            f"{wrapper[1]} is a wrapper subclass, without data of its own, and defines no __torch_dispatch__",
            (
                Fix(
                    text=f"in {wrapper[1]}: {_HEAD.format('dispatch')}",
                    needs="your handler",
                ),
            ),
        )
    mapping = failure.search(r"argument after \*\* must be a mapping, not NoneType")
    inside = bool(failure.frames) and failure.frames[-1].function in ("__torch_function__", "__torch_dispatch__")
    if mapping is not None and inside:
        at = failure.frames[-1]
        return Explanation(
            f"{at.function} at {at} gets kwargs=None for a call without keywords: `{at.text}`",
            (Fix(text="kwargs = kwargs or {}  # before func(*args, **kwargs)"),),
        )
    careless = _careless_handler(failure)
    if careless is not None:
        return careless
    found = failure.search(
        r"TypeError: (\w+)\(\): argument '(\w+)' (?:\(position \d+\) )?"
        r"must be (?:Tensor|tuple of Tensors)[^\n]*?, not (\w+)"
    )
    plain = (
        "int",
        "float",
        "str",
        "bool",
        "list",
        "tuple",
        "dict",
        "NoneType",
        "ndarray",
        "Tensor",
        "Parameter",
        "type",
    )
    if found is None or found[3] in plain or f"class {found[3]}" not in failure.source:
        return None
    return Explanation(
        f"{found[3]} is no Tensor and has no __torch_function__, so torch.{found[1]} cannot take it as {found[2]}",
        (
            Fix(
                text=f"in {found[3]}: {_HEAD.format('function')}",
                needs="your handler",
            ),
            Fix(text=f"or give torch.{found[1]} the tensor that the {found[3]} holds"),
        ),
    )


def _careless_handler(failure: Failure) -> Explanation | None:
    """Recognise a handler that returns nothing, or calls func without the keywords."""
    entered = {event.subject for event in failure.of("entered mode")}
    for event in failure.of("handler"):
        protocol, _, line = event.detail.partition(" ")
        called = f"{event.subject}.{protocol}{_at(event)}"
        if "NoneType" in failure.text and "return " not in line:
            return Explanation(
                f"{called} returns nothing, so the result of each call under it is None",
                (Fix(text="return func(*args, **(kwargs or {}))  # the last line of the handler"),),
            )
        if event.subject in entered and "func(*args)" in line and failure.kinds & {"AssertionError", "TypeError"}:
            return Explanation(
                f"{called} calls func(*args) without kwargs: dtype=, device= and other keywords are lost",
                (Fix(text="return func(*args, **(kwargs or {}))"),),
            )
    return None


@cause("WHY806", "a subclass that compile cannot take apart", wrong="register_fake: no operator is missing")
def not_flattened(failure: Failure) -> Explanation | None:
    """Recognise a wrapper subclass without __tensor_flatten__ and __tensor_unflatten__ under compile or export."""
    names = ("__tensor_flatten__", "__tensor_unflatten__")
    signature = failure.search(r"(\w+)\.?__tensor_(un)?flatten__\(\) ([^\n]+)")
    own = (
        signature[1] if signature else next(iter(e.subject for e in failure.of("handler") if "tensor" in e.detail), "")
    )
    inner = _wrapped(failure, own) or "elem"
    methods = (
        f'def __tensor_flatten__(self): return ["{inner}"], None',
        "@staticmethod def __tensor_unflatten__(inner, meta, outer_size, outer_stride): "
        f'return {own}(inner["{inner}"])',
    )
    if signature is not None and "argument" in signature[3]:
        return Explanation(
            f"{signature[1]}.__tensor_{signature[2] or ''}flatten__ cannot be called by compile: {signature[3]}",
            (Fix(text=methods[1 if signature[2] else 0]),),
        )
    traced = any("torch._dynamo" in name or "torch._functorch._aot" in name for name in failure.stack)
    broken = failure.kinds & {"Unsupported", "InternalTorchDynamoError", "BackendCompilerFailed", "AttributeError"}
    for event in failure.of("handler"):
        missing = [name for name in names if name not in event.detail]
        named = event.subject in failure.text or "__tensor_" in failure.text
        if "__torch_dispatch__ tensor" in event.detail and missing and traced and broken and named:
            return Explanation(
                f"torch.compile cannot take {event.subject}{_at(event)} apart: it has no {listed(missing)}",
                tuple(Fix(text=text) for text, name in zip(methods, names, strict=True) if name in missing),
            )
    return None


@cause("WHY807", "an attribute that results of a subclass do not have", wrong="a kernel or a formula")
def lost_attribute(failure: Failure) -> Explanation | None:
    """Recognise an attribute of a tensor subclass that PyTorch does not copy to results."""
    lost = next(iter(failure.of("lost attribute")), None)
    if lost is None:
        return None
    own = any(lost.detail in line for line in failure.source.splitlines() if "self." in line or " = " in line)
    if not own:
        return None
    name, attribute = lost.subject, lost.detail
    return Explanation(
        f"the result is a {name} without {attribute}: operators keep the class of a subclass, not its attributes",
        (
            Fix(
                text=f"in {name}: {_HEAD.format('function').removesuffix('...')}"
                f"out = super().__torch_function__(func, types, args, kwargs or {{}}); out.{attribute} = ..."
            ),
            Fix(text=f"or a default for results that have none: {attribute} = None in the body of {name}"),
        ),
    )


@cause("WHY811", "a mode that does not see a call", wrong="a handler for the inner function: it is not called")
def mode_misses(failure: Failure) -> Explanation | None:
    """Recognise a check of what a mode saw, where it is off or stands at another layer."""
    modes = failure.of("entered mode")
    asserted = f"{failure.at.text if failure.at else ''} {failure.text}"
    record = re.search(r"\bin\b|len\(|any\(|count|seen|saw|log|record|call|ops\b|names|empty", asserted)
    if not failure.kinds & {"AssertionError", "SystemExit"} or record is None:
        return None
    if not modes:
        return _never_entered(failure)
    name, kind, at = modes[-1].subject, modes[-1].detail, modes[-1].at
    entered = (f"{at}: the mode is entered",) if at else ()
    if "threading" in failure.source or "ThreadPool" in failure.source:
        return Explanation(
            f"the {kind} {name} is on in the thread that entered it alone: calls of other threads are not seen",
            (Fix(text=f"enter it in each thread: with {name}(): ... inside of the function that the thread runs"),),
            entered,
        )
    if kind == "TorchFunctionMode":
        return Explanation(
            f"the TorchFunctionMode {name} is off inside of its own __torch_function__: calls that a function "
            "makes inside, in Python or C++ (backward too), are not seen",
            (
                Fix(text="torch.utils._python_dispatch.TorchDispatchMode sees each operator below (such as aten::log)"),
                Fix(text="or `with self:` around func(*args, **kwargs) in the handler"),
            ),
            entered,
        )
    return Explanation(
        f"the TorchDispatchMode {name} stands below autograd: a composite operator (CompositeImplicitAutograd, such as "
        "aten::linear or aten::matmul) arrives as the operators it is made of, and calls inside of it are not seen",
        (
            Fix(text="look for the parts (aten.t, aten.addmm, aten.mm in place of aten.linear)"),
            Fix(text="or a torch.overrides.TorchFunctionMode, which sees torch.nn.functional.linear itself"),
        ),
        entered,
    )


def _never_entered(failure: Failure) -> Explanation | None:
    found = re.search(r"class (\w+)\([\w.]*(Torch(?:Dispatch|Function)Mode)\)", failure.source)
    if found is None or not re.search(r"seen|saw|called|logged|recorded|empty|ops", failure.text):
        return None
    return Explanation(
        f"the {found[2]} {found[1]} was made and never entered, so its handler sees nothing",
        (Fix(text=f"with {found[1]}(): ...  # around the calls"),),
    )
