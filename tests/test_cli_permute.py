"""`dispatchlab permute`."""

from __future__ import annotations

import json
import os
import re
import runpy
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from expecttest import assert_expected_inline

from dispatchlab import Dispatcher, check_order, explore
from dispatchlab.cli import main
from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.model.profile import bundled_profiles
from dispatchlab.model.sequence import format_sequence
from dispatchlab.prover.limits import WalkOptions
from dispatchlab.prover.lockstep import lockstep
from dispatchlab.prover.protocol import EngineCrashed
from dispatchlab.questions.explore.session_subject import subject_of_scenario
from dispatchlab.questions.order.conformance import sentence
from dispatchlab.questions.order.golden import golden
from dispatchlab.questions.sources.find_sources import recorded_from
from dispatchlab.scenario import Scenario, UnwritableError, parse_scenario
from tests.scenario_texts import COMPOSITES, FIVE, MODULES, TWICE, TWO_DEFS, many


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with scenarios, which is the current one."""
    texts = {"five": FIVE, "composites": COMPOSITES, "two_defs": TWO_DEFS, "twice": TWICE, "many": many(18)}
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def permute(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(main, ["permute", *arguments])


def timeless(text: str) -> str:
    """A report without its duration."""
    return re.sub(r"elapsed: .*", "elapsed: ...", text)


@pytest.mark.usefixtures("folder")
def test_five_registrations_are_proved() -> None:
    result = permute("five.yaml")
    assert (result.exit_code, result.stderr) == (0, "")
    assert_expected_inline(
        timeless(result.stdout),
        """\
five.yaml: order-independent (model: strict, an idealised dispatcher), as expected
claim: Five registrations of one operator do not care who comes first.
""",
    )


@pytest.mark.usefixtures("folder")
def test_a_violation_that_is_expected_exits_with_0_and_shows_the_sequences() -> None:
    result = permute("twice.yaml")
    assert (result.exit_code, result.stderr) == (0, "")
    assert_expected_inline(
        timeless(result.stdout),
        """\
twice.yaml: order-dependent (model: strict, an idealised dispatcher), as expected
cause: the registrations fn_a and fn_b both set the CPU kernel of test::foo. A later registration replaces an earlier registration
fix: drop the kernel fn_a or the kernel fn_b. In the scenario, write `expect: order-independent`
fix: or always register the kernel fn_a and the kernel fn_b in the same order. In the scenario, write `order: [0, 1]` and `expect: order-independent`
claim: Of two kernels at one key the newest is used.
one order (-): +0 +1
  +0 impl test::foo CPU (fn_a)
  +1 impl test::foo CPU (fn_b)
the other order (+): +1 +0
  +1 impl test::foo CPU (fn_b)
  +0 impl test::foo CPU (fn_a)

differs: test::foo, dump
 name: test::foo
 schema: (none)
-CPU: fn_b :: (none) [ boxed ]
-CPU (inactive): fn_a :: (none) [ boxed ]
+CPU: fn_a :: (none) [ boxed ]
+CPU (inactive): fn_b :: (none) [ boxed ]

differs: test::foo, table and slots that calls use
-CPU: fn_b [kernel]
+CPU: fn_a [kernel]
""",  # noqa: E501  a line of the report
    )


@pytest.mark.usefixtures("folder")
def test_conflicts_are_listed_by_number() -> None:
    result = permute("two_defs.yaml", "--format", "json")
    value = json.loads(result.stdout)
    assert (result.exit_code, value["verdict"], value["expected"], value["as_expected"]) == (
        0,
        "order-independent",
        "refused",
        True,
    )
    assert [(conflict["members"], conflict["kind"]) for conflict in value["conflicts"]] == [([0, 1], "duplicate_def")]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["five.yaml"], 0),
        (["composites.yaml"], 0),
        (["composites.yaml", "--semantics", "strict"], 1),
        (["many.yaml", "--max-states", "50"], 3),
        (["many.yaml", "--timeout", "0.000001"], 3),
        (["many.yaml", "--walk", "sample", "--samples", "5"], 0),
        (["many.yaml", "--walk", "sample", "--samples", "5", "--require-proof"], 3),
        (["five.yaml", "nothing.yaml"], 2),
        (["five.yaml", "--walk", "everywhere"], 2),
    ],
)
def test_the_exit_code_says_what_became_of_it(arguments: list[str], code: int) -> None:
    result = permute(*arguments)
    assert result.exit_code == code
    assert "Traceback" not in result.output


@pytest.mark.usefixtures("folder")
def test_orders_and_graph_agree_on_a_small_scenario() -> None:
    values = [
        json.loads(permute("twice.yaml", "--walk", walk, "--format", "json").stdout) for walk in ("graph", "orders")
    ]
    assert [value["verdict"] for value in values] == ["order-dependent", "order-dependent"]
    sequences = [
        {value["counterexample"]["expected_sequence"], value["counterexample"]["actual_sequence"]} for value in values
    ]
    assert sequences == [{"+0 +1", "+1 +0"}] * 2


def test_a_folder_stands_for_all_scenarios_below_it(folder: Path) -> None:
    (folder / "below" / "deeper").mkdir(parents=True)
    (folder / "below" / "deeper" / "five.yaml").write_text(FIVE)
    (folder / "below" / "a.yml").write_text(COMPOSITES)
    (folder / "below" / "bad.yaml").write_text("claim: [\n")
    (folder / "below" / "notes.txt").write_text("nothing\n")
    result = permute("below", "twice.yaml", "--semantics", "strict", "--details")
    assert result.exit_code == 2
    files = ["below/a.yml", "below/deeper/five.yaml", "twice.yaml"]
    assert re.findall("^(.*?): order-.* as expected", result.stdout, re.MULTILINE) == files
    assert result.stdout.splitlines()[-1] == "4 scenarios: 2 as expected, 1 not, 1 could not be read"
    assert result.stderr.startswith("below/bad.yaml:")
    # Of several, the whole report is for those that are not as expected.
    (folder / "below" / "bad.yaml").write_text(
        FIVE.replace("registrations:", "expect: order-dependent\nregistrations:")
    )
    short = permute("below", "twice.yaml", "--semantics", "strict")
    assert re.findall("^(.*?): .*, NOT as expected", short.stdout, re.MULTILINE) == ["below/a.yml", "below/bad.yaml"]
    assert [line for line in short.stdout.splitlines() if line.endswith("), as expected")] == [
        "below/deeper/five.yaml: order-independent (model: strict, an idealised dispatcher), as expected",
        "twice.yaml: order-dependent (model: strict, an idealised dispatcher), as expected",
    ]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_in_a_folder_is_no_scenario_and_a_link_that_leads_nowhere_is_an_error(folder: Path) -> None:
    (folder / "below").mkdir()
    (folder / "below" / "a.yaml").write_text(FIVE)
    os.mkfifo(folder / "below" / "pipe.yaml")
    assert permute("below").exit_code == 0
    (folder / "below" / "gone.yaml").symlink_to("nowhere.yaml")
    result = permute("below")
    assert (result.exit_code, result.stderr) == (
        2,
        "below/gone.yaml: it is a link to nowhere.yaml, which is not there\n",
    )


def test_a_folder_without_scenarios_is_bad_input(folder: Path) -> None:
    (folder / "empty").mkdir()
    result = permute("empty")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "there is no scenario below this folder" in result.stderr


@pytest.mark.usefixtures("folder")
def test_json_is_one_object_a_line_with_the_summary_on_standard_error() -> None:
    result = permute("five.yaml", "twice.yaml", "--format", "json")
    values = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(value["scenario"], value["verdict"], value["orders"]) for value in values] == [
        ("five.yaml", "order-independent", "14400"),
        ("twice.yaml", "order-dependent", "4"),
    ]
    assert result.stderr == "2 scenarios: 2 as expected\n"


@pytest.mark.parametrize("name", ["found.yaml", "found.scenario.yml"])
def test_a_saved_counterexample_is_a_small_scenario(folder: Path, name: str) -> None:
    saved = permute("composites.yaml", "--save", name)
    assert (saved.exit_code, saved.stderr) == (0, f"wrote {name}: a scenario\n")
    again = json.loads(permute(name, "--format", "json").stdout)
    assert (again["as_expected"], again["verdict"], again["semantics"]) == (True, "order-dependent", "torch-2.13")
    assert "not refreshed" in again["counterexample"]["why"][0]


def test_a_file_that_cannot_be_saved_is_refused_before_anything_runs(folder: Path) -> None:
    bad = permute("twice.yaml", "--save", "nowhere/found.yaml")
    assert bad.stdout == ""
    assert (
        bad.stderr
        == "nowhere/found.yaml could not be written: there is no folder nowhere; make it, or name another one\n"
    )
    assert bad.exit_code == 2


def test_an_old_file_stays_when_there_is_nothing_to_save(folder: Path) -> None:
    permute("twice.yaml", "--save", "old.yaml")
    old = (folder / "old.yaml").read_text()
    result = permute("five.yaml", "--save", "old.yaml")
    assert (result.exit_code, (folder / "old.yaml").read_text()) == (0, old)
    assert result.stderr == "note: there is no counterexample, so old.yaml was not written\n"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["five.yaml", "twice.yaml", "--save", "x"], "--save works with one scenario, but 2 were given"),
        (["five.yaml", "--save", "x"], "--save x: expected FILE.py for a program or FILE.yaml for a small scenario"),
        (["five.yaml", "--conform"], "--conform compares the live engine with its model: use it with --engine torch"),
        (["five.yaml", "--engine", "torch", "--semantics", "strict"], "leave one of the two out"),
    ],
)
def test_options_that_exclude_one_another_are_refused_with_a_reason(arguments: list[str], message: str) -> None:
    result = permute(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


@pytest.mark.usefixtures("folder")
def test_what_takes_long_shows_its_progress_and_quiet_shows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dispatchlab.prover.limits._REPORT_EVERY_S", 0.0)
    monkeypatch.setattr("dispatchlab.commands.output._FIRST_LINE_S", 0.0)
    loud = permute("many.yaml", "--walk", "graph", "--max-states", "500")
    assert re.match(r"many.yaml: [\d,]+ sets, [\d,]+ of 4,718,592 edges \(\d+ %\), [\d,]+ edges/s", loud.stderr)
    quiet = CliRunner().invoke(main, ["-q", "permute", "many.yaml", "--walk", "graph", "--max-states", "500"])
    assert quiet.stderr == ""


@pytest.mark.usefixtures("folder")
def test_a_rich_report_in_a_pipe_has_neither_colours_nor_box_characters() -> None:
    result = permute("twice.yaml", "--format", "rich")
    assert result.exit_code == 0
    assert not {*"\x1b│─╭╮╰╯━"} & set(result.stdout)
    head = "twice.yaml: order-dependent (model: strict, an idealised dispatcher), as expected cause: "
    assert " ".join(result.stdout.split()).startswith(head)


def test_an_engine_that_differs_from_its_model_is_reported_with_the_sequence() -> None:
    scenario = parse_scenario(COMPOSITES)
    about = scenario.registrations, scenario.operators
    strict, torch = LabEngine("strict"), LabEngine("torch-2.13")
    same = sentence(lockstep(strict, LabEngine("strict"), *about, WalkOptions(passes=2)))
    assert re.fullmatch(r"the engine and its model agree \((\d+) edges tried in \d+ steps of 2 passes, .*\)", same)
    other = lockstep(strict, torch, *about, WalkOptions(passes=1))
    counterexample = other.counterexample
    assert counterexample is not None
    assert sentence(other).startswith(
        f"the engine and its model differ after {format_sequence(counterexample.actual_sequence)}: "
        "strict and torch-2.13 differ in "
    )
    assert counterexample.diff in sentence(other) + "\n"
    five = parse_scenario(FIVE)
    bound = WalkOptions(passes=2, timeout_s=0)
    stopped = sentence(lockstep(strict, LabEngine("strict"), five.registrations, five.operators, bound))
    assert stopped == "the engine and its model agree as far as they went together: stopped at the bound of 0 seconds"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", [["permute", "five.yaml"], ["dump", "foo", "--from", "five.yaml"]])
def test_a_missing_torch_is_reported_with_the_command_that_installs_it(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatchlab.live.bridge.torch.find_spec", lambda name: None)
    result = CliRunner().invoke(main, [*command, "--engine", "torch"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "pip install 'dispatchlab[torch]'" in result.stderr


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", [["permute", "five.yaml"], ["dump", "foo", "--from", "five.yaml"]])
def test_an_engine_that_dies_outside_of_a_walk_ends_with_5(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def died(*_: object) -> None:
        raise EngineCrashed("the worker is gone")

    monkeypatch.setattr(LabEngine, "sandbox", died)
    monkeypatch.setattr(LabEngine, "space", died)
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, result.stdout, result.stderr) == (5, "", "the worker is gone\n")


HIDDEN = """\
claim: A kernel that is gone is held against another one.
namespace: other
semantics: torch-2.13
expect: order-dependent
order: [0, 3]
registrations:
  - impl: bar
    dispatch: CPU
  - def: foo(Tensor x) -> Tensor
  - impl: foo
    dispatch: CPU
    kernel: (Tensor _0) -> Tensor _0
    signature: at::Tensor (at::Tensor const&)
  - impl: foo
    dispatch: CUDA
    kernel: (Tensor _0) -> Tensor _0
    signature: at::Tensor (at::Tensor)
"""


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("name", "members"), [("composites", 2), ("twice", 2), ("hidden", 3)])
def test_a_counterexample_is_kept_as_a_small_scenario_and_as_a_program_that_runs(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, members: int
) -> None:
    (folder / "hidden.yaml").write_text(HIDDEN)
    first = json.loads(permute(f"{name}.yaml", "--format", "json").stdout)
    small, program = f"{name}.scenario.yaml", folder / f"{name}.py"
    assert permute(f"{name}.yaml", "--save", small).exit_code == 0
    again = permute(small, "--format", "json")
    value = json.loads(again.stdout)
    assert (again.exit_code, value["verdict"], value["semantics"]) == (0, "order-dependent", first["semantics"])
    assert value["counterexample"]["flaw"] == first["counterexample"]["flaw"]
    assert value["registrations"] == members
    assert permute(f"{name}.yaml", "--save", str(program)).exit_code == 0
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_path(str(program), run_name="__main__")
    printed = capsys.readouterr()
    assert printed.out.startswith("--- expected\n+++ actual\n")
    assert printed.err == ""


@pytest.mark.usefixtures("folder")
def test_a_counterexample_that_cannot_be_written_is_reported_after_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def unwritable(scenario: Scenario) -> str:
        raise UnwritableError(scenario, "a kernel has no reference")

    monkeypatch.setattr("dispatchlab.questions.order.counterexamples.scenario_text", unwritable)
    result = permute("twice.yaml", "--save", "x.py")
    assert (result.exit_code, "), as expected\n" in result.stdout) == (2, True)
    assert result.stderr.startswith("x.py was not written: the scenario ")


def test_modules_are_permuted_and_their_lines_are_not(folder: Path) -> None:
    (folder / "shop.yaml").write_text(MODULES)
    found = json.loads(permute("shop.yaml", "--format", "json").stdout)
    assert (found["walk"], found["modules"], found["orders"], found["verdict"]) == (
        "imports",
        2,
        "2",
        "order-dependent",
    )
    assert (found["counterexample"]["expected_sequence"], found["counterexample"]["actual_sequence"]) == (
        "+0 +1 +2 +3",
        "+2 +3 +0 +1",
    )
    (folder / "one.yaml").write_text(MODULES.replace("registrations:", "order: [1, 2]\nregistrations:"))
    one = permute("one.yaml")
    assert one.exit_code == 0
    assert "note: checked: the one order of importing shop.one, shop.two, " in one.stdout


def test_what_is_about_single_registrations_is_refused_for_modules(folder: Path) -> None:
    (folder / "shop.yaml").write_text(MODULES)
    result = permute("shop.yaml", "--passes", "2")
    assert "--passes works with single registrations, but this scenario has `modules`" in result.stderr


def test_a_counterexample_of_modules_is_saved_with_its_modules(folder: Path) -> None:
    (folder / "shop.yaml").write_text(MODULES)
    permute("shop.yaml", "--save", "cut.scenario.yaml")
    again = json.loads(permute("cut.scenario.yaml", "--format", "json").stdout)
    assert (again["walk"], again["as_expected"], again["orders"]) == ("imports", True, "2")


@pytest.mark.parametrize(
    ("text", "arguments", "reason"),
    [
        (
            "{claim: Nothing is seen., operators: [test::bar], registrations: [{impl: foo, dispatch: CPU}]}",
            [],
            "it observes test::bar, but the registrations are about test::foo; observe one of these",
        ),
        (
            "{claim: One is no pair., registrations: [{impl: foo, dispatch: CPU}]}",
            ["--walk", "sample"],
            "it has one registration, so there are no pairs to sample",
        ),
    ],
)
def test_a_verdict_on_nothing_is_refused(folder: Path, text: str, arguments: list[str], reason: str) -> None:
    (folder / "empty.yaml").write_text(text)
    result = permute("empty.yaml", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"empty.yaml: there is nothing to explore: {reason}\n"


def test_what_a_fallback_changes_is_observed_though_no_registration_names_it(folder: Path) -> None:
    text = "{claim: Seen., operators: [test::bar], registrations: [{fallback: boxed, dispatch: CPU}, {impl: foo}]}"
    (folder / "seen.yaml").write_text(text)
    assert permute("seen.yaml").exit_code == 0


def test_a_scenario_that_names_no_dispatcher_is_about_the_newest_pytorch(folder: Path) -> None:
    text = COMPOSITES.replace("semantics: torch-2.13\n", "") + "  - def: foo(Tensor x) -> Tensor\n"
    path = str(folder / "unnamed.yaml")
    Path(path).write_text(text)
    newest, scenario = bundled_profiles()[-1], parse_scenario(text)
    assert permute(path).stdout.startswith(f"{path}: order-dependent (model: {newest}), as expected\n")
    assert f"verdict: order-dependent (model: {newest})\n" in golden(scenario)[1]
    assert str(check_order(path)).startswith(f"{path}: order-dependent (model: {newest}), as expected\n")
    fresh = lambda operators: operators[0].slots in (None, operators[0].table)  # noqa: E731
    assert [explore(path, always=fresh, semantics=name).holds for name in (None, newest, "strict")] == [
        False,
        False,
        True,
    ]
    for command in (["dump", "foo"], ["explain", "foo", "cpu"]):
        shown = CliRunner().invoke(main, [*command, "--from", path, "--format", "json"]).stdout
        assert json.loads(shown)["semantics"] == newest
    assert subject_of_scenario(scenario).semantics.name == recorded_from(path).torch.partition(" ")[0] == newest
    assert Dispatcher().semantics.name == LabEngine().semantics == newest


# -- snapshots


@pytest.mark.usefixtures("folder")
def test_a_report_for_a_terminal_shows_the_operators_with_everything_registered() -> None:
    shown = permute("five.yaml", "--format", "rich").stdout
    verdict = shown.index("order-independent (model: strict, an idealised dispatcher)")
    snapshot = shown.index("After all registrations")
    assert verdict < snapshot < shown.index("Kernels of test::foo (4)")
    violated = permute("twice.yaml", "--format", "rich").stdout
    parts = ["order-dependent", "cause: ", "fix: ", "one order (-): ", "After all registrations"]
    assert (found := [violated.index(part) for part in parts]) == sorted(found)


@pytest.mark.usefixtures("folder")
def test_what_was_found_is_printed_when_ctrl_c_comes_after_the_exploration(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dispatchlab.questions.order.run_scenario._with_counterexample", interrupted)
    result = permute("five.yaml")
    assert result.exit_code == 130
    assert "five.yaml: order-independent (" in result.stdout
    assert "note: interrupted after the exploration\n" in result.stdout


def test_without_a_source_and_a_package_permute_asks_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = permute()
    assert (result.exit_code, result.stdout) == (2, "")
    assert "there is no package in this folder: name what to permute, such as" in result.stderr
    assert "dispatchlab permute scenarios/" in result.stderr
    assert permute("--operator", "aten::relu").stdout.startswith("torch-2.13-cpu under torch-2.13: 1 operator\n")


def test_a_refusal_that_is_not_expected_is_what_is_not_as_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one = "  - def: test::foo(Tensor x) -> Tensor\n"
    Path("mine.yaml").write_text(f"claim: two\nregistrations:\n{one}{one}")
    result = permute("mine.yaml")
    first, cause, *_ = result.stdout.splitlines()
    assert first.endswith("), NOT as expected: a registration is refused")
    assert (
        "(mine.yaml:4) cannot be registered together, because the last one is refused in every order (duplicate_def; "
        in cause
    )
    assert result.exit_code == 1


@pytest.mark.usefixtures("folder")
def test_a_bound_that_was_hit_names_its_option_and_a_missing_proof_its_exit_code() -> None:
    bounded = permute("five.yaml", "--walk", "graph", "--max-states", "2")
    assert "fix: raise the bound that was hit (--max-states or --timeout), or name a smaller" in bounded.stdout
    unproved = permute("many.yaml", "--walk", "sample", "--samples", "5", "--require-proof")
    assert (unproved.exit_code, unproved.stderr) == (
        3,
        "note: many.yaml: no violation was found, but that is no proof, so --require-proof ends with exit code 3\n",
    )


def test_an_operator_of_a_folder_needs_the_file_if_there_are_several(tmp_path: Path) -> None:
    first = tmp_path / "one.yaml"
    first.write_text(FIVE)
    alone = permute(str(tmp_path), "--operator", "test::foo")
    assert alone.stdout.startswith(f"{first} under {bundled_profiles()[-1]}: 1 operator\n")
    (tmp_path / "two.yaml").write_text(FIVE)
    several = permute(str(tmp_path), "--operator", "test::foo")
    text = f"--operator needs one registry or scenario, but several were named: name one, such as {first}"
    assert (several.exit_code, several.stderr.splitlines()[-1]) == (2, f"Error: {text}")
