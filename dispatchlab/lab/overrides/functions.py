"""The public functions of a lab, each overridable: `functions.add(x, y)`, `x.add(y)` and `x + y`.

Operators whose names begin with `_` are not public functions. An operator of one overload becomes a function with the
parameters of its schema. One of several becomes a function that tries them in order, the one without a name first.
A method is another function than the function of its name, as in PyTorch: handlers can tell which was called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from dispatchlab.call.operators import Operator
from dispatchlab.call.tensor import Tensor, tensor
from dispatchlab.call.torch_handlers import FUNCTION, FunctionState, function_thread, handles, special
from dispatchlab.errors import CallError, ErrorKind
from dispatchlab.lab.kernels import refused
from dispatchlab.lab.lab import Lab
from dispatchlab.lab.overrides.functional import adopted, composed_functions, inner_functions
from dispatchlab.lab.overrides.handlers import PLAIN, call_c_handlers
from dispatchlab.lab.overrides.subclass import unseen_by_modes
from dispatchlab.lab.overrides.tensor_methods import tensor_methods
from dispatchlab.lab.overrides.torch_functions import (
    OverridableFunction,
    add_property,
    in_python,
    left_to_the_other,
    torch_functions,
)
from dispatchlab.lab.schemas import NAMESPACE
from dispatchlab.model.schema import TENSOR, FunctionSchema, SimpleType

Function = Callable[..., Any]


class Functions(Mapping[str, Function]):
    """The overridable functions of a lab, by attribute and by name.

    >>> from dispatchlab import Lab
    >>> from dispatchlab.lab.overrides import Functions
    >>> functions = Functions(Lab())
    >>> functions.tensor([1.0, 2.0]) + 1
    tensor([2., 3.])

    There are also `unique`, `tensordot` and `broadcast_tensors`, which are composed of operators.

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
        implementations = {
            base: _implementation(
                base, sorted(operators, key=lambda one: (one.name.overload not in ("", "Tensor"), one.name.overload))
            )
            for base, operators in sorted(found.items())
        }
        wrap = functools.partial(_overridable, self.Tensor, lab)
        implementations["tensor"] = tensor
        made = {base: wrap(one, base) for base, one in implementations.items()}
        inner = inner_functions(lab, wrap, made["unique_dim"], _implementation("_unique2", [lab("_unique2")]))
        inner |= {"matmul": made["matmul"]}
        composed = composed_functions(lab, inner)
        methods, asking = tensor_methods(lab, self.Tensor, implementations, composed, inner)
        made |= {base: one for base, one in inner.items() if base not in composed}
        known = {f"functional.{base}": one for base, one in composed.items()}
        known |= {f"Tensor.{base}": one for base, one in methods.items()}
        made |= {f"Tensor.{base}": one for base, one in asking.items()}
        self._functions = _all_functions(made, known, wrap)
        self.tensor = made["tensor"]
        for full, function in self._functions.items():
            base = full.removeprefix("Tensor.")
            if base != full and (base in {*methods, *asking, *_COMPARISONS} or base not in vars(Tensor)):
                setattr(self.Tensor, base, function)
        self.Tensor.__neg__ = self.Tensor.neg
        computed = _computed(lab, self.Tensor)
        for full, entry in sorted(torch_functions().items(), key=lambda one: one[1].facts != ()):
            if entry.mark == "@":
                if entry.facts:
                    self._functions[f"{full}.__get__"] = self._functions[entry.facts[0]]
                    continue
                added = add_property(self.Tensor, entry, computed.get(entry.base))
                self._functions[f"{full}.__get__"] = added.__get__
                if added.fset is not None:
                    self._functions[f"{full}.__set__"] = added.__set__
        self._names = {one: full.removeprefix("functional.") for full, one in reversed(self._functions.items())}

    def resolve_name(self, function: object) -> str | None:
        """Return the name of a function for a handler: `add`, `Tensor.add`; None for a function from elsewhere."""
        named: Mapping[Any, str] = self._names
        return named.get(function)

    def __getitem__(self, name: str) -> Function:
        return self._functions.get(f"functional.{name}") or self._functions[name]

    def __repr__(self) -> str:
        return f"<Functions: {len(self)} functions>"

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name.partition(".")[0] for name in self._functions)})

    def __getattr__(self, name: str) -> Any:
        """Return a function, or the functions of a module such as `linalg`."""
        functions = self.__dict__.get("_functions", {})
        found = functions.get(f"functional.{name}") or functions.get(name)
        if found is None:
            inside = {
                one.removeprefix(f"{name}."): made for one, made in functions.items() if one.startswith(f"{name}.")
            }
            if not inside:
                raise AttributeError(f"there is no function {name}")
            found = SimpleNamespace(**{one: made for one, made in inside.items() if "." not in one})
            for below in sorted({one.partition(".")[0] for one in inside if "." in one}):
                setattr(found, below, self.__getattr__(f"{name}.{below}"))
        return found


def _all_functions(
    made: Mapping[str, Function], known: Mapping[str, Function], wrap: Callable[[Function, str], Function]
) -> dict[str, Function]:
    """Return every function by name: the functions of PyTorch, and those of the lab.

    Args:
        made: the overridable functions.
        known: the other functions, which know no handlers.
        wrap: makes a C function overridable, with this name.
    """
    functions = {**made}
    later: list[OverridableFunction] = []
    for name, entry in torch_functions().items():
        if name in functions or entry.mark == "@":
            continue
        implementation = known.get(name) or _without_kernel(name)
        if entry.mark == ":":
            functions[name] = entry.made(implementation)
        elif entry.mark == "!":
            functions[name] = in_python(implementation, name)
        elif entry.mark == "-":
            functions[name] = implementation
        elif entry.mark:
            later.append(entry)
        else:
            functions[name] = wrap(implementation, name)
    for name, implementation in known.items():
        if name not in functions and name not in torch_functions():
            functions[name] = wrap(implementation, name)
    for entry in later:
        functions[entry.name] = entry.linked(functions)
    return functions


def _without_kernel(name: str) -> Function:
    def without_kernel(*args: Any, **kwargs: Any) -> Any:
        raise refused(f"{name} has no kernel here: it only calls the handlers of its arguments")

    return without_kernel


_COMPARISONS = ("__lt__", "__le__", "__gt__", "__ge__", "__ne__")
_TENSOR = "A tensor with the functions as methods and operators."


_NOT_THIS_ONE = (ErrorKind.WRONG_TYPE, ErrorKind.MISSING_ARGUMENT, ErrorKind.EXTRA_ARGUMENT)


def _implementation(name: str, operators: Sequence[Operator]) -> Function:
    """Return a function that tries the overloads in order."""
    schema = operators[0].schema
    options: dict[str, object] = (
        {"pin_memory": False} if any(one.name == "pin_memory" for one in schema.arguments) else {}
    )
    if options and TENSOR not in [one.type for one in schema.arguments]:
        options["device"] = "cpu"

    def implementation(*args: Any, **kwargs: Any) -> Any:
        kwargs |= {option: value for option, value in options.items() if kwargs.get(option) is None}
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
    implementation.__dict__["schema"] = schema
    return implementation


def _overridable(own: type[Tensor], lab: Lab, implementation: Function, name: str) -> Function:
    """Return a function that calls handlers as upstream's C functions do. See Note [Functions of C]."""
    known = torch_functions().get(name)
    entry = known or _entry_of(name, getattr(implementation, "schema", None))
    is_operator = name.startswith("Tensor.__") and bool(entry and entry.facts)
    is_lone = name.startswith("Tensor.") and entry is not None and not entry.facts

    def candidates(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterable[Any]:
        for one in (*args, *kwargs.values()):
            if isinstance(one, list | tuple):
                yield from one
            else:
                yield one

    def run(*args: Any, **kwargs: Any) -> Any:
        if kwargs and known is not None:
            if "input" in kwargs:
                args, kwargs = (kwargs["input"], *args), {one: kwargs[one] for one in kwargs if one != "input"}
            out = kwargs.pop("out", None) if "out" in kwargs else None
            if out is not None:
                return write_out(lab, name, run(*args, **kwargs), out)
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
        counting = candidates(args, kwargs) if entry is None else candidates(_in_order(entry, args, kwargs), {})
        return call_c_handlers(public, run, counting, args, kwargs, is_lone=is_lone)

    functools.update_wrapper(public, implementation)
    public.__name__ = name.rpartition(".")[2]
    public.__qualname__ = name
    public.__module__ = __name__
    public.__dict__["_implementation"] = run
    public.__dict__["alias"] = unseen_by_modes(lab.alias)
    if is_operator:
        public = functools.update_wrapper(left_to_the_other(public, public.__name__), public)
    return public


def _entry_of(name: str, schema: FunctionSchema | None) -> OverridableFunction | None:
    """Return the arguments of a function that only the lab has: those of its operator; None without an operator."""
    if schema is None:
        return None
    taken = replace(schema, arguments=schema.arguments[1:]) if name.startswith("Tensor.") else schema
    arguments = str(taken).partition("(")[2].rpartition(" -> ")[0]
    return OverridableFunction(name, "", (f"({arguments}",))


def _in_order(entry: OverridableFunction, args: tuple[Any, ...], kwargs: Mapping[str, object]) -> tuple[Any, ...]:
    """Return the arguments of a function of PyTorch in the order of its parameters.

    Raises:
        CallError: its parser refuses them.
    """
    itself = args[:1] if entry.is_method else ()
    if entry.is_method and not (args and isinstance(args[0], Tensor)):
        what = type(args[0]).__name__ if args else "no argument"
        raise CallError(ErrorKind.WRONG_TYPE, f"{entry.name} needs a tensor first, and got {what}")
    try:
        bound = entry.parser.bind(args[len(itself) :], kwargs, _is_anything)
    except TypeError as error:
        raise CallError(ErrorKind.WRONG_TYPE, str(error)) from None
    # Only the handlers of arguments count that are given and fit because of a handler.
    counting = [one.name for one in bound.signature.parameters if one.type != _ANY]
    values = tuple([bound.values[name] for name in counting if name in bound.values])
    # Integers that are given one by one come before the tensor itself.
    one_by_one = itself and bound.signature.takes_varargs and len(args) > 1 and not isinstance(args[1], list | tuple)
    return (*values[:1], *itself, *values[1:]) if one_by_one else (*itself, *values)


_ANY = SimpleType("Any")


def _is_anything(value: object) -> bool:
    enabled = not special or function_thread.state is FunctionState.ENABLED
    return enabled and handles(value, FUNCTION) and not isinstance(value, Tensor)


def write_out(lab: Lab, name: str, result: Any, out: Any) -> Any:
    """Write a result into the given tensor, which takes its shape when it has no elements.

    Raises:
        CallError: the shapes differ, or there are several results.
    """
    if not isinstance(out, Tensor) or not isinstance(result, Tensor):
        raise refused(f"{name} writes one result into one tensor here: leave out=None")
    if result.requires_grad:
        raise refused(f"{name}(): functions with out=... arguments don't support automatic differentiation")
    if out.shape != result.shape:
        raise refused(f"{name} writes no result of shape {list(result.shape)} into a tensor of shape {list(out.shape)}")
    lab("copy_")(out, result)
    return out


def _computed(lab: Lab, own: type[Tensor]) -> dict[str, Function]:
    """Return the attributes of tensors that are computed, by name."""
    return {
        "T": lambda self: adopted(_transposed(lab, self, last=False), own),
        "mT": lambda self: adopted(_transposed(lab, self, last=True), own),
        "_base": lambda self: self.base,
        "_version": lambda self: self.version,
        "itemsize": lambda self: self.dtype.numpy.itemsize,
        "is_cpu": lambda self: self.device.type.name == "CPU",
        "is_cuda": lambda self: self.device.type.name == "CUDA",
        "is_meta": lambda self: self.device.type.name == "Meta",
    }


def _transposed(lab: Lab, self: Tensor, *, last: bool) -> Any:
    dims = [*range(self.ndim)]
    return lab("permute")(self, [*dims[:-2], *dims[:-3:-1]] if last else dims[::-1])


_NUMBERS = frozenset((int, float, bool, complex, type(None)))


def adopt(result: Any, own: type[Tensor]) -> None:
    """Give the plain tensors of a result the class that has methods."""
    for one in result if isinstance(result, list | tuple) else (result,):
        adopted(one, own)
