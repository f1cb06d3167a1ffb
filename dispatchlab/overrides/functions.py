"""The public functions of a lab, each overridable: `functions.add(x, y)`, `x.add(y)` and `x + y`.

Operators whose names begin with `_` are no public functions. An operator of one overload becomes a function with the
parameters of its schema. One of several becomes a function that tries them in order, the one without a name first.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor import NUMBERS, Tensor, tensor
from dispatchlab.call.tensor_keys import has_handler
from dispatchlab.errors import CallError, ErrorKind
from dispatchlab.layers.lab import Lab
from dispatchlab.layers.schemas import NAMESPACE
from dispatchlab.model.schema import Argument, FunctionSchema
from dispatchlab.model.schema_types import ListType
from dispatchlab.overrides.handlers import PROTOCOL
from dispatchlab.overrides.subclass import as_subclass
from dispatchlab.overrides.torch_function import torch_function_dispatch

Function = Callable[..., Any]
_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "matmul": "matmul"}
_IN_PLACE = {"iadd": "add_", "isub": "sub_", "imul": "mul_"}


class Functions(Mapping[str, Function]):
    """The overridable functions of a lab, by attribute and by name.

    >>> from dispatchlab import Lab
    >>> from dispatchlab.overrides import Functions
    >>> functions = Functions(Lab())
    >>> functions.tensor([1.0, 2.0]) + 1
    tensor([2., 3.])

    Args:
        lab: whose operators they call.

    Attributes:
        Tensor: a class of tensors with the functions as methods and operators; results keep the class.
    """

    def __init__(self, lab: Lab) -> None:
        found: dict[str, list[Operator]] = {}
        for name in lab.dispatcher.operators():
            if name.namespace == NAMESPACE and not name.name.startswith("_"):
                found.setdefault(name.name, []).append(lab(str(name.without_namespace)))
        self._functions = {
            name: _function(name, sorted(operators, key=lambda one: _rank(one.name.overload)))
            for name, operators in sorted(found.items())
        }
        self.Tensor: type[Any] = _tensor_class(self._functions)

    def tensor(self, data: Any, **options: Any) -> Any:
        """A new tensor with methods and operators."""
        return as_subclass(tensor(data, **options), self.Tensor)

    def __getitem__(self, name: str) -> Function:
        return self._functions[name]

    def __repr__(self) -> str:
        return f"<Functions: {len(self)} functions>"

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def __getattr__(self, name: str) -> Function:
        found: Function | None = self.__dict__.get("_functions", {}).get(name)
        if found is None:
            raise AttributeError(f"there is no function {name}")
        return found


def _rank(overload: str) -> tuple[bool, bool, str]:
    return overload != "", overload != "Tensor", overload


def _function(name: str, operators: Sequence[Operator]) -> Function:
    if len(operators) > 1 or not all(map(_is_plain, operators[0].schema.arguments)):
        return _overloaded(name, operators)
    operator = operators[0]
    schema = operator.schema
    implementation, relevant = _of_schema(name, operator)
    implementation.__doc__ = f"`{schema}`"
    return torch_function_dispatch(relevant, module=__name__)(implementation)


def _is_plain(argument: Argument) -> bool:
    return argument.name.isidentifier() and not keyword.iskeyword(argument.name)


def _of_schema(name: str, operator: Operator) -> tuple[Function, Function]:
    """The implementation and its dispatcher, with the parameters of the schema."""
    schema = operator.schema
    tensors = [schema.arguments[at] for at in range(len(schema.arguments)) if schema.dispatch_arguments() >> at & 1]
    relevant = ", ".join(f"*{one.name}" if isinstance(one.type, ListType) else one.name for one in tensors)
    if len(tensors) == 1 and isinstance(tensors[0].type, ListType):
        returned = tensors[0].name
    else:
        returned = f"({relevant}{',' if relevant else ''})"
    call = ", ".join(f"{one.name}={one.name}" if one.kwarg_only else one.name for one in schema.arguments)
    constants: dict[str, Any] = {"_operator": operator}
    constants |= {
        f"_D{at}": None if one.default is None else one.default.value for at, one in enumerate(schema.arguments)
    }
    source = (
        f"def {name}({_parameters(schema, '_D')}):\n    return _operator({call})\n"
        f"def relevant({_parameters(schema, None)}):\n    return {returned}\n"
    )
    exec(compile(source, f"<function {name}>", "exec"), constants)
    return constants[name], constants["relevant"]


def _parameters(schema: FunctionSchema, default: str | None) -> str:
    parts: list[str] = []
    for at, one in enumerate(schema.arguments):
        if one.kwarg_only and "*" not in parts:
            parts.append("*")
        shown = "" if one.default is None else f"={f'{default}{at}' if default else 'None'}"
        parts.append(f"{one.name}{shown}")
    return ", ".join(parts)


_NOT_THIS_ONE = (ErrorKind.WRONG_TYPE, ErrorKind.MISSING_ARGUMENT, ErrorKind.EXTRA_ARGUMENT)


def _overloaded(name: str, operators: Sequence[Operator]) -> Function:
    def implementation(*args: Any, **kwargs: Any) -> Any:
        first: CallError | None = None
        for operator in operators:
            try:
                return operator(*args, **kwargs)
            except CallError as error:
                if error.kind not in _NOT_THIS_ONE or error.facts.get("operator") != str(operator.name):
                    raise
                first = first or error
        assert first is not None
        raise first

    def relevant(*args: Any, **kwargs: Any) -> list[Any]:
        given: list[Any] = []
        for one in (*args, *kwargs.values()):
            given += one if isinstance(one, list | tuple) else (one,)
        return given

    implementation.__name__ = implementation.__qualname__ = name
    implementation.__doc__ = "\n".join(f"`{operator.schema}`" for operator in operators)
    return torch_function_dispatch(relevant, module=__name__)(implementation)


def _tensor_class(functions: Mapping[str, Function]) -> type[Tensor]:
    members: dict[str, Any] = {"__slots__": (), "__doc__": "A tensor with the functions as methods and operators."}
    for name, function in functions.items():
        arguments = (function.__doc__ or "").partition("(")[2]
        if arguments.startswith("Tensor") and not hasattr(Tensor, name):
            members[name] = function
    for name, target in _BINARY.items():
        members[f"__{name}__"] = _operator_method(functions[target], swapped=False)
        members[f"__r{name}__"] = _operator_method(functions[target], swapped=True)
    for name, target in _IN_PLACE.items():
        members[f"__{name}__"] = _operator_method(functions[target], swapped=False)
    members["__neg__"] = functions["neg"]
    return type("Tensor", (Tensor,), members)


def _operator_method(function: Function, *, swapped: bool) -> Function:
    """`x + y` as `add(x, y)`; left to `y` when that is nothing that could handle it."""

    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, (Tensor, *NUMBERS)) and not has_handler(type(other), PROTOCOL):
            return NotImplemented
        return function(other, self) if swapped else function(self, other)

    return method
