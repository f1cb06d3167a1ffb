"""The public functions of a lab, each overridable: `functions.add(x, y)`, `x.add(y)` and `x + y`.

Operators whose names begin with `_` are no public functions. An operator of one overload becomes a function with the
parameters of its schema. One of several becomes a function that tries them in order, the one without a name first.
A method is another function than the function of its name, as in PyTorch: handlers can tell which was called.
"""

from __future__ import annotations

import functools
import keyword
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dispatchlab.call.call_signature import CallSignature
from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor import Tensor, tensor
from dispatchlab.call.torch_handlers import FUNCTION, FunctionState, function_thread, has_handler, special
from dispatchlab.errors import CallError, ErrorKind
from dispatchlab.layers.lab import Lab
from dispatchlab.layers.schemas import NAMESPACE
from dispatchlab.model.schema import Argument, FunctionSchema
from dispatchlab.overrides.functional import adopted, composed_functions, inner_functions
from dispatchlab.overrides.handlers import PLAIN, call_c_handlers
from dispatchlab.overrides.subclass import unseen_by_modes
from dispatchlab.overrides.tensor_methods import tensor_methods

Function = Callable[..., Any]


class Functions(Mapping[str, Function]):
    """The overridable functions of a lab, by attribute and by name.

    >>> from dispatchlab import Lab
    >>> from dispatchlab.overrides import Functions
    >>> functions = Functions(Lab())
    >>> functions.tensor([1.0, 2.0]) + 1
    tensor([2., 3.])

    Besides those of the operators there are `unique`, `tensordot`, `lu` and `broadcast_tensors`, composed of them.

    Args:
        lab: whose operators they call.

    Attributes:
        Tensor: the class of tensors with the functions as methods and operators; results have it. A class that derives
            from it is kept by results, too.
        tensor: makes a tensor of numbers, with the arguments of `dispatchlab.tensor`.
    """

    def __init__(self, lab: Lab) -> None:
        self.Tensor: type[Any] = type("Tensor", (Tensor,), {"__slots__": (), "__doc__": _TENSOR, PLAIN: True})
        found: dict[str, list[Operator]] = {}
        for name in lab.dispatcher.operators():
            if name.namespace == NAMESPACE and not name.name.startswith("_"):
                found.setdefault(name.name, []).append(lab(str(name.without_namespace)))
        wrap = functools.partial(_overridable, self.Tensor, lab)
        implementations = {
            base: _implementation(base, sorted(operators, key=lambda one: _rank(one.name.overload)))
            for base, operators in sorted(found.items())
        }
        functions = {base: wrap(one, base) for base, one in implementations.items()}
        self.tensor = wrap(tensor, "tensor")
        inner = inner_functions(lab, wrap, functions["unique_dim"], _implementation("_unique2", [lab("_unique2")]))
        inner["matmul"] = functions["matmul"]
        methods = tensor_methods(lab, self.Tensor, implementations, wrap, inner)
        for base, method in methods.items():
            setattr(self.Tensor, base, method)
        self._functions = {**functions, **composed_functions(lab, inner)}
        self._names = {id(one): name for name, one in (*self._functions.items(), ("tensor", self.tensor))}
        self._names |= {id(one): f"Tensor.{name}" for name, one in methods.items() if not name.startswith("__")}
        for base, method in methods.items():
            self._names.setdefault(id(method), f"Tensor.{base}")

    def resolve_name(self, function: object) -> str | None:
        """The name of a function as a handler gets it, from here: `add`, `Tensor.add`; None for one from elsewhere."""
        return self._names.get(id(function))

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


_TENSOR = "A tensor with the functions as methods and operators."


def _rank(overload: str) -> tuple[bool, bool, str]:
    return overload != "", overload != "Tensor", overload


def _implementation(name: str, operators: Sequence[Operator]) -> Function:
    made = _of_operators(name, operators)
    made.__dict__["signatures"] = tuple([one.table.signature for one in operators])
    return made


def _of_operators(name: str, operators: Sequence[Operator]) -> Function:
    if len(operators) > 1 or not all(map(_is_plain_argument, operators[0].schema.arguments)):
        return _overloaded(name, operators)
    implementation = _of_schema(name, operators[0])
    implementation.__doc__ = f"`{operators[0].schema}`"
    return implementation


def _is_plain_argument(argument: Argument) -> bool:
    return argument.name.isidentifier() and not keyword.iskeyword(argument.name)


def _of_schema(name: str, operator: Operator) -> Function:
    """The implementation, with the parameters of the schema."""
    schema = operator.schema
    call = ", ".join(f"{one.name}={one.name}" if one.kwarg_only else one.name for one in schema.arguments)
    constants: dict[str, Any] = {"_operator": operator, "__name__": __name__}
    constants |= {
        f"_D{at}": None if one.default is None else one.default.value for at, one in enumerate(schema.arguments)
    }
    source = f"def {name}({_parameters(schema)}):\n    return _operator({call})\n"
    exec(compile(source, f"<function {name}>", "exec"), constants)
    made: Function = constants[name]
    return made


def _parameters(schema: FunctionSchema) -> str:
    parts: list[str] = []
    for at, one in enumerate(schema.arguments):
        if one.kwarg_only and "*" not in parts:
            parts.append("*")
        parts.append(one.name + ("" if one.default is None else f"=_D{at}"))
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

    implementation.__name__ = implementation.__qualname__ = name
    implementation.__doc__ = "\n".join(f"`{operator.schema}`" for operator in operators)
    return implementation


def _overridable(own: type[Tensor], lab: Lab, implementation: Function, name: str) -> Function:
    """A function whose handlers are called as those of upstream's C functions; see Note [Functions of C]."""
    positions = _positions(implementation)
    signatures: tuple[CallSignature, ...] = getattr(implementation, "signatures", ())
    is_lone = name in _LONE or (name.startswith("Tensor.") and [len(one.arguments) for one in signatures] == [1])

    def candidates(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterable[Any]:
        named = sorted(kwargs, key=lambda one: positions.get(one, len(positions))) if len(kwargs) > 1 else kwargs
        for one in (*args, *[kwargs[each] for each in named]):
            if isinstance(one, list | tuple):
                yield from one
            else:
                yield one

    def run(*args: Any, **kwargs: Any) -> Any:
        result = implementation(*args, **kwargs)
        if type(result) is Tensor or type(result) is tuple or type(result) is list:
            given = [type(one) for one in candidates(args, kwargs)]
            if own in given or Tensor not in given:
                adopt(result, own)
        return result

    def public(*args: Any, **kwargs: Any) -> Any:
        if not special and not kwargs:
            for one in args:
                kind = type(one)
                if kind is not own and kind is not Tensor and kind not in _NUMBERS:
                    break
            else:
                return run(*args)
        if signatures:
            _check_types(signatures, args, kwargs)
        return call_c_handlers(public, run, candidates(args, kwargs), args, kwargs, is_lone=is_lone)

    functools.update_wrapper(public, implementation)
    public.__name__ = name.rpartition(".")[2]
    public.__qualname__ = name
    public.__module__ = __name__
    public.__dict__["_implementation"] = run
    public.__dict__["alias"] = unseen_by_modes(lab.alias)
    return public


def _check_types(signatures: Sequence[CallSignature], args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """Check all arguments that have no handler, as upstream's parser does before handlers are called.

    Raises:
        CallError: no operator takes them, whatever those with handlers stand for.
    """
    first: CallError | None = None
    for signature in signatures:
        try:
            signature.check_given(args, kwargs, _is_anything)
        except CallError as error:
            first = first or error
        else:
            return
    assert first is not None
    raise first


def _is_anything(value: object) -> bool:
    enabled = not special or function_thread.state is FunctionState.ENABLED
    return enabled and has_handler(type(value), FUNCTION) and not isinstance(value, Tensor)


_LONE = frozenset(
    f"Tensor.{name}" for name in ("item", "tolist", "__bool__", "__complex__", "__float__", "__index__", "__int__")
)
_NUMBERS = frozenset((int, float, bool, complex, type(None)))


def _positions(implementation: Function) -> dict[str, int]:
    code = getattr(implementation, "__code__", None)
    names = () if code is None else code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return {name: at for at, name in enumerate(names)}


def adopt(result: Any, own: type[Tensor]) -> None:
    """Give the plain tensors of a result the class that has methods."""
    for one in result if isinstance(result, list | tuple) else (result,):
        adopted(one, own)
