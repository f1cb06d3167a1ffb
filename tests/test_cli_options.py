"""Every option of every command, found by walking the commands: it has an effect, or it is refused with a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dispatchlab import __version__
from dispatchlab.cli import COMMANDS, main
from tests.command_line import run
from tests.scenario_texts import COMPOSITES, FIVE, TWICE

NUMBERS = (click.types.IntParamType, click.types.FloatParamType)


def command(name: str) -> click.Command:
    """A command as the group has it."""
    found = main.get_command(click.Context(main), name)
    assert found is not None
    return found


def options(*, hidden: bool = False) -> Iterator[tuple[str, click.Option]]:
    """Every option of every command."""
    for name in sorted(COMMANDS):
        for param in command(name).params:
            if isinstance(param, click.Option) and param.hidden is hidden and param.name != "short_help":
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


def test_the_walk_finds_the_options_that_there_are() -> None:
    assert len(VALUED) > 40
    assert len(NUMERIC) >= 8


@pytest.mark.parametrize(("name", "option"), NUMERIC, ids=_ids(NUMERIC))
def test_a_number_is_finite_and_counts_something(name: str, option: click.Option) -> None:
    for value in ("nan", "inf", "-inf", "1e999", "1e300", "x"):
        assert f"Invalid value for '{option.opts[0]}'" in _refusal(name, option, value)
    if option.name == "seed":  # any whole number is one
        return
    for value in ("0", "-1"):
        assert "is not in the range" in _refusal(name, option, value)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_no_argument_is_an_empty_text(name: str) -> None:
    arguments = [
        param
        for param in command(name).params
        if isinstance(param, click.Argument) and param.type is not click.UNPROCESSED
    ]
    if not arguments:
        return
    empty = ["" for param in arguments if param.nargs != 0]
    required = [word for word in needed(name) if word not in ("x",)]
    result = run(name, *empty, *required)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Invalid value for '" in result.stderr


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_global_options_work_before_and_after_the_command(name: str) -> None:
    assert {param.name for param in main.params} == {"version", "no_color", "no_pager", "no_measure", "short_help"}
    hidden = {option.name for at, option in options(hidden=True) if at == name}
    assert hidden == {"version", "no_color", "no_pager", "no_measure"}
    for line in (["--version", name], [name, "--version"]):
        assert run(*line).stdout == f"dispatchlab, version {__version__}\n"
    with main.make_context("dispatchlab", [name]) as group:
        for line in (["--no-color"], []):
            with command(name).make_context(name, [*line, *needed(name)], parent=group, resilient_parsing=True) as made:
                assert made.params is not None
    assert run(name, "--no-color", "--no-pager", "--help").exit_code == 0
    assert run("--no-color", "--no-pager", name, "--help").exit_code == 0


WRITES = re.compile("^(Write|Save|Draw|The file to write)")


def test_every_command_that_writes_files_has_force() -> None:
    writing = {name for name, option in VALUED if WRITES.match(option.help or "")}
    assert writing >= {"codegen", "lint", "permute", "record"}
    for name in writing:
        assert "force" in {param.name for param in command(name).params}


# -- which option is for which engine


BOTH: dict[str, set[str]] = {
    "permute": {
        "engine", "walk", "samples", "seed", "max_states", "timeout_s", "max_memory", "jobs", "require_proof",
        "save", "force", "format", "progress", "allow_import", "moments",
        "snapshots", "page", "cluster",
    },
    "dump": {
        "engine", "after", "source", "keys", "listing", "dangling", "overridden", "counts", "format", "allow_import",
        "across", "everything", "layer", "register",
    },
    "explain": {
        "engine", "args", "exclude", "include", "inference_mode", "source", "across", "format",
    },
}  # fmt: skip
LAB: dict[str, dict[str, str | None]] = {
    "permute": {"semantics": "strict", "graph": "x.dot"},
    "dump": {"semantics": "strict"},
    "explain": {"semantics": "strict"},
}
TORCH: dict[str, dict[str, str | None]] = {
    "permute": {"passes": "3", "every_table": None, "conform": None, "imports": "json", "import_timeout": "5"},
    "dump": {"imports": "json", "import_timeout": "5"},
    "explain": {"imports": "json", "import_timeout": "5"},
}
OF_LIVEPERM = {"free", "quiet", "verbose"}
LINES = {"permute": ["twice.yaml"], "dump": ["aten::relu"], "explain": ["aten::relu"]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with scenarios, in which commands run."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("twice", TWICE), ("five", FIVE), ("composites", COMPOSITES)):
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", sorted(BOTH))
def test_every_option_of_a_command_with_engines_is_known_to_be_for_one_or_both(name: str) -> None:
    names = {option.name for at, option in options() if at == name}
    assert names - OF_LIVEPERM == BOTH[name] | set(LAB[name]) | set(TORCH[name])


CASES = [
    (name, engine, option, value)
    for engine, table in (("torch", LAB), ("lab", TORCH))
    for name in sorted(table)
    for option, value in table[name].items()
]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("name", "engine", "option", "value"), CASES, ids=[" ".join(case[:3]) for case in CASES])
def test_an_option_of_one_engine_is_refused_with_the_other(
    name: str, engine: str, option: str, value: str | None
) -> None:
    flag = next(param.opts[-1] for at, param in options() if at == name and param.name == option)
    result = run(name, *LINES[name], "--engine", engine, flag, *([] if value is None else [value]))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(flag)
    assert "Traceback" not in result.stderr


# -- which options have no effect together


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("permute five.yaml --passes 3", "--passes is for an engine whose state cannot be read"),
        ("permute five.yaml --every-table", "--every-table is for an engine whose state cannot be read"),
        ("permute five.yaml --samples 3", "--samples is the number of random walks: use it with --walk sample"),
        ("permute five.yaml --engine torch --walk orders --passes 3", "--passes is for --walk graph"),
        ("dump --list --counts", "--list shows operators and --counts shows keys"),
        ("dump --list --after +0", "--after is for the table of an operator"),
        ("dump --counts --semantics strict", "--semantics is for the table of an operator"),
        ("dump --list --allow-import", "--allow-import is for the table of an operator"),
        ("dump --list --engine torch --from torch-2.13", "torch-2.13 is a recording, which --engine torch cannot run"),
        ("dump aten::relu --allow-import", "--allow-import is for the functions that a scenario names"),
        ("dump aten::relu --after +0", "--after +0 numbers the registrations of a scenario"),
        ("lint --explain DL001 --baseline x", "--baseline has no effect with --explain"),
        ("lint --explain DL001 --format json", "--format has no effect with --explain"),
        ("lint torch-2.13 --explain DL001", "--explain prints the page of a rule, and checks nothing"),
        ("lint torch-2.13 --root .", "--root is for the paths of --format sarif"),
        ("lint torch-2.13 --format json --all", "--all has no effect with --format json"),
        ("lint torch-2.13 --force", "--force is for the files of --write-baseline and --report"),
        ("lint torch-2.13 --import json", "--import json needs the installed PyTorch"),
        ("lint torch-2.13 --import-timeout 5", "--import-timeout limits the time of imports"),
        ("diff torch-2.13 torch-2.13 --key CPU --layer all", "--layer compares whole registries"),
        ("diff torch-2.13 torch-2.13 --for x.yaml --operator x", "--operator selects among all operators"),
        ("codegen x.yaml --check", "--check compares with the files in a folder"),
        ("codegen x.yaml --force", "--force is for the files of -o DIR"),
        (
            "codegen --walk add.out --force",
            "--walk shows a call of the lab",
        ),
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
            text = run("permute", "five.yaml", "--max-states", str(bound), "--walk", walk).stdout
            found = re.search(r"^states: (\d+)$", text, re.MULTILINE)
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
def test_colours_are_forced_and_forbidden_by_variables_and_by_the_option_on_either_side(
    line: list[str],
    variables: dict[str, str],
    colours: bool,  # noqa: FBT001  a parameter of the test
) -> None:
    environment = {"FORCE_COLOR": None, "NO_COLOR": None, **variables}
    sides = [["permute", "twice.yaml", *line]]
    if line == ["--no-color"]:
        sides.append([*line, "permute", "twice.yaml"])
    for side in sides:
        result = CliRunner().invoke(main, side, env=environment)
        assert result.exit_code == 0
        assert ("\x1b[" in result.stdout) is colours


@pytest.mark.usefixtures("folder")
def test_the_defect_is_red_in_the_diff_of_a_counterexample() -> None:
    result = CliRunner().invoke(main, ["permute", "twice.yaml"], env={"FORCE_COLOR": "1", "NO_COLOR": None})
    assert "\x1b[1;31mactual\x1b[0m" in result.stdout
    assert "\x1b[32mexpected\x1b[0m" in result.stdout


def test_ctrl_c_while_the_command_line_is_read_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("click.Group.parse_args", interrupt)
    result = run("permute", "x.yaml")
    assert (result.exit_code, result.output) == (130, "")


REPORTS = {
    "permute": ["twice.yaml"],
    "certify": ["twice.yaml", "--jobs", "1"],
    "lint": ["twice.yaml"],
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
        "questions.order.run_scenarios.run_scenarios",
        "sources.find_sources.recorded_from",
        "questions.lint.run.lint_source",
        "questions.upgrade.compare_sources.upgrade_sources",
    ):
        monkeypatch.setattr(f"dispatchlab.{work}", never)
    (folder / "mine.html").write_text("mine\n")
    for path, message in (
        ("mine.html", "mine.html exists, and dispatchlab did not write it: write a report to keep to another file"),
        ("nowhere/page.html", "nowhere/page.html could not be written: there is no folder nowhere; make it"),
        (".", "expected a file that ends in .html; --format json prints a report for programs"),
        ("page.json", "--report page.json: expected a file that ends in .html"),
    ):
        result = run(name, *REPORTS[name], "--report", path)
        assert (result.exit_code, result.stdout) == (2, "")
        assert message in result.stderr
    assert (folder / "mine.html").read_text() == "mine\n"
    if name not in ("permute", "lint"):
        alone = run(name, *REPORTS[name], "--force")
        assert (alone.exit_code, "--force is for the file of --report" in alone.stderr) == (2, True)


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_a_report_changes_nothing_else(name: str, folder: Path) -> None:
    plain, kept = run(name, *REPORTS[name]), run(name, *REPORTS[name], "--report", "page.html")
    assert kept.exit_code == plain.exit_code
    without_time = [re.sub(r"[\d.e+]+ (ms|s)\b", "T", result.stdout) for result in (plain, kept)]
    assert without_time[0] == without_time[1]
    assert (folder / "page.html").read_text().endswith("</html>\n")


def test_a_format_that_is_written_as_an_option_is_named_where_the_command_has_it() -> None:
    def said(*arguments: str) -> str:
        result = CliRunner().invoke(main, arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        return result.stderr

    assert re.search("Did you mean '?--format json'?\\?", said("dump", "--counts", "--json"))
    assert re.search("Did you mean '?--format sarif'?\\?", said("lint", "x.yaml", "--sarif"))
    assert "--format" not in said("permute", "x.yaml", "--sarif")  # it has no such format
    assert "--format" not in said("demo", "--json")  # nor this one any
