"""Read schema text: `parse_schema`, `parse_name`, `parse_schema_or_name`, and `parse_inferred` for nameless schemas.

What PyTorch 2.13 accepts is accepted and gives an equal meaning, what it refuses is refused with a `ParseError` at the
place. Types are read here, defaults in schema_defaults.py, tokens in schema_tokens.py.
Source: torch/csrc/jit/frontend/function_schema_parser.cpp, torch/csrc/jit/frontend/schema_type_parser.cpp.
"""

from __future__ import annotations

from collections.abc import Collection

from dispatchlab.errors import ErrorKind, ParseError
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema import AliasInfo, Argument, FunctionSchema
from dispatchlab.model.schema_defaults import DefaultReader
from dispatchlab.model.schema_tokens import END, is_name, is_number
from dispatchlab.model.schema_type_parser import KNOWN_CLASSES, TypeReader
from dispatchlab.model.schema_types import ListType, OptionalType, Type

LARGEST_SIZE = 2**31 - 1


def parse_schema(
    text: str, *, typevars: bool = True, custom_classes: Collection[str] = KNOWN_CLASSES
) -> FunctionSchema:
    """Which schema is this text?

    Args:
        text: `ns::name.overload(Tensor x, int n=1) -> Tensor`; namespace and overload may be missing.
        typevars: whether a lower-case word that names no type is a type variable. Library blocks say no; text that
            starts with `aten::` or `prim::` may always have them.
        custom_classes: the names that may follow `__torch__.torch.classes.`; those of PyTorch 2.13 if left out.

    Raises:
        ParseError: of kind `not_a_schema` for a name, `illegal_overload`, or `other`, with the place.
    """
    found = parse_schema_or_name(text, typevars=typevars, custom_classes=custom_classes)
    if isinstance(found, FunctionSchema):
        return found
    wanted = "an argument list, as in `name(Tensor x) -> Tensor`,"
    raise ParseError(
        text, len(text.rstrip()), wanted=wanted, found="the name of an operator alone", kind=ErrorKind.NOT_A_SCHEMA
    )


def parse_name(text: str) -> OperatorName:
    """Which operator does this text name?

    Raises:
        ParseError: of kind `not_a_name` for a schema, `illegal_overload`, or `other`, with the place.
    """
    found = parse_schema_or_name(text)
    if isinstance(found, OperatorName):
        return found
    raise ParseError(
        text,
        at := text.index("("),
        wanted="the name of an operator alone",
        found="a schema",
        width=len(text) - at,
        kind=ErrorKind.NOT_A_NAME,
    )


def parse_schema_or_name(
    text: str, *, typevars: bool = True, custom_classes: Collection[str] = KNOWN_CLASSES
) -> FunctionSchema | OperatorName:
    """A schema if an argument list follows the name, else the name.

    Raises:
        ParseError: of kind `illegal_overload` or `other`, with the place.
    """
    reader = _SchemaReader(text, typevars=typevars, custom_classes=custom_classes)
    name = reader.operator_name()
    found = reader.schema(name) if reader.tokens[reader.at] == "(" else name
    reader.end()
    return found


def parse_inferred(text: str) -> FunctionSchema:
    """The schema without a name that dumps print of kernels: `(Tensor _0) -> Tensor _0`.

    Raises:
        ParseError: with the place.
    """
    reader = _SchemaReader(text, typevars=True, custom_classes=KNOWN_CLASSES)
    schema = reader.schema(OperatorName("", ""))
    reader.end()
    return schema


class _SchemaReader(TypeReader, DefaultReader):
    def end(self) -> None:
        if self.tokens[self.at] != END:
            raise self.error("the end of the text")

    def operator_name(self) -> OperatorName:
        namespace, name, overload = "", self.name("the name of an operator"), ""
        if self.tokens[self.at] == ":":
            self.at += 1
            self.expect(":")
            namespace, name = name, self.name("the name of an operator")
        if self.tokens[self.at] == ".":
            self.at += 1
            overload = self.name("the name of an overload")
            if overload == "default" or overload.startswith("__"):
                wanted = "an overload other than 'default' and names that start with '__'"
                raise self.error(wanted, at=self.at - 1, kind=ErrorKind.ILLEGAL_OVERLOAD)
        return OperatorName(namespace, name, overload)

    def schema(self, name: OperatorName) -> FunctionSchema:
        arguments, is_vararg = self.arguments()
        if self.tokens[self.at] != "->":
            raise self.error("'->' and the returns")
        self.at += 1
        returns, is_varret = self.returns()
        return FunctionSchema(name, arguments, returns, is_vararg, is_varret)

    def arguments(self) -> tuple[tuple[Argument, ...], bool]:
        tokens = self.tokens
        self.expect("(")
        found: list[Argument] = []
        kwarg_only = is_vararg = False
        first_default = 0
        if tokens[self.at] == ")":
            self.at += 1
            return (), False
        while True:
            token = tokens[self.at]
            if is_vararg:
                raise self.error("')', for '...' is the last argument,")
            if token == "*":
                kwarg_only = True
                self.at += 1
            elif token == "...":
                if first_default:
                    raise self.error("no default in front of '...'", at=first_default)
                is_vararg = True
                self.at += 1
            else:
                type_, alias = self.argument_type()
                at = self.at
                argument_name = self.name("the name of the argument")
                default = None
                if tokens[self.at] == "=":
                    self.at += 1
                    first_default = first_default or self.at
                    default = self.default(type_)
                elif first_default and not kwarg_only and not isinstance(type_, ListType):
                    wanted = f"a default for '{argument_name}', for an argument in front of it has one,"
                    raise self.error(wanted, at=at)
                found.append(Argument(argument_name, type_, default, kwarg_only, alias))
            token = tokens[self.at]
            self.at += 1
            if token == ")":
                return tuple(found), is_vararg
            if token != ",":
                raise self.error("',' or ')'", at=self.at - 1)

    def returns(self) -> tuple[tuple[Argument, ...], bool]:
        if self.tokens[self.at] == "...":
            self.at += 1
            return (), True
        if self.tokens[self.at] != "(":
            return (self.one_return(),), False
        self.at += 1
        if self.tokens[self.at] == ")":
            self.at += 1
            return (), False
        found: list[Argument] = []
        is_varret = False
        while True:
            if is_varret:
                raise self.error("')', for '...' is the last return,")
            if self.tokens[self.at] == "...":
                is_varret = True
                self.at += 1
            else:
                found.append(self.one_return())
            token = self.tokens[self.at]
            self.at += 1
            if token == ")":
                return tuple(found), is_varret
            if token != ",":
                raise self.error("',' or ')'", at=self.at - 1)

    def one_return(self) -> Argument:
        type_, alias = self.argument_type()
        name = self.tokens[self.at]
        if not is_name(name):
            return Argument("", type_, None, False, alias)  # noqa: FBT003 - keywords cost time here
        self.at += 1
        return Argument(name, type_, None, False, alias)  # noqa: FBT003 - keywords cost time here

    def argument_type(self) -> tuple[Type, AliasInfo | None]:
        type_, alias = self.type()
        if self.tokens[self.at] != "[":
            return type_, alias
        self.at += 1
        type_ = ListType(type_, self.size())
        self.expect("]")
        alias = self.container_alias(alias)
        if self.tokens[self.at] == "?":
            self.at += 1
            return OptionalType(type_), alias
        return type_, alias

    def size(self) -> int:
        token = self.tokens[self.at]
        if not is_number(token):
            raise self.error("the size of the list, or ']'")
        digits = token[: len(token) - len(token.lstrip("0123456789"))]
        if not digits or int(digits) > LARGEST_SIZE:
            raise self.error(f"a size up to {LARGEST_SIZE}")
        self.at += 1
        return int(digits)
