"""The argument parser of Python functions: signatures that are tried in order, and PyTorch's messages.

    add = PythonArgParser("add", (
        "add(Tensor input, Tensor other, *, Scalar alpha=1, Tensor out=None)",
        "add(Tensor input, Scalar alpha, Tensor other, *, Tensor out=None)|deprecated",
    ))
    add.bind((x, 2, y), {}).signature.deprecated    # True, after a warning

Signatures are tried in order, deprecated ones last, and the first that fits is taken.
Source: torchgen/api/python.py, torch/csrc/utils/python_arg_parser.cpp, torch/csrc/utils/invalid_arguments.cpp.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dispatchlab.call.tensor import Generator, Tensor
from dispatchlab.call.tensor_options import Device, DType, Layout, MemoryFormat
from dispatchlab.errors import ParseError
from dispatchlab.model.schema import Argument, FunctionSchema, ListType, OptionalType, SimpleType, Type
from dispatchlab.model.schema_parser import parse_schema

NUMBERS_AS_TENSORS = frozenset(("copy_",)) | frozenset(
    f"{name}{suffix}"
    for name in ("add", "div", "divide", "floor_divide", "mul", "multiply", "sub", "subtract", "true_divide")
    for suffix in ("", "_")
)
"""Functions whose tensors may be numbers. Source: `should_allow_numbers_as_tensors`."""

# Note [What a number may stand for]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# `torch.add(x, 2)` has no overload with a number: for a few functions (those that once had one) the parser takes a
# number where a tensor is wanted. So `bind` takes `numbers`, whether it does for this function.


class PythonArgParser:
    """A Python function with several signatures.

    Args:
        name: its name.
        signatures: the signatures, as text or parsed, in the order in which they are tried; deprecated ones are last.
        numbers: whether numbers may replace tensors.

    Raises:
        ParseError: a signature cannot be read.
    """

    def __init__(self, name: str, signatures: Sequence[str | PythonSignature], *, numbers: bool = False) -> None:
        self.name = name
        parsed = [PythonSignature.parse(each) if isinstance(each, str) else each for each in signatures]
        self.signatures = tuple(sorted(parsed, key=lambda each: each.deprecated))
        self.numbers = numbers

    def bind(
        self,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        is_anything: Callable[[object], bool] = lambda value: False,
    ) -> Bound:
        """Return the first signature that the arguments fit.

        Args:
            args: the positional arguments.
            kwargs: the keyword arguments.
            is_anything: whether a value fits every parameter, as an object with a handler does.

        Raises:
            TypeError: they fit none; the text lists the signatures and why each did not fit.
        """
        reasons: dict[PythonSignature, str] = {}
        for signature in self.signatures:
            found = signature.bind(args, kwargs, numbers=self.numbers, is_anything=is_anything)
            if isinstance(found, str):
                reasons[signature] = found
                continue
            if signature.deprecated:
                self._warn(signature)
            return Bound(signature, found)
        if len(self.signatures) == 1:
            raise TypeError(found)
        raise TypeError(self._mismatch(args, kwargs, reasons))

    def _mismatch(
        self, args: Sequence[object], kwargs: Mapping[str, object], reasons: Mapping[PythonSignature, str]
    ) -> str:
        count = len(args) + len(kwargs)
        shown = [signature for signature in self.signatures if not signature.hidden]
        plausible = [each for each in shown if each.required <= count <= len(each.parameters)]
        if len(plausible) == 1:
            return reasons[plausible[0]]
        got = [_name_of_type(each) for each in args] + [
            f"{name}={_name_of_type(each)}" for name, each in kwargs.items()
        ]
        head = f"{self.name}() received an invalid combination of arguments - got ({', '.join(got)}), but expected"
        if len(shown) == 1:
            return f"{head} {shown[0]}\n      didn't match because {self._clause(reasons[shown[0]])}"
        lines = [f"{head} one of:"]
        for each in shown:
            lines += [f" * {each}", f"      didn't match because {self._clause(reasons[each])}"]
        return "\n".join(lines)

    def _clause(self, reason: str) -> str:
        """Return a reason as a clause that begins with "it"."""
        clause = reason.removeprefix(f"{self.name}(): ").replace(f"{self.name}() ", "it ", 1)
        return clause.replace("it missing", "it is missing", 1)

    def _warn(self, taken: PythonSignature) -> None:
        instead = [f"\t{self.name}{signature}" for signature in self.signatures if not signature.hidden]
        warnings.warn(
            f"This overload of {self.name} is deprecated:\n\t{self.name}{taken}\n"
            "Consider using one of the following signatures instead:\n" + "\n".join(instead),
            UserWarning,
            stacklevel=4,
        )

    def __repr__(self) -> str:
        return f"<PythonArgParser {self.name} with {len(self.signatures)} signatures>"


@dataclass(frozen=True, slots=True)
class Bound:
    """Arguments that fit: the signature, and the values of the parameters that were given."""

    signature: PythonSignature
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class PythonSignature:
    """One of the signatures of a Python function.

    Args:
        name: the function.
        parameters: the parameters in order, keyword parameters last.
        deprecated: taking it warns.
        hidden: messages do not list it.
    """

    name: str
    parameters: tuple[Parameter, ...]
    deprecated: bool = False
    hidden: bool = False

    @classmethod
    def parse(cls, text: str) -> PythonSignature:
        """Parse `add(Tensor input, Tensor other, *, Scalar alpha=1, Tensor out=None)`, with or without `|deprecated`.

        Raises:
            ParseError: it cannot be read, with the position.
        """
        head, *marks = text.split("|")
        for mark in marks:
            if mark not in ("deprecated", "hidden"):
                at = text.index(f"|{mark}") + 1
                raise ParseError(text, at, wanted="deprecated or hidden", found=repr(mark), width=len(mark))
        # NB: out=None stands for "no out", though a tensor is never None to a schema
        schema = parse_schema(
            head.replace("] out=None", "]? out=None").replace("Tensor out=None", "Tensor? out=None") + " -> ()"
        )
        return replace(cls.of(schema.name.name, schema), deprecated="deprecated" in marks, hidden=bool(marks))

    @classmethod
    def of(cls, name: str, schema: FunctionSchema) -> PythonSignature:
        """Return the signature that takes the arguments of a schema."""
        return cls(name, tuple(map(_parameter, schema.arguments)))

    @property
    def positional(self) -> int:
        """The number of arguments that can be given by position."""
        return sum(not parameter.by_name for parameter in self.parameters)

    @property
    def takes_varargs(self) -> bool:
        """True if the elements of its only positional list can be separate arguments."""
        return self.positional == 1 and isinstance(self.parameters[0].type, ListType)

    @property
    def required(self) -> int:
        """The number of arguments that must be given."""
        return sum(not parameter.optional for parameter in self.parameters)

    def __str__(self) -> str:
        parts: list[str] = []
        for parameter in self.parameters:
            if parameter.by_name and "*" not in parts:
                parts.append("*")
            parts.append(str(parameter))
        return f"({', '.join(parts)})"

    def bind(
        self,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        *,
        numbers: bool,
        is_anything: Callable[[object], bool],
    ) -> dict[str, object] | str:
        """Return the values by parameter, or why they do not fit, as a sentence."""
        takes_varargs = self.takes_varargs
        if len(args) > self.positional and not takes_varargs:
            return self._too_many(len(args))
        values: dict[str, object] = {}
        at, left = 0, len(kwargs)
        for number, one in enumerate(self.parameters):
            given, by_name = None, False
            is_given = True
            if at < len(args) and not one.by_name:
                given = args[at]
            elif one.name in kwargs:
                given, by_name = kwargs[one.name], True
            else:
                is_given = False
            if not is_given:
                if one.optional:
                    continue
                return self._missing(number, args)
            if not (given is None and one.allows_none) and not one.accepts(
                given, numbers=numbers, is_anything=is_anything
            ):
                if takes_varargs and not by_name and all(map(_is_int, args)):
                    given, at = tuple(args), len(args) - 1
                else:
                    where = "" if by_name else f" (position {at + 1})"
                    found = _name_of_type(given)
                    return f"{self.name}(): argument '{one.name}'{where} must be {one.type_name}, not {found}"
            values[one.name] = given
            if by_name:
                left -= 1
            else:
                at += 1
        if at < len(args) and len(self.parameters) > 1:
            return self._too_many(len(args))
        if left:
            return self._unexpected(len(args), kwargs)
        return values

    def _too_many(self, given: int) -> str:
        least = sum(not (parameter.optional or parameter.by_name) for parameter in self.parameters)
        most = self.positional
        takes = f"{most}" if least == most else f"from {least} to {most}"
        plural = "" if most == 1 else "s"
        verb = "was" if given == 1 else "were"
        return f"{self.name}() takes {takes} positional argument{plural} but {given} {verb} given"

    def _missing(self, start: int, args: Sequence[object]) -> str:
        missing = [
            f'"{one.name}"'
            for number, one in enumerate(self.parameters)
            if number >= start and not one.optional and (one.by_name or number >= len(args))
        ]
        return f"{self.name}() missing {len(missing)} required positional arguments: {', '.join(missing)}"

    def _unexpected(self, given: int, kwargs: Mapping[str, object]) -> str:
        known = {one.name: at for at, one in enumerate(self.parameters)}
        for name in kwargs:
            if name not in known:
                return f"{self.name}() got an unexpected keyword argument '{name}'"
            if known[name] < given:
                return f"{self.name}() got multiple values for argument '{name}'"
        return f"{self.name}() got invalid keyword arguments"


def _parameter(argument: Argument) -> Parameter:
    type_, allows_none = argument.type, False
    if isinstance(type_, OptionalType):
        type_, allows_none = type_.element, True
    text = str(argument).partition("=")[2]
    return Parameter(argument.name, type_, argument.default is not None, allows_none, text, argument.kwarg_only)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a Python signature.

    Args:
        name: its name.
        type: its type, without the `?`.
        optional: whether it can be left out.
        allows_none: None can be given.
        default: the text of its default; empty when there is none.
        by_name: it can only be given by name.
    """

    name: str
    type: Type
    optional: bool
    allows_none: bool
    default: str
    by_name: bool

    @property
    def type_name(self) -> str:
        """The type as messages show it."""
        return _type_name(self.type)

    def __str__(self) -> str:
        return f"{self.type_name} {self.name}{f' = {self.default}' if self.default else ''}"

    def accepts(self, value: object, *, numbers: bool, is_anything: Callable[[object], bool]) -> bool:
        """Return whether the value has the type, perhaps a number for a tensor: Note [What a number may stand for]."""
        if is_anything(value):
            return True
        match self.type:
            case SimpleType(name):
                return _accepts(name, value, numbers=numbers)
            case ListType(SimpleType("int" | "SymInt"), size):
                if isinstance(value, int) and not isinstance(value, bool):
                    return size is not None
                return isinstance(value, list | tuple) and all(_is_int(each) or is_anything(each) for each in value[:1])
            case ListType(element):
                inner = replace(self, type=element.element if isinstance(element, OptionalType) else element)
                may_be_none = isinstance(element, OptionalType)
                return isinstance(value, list | tuple) and all(
                    (each is None and may_be_none) or inner.accepts(each, numbers=False, is_anything=is_anything)
                    for each in value
                )
            case _:
                return False


def _name_of_type(value: object) -> str:
    """Return the type of a value as messages show it: `tuple of (int, str)` for a sequence."""
    if isinstance(value, list | tuple) and value:
        inner = ", ".join(_name_of_type(each) for each in value)
        return f"{type(value).__name__} of ({inner}{',' if len(value) == 1 and isinstance(value, tuple) else ''})"
    return type(value).__name__


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_NUMBERS = (int, float, complex)
_CLASSES: dict[str, tuple[type, ...]] = {
    **{"str": (str,), "bool": (bool,), "Tensor": (Tensor,), "ScalarType": (DType,), "Layout": (Layout,)},
    **{"Device": (Device, str), "MemoryFormat": (MemoryFormat,), "Generator": (Generator,)},
}
_TYPE_NAMES = {
    **{"Scalar": "Number", "ScalarType": "torch.dtype", "Layout": "torch.layout", "Device": "torch.device"},
    **{
        "Any": "object",
        "Storage": "torch.Storage",
        "MemoryFormat": "torch.memory_format",
        "Generator": "torch.Generator",
        "SymInt": "int",
    },
}


def _accepts(name: str, value: object, *, numbers: bool) -> bool:
    match name:
        case "Any":
            return True
        case "Tensor" if numbers and isinstance(value, _NUMBERS):
            return True
        case "Scalar":
            return isinstance(value, _NUMBERS) or (isinstance(value, Tensor) and not value.ndim)
        case "int" | "SymInt":
            return _is_int(value)
        case "float":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case _:
            return isinstance(value, _CLASSES.get(name, ()))


def _type_name(type_: Type) -> str:
    match type_:
        case ListType(element):
            return f"tuple of {'Scalar' if str(element) == 'Scalar' else _type_name(element)}s"
        case OptionalType(element):
            return _type_name(element)
        case _:
            return _TYPE_NAMES.get(str(type_), str(type_))
