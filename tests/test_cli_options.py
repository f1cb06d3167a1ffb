"""Every option of every command, found by walking the commands: it has an effect, or it is refused with a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dispatchlab import __version__
from dispatchlab.cli import main
from dispatchlab.commands.overview import COMMANDS
from tests.command_line import run
from tests.scenario_texts import COMPOSITES, FIVE, TWICE

NUMBERS = (click.types.IntParamType, click.types.FloatParamType)


def command(name: str) -> click.Command:
    """A command as the group has it."""
    found = main.get_command(click.Context(main), name)
    assert found is not None
    return found


def options() -> Iterator[tuple[str, click.Option]]:
    """Every option of every command."""
    for name in sorted(COMMANDS):
        for param in command(name).params:
            if isinstance(param, click.Option):
                yield name, param


def needed(name: str, without: click.Option | None = None) -> list[str]:
    """Arguments that a command needs, of which nothing is read before all options were."""
    line = []
    for param in command(name).params:
        if param is without or not param.required:
            continue
        if isinstance(param, click.Option):
            line += [param.opts[0], "CPU"]
        else:
            line += [param.type.choices[0] if isinstance(param.type, click.Choice) else "x"]
    return line


VALUED = [(name, option) for name, option in options() if not option.is_flag and not option.count]
NUMERIC = [(name, option) for name, option in VALUED if isinstance(option.type, NUMBERS)]


def _ids(cases: list[tuple[str, click.Option]]) -> list[str]:
    return [f"{name} {option.opts[0]}" for name, option in cases]


def _refusal(name: str, option: click.Option, value: str) -> str:
    line = [name, f"{option.opts[-1]}={value}" if option.opts[-1].startswith("--") else option.opts[-1]]
    result = run(*line, *([] if "=" in line[1] else [value]), *needed(name, option))
    assert (result.exit_code, result.stdout) == (2, ""), f"{line}: {result.output}"
    return result.stderr


def test_there_are_few_options_and_none_has_two_names() -> None:
    found = [*options()]
    assert len(found) + len(main.params) <= 100
    for _, option in found:
        assert len([name for name in option.opts if name.startswith("--")]) == 1, option.opts
        assert not option.hidden


@pytest.mark.parametrize(("name", "option"), NUMERIC, ids=_ids(NUMERIC))
def test_a_number_is_finite_and_counts_something(name: str, option: click.Option) -> None:
    for value in ("inf", "-inf", "1e999", "1e300", "x"):
        assert f"Invalid value for '{option.opts[0]}'" in _refusal(name, option, value)
    if option.name == "seed":  # any whole number is one
        return
    for value in ("0", "-1"):
        assert "is not in the range" in _refusal(name, option, value)


def test_the_options_of_all_commands_stand_before_the_command() -> None:
    assert {param.name for param in main.params} == {"version", "no_color", "no_pager", "quiet"}
    assert run("--version").stdout == f"dispatchlab, version {__version__}\n"
    assert run("--no-color", "--no-pager", "-q", "dump", "--help").exit_code == 0


def test_the_options_of_all_commands_may_stand_behind_the_command_as_well() -> None:
    before = run("-q", "--no-color", "--no-pager", "explain", "aten::relu", "--format", "rich")
    behind = run("explain", "aten::relu", "--format", "rich", "-q", "--no-color", "--no-pager")
    assert (behind.exit_code, behind.stdout, behind.stderr) == (0, before.stdout, "")
    assert "note: torch-2.13-cpu answers" in run("explain", "aten::relu").stderr


def test_no_operator_and_no_source_is_an_empty_text() -> None:
    for line in (["dump", ""], ["explain", " "], ["check", ""], ["diff", "", "x"], ["coverage", "--key", ""]):
        result = run(*line)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "expected a value but found an empty text" in result.stderr


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with scenarios, in which commands run."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("twice", TWICE), ("five", FIVE), ("composites", COMPOSITES)):
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("permute five.yaml --conform", "--conform compares the live engine with its model"),
        ("permute five.yaml --package json", "--package json needs the installed PyTorch: add --engine torch"),
        ("permute five.yaml --engine torch --semantics strict", "--semantics strict is for the lab engine"),
        ("permute five.yaml --engine torch --snapshots", "the states of PyTorch cannot be read"),
        ("permute five.yaml twice.yaml --snapshots", "--snapshots works with one scenario, but 2 were given"),
        ("dump", "no operator was named"),
        ("dump --list --engine torch --from torch-2.13", "torch-2.13 is a recording, which --engine torch cannot run"),
        ("dump --list --from five.yaml", "--list works with registries, but five.yaml is a scenario"),
        ("dump aten::relu --after +0", "--after +0 needs the registrations of a scenario"),
        ("diff torch-2.13 torch-2.13 --for x.yaml --operator x", "--operator and --for cannot be combined"),
        ("coverage torch-2.13 --key CPU --program five.yaml --tag core", "--program cannot be combined"),
        ("permute torch-2.13 --semantics pr35061", "--semantics pr35061 cannot be certified"),
        ("permute torch-2.13 --walk graph", "--walk is for scenarios, and torch-2.13 is a registry"),
        ("check five.yaml --only order", "is not a package, so only lint can be asked"),
        ("check some_package --against x", "--against is for lint"),
        ("doctor stale_slots", "to show the defect stale_slots, add --defects"),
    ],
)
def test_options_without_effect_are_refused_with_a_sentence(line: str, message: str) -> None:
    result = run(*line.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


@pytest.mark.usefixtures("folder")
def test_a_bound_on_states_is_what_the_report_counts() -> None:
    for bound in (1, 2, 5):
        for walk in ("graph", "orders", "sample"):
            text = run("permute", "five.yaml", "--max-states", str(bound), "--walk", walk, "-v").stdout
            found = re.search(r"^  states: (\d+)$", text, re.MULTILINE)
            assert found is not None
            assert int(found[1]) <= bound


# -- colours


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("line", "variables", "colours"),
    [
        ([], {}, False),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": ""}, False),
        ([], {"FORCE_COLOR": "0"}, False),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": ""}, True),
        (["--no-color"], {"FORCE_COLOR": "1"}, False),
        (["--format", "text"], {"FORCE_COLOR": "1"}, False),
        (["--format", "rich"], {"FORCE_COLOR": "1"}, True),
        (["--format", "rich"], {}, False),
    ],
)
def test_colours_are_forced_and_forbidden_by_variables_and_by_the_option(
    line: list[str],
    variables: dict[str, str],
    colours: bool,  # noqa: FBT001  a parameter of the test
) -> None:
    environment = {"FORCE_COLOR": None, "NO_COLOR": None, **variables}
    command = [*line, "permute", "twice.yaml"] if line == ["--no-color"] else ["permute", "twice.yaml", *line]
    result = CliRunner().invoke(main, command, env=environment)
    assert result.exit_code == 0
    assert ("\x1b[" in result.stdout) is colours


@pytest.mark.usefixtures("folder")
def test_minus_is_red_and_plus_is_green_in_a_counterexample() -> None:
    result = CliRunner().invoke(main, ["permute", "twice.yaml"], env={"FORCE_COLOR": "1", "NO_COLOR": None})
    assert "\x1b[1;31mone order (-)" in result.stdout
    assert "\x1b[32mthe other order (+)" in result.stdout
    assert "\x1b[31mCPU: fn_b" in result.stdout
    assert "\x1b[32mCPU: fn_a" in result.stdout


REPORTS = {
    "permute": ["twice.yaml"],
    "check": ["twice.yaml"],
    "diff": ["twice.yaml", "five.yaml"],
    "coverage": ["twice.yaml", "--key", "CPU"],
}


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_a_report_that_cannot_be_written_is_refused_before_any_work(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("work was done")

    for work in (
        "questions.order.run_scenario.run_scenarios",
        "questions.lint.run.lint_source",
        "questions.upgrade.compare_sources.upgrade_sources",
        "questions.sources.find_sources.recorded_from",  # last: those above import it
    ):
        monkeypatch.setattr(f"dispatchlab.{work}", never)
    (folder / "mine.html").write_text("mine\n")
    for path, message in (
        ("mine.html", "mine.html exists, and dispatchlab did not write it: write a report to keep to another file"),
        ("nowhere/page.html", "nowhere/page.html could not be written: there is no folder nowhere; make it"),
        (".", "expected a file that ends in .html; --format json prints a report for programs"),
        ("page.json", "page.json: expected a file that ends in .html"),
    ):
        result = run(name, *REPORTS[name], "--report", path)
        assert (result.exit_code, result.stdout) == (2, "")
        assert message in result.stderr
    assert (folder / "mine.html").read_text() == "mine\n"


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_a_report_changes_nothing_else(name: str, folder: Path) -> None:
    plain, kept = run(name, *REPORTS[name]), run(name, *REPORTS[name], "--report", "page.html")
    assert kept.exit_code == plain.exit_code
    without_time = [re.sub(r"[\d.e+]+ (ms|s)\b", "T", result.stdout) for result in (plain, kept)]
    assert without_time[0] == without_time[1]
    assert (folder / "page.html").read_text().endswith("</html>\n")
