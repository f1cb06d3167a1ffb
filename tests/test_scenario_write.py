"""A written scenario loads back equal; the digest stands for what matters; the JSON Schema accepts what loads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dispatchlab.model.cpp_signature import cpp_signature, is_symint_schema
from dispatchlab.model.keys import RUNTIME_KEYS, DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import (
    AliasKind,
    Block,
    BlockKind,
    Claim,
    Def,
    Fallback,
    Impl,
    Kernel,
    KernelForm,
    NameOnly,
    Registration,
)
from dispatchlab.model.schema import FunctionSchema, clone_with_name
from dispatchlab.model.schema_parser import parse_schema
from dispatchlab.prover.chains import normal
from dispatchlab.prover.result import Expectation
from dispatchlab.scenario import Scenario, UnwritableError, json_schema, parse_scenario, scenario_text
from dispatchlab.scenario.load import read_scenario
from dispatchlab.scenario.named_functions import NamedFunction
from dispatchlab.scenario.scenario import SEMANTICS, operators_named_by
from dispatchlab.scenario.write import scalar_text
from dispatchlab.scenario.yaml_fields import Context
from tests.effort import examples

SCHEMAS = tuple(
    clone_with_name(parse_schema(f"f{text}"), OperatorName("", ""))
    for text in (
        "() -> ()",
        "(Tensor _0) -> Tensor _0",
        "(Tensor(a!) x, *, str? y=None) -> Tensor(a!)",
        "(SymInt[] size, int[2] stride=[1, 1], float eps=1e-05) -> (Tensor, Tensor[])",
        '(str x="a: b # c", ScalarType? dtype=None) -> Tensor?',
    )
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["yes", "1", "a: b", "a #b", " a", "a ", "- a", "none", "[a]", "'a'", '"', "\\", "\x85", "\u2028", "\ufeff", "---"]
)
SENTENCES = TEXTS.filter(lambda text: bool(text.strip()))
NAMESPACES = st.sampled_from(["test", "ns", "_x1"])
KEYS = st.none() | st.sampled_from([key for key in DispatchKey if key])


def _names(namespaces: st.SearchStrategy[str]) -> st.SearchStrategy[OperatorName]:
    overloads = st.sampled_from(["", "out", "Tensor"])
    return st.builds(OperatorName, namespaces, st.sampled_from(["foo", "bar_", "_a1"]), overloads)


def _unboxed(schema: FunctionSchema, signature: str | None) -> Kernel:
    given = cpp_signature(schema) if signature == "" else signature
    return Kernel(KernelForm.UNBOXED, schema, given, is_symint_schema(schema))


FUNCTION = Kernel(reference="posixpath:join")
BOXED = st.sampled_from([Kernel(), Kernel(KernelForm.FALLTHROUGH)])
SIGNATURES = st.sampled_from([None, "void ()", "at::Tensor (std::array<bool, 3ul>)"])
UNBOXED = st.builds(_unboxed, st.sampled_from(SCHEMAS), SIGNATURES | st.just("")) | SIGNATURES.map(
    lambda signature: Kernel(KernelForm.UNBOXED, signature=signature)
)
KERNELS = BOXED | UNBOXED | st.just(FUNCTION)
ALIASES = st.none() | st.sampled_from(AliasKind)
TAGS = st.frozensets(TEXTS, max_size=3)


def _defs(namespaces: st.SearchStrategy[str]) -> st.SearchStrategy[Def]:
    schemas = st.builds(clone_with_name, st.sampled_from(SCHEMAS), _names(namespaces))
    alone = st.builds(Def, schemas, ALIASES, TAGS, TEXTS)
    return (
        alone
        | st.builds(Def, schemas, ALIASES, TAGS, TEXTS, KERNELS, KEYS)
        | st.builds(Def, _names(namespaces), ALIASES, TAGS, TEXTS, BOXED | UNBOXED, KEYS)
    )


def _members(namespaces: st.SearchStrategy[str]) -> st.SearchStrategy[Def | Impl | Fallback]:
    return (
        _defs(namespaces)
        | st.builds(Impl, _names(namespaces), KEYS, KERNELS, TEXTS)
        | st.builds(Fallback, KEYS, BOXED | st.just(FUNCTION), TEXTS)
    )


BLOCKS = st.builds(
    Block,
    st.none() | NAMESPACES,
    st.sampled_from(BlockKind),
    st.lists(_members(st.just("") | NAMESPACES), max_size=3).map(tuple),
    KEYS,
    TEXTS,
)
REGISTRATIONS: st.SearchStrategy[Registration] = (
    _members(NAMESPACES) | st.builds(NameOnly, _names(NAMESPACES)) | st.builds(Claim, NAMESPACES, TEXTS) | BLOCKS
)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    registrations = tuple(draw(st.lists(REGISTRATIONS, min_size=1, max_size=4)))
    chosen = st.lists(_names(NAMESPACES), min_size=1, max_size=3, unique=True).map(tuple)
    return Scenario(
        claim=draw(SENTENCES),
        registrations=registrations,
        operators=draw(st.just(operators_named_by(registrations)) | chosen),
        namespace=draw(NAMESPACES),
        semantics=draw(st.none() | st.sampled_from([*SEMANTICS])),
        keys=tuple(draw(st.lists(st.sampled_from(RUNTIME_KEYS), max_size=4, unique=True))),
        order=normal([draw(st.permutations(range(len(registrations))))[: draw(st.integers(0, len(registrations)))]]),
        expect=draw(st.sampled_from(Expectation)),
    )


@examples(300)
@given(scenarios())
def test_a_written_scenario_loads_back_equal(scenario: Scenario) -> None:
    text = scenario_text(scenario)
    again = read_scenario(text, Context("<text>", find=lambda reference: NamedFunction()))
    assert again == scenario
    assert scenario_text(again) == text


@examples(200)
@given(scenarios())
def test_the_json_schema_accepts_what_is_written(scenario: Scenario) -> None:
    assert _violations(json_schema(), yaml.safe_load(scenario_text(scenario))) == []


@examples(300)
@given(TEXTS)
def test_scalar_text_is_text_to_every_yaml_reader(text: str) -> None:
    block, flow = scalar_text(text), scalar_text(text, flow=True)
    assert "\n" not in block + flow
    assert yaml.safe_load(f"- {block}") == [text]
    assert yaml.safe_load(f"[{flow}]") == [int(text) if re.fullmatch("0|[1-9][0-9]*", text) else text]


def test_a_written_scenario_reads_like_one_by_hand() -> None:
    text = """\
claim: A kernel for every backend and one for CPU.
operators: [foo]
keys: [Undefined, CPU]
order: [0, 1]
expect: order-dependent
registrations:
  - def: foo(Tensor x) -> Tensor
    alias: PURE_FUNCTION
    tags: [core, pointwise]
    debug: registered at /dev/null:0
  - impl: foo
    dispatch: CPU
    kernel: (Tensor _0) -> Tensor _0
    debug: fn_cpu
  - impl: other::foo
    kernel: (Tensor _0) -> Tensor _0
    signature: at::Tensor (at::Tensor)
    debug: "1"
  - fallback: fallthrough
    dispatch: AutogradCPU
    debug: ""
  - library: test
    kind: DEF
    debug: block
    registrations:
      - def: bar
        kernel: (Tensor _0) -> Tensor _0
      - impl: bar
        debug: own
"""
    assert scenario_text(parse_scenario(text)) == text


FOO = OperatorName("test", "foo")


@pytest.mark.parametrize(
    ("registration", "message"),
    [
        (Impl(FOO, kernel=Kernel(function=len)), "registration 0, impl test::foo .*, would load with another kernel$"),
        (Impl(OperatorName("", "foo"), debug="a"), "registration 0, impl foo .*, would load with another operator$"),
        (Impl(OperatorName("a b", "foo"), debug="a"), "found ' '|found 'b'"),
        (Def(FOO), "expected a schema but found the name foo alone"),
        (Impl(FOO, kernel=Kernel(inferred=SCHEMAS[0])), "only an unboxed kernel has a signature"),
        (Impl(FOO, debug="\ud800"), "Unicode"),
        (Fallback(None, Kernel(KernelForm.UNBOXED)), "expected fallthrough, boxed"),
    ],
)
def test_what_a_file_cannot_say_is_refused(registration: Registration, message: str) -> None:
    scenario = Scenario("A claim.", (registration,), operators_named_by([registration]))
    with pytest.raises(UnwritableError, match=message) as caught:
        scenario_text(scenario)
    assert str(caught.value).startswith("the scenario 'A claim.' cannot be written as a file: ")


class _Yaml12(yaml.SafeLoader):
    """Reads `on` as text, as YAML 1.2 and editors do."""

    yaml_implicit_resolvers = {  # noqa: RUF012  # as the base class has it
        first: [one for one in resolvers if one[0] != "tag:yaml.org,2002:bool" or first in "tTfF"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[1] / "scenarios").rglob("*.yaml")), ids=str)
def test_the_json_schema_accepts_every_scenario_of_the_repository(path: Path) -> None:
    assert _violations(json_schema(), yaml.load(path.read_text(encoding="utf-8"), _Yaml12)) == []


def test_the_json_schema_refuses_what_has_another_structure() -> None:
    data = Path(__file__).parent / "data" / "scenarios_bad"
    names = (
        *("unknown_field", "missing_field", "missing_kind", "wrong_type", "wrong_type_in_registrations"),
        *("unknown_key", "unknown_word", "empty_lists", "two_kinds", "not_a_mapping", "repeated_items"),
    )
    for name in names:
        tree = yaml.safe_load((data / f"{name}.yaml").read_text(encoding="utf-8"))
        assert _violations(json_schema(), tree), name


def test_the_json_schema_explains_every_field_and_lists_every_key() -> None:
    schema = json_schema()
    assert json.loads(json.dumps(schema)) == schema
    definitions = schema["$defs"]
    assert isinstance(definitions, dict)
    assert definitions["key"]["enum"] == [key.name for key in DispatchKey]
    assert len(definitions["key"]["enum"]) == 150
    tables = [schema, *(definitions[name] for name in ("def", "impl", "fallback", "name", "claim", "library"))]
    fields = [field for table in tables for field in table["properties"].values()]
    assert len(fields) == 39
    assert all(field["description"] for field in fields)


TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
}


def _violations(root: Mapping[str, object], value: object) -> list[str]:
    """What is wrong with a value, by the part of JSON Schema that ours is made of."""

    def check(schema: Mapping[str, object], value: object, path: str) -> list[str]:
        found: list[str] = []
        for word, wanted in schema.items():
            match word, wanted, value:
                case ("$ref", str(), _):
                    definitions = root["$defs"]
                    assert isinstance(definitions, dict)
                    found += check(definitions[wanted.removeprefix("#/$defs/")], value, path)
                case ("oneOf" | "anyOf", list(), _):
                    right = sum(not check(each, value, path) for each in wanted)
                    if right == 0 or (right > 1 and word == "oneOf"):
                        found.append(f"{path}: {right} of {word} are right")
                case ("enum", list(), _):
                    found += [] if value in wanted else [f"{path}: {value!r} is none of {wanted}"]
                case ("type", _, _):
                    types = [TYPES[name] for name in (wanted if isinstance(wanted, list) else [wanted])]  # type: ignore[index]  # a list of names or a name
                    found += [] if any(isinstance(value, each) for each in types) else [f"{path}: not {wanted}"]
                case ("properties", dict(), dict()):
                    for name, child in value.items():
                        found += check(wanted[name], child, f"{path}/{name}") if name in wanted else []
                case ("additionalProperties", False, dict()):
                    properties = schema["properties"]
                    assert isinstance(properties, dict)
                    found += [f"{path}/{name}: unknown" for name in value if name not in properties]
                case ("additionalProperties", dict(), dict()):
                    for name, child in value.items():
                        found += check(wanted, child, f"{path}/{name}")
                case ("minProperties", int(), dict()):
                    found += [] if len(value) >= wanted else [f"{path}: too few"]
                case ("required", list(), dict()):
                    found += [f"{path}/{name}: missing" for name in wanted if name not in value]
                case ("items", dict(), list()):
                    for at, child in enumerate(value):
                        found += check(wanted, child, f"{path}/{at}")
                case ("minItems", int(), list()):
                    found += [] if len(value) >= wanted else [f"{path}: too few"]
                case ("uniqueItems", True, list()):
                    found += [] if len({repr(each) for each in value}) == len(value) else [f"{path}: repeated"]
                case ("pattern", str(), str()):
                    found += [] if re.search(wanted, value) else [f"{path}: {value!r} is not {wanted}"]
                case ("minLength", int(), str()):
                    found += [] if len(value) >= wanted else [f"{path}: too short"]
                case ("minimum", int(), int()):
                    found += [] if value >= wanted else [f"{path}: too small"]
                case ("$schema" | "title" | "description" | "$defs", _, _):
                    pass
                case _:
                    assert word in (
                        *("properties", "additionalProperties", "required", "items", "minItems", "uniqueItems"),
                        *("pattern", "minLength", "minimum", "minProperties"),
                    )
        return found

    return check(root, value, "")
