"""Scenarios with registrations of Python: they are read and written, and a verdict says whether it is about them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from dispatchlab.api import check_order
from dispatchlab.cli import main
from dispatchlab.model.python_layer import PYTHON_REGISTRIES, PythonRegistration, Second
from dispatchlab.model.registration import PythonImpl
from dispatchlab.prover.result import Verdict
from dispatchlab.questions.lint.rule import Finding, Level
from dispatchlab.questions.lint.rules import selected
from dispatchlab.questions.lint.run import lint_source
from dispatchlab.scenario.load import ScenarioError, json_schema, parse_scenario
from dispatchlab.scenario.write import scenario_text
from tests.effort import examples

_HEAD = "claim: A record.\nnamespace: mine\n"
_PYTHON = """\
python:
  - registry: decompositions
    operator: mine::f
    key: post_autograd
    function: mine:pieces
    site: mine.py:7 via helper.py:2
  - registry: fake_checks
    operator: mine::f
"""
_UNKNOWN = """\
python:
  - registry: fake_checks
    operator: mine::f
  - registry: export_decompositions
    operator: mine::f
"""
_IN_ORDER = "modules:\n  mine: [0-2]\n"
_ONE = "registrations:\n  - def: f(Tensor x) -> Tensor\n  - impl: f\n    dispatch: CPU\n"
_IDEAL = " (strict, an idealised dispatcher)"
_TWO_KERNELS = f"{_ONE}  - impl: f\n    dispatch: CPU\n    debug: another\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with scenarios, which is the current one."""
    texts = {
        "plain": _HEAD + _ONE,
        "python": _HEAD + _UNKNOWN + _ONE,
        "known": _HEAD + _IN_ORDER + _PYTHON.partition("  - registry: fake_checks")[0] + _ONE,
        "some": _HEAD + _IN_ORDER + _PYTHON + _ONE,
        "violated": _HEAD + _UNKNOWN + _TWO_KERNELS,
        "alone": f"{_HEAD}packages: [mine]\n{_UNKNOWN}registrations: []\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(main, [*arguments])


def test_the_field_is_read_and_written() -> None:
    scenario = parse_scenario(_HEAD + _PYTHON + _ONE)
    assert scenario.python == (
        PythonRegistration("decompositions", "mine::f", "post_autograd", "mine:pieces", "mine.py:7 via helper.py:2"),
        PythonRegistration("fake_checks", "mine::f"),
    )
    assert parse_scenario(scenario_text(scenario)) == scenario
    assert "python" in json_schema()["properties"]  # type: ignore[operator]


texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12)


@given(st.lists(st.tuples(st.sampled_from([one.name for one in PYTHON_REGISTRIES]), texts, texts, texts), min_size=1))
@examples(100)
def test_any_text_in_it_is_read_back(some: list[tuple[str, str, str, str]]) -> None:
    python = tuple(PythonRegistration(name, f"python::f{one}", key, "", site) for name, one, key, site in some)
    scenario = parse_scenario(_HEAD + _ONE)

    held = replace(scenario, python=python)
    assert parse_scenario(scenario_text(held)).python == python


_WRITE = """\
  - python: decompositions
    operator: other::g
    key: post_autograd
    function: {function}
    call: {call}
"""


def test_an_assignment_replaces_where_a_call_is_refused_and_what_is_taken_out_is_gone() -> None:
    taken = (
        _WRITE.format(function="x:y", call="assignment").replace("    function: x:y\n", "") + "    effect: removed\n"
    )
    refused, assigned = ("register_decomposition", "assignment")

    def verdict(first: str, second: str) -> Verdict:
        return check_order(parse_scenario(f"{_HEAD}registrations:\n{first}{second}").registrations).exploration.verdict

    calls = [_WRITE.format(function=f"{name}:f", call=call) for name, call in (("one", refused), ("two", assigned))]
    for some in (calls, [calls[0], taken], [calls[1], taken]):
        assert verdict(*some) is Verdict.ORDER_DEPENDENT
    assert verdict(taken, taken) is Verdict.ORDER_INDEPENDENT
    text = f"{_HEAD}registrations:\n{calls[0]}{calls[1]}{taken}"
    python = [one.code for one in parse_scenario(text).registrations if isinstance(one, PythonImpl)]
    assert [(one.rule and one.rule.second, one.effect) for one in python] == [
        (Second.REFUSED, ""),
        (Second.REPLACES, ""),
        (Second.REPLACES, "removed"),
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "python:\n  - registry: jagged\n    operator: a::b\n    effect: remove\n",
            "expected refused, removed or used but found 'remove'; did you mean removed?",
        ),
        ("python: []\n", "expected a list of registrations of Python but found a list"),
        ("python:\n  - registry: decomposition\n    operator: a::b\n", "did you mean decompositions?"),
        ("python:\n  - registry: jagged\n", "operator"),
        ("python:\n  - registry: jagged\n    operator: a::b\n    line: 3\n", "line"),
        ("python: 3\n", "expected a list of registrations of Python but found '3'"),
        (
            "python:\n  - registry: jagged\n    operator: my::door.default\n",
            ":5:24: expected an overload other than 'default' and names that start with '__' but found 'default' "
            "in 'my::door.default'; write my::door: the default overload has no name",
        ),
        ("python:\n  - registry: jagged\n    operator: my::door.default.*\n", "write my::door"),
        ("python:\n  - registry: jagged\n    operator: my::door.__x\n", "names that start with '__'"),
        (
            "python:\n  - registry: jagged\n    operator: my::door(Tensor x) -> Tensor\n",
            "the name of an operator alone",
        ),
        ("python:\n  - registry: jagged\n    operator: door\n", "write namespace::name"),
        ("python:\n  - registry: jagged\n    operator: '::door'\n", "write namespace::name"),
        ("python:\n  - registry: jagged\n    operator: 'my::'\n", "write namespace::name"),
        ("python:\n  - registry: jagged\n    operator: my::a::b\n", "expected the end of the text"),
    ],
)
def test_a_wrong_field_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        parse_scenario(_HEAD + text + _ONE)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("operator", "sentence"),
    [
        ("other::g.default", "found 'default' in 'other::g.default'; write other::g: the default overload has no name"),
        ("g.default", "found 'default' in 'g.default'; write mine::g: the default overload has no name"),
        ("g..x", "in 'g..x'"),
        ("''", "write namespace::name"),
    ],
)
def test_an_impossible_operator_is_refused_among_the_registrations(operator: str, sentence: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        parse_scenario(f"{_HEAD}registrations:\n  - python: decompositions\n    operator: {operator}\n")
    assert sentence in str(refused.value)


def test_what_goes_by_any_text_keeps_it() -> None:
    """PyTorch takes any text for a rule of torch.library, and a record has what it found."""
    text = "python:\n  - registry: torch_library\n    operator: my::door.default\n    key: torch_dispatch a.B\n"
    (one,) = parse_scenario(_HEAD + text + _ONE).python
    assert (one.operator, one.rule) == ("my::door.default", None)


@pytest.mark.usefixtures("folder")
def test_a_verdict_is_about_the_layer_that_is_explored() -> None:
    plain, python = run("permute", "plain.yaml"), run("permute", "python.yaml")
    assert (plain.exit_code, python.exit_code) == (0, 0)
    sentence = "no violation found in the C++ layer; 2 registrations of Python not explored" + _IDEAL
    assert f"verdict: order-independent{_IDEAL}\n" in plain.stdout
    assert f"verdict: {sentence}\n" in python.stdout
    assert "order-independent" not in python.stdout.replace("expected: order-independent", "")
    shown = run("permute", "python.yaml", "--format", "rich").stdout
    assert f"{sentence}, as expected" in " ".join(shown.split())


@pytest.mark.usefixtures("folder")
def test_what_has_a_known_rule_is_explored_and_the_verdict_names_both_layers() -> None:
    known, some = run("permute", "known.yaml", "--require-proof"), run("permute", "some.yaml", "--require-proof")
    assert (known.exit_code, some.exit_code) == (0, 3)
    assert f"verdict: order-independent in the C++ layer and the Python layer{_IDEAL}\n" in known.stdout
    sentence = "no violation found in the C++ layer and the Python layer; 1 registration of Python not explored"
    assert f"verdict: {sentence}{_IDEAL}\n" in some.stdout
    values = json.loads(run("permute", "some.yaml", "--format", "json").stdout)
    assert (values["layers"], values["unexplored"], values["registrations"]) == (["cxx", "python"], 1, 3)


@pytest.mark.usefixtures("folder")
def test_a_layer_in_which_nothing_is_registered_is_not_named() -> None:
    entry = _WRITE.format(function="x:y", call="assignment")
    Path("only.yaml").write_text(f"{_HEAD}packages: [mine]\nimports:\n  ran: 1\n  of: 1\nregistrations:\n{entry}")
    values = json.loads(run("permute", "only.yaml", "--format", "json").stdout)
    assert values["layers"] == ["python"]
    assert "verdict: order-independent in the Python layer (" in run("permute", "only.yaml").stdout


@pytest.mark.parametrize("field", ["python", "registrations"])
@pytest.mark.parametrize(("site", "verdict"), [("a.py:3", "order-dependent"), ("", "no violation found")])
def test_a_fallback_of_inductor_without_its_lowering_is_not_explored_beside_another(
    tmp_path: Path, field: str, site: str, verdict: str
) -> None:
    entries = [("inductor_fallbacks", "a.py:3"), ("inductor_lowerings", "b.py:7")]
    if site:
        entries.append(("inductor_lowerings", site))
    name = "registry" if field == "python" else "python"
    lines = "".join(f"  - {name}: {registry}\n    operator: mine::f\n    site: {at}\n" for registry, at in entries)
    before = f"python:\n{lines}{_ONE}" if field == "python" else f"{_ONE}{lines}"
    (tmp_path / "half.yaml").write_text(_HEAD + before)
    result = CliRunner().invoke(main, ["permute", str(tmp_path / "half.yaml"), "--format", "json"])
    found = json.loads(result.stdout)
    assert (found["verdict"], found["unexplored"]) == (verdict, int(not site))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("engine", [("--walk", "graph"), ("--walk", "orders"), ()])
def test_it_is_no_proof(engine: tuple[str, ...]) -> None:
    assert run("permute", "plain.yaml", "--require-proof", "--walk", "graph").exit_code == 0
    assert run("permute", "python.yaml", "--require-proof", *engine).exit_code == 3


@pytest.mark.usefixtures("folder")
def test_json_names_the_layers() -> None:
    plain, python = (
        json.loads(run("permute", f"{name}.yaml", "--format", "json").stdout) for name in ("plain", "python")
    )
    assert (plain["verdict"], plain["layers"], plain["unexplored"]) == ("order-independent", ["cxx"], 0)
    assert (python["verdict"], python["layers"], python["unexplored"]) == ("no violation found", ["cxx"], 2)


@pytest.mark.usefixtures("folder")
def test_a_violation_is_one_all_the_same() -> None:
    result = run("permute", "violated.yaml")
    assert result.exit_code == 1
    sentence = "order-dependent in the C++ layer; 2 registrations of Python not explored"
    assert f"verdict: {sentence}{_IDEAL}\n" in result.stdout


@pytest.mark.usefixtures("folder")
def test_registrations_of_python_alone_are_nothing_to_explore() -> None:
    result = run("permute", "alone.yaml")
    assert result.exit_code == 2
    assert "it has 2 registrations of Python alone, which cannot be explored here" in result.stderr


@pytest.mark.usefixtures("folder")
def test_a_certificate_is_about_the_layer_that_is_explored() -> None:
    sentence = "note: this is about the C++ layer; 2 registrations of Python in python.yaml not explored\n"
    result = run("certify", "python.yaml", "--jobs", "1")
    assert (result.exit_code, sentence in result.stderr) == (0, True)
    assert sentence not in run("certify", "plain.yaml", "--jobs", "1").stderr


_OVER = f"""\
packages: [first, second]
python:
  - registry: decompositions
    operator: other::g
    key: post_autograd
    function: first:pieces
    site: {{first}}/ops.py:7
  - registry: decompositions
    operator: other::g
    key: post_autograd
    function: second:pieces
    site: {{second}}/ops.py:9
  - registry: decompositions
    operator: other::g
    key: pre_autograd
    function: second:pieces
    site: second/ops.py:9
{_ONE}"""


def _findings(text: str, *operators: str, code: int) -> list[Finding]:
    Path("over.yaml").write_text(text)
    report = lint_source("over.yaml", selected(("DL002",)), operators=operators)
    assert report.exit_code == code
    return list(report.findings)


@pytest.mark.usefixtures("folder")
def test_one_that_takes_the_place_of_another_one_is_a_finding() -> None:
    text = _HEAD + _OVER.format(first="first", second="second")
    (found,) = _findings(text, code=1)
    assert (found.code, found.operator, found.level) == ("DL002", "other::g", Level.WARNING)
    assert found.message.startswith(
        "the entry in decompositions post_autograd from second/ops.py:9 took the place of that of first/ops.py:7, "
    )
    assert not _findings(text, "mine::f", code=0)
    shown = run("permute", "over.yaml")
    sentence = "verdict: order-dependent (strict, an idealised dispatcher; 1 import order ran)\n"
    assert (shown.exit_code, sentence in shown.stdout) == (1, True)
    assert "-decompositions post_autograd: second:pieces, registered at second/ops.py:9\n" in shown.stdout
    assert "+decompositions post_autograd: first:pieces, registered at first/ops.py:7\n" in shown.stdout


@pytest.mark.usefixtures("folder")
def test_within_one_package_it_is_information() -> None:
    (found,) = _findings(_HEAD + _OVER.format(first="first", second="first"), code=0)
    assert found.level is Level.INFORMATION


@pytest.mark.usefixtures("folder")
def test_it_is_found_in_a_record_without_registrations_of_the_dispatcher() -> None:
    text = f"claim: A record.\nregistry: torch-2.13\n{_OVER.partition('registrations:')[0]}registrations: []\n"
    (found,) = _findings(text.format(first="first", second="second"), code=1)
    assert found.operator == "other::g"


def test_the_api_says_it_too() -> None:
    checked = check_order(parse_scenario(_HEAD + _IN_ORDER + _PYTHON + _ONE))
    assert checked.verdict is Verdict.NO_VIOLATION_FOUND
    assert (checked.report.unexplored, checked.report.in_python) == (1, 1)
    assert "in the C++ layer and the Python layer; 1 registration of Python not explored" in str(checked)
    known = check_order(parse_scenario(_HEAD + _IN_ORDER + _PYTHON.partition("  - registry: fake_checks")[0] + _ONE))
    assert (known.verdict, known.report.layers) == (Verdict.ORDER_INDEPENDENT, ("cxx", "python"))
    assert check_order(parse_scenario(_HEAD + _ONE)).verdict is Verdict.ORDER_INDEPENDENT
