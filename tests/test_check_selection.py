"""Which findings `check` shows: options, settings, rules ignored for an operator, and comments at a line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dispatchlab.questions.check.selection import UnknownRuleError, codes_of, known_kinds, page_of
from tests.command_line import run

SCENARIO = """\
claim: c.
registrations:
  - def: shop::sell(Tensor x) -> Tensor
    debug: registered at ops.py:1
  - impl: shop::sell
    dispatch: CPU
    debug: registered at ops.py:2
  - def: shop::buy(Tensor x) -> Tensor
    debug: registered at ops.py:3
  - impl: shop::buy
    dispatch: CPU
    debug: registered at ops.py:4
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shop.yaml").write_text(SCENARIO)
    (tmp_path / "ops.py").write_text("define\nimplement\ndefine\nimplement\n")
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(*options: str) -> list[tuple[str, str]]:
    value = json.loads(run("check", "shop.yaml", *options, "--format", "json").stdout)
    return sorted((each["code"], each["operator"]) for answer in value["answers"] for each in answer["findings"])


EVERY = [("DL006", "shop::buy"), ("DL006", "shop::sell"), ("DL010", "shop::buy"), ("DL010", "shop::sell")]


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("options", "codes"),
    [
        ((), {"DL006", "DL010"}),
        (("--select", "DL006"), {"DL006"}),
        (("--select", "dl"), {"DL006", "DL010"}),
        (("--select", "DL00,WHY"), {"DL006"}),
        (("--ignore", "no-meta-kernel"), {"DL010"}),
    ],
)
def test_options_choose_by_code_name_or_beginning(options: tuple[str, ...], codes: set[str]) -> None:
    assert found(*options) == [one for one in EVERY if one[0] in codes]


def test_settings_and_comments_ignore_what_they_name(shop: Path) -> None:
    (shop / "pyproject.toml").write_text(
        '[tool.dispatchlab]\nignore = ["DL010"]\n\n[tool.dispatchlab.per-operator-ignores]\n"shop::b*" = ["DL006"]\n'
    )
    assert found() == [("DL006", "shop::sell")]
    (shop / "ops.py").write_text("define\nimplement  # dispatchlab: ignore[DL006]\n")
    assert found() == []
    shown = run("check", "shop.yaml")
    assert (shown.exit_code, "2 findings ignored" in shown.stdout) == (0, True)


def test_a_comment_ignores_its_codes_at_its_line_alone(shop: Path) -> None:
    for comment, left in (
        ("# dispatchlab: ignore[DL006]", [EVERY[0], EVERY[2], EVERY[3]]),
        ("# dispatchlab: ignore[DL006, no-autograd-formula]", [EVERY[0], EVERY[2]]),
        ("// dispatchlab: ignore", [EVERY[0], EVERY[2]]),
        ("# dispatchlab: ignore[DL001]", EVERY),
    ):
        (shop / "ops.py").write_text(f"define\nimplement  {comment}\ndefine\nimplement\n")
        assert found() == left, comment


def test_the_header_and_the_line_of_a_question_count_the_same(shop: Path) -> None:
    first, *lines = run("check", "shop.yaml").stdout.splitlines()
    assert first == "shop.yaml: 1 warning, 1 information"
    assert "  lint        1 warning, 1 information" in lines
    run("check", "shop.yaml", "--select", "DL006", "--write-baseline", "accepted.json")
    first, *lines = run("check", "shop.yaml", "--baseline", "accepted.json").stdout.splitlines()
    assert first == "shop.yaml: 1 information"
    assert "  lint        1 information" in lines
    assert (shop / "accepted.json").exists()


@pytest.mark.parametrize("width", ["60", "80", "120"])
def test_a_path_can_be_clicked_and_a_fix_is_in_one_line(
    shop: Path, width: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = shop / "src" / "ops.py"
    source.parent.mkdir()
    (shop / "ops.py").rename(source)
    monkeypatch.setenv("COLUMNS", width)
    shown = run("check", "shop.yaml", "--format", "rich").stdout
    assert "at: src/ops.py:4\n" in shown
    fix = 'torch.library.register_fake("shop::buy")(fn), where fn returns an empty tensor of the right shape'
    assert [line for line in shown.splitlines() if line.endswith(fix)]


def test_the_outputs_with_codes_and_the_help_name_the_command_that_explains_a_code(shop: Path) -> None:
    shown = run("check", "shop.yaml")
    assert shown.stdout.endswith("\n  what DL006 means: dispatchlab rule DL006\n")
    assert "dispatchlab rule" not in run("check", "shop.yaml", "--ignore", "DL").stdout
    assert run("--help").stdout.endswith(
        "\n  dispatchlab rule CODE explains a code of check or why, for example DL004.\n"
    )


def test_a_rule_that_is_none_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownRuleError, match="did you mean no-meta-kernel"):
        codes_of(["no-meta-kernels"])
    result = run("rule", "DL99")
    assert (result.exit_code, "there is no rule 'DL99'" in result.stderr) == (2, True)


def test_the_page_of_a_cause_is_printed_as_that_of_a_rule() -> None:
    assert run("rule", "why306").stdout.startswith("# WHY306: ")
    assert page_of("order-matters").startswith("# DL009: order-matters\n")


def test_the_start_of_codes_lists_the_codes_with_their_titles() -> None:
    listed = run("rule", "why80").stdout
    assert listed.startswith(
        "## Subclasses, modes, and kernels that calls do not reach\n\n- WHY801: no handler takes a function\n"
    )
    assert re.findall(r"\w+\d", listed) == [f"WHY80{number}" for number in range(1, 10)]
    assert run("rule", "DL00").stdout.startswith("## Rules of check\n\n- DL001: dangling-impl\n")


def test_without_a_rule_every_code_is_listed_in_a_group() -> None:
    codes = re.findall(r"^- (\w+): ", run("rule").stdout, re.MULTILINE)
    assert sorted(codes) == sorted(known_kinds())
