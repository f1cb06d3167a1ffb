"""The files that `dispatchlab init` writes into a checkout: planned as a whole, then written; what is there stays.

A plan changes nothing. A file that exists is kept, unless `force` is given; the file of pytest's configuration is
edited where the options are not set yet. Planned twice, the second plan has nothing to write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from dispatchlab.adopt.checkout import Checkout
from dispatchlab.adopt.demo import demo_scenario
from dispatchlab.adopt.pytest_option import PytestConfig, folders_of, pytest_config
from dispatchlab.errors import DispatchLabError
from dispatchlab.files.atomic_write import write_file
from dispatchlab.files.bounded_read import read_file
from dispatchlab.files.file_kinds import FileKind, marked
from dispatchlab.prover.result import Verdict
from dispatchlab.questions.order.report import Report
from dispatchlab.scenario.load import MAX_BYTES, parse_scenario
from dispatchlab.scenario.scenario import Scenario

SCENARIOS = "dispatchlab_scenarios"
EXPECT = "dispatchlab_expect"
RECORDS = "dispatchlab_records"
EXAMPLE = "example"
FOLDER = "dispatch-scenarios"
"""No name of a Python package, so that a build which looks for packages finds none here."""
_HOOKS = re.compile(r"^\s*def pytest_(?:runtest_|itemcollected|collection_modifyitems)", re.MULTILINE)

Action: TypeAlias = Literal["write", "replace", "edit", "keep"]


class ModuleNotClearError(DispatchLabError):
    """Several modules of a checkout may register operators, or none was found."""

    root: str
    modules: tuple[str, ...]

    def __str__(self) -> str:
        if not self.modules:
            return f"no package was found in {self.root}: name the module that registers operators"
        return f"{self.root} has several packages, {', '.join(self.modules)}: name the one that registers operators"


class NothingToRecordError(DispatchLabError):
    """Importing a module registers nothing."""

    module: str

    template = "importing {module} registers nothing; name the module that registers, such as {module}.ops"


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file, and what becomes of it.

    Args:
        path: the file, relative to the checkout.
        action: what to do.
        text: what it will hold; for a file that is kept, what it holds.
        what: what it is, for the reader.
    """

    path: str
    action: Action
    text: str
    what: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that `init` will do.

    Args:
        root: the checkout.
        files: in the order in which they are written.
        notes: what the reader should know, a sentence each.
        run: the folder that pytest is pointed to, relative to the checkout.
        module: the module whose record the first scenario is; None for an example.
        dependent: the scenario whose verdict is order-dependent and not expected to be; None when it is as expected.
    """

    root: Path
    files: tuple[PlannedFile, ...]
    notes: tuple[str, ...]
    run: str
    module: str | None
    dependent: str | None

    def write(self) -> None:
        """Write what is planned.

        Raises:
            WriteError: a file could not be written; those before it were.
        """
        for file in self.files:
            if file.action != "keep":
                path = self.root / file.path
                path.parent.mkdir(parents=True, exist_ok=True)
                write_file(path, file.text.encode())


def plan(
    checkout: Checkout,
    module: str | None,
    *,
    record: Callable[[str], str],
    golden: Callable[[Scenario], tuple[Report, str]],
    ci: bool,
    force: bool,
) -> Plan:
    """Plan the files for a checkout.

    Args:
        checkout: the checkout.
        module: the module to record; the one that has the name of the checkout, when left out.
        record: imports a module elsewhere, and gives what it registers.
        golden: explores a scenario, and gives its golden file.
        ci: whether to write a workflow for GitHub.
        force: replace files that exist.

    Raises:
        ConfigEditError: pytest's configuration cannot be edited.
        DispatchLabError: `module` was given, and cannot be recorded.
    """
    notes: list[str] = []
    root = checkout.root
    config = pytest_config(root)
    folder, expect = _folders(root, config)
    name = module or (checkout.modules[0] if checkout.certain else None)
    existing, checked = _existing(root, folder, name), None
    if existing is not None and not force:
        scenario_file = PlannedFile(existing, "keep", _read(root / existing), "the first scenario")
        name = name if Path(existing).stem == name else None
    else:
        name, text = _first_scenario(checkout, name, record, notes, required=module is not None)
        path = f"{folder}/{name or EXAMPLE}.yaml"
        checked = path if name else None
        what = "what importing the package registers" if name else "an example"
        scenario_file = _planned(root, path, marked(text, FileKind.SCENARIO, path), what, force)
    path = scenario_file.path
    report, text = golden(parse_scenario(scenario_file.text, file=path))
    golden_path = f"{expect}/{Path(path).relative_to(folder).with_suffix('.txt').as_posix()}"
    files = [
        _option(root, config, folder, expect, checked),
        scenario_file,
        _planned(root, golden_path, text, "its golden file", force),
    ]
    if ci:
        text = workflow(folder, path, name)
        files.append(_planned(root, ".github/workflows/dispatchlab.yml", text, "runs it on GitHub", force))
    matters = report.exploration.verdict is Verdict.ORDER_DEPENDENT and not report.as_expected
    return Plan(root, tuple(files), tuple(notes), folder, name, path if matters else None)


def _folders(root: Path, config: PytestConfig) -> tuple[str, str]:
    """The folder of scenarios, and that of golden files: those that are configured, if there are.

    Else below the tests, which no build takes for a package; at the top where their conftest.py has hooks for each
    item, which may expect test functions.
    """
    values = config.values()
    if folders := folders_of(values.get(SCENARIOS, [])):
        return folders[0].rstrip("/"), str(values.get(EXPECT, "expect"))
    tests = "test" if (root / "test").is_dir() and not (root / "tests").is_dir() else "tests"
    conftest = root / tests / "conftest.py"
    folder = FOLDER if conftest.is_file() and _HOOKS.search(_read(conftest)) else f"{tests}/{FOLDER}"
    return folder, str(values.get(EXPECT, f"{folder}/expect"))


def _option(root: Path, config: PytestConfig, folder: str, expect: str, record: str | None) -> PlannedFile:
    """The configuration with the options that are not set yet.

    Args:
        root: the checkout.
        config: the configuration.
        folder: the folder of scenarios.
        expect: the folder of golden files.
        record: the record that pytest compares with what is registered then; None when there is none.
    """
    values = config.values()
    missing: dict[str, str | list[str]] = {}
    if not folders_of(values.get(SCENARIOS, [])):
        missing[SCENARIOS] = [folder]
        if EXPECT not in values:
            missing[EXPECT] = expect
    if record is not None and RECORDS not in values:
        missing[RECORDS] = [record]
    path = config.path.relative_to(root).as_posix()
    what = f"pytest collects the scenarios in {folder}"
    if not missing:
        return PlannedFile(path, "keep", config.text, what)
    return PlannedFile(path, "edit" if config.path.exists() else "write", config.with_options(missing), what)


def _existing(root: Path, folder: str, name: str | None) -> str | None:
    """The scenario that an earlier run wrote."""
    for stem in (name, EXAMPLE):
        if stem is not None and (root / folder / f"{stem}.yaml").exists():
            return f"{folder}/{stem}.yaml"
    return None


def _first_scenario(
    checkout: Checkout, name: str | None, record: Callable[[str], str], notes: list[str], *, required: bool
) -> tuple[str | None, str]:
    """The module that was recorded, and its scenario; the example, when there is nothing."""
    try:
        if name is None:
            raise ModuleNotClearError(str(checkout.root), checkout.modules)
        return name, record(name)
    except DispatchLabError as error:
        if required:
            raise
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        notes.append(f"the first scenario is an example, and not a record of your package: {reason}")
        notes.append("once that works: dispatchlab init MODULE")
        return None, demo_scenario()


def _planned(root: Path, path: str, text: str, what: str, force: bool) -> PlannedFile:  # noqa: FBT001  of this module
    target = root / path
    if not target.exists():
        return PlannedFile(path, "write", text, what)
    old = _read(target)
    return PlannedFile(path, "replace" if force and old != text else "keep", text if force else old, what)


def _read(path: Path) -> str:
    try:
        return read_file(path, limit=MAX_BYTES, what="files that are kept").decode("utf-8", "replace")
    except OSError as error:
        from dispatchlab.files.atomic_write import WriteError

        raise WriteError(str(path), error.strerror or str(error)) from None


def record_module(module: str) -> str:
    """Record what a module registers, in a process of its own: the text of a scenario.

    Raises:
        TorchMissingError: there is no PyTorch.
        ImportFailedError: it cannot be imported.
        NothingToRecordError: it registers nothing.
    """
    from dispatchlab.sources.recorded_packages import recorded_packages

    found = recorded_packages((module,))
    if not found.registrations:
        raise NothingToRecordError(module)
    return found.text


_DONE = {"write": "wrote", "replace": "replaced", "edit": "edited", "keep": "kept"}
_WOULD = {"write": "would write", "replace": "would replace", "edit": "would edit", "keep": "would keep"}


def plan_text(plan: Plan, *, dry_run: bool) -> str:
    """A line for each file, and what to do next."""
    return "".join(f"{line}\n" for line in _lines(plan, _WOULD if dry_run else _DONE))


def _lines(plan: Plan, words: dict[str, str]) -> Iterator[str]:
    yield f"{plan.root}:"
    done = [words[file.action] for file in plan.files]
    first, second = max(map(len, done)), max(len(file.path) for file in plan.files)
    for word, file in zip(done, plan.files, strict=True):
        yield f"  {word:<{first}}  {file.path:<{second}}  {file.what}"
    if plan.dependent is not None:
        yield f"The order of these registrations matters, so the test of {plan.dependent} fails until you decide:"
        yield f"  dispatchlab permute {plan.dependent}  # two orders that disagree, and why"
        yield "  remove the cause, and run dispatchlab init --force"
        yield "  or accept it: write `expect: order-dependent` into that file"
    yield "Next:"
    yield f"  pytest {plan.run}"
    if plan.module is not None:
        yield f"  dispatchlab check {plan.module}"


_HEAD = """\
# What importing this package registers: the scenarios still hold, and findings annotate pull requests.
name: dispatchlab

on:
  push:
  pull_request:

permissions:
  contents: read
  security-events: write

jobs:
  dispatchlab:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683  # v4.2.2
      - uses: actions/setup-python@a26af69be951a213d495a4c3e4e4022e16d87065  # v5.6.0
        with:
          python-version: "3.13"
      - run: pip install torch --index-url https://download.pytorch.org/whl/cpu
      - run: pip install . dispatchlab pytest
"""


def workflow(folder: str, scenario: str, module: str | None) -> str:
    """The text of the workflow.

    Args:
        folder: the folder of the scenarios.
        scenario: the scenario that was recorded.
        module: the module that it is a record of; None for an example.
    """
    steps = [f"      - run: pytest {folder}\n"]
    if module is not None:
        steps.append(
            f"      - run: dispatchlab check {module} --format sarif > dispatchlab.sarif\n"
            "      - uses: github/codeql-action/upload-sarif@48ab28a6f5dbc2a99bf1e0131198dd8f1df78169  # v3.28.0\n"
            "        if: always()\n"
            "        with:\n"
            "          sarif_file: dispatchlab.sarif\n"
        )
    return _HEAD + "".join(steps)
