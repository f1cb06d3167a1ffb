"""Calling conventions of kernels: convert each of the three to a function of all arguments.

- with the arguments: positional and keyword arguments without those that equal their default, as `torch.library` calls;
- with a stack: the operator and a list, from which the kernel takes the arguments and to which it adds the returns;
- unboxed: every argument in its place, as C++ calls.

A kernel with a key set gets it first (a stack kernel after the operator); a backend fallback that takes the arguments
gets the operator before them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from dispatchlab.call.call_signature import CallSignature, NotReturnableError
from dispatchlab.engine.kernel import TableEntry
from dispatchlab.errors import CallError, ErrorKind
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.registration import KernelForm

Target: TypeAlias = Callable[..., Any]


def target_of(operator: object, signature: CallSignature, held: TableEntry, keys: DispatchKeySet) -> Target:
    """Return a kernel as a function of every argument by position; it returns what the kernel returns.

    Args:
        operator: the handle that stack kernels and fallbacks get.
        signature: the operator's.
        held: the kernel.
        keys: the final set of the call.

    Raises:
        CallError: of kind `other`, if the kernel has no function.
    """
    kernel = held.registered.kernel
    function = function_of(signature, held)
    if kernel.takes_stack:
        return _with_stack(operator, signature, held, keys)
    if kernel.form is KernelForm.UNBOXED:
        called = _in_place(partial(function, keys) if kernel.with_keyset else function, signature, function)
        return called if signature.writes is None else _returning_written(called, signature)
    called = _with_arguments(operator, function, held, keys)
    if signature.takes_every_argument:
        return called

    def target(*values: object) -> object:
        positional, named = signature.as_python_call(values)
        return called(*positional, **named)

    return target


def _with_arguments(operator: object, function: Target, held: TableEntry, keys: DispatchKeySet) -> Target:
    first: tuple[object, ...] = (keys,) if held.registered.kernel.with_keyset else ()
    if held.reason is Provenance.FALLBACK:
        first = (*first, operator)
    return partial(function, *first) if first else function


def function_of(signature: CallSignature, held: TableEntry) -> Target:
    """Return the Python function of a kernel."""
    function = held.registered.kernel.function
    if function is None:
        message = f"the kernel {held.registered.debug} of {signature.name} has no Python function that could run"
        refusal = signature.refused(ErrorKind.OTHER, message, "")
        raise CallError(refusal.kind, refusal.message, {**refusal.facts, "kernel": held.registered.debug})
    return function


def run_on_stack(
    operator: object, signature: CallSignature, held: TableEntry, keys: DispatchKeySet, stack: list[object], count: int
) -> None:
    """Call a stack kernel on the last `count` values of a stack.

    Raises:
        CallError: of kind `unbalanced_stack`, when it leaves another number of values than it should.
    """
    function = function_of(signature, held)
    wanted = len(stack) - count + len(signature.return_checks)
    below = stack[: len(stack) - count]
    if held.registered.kernel.with_keyset:
        function(operator, keys, stack)
    else:
        function(operator, stack)
    if len(stack) != wanted or any(one is not other for one, other in zip(below, stack, strict=False)):
        debug = held.registered.debug
        what = (
            f"left {len(stack)} values on a stack that should have {wanted}"
            if len(stack) != wanted
            else f"changed values below its {count} arguments"
        )
        message = (
            f"the boxed kernel {debug} of {signature.name} {what}: "
            f"pop {count} arguments and push {len(signature.return_checks)} returns"
        )
        refusal = signature.refused(ErrorKind.UNBALANCED_STACK, message, "")
        raise CallError(refusal.kind, refusal.message, {**refusal.facts, "kernel": debug})


def returns_of(values: Sequence[object]) -> object:
    """Return the returns on a stack as a function does: None, one value, or a tuple."""
    return None if not values else values[0] if len(values) == 1 else tuple(values)


def _with_stack(operator: object, signature: CallSignature, held: TableEntry, keys: DispatchKeySet) -> Target:
    def target(*values: object) -> object:
        stack = [*values]
        run_on_stack(operator, signature, held, keys, stack, len(values))
        return returns_of(stack)

    return target


def _returning_written(called: Target, signature: CallSignature) -> Target:
    """Return a typed kernel of an in-place or out form: it returns the arguments that it wrote."""

    def target(*values: object) -> object:
        result = called(*values)
        try:
            return returns_of(signature.written_returns(values, result))
        except NotReturnableError:
            return result  # the call that gets it says which kernel it came from

    return target


def _in_place(called: Target, signature: CallSignature, function: Target) -> Target:
    """Return every argument by position, or by name if the function takes it only by name."""
    parameters = list(inspect.signature(function).parameters.values())[-len(signature.arguments) :]
    by_name = [parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    if not by_name or not signature.arguments:
        return called
    count = len(signature.arguments) - len(by_name)

    def target(*values: object) -> object:
        return called(*values[:count], **dict(zip(by_name, values[count:], strict=True)))

    return target
