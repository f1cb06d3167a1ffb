"""The functions that a program registers: where each stands, whether it takes the schema's arguments, what it gives."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from dispatchlab.live.failure.positions import position_of
from dispatchlab.model.failure import EventKind, Position


class Watch(Protocol):
    """Notes what a program does."""

    def is_users(self, file: str) -> bool:
        """Return whether a file belongs to the user."""
        ...

    def note(self, kind: EventKind, subject: str, detail: str = "", at: Position | None = None) -> None:
        """Add an event."""
        ...


def note_function(watch: Watch, operator: str, role: str, fn: Any, *, keyset: bool = False) -> None:
    """Note a function of the user, and whether its operator can call it.

    Args:
        watch: notes it.
        operator: the operator's full name.
        role: the key of a kernel, or `fake`, `backward`, `setup_context`.
        fn: the function.
        keyset: it gets the key set before the arguments.
    """
    code = getattr(fn, "__code__", None)
    if code is None or not watch.is_users(code.co_filename):
        return
    at = position_of(code.co_filename, code.co_firstlineno, code.co_name)
    watch.note("function", operator, role, at)
    with suppress(Exception):
        signature = inspect.signature(fn, follow_wrapped=False)  # a wrapper may take other arguments
        if _cannot_be_called(signature, schema_of(operator), role, keyset=keyset):
            watch.note("unfit function", operator, f"{role}: {', '.join(_shown(signature))}", at)


def schema_of(operator: str) -> Any:
    """Return the schema of an operator, as PyTorch holds it."""
    import torch

    packet, _, overload = operator.partition(".")
    return torch._C._dispatch_find_schema_or_throw(packet, overload).schema()


def _cannot_be_called(signature: inspect.Signature, schema: Any, role: str, *, keyset: bool) -> bool:
    """Bind a signature as the dispatcher calls it: with all arguments, and without those that equal their default."""
    if role == "setup_context":
        extra = {"keyword_only_inputs": 0} if any(a.kwarg_only for a in schema.arguments) else {}
        return not _binds(signature, (), {"ctx": 0, "inputs": 0, "output": 0, **extra})
    if role == "backward":
        return not _binds(signature, (0,) * (1 + len(schema.returns)), {})
    first = (0,) if keyset else ()
    whole = [a for a in schema.arguments if not a.kwarg_only]
    named = {a.name: 0 for a in schema.arguments if a.kwarg_only}
    needed = [a for a in whole if not a.has_default_value()]
    required = {a.name: 0 for a in schema.arguments if a.kwarg_only and not a.has_default_value()}
    every = _binds(signature, first + (0,) * len(whole), named)
    return not every or not _binds(signature, first + (0,) * len(needed), required)


def _binds(signature: inspect.Signature, args: tuple[int, ...], kwargs: dict[str, int]) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _shown(signature: inspect.Signature) -> list[str]:
    return [
        str(parameter.replace(annotation=inspect.Parameter.empty)).replace(" ", "")
        for parameter in signature.parameters.values()
    ]


def note_result(watch: Watch, operator: str, result: Any) -> None:
    """Note a result that is not what the schema says."""
    import torch

    returns = schema_of(operator).returns
    kinds = [str(value.type) for value in returns]
    if not kinds:
        fits = result is None
    elif len(kinds) > 1:
        fits = isinstance(result, tuple | list) and len(result) == len(kinds)
    else:
        fits = kinds != ["Tensor"] or isinstance(result, torch.Tensor)
    tensors = [leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    if tensors and not any(tensor.is_floating_point() or tensor.is_complex() for tensor in tensors):
        watch.note("integer result", operator, str(tensors[0].dtype))
    if not fits:
        given = f"{len(result)} values" if isinstance(result, tuple | list) else type(result).__name__
        watch.note("wrong result", operator, f"{given}\n{', '.join(kinds) or 'nothing'}")


def watch_formulas(torch: Any, watch: Watch) -> None:
    """Note the functions of autograd formulas, and the fakes of custom operators."""
    register = torch.library.register_autograd
    of_custom_op = torch.library.CustomOpDef.register_autograd

    def noting(name: Callable[[Any], str], original: Callable[..., Any]) -> Callable[..., Any]:
        def patched(op: Any, backward: Any, /, *, setup_context: Any = None, **rest: Any) -> Any:
            result = original(op, backward, setup_context=setup_context, **rest)
            with suppress(Exception):
                note_function(watch, name(op), "backward", backward)
                note_function(watch, name(op), "setup_context", setup_context)
            return result

        return patched

    register_fake = torch.library.CustomOpDef.register_fake

    def fake_of_custom_op(op: Any, fn: Any, /) -> Any:
        watch.note("register_fake", op._qualname)
        note_function(watch, op._qualname, "fake", fn)
        return register_fake(op, fn)

    torch.library.CustomOpDef.register_fake = fake_of_custom_op
    torch.library.register_autograd = noting(lambda op: getattr(op, "_qualname", "") or op, register)
    torch.library.CustomOpDef.register_autograd = noting(lambda op: op._qualname, of_custom_op)
