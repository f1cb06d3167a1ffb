"""The C++ expressions of derivatives.yaml as values: calls, methods, arithmetic, conditions, lists.

    maybe_multiply(grad.t().mm(self.conj()), alpha)      Call("maybe_multiply", (), (Method(...), Name("alpha")))

A name keeps its namespaces (`at::sum_to`), a call its template arguments. Comments are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from dispatchlab.errors import ParseError


@dataclass(frozen=True, slots=True)
class Name:
    """A variable or a constant: `grad`, `at::Reduction::None`."""

    name: str


@dataclass(frozen=True, slots=True)
class Number:
    """A number, as it is written: `2.`, `-1` is a `Unary`."""

    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """A string, without its quotes."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function or a constructor with its arguments: `std::vector<c10::SymInt>(2, 0)`."""

    function: str
    template: tuple[str, ...]
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a value: `grad.t()`, or `bias->sym_sizes()` with `pointer`."""

    target: Expression
    name: str
    arguments: tuple[Expression, ...]
    pointer: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """An element: `grads[0]`."""

    target: Expression
    index: Expression


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x`, `!x`, or `*x`."""

    operator: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Binary:
    """`x * y`, `x <= y`, `x && y`."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Choice:
    """`condition ? yes : no`."""

    condition: Expression
    yes: Expression
    no: Expression


@dataclass(frozen=True, slots=True)
class Braces:
    """`{1, 2}`."""

    items: tuple[Expression, ...]


Expression: TypeAlias = "Name | Number | Text | Call | Method | Index | Unary | Binary | Choice | Braces"

MAX_DEPTH = 64
"""How deep brackets nest; a formula with more is refused."""

MAX_TOKENS = 400
"""How many names and signs a formula has; a longer one is refused. PyTorch's longest has fewer than 200."""

_TOKEN = re.compile(
    r"""(?P<blank>\s+|/\*.*?\*/)
    |(?P<name>(?:::)?[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)
    |(?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?[fFlLuU]*)
    |(?P<text>"(?:[^"\\]|\\.)*")
    |(?P<sign>->|&&|\|\||==|!=|<=|>=|[-+*/%&|<>!?:.,()\[\]{}])""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)
_LEVELS = (("||",), ("&&",), ("|",), ("&",), ("==", "!="), ("<", "<=", ">", ">="), ("+", "-"), ("*", "/", "%"))
_TEMPLATES = frozenset(("tuple", "vector", "get", "optional", "array", "pair", "OptionalArrayRef", "ArrayRef", "List"))


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


def parse_formula(text: str) -> Expression:
    """The expression that a text is.

    >>> parse_formula("grad * -self.sin()")
    Binary(operator='*', left=Name(name='grad'), right=Unary(operator='-', value=Method(target=Name(name='self'), \
name='sin', arguments=(), pointer=False)))

    Raises:
        ParseError: it is no expression of the kind that derivatives.yaml has.
    """
    parser = _Parser(text)
    found = parser.expression()
    parser.expect_end()
    return found


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tuple(_tokens(text))
        if len(self._tokens) > MAX_TOKENS:
            wanted = f"a formula of at most {MAX_TOKENS} names and signs"
            raise ParseError(text, self._tokens[MAX_TOKENS].at, wanted=wanted, found="a longer one")
        self._at = 0
        self._depth = 0

    @property
    def _here(self) -> _Token:
        return self._tokens[self._at]

    def _takes(self, *signs: str) -> str:
        """The sign that comes next, if it is one of these; it is read then."""
        token = self._here
        if token.kind == "sign" and token.text in signs:
            self._at += 1
            return token.text
        return ""

    def _error(self, token: _Token, wanted: str) -> ParseError:
        found = repr(token.text) if token.text else "the end of the formula"
        return ParseError(self._text, token.at, wanted=wanted, found=found, width=max(1, len(token.text)))

    def _wants(self, sign: str) -> None:
        if not self._takes(sign):
            raise self._error(self._here, f"{sign!r}")

    def expect_end(self) -> None:
        if self._here.kind != "end":
            raise self._error(self._here, "an operator or the end of the formula")

    def expression(self) -> Expression:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(self._here, f"a formula that nests at most {MAX_DEPTH} deep")
        condition = self._binary(0)
        if self._takes("?"):
            yes = self.expression()
            self._wants(":")
            condition = Choice(condition, yes, self.expression())
        self._depth -= 1
        return condition

    def _binary(self, level: int) -> Expression:
        if level == len(_LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while sign := self._takes(*_LEVELS[level]):
            left = Binary(sign, left, self._binary(level + 1))
        return left

    def _unary(self) -> Expression:
        signs: list[str] = []
        while sign := self._takes("-", "!", "*"):
            signs.append(sign)
        value = self._postfix()
        for sign in reversed(signs):
            value = Unary(sign, value)
        return value

    def _postfix(self) -> Expression:
        value = self._primary()
        while sign := self._takes(".", "->", "["):
            if sign == "[":
                value = Index(value, self.expression())
                self._wants("]")
                continue
            token = self._here
            if token.kind != "name":
                raise self._error(token, "the name of a method")
            self._at += 1
            self._wants("(")
            value = Method(value, token.text, self._items(")"), pointer=sign == "->")
        return value

    def _primary(self) -> Expression:
        token = self._here
        if token.kind == "number":
            self._at += 1
            return Number(token.text)
        if token.kind == "text":
            self._at += 1
            return Text(token.text[1:-1])
        if token.kind == "name":
            self._at += 1
            return self._named(token.text.removeprefix("::"))
        if self._takes("("):
            value = self.expression()
            self._wants(")")
            return value
        if self._takes("{"):
            return Braces(self._items("}"))
        raise self._error(token, "a value")

    def _named(self, name: str) -> Expression:
        template: tuple[str, ...] = ()
        if name.rpartition("::")[2] in _TEMPLATES and self._takes("<"):
            found: list[str] = []
            while not self._takes(">"):
                token = self._here
                if token.kind not in ("name", "number") and token.text != ",":
                    raise self._error(token, "a type, or '>'")
                self._at += 1
                if token.text != ",":
                    found.append(token.text)
            template = tuple(found)
        if self._takes("("):
            return Call(name, template, self._items(")"))
        return Name(name)

    def _items(self, closing: str) -> tuple[Expression, ...]:
        found: list[Expression] = []
        if self._takes(closing):
            return ()
        while True:
            found.append(self.expression())
            if self._takes(closing):
                return tuple(found)
            self._wants(",")


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ParseError(text, at, wanted="a name, a number, or an operator", found=repr(text[at]))
        kind = match.lastgroup
        assert kind is not None
        if kind != "blank":
            yield _Token(kind, match[0], at)
        at = match.end()
    yield _Token("end", "", len(text))
