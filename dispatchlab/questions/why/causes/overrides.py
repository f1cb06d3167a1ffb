"""`__torch_function__` and `__torch_dispatch__`: handlers that refuse, lose the class, or call themselves."""

from __future__ import annotations

import re

from dispatchlab.model.failure import Failure, Fix, operator_name
from dispatchlab.questions.why.cause import Explanation, cause
from dispatchlab.questions.why.causes.wording import listed


@cause("WHY801", "no handler takes a function", wrong="a kernel: the call never reaches the dispatcher")
def function_not_handled(failure: Failure) -> Explanation | None:
    """Recognise a call whose __torch_function__ handlers all return NotImplemented."""
    found = failure.search(
        r"Multiple dispatch failed for '([\w.]+)'; all __(torch_function|"
        r"torch_dispatch)__ handlers returned NotImplemented"
    )
    if found is None:
        found = failure.search(
            r"no implementation found for '([\w.]+)' on types that implement __(torch_function|torch_dispatch)__"
        )
    if found is None:
        return None
    function, protocol = found.groups()
    types = re.findall(r"<class '([\w.<>]+)'>", failure.text.partition(found[0])[2])
    names = [name.rpartition(".")[2] for name in dict.fromkeys(types)] or ["the class"]
    return Explanation(
        f"{names[0]}.__{protocol}__ returned NotImplemented for {function}, and no other handler takes it",
        (
            Fix(
                text=f"handle {function} in {names[0]}.__{protocol}__, for example HANDLED[{function}] = ...",
                needs="your handler",
            ),
            Fix(text=f"or unwrap the {listed(names)} before the call"),
        ),
    )


@cause("WHY802", "a subclass that detach() loses", wrong="registering the parameter by hand")
def lost_subclass(failure: Failure) -> Explanation | None:
    """Recognise a tensor subclass whose __torch_dispatch__ returns plain tensors."""
    found = failure.search(
        r"Creating a Parameter from an instance of type (\w+) requires that detach\(\) returns an instance"
    )
    if found is None:
        return None
    name = found[1]
    return Explanation(
        f"{name}.__torch_dispatch__ returns a plain tensor for aten.detach, so Parameter({name}(...)) loses the class",
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
    for name in ("__torch_dispatch__", "__torch_function__", "__repr__"):
        if functions.count(name) > 20:
            break
    else:
        return None
    frame = next(frame for frame in failure.frames if frame.function == name)
    if name == "__repr__":
        fix = "print the wrapped tensor in __repr__, not self: it calls operators, which print again"
    elif name == "__torch_dispatch__":
        fix = (
            "unwrap the arguments before func(*args, **kwargs), or call it in "
            "torch.utils._python_dispatch._disable_current_modes()"
        )
    else:
        fix = (
            "return super().__torch_function__(func, types, args, kwargs), or with "
            "torch._C.DisableTorchFunctionSubclass(): ..."
        )
    return Explanation(
        f"{name} at {frame.file}:{frame.line} calls itself: `{frame.text}` has an argument of the same class",
        (Fix(text=fix),),
    )


@cause("WHY804", "a subclass that an operator does not take", wrong="a kernel for another backend")
def unhandled_dispatch(failure: Failure) -> Explanation | None:
    """Recognise a __torch_dispatch__ that raises NotImplementedError for an operator."""
    if "NotImplementedError" not in failure.kinds or not failure.frames:
        return None
    handler = [frame for frame in failure.frames if frame.function == "__torch_dispatch__"]
    if not handler:
        return None
    name = operator_name(failure.chain[-1].text)
    return Explanation(
        f"__torch_dispatch__ at {handler[-1]} refuses {name or 'an operator'}: `{handler[-1].text}`",
        (Fix(text=f"handle {name or 'it'} there, or return func(*unwrapped_args, **kwargs)", needs="your handler"),),
    )
