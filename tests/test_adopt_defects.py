"""`dispatchlab doctor --defects`: what it shows of programs that ran, and the program of one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from dispatchlab.cli import main
from dispatchlab.questions.setup import defects


def test_what_pytorch_has_is_listed_and_what_could_not_run_says_why() -> None:
    first, second, third = defects.known_defects()[:3]
    shown = defects.defects_view(
        "2.99.0", [replace(first, found=True), replace(second, found=False), replace(third, said="OSError: no file")]
    ).text()
    assert shown.splitlines() == [
        "PyTorch 2.99.0 has 1 of 3 known defects",
        f"  {first.name:<{max(len(one.name) for one in (first, second, third))}}  {first.what}",
        f"not tried: {third.name}: OSError: no file",
        "dispatchlab doctor --defects NAME prints the program of one, and where it is described",
    ]


@pytest.mark.parametrize(
    ("raised", "found", "said"),
    [
        ("", False, ""),
        ("SystemExit: defect: a slot is stale", True, "a slot is stale"),
        ("ImportError: no module\nmore", None, "ImportError: no module"),
        ("it ended the process with SIGSEGV", None, "it ended the process with SIGSEGV"),
    ],
)
def test_only_what_a_program_says_of_a_defect_counts(*, raised: str, found: bool | None, said: str) -> None:
    after = defects._with(defects.known_defects()[0], raised)
    assert (after.found, after.said) == (found, said)


def test_the_program_of_one_runs_by_itself_and_says_where_it_is_described() -> None:
    done = CliRunner().invoke(main, ["doctor", "--defects", "stale_slots"])
    assert done.exit_code == 0
    (known,) = defects.known_defects(["stale_slots"])
    assert done.stdout == f"# {known.what}\n# {known.page}\n{known.program}"
    assert known.page.endswith("/defects.html#stale_slots")
    document = json.loads(CliRunner().invoke(main, ["doctor", "--defects", "stale_slots", "--format", "json"]).stdout)
    assert document["torch"] is None
    assert [(one["name"], one["found"]) for one in document["defects"]] == [("stale_slots", None)]


def test_a_name_that_is_no_defect_is_refused_with_the_nearest() -> None:
    done = CliRunner().invoke(main, ["doctor", "--defects", "stale_slot"])
    assert done.exit_code == 2
    assert "there is no defect stale_slot; did you mean stale_slots?" in done.stderr
