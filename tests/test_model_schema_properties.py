"""Text and value are two forms of one thing, over generated schemas."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dispatchlab.model.cpp_signature import cpp_signature, is_symint_schema
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema import (
    AliasInfo,
    Argument,
    ClassType,
    Default,
    DefaultValue,
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
from dispatchlab.model.schema_difference import schema_difference
from dispatchlab.model.schema_parser import KEYWORDS, KNOWN_CLASSES, SIMPLE_TYPES, parse_schema_or_name
from tests.effort import examples

SIMPLE = sorted({str(type_) for type_ in SIMPLE_TYPES.values()} - {"NoneType"})
FAKE = sorted({str(fake_of(SimpleType(name))) for name in SIMPLE})
KEYS = ["int", "bool", "float", "complex", "str", "Tensor", "Device", "Any"]
ANNOTATED = ["Tensor", "int", "Any", "Scalar"]

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True).filter(lambda name: name not in KEYWORDS)
type_variables = st.from_regex(r"[a-z]{1,3}[0-9]?(\.[A-Za-z]{1,2})?", fullmatch=True).filter(
    lambda word: word not in SIMPLE_TYPES and not KEYWORDS & set(word.split("."))
)


def wrapped(types: st.SearchStrategy[Type], inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    members = st.lists(st.sampled_from(["Tensor", "int", "str", "bool", "Device"]), min_size=2, max_size=4, unique=True)
    return st.one_of(
        types.map(ListType),
        types.filter(lambda type_: str(type_) != "Scalar?").map(optional_of),
        st.lists(inner, max_size=3).map(lambda elements: TupleType(tuple(elements))),
        st.builds(DictType, st.sampled_from(KEYS).map(SimpleType), inner),
        st.builds(WrapperType, st.sampled_from(["Future", "Await", "RRef"]), inner),
        members.map(lambda words: union_of(map(SimpleType, words))),
    )


fake_types: st.SearchStrategy[Type] = st.recursive(
    st.one_of(st.sampled_from(FAKE).map(SimpleType), type_variables.map(TypeVariable)),
    lambda inner: wrapped(inner, inner),
    max_leaves=4,
)
real_leaves: st.SearchStrategy[Type] = st.one_of(
    st.sampled_from(SIMPLE).map(SimpleType),
    st.sampled_from(sorted(KNOWN_CLASSES)).map(ClassType),
    type_variables.map(TypeVariable),
)
real_types: st.SearchStrategy[Type] = st.recursive(real_leaves, lambda inner: wrapped(inner, fake_types), max_leaves=4)
alias_sets = st.frozensets(st.sampled_from(["a", "b", "c1", "_", "*"]), min_size=1, max_size=3)
alias_infos = st.builds(AliasInfo, alias_sets, alias_sets, st.booleans())


@st.composite
def typed(draw: st.DrawFn) -> tuple[Type, AliasInfo | None]:
    shape = draw(st.sampled_from(["plain", "sized", "value", "elements", "list", "both"]))
    if shape in ("plain", "sized"):
        type_ = draw(real_types)
        if shape == "sized":
            type_ = ListType(type_, draw(st.integers(0, 4)))
            return (OptionalType(type_) if draw(st.booleans()) else type_), None
        return type_, None
    type_, alias = SimpleType(draw(st.sampled_from(ANNOTATED))), draw(alias_infos)
    if shape == "value":
        return (OptionalType(type_) if draw(st.booleans()) else type_), alias
    outer: AliasInfo = draw(alias_infos)
    if shape == "elements":
        outer = AliasInfo(frozenset(), frozenset(), alias.is_write, (alias,))
    elif shape == "both":
        outer = AliasInfo(outer.before, outer.after, outer.is_write, (alias,))
    listed = ListType(type_, draw(st.none() | st.integers(0, 4)))
    return (OptionalType(listed) if draw(st.booleans()) else listed), outer


integers = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False)
strings = st.text(st.characters(max_codepoint=127, exclude_characters="\r"), max_size=6)
CONSTANTS: dict[str, st.SearchStrategy[DefaultValue]] = {
    "int": integers | st.booleans() | st.none(),
    "float": floats | st.none(),
    "complex": st.booleans() | st.none(),
    "bool": st.booleans() | integers,
    "Scalar": integers | floats | st.booleans(),
    "Optional": st.none() | integers | floats | st.booleans(),
    "str": strings | st.none() | st.booleans(),
    "Tensor": st.none(),
    "Generator": st.none(),
}
ELEMENTS: dict[str, st.SearchStrategy[int | float]] = {
    "int": integers,
    "float": floats,
    "bool": st.booleans(),
}


def defaults(type_: Type) -> st.SearchStrategy[Default]:
    if isinstance(type_, ListType):
        elements = ELEMENTS.get(kind_of(fake_of(type_.element)))
        if elements is None:
            return st.nothing()
        lists = st.lists(elements, max_size=3).map(tuple)
        if type_.element == SimpleType("int"):  # See Note [Texts that do not read back]
            lists = lists.filter(lambda values: len(values) < 2 or len(set(values)) > 1)
        if type_.size is not None:
            lists |= elements.map(lambda value: (value,) * (type_.size or 0))
        return lists.map(Default)
    if kind_of(type_) == "Optional" and str(type_) == "str?":
        return (strings | st.none()).map(Default)
    return CONSTANTS.get(kind_of(fake_of(type_)), st.nothing()).map(Default)


@st.composite
def schemas(draw: st.DrawFn) -> FunctionSchema:
    is_vararg = draw(st.booleans())
    arguments: list[Argument] = []
    kwarg_only = seen_default = False
    for name in draw(st.lists(names, max_size=4)):
        kwarg_only = kwarg_only or draw(st.booleans())
        type_, alias = draw(typed())
        possible = defaults(type_)
        default = None if is_vararg or possible.is_empty else draw(st.none() | possible)
        seen_default = seen_default or default is not None
        if seen_default and default is None and not kwarg_only and not isinstance(type_, ListType):
            kwarg_only = True
        arguments.append(Argument(name, type_, default, kwarg_only, alias))
    returns = [
        Argument(draw(st.just("") | names), type_, alias=alias) for type_, alias in draw(st.lists(typed(), max_size=3))
    ]
    overload = draw(st.just("") | names.filter(lambda word: word != "default" and not word.startswith("__")))
    operator = OperatorName(draw(st.just("") | names), draw(names), overload)
    return FunctionSchema(operator, tuple(arguments), tuple(returns), is_vararg, draw(st.booleans()))


@given(schemas())
@examples(150)
def test_a_name_is_never_taken_for_a_schema(schema: FunctionSchema) -> None:
    assert parse_schema_or_name(str(schema.name)) == schema.name
    assert parse_schema_or_name(str(schema)) == schema


@given(schemas())
@examples(150)
def test_a_schema_differs_from_itself_in_nothing(schema: FunctionSchema) -> None:
    assert schema_difference(schema, schema, symint_kernel=True) is None


@given(schemas(), schemas())
@examples(150)
def test_differences_are_symmetric(one: FunctionSchema, other: FunctionSchema) -> None:
    there, back = (schema_difference(*pair, symint_kernel=True) for pair in ((one, other), (other, one)))
    assert (there is None) == (back is None)
    if there is not None and back is not None:
        assert (there.kind, there.position) == (back.kind, back.position)
        assert (there.expected, there.found) == (back.found, back.expected)


@given(schemas())
@examples(150)
def test_every_schema_has_a_signature_with_as_many_arguments(schema: FunctionSchema) -> None:
    signature = cpp_signature(schema)
    depth = commas = 0
    for character in signature[signature.rindex(" (") + 2 : -1]:
        depth += {"<": 1, ">": -1}.get(character, 0)
        commas += character == "," and depth == 0
    assert depth == 0
    assert commas == max(0, len(schema.arguments) - 1)
    assert is_symint_schema(schema) == (schema_difference(schema, schema, symint_kernel=False) is not None)
