"""Read schemas as PyTorch prints them, which is more than its parser reads: `parse_printed`, `parse_printed_inferred`.

See Note [Texts that do not read back] in schema.py. schema_parser.py reads schemas that people write.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dispatchlab.errors import ParseError
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema import (
    ALL_NUMBERS,
    INT,
    SCALAR,
    AliasInfo,
    ClassType,
    Constant,
    FunctionSchema,
    OptionalType,
    Type,
    union_of,
)
from dispatchlab.model.schema_parser import (
    KNOWN_CLASSES,
    LARGEST_REPEAT,
    SIMPLE_TYPES,
    SchemaReader,
    int_of,
    is_number,
    is_string,
    offset_of,
)


def parse_printed(text: str) -> FunctionSchema:
    """Return the schema of a dump. Classes of any package may be in it, and `PyObject`, an opaque value of Python.

    >>> from dispatchlab.model.printed_schema import parse_printed
    >>> parse_printed("test::foo(Tensor($0! -> ) out, Device on=cuda:1) -> ()")
    parse_schema('test::foo(Tensor! out, Device on="cuda:1") -> ()')

    Raises:
        ParseError: with the offset.
    """
    return _read(text, named=True)


def parse_printed_inferred(text: str) -> FunctionSchema:
    """Return the schema without a name that a dump has for a kernel: `(Tensor _0) -> Tensor _0`.

    Raises:
        ParseError: with the offset.
    """
    return _read(text, named=False)


def _read(text: str, *, named: bool) -> FunctionSchema:
    classes = [*KNOWN_CLASSES, *re.findall(_CLASS, text)] if "__torch__" in text else KNOWN_CLASSES
    try:
        found = _schema(SchemaReader(text, typevars=True, custom_classes=classes), named=named)
    except ParseError as refusal:
        try:
            return _schema(_PrintedReader(text, typevars=True, custom_classes=classes), named=named)
        except ParseError:
            raise refusal from None
    if not _MISREAD.search(text) or str(found) == text:
        return found
    return _schema(_PrintedReader(text, typevars=True, custom_classes=classes), named=named)


def _schema(reader: SchemaReader, *, named: bool) -> FunctionSchema:
    schema = reader.schema(reader.operator_name() if named else OperatorName("", ""))
    reader.end()
    return schema


_CLASS = r"__torch__\.torch\.classes\.([A-Za-z0-9_.]+)"
_OPAQUE = "PyObject"
_MISREAD = re.compile(r"Union\(|\b(?:float|complex)(?:\([^()]*\))? \w+=-?[0-9]+(?![0-9.e])")
"""What is printed of one value, and reads as another: a union with `Scalar`, an int for a float."""
_ESCAPE = r"""\\([\\'"abfnrtv]|[)-7]{3})"""
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", "'": "'", '"': '"'}
_ENDS = frozenset((",", ")", "]", ""))


class _PrintedReader(SchemaReader):
    """A reader of schemas, and of the additions that only printers make."""

    __slots__ = ()

    def other_type(self) -> tuple[Type, AliasInfo | None]:
        if self.tokens[self.at] == _OPAQUE:
            self.at += 1
            return ClassType("python.Object"), self.alias()
        type_, alias = super().other_type()
        return (type_, self.alias()) if alias is None and self.tokens[self.at] == "(" else (type_, alias)

    def optional(self, type_: Type, alias: AliasInfo | None) -> tuple[Type, AliasInfo | None]:
        if type_ == ALL_NUMBERS:
            self.at += 1
            return OptionalType(type_), alias
        found, alias = super().optional(type_, alias)
        # `Tensor(a)?[]` prints as `Tensor?(a)[]`
        return (found, self.alias()) if self.tokens[self.at] == "(" else (found, alias)

    def alias(self) -> AliasInfo | None:
        if self.tokens[self.at] != "(":
            return super().alias()
        self.at += 1
        before = after = self._sets()
        is_write = self.tokens[self.at] == "!"
        self.at += is_write
        if self.tokens[self.at] == "->":
            self.at += 1
            after = self._sets()
        self.expect(")")
        return AliasInfo(before, after, is_write)

    def _sets(self) -> frozenset[str]:
        """Return alias sets; sets that `!` made have names such as `$0`. The result may be empty."""
        found: set[str] = set()
        while self.tokens[self.at] not in (")", "!", "->", ""):
            if self.tokens[self.at] == "$" and is_number(self.tokens[self.at + 1]):
                found.add(f"${self.tokens[self.at + 1]}")
                self.at += 2
            elif self.tokens[self.at] == "*":
                found.add("*")
                self.at += 1
            else:
                found.add(self.name("an alias set, such as 'a' or '*'"))
            if self.tokens[self.at] == "|":
                self.at += 1
        return frozenset(found)

    def union_type(self) -> Type:
        """Return a union with `Scalar` for all numbers, with or without a comma before it."""
        start = self.at - 1
        self.expect("(")
        members: list[Type] = []
        while self.tokens[self.at] != ")":
            token = self.tokens[self.at]
            if token == ",":
                self.at += 1
            elif token.endswith("Scalar") and self.tokens[self.at + 1] == ")" and token[:-6] in SIMPLE_TYPES:
                members += [SIMPLE_TYPES[token[:-6]], SCALAR]
                self.at += 1
            else:
                members.append(self.fake_type())
        self.at += 1
        if members == [SCALAR]:
            return ALL_NUMBERS
        try:
            return union_of(members)
        except ValueError as error:
            raise self.error("another type", at=start, found=f"'Union': {error}") from None

    def list(self, kind: str, size: int | None, names: Mapping[str, int]) -> tuple[Constant, ...]:
        if self.tokens[self.at] == "[" or kind != str(INT):
            return super().list(kind, size, names)
        if size is not None and size > LARGEST_REPEAT:
            raise self.error(f"a list, for a constant is repeated at most {LARGEST_REPEAT} times,")
        return (self.constant(kind, names),) * max(size or 0, 2)  # how many there were is lost without a size

    def constant(self, kind: str, names: Mapping[str, int]) -> Constant:
        """Return a constant of its type; any other text is a string that lost its quotes."""
        start = self.at
        token = self.tokens[start]
        if is_string(token):
            return super().constant(kind, names)
        end = start
        while self.tokens[end] not in _ENDS:
            end += 1
        length = end - start
        if length > 2 and self.tokens[end - 1].endswith("j") and self.tokens[end - 2] in ("+", "-"):
            self.at = end
            return _complex("".join(self.tokens[start:end]))
        if kind in ("float", "complex") and re.fullmatch(r"-?[0-9]+", "".join(self.tokens[start:end])):
            value = int_of("".join(self.tokens[start:end]))  # as a name gives it, `strided` say
            if value is None:
                raise self.error("a number that fits")
            self.at = end
            return value
        if length == 1 and (token in names or token in _CONSTANT_NAMES or is_number(token)):
            return super().constant(kind, names)
        if length == 2 and token == "-" and is_number(self.tokens[start + 1]):
            return super().constant(kind, names)
        self.at = end
        return self._raw(start, end)

    def device(self) -> str:
        if is_string(self.tokens[self.at]):
            return super().device()
        start = self.at
        self.name("a device")
        if self.tokens[self.at] == ":":
            self.at += 1
            if not is_number(self.tokens[self.at]):
                raise self.error("the number of the device")
            self.at += 1
        return self._raw(start, self.at)

    def string(self) -> str:
        token = self.tokens[self.at]
        if token[:1] != '"' or token.startswith('"""'):
            return super().string()
        self.at += 1
        raw = re.sub(_ESCAPE, _unescaped, token[1:-1])
        return raw.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")

    def _raw(self, start: int, end: int) -> str:
        (first, _), (last, _) = offset_of(self.text, start), offset_of(self.text, end)
        return self.text[first:last].rstrip() if end > start else ""


_CONSTANT_NAMES = frozenset(("True", "False", "None"))


def _complex(text: str) -> complex:
    sign = max(text.rfind("+", 0, -1), text.rfind("-", 0, -1))
    while text[sign - 1] in "eE":
        sign = max(text.rfind("+", 0, sign), text.rfind("-", 0, sign))
    return complex(float(text[:sign]), float(text[sign:-1]))


def _unescaped(escape: re.Match[str]) -> str:
    if len(escape[1]) == 1:
        return _ESCAPED[escape[1]]
    # NB: upstream counts in signed bytes, so that digits of one above 127 are characters below "0"
    byte = sum((ord(digit) - ord("0")) * 8 ** (2 - at) for at, digit in enumerate(escape[1])) & 255
    return chr(byte + 0xDC00) if byte > 127 else chr(byte)
