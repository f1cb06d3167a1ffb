"""What differs between two records of the same packages, and how it is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from expecttest import assert_expected_inline

from dispatchlab.errors import RequestError
from dispatchlab.questions.check.findings import drift_findings
from dispatchlab.questions.record.blocks import check_view
from dispatchlab.questions.record.check_record import RecordCheck, check_record, compare_records
from dispatchlab.scenario.load import parse_scenario
from tests.command_line import run

HEAD = """\
claim: What importing mine registers does not depend on its order.
namespace: mine
registry: torch-2.13
packages: [mine]
registrations:
"""
FOUNDATION = """\
  - def: aten::mul.Tensor(Tensor self, Tensor other) -> Tensor
    debug: torch.cpp:1
"""
DEF = """\
  - library: mine
    kind: FRAGMENT
    made_by: {call: define, operator: foo}
    debug: registered at mine/ops.py:1
    registrations:
      - def: foo(Tensor! out) -> ()
"""
CPU = """\
  - impl: foo
    dispatch: CPU
    debug: registered at mine/ops.py:2
"""
FAKE = """\
  - library: mine
    kind: FRAGMENT
    made_by: {call: register_fake, operator: foo}
    debug: registered at mine/ops.py:3
    registrations:
      - impl: foo
        dispatch: Meta
"""


def checked(before: str, after: str, *foreign: str) -> RecordCheck:
    sides = [parse_scenario(HEAD + body) for body in (before, after)]
    changes = compare_records(sides[0], sides[1], foreign=foreign)
    counts = [len(side.registrations) for side in sides]
    return RecordCheck("mine.yaml", ("mine",), "2.13.0", counts[0], counts[1], changes, (), "")


def test_the_page_of_drift_says_that_a_record_has_no_functions() -> None:
    shown = run("rule", "drift").stdout
    assert "Which function a kernel is: a record has only the line that registers the kernel." in shown


def test_lines_and_foreign_defs_do_not_count() -> None:
    moved = (FOUNDATION + DEF + CPU).replace("ops.py:1", "ops.py:9").replace("[Tensor other]", "")
    found = checked(DEF + CPU, moved, "aten::mul.Tensor")
    assert (found.changes, found.exit_code) == ((), 0)
    assert check_view(found).text() == ("mine.yaml: mine registers the same as when it was recorded: 3 registrations\n")


def test_every_registration_that_came_went_or_changed_is_shown_under_its_operator() -> None:
    found = checked(DEF + CPU + FAKE, DEF.replace("Tensor! out", "Tensor! out, int n=1") + CPU.replace("CPU", "CUDA"))
    assert found.exit_code == 1
    assert_expected_inline(
        check_view(found).text(),
        """\
mine.yaml: mine registers something else: 1 came, 3 went, 1 changed (3 registrations then, 2 now)
mine::foo
  changed: def mine::foo, registered at mine/ops.py:1
    - (Tensor! out) -> ()
    + (Tensor! out, int n=1) -> ()
  went: impl mine::foo CPU: boxed, registered at mine/ops.py:2
  came: impl mine::foo CUDA: boxed, registered at mine/ops.py:2
  went: impl mine::foo Meta: boxed, registered at mine/ops.py:3
  went: register_fake mine::foo, registered at mine/ops.py:3
if this is right, record it again: dispatchlab record mine -o mine.yaml
""",
    )
    value = json.loads(check_view(found).json())
    assert value["same"] is False
    assert [change["kind"] for change in value["changes"]] == ["changed", "went", "came", "went", "went"]
    assert value["registrations"] == {"then": 3, "now": 2}


def test_a_call_of_torch_library_that_reaches_no_dispatcher_counts() -> None:
    lost = FAKE.replace("    registrations:\n      - impl: foo\n        dispatch: Meta\n", "")
    found = checked(DEF + lost, DEF)
    assert [(change.kind, change.registration) for change in found.changes] == [("went", "register_fake mine::foo")]


def test_which_of_two_kernels_comes_last_counts() -> None:
    typed = CPU.replace("    debug", "    kernel: (Tensor _0) -> ()\n    debug")
    found = checked(DEF + CPU + typed, DEF + typed + CPU)
    (change,) = found.changes
    assert (change.kind, change.before, change.after) == (
        "changed",
        "(Tensor _0) -> () over boxed",
        "boxed over (Tensor _0) -> ()",
    )


def test_which_of_two_like_kernels_comes_last_counts() -> None:
    fast, slow = (CPU.replace("ops.py:2", f"{file}.py:2") for file in ("fast", "slow"))
    later = fast.replace("py:2", "py:7")
    assert checked(DEF + fast + slow, DEF + later + slow).exit_code == 0  # lines alone move with every edit
    found = checked(DEF + fast + slow, DEF + slow + later)
    assert_expected_inline(
        check_view(found).text(),
        """\
mine.yaml: mine registers something else: 1 changed (3 registrations then, 3 now)
mine::foo
  changed: the winner of mine::foo at CPU, registered at mine/fast.py:7
    - mine/slow.py:2
    + mine/fast.py:7
if this is right, record it again: dispatchlab record mine -o mine.yaml
""",
    )
    (finding,) = drift_findings(found)
    assert "the winner of mine::foo at CPU changed since mine.yaml was recorded: mine/slow.py:2 -> mine/fast.py:7" in (
        finding.message
    )
    assert checked(DEF + fast + later, DEF + later + fast).exit_code == 1


@pytest.mark.parametrize(
    ("body", "winner"),
    [
        (
            "  - fallback: boxed\n    dispatch: PrivateUse1\n    debug: registered at mine/ops.py:3\n",
            "fallback PrivateUse1",
        ),
        (FAKE, "register_fake mine::foo"),
    ],
)
def test_the_winner_of_whatever_is_overwritten_counts(body: str, winner: str) -> None:
    one, other = (body.replace("mine/ops", f"mine/{file}") for file in "ab")
    changes = checked(DEF + one + other, DEF + other + one).changes
    assert f"the winner of {winner}" in [change.registration for change in changes]
    assert checked(DEF + one + other, DEF + one + other).exit_code == 0


def test_a_scenario_that_names_no_packages_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(HEAD.replace("packages: [mine]\n", "") + DEF)
    with pytest.raises(RequestError, match="add `packages:"):
        check_record(str(path))


def test_options_of_the_other_mode_are_refused() -> None:
    result = run("record", "mine", "--check", "mine.yaml", "-o", "other.yaml")
    assert (result.exit_code, "--check writes nothing" in result.stderr) == (2, True)
    result = run("record", "--all")
    assert (result.exit_code, "no file was named" in result.stderr) == (2, True)
