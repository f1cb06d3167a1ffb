"""Read the types of a schema and their alias annotations.

Source: torch/csrc/jit/frontend/schema_type_parser.cpp.
"""

from __future__ import annotations

from collections.abc import Collection

from dispatchlab.errors import ErrorKind, ParseError, nearest
from dispatchlab.model.schema import AliasInfo
from dispatchlab.model.schema_tokens import described, is_name, place_of, tokens_of
from dispatchlab.model.schema_types import (
    ClassType,
    DictType,
    ListType,
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
    """A place in the tokens of a text, and errors that point at it."""

    __slots__ = ("at", "classes", "fresh", "text", "tokens", "typevars")

    def __init__(self, text: str, *, typevars: bool, custom_classes: Collection[str]) -> None:
        self.text, self.tokens, self.at, self.fresh = text, tokens_of(text), 0, 0
        self.typevars = typevars or text.startswith(("aten::", "prim::"))
        self.classes = custom_classes

    def error(
        self, wanted: str, *, at: int | None = None, found: str | None = None, kind: ErrorKind = ErrorKind.OTHER
    ) -> ParseError:
        index = self.at if at is None else at
        place, width = place_of(self.text, index)
        if at is not None and found is not None and at < self.at:
            last, length = place_of(self.text, self.at - 1)
            width = last + length - place
        found = described(self.tokens[index]) if found is None else found
        return ParseError(self.text, place, wanted=wanted, found=found, width=width, kind=kind)

    def expect(self, token: str) -> None:
        if self.tokens[self.at] != token:
            raise self.error(f"'{token}'")
        self.at += 1

    def name(self, wanted: str) -> str:
        token = self.tokens[self.at]
        if not is_name(token):
            raise self.error(wanted)
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
            type_, alias = self.other_type()
        while True:
            token = tokens[self.at]
            if token == "[" and tokens[self.at + 1] == "]":
                self.at += 2
                type_, alias = ListType(type_), self.container_alias(alias)
            elif token == "?":
                try:
                    type_ = optional_of(type_)
                except ValueError as error:
                    raise self.error("another type", at=self.at - 1, found=f"'{type_}?': {error}") from None
                self.at += 1
            else:
                return type_, alias

    def other_type(self) -> tuple[Type, AliasInfo | None]:
        word = self.tokens[self.at]
        if word == "(":
            return TupleType(tuple(self.fake_types())), None
        if word == "Tensor":
            self.at += 1
            return SIMPLE_TYPES[word], None
        if word not in _COMPOUND:
            return self.word_type(), self.alias()
        self.at += 1
        if word in _WRAPPERS:
            self.expect("(")
            wrapped = WrapperType(word, self.fake_type())
            self.expect(")")
            return wrapped, None
        if word == "Dict":
            return self.dict_type(), self.alias()
        if word == "Union":
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
        word = self.tokens[start]
        if word not in SIMPLE_TYPES and not is_name(word):
            raise self.error("a type")
        self.at += 1
        while self.tokens[self.at] == "." and is_name(self.tokens[self.at + 1]):
            word += "." + self.tokens[self.at + 1]
            self.at += 2
        if self.typevars and "a" <= word[0] <= "z":
            return TypeVariable(word)
        near = nearest(word, (*SIMPLE_TYPES, *_COMPOUND))
        wanted = f"a type (did you mean {near[0]}?)" if near else "a type, such as Tensor, SymInt, int or Scalar,"
        raise self.error(_CPP_NAMES.get(word, wanted), at=start, found=f"'{word}'")

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
        for word in ("torch", "classes"):
            self.expect(".")
            self.expect(word)
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
