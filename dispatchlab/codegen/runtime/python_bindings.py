"""Python bindings of native functions: their signatures, and functions that call operators.

    functions = PythonFunctions(dispatcher, natives)
    functions.add(x, 2, out=y)

Source: tools/autograd/gen_python_functions.py, tools/autograd/deprecated.yaml, torchgen/api/python.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from dispatchlab.call.operators import Operator, operator
from dispatchlab.call.python_arg_parser import NUMBERS_AS_TENSORS, Bound, PythonArgParser, PythonSignature
from dispatchlab.call.tensor import Tensor, tensor
from dispatchlab.codegen.read.groups import FunctionGroup
from dispatchlab.codegen.read.native_function import NativeFunction, Variant
from dispatchlab.codegen.read.native_functions import NativeFunctions
from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.model.schema import TENSOR, Argument, default_text

DEPRECATED: Mapping[str, tuple[str, ...]] = {
    "add": ("add(Tensor input, Scalar alpha, Tensor other, *, Tensor out=None)|deprecated",),
    "sub": ("sub(Tensor input, Scalar alpha, Tensor other, *, Tensor out=None)|deprecated",),
    "addmm": (
        "addmm(Scalar beta, Tensor input, Scalar alpha, Tensor mat1, Tensor mat2, *, Tensor out=None)|deprecated",
        "addmm(Scalar beta, Tensor input, Tensor mat1, Tensor mat2, *, Tensor out=None)|deprecated",
    ),
}
"""Signatures of the past, which still work and warn. Source: tools/autograd/deprecated.yaml."""


class PythonFunctions:
    """The functions of a dispatcher as Python has them: `functions.add(x, 2, out=y)`.

    Args:
        dispatcher: where the operators are.
        natives: what they are.
    """

    def __init__(self, dispatcher: Dispatcher, natives: NativeFunctions) -> None:
        self._dispatcher, self._natives = dispatcher, natives
        self._operators: dict[str, Operator] = {}

    @cached_property
    def _groups(self) -> Mapping[str, list[tuple[PythonSignature, FunctionGroup]]]:
        found: dict[str, list[tuple[PythonSignature, FunctionGroup]]] = {}
        for group in self._natives.groups:
            if isinstance(group, FunctionGroup) and Variant.FUNCTION in group.functional.variants:
                name = group.functional.name.name
                found.setdefault(name, []).append((PythonSignature.parse(signature_text(group)), group))
        return found

    def signatures(self, name: str) -> tuple[PythonSignature, ...]:
        """The signatures of a function, those of the past first."""
        past = tuple(PythonSignature.parse(text) for text in DEPRECATED.get(name, ()))
        return (*past, *(signature for signature, _ in self._groups[name]))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__") or name not in self._groups:
            raise AttributeError(f"there is no function {name}")
        parser = PythonArgParser(name, self.signatures(name), numbers=name in NUMBERS_AS_TENSORS)

        def function(*args: object, **kwargs: object) -> Any:
            return self._call(name, parser.bind(args, kwargs))

        function.__name__ = function.__qualname__ = name
        return function

    def method(self, name: str) -> Callable[..., Any]:
        """An in-place method, `functions.method("add_")(x, y)`."""
        function = next(
            group.inplace
            for group in self._natives.structured_groups
            if group.inplace is not None and group.inplace.name.name == name
        )
        parser = PythonArgParser(name, (_method_text(function),), numbers=name in NUMBERS_AS_TENSORS)

        def bound_method(*args: object, **kwargs: object) -> Any:
            values = dict(parser.bind(args, kwargs).values)
            self._take_numbers(function, values)
            return self._operator(function)(**values)

        return bound_method

    def _operator(self, function: NativeFunction) -> Operator:
        called = str(function.name)
        if called not in self._operators:
            self._operators[called] = operator(self._dispatcher, function.name)
        return self._operators[called]

    def _call(self, name: str, bound: Bound) -> Any:
        values = _operator_values(bound)
        out = values.pop("out", None)
        groups = [group for signature, group in self._groups[name] if signature == bound.signature]
        group = groups[0] if groups else self._groups[name][0][1]
        target = group.functional if out is None else group.out
        if out is not None:
            outs = out if isinstance(out, list | tuple) else (out,)
            values |= {one.name: each for one, each in zip(target.parts.outs, outs, strict=True)}
        self._take_numbers(target, values)
        return self._operator(target)(**values)

    @staticmethod
    def _take_numbers(target: NativeFunction, values: dict[str, Any]) -> None:
        for argument in target.schema.arguments:
            if argument.type == TENSOR and argument.name in values and not isinstance(values[argument.name], Tensor):
                values[argument.name] = tensor(values[argument.name])


def signature_text(group: FunctionGroup | NativeFunction) -> str:
    """The Python signature of a function, with `out=` where it has an out variant."""
    function = group.functional if isinstance(group, FunctionGroup) else group
    parts = function.parts
    texts = [_out_parameter(one) for one in parts.positional]
    by_name = [_out_parameter(one) for one in parts.keywords]
    if isinstance(group, FunctionGroup):
        count = len(group.out.parts.outs)
        by_name.append("Tensor out=None" if count == 1 else f"Tensor[{count}] out=None")
    if by_name:
        texts += ["*", *by_name]
    return f"{function.name.name}({', '.join(texts)})"


def _method_text(function: NativeFunction) -> str:
    texts = [_out_parameter(one, "self") for one in function.parts.positional]
    by_name = [_out_parameter(one) for one in function.parts.keywords]
    return f"{function.name.name}({', '.join([*texts, *(['*', *by_name] if by_name else [])])})"


def _out_parameter(argument: Argument, itself: str = "input") -> str:
    name = itself if argument.name == "self" else argument.name
    default = "" if argument.default is None else f"={default_text(argument.default, argument.type)}"
    return f"{argument.type} {name}{default}"


def _operator_values(bound: Bound) -> dict[str, Any]:
    """The values by the names of the operator: what Python calls `input` is `self` there."""
    return {"self" if name == "input" else name: value for name, value in bound.values.items()}
