"""The check of a package without PyTorch: its settings, its exit code, and how findings are shown."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.trial_run import TrialRun
from dispatchlab.questions.check.annotations import findings_sarif, github_annotations
from dispatchlab.questions.check.blocks import check_view, summary
from dispatchlab.questions.check.configuration import Settings, SettingsError, settings_of
from dispatchlab.questions.check.findings import drift_findings, import_findings
from dispatchlab.questions.check.report import Answer, CheckReport, Question
from dispatchlab.questions.imports.import_orders import Difference, ImportComparison
from dispatchlab.questions.lint.checkout import Checkout
from dispatchlab.questions.lint.rule import Finding, Level
from dispatchlab.questions.record.check_record import ChangeKind, RecordChange, RecordCheck
from tests.command_line import run
from tests.json_schema import errors
from tests.test_sarif import schema

HEAD = "[tool.dispatchlab]\n"
SHADOWED = Finding(
    "DL002", "shop::sell", DispatchKey.CPU, "overridden", ("registered at shop/b.py:2", "registered at shop/a.py:1"),
    Level.INFORMATION,
)  # fmt: skip
ORDER = Finding(
    "order", "shop::sell", None, "two orders; two states", ("registered at shop/b.py:2", "registered at shop/a.py:1"),
    Level.ERROR, fix="register it once",
)  # fmt: skip
NO_FAKE = Finding(
    "DL006", "shop::buy", None, "no Meta kernel", ("registered at shop/a.py:7",), Level.WARNING,
    fix='torch.library.register_fake("shop::buy")(fn)',
)  # fmt: skip


def report_of(*findings: tuple[Question, Finding], fails: tuple[Question, ...] = tuple(Question)) -> CheckReport:
    answers = tuple(
        Answer(one, f"about {one}", tuple(finding for question, finding in findings if question is one))
        for one in Question
    )
    return CheckReport(("shop",), "2.13.0", "2 operators", (), answers, fails)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Settings()),
        ("[project]\nname = 'shop'\n", Settings()),
        ("[tool.dispatchlab]\npackages = ['shop', 'shop.ops']\n", Settings(("shop", "shop.ops"))),
        ("[tool.dispatchlab]\npackages = 'shop'\nfail = ['order']\n", Settings(("shop",), (Question.ORDER,))),
        ("[tool.dispatchlab]\nfail = []\n", Settings((), ())),
        ("[tool.dispatchlab]\ninputs = ''\n", Settings()),
    ],
)
def test_settings_are_read(tmp_path: Path, text: str, expected: Settings) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    assert settings_of(tmp_path) == expected


def test_paths_in_settings_are_below_the_project(tmp_path: Path) -> None:
    text = '[tool.dispatchlab]\nbaseline = "accepted.json"\ninputs = "tests/inputs.py"\nrecord = "records/shop.yaml"\n'
    (tmp_path / "pyproject.toml").write_text(text)
    found = settings_of(tmp_path)
    assert found == Settings(
        baseline=str(tmp_path / "accepted.json"),
        record=(str(tmp_path / "records/shop.yaml"),),
        inputs=str(tmp_path / "tests/inputs.py"),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{HEAD}\npackage = 1\n", "there is no setting 'package'; did you mean packages?"),
        (f"{HEAD}fail = ['ordr']\n", "fail: there is no question 'ordr'; did you mean order?"),
        ("[tool.dispatchlab]\npackages = 3\n", "packages: expected a list of texts but found 3"),
        (f"{HEAD}packages = ['']\n", "packages: expected a list of texts but found ['']"),
        ("[tool.dispatchlab]\nbaseline = ['a']\n", "baseline: expected a path but found ['a']"),
        ("[tool.dispatchlab]\ninputs = ['a']\n", "inputs: expected a path but found ['a']"),
        ("[tool.dispatchlab.fail]\nx = 1\n", "fail: expected a list of texts"),
        ("[tool]\ndispatchlab = 3\n", "expected a table of settings"),
        ("[tool]\ndispatchlab.colour = 3\n", "there is no setting 'colour'"),
        ("a = 1\nb = = 2\n", "it cannot be read: Invalid value (at line 2, column 5)"),
    ],
)
def test_a_mistake_in_settings_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(SettingsError) as found:
        settings_of(tmp_path)
    assert str(found.value).startswith(f"{tmp_path / 'pyproject.toml'}: {said}"), str(found.value)


def test_a_mistake_in_settings_ends_the_command_with_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.dispatchlab]\nfails = ['order']\n")
    monkeypatch.chdir(tmp_path)
    done = run("check")
    assert done.exit_code == 2
    assert "pyproject.toml: there is no setting 'fails'; did you mean fail?" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--only", "ordr"), "Invalid value for '--only': 'ordr' is not one of"),
        (("--select", "DL999"), "there is no rule 'DL999'"),
    ],
)
def test_a_mistake_on_the_command_line_is_said_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("check", *arguments)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.replace("│", " ").split()), done.stderr


def test_without_a_package_check_asks_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in ((), ("--orders",), (".",)):
        done = run("check", *arguments)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "there is no package in this folder: name what to check, such as\n" in done.stderr
        assert "  dispatchlab check live    (the installed PyTorch)\n" in done.stderr


def test_the_exit_code_is_that_of_the_questions_that_fail() -> None:
    assert report_of().exit_code == 0
    assert report_of((Question.LINT, SHADOWED)).exit_code == 0
    assert report_of((Question.ORDER, ORDER)).exit_code == 1
    assert report_of((Question.ORDER, ORDER), fails=(Question.LINT,)).exit_code == 0
    assert report_of((Question.LINT, NO_FAKE), fails=(Question.LINT,)).exit_code == 1


def test_a_check_whose_trials_are_all_lost_fails() -> None:
    lost = TrialRun(operator="t::scale", trial="call", status="not tried")
    for trials, code in (((lost,), 1), ((lost, replace(lost, status="passed")), 0)):
        answer = Answer(Question.TRIALS, "", trials=trials)
        assert replace(report_of(), answers=(answer,)).exit_code == code


def test_the_exit_code_is_that_of_the_level_that_fails() -> None:
    for finding, codes in ((SHADOWED, [0, 0, 1]), (NO_FAKE, [0, 1, 1]), (ORDER, [1, 1, 1])):
        report = report_of((Question.LINT, finding))
        assert [replace(report, fail_on=level).exit_code for level in Level] == codes


def test_information_fails_a_check_that_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.yaml").write_text(
        "claim: one\nregistrations:\n  - def: t::scale(Tensor x) -> Tensor\n  - impl: t::scale\n    dispatch: CPU\n"
        "  - impl: t::scale\n    dispatch: Meta\n"
    )
    done = run("check", "one.yaml")
    assert (done.exit_code, "information DL010 no-autograd-formula" in done.stdout) == (0, True)
    assert "worst finding is information; to fail on it: --fail-on information" in done.stderr
    assert run("check", "one.yaml", "--fail-on", "information").exit_code == 1
    assert run("check", "one.yaml", "--fail-on", "information", "--ignore", "DL010").exit_code == 0


def test_what_two_questions_find_is_shown_once() -> None:
    order = report_of((Question.LINT, SHADOWED), (Question.ORDER, ORDER))
    assert [group.first for group in order.groups] == [ORDER]
    assert report_of((Question.LINT, SHADOWED)).groups[0].first == SHADOWED


def test_the_worst_comes_first_and_twenty_are_shown() -> None:
    many = [
        (Question.LINT, Finding("DL002", f"shop{at}::sell", None, "overridden", level=Level.INFORMATION))
        for at in range(25)
    ]
    report = report_of(*many, (Question.DRIFT, Finding("drift", "shop::buy", None, "went")), (Question.ORDER, ORDER))
    assert [group.code for group in report.groups[:3]] == ["order", "drift", "DL002"]
    text = check_view(report).text()
    assert text.startswith("shop: 1 error, 1 warning, 25 information\n")
    assert text.count("DL002 shadowed-kernel") == 18
    assert text.endswith("\n  ... and 7 more: see --all\n  what DL002 means: dispatchlab rule DL002\n")
    assert check_view(report, complete=True).text().count("DL002 shadowed-kernel") == 25


def test_two_changes_since_a_record_are_one_group_only_where_they_are_alike() -> None:
    changes = (
        RecordChange(ChangeKind.CAME, "def shop::buy", "shop::buy", None, "shop::buy(Tensor x) -> Tensor", ""),
        RecordChange(ChangeKind.WENT, "impl shop::sell CPU", "shop::sell", "boxed", None, ""),
        RecordChange(ChangeKind.WENT, "impl shop::lend CPU", "shop::lend", "boxed", None, ""),
    )
    found = tuple(drift_findings(RecordCheck("shop.yaml", ("shop",), "2.13.0", 3, 1, changes, (), "")))
    groups = report_of(*((Question.DRIFT, finding) for finding in found)).groups
    assert sorted(len(group.findings) for group in groups) == [1, 2]


def test_a_question_that_was_not_asked_never_reads_as_fine() -> None:
    report = CheckReport(
        ("shop",), "2.13.0", "2 operators", (), (Answer(Question.DRIFT, "there is no record", asked=False),)
    )
    assert "drift       not asked: there is no record" in check_view(report).text()
    assert "not asked" in check_view(report).html()
    assert json.loads(check_view(report).json())["answers"][0]["asked"] is False


def test_annotations_warn_of_operators_that_were_not_called(tmp_path: Path) -> None:
    answer = Answer(Question.TRIALS, "2 operators: no trial passed", (), ("no input for shop::sell: run it", "other"))
    text = github_annotations(CheckReport(("shop",), "2.13.0", "", (), (answer,)), Checkout(tmp_path))
    assert text.splitlines()[1] == "::warning title=dispatchlab trials::no input for shop::sell: run it"
    assert "other" not in text.partition("::warning")[2]


def test_annotations_are_escaped_and_placed_in_the_checkout(tmp_path: Path) -> None:
    (tmp_path / "src" / "shop").mkdir(parents=True)
    (tmp_path / "src" / "shop" / "b.py").write_text("")
    odd = Finding("drift", "", None, "100%\nof it", ("registered at elsewhere/x.py:3",))
    text = github_annotations(report_of((Question.ORDER, ORDER), (Question.DRIFT, odd)), Checkout(tmp_path))
    assert text.splitlines()[:2] == [
        "::error file=src/shop/b.py,line=2,title=dispatchlab order::shop::sell: two orders; two states"
        "%0ATo fix it: register it once",
        "::warning title=dispatchlab drift::100%25%0Aof it",
    ]


def test_sarif_of_a_check_is_valid_and_knows_every_kind(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    report = report_of((Question.ORDER, ORDER), (Question.LINT, NO_FAKE))
    findings = (finding for group in report.groups for finding in group.findings)
    found = json.loads(findings_sarif("check", findings, report.packages, Checkout(tmp_path)))
    assert errors(found, schema()) == []
    (one,) = found["runs"]
    rules = one["tool"]["driver"]["rules"]
    assert [rules[result["ruleIndex"]]["id"] for result in one["results"]] == ["order", "DL006"]
    assert [result["ruleId"] for result in one["results"]] == ["order", "DL006"]


def test_many_notes_are_counted_and_all_shows_them() -> None:
    notes = tuple(f"note {at}" for at in range(5))
    found = replace(report_of(), answers=(Answer(Question.LINT, "no likely mistake", notes=notes),))
    short, whole = check_view(found).text(), check_view(found, complete=True).text()
    assert [note for note in notes if note in short] == list(notes[:3])
    assert "... and 2 more notes: see --all" in short
    assert [note for note in notes if note in whole] == list(notes)


def test_a_check_that_ran_nothing_says_so() -> None:
    run = TrialRun(operator="shop::sell", trial="call", status="not tried", why="there is no answer within 120 s")
    lost = Answer(Question.TRIALS, "1 operator: 0 trials passed, 1 not tried", trials=(run,))
    alone = CheckReport(("shop",), "2.13.0", "1 operator", (), (lost,))
    assert (summary(alone), alone.exit_code) == ("shop: the trials were lost: no operator was run", 1)
    beside = CheckReport(("shop",), "2.13.0", "1 operator", (), (Answer(Question.LINT, "no likely mistake"), lost))
    assert summary(beside) == "shop: nothing found, but the trials were lost: no operator was run"
    unasked = CheckReport(("shop",), "2.13.0", "1 operator", (), (Answer(Question.TRIALS, "no fork", asked=False),))
    assert (summary(unasked), unasked.exit_code) == ("shop: nothing was checked", 0)


def test_what_two_lines_do_to_one_operator_is_one_finding() -> None:
    sites, orders = ("a.py:2", "b.py:2"), (("a", "b"), ("b", "a"))
    differences = tuple(
        Difference(what, f"both set the {what}", "keep one", *orders, "", sites)
        for what in ("registrations of own::op", "schema of own::op", "registrations of own::other")
    )
    found = import_findings(ImportComparison(("a", "b"), ("a", "b"), orders, 2, differences))
    assert [finding.message for finding in found] == [
        "both set the registrations of own::op",
        "both set the registrations of own::other",
    ]


def test_orders_that_are_not_run_are_counted_with_the_reason() -> None:
    orders = tuple(permutations("abcd"))
    assert ImportComparison(("a",), ("a",), orders, 24).not_run == ""
    assert ImportComparison(("a",), ("a",), orders[:2], 24).not_run == (
        "the imports take long, so not all 12 chosen orders ran"
    )
    assert ImportComparison(("a",), ("a",), orders[:12], 24).not_run == (
        "12 orders not run: each order is a new process, so of more than 12 orders, 12 are run (the given order, its "
        "reverse, and others at random)"
    )


def test_a_file_of_pytorch_is_shown_without_the_folder_of_its_build(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    generated = "build/aten/src/ATen/RegisterCPU_3.cpp"
    assert checkout.shown(f"/__w/pytorch/pytorch/{generated}") == generated
    assert checkout.shown("/home/me/kernels/sell.cpp") == "/home/me/kernels/sell.cpp"
