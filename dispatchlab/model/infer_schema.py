"""Infer the schema of a Python function from its annotations, as PyTorch does from a C++ kernel's type.

Arguments and returns are named `_0`, `_1`, ...; a leading `DispatchKeySet` parameter is no argument, and a tuple of one
is one return. Types are recognised by name, so that nothing has to be imported for them: `Tensor`, `torch.dtype`
(ScalarType), `list[Tensor]`, `Scalar | None`, in annotations as well as in text.
Source: aten/src/ATen/core/op_registration/infer_schema.h.
"""

from __future__ import annotations

import ast
import inspect
import threading
import types
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache

from dispatchlab.errors import ErrorKind, RegistrationError, did_you_mean
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema import (
    NONE,
    Argument,
    DictType,
    FunctionSchema,
    ListType,
    TupleType,
    Type,
    optional_of,
    union_of,
)
from dispatchlab.model.schema_parser import SIMPLE_TYPES

TORCH_NAMES = {
    "torch.dtype": "ScalarType",
    "torch.device": "Device",
    "torch.layout": "Layout",
    "torch.memory_format": "MemoryFormat",
    "torch.qscheme": "QScheme",
}
KEY_SET = "DispatchKeySet"
_LISTS = frozenset(("list", "List", "Sequence", "Iterable"))
_TUPLES = frozenset(("tuple", "Tuple"))
_DICTS = frozenset(("dict", "Dict", "Mapping"))
_ALIASES = {"Number": "Scalar"}


def infer_schema(function: Callable[..., object]) -> FunctionSchema:
    """Return the schema that follows from the annotations of `function`; it has no name.

    Raises:
        RegistrationError: of kind `cannot_infer_schema`; it names the parameter that has no usable annotation.
    """
    name = getattr(function, "__qualname__", None) or repr(function)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise _refused(name, "the function", "has no signature", "") from None
    known = getattr(inspect.unwrap(function), "__globals__", {})
    parameters = list(signature.parameters.values())
    if parameters and _is_key_set(parameters[0].annotation):
        parameters = parameters[1:]
    arguments = []
    for parameter in parameters:
        where = f"parameter '{parameter.name}'"
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise _refused(name, where, "takes any number of values", "")
        arguments.append(_read(name, where, parameter.annotation, known))
    returns = _read(name, "the return", signature.return_annotation, known)
    given = () if returns == NONE else returns.elements if isinstance(returns, TupleType) else (returns,)
    return FunctionSchema(OperatorName("", ""), _numbered(tuple(arguments)), _numbered(given))


def takes_key_set(function: Callable[..., object]) -> bool:
    """Return whether the first parameter of `function` is a `DispatchKeySet`, which is no operator argument."""
    parameters = list(inspect.signature(function).parameters.values())
    return bool(parameters) and _is_key_set(parameters[0].annotation)


def _numbered(types_: tuple[Type, ...]) -> tuple[Argument, ...]:
    return tuple(Argument(f"_{at}", type_) for at, type_ in enumerate(types_))


def _is_key_set(annotation: object) -> bool:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return text.rpartition(".")[2] == KEY_SET


def _read(function: str, where: str, annotation: object, known: Mapping[str, object]) -> Type:
    if annotation is inspect.Parameter.empty:
        raise _refused(function, where, "has no annotation", "")
    try:
        return _AnnotationReader(known).type(annotation)
    except _NoTypeError as error:
        shown = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        word, _, hint = str(error).partition("; ")
        reason = f"is annotated with {shown!r}, in which {word} is not a type of schemas{hint and f'; {hint}'}"
        raise _refused(function, where, reason, shown) from None


def _refused(function: str, where: str, reason: str, annotation: str) -> RegistrationError:
    message = (
        f"cannot infer a schema from {function}: {where} {reason}; "
        "annotate every parameter and the return (Tensor, int, list[Tensor], Scalar | None, ...) or give the schema"
    )
    facts = {"function": function, "where": where.replace("'", ""), "annotation": annotation}
    return RegistrationError(ErrorKind.CANNOT_INFER_SCHEMA, message, facts)


class _NoTypeError(Exception):
    pass


class _AnnotationReader:
    """Reads one annotation, as a value or as text."""

    def __init__(self, known: Mapping[str, object]) -> None:
        self.known = dict(known)

    def type(self, annotation: object) -> Type:
        origin, parameters = typing.get_origin(annotation), typing.get_args(annotation)
        if isinstance(annotation, str):
            return self.text(annotation)
        if isinstance(annotation, typing.ForwardRef):
            return self.text(annotation.__forward_arg__)
        if annotation is None:
            return NONE
        if origin is typing.Annotated:
            return self.type(parameters[0])
        if origin in (typing.Union, types.UnionType):
            return self.union([self.type(parameter) for parameter in parameters])
        if origin is not None:
            return self.generic(origin.__name__, list(parameters))
        if annotation is typing.Any:
            return SIMPLE_TYPES["Any"]
        name = getattr(annotation, "__qualname__", None) or getattr(annotation, "__name__", None)
        if name is None:
            raise _NoTypeError(repr(annotation))
        return self.named(f"{getattr(annotation, '__module__', '')}.{name}")

    def text(self, text: str) -> Type:
        with suppress(SyntaxError):
            return self.node(_parsed(text.strip()))
        raise _NoTypeError(repr(text))

    def node(self, node: ast.expr) -> Type:
        match node:
            case ast.Constant(None):
                return NONE
            case ast.Constant(str(text)):
                return self.text(text)
            case ast.Name(word) if word in self.known and word not in SIMPLE_TYPES:
                return self.type(self.known.pop(word))  # NB: popped, for an alias may speak of itself
            case ast.Name() | ast.Attribute():
                return self.named(ast.unparse(node))
            case ast.BinOp(left, ast.BitOr(), right):
                return self.union([self.node(left), self.node(right)])
            case ast.Subscript(value, index):
                parameters = list(index.elts) if isinstance(index, ast.Tuple) else [index]
                word = ast.unparse(value).rpartition(".")[2]
                if word == "Annotated":
                    return self.node(parameters[0])
                if word in ("Optional", "Union"):
                    members = [self.node(parameter) for parameter in parameters]
                    return self.union([*members, NONE] if word == "Optional" else members)
                return self.generic(word, list(parameters))
            case _:
                raise _NoTypeError(repr(ast.unparse(node)))

    def generic(self, word: str, parameters: list[object]) -> Type:
        if any(item is ... or (isinstance(item, ast.Constant) and item.value is ...) for item in parameters):
            raise _NoTypeError(f"'{word}' of any length")
        inner = [self.node(item) if isinstance(item, ast.expr) else self.type(item) for item in parameters]
        if word in _LISTS and len(inner) == 1:
            return ListType(inner[0])
        if word in _TUPLES:
            return TupleType(tuple(inner))
        if word in _DICTS and len(inner) == 2:
            return DictType(inner[0], inner[1])
        raise _NoTypeError(repr(word))

    def named(self, dotted: str) -> Type:
        word = dotted.rpartition(".")[2]
        name = TORCH_NAMES.get(dotted) or _ALIASES.get(word, word)
        found = SIMPLE_TYPES.get(name)
        if found is None:
            raise _NoTypeError(f"{dotted.removeprefix('builtins.')!r}{did_you_mean(word, SIMPLE_TYPES)}")
        return found

    def union(self, members: list[Type]) -> Type:
        try:
            if len(members) == 2 and NONE in members:
                return optional_of(members[members.index(NONE) - 1])
            return union_of(members)
        except ValueError as error:
            raise _NoTypeError(f"the union ({error})") from None


_parsing = threading.Lock()


@lru_cache(maxsize=1024)
def _parsed(text: str) -> ast.expr:
    # Python 3.11 counts the depth of all threads that make nodes together, and raises SystemError now and then.
    with _parsing:
        return ast.parse(text, mode="eval").body
