"""Print a counterexample as a short program that needs PyTorch and not this package.

The program registers two sequences with `torch.library`, calls the operator after each, and prints the
results: the n-th kernel adds n to its argument. This module only writes text and needs no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from dispatchlab.live.bridge.expressible import NotExpressibleError
from dispatchlab.model.keys import PARSED_BY_TORCH, DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Def, Impl, Registration
from dispatchlab.model.schema import FunctionSchema, source_text
from dispatchlab.model.sequence import StepSequence, format_sequence, python_steps

_PROGRAM = files(__package__).joinpath("counterexample_program.txt").read_text(encoding="utf-8")

_SLOTS = """\
    handle = torch._C._dispatch_find_schema_or_throw(f"{{namespace}}::{name}", "{overload}")
    for key in {keys}:
        keys = torch._C.DispatchKeySet(torch._C._parse_dispatch_key(key))
        print("  the slot of", key, "gives", result(handle.redispatch_boxed, keys))
    del handle
"""


def program_text(
    registrations: Sequence[Registration], expected: StepSequence, actual: StepSequence, *, keys: Sequence[str] = ()
) -> str:
    """Return the program that shows a counterexample.

    Args:
        registrations: the numbered registrations; those in the sequences are defs and impls of one operator.
        expected: the sequence whose result is expected.
        actual: the sequence that leads elsewhere.
        keys: other runtime keys to call, without keys that PyTorch cannot parse.

    Raises:
        NotExpressibleError: a registration is of another kind, or the operator does not take and give one tensor.
    """
    used = sorted({max(step, ~step) for step in (*expected, *actual)})
    operator, schema = _operator([registrations[index] for index in used])
    kernels = [index for index in used if isinstance(registrations[index], Impl)]
    adds = {index: number for number, index in enumerate(kernels, start=1)}
    lines = [f"    {index}: lambda library: {_call(registrations[index], adds.get(index, 0))}," for index in used]
    before: StepSequence = ()
    if schema is None:
        text = f"{operator.without_namespace}(Tensor x) -> Tensor"
        lines.append(f'    {len(registrations)}: lambda library: library.define("{text}"),')
        before = (len(registrations),)
    parsed = [key for key in keys if DispatchKey[key] in PARSED_BY_TORCH]
    slots = _SLOTS.format(name=operator.name, overload=operator.overload, keys=parsed) if parsed else ""
    return _PROGRAM.format(
        registrations="\n".join(lines),
        call=operator.without_namespace,
        slots=slots,
        expected=python_steps((*before, *expected)),
        actual=python_steps((*before, *actual)),
        expected_text=format_sequence(expected),
        actual_text=format_sequence(actual),
    )


def _operator(registrations: Sequence[Registration]) -> tuple[OperatorName, FunctionSchema | None]:
    """Return the operator of the registrations, and its schema if one of them is a def."""
    operators: set[OperatorName] = set()
    schema: FunctionSchema | None = None
    for registration in registrations:
        if not isinstance(registration, Def | Impl):
            raise NotExpressibleError(registration, "the program can contain only defs and impls")
        operators.add(registration.operator)
        if isinstance(registration, Def):
            if isinstance(registration.schema, OperatorName) or registration.kernel is not None:
                raise NotExpressibleError(registration, "torch.library has no def with a kernel")
            schema = registration.schema
            if [str(argument.type) for argument in (*schema.arguments, *schema.returns)] != ["Tensor", "Tensor"]:
                raise NotExpressibleError(registration, "the program calls with one tensor, and expects one")
    if len(operators) != 1:
        raise NotExpressibleError(registrations[-1], "the program is about one operator")
    return operators.pop(), schema


def _call(registration: Registration, adds: int) -> str:
    match registration:
        case Def(schema=FunctionSchema() as schema):
            text = source_text(schema).removeprefix(f"{schema.name.namespace}::")
            alias = f", {str(registration.alias)!r}" if registration.alias is not None else ""
            return f"library.define({text!r}{alias})"
        case Impl(kernel=kernel, key=key):
            function = "torch.library.fallthrough_kernel" if kernel.is_fallthrough else f"lambda x: x + {adds}"
            at = f", {str(key)!r}" if key is not None else ""
            return f"library.impl({str(registration.operator.without_namespace)!r}, {function}{at})"
        case _:
            raise NotExpressibleError(registration, "the program can contain only defs and impls")
