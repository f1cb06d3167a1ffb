"""Parse schema text: `parse_schema`, `parse_name`, `parse_schema_or_name`, and `parse_inferred` for nameless schemas.

What PyTorch 2.13 accepts is accepted and gives an equal meaning, what it refuses is refused with a `ParseError` at the
token. One reader stands on the other: tokens, types, defaults, and the schema. Comments, blanks and escaped line ends
are skipped; a line end counts only outside of brackets. What is no token at all comes as one character, which no rule
of the grammar wants. Source: lexer.h, schema_type_parser.cpp and function_schema_parser.cpp in torch/csrc/jit/frontend,
c10/core/Device.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache

from dispatchlab.errors import ErrorKind, ParseError, nearest
from dispatchlab.model.keys import PARSED_DEVICES
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema import (
    NAMED_CONSTANTS,
    AliasInfo,
    Argument,
    ClassType,
    Constant,
    Default,
    DictType,
    FunctionSchema,
    ListType,
    OptionalType,
    SimpleType,
    TupleType,
    Type,
    TypeVariable,
    WrapperType,
    fake_of,
    kind_of,
    optional_of,
    union_of,
)

KNOWN_CLASSES = frozenset(
    (
        *("_nnapi.Compilation", "aten.OpaqueObject", "backendutils.BackendDebugInfo", "c10d.ProcessGroup"),
        *("c10d.ReduceOp", "c10d.SymmetricMemory", "c10d.Work", "dist_rpc.WorkerInfo", "mkldnn.ConvOpContext"),
        *("profiler._RecordFunction", "profiling.InstructionStats", "profiling.SourceRef", "profiling.SourceStats"),
        *("profiling._ScriptProfile", "quantized.Conv2dPackedParamsBase", "quantized.Conv3dPackedParamsBase"),
        *("quantized.EmbeddingPackedParamsBase", "quantized.LinearPackedParamsBase", "rnn.CellParamsBase"),
        "sparse.LinearPackedParamsBase",
    )
)


def parse_schema(
    text: str, *, typevars: bool = True, custom_classes: Collection[str] = KNOWN_CLASSES
) -> FunctionSchema:
    """Parse a schema.

    >>> from dispatchlab import parse_schema
    >>> parse_schema("test::foo(Tensor x, int n=1) -> Tensor").arguments[1].name
    'n'

    Args:
        text: `ns::name.overload(Tensor x, int n=1) -> Tensor`; namespace and overload may be missing.
        typevars: whether a lower-case name that is no type is a type variable. Library blocks say no; text that
            starts with `aten::` or `prim::` may always have them.
        custom_classes: the names that may follow `__torch__.torch.classes.`; those of PyTorch 2.13 if left out.

    Raises:
        ParseError: of kind `not_a_schema` for a name, `illegal_overload`, or `other`, with the offset.
    """
    found = parse_schema_or_name(text, typevars=typevars, custom_classes=custom_classes)
    if isinstance(found, FunctionSchema):
        return found
    wanted = "an argument list, as in `name(Tensor x) -> Tensor`,"
    raise ParseError(
        text, len(text.rstrip()), wanted=wanted, found="the name of an operator alone", kind=ErrorKind.NOT_A_SCHEMA
    )


def parse_name(text: str) -> OperatorName:
    """Parse the name of an operator.

    >>> from dispatchlab import parse_name
    >>> parse_name("aten::add.Tensor").overload
    'Tensor'

    Raises:
        ParseError: of kind `not_a_name` for a schema, `illegal_overload`, or `other`, with the offset.
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
    """Return a schema if an argument list follows the name, else the name.

    >>> from dispatchlab import parse_schema_or_name
    >>> parse_schema_or_name("test::foo"), parse_schema_or_name("test::foo() -> ()")
    (parse_name('test::foo'), parse_schema('test::foo() -> ()'))

    Raises:
        ParseError: of kind `illegal_overload` or `other`, with the offset.
    """
    reader = SchemaReader(text, typevars=typevars, custom_classes=custom_classes)
    name = reader.operator_name()
    found = reader.schema(name) if reader.tokens[reader.at] == "(" else name
    reader.end()
    return found


def parse_inferred(text: str) -> FunctionSchema:
    """Return the schema without a name that dumps print of kernels: `(Tensor _0) -> Tensor _0`.

    Raises:
        ParseError: with the offset.
    """
    reader = SchemaReader(text, typevars=True, custom_classes=KNOWN_CLASSES)
    schema = reader.schema(OperatorName("", ""))
    reader.end()
    return schema


# Note [Limits of the parser]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~
# PyTorch's parser has none and recurses in C++. Ours recurses in Python, as does whatever walks a type later, and a
# text may come from a file of a stranger. The largest schema of PyTorch 2.13 has 605 characters. A type has at
# most DEEPEST_TYPE times 2 * MOST_LISTS levels, which everything that recurses over types can take. The text is short
# enough for the regular expression of tokens, which takes quadratic time over strings that do not end.
LONGEST_TEXT = 2**14
LONGEST_NAME = 1_000
DEEPEST_TYPE = 12
MOST_LISTS = 8
LONGEST_INT = 40

END = ""
LINE_END = "\n"
KEYWORDS = frozenset(
    (
        *("def", "if", "else", "elif", "while", "return", "is", "True", "False", "None", "and", "or", "not", "global"),
        *("for", "in", "raise", "assert", "break", "continue", "del", "pass", "class", "import", "with", "as"),
        *("Ellipsis", "NoneType"),
    )
)

_TOKEN = re.compile(
    r"""
    (?: [ \t\r\f\v] | \#(?!\ type:)[^\n]* | \\\n )*+
    ( [A-Za-z_][A-Za-z0-9_]*
    | 0[xX](?: [0-9a-fA-F]+ \.? [0-9a-fA-F]* | \.[0-9a-fA-F]+ ) (?: [pP][+-]?[0-9]+ )? j?
    | (?: [0-9]+ \.? [0-9]* | \.[0-9]+ ) (?: [eE][+-]?[0-9]+ )? j?
    | "{3} (?: [^\\] | \\. )*? "{3} | '{3} (?: [^\\] | \\. )*? '{3}
    | "(?!"") (?: [^"\\\n] | \\. )* " | '(?!'') (?: [^'\\\n] | \\. )* '
    | -> | \.\.\. | \Z | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_NAME_START = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_NUMBER_START = frozenset("0123456789")
_SINGLE = frozenset("+-*/%@()[]:,={}><.?!&^|~")


def tokens_of(text: str) -> list[str]:
    """Return the tokens, then several `END`s, so that a reader may always look two ahead."""
    found = _TOKEN.findall(text)
    if LINE_END in found:
        found = [token for token, _ in _joined_lines(text)]
    return [*found, END, END, END]


def offset_of(text: str, index: int) -> tuple[int, int]:
    """Return offset and width of the token at `index` of `tokens_of(text)`; the end has width 1."""
    placed = _placed(text)
    token, at = placed[index] if index < len(placed) else (END, len(text.rstrip()))
    return (at, len(token)) if token else (len(text.rstrip()), 1)


def is_name(token: str) -> bool:
    """Return whether the token can name an operator, an argument or a type."""
    return token[:1] in _NAME_START and token not in KEYWORDS


def is_number(token: str) -> bool:
    """Return whether the token is a number, without a sign."""
    return token[:1] in _NUMBER_START or (token[:1] == "." and token[1:2] in _NUMBER_START)


def is_string(token: str) -> bool:
    """Return whether the token is a string, with its quotes."""
    return token[:1] in ("'", '"') and len(token) > 1


def described(token: str) -> str:
    """Return the found token in the words of an error."""
    if token == END:
        return "the end of the text"
    if token == LINE_END:
        return "a line end"
    if token in KEYWORDS:
        return f"the keyword '{token}'"
    if is_string(token):
        return token
    if token in ("'", '"'):
        return f"a string that does not end, {token}"
    if len(token) == 1 and token not in _SINGLE and not (token.isascii() and (token.isalnum() or token == "_")):
        return f"a character that schemas do not use, {token!r}"
    return f"'{token}'"


def _joined_lines(text: str) -> list[tuple[str, int]]:
    # Line ends vanish inside of brackets, at the start and in front of the last END; elsewhere several are one.
    kept: list[tuple[str, int]] = []
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match[1]
        if token == LINE_END:
            if depth or not kept or kept[-1][0] == LINE_END:
                continue
        elif token in ("(", "[", "{"):
            depth += 1
        elif token in (")", "]", "}"):
            depth -= 1
        elif token == END and kept and kept[-1][0] == LINE_END:
            kept.pop()
        kept.append((token, match.start(1)))
    return kept


_placed = lru_cache(maxsize=1)(_joined_lines)  # a reader of printed schemas asks for many places of one text


SIMPLE_TYPES = {
    name: SimpleType(name)
    for name in (
        *("Tensor", "Generator", "ScalarType", "Layout", "MemoryFormat", "Storage", "QScheme", "Quantizer", "Device"),
        *("Stream", "Scalar", "str", "float", "complex", "int", "SymInt", "bool", "SymBool", "NoneType", "Capsule"),
        *("Any", "AnyClassType", "AnyEnumType"),
    )
} | {"ConstQuantizerPtr": SimpleType("int"), "DeviceIndex": SimpleType("int"), "None": SimpleType("NoneType")}

_WRAPPERS = frozenset(("Future", "Await", "RRef"))
_COMPOUND = _WRAPPERS | {"Dict", "Union", "__torch__"}
_KEY_KINDS = frozenset(("Any", "int", "bool", "float", "complex", "str", "Tensor", "Device"))
_CPP_NAMES = {"double": "'float', which is a double in C++,", "int64_t": "'int' or 'SymInt'"}


class TokenReader:
    """Reads the tokens of a text, one after another; its errors point at them."""

    __slots__ = ("at", "classes", "depth", "fresh", "text", "tokens", "typevars")

    def __init__(self, text: str, *, typevars: bool, custom_classes: Collection[str]) -> None:
        if len(text) > LONGEST_TEXT:
            raise ParseError(
                text, LONGEST_TEXT, wanted=f"at most {LONGEST_TEXT:,} characters", found=f"{len(text):,} of them"
            )
        self.depth = 0
        self.text, self.tokens, self.at, self.fresh = text, tokens_of(text), 0, 0
        self.typevars = typevars or text.startswith(("aten::", "prim::"))
        self.classes = custom_classes

    def error(
        self, wanted: str, *, at: int | None = None, found: str | None = None, kind: ErrorKind = ErrorKind.OTHER
    ) -> ParseError:
        index = self.at if at is None else at
        offset, width = offset_of(self.text, index)
        if at is not None and found is not None and at < self.at:
            last, length = offset_of(self.text, self.at - 1)
            width = last + length - offset
        found = described(self.tokens[index]) if found is None else found
        return ParseError(self.text, offset, wanted=wanted, found=found, width=width, kind=kind)

    def expect(self, token: str) -> None:
        if self.tokens[self.at] != token:
            raise self.error(f"'{token}'")
        self.at += 1

    def name(self, wanted: str) -> str:
        token = self.tokens[self.at]
        if not is_name(token):
            raise self.error(wanted)
        if len(token) > LONGEST_NAME:
            raise self.error(f"a name of at most {LONGEST_NAME:,} characters")
        self.at += 1
        return token


class TypeReader(TokenReader):
    """Reads one type at a time."""

    __slots__ = ()

    def type(self) -> tuple[Type, AliasInfo | None]:
        tokens = self.tokens
        alias = None
        type_: Type
        simple = SIMPLE_TYPES.get(tokens[self.at])
        if simple is not None and tokens[self.at + 1] != ".":
            type_ = simple
            self.at += 1
            alias = self.alias()
        else:
            self.depth += 1
            if self.depth > DEEPEST_TYPE:
                raise self.error(f"a type nested at most {DEEPEST_TYPE} deep")
            type_, alias = self.other_type()
            self.depth -= 1
        lists = 0
        while True:
            token = tokens[self.at]
            if token == "[" and tokens[self.at + 1] == "]":
                lists += 1
                if lists > MOST_LISTS:
                    raise self.error(f"a type with at most {MOST_LISTS} '[]'")
                self.at += 2
                type_, alias = ListType(type_), self.container_alias(alias)
            elif token == "?":
                type_, alias = self.optional(type_, alias)
            else:
                return type_, alias

    def optional(self, type_: Type, alias: AliasInfo | None) -> tuple[Type, AliasInfo | None]:
        try:
            found = optional_of(type_)
        except ValueError as error:
            raise self.error("another type", at=self.at - 1, found=f"'{type_}?': {error}") from None
        self.at += 1
        return found, alias

    def other_type(self) -> tuple[Type, AliasInfo | None]:
        token = self.tokens[self.at]
        if token == "(":
            return TupleType(tuple(self.fake_types())), None
        if token == "Tensor":
            self.at += 1
            return SIMPLE_TYPES[token], None
        if token not in _COMPOUND:
            return self.word_type(), self.alias()
        self.at += 1
        if token in _WRAPPERS:
            self.expect("(")
            wrapped = WrapperType(token, self.fake_type())
            self.expect(")")
            return wrapped, None
        if token == "Dict":
            return self.dict_type(), self.alias()
        if token == "Union":
            return self.union_type(), self.alias()
        return self.class_type(), None

    def fake_type(self) -> Type:
        # Inside of tuples, dicts, futures and unions upstream keeps the type that calls see, and no alias.
        return fake_of(self.type()[0])

    def fake_types(self) -> list[Type]:
        self.expect("(")
        found: list[Type] = []
        if self.tokens[self.at] != ")":
            found.append(self.fake_type())
            while self.tokens[self.at] == ",":
                self.at += 1
                found.append(self.fake_type())
        if self.tokens[self.at] != ")":
            raise self.error("',' or ')'")
        self.at += 1
        return found

    def word_type(self) -> Type:
        start = self.at
        token = self.tokens[start]
        if token not in SIMPLE_TYPES and not is_name(token):
            raise self.error("a type")
        self.at += 1
        while self.tokens[self.at] == "." and is_name(self.tokens[self.at + 1]):
            token += "." + self.tokens[self.at + 1]
            self.at += 2
        if self.typevars and "a" <= token[0] <= "z":
            return TypeVariable(token)
        near = nearest(token, (*SIMPLE_TYPES, *_COMPOUND))
        wanted = f"a type (did you mean {near[0]}?)" if near else "a type, such as Tensor, SymInt, int or Scalar,"
        raise self.error(_CPP_NAMES.get(token, wanted), at=start, found=f"'{token}'")

    def dict_type(self) -> Type:
        self.expect("(")
        start = self.at
        key = self.fake_type()
        if kind_of(key) not in _KEY_KINDS:
            wanted = "a key that is an int, bool, float, complex, str, Tensor, Device or Any"
            raise self.error(wanted, at=start, found=f"'{key}'")
        self.expect(",")
        value = self.fake_type()
        self.expect(")")
        return DictType(key, value)

    def union_type(self) -> Type:
        start = self.at - 1
        if self.tokens[self.at + 1] == ")":
            self.at += 1
            raise self.error("a type")
        members = self.fake_types()
        try:
            return union_of(members)
        except ValueError as error:
            raise self.error("another type", at=start, found=f"'Union': {error}") from None

    def class_type(self) -> Type:
        for token in ("torch", "classes"):
            self.expect(".")
            self.expect(token)
        self.expect(".")
        start = self.at
        name = self.name("a namespace")
        self.expect(".")
        name += "." + self.name("the name of a class")
        if name not in self.classes:
            near = nearest(name, self.classes)
            wanted = "a custom class that is known" + (f" (did you mean {near[0]}?)" if near else "")
            raise self.error(wanted, at=start, found=f"'{name}'")
        return ClassType(name)

    def container_alias(self, inner: AliasInfo | None) -> AliasInfo | None:
        outer = self.alias()
        if inner is None:
            return outer
        if outer is None:
            return AliasInfo(frozenset(), frozenset(), inner.is_write, (inner,))
        return AliasInfo(outer.before, outer.after, outer.is_write, (inner,))

    def alias(self) -> AliasInfo | None:
        token = self.tokens[self.at]
        if token == "!":
            self.at += 1
            self.fresh += 1
            return AliasInfo(frozenset((f"${self.fresh - 1}",)), frozenset(), is_write=True)
        if token != "(":
            return None
        self.at += 1
        before = after = self.alias_sets()
        is_write = self.tokens[self.at] == "!"
        if is_write:
            self.at += 1
        if self.tokens[self.at] == "->":
            self.at += 1
            after = self.alias_sets()
        if self.tokens[self.at] != ")":
            raise self.error("')' after the alias annotation")
        self.at += 1
        return AliasInfo(before, after, is_write)

    def alias_sets(self) -> frozenset[str]:
        found: set[str] = set()
        while True:
            if self.tokens[self.at] == "*":
                self.at += 1
                found.add("*")
            elif "*" not in found:  # NB: after a `*`, upstream reads no more names
                found.add(self.name("an alias set, such as 'a' or '*'"))
            if self.tokens[self.at] != "|":
                return frozenset(found)
            self.at += 1


# Note [Numbers as upstream reads them]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A number is lexed whole and then given to `stod` or `stoll`, which stop at the first character that they cannot use:
# `int x=0x10` is 0, `Scalar x=1E3` is 1 (only a small `e` makes a float), `int[1.5]` has size 1. For a complex argument
# the last character is dropped, for it should be a `j`: `complex x=12` is 1j. We follow, for a schema that means one
# thing here and another in PyTorch would be worse. Numbers that do not fit are refused, subnormal ones among them.

DTYPES = {
    **{"uint8": 0, "int8": 1, "short": 2, "int16": 2, "int": 3, "int32": 3, "long": 4, "int64": 4, "half": 5},
    **{"float16": 5, "float": 6, "float32": 6, "double": 7, "float64": 7, "chalf": 8, "complex32": 8, "complex": 9},
    **{"cfloat": 9, "complex64": 9, "cdouble": 10, "complex128": 10, "bool": 11, "qint8": 12, "quint8": 13},
    **{"qint32": 14, "bfloat16": 15, "quint4x2": 16, "quint2x4": 17, "bits1x8": 18, "bits2x4": 19, "bits4x2": 20},
    **{"bits8": 21, "bits16": 22, "float8_e5m2": 23, "float8_e4m3fn": 24, "float8_e5m2fnuz": 25},
    **{"float8_e4m3fnuz": 26, "uint16": 27, "uint32": 28, "uint64": 29, "bit": 30, "uint1": 30, "uint2": 31},
    **{"uint3": 32, "uint4": 33, "uint5": 34, "uint6": 35, "uint7": 36, "int1": 37, "int2": 38, "int3": 39},
    **{"int4": 40, "int5": 41, "int6": 42, "int7": 43, "float8_e8m0fnu": 44, "float4_e2m1fn_x2": 45},
}
LARGEST_REPEAT = 2**16

_NONE_ONLY = frozenset(("Tensor", "Generator", "Quantizer"))
_CONSTANTS = frozenset(("str", "Optional", "Scalar", "int", "bool", "float", "complex"))
_SCALAR_TYPES = (SimpleType("ScalarType"), OptionalType(SimpleType("ScalarType")))
_SCALAR_TYPE_NAMES = NAMED_CONSTANTS | DTYPES
_ELEMENTS: dict[str, type] = {"int": int, "float": float, "bool": bool, "complex": complex}
_WORDS: dict[str, Constant] = {"True": True, "False": False, "None": None}
_FLOAT = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEX_FLOAT = re.compile(r"-?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?")
_INT = re.compile(r"-?[0-9]+")
_DEVICE = re.compile(r"([a-z]+)(?::(0|[1-9][0-9]*))?")
_ESCAPE = re.compile(r"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPES = {
    "\\": "\\",
    "'": "'",
    '"': '"',
    "\n": "\n",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "v": "\v",
    "t": "\t",
}


class DefaultReader(TokenReader):
    """A reader of the text after the `=`."""

    __slots__ = ()

    def default(self, type_: Type) -> Default:
        fake = fake_of(type_)
        kind = kind_of(fake)
        if kind in _CONSTANTS:
            return Default(self.constant(kind, _names_for(type_)))
        if kind in _NONE_ONLY:
            if self.tokens[self.at] != "None":
                raise self.error(f"None, the only default of a {kind},")
            self.at += 1
            return Default(None)
        if kind == "Device":
            return Default(self.device())
        if isinstance(type_, ListType):
            return Default(self.list(kind_of(fake_of(type_.element)), type_.size, _names_for(type_.element)))
        raise self.error(f"no default, for {type_} cannot have one,")

    def list(self, kind: str, size: int | None, names: Mapping[str, int]) -> tuple[Constant, ...]:
        start = self.at
        token = self.tokens[start]
        if is_name(token):
            raise self.error("a list in brackets")
        if size is not None and token != "[":
            if size > LARGEST_REPEAT:
                raise self.error(f"a list, for a constant is repeated at most {LARGEST_REPEAT} times,")
            found = [self.constant(kind, names)] * size
        else:
            self.expect("[")
            found = [] if self.tokens[self.at] == "]" else [self.constant(kind, names)]
            while found and self.tokens[self.at] == ",":
                self.at += 1
                found.append(self.constant(kind, names))
            if self.tokens[self.at] != "]":
                raise self.error("',' or ']'")
            self.at += 1
        wanted = _ELEMENTS.get(kind)
        if wanted is None:
            raise self.error("no default, for only lists of int, float, bool and complex have one,", at=start)
        for value in found:
            if type(value) is not wanted:
                raise self.error(f"a list of {kind} values", at=start, found=f"{value!r} in it")
        return tuple(found)

    def constant(self, kind: str, names: Mapping[str, int]) -> Constant:
        token = self.tokens[self.at]
        if token in _WORDS:
            self.at += 1
            return _WORDS[token]
        if is_string(token):
            return self.string()
        if is_name(token):
            if token not in names:
                near = nearest(token, (*_WORDS, *names))
                raise self.error(f"a default value{f' (did you mean {near[0]}?)' if near else ''}")
            self.at += 1
            return names[token]
        sign = ""
        if token == "-":
            self.at += 1
            sign, token = "-", self.tokens[self.at]
        if not is_number(token):
            raise self.error("a number" if sign else "a default value")
        value = _number(sign + token, kind)
        if value is None:
            raise self.error(f"a number that fits {'a float' if kind == 'float' else f'the type {kind}'}")
        self.at += 1
        return value

    def string(self) -> str:
        token = self.tokens[self.at]
        quotes = 3 if token[:3] in ("'''", '"""') and len(token) > 3 else 1
        text = token[quotes:-quotes]
        for escape in _ESCAPE.finditer(text):
            if escape[1] not in _ESCAPES and not (len(escape[1]) == 3 and escape[1] < "400"):
                wanted = "a string whose escapes are \\\\ \\' \\\" \\a \\b \\f \\n \\t \\v or three octal digits"
                raise self.error(wanted, found=f"the escape {escape[0]}")
        self.at += 1
        if "\\" not in text:
            return text
        raw = _ESCAPE.sub(lambda e: _ESCAPES.get(e[1]) or chr(int(e[1], 8) + (0xDC00 if e[1] >= "200" else 0)), text)
        return raw.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")

    def device(self) -> str:
        token = self.tokens[self.at]
        if not is_string(token):
            raise self.error("a device in quotes")
        start = self.at
        text = self.string()
        match = _DEVICE.fullmatch(text)
        if match is None or match[1] not in PARSED_DEVICES or len(match[2] or "") > 10 or int(match[2] or 0) >= 2**31:
            near = nearest(text.partition(":")[0], PARSED_DEVICES)
            raise self.error(
                f"a device, such as 'cpu' or 'cuda:1'{f' (did you mean {near[0]}?)' if near else ''}",
                at=start,
                found=described(token),
            )
        if match[2] is None:
            return text
        index = (int(match[2]) + 128) % 256 - 128  # NB: upstream keeps the index in 8 bits
        return match[1] if index == -1 else f"{match[1]}:{index}"


def _names_for(type_: Type) -> Mapping[str, int]:
    return _SCALAR_TYPE_NAMES if type_ in _SCALAR_TYPES else NAMED_CONSTANTS


def _number(text: str, kind: str) -> Constant:
    # See Note [Numbers as upstream reads them]; None when it does not fit.
    if kind == "complex" or "j" in text:
        imaginary = _float(text[:-1])
        return None if imaginary is None else complex(0.0, imaginary)
    if kind == "float" or "." in text or "e" in text:
        return _float(text)
    match = _INT.match(text)
    value = None if match is None else int_of(match[0])
    return value if value is not None and -(2**63) <= value < 2**63 else None


def int_of(digits: str) -> int | None:
    """Return the number of decimal digits with an optional sign; None where Python refuses so many digits."""
    sign, digits = ("-", digits[1:]) if digits.startswith("-") else ("", digits)
    digits = digits.lstrip("0") or "0"
    return int(sign + digits) if len(digits) <= LONGEST_INT else None


def _float(text: str) -> float | None:
    match = _HEX_FLOAT.match(text)
    try:
        if match is not None:
            value = float.fromhex(match[0])
        else:
            match = _FLOAT.match(text)
            if match is None:
                return None
            value = float(match[0])
    except OverflowError:
        return None
    digits = re.split("[eEpP]", match[0])[0] if "x" not in match[0].lower() else match[0].lower().split("p")[0][2:]
    is_zero = not any(c in "123456789abcdefABCDEF" for c in digits)
    if value in (float("inf"), float("-inf")) or (abs(value) < 2.2250738585072014e-308 and not is_zero):
        return None
    return value


LARGEST_SIZE = 2**31 - 1


class SchemaReader(TypeReader, DefaultReader):
    """Reads a schema."""

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
        size = int_of(digits) if digits else None
        if size is None or size > LARGEST_SIZE:
            raise self.error(f"a size up to {LARGEST_SIZE}")
        self.at += 1
        return size
