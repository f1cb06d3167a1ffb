"""Scenarios as tests in somebody else's project."""

from __future__ import annotations

import os
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

# A run in this process forgets what it imported: the C parts of PyYAML cannot be imported again, and a class of the
# second import is another one.
import dispatchlab.engine.lab_engine
import dispatchlab.questions.order.blocks
import dispatchlab.questions.order.run_scenario  # noqa: F401
from dispatchlab.pytest_plugin import is_accepting
from tests.plugin_options import PLUGIN_OPTIONS
from tests.scenario_texts import COMPOSITES, FIVE, TWICE, TWO_DEFS

pytest_plugins = ["pytester"]

INI = """
[pytest]
dispatchlab_scenarios = {folders}
testpaths = tests
filterwarnings = error
addopts = --strict-config
"""

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs pytest in a project with the plugin, installed or not."""
    for name in ("EXPECTTEST_ACCEPT", "CI"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str, accept: bool = False) -> pytest.RunResult:
        with monkeypatch.context() as patch:
            if accept:
                patch.setenv("EXPECTTEST_ACCEPT", "1")
            return pytester.runpytest_inprocess(*PLUGIN_OPTIONS, "-p", "no:cacheprovider", *arguments)

    return run


@pytest.fixture
def project(pytester: pytest.Pytester) -> Path:
    """A project with one test and three scenarios."""
    root = pytester.path
    (root / "pytest.ini").write_text(INI.format(folders="scenarios"))
    (root / "tests").mkdir()
    (root / "tests" / "test_own.py").write_text("def test_own():\n    pass\n")
    (root / "scenarios" / "order").mkdir(parents=True)
    (root / "scenarios" / "five.yaml").write_text(FIVE)
    (root / "scenarios" / "order" / "composites.yaml").write_text(COMPOSITES)
    (root / "scenarios" / "order" / "two_defs.yml").write_text(TWO_DEFS)
    return root


def goldens(root: Path) -> list[str]:
    """The golden files."""
    return sorted(path.relative_to(root).as_posix() for path in (root / "expect").rglob("*") if path.is_file())


@pytest.mark.usefixtures("project")
def test_a_missing_golden_file_fails_and_says_how_to_accept(run: Run) -> None:
    result = run()
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(
        ["there is no golden file expect/five.txt; if this is right, accept it with: EXPECTTEST_ACCEPT=1 pytest"]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


def test_golden_files_are_written_only_when_asked_and_then_hold(project: Path, run: Run) -> None:
    run()
    assert goldens(project) == []
    run(accept=True).assert_outcomes(passed=4)
    assert goldens(project) == ["expect/five.txt", "expect/order/composites.txt", "expect/order/two_defs.txt"]
    run().assert_outcomes(passed=4)


def test_accepting_again_leaves_equal_files_alone(project: Path, run: Run) -> None:
    run(accept=True)
    golden = project / "expect" / "five.txt"
    golden.chmod(0o400)
    before = golden.stat().st_mtime_ns
    run(accept=True).assert_outcomes(passed=4)
    assert golden.stat().st_mtime_ns == before


def test_a_golden_file_shows_the_finding_and_the_rows_that_were_asked_for(project: Path, run: Run) -> None:
    run(accept=True)
    text = (project / "expect" / "five.txt").read_text()
    verdict = "verdict: order-independent (model: strict, an idealised dispatcher)\n"
    assert f"{verdict}sets: 32\nstates: 32\nedges: 160\norders: 14,400\n" in text
    assert text.endswith(
        "\nUndefined: fn_math [math kernel]\nCPU: fn_cpu [kernel]\nCUDA: fn_math [math kernel]\n"
        "AutogradCPU: fn_autograd_cpu [kernel]\n"
    )
    assert "elapsed" not in text
    stale = (project / "expect" / "order" / "composites.txt").read_text()
    assert "slots that calls use, where they differ from the table:\nNestedTensorCPU: fn_implicit [math" in stale


def test_a_difference_is_shown_as_a_diff(project: Path, run: Run) -> None:
    run(accept=True)
    golden = project / "expect" / "five.txt"
    golden.write_text(golden.read_text().replace("CPU: fn_cpu [kernel]", "CPU: fn_gpu [kernel]"))
    result = run()
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(
        [
            "expect/five.txt:* holds 'CPU: fn_gpu [[]kernel[]]', and now it is 'CPU: fn_cpu [[]kernel[]]'",
            "--- expect/five.txt",
            "-CPU: fn_gpu [[]kernel[]]",
            "+CPU: fn_cpu *",
        ]
    )


def test_a_verdict_that_is_not_expected_fails_and_is_not_accepted(project: Path, run: Run) -> None:
    (project / "scenarios" / "wrong.yaml").write_text(TWICE.replace("expect: order-dependent\n", ""))
    result = run(accept=True)
    result.assert_outcomes(passed=4, failed=1)
    cause = "order-dependent: the registrations fn_a and fn_b both set the CPU kernel of test::foo. "
    cause += "A later registration replaces an earlier registration"
    verdict = "order-dependent (model: strict, an idealised dispatcher), NOT as expected: order-independent"
    result.stdout.fnmatch_lines([cause, f"scenarios/wrong.yaml: {verdict}", "the other order (+): +1 +0"])
    result.stdout.fnmatch_lines(["FAILED scenarios/wrong.yaml::permute - order-dependent: the registrations fn_*"])
    assert "expect/wrong.txt" not in goldens(project)


HEAD = "claim: c\nsemantics: torch-2.13\n"
IMPL = "  - impl: foo\n    dispatch: {key}\n    debug: {debug}\n"


def impls(*kernels: str, head: str = HEAD) -> str:
    """A scenario of kernels, `KEY DEBUG` each."""
    rows = (IMPL.format(key=key, debug=debug) for key, debug in (kernel.split() for kernel in kernels))
    return f"{head}registrations:\n{''.join(rows)}"


DEF = "  - def: foo(Tensor x) -> Tensor\n    debug: {debug}\n"
PURE = "  - def: foo(Tensor x) -> Tensor\n    alias: PURE_FUNCTION\n    debug: def_pure\n"
FALLBACK = "  - fallback: boxed\n    dispatch: {key}\n    debug: {debug}\n"
BAD_DEF = "  - def: foo(Tensor x, Tensor y) -> Tensor\n    kernel: (Tensor _0) -> Tensor _0\n    debug: bad\n"
KINDS = {
    "override": (
        impls("CPU fn_a", "CPU fn_b"),
        "order-dependent: the registrations fn_a and fn_b both set the CPU kernel of test::foo",
    ),
    "override_by_lines": (
        impls("CPU fast.py:12", "CPU norm.py:16"),
        "order-dependent: the registrations at fast.py:12 and norm.py:16 both set the CPU kernel",
    ),
    "stale": (
        impls("CompositeImplicitAutograd fn_math", "CompositeExplicitAutograd fn_any"),
        "order-dependent: the order of the kernel fn_math (CompositeImplicitAutograd) and the kernel fn_any (Comp*",
    ),
    "stale_other": (
        impls("CompositeImplicitAutograd fn_math", "QuantizedCPU fn_q"),
        "order-dependent: the order of the kernel fn_math (CompositeImplicitAutograd) and the kernel fn_q (Quant*",
    ),
    "alias": (
        f"claim: c\nsemantics: pr35061\nregistrations:\n{DEF.format(debug='def_plain')}    alias: default\n{PURE}",
        "order-dependent: def test::foo (def_pure) is accepted before def test::foo (def_plain), but refused "
        "after the def def_plain: test::foo is defined *",
    ),
    "release_of_a_fallback": (
        f"{HEAD}registrations:\n{FALLBACK.format(key='AutogradPrivateUse1', debug='mine')}{DEF.format(debug='d')}",
        "order-dependent: after the release of fallback AutogradPrivateUse1 (mine), AutogradPrivateUse1 has no *",
    ),
    "residue": (
        f"{HEAD}registrations:\n{BAD_DEF}",
        "order-dependent: def test::foo (bad) is refused: the def has the schema (Tensor x, Tensor y) -> Tensor, *",
    ),
    "two_defs": (
        f"{HEAD}registrations:\n{DEF.format(debug='def_a')}{DEF.format(debug='def_b')}",
        "order-independent: def test::foo (def_a) and def test::foo (def_b) cannot be registered together, *",
    ),
    "schema_mismatch": (
        f"{HEAD}semantics: strict\nregistrations:\n{BAD_DEF}".replace("semantics: torch-2.13\n", ""),
        "order-independent: def test::foo (bad) is always refused *",
    ),
    "expected_dependence": (
        impls("CPU fn_a", "CUDA fn_b", head=f"{HEAD}expect: order-dependent\n"),
        "order-independent: no order leads to another state, and nothing is refused",
    ),
    "expected_refusal": (
        impls("CPU fn_a", head=f"{HEAD}expect: refused\n"),
        "order-independent: no order leads to another state, and nothing is refused",
    ),
    "expected_dependence_and_refused": (
        f"{HEAD}expect: order-dependent\nregistrations:\n{DEF.format(debug='def_a')}{DEF.format(debug='def_b')}",
        "order-independent: no order leads to another state",
    ),
    "no_golden": (
        impls("CPU fn_a"),
        "there is no golden file expect/no_golden.txt; if this is right, accept it with: *",
    ),
    "not_yaml": ("claim: [\n", "scenarios/not_yaml.yaml:*"),
    "unknown_field": (f"{impls('CPU fn_a')}claims: d\n", "scenarios/unknown_field.yaml:7:1: *claims*"),
    "unknown_key": (impls("CPV fn_a"), "scenarios/unknown_key.yaml:5:15: *CPV*"),
    "nothing": ("claim: c\nregistrations: []\n", "scenarios/nothing.yaml:*"),
    "function": (impls("CPU f").replace("debug: f", "kernel: mine:run"), "scenarios/function.yaml:*imports mine*"),
}
"""Scenarios that fail, with the first line of each."""


def test_the_first_line_of_twenty_kinds_of_failure_names_the_cause(project: Path, run: Run) -> None:
    run(accept=True)
    for name, (text, _) in KINDS.items():
        (project / "scenarios" / f"{name}.yaml").write_text(text)
    five = project / "expect" / "five.txt"
    five.write_text(five.read_text().replace("CPU: fn_cpu [kernel]", "CPU: fn_gpu [kernel]"))
    (project / "expect" / "gone.txt").write_text("claim: c\n")
    firsts = {f"scenarios/{name}.yaml": first for name, (_, first) in KINDS.items()}
    firsts["scenarios/five.yaml"] = "expect/five.txt:* holds 'CPU: fn_gpu [[]kernel[]]', and now it is 'CPU: fn_cpu *"
    firsts["orphan gone.txt"] = "expect/gone.txt has no scenario: delete it, or put its scenario back"
    assert len(firsts) == 20
    lines = run().stdout.lines
    heads = {at: line.strip("_ ") for at, line in enumerate(lines) if line.startswith("___")}
    ends = [*list(heads)[1:], next(at for at, line in enumerate(lines) if "short test summary" in line)]
    for (at, head), end in zip(heads.items(), ends, strict=True):
        first = firsts.pop(head).replace("(", "[(]")
        assert fnmatchcase(lines[at + 1], f"{first}*"), (head, lines[at + 1])
        assert end - at - 1 <= 15, (head, lines[at:end])
    assert firsts == {}


def test_a_golden_file_without_a_scenario_fails_as_an_item_of_its_own(project: Path, run: Run) -> None:
    run(accept=True)
    (project / "scenarios" / "five.yaml").unlink()
    result = run()
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["expect/five.txt has no scenario: delete it, or put its scenario back"])
    run("scenarios/order").assert_outcomes(passed=2)
    assert "expect/five.txt" in goldens(project)


def test_a_malformed_scenario_is_reported_with_its_source_location(project: Path, run: Run) -> None:
    (project / "scenarios" / "bad.yaml").write_text("claim: c\nregistrations:\n  - imple: foo\n")
    result = run("scenarios/bad.yaml")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["scenarios/bad.yaml:3:5: expected a registration but found a mapping with 'imple'; did you mean impl[?]"]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.usefixtures("project")
def test_one_scenario_can_be_run_alone(run: Run) -> None:
    run(accept=True)
    run("scenarios/order/two_defs.yml").assert_outcomes(passed=1)
    run("-k", "two_defs").assert_outcomes(passed=1, deselected=3)


def test_functions_are_imported_only_when_the_project_says_so(
    project: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(project)
    (project / "owned_kernels.py").write_text("def run(x):\n    return x\n")
    (project / "scenarios" / "python.yaml").write_text(
        "claim: c\nregistrations:\n  - impl: foo\n    dispatch: CPU\n    kernel: owned_kernels:run\n"
    )
    refused = run("scenarios/python.yaml", accept=True)
    refused.assert_outcomes(failed=1)
    refused.stdout.fnmatch_lines(["*owned_kernels:run*"])
    (project / "pytest.ini").write_text(INI.format(folders="scenarios") + "dispatchlab_allow_import = true\n")
    run("scenarios/python.yaml", accept=True).assert_outcomes(passed=1)


def test_two_folders_cannot_share_a_golden_file(project: Path, run: Run) -> None:
    (project / "more").mkdir()
    (project / "more" / "five.yaml").write_text(FIVE)
    (project / "pytest.ini").write_text(INI.format(folders="scenarios more"))
    result = run(accept=True)
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines(["more/five.yaml has the same golden file: expect/five.txt"])


def test_golden_files_can_be_elsewhere(project: Path, run: Run) -> None:
    (project / "pytest.ini").write_text(INI.format(folders="scenarios") + "dispatchlab_expect = tests/goldens\n")
    run(accept=True).assert_outcomes(passed=4)
    assert (project / "tests" / "goldens" / "order" / "two_defs.txt").exists()


def test_a_missing_folder_is_a_usage_error(project: Path, run: Run) -> None:
    (project / "pytest.ini").write_text(INI.format(folders="scenarioz"))
    result = run()
    assert result.ret is pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*dispatchlab_scenarios: there is no folder *scenarioz"])


@pytest.mark.parametrize("option", ["dispatchlab_scenarios", "dispatchlab_records"])
def test_a_folder_without_scenarios_is_a_usage_error(project: Path, run: Run, option: str) -> None:
    (project / "none" / ".x").mkdir(parents=True)
    (project / "none" / ".x" / "five.yaml").write_text(FIVE)
    (project / "pytest.ini").write_text(f"[pytest]\n{option} = none\ntestpaths = tests\n")
    result = run()
    assert result.ret is pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{option}: there is no scenario below *none: nothing would be tested"])


def test_a_value_that_means_no_accepts_nothing(project: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("0", "false", "no", "off", "", " ", "FALSE"):
        monkeypatch.setenv("EXPECTTEST_ACCEPT", value)
        assert not is_accepting()
    monkeypatch.setenv("EXPECTTEST_ACCEPT", "0")
    result = run("scenarios/five.yaml")
    result.assert_outcomes(failed=1)
    assert goldens(project) == []


def test_nothing_is_accepted_in_ci_unless_it_is_named(project: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    result = run("scenarios/five.yaml", accept=True)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*it would hide every difference: unset it, or say EXPECTTEST_ACCEPT=in-ci"])
    assert goldens(project) == []
    monkeypatch.setenv("EXPECTTEST_ACCEPT", "in-ci")
    run("scenarios/five.yaml").assert_outcomes(passed=1)
    assert len(goldens(project)) == 1


@pytest.mark.parametrize(
    "body", ["import os\nos._exit(0)", "import os\nos.kill(os.getpid(), 9)", "raise SystemExit(0)"]
)
def test_a_module_that_ends_its_process_fails_its_scenario_and_no_other(
    project: Path, run: Run, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    (project / "ends.py").write_text(body)
    monkeypatch.syspath_prepend(str(project))
    (project / "pytest.ini").write_text(INI.format(folders="scenarios") + "dispatchlab_allow_import = true\n")
    (project / "scenarios" / "ends.yaml").write_text(
        "claim: It ends.\nregistrations:\n  - def: foo(Tensor x) -> Tensor\n"
        "  - {impl: foo, dispatch: CPU, kernel: 'ends:f'}\n"
    )
    result = run("scenarios/five.yaml", "scenarios/ends.yaml", accept=True)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["scenarios/ends.yaml:4:40: importing ends *"])


def test_a_topic_that_pytest_would_leave_out_elsewhere_is_collected(project: Path, run: Run) -> None:
    (project / "scenarios" / "build" / "dist").mkdir(parents=True)
    (project / "scenarios" / "build" / "dist" / "five.yaml").write_text(FIVE)
    run("scenarios", accept=True).assert_outcomes(passed=4)
    assert "expect/build/dist/five.txt" in goldens(project)
    run("--ignore=scenarios/build", "scenarios").assert_outcomes(passed=3)
    run("-o", "norecursedirs=order", "scenarios").assert_outcomes(passed=2)


def test_a_hidden_scenario_is_not_collected_and_owns_no_golden_file(project: Path, run: Run) -> None:
    (project / "scenarios" / ".x").mkdir()
    (project / "scenarios" / ".x" / "five.yaml").write_text(FIVE)
    (project / "scenarios" / ".five.yaml").write_text(FIVE)
    run("scenarios", accept=True).assert_outcomes(passed=3)
    (project / "expect" / ".x").mkdir()
    (project / "expect" / ".x" / "five.txt").write_text("claim: x\n")
    result = run("scenarios")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*expect/.x/five.txt has no scenario*"])


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="there are no devices")
def test_a_golden_file_that_has_no_end_is_a_failure_and_not_read(project: Path, run: Run) -> None:
    run("scenarios", accept=True).assert_outcomes(passed=3)
    (project / "expect" / "five.txt").unlink()
    (project / "expect" / "five.txt").symlink_to("/dev/zero")
    (project / "expect" / "order" / "two_defs.txt").unlink()
    (project / "expect" / "order" / "two_defs.txt").mkdir()
    result = run("scenarios")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        ["*five.txt: it is a device, which may have no end*", "*two_defs.txt cannot be read: Is a directory"]
    )
