"""What a scenario file says, and that nothing else than a scenario or one error ever comes out of a file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dispatchlab.model.keys import DispatchKey
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
    SourceLocation,
)
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.schema_parser import parse_schema
from dispatchlab.prover.chains import Module
from dispatchlab.prover.result import Expectation, Verdict
from dispatchlab.questions.certify.certificate import Certified
from dispatchlab.scenario import Scenario, ScenarioError, load_scenario, parse_scenario, scenario_text
from tests.effort import examples
from tests.scenario_texts import MODULES

BAD = Path(__file__).parent / "data" / "scenarios_bad"

EVERYTHING = """\
claim: Every field is here.
namespace: ns
semantics: torch-2.13
operators: [foo, other::bar.out]
keys: [Undefined, CPU, AutogradCPU]
order: [1, 0]
expect: order-dependent
registrations:
  - def: foo(Tensor x) -> Tensor
    alias: PURE_FUNCTION
    tags: [pointwise, core]
    debug: yes
  - def: other::bar.out(Tensor x) -> Tensor
    alias: default
    dispatch: CPU
    kernel: (Tensor _0) -> Tensor _0
  - def: inferred
    kernel: (SymInt _0) -> ()
  - impl: foo
  - impl: foo
    dispatch: Undefined
    kernel: (Tensor _0) -> Tensor _0
    signature: at::Tensor (at::Tensor)
    debug: ''
  - impl: foo
    kernel: unboxed
  - impl: foo
    kernel: fallthrough
    dispatch: Autograd
  - fallback: boxed
    dispatch: Meta
  - name: named
  - claim: claimed
  - library: lib
    kind: FRAGMENT
    registrations:
      - def: foo(Tensor x) -> Tensor
      - impl: lib::foo
        debug: own
  - library: _
    kind: IMPL
    dispatch: CUDA
    debug: block
    registrations:
      - fallback: fallthrough
      - impl: foo
"""


def _one(text: str, *, allow_import: bool = False) -> object:
    data = f"claim: A claim.\nregistrations:\n  - {text}"
    (registration,) = parse_scenario(data, file="folder/a.yaml", allow_import=allow_import).registrations
    return registration


def _foo(namespace: str) -> FunctionSchema:
    return parse_schema(f"{namespace}foo(Tensor x) -> Tensor")


def test_a_file_with_every_field_makes_these_values() -> None:
    scenario = parse_scenario(EVERYTHING, file="folder/all.yaml")
    foo = OperatorName("ns", "foo")
    registrations = scenario.registrations
    unboxed = registrations[1].kernel if isinstance(registrations[1], Def) else None
    symint = registrations[2].kernel if isinstance(registrations[2], Def) else None
    assert unboxed is not None
    assert unboxed.form is KernelForm.UNBOXED
    assert (str(unboxed.inferred), unboxed.symint) == ("(Tensor _0) -> Tensor _0", False)
    assert unboxed.inferred is not None
    assert unboxed.inferred.name == OperatorName("", "")
    assert unboxed.signature == "at::Tensor (at::Tensor const&)"
    assert symint is not None
    assert (symint.symint, symint.signature) == (True, "void (c10::SymInt)")
    at = "registered at all.yaml:"
    by_value = Kernel(KernelForm.UNBOXED, unboxed.inferred, "at::Tensor (at::Tensor)")
    assert registrations == (
        Def(_foo("ns::"), AliasKind.PURE_FUNCTION, frozenset(("pointwise", "core")), "yes"),
        Def(
            parse_schema("other::bar.out(Tensor x) -> Tensor"),
            None,
            debug=f"{at}13",
            kernel=unboxed,
            key=DispatchKey.CPU,
        ),
        Def(OperatorName("ns", "inferred"), AliasKind.CONSERVATIVE, debug=f"{at}17", kernel=symint),
        Impl(foo, debug=f"{at}19"),
        Impl(foo, None, by_value, ""),
        Impl(foo, None, Kernel(KernelForm.UNBOXED), f"{at}25"),
        Impl(foo, DispatchKey.Autograd, Kernel(KernelForm.FALLTHROUGH), f"{at}27"),
        Fallback(DispatchKey.Meta, Kernel(), f"{at}30"),
        NameOnly(OperatorName("ns", "named")),
        Claim("claimed", f"{at}33"),
        Block(
            "lib",
            BlockKind.FRAGMENT,
            (Def(_foo(""), debug=f"{at}34"), Impl(OperatorName("lib", "foo"), debug="own")),
            debug=f"{at}34",
        ),
        Block(
            None,
            BlockKind.IMPL,
            (
                Fallback(None, Kernel(KernelForm.FALLTHROUGH), "block"),
                Impl(OperatorName("", "foo"), debug="block"),
            ),
            DispatchKey.CUDA,
            "block",
        ),
    )
    assert registrations[4].location == SourceLocation("folder/all.yaml", 20, 5)
    assert (scenario.claim, scenario.namespace, scenario.semantics) == ("Every field is here.", "ns", "torch-2.13")
    assert scenario.operators == (foo, OperatorName("other", "bar", "out"))
    assert scenario.keys == (DispatchKey.Undefined, DispatchKey.CPU, DispatchKey.AutogradCPU)
    assert (scenario.order, scenario.expect) == (((1, 0),), Expectation.ORDER_DEPENDENT)
    assert scenario.file == "folder/all.yaml"


def test_what_is_left_out_has_these_defaults() -> None:
    text = "claim: A\nregistrations:\n  - impl: b\n  - impl: a::c\n  - impl: b\n  - fallback: boxed\n"
    scenario = parse_scenario(text)
    assert (scenario.namespace, scenario.semantics, scenario.keys, scenario.order) == ("test", None, (), ())
    assert scenario.expect is Expectation.ORDER_INDEPENDENT
    assert scenario.operators == (OperatorName("test", "b"), OperatorName("a", "c"))
    assert scenario.names == ("impl test::b", "impl a::c", "impl test::b (2)", "fallback")


def test_the_default_observes_names_inside_blocks_in_their_namespace() -> None:
    block = "library: lib\n    kind: FRAGMENT\n    registrations: [impl: foo, impl: other::bar]"
    scenario = parse_scenario(f"claim: A\nregistrations:\n  - {block}")
    assert scenario.operators == (OperatorName("lib", "foo"), OperatorName("other", "bar"))


def test_equal_content_in_another_folder_is_an_equal_scenario() -> None:
    here, there = (parse_scenario(EVERYTHING, file=f"{folder}/a.yaml") for folder in ("here", "there"))
    assert here == there


@pytest.mark.parametrize("text", ["yes", "1", "2020-01-01", "null", "~", "1e3", "0x1F", "=", "<<", "."])
def test_text_is_the_text_that_stands_there(text: str) -> None:
    registration = _one(f"impl: foo\n    debug: {text}")
    assert isinstance(registration, Impl)
    assert registration.debug == text


def test_a_function_is_a_boxed_kernel_that_knows_its_name() -> None:
    assert _one("impl: foo\n    kernel: posixpath:join", allow_import=True) == Impl(
        OperatorName("test", "foo"),
        None,
        Kernel(KernelForm.BOXED, reference="posixpath:join"),
        "registered at a.yaml:3",
    )


def test_a_name_and_a_function_define_the_schema_that_its_annotations_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "class Tensor: ...\ndef kernel(x: Tensor, n: int) -> Tensor: ...\ndef bare(x): ...\n"
    (tmp_path / "scenario_functions.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = _one("def: foo.bar\n    kernel: scenario_functions:kernel", allow_import=True)
    assert isinstance(made, Def)
    assert str(made.schema) == "test::foo.bar(Tensor _0, int _1) -> Tensor _0"
    assert made.alias is AliasKind.CONSERVATIVE
    assert made.kernel is not None
    assert (made.kernel.form, made.kernel.inferred) == (KernelForm.BOXED, None)
    with pytest.raises(ScenarioError, match=r"^folder/a.yaml:4:13: .*'x'"):
        _one("def: foo\n    kernel: scenario_functions:bare", allow_import=True)


def test_loading_1200_registrations_parses_each_schema_once() -> None:
    lines = ["claim: A", "registrations:"]
    for operator in range(200):
        lines.append(f"  - def: foo{operator}(Tensor x) -> Tensor")
        for key in ("CPU", "CUDA", "Meta", "Autograd", "AutogradCPU"):
            lines += [f"  - impl: foo{operator}", f"    dispatch: {key}", "    kernel: (Tensor _0) -> Tensor _0"]
    scenario = parse_scenario("\n".join(lines))
    assert len(scenario.registrations) == 1200
    assert len(scenario.operators) == 200
    kernels = {id(each.kernel.inferred) for each in scenario.registrations if isinstance(each, Impl)}
    assert len(kernels) == 1


def test_the_pure_python_parser_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = parse_scenario(EVERYTHING)
    monkeypatch.setattr("dispatchlab.scenario.yaml_tree._LOADER", yaml.SafeLoader)
    slow = parse_scenario(EVERYTHING)
    assert fast == slow
    assert [each.location for each in fast.registrations] == [each.location for each in slow.registrations]
    for text, message in (('claim: "\\ud800"', "half of a surrogate pair"), ('claim: "\\UFFFFFFFF"', "not YAML")):
        with pytest.raises(ScenarioError, match=message):
            parse_scenario(text)


def _outcome(data: bytes) -> str:
    """`scenario` or `refused`; any other exception is a failure of the test."""
    try:
        scenario = parse_scenario(data, file="a.yaml")
    except ScenarioError as error:
        lines = str(error).split("\n")
    else:
        assert isinstance(scenario, Scenario)
        assert parse_scenario(scenario_text(scenario)) == scenario
        return "scenario"
    assert lines
    assert all(line.startswith("a.yaml") for line in lines)
    return "refused"


@examples(300)
@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_a_scenario_or_one_error(data: bytes) -> None:
    assert _outcome(data) in ("scenario", "refused")


WORDS = st.sampled_from(
    [
        *("claim", "registrations", "def", "impl", "fallback", "name", "library", "kind", "dispatch", "kernel"),
        *("debug", "alias", "tags", "signature", "order", "keys", "operators", "test", "_", "CPU", "AutogradCPU"),
        *("DEF", "IMPL", "boxed", "fallthrough", "foo", "a::b", "foo(Tensor x) -> Tensor", "(int _0) -> int _0"),
        *("foo(", ":", ".", "[", "]", "{", "}", "0", "1", "9", "-1", "yes", "~", "os:getcwd", "refused"),
        *("\xe9", "\u2028", "\n", "  - ", "''"),
    ]
)


@examples(300)
@given(st.integers(0, len(EVERYTHING)), st.integers(0, 30), st.lists(WORDS | st.text(max_size=3), max_size=3))
def test_a_broken_file_is_a_scenario_or_one_error(at: int, length: int, words: list[str]) -> None:
    broken = EVERYTHING[:at] + " ".join(words) + EVERYTHING[at + length :]
    assert _outcome(broken.encode("utf-8", "surrogatepass")) in ("scenario", "refused")


TREES = st.recursive(
    WORDS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=5), max_leaves=20
)


@examples(300)
@given(st.dictionaries(WORDS, TREES, max_size=4), st.lists(st.dictionaries(WORDS, TREES, max_size=4), max_size=3))
def test_any_tree_of_known_words_is_a_scenario_or_one_error(top: dict[str, object], entries: list[object]) -> None:
    tree = {"claim": "A", **top, "registrations": [{"impl": "foo"}, *entries]}
    assert _outcome(yaml.safe_dump(tree, allow_unicode=True).encode()) in ("scenario", "refused")


def test_fuzzed_files_reach_both_outcomes() -> None:
    assert _outcome(EVERYTHING.encode()) == "scenario"
    refused = [_outcome(path.read_bytes()) for path in sorted(BAD.glob("*.yaml"))]
    assert len(refused) >= 38
    assert set(refused) == {"refused"}


def test_a_file_is_read_as_its_content_is(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(EVERYTHING, encoding="utf-8")
    scenario = load_scenario(path)
    assert scenario == parse_scenario(EVERYTHING, file="all.yaml")
    assert scenario.file == str(path)


def test_verdicts_and_expectations_share_their_words() -> None:
    assert {str(each) for each in Expectation} - {str(each) for each in Verdict} == {"refused"}
    assert {str(each) for each in Certified} - {str(each) for each in Verdict} == {"not decided"}


def test_modules_are_read_and_written() -> None:
    scenario = parse_scenario(MODULES, file="shop.yaml")
    assert scenario.modules == (Module("shop.one", (0, 1)), Module("shop.two", (2, 3)))
    text = scenario_text(scenario)
    assert "modules:\n  shop.one: [0, 1]\n  shop.two: [2, 3]\n" in text
    assert parse_scenario(text) == scenario


@pytest.mark.parametrize(
    ("text", "order", "written"),
    [
        ("[1, 0]", ((1, 0),), "[1, 0]"),
        ("[[0, 1], [2, 3]]", ((0, 1), (2, 3)), "[[0, 1], [2, 3]]"),
        ("[[0, 1], [1, 2]]", ((0, 1, 2),), "[0, 1, 2]"),
        ("[[0, 2], [1, 2], [2, 3]]", ((0, 2), (0, 3), (1, 2), (1, 3), (2, 3)), "[[0, 2, 3], [1, 2]]"),
        ("[]", (), None),
    ],
)
def test_an_order_is_one_chain_or_several(text: str, order: tuple[tuple[int, ...], ...], written: str | None) -> None:
    body = "".join(f"  - {{impl: foo, debug: fn_{at}}}\n" for at in range(4))
    scenario = parse_scenario(f"claim: A\norder: {text}\nregistrations:\n{body}")
    assert scenario.order == order
    assert parse_scenario(scenario_text(scenario)) == scenario
    assert (f"order: {written}\n" in scenario_text(scenario)) == (written is not None)
