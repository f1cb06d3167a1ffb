"""`dispatchlab demo`: the example shows a defect, and its numbers come from calls and from the exploration."""

from __future__ import annotations

from pathlib import Path

from dispatchlab.prover.result import Verdict
from dispatchlab.questions.setup.demo import NEXT, RETURNS, run_demo
from dispatchlab.scenario.load import load_scenario
from tests.command_line import run


def test_the_two_orders_return_different_numbers_behind_equal_dumps() -> None:
    found = run_demo()
    first, second = found.calls
    assert [called.order for called in found.calls] == [(0, 1, 2), (0, 2, 1)]
    assert {first.result, second.result} == set(RETURNS.values())
    assert first.dump == second.dump
    assert "kernel_a" in first.dump[0]
    assert "kernel_b" in first.dump[0]


def test_the_exploration_finds_these_two_orders() -> None:
    found = run_demo().report
    assert (found.exploration.verdict, found.as_expected) == (Verdict.ORDER_DEPENDENT, True)
    assert found.exploration.counterexample is not None
    assert found.exploration.counterexample.expected_sequence == (2, 1)
    assert found.exploration.counterexample.actual_sequence == (1, 2)


def test_the_command_shows_numbers_sequences_and_what_to_do_next() -> None:
    result = run("demo")
    assert result.exit_code == 0
    assert result.stderr == ""
    for line in (
        "  +0 +1 +2  returns 2.0",
        "  +0 +2 +1  returns 3.0",
        "  one order: +2 +1",
        "  the other order: +1 +2",
        "    +1 impl demo::scale CompositeImplicitAutograd (kernel_a)",
    ):
        assert f"{line}\n" in result.stdout
    assert "(36 orders)" in result.stdout
    assert all(f"  {command} " in result.stdout for command, _ in NEXT)


def test_what_it_says_to_do_next_can_be_done(tmp_path: Path, monkeypatch: object) -> None:
    saved = tmp_path / "demo.yaml"
    assert run("demo", "--save", str(saved)).exit_code == 0
    assert load_scenario(str(saved)).registrations
    again = run("permute", str(saved))
    assert (again.exit_code, ": order-dependent (model: torch-2.13), as expected\n" in again.stdout) == (0, True)


def test_a_file_of_the_user_is_not_written_over(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("claim: mine\n")
    refused = run("demo", "--save", str(mine))
    assert (refused.exit_code, mine.read_text()) == (2, "claim: mine\n")
