"""Rules: each finds what its page says and leaves the near miss alone; selection, baselines, SARIF."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.text import Text

from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Block, BlockKind, TorchLibraryCall, TorchLibraryFunction
from dispatchlab.questions.check.blocks import check_view
from dispatchlab.questions.check.check_sources import check_report
from dispatchlab.questions.check.selection import NothingSelectedError, UnknownRuleError, selected
from dispatchlab.questions.coverage.coverage_on_lab import Fill
from dispatchlab.questions.lint.baseline import BaselineError, load_baseline
from dispatchlab.questions.lint.blocks import finding_part
from dispatchlab.questions.lint.provenance import calls_in
from dispatchlab.questions.lint.rule import Finding, Identity, Level, LintReport, Rule, Subject, grouped
from dispatchlab.questions.lint.rules import RULES
from dispatchlab.questions.lint.run import lint as run_rules
from dispatchlab.questions.lint.run import lint_source
from dispatchlab.questions.sources.replay_on_lab import for_registry
from dispatchlab.registries.debug_text import in_its_language
from dispatchlab.registries.model import RecordedKernel, RecordedOperator, registry_of
from dispatchlab.views.as_json import as_json
from dispatchlab.views.text import text_of
from tests.command_line import run

ROOT = Path(__file__).parent.parent
SCENARIOS = ROOT / "scenarios" / "lint"
CODES = [rule.code for rule in RULES]


def lint(
    source: Path | str,
    *,
    select: tuple[str, ...] = (),
    against: Path | str | None = None,
    operators: tuple[str, ...] = (),
    accepted: frozenset[Identity] = frozenset(),
) -> LintReport:
    return lint_source(
        str(source),
        selected(select, ()),
        operators=operators,
        against=None if against is None else str(against),
        accepted=accepted,
    )


def scenario(code: str, name: str) -> Path:
    return SCENARIOS / f"{code.lower()}_{name}.yaml"


def against(code: str) -> Path | None:
    """What a rule that compares two moments compares with."""
    return scenario(code, "not_found") if code == "DL007" else None


def test_codes_are_in_order_and_one_of_a_rule_that_is_gone_is_not_given_again() -> None:
    assert [f"DL{number:03}" for number in range(1, len(RULES) + 2) if number != 17] == CODES
    assert len({rule.name for rule in RULES}) == len(RULES) >= 16


@pytest.mark.parametrize("code", CODES)
def test_each_rule_finds_its_scenario_and_not_the_near_miss(code: str) -> None:
    found = lint(scenario(code, "found"), select=(code,), against=against(code))
    (finding,) = found.findings
    assert finding.code == code
    assert re.match("test(_cpu)?::scale|aten::(relu|linear|empty_strided)", finding.operator)
    assert finding.owners
    assert finding.fix
    near = lint(scenario(code, "not_found"), select=(code,), against=against(code))
    assert near.checked == (code,)
    assert near.findings == ()


@pytest.mark.parametrize("rule", RULES, ids=CODES)
def test_the_scenarios_are_the_examples_of_the_pages(rule: Rule) -> None:
    for name, text in (("found", rule.bad), ("not_found", rule.good)):
        example = [line for line in text.strip().splitlines() if not line.startswith("#")]
        lines = scenario(rule.code, name).read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith("claim: ")
        assert [
            line for line in lines[1:] if not line.startswith(("keys:", "expect:", "semantics: strict", "#"))
        ] == example


def test_each_rule_says_what_it_cannot_know() -> None:
    for rule in RULES:
        assert f"## What it cannot know\n\n{rule.unknown}\n" in rule.page
        assert len(rule.unknown.split()) > 8


def test_each_rule_has_its_page() -> None:
    for rule in RULES:
        path = ROOT / "docs" / "lint" / f"{rule.code}.md"
        if os.environ.get("EXPECTTEST_ACCEPT"):
            path.write_text(rule.page, encoding="utf-8", newline="\n")
        assert path.read_text(encoding="utf-8") == rule.page
    assert sorted(path.stem for path in (ROOT / "docs" / "lint").glob("*.md")) == CODES


def test_every_scenario_belongs_to_a_rule() -> None:
    names = {path.stem for path in SCENARIOS.glob("*.yaml")}
    assert names == {f"{code.lower()}_{which}" for code in CODES for which in ("found", "not_found")}


def with_one_more(text: str, registration: str) -> str:
    """Return the text of a scenario with one more registration, before its last field."""
    return text.replace("semantics: strict\n", f"{registration}semantics: strict\n")


def test_findings_of_the_earlier_source_are_left_out(tmp_path: Path) -> None:
    before = tmp_path / "before.yaml"
    before.write_text(scenario("DL002", "found").read_text(encoding="utf-8"), encoding="utf-8")
    after = tmp_path / "after.yaml"
    text = before.read_text(encoding="utf-8")
    after.write_text(with_one_more(text, "  - impl: lost\n    dispatch: CPU\n"), encoding="utf-8")
    report = lint(after, against=before)
    assert [finding.identity for finding in report.findings] == [Identity("DL001", "test::lost", "", ("after.yaml",))]
    assert report.known == 3
    changed = tmp_path / "changed.yaml"
    changed.write_text(
        with_one_more(text, "  - impl: scale\n    dispatch: CUDA\n    debug: third.py:1\n"), encoding="utf-8"
    )
    report = lint(changed, against=before, select=("DL002", "DL006"))
    assert report.findings == ()
    assert report.known == 2


def test_a_dangling_kernel_is_reported_with_the_operator_of_the_nearest_namespace(tmp_path: Path) -> None:
    path = tmp_path / "quanto.yaml"
    path.write_text(
        "claim: x\nregistrations:\n  - def: quanto::qbytes_mm(Tensor x) -> Tensor\n"
        "  - def: other::qbytes_mm(Tensor x) -> Tensor\n"
        "  - impl: quanto_py::qbytes_mm\n    dispatch: MPS\n    debug: mps.py:3\n",
        encoding="utf-8",
    )
    (finding,) = lint(path, select=("DL001", "impl-in-another-namespace")).findings
    assert (finding.code, finding.operator) == ("DL012", "quanto_py::qbytes_mm")
    assert finding.message.endswith(
        "(MPS from mps.py:3) and no def, so they never run; did you mean quanto::qbytes_mm?"
    )


def test_a_dangling_overload_is_reported_with_the_nearest_overload(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    names = [f"  - def: own::add.{overload}(Tensor x) -> Tensor\n" for overload in ("Scalar", "Tensor")]
    path.write_text(f"claim: x\nregistrations:\n{''.join(names)}  - impl: own::add.Tensr\n    dispatch: CPU\n")
    (finding,) = lint(path, select=("DL001",)).findings
    assert finding.fix == 'lib.impl("own::add.Tensor", fn, "CPU")'


@pytest.mark.parametrize(
    ("debug", "fix"),
    [
        ("own/ops.py:7", 'lib.impl("own::scale", fn, "CPU")'),
        ("own/ops.cu:7", 'm.impl("scale", fn) in TORCH_LIBRARY_IMPL(own, CPU, m)'),
    ],
)
def test_the_fix_of_a_registration_is_in_its_language(tmp_path: Path, debug: str, fix: str) -> None:
    path = tmp_path / "own.yaml"
    impl = f"  - impl: own::scales\n    dispatch: CPU\n    debug: {debug}\n"
    path.write_text(f"claim: x\nregistrations:\n  - def: own::scale(Tensor x) -> Tensor\n{impl}")
    (finding,) = lint(path, select=("DL001",)).findings
    assert finding.fix == fix


@pytest.mark.parametrize(
    ("fix", "in_cpp"),
    [
        (
            'lib.define("f(...) -> ..."), or import the package that defines it first',
            'm.def("f(...) -> ...") in TORCH_LIBRARY(own, m), or import the package that defines it first',
        ),
        (
            'lib.impl("f", fn, "CPU") on a library of other',
            'm.impl("f", fn) in TORCH_LIBRARY_IMPL(other, CPU, m)',
        ),
        (
            'lib.impl("f", fn, "Autograd", allow_override=True), where fn applies a torch.autograd.Function',
            'm.impl("f", fn) in TORCH_LIBRARY_IMPL(own, Autograd, m), where fn applies a torch::autograd::Function',
        ),
    ],
)
def test_a_fix_has_the_calls_of_cpp_only_if_every_line_is_in_cpp(fix: str, in_cpp: str) -> None:
    assert in_its_language(fix, ["registered at a.cpp:1", "registered at /b/c.cu:22"], "own") == in_cpp
    assert in_its_language(fix, ["registered at a.cpp:1", "registered at b.py:22"], "own") == fix
    assert in_its_language(fix, ["registered at the console"], "own") == fix


def test_the_locations_of_a_finding_start_at_the_root_of_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "src" / "own").mkdir(parents=True)
    (tmp_path / "src" / "own" / "ops.py").touch()
    monkeypatch.chdir(tmp_path)
    finding = Finding("DL001", "own::op", None, "", ("registered at own/ops.py:7",))
    (location,) = json.loads(json.dumps(as_json(finding)))["locations"]
    assert location == {"file": "src/own/ops.py", "line": 7, "column": 1}


def test_the_text_of_a_finding_shows_one_path_for_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "src" / "own").mkdir(parents=True)
    (tmp_path / "src" / "own" / "ops.py").touch()
    monkeypatch.chdir(tmp_path)
    findings = [
        Finding(
            "DL006",
            f"own::{name}",
            None,
            f"it has a kernel from own/ops.py:{line}",
            (f"registered at own/ops.py:{line}",),
        )
        for name, line in (("one", 7), ("two", 8))
    ]
    shown = text_of(finding_part("Findings", grouped(findings), str))
    assert re.findall(r"[\w/]*ops\.py:\d", shown) == ["src/own/ops.py:7"] * 2 + ["src/own/ops.py:8"]


def test_rules_are_selected_by_code_or_name() -> None:
    assert [rule.code for rule in selected(("DL002,dl004", "dangling-impl"))] == ["DL001", "DL002", "DL004"]
    assert [rule.code for rule in selected((), ("DL006", "order-matters"))] == [
        code for code in CODES if code not in ("DL006", "DL009")
    ]


def test_an_unknown_rule_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UnknownRuleError, match="did you mean dangling-impl"):
        selected(("dangling",))


def test_rules_that_leave_nothing_to_check_are_refused() -> None:
    with pytest.raises(NothingSelectedError, match="nothing would be checked: select others, or ignore fewer"):
        selected(("DL002",), ("shadowed-kernel",))
    result = run("check", str(scenario("DL002", "found")), "--select", "DL002", "--ignore", "DL002")
    assert (result.exit_code, "every rule that is selected is ignored" in result.stderr) == (2, True)


def test_a_baseline_accepts_what_it_names_and_lists_what_is_gone(tmp_path: Path) -> None:
    path, source = tmp_path / "accepted.json", str(scenario("DL002", "found"))
    result = run("check", source, "--write-baseline", str(path))
    assert (result.exit_code, "accepts 3 findings" in result.stderr) == (0, True)
    accepted = load_baseline(str(path))
    first, second = "first_package/cpu.py", "second_package/cpu.py"
    assert accepted == {
        Identity("DL002", "test::scale", "CPU", (second, first)),
        Identity("DL006", "test::scale", "CPU", (second,)),
        Identity("DL010", "test::scale", "CPU", (second,)),
    }
    result = run("check", source, "--baseline", str(path))
    assert (result.exit_code, "3 findings more accepted by the baseline" in result.stdout) == (0, True)
    result = run("check", str(scenario("DL001", "found")), "--baseline", str(path))
    assert result.exit_code == 1
    assert "3 of the baseline not found any more: DL002 test::scale CPU, DL006" in result.stdout


def test_writing_a_baseline_again_drops_what_is_gone(tmp_path: Path) -> None:
    path = str(tmp_path / "accepted.json")
    for source in (scenario("DL002", "found"), scenario("DL001", "found")):
        older = ["--baseline", path] if Path(path).exists() else []
        assert run("check", str(source), *older, "--write-baseline", path).exit_code == 0
    assert load_baseline(path) == {Identity("DL001", "test::scales", "", ("my_package/cpu.py",))}


def test_a_baseline_does_not_accept_a_package_that_came_later(tmp_path: Path) -> None:
    path, source = tmp_path / "accepted.json", scenario("DL002", "found")
    run("check", str(source), "--select", "DL002", "--write-baseline", str(path))
    third = tmp_path / "third.yaml"
    text = source.read_text(encoding="utf-8")
    third.write_text(
        with_one_more(text, "  - impl: scale\n    dispatch: CPU\n    debug: third_package/cpu.py:1\n"), encoding="utf-8"
    )
    (finding,) = lint(third, select=("DL002",), accepted=load_baseline(str(path))).findings
    assert finding.message.startswith("the kernel from third_package/cpu.py:1 overrides that of second_package/cpu.py")
    moved = tmp_path / "moved.yaml"
    moved.write_text(text.replace("cpu.py:9", "cpu.py:90"), encoding="utf-8")
    assert lint(moved, select=("DL002",), accepted=load_baseline(str(path))).findings == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "it cannot be read"),
        ("{", "it is not JSON"),
        ("[]", "expected version 2"),
        ('{"version": 1, "findings": []}', "expected version 2"),
        ('{"version": 2, "findings": [{"code": "DL001"}]}', "expected a code, an operator, a key and files"),
    ],
)
def test_a_file_that_is_no_baseline_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "baseline.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(BaselineError, match=message):
        load_baseline(str(path))


def test_the_text_ends_with_the_counts() -> None:
    text = check_view(check_report([lint(scenario("DL008", "found"), select=("DL008",))])).text()
    assert re.match(r"\S+dl008_found.yaml: 1 warning\n  registered  1 operator\n", text)
    assert (
        "\n  warning DL008 composite-not-suppressed test::scale MTIA\n      the kernel from my_package/mtia.py:5"
        in text
    )


def test_a_baseline_that_cannot_be_written_ends_the_command_with_2(tmp_path: Path) -> None:
    source = str(scenario("DL002", "found"))
    result = run("check", source, "--write-baseline", str(tmp_path / "no" / "folder"))
    assert (result.exit_code, "folder could not be written: there is no folder" in result.stderr) == (2, True)


def test_the_command_ends_with_1_when_it_finds_something() -> None:
    bad, good = str(scenario("DL004", "found")), str(scenario("DL001", "not_found"))
    result = run("check", bad, good, "--select", "DL004", "--format", "json")
    assert result.exit_code == 1
    value = json.loads(result.stdout)
    assert [len(one["findings"]) for one in value["answers"]] == [1, 0]
    assert value["answers"][0]["findings"][0]["code"] == "DL004"
    result = run("check", good, "--select", "DL001", "--format", "rich")
    assert (result.exit_code, "nothing found" in result.stdout) == (0, True)


def test_a_rule_explains_itself() -> None:
    assert run("rule", "dl003").stdout == next(rule for rule in RULES if rule.code == "DL003").page


def findings(folder: Path, registrations: str, *codes: str) -> Sequence[tuple[str, str]]:
    """The codes and operators that are found in the registrations of a scenario."""
    path = folder / "registrations.yaml"
    path.write_text(f"claim: x\nregistrations:\n{registrations}", encoding="utf-8")
    return [(finding.code, finding.operator.partition("::")[2]) for finding in lint(path, select=codes).findings]


def impl(operator: str, key: str, debug: str = "my_package/ops.py:1") -> str:
    return f"  - impl: {operator}\n    dispatch: {key}\n    debug: {debug}\n"


F = "  - def: f(Tensor x) -> Tensor\n"


@pytest.mark.parametrize(
    ("registrations", "found"),
    [
        pytest.param(
            "  - def: f(Tensor x) -> Tensor\n" + impl("f", "CPU") + impl("f", "Autograd"),
            False,
            id="over other operators",
        ),
        pytest.param("  - def: f(Tensor x) -> Tensor\n" + impl("f", "CompositeExplicitAutograd"), False, id="default"),
        pytest.param(
            "  - def: f.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)\n" + impl("f.out", "CPU"), False, id="out"
        ),
        pytest.param("  - def: f(Tensor(a!) x) -> ()\n" + impl("f", "CPU"), False, id="returns nothing"),
        pytest.param("  - def: aten::f(Tensor x) -> Tensor\n" + impl("aten::f", "CPU"), False, id="run on zeros"),
        pytest.param("  - def: f(Tensor x) -> Tensor\n" + impl("f", "CPU") + impl("f", "Fake"), False, id="fake key"),
        pytest.param(
            "  - def: f(Tensor x) -> Tensor\n" + impl("f", "CPU") + impl("f", "AutocastCPU"), True, id="autocast"
        ),
        pytest.param("  - def: f(Tensor x) -> Tensor\n" + impl("f", "CUDA"), True, id="CUDA alone"),
    ],
)
def test_no_meta_kernel_is_reported_where_a_tracer_fails_and_nowhere_else(
    tmp_path: Path, registrations: str, *, found: bool
) -> None:
    names = findings(tmp_path, registrations, "DL006")
    assert names == ([("DL006", "f")] if found else [])


def test_the_formula_is_information_and_no_error_by_itself(tmp_path: Path) -> None:
    assert findings(tmp_path, "  - def: f(Tensor x) -> Tensor\n" + impl("f", "CompositeExplicitAutograd")) == [
        ("DL010", "f")
    ]
    result = run("check", str(tmp_path / "registrations.yaml"))
    assert (result.exit_code, "information DL010 no-autograd-formula test::f" in result.stdout) == (0, True)
    assert "without one, autograd records only what the kernel calls, and backward warns" in result.stdout


def test_custom_op_registers_its_own_override_of_in_place_or_view(tmp_path: Path) -> None:
    line = "registered at torch/_library/custom_ops.py:1104"
    own = f"  - def: f(Tensor(a!) x) -> ()\n    debug: {line}\n" + impl("f", "ADInplaceOrView", line) * 2
    assert findings(tmp_path, own, "DL002") == []
    other = own + impl("f", "ADInplaceOrView", "other/ops.py:3")
    assert findings(tmp_path, other, "DL002") == [("DL002", "f")]


def test_pytorch_overrides_its_own_kernels_in_one_order(tmp_path: Path) -> None:
    relu = "registered at /build/pytorch/build/aten/src/ATen/RegisterSchema.cpp:6"
    cpp = "registered at /build/pytorch/build/aten/src/ATen/RegisterMeta_0.cpp:9"
    head = f"  - def: aten::relu(Tensor x) -> Tensor\n    debug: {relu}\n" + impl("aten::relu", "Meta", cpp)
    assert findings(tmp_path, head + impl("aten::relu", "Meta", "torch/_meta_registrations.py:3"), "DL002") == []
    assert findings(tmp_path, head + impl("aten::relu", "Meta", "my_package/meta.py:3"), "DL002") != []


def test_an_override_inside_of_one_package_is_information(tmp_path: Path) -> None:
    cpp = "/home/me/my_package/csrc/cpu.cpp:4"
    text = "  - def: f(Tensor x) -> Tensor\n" + impl("f", "CPU", cpp) + impl("f", "CPU", "my_package/python.py:3")
    findings(tmp_path, text, "DL002")
    (finding,) = lint(tmp_path / "registrations.yaml", select=("DL002",)).findings
    assert finding.level is Level.INFORMATION
    findings(tmp_path, text.replace("my_package/python", "another/python"), "DL002")
    (finding,) = lint(tmp_path / "registrations.yaml", select=("DL002",)).findings
    assert finding.level is Level.WARNING


def test_a_formula_at_the_key_of_another_backend_is_a_warning_with_its_line(tmp_path: Path) -> None:
    kernels = [impl("f", "CPU", "my_package/cpu.py:3"), impl("f", "AutogradCUDA", "my_package/autograd.py:5")]
    findings(tmp_path, "  - def: f(Tensor x) -> Tensor\n" + "".join(kernels), "DL010")
    (finding,) = lint(tmp_path / "registrations.yaml", select=("DL010",)).findings
    assert finding.level is Level.WARNING
    assert finding.message == (
        "its formula my_package/autograd.py:5 is registered at AutogradCUDA, so a call with CPU tensors does not run it"
    )
    assert finding.fix == 'register it at "Autograd", which serves every backend, or also at "AutogradCPU"'


def test_two_kernels_in_python_at_one_key_are_a_warning_with_both_lines(tmp_path: Path) -> None:
    ours = [impl("f", "CPU", f"my_package/ops.py:{line}") for line in (3, 7)]
    findings(tmp_path, "  - def: f(Tensor x) -> Tensor\n" + "".join(ours), "DL002")
    (finding,) = lint(tmp_path / "registrations.yaml", select=("DL002",)).findings
    assert finding.level is Level.WARNING
    assert finding.message == (
        "the kernel from my_package/ops.py:7 overrides that of my_package/ops.py:3, which no longer runs"
    )
    assert finding.fix == "remove one of the kernels, or register it at another key"


def test_operators_of_one_group_have_one_fix_but_for_their_names(tmp_path: Path) -> None:
    """Two operators that write need another fix than one that does not; the names differ in each fix."""
    schemas = ("a(Tensor x) -> Tensor", "b(Tensor(a!) x) -> Tensor", "c(Tensor(a!) x) -> Tensor")
    findings(tmp_path, "".join(f"  - def: {each}\n" + impl(each[0], "CPU") for each in schemas), "DL010")
    report = lint(tmp_path / "registrations.yaml", select=("DL010",))
    assert [[each.operator for each in group.findings] for group in report.groups] == [
        ["test::b", "test::c"],
        ["test::a"],
    ]
    for group in report.groups:
        for each in group.findings:
            assert each.fix_of_any == group.first.fix_of_any
            assert each.operator.partition("::")[2] in each.fix
    assert "the same with its own name: test::c" in check_view(check_report([report])).text()


def test_fixes_that_name_the_call_of_each_operator_are_of_one_cause() -> None:
    """A kernel that many operators share, and that calls the operator itself, is one mistake."""
    found = [
        Finding(
            "WHY307",
            f"test::{name}",
            None,
            "it recurses",
            cause="line 1",
            fix=f"not the operator torch.ops.test.{name}",
        )
        for name in ("a", "b")
    ]
    assert [[each.operator for each in group.findings] for group in grouped(found)] == [["test::a", "test::b"]]


def test_a_hash_whose_kernel_came_with_the_def_is_not_called_differentiable(tmp_path: Path) -> None:
    block = "registered at /build/hash.cpp:376"
    text = (
        f"  - def: murmur(Tensor x) -> Tensor\n    debug: {block}\n"
        + impl("murmur", "CompositeImplicitAutograd", block)
        + impl("murmur", "CPU", "registered at /build/hash.cpp:500")
        + impl("murmur", "Meta", "registered at /build/hash.cpp:501")
    )
    assert findings(tmp_path, text) == [("DL015", "murmur")]


def test_a_meta_kernel_is_no_second_source_where_tracers_do_not_decompose(tmp_path: Path) -> None:
    text = F + impl("f", "Meta") + impl("f", "CompositeImplicitAutograd", "other_package/ops.py:3")
    assert findings(tmp_path, text, "DL005") == [("DL005", "f")]
    assert findings(tmp_path, text + impl("f", "CPU"), "DL005") == []


def test_an_operator_over_others_can_be_called_without_a_kernel_of_its_own(tmp_path: Path) -> None:
    text = "  - def: f(Tensor x) -> Tensor\n" + impl("f", "Meta")
    assert findings(tmp_path, text, "DL011") == [("DL011", "f")]
    assert findings(tmp_path, text + impl("f", "ADInplaceOrView"), "DL011") == [("DL011", "f")]
    assert findings(tmp_path, text + impl("f", "AutogradCPU"), "DL011") == []


@pytest.mark.parametrize(
    ("namespace", "path", "level"),
    [
        ("my_package", "my_package/ops.py", None),
        ("_C_my_package", "my_package/ops.py", None),
        ("ops", "my_package/library/ops.py", None),
        ("ao", "torchao/quantization/ops.py", None),
        ("demo", "my_package/library/ops.py", Level.INFORMATION),
        ("their_package", "my_package/ops.py", Level.WARNING),
        ("aten", "my_package/ops.py", Level.WARNING),
    ],
)
def test_a_def_outside_of_the_namespaces_of_its_package_is_found(
    tmp_path: Path, namespace: str, path: str, level: Level | None
) -> None:
    others = "  - def: their_package::f(Tensor x) -> Tensor\n    debug: their_package/ops.py:1\n"
    others += "  - def: aten::f(Tensor x) -> Tensor\n    debug: torch/_ops.py:1\n"
    findings(tmp_path, f"{others}  - def: {namespace}::g(Tensor x) -> Tensor\n    debug: {path}:3\n")
    found = lint(tmp_path / "registrations.yaml", select=("DL013",)).findings
    assert [finding.level for finding in found] == ([] if level is None else [level])


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        ("f(Tensor x) -> Tensor(a)", True),
        ("f(Tensor x) -> Tensor(a!)", True),
        ("f(Tensor(a) x, Tensor y) -> (Tensor(a), Tensor(b))", True),
        ("f(Tensor(a) x) -> Tensor(a)", False),
        ("f(Tensor(a -> *) x) -> Tensor(a)[]", False),
        ("f(Tensor(a!) x, *, Tensor(b!) out) -> (Tensor(a!), Tensor(b!))", False),
    ],
)
def test_an_alias_of_nothing_is_found(tmp_path: Path, schema: str, *, found: bool) -> None:
    assert findings(tmp_path, f"  - def: {schema}\n", "DL014") == ([("DL014", "f")] if found else [])


def test_what_custom_op_was_not_given_is_found_by_its_calls() -> None:
    name = OperatorName("", "f")
    fake = TorchLibraryCall(TorchLibraryFunction.REGISTER_FAKE, name)
    for parts in ((), (fake,)):
        block = Block(
            "test", BlockKind.FRAGMENT, made_by=TorchLibraryCall(TorchLibraryFunction.CUSTOM_OP, name, (), parts)
        )
        calls = calls_in((block,))["test::f"]
        assert (calls.is_custom_op, calls.has_fake, calls.has_formula) == (True, bool(parts), False)
        kernels = [
            RecordedKernel(key, "registered at ops.py:3")
            for key in (DispatchKey.Meta, DispatchKey.Autograd, DispatchKey.CompositeExplicitAutograd)
        ]
        operator = RecordedOperator(
            OperatorName("test", "f"), "test::f(Tensor x) -> Tensor", "registered at ops.py:3", kernels=tuple(kernels)
        )
        registry = registry_of("", [operator])
        subject = Subject(registry, Fill(for_registry("strict"), ()), calls={"test::f": calls})
        report = run_rules(subject, selected(("DL006", "DL010")), source="x")
        assert [finding.code for finding in report.findings] == [*([] if parts else ["DL006"]), "DL010"]


def test_twenty_causes_are_shown_and_the_rest_is_counted(tmp_path: Path) -> None:
    lines = [
        f"  - def: n{n}::f{m}(Tensor x) -> Tensor\n" + impl(f"n{n}::f{m}", "Meta") for n in range(23) for m in range(2)
    ]
    findings(tmp_path, "".join(lines), "DL011")
    source = str(tmp_path / "registrations.yaml")
    text = run("check", source).stdout
    assert (text.count("  warning "), text.count("the same with its own name: ")) == (20, 20)
    assert "  ... and 3 more: see --all\n" in text
    assert run("check", source, "--all").stdout.count("  warning ") == 23
    value = json.loads(run("check", source, "--format", "json").stdout)
    assert len(value["answers"][0]["findings"]) == 46


def test_what_other_packages_registered_is_counted_and_left_out() -> None:
    def operator(name: str, *debugs: str) -> RecordedOperator:
        kernels = [RecordedKernel(DispatchKey.CPU, debugs[0])]
        kernels += [RecordedKernel(DispatchKey.CPU, debug, active=False) for debug in debugs[1:]]
        parsed = OperatorName(*name.split("::"))
        return RecordedOperator(parsed, f"{name}(Tensor x) -> Tensor", debugs[0], kernels=tuple(kernels))

    registry = registry_of(
        "",
        [
            operator("mine::f", "registered at mine/ops.py:3"),
            operator("mine::native", "registered at /build/csrc/ops.cpp:3"),
            operator("mine::replaced", "registered at mine/ops.py:4", "registered at theirs/ops.py:3"),
            operator("theirs::f", "registered at theirs/ops.py:5"),
            operator("theirs::native", "registered at /home/ci/theirs/csrc/ops.cpp:3"),
        ],
    )
    subject = Subject(registry, Fill(for_registry("strict"), ()))
    report = run_rules(subject, selected(("DL002", "DL006")), source="live", imports=("mine.ops",))
    assert {(finding.code, finding.operator) for finding in report.findings} == {
        ("DL006", "mine::f"),
        ("DL006", "mine::native"),
        ("DL006", "mine::replaced"),
        ("DL002", "mine::replaced"),
    }
    assert report.others == {"theirs": 2}
    assert (
        "2 findings about operators of theirs left out: dispatchlab check theirs\n"
        in check_view(check_report([report])).text()
    )


def test_a_line_that_calls_a_helper_for_many_operators_does_not_stand_for_them(tmp_path: Path) -> None:
    debugs = [f"registered at mine/ops.py:90 via mine/ops.py:{line} via mine/helper.py:7" for line in (20, 24, 28)]
    debugs.append("registered at mine/ops.py:95")
    text = "".join(
        f"  - def: f{at}(Tensor x) -> Tensor\n  - impl: f{at}\n    dispatch: Meta\n    debug: {debug}\n"
        for at, debug in enumerate(debugs)
    )
    findings(tmp_path, text, "DL011")
    shown = check_view(check_report([lint(tmp_path / "registrations.yaml", select=("DL011",))])).text()
    assert (
        "the same with its own name: test::f1 (mine/ops.py:24), test::f2 (mine/ops.py:28), test::f3 (mine/ops.py:95)\n"
        in shown
    )


def test_lint_of_a_record_leaves_out_what_the_packages_of_others_registered(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "claim: c.\nregistry: torch-2.13\npackages: [mine.ops]\nregistrations:\n"
        + "".join(
            f"  - def: {owner}::f(Tensor x) -> Tensor\n    debug: registered at {owner}/ops.py:3\n"
            f"  - impl: {owner}::f\n    dispatch: CPU\n    debug: registered at {owner}/ops.py:5\n"
            for owner in ("mine", "theirs")
        )
    )
    report = lint(path, select=("DL006",))
    assert ([finding.operator for finding in report.findings], report.others) == (["mine::f"], {"theirs": 1})
    assert (
        "1 finding about operators of theirs left out: dispatchlab check theirs\n"
        in check_view(check_report([report])).text()
    )
    asked = lint(path, select=("DL006",), operators=("theirs::f",))
    assert [finding.operator for finding in asked.findings] == ["theirs::f"]
    path.write_text(path.read_text().replace("[mine.ops]", "[mine.ops, theirs]"))
    assert len(lint(path, select=("DL006",)).findings) == 2


def test_errors_come_before_warnings_and_information_last(tmp_path: Path) -> None:
    text = impl("test_cpu::f", "CPU") + "  - def: f(Tensor x) -> Tensor\n" + impl("f", "CPU")
    findings(tmp_path, text)
    report = lint(tmp_path / "registrations.yaml")
    assert [(group.level, group.code) for group in report.groups] == [
        (Level.ERROR, "DL012"),
        (Level.WARNING, "DL006"),
        (Level.INFORMATION, "DL010"),
    ]


def test_a_terminal_shows_a_page_with_headings_and_wrapped_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"FORCE_COLOR": "1", "COLUMNS": "70", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    result = run("rule", "DL004")
    lines = Text.from_ansi(result.stdout).plain.splitlines()
    assert max(map(len, lines)) <= 70
    assert "Why it matters" in [line.strip() for line in lines]
    assert "```" not in result.stdout


def test_an_autograd_kernel_is_alone_where_the_out_overload_has_no_kernel(tmp_path: Path) -> None:
    file = tmp_path / "gelu.yaml"
    kernel = "  - impl: aten::gelu\n    dispatch: AutogradPrivateUse1\n    debug: mine/autograd.py:3\n"
    file.write_text(f"claim: One kernel.\nregistry: torch-2.13\nregistrations:\n{kernel}", encoding="utf-8")
    output = " ".join(run("check", str(file), "--only", "lint", "--quiet").output.split())
    assert "but aten::gelu.out, which its composite kernel calls, has no kernel for PrivateUse1: a redispatch" in output
    assert 'lib.impl("gelu.out", fn, "PrivateUse1")' in output


def test_a_kernel_at_the_key_of_the_cpu_is_found_where_pytorch_has_its_own(tmp_path: Path) -> None:
    file = tmp_path / "backend.yaml"
    kernels = [
        impl("aten::_copy_from", "PrivateUse1", "registered at /home/me/project/csrc/npu.cpp:54"),
        impl("aten::neg", "PrivateUse1", "my_backend/kernels.py:3"),
        impl("aten::mm", "CPU", "my_backend/kernels.py:5"),
    ]
    head = "claim: A backend.\nregistry: torch-2.13-cpu\nregistrations:\n"
    file.write_text(head + "".join(kernels), encoding="utf-8")
    (finding,) = lint(file, select=("DL002", "DL022")).findings
    assert (finding.code, finding.operator) == ("DL022", "aten::mm")
    assert "registers a CPU kernel, but the package is for PrivateUse1 (my_backend/kernels.py:3)" in finding.message
    assert finding.fix == 'lib = torch.library.Library("aten", "IMPL"); lib.impl("mm", fn, "PrivateUse1")'


@pytest.mark.parametrize(
    ("schema", "fix"),
    [
        ("scale(Tensor(a) x) -> Tensor(a)", "return a copy without an alias"),
        ("scale_(Tensor x) -> Tensor", "mark the written argument, as in Tensor(a!)"),
        (
            "scale_(Tensor(a!) x) -> Tensor(a!)",
            "return nothing (-> ()), or, if your PyTorch has this tag, define it with tags=(torch.Tag.inplace,)",
        ),
        (
            "scale(Tensor x, *, Tensor(a!) out) -> Tensor(a!)",
            "return nothing (-> ()), or, if your PyTorch has this tag, define it with tags=(torch.Tag.out,)",
        ),
    ],
)
def test_the_fix_for_functionalization_leaves_out_what_the_schema_has(tmp_path: Path, schema: str, fix: str) -> None:
    path = tmp_path / "scenario.yaml"
    lines = f"  - def: {schema}\n  - {{impl: {schema.partition('(')[0]}, dispatch: PrivateUse1, debug: a/b.py:5}}\n"
    path.write_text(f"claim: An alias.\nregistrations:\n{lines}", encoding="utf-8")
    (finding,) = lint(path, select=("DL023",)).findings
    assert finding.fix == fix
