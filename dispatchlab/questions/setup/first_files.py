"""The files that `dispatchlab init` writes: a folder with a scenario and its golden file, and a workflow.

Existing files are kept. Lines for the user's own files are printed, not written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from dispatchlab.errors import DispatchLabError
from dispatchlab.files import FileKind, marked, read_file, write_file
from dispatchlab.prover.result import Verdict
from dispatchlab.questions.check.registering_modules import what_to_name
from dispatchlab.questions.order.report import Report
from dispatchlab.questions.setup.checkout import Checkout
from dispatchlab.questions.setup.demo import demo_scenario
from dispatchlab.questions.setup.pytest_option import RECORDS, folders_of, option_lines, pytest_options
from dispatchlab.scenario.load import MAX_BYTES, parse_scenario
from dispatchlab.scenario.scenario import Scenario

SCENARIOS = "dispatchlab_scenarios"
EXPECT = "dispatchlab_expect"
EXAMPLE = "example"
FOLDER = "dispatch-scenarios"
"""No name of a Python package, so that a build which looks for packages finds none here."""

Action: TypeAlias = Literal["wrote", "kept"]


class ModuleNotClearError(DispatchLabError):
    """Several modules of a checkout may register operators, or no module was found."""

    root: str
    modules: tuple[str, ...]

    def __str__(self) -> str:
        if not self.modules:
            return f"no package was found in {self.root}: name the module that registers operators"
        return f"{self.root} has several packages, {', '.join(self.modules)}: name the one that registers operators"


class NothingToRecordError(DispatchLabError):
    """The import of a module registers nothing."""

    module: str

    def __str__(self) -> str:
        return f"importing {self.module} registers nothing: {what_to_name(self.module)}"


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file, and the action for it.

    Args:
        path: the file, relative to the checkout.
        action: the action.
        text: its new content; for a kept file, its present content.
        what: a description for the reader.
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
        files: the files, in the order of writing.
        notes: sentences for the reader.
        run: the folder for pytest, relative to the checkout.
        module: the module of the first scenario, a record; None for an example.
        dependent: the scenario if its verdict is unexpectedly order-dependent; else None.
        to_add: a file of the user or a section of one, and the lines to add to it; the lines may be empty.
    """

    root: Path
    files: tuple[PlannedFile, ...]
    notes: tuple[str, ...]
    run: str
    module: str | None
    dependent: str | None
    to_add: tuple[str, tuple[str, ...]] = ("", ())

    def write(self) -> None:
        """Write the planned files.

        Raises:
            WriteError: a file could not be written; the files before it were written.
        """
        for file in self.files:
            if file.action != "kept":
                path = self.root / file.path
                path.parent.mkdir(parents=True, exist_ok=True)
                write_file(path, file.text.encode())


def plan(
    checkout: Checkout,
    module: str | None,
    *,
    record: Callable[[str], str],
    golden: Callable[[Scenario], tuple[Report, str]],
    ci: str,
) -> Plan:
    """Plan the files for a checkout.

    Args:
        checkout: the checkout.
        module: the module to record; default: the module with the name of the checkout.
        record: a function that imports a module in another process, and returns its registrations.
        golden: a function that explores a scenario, and returns its golden file.
        ci: the format of findings in the workflow for GitHub, `github` or `sarif`; `none` for no workflow.

    Raises:
        PytestConfigError: pytest's configuration cannot be read.
        DispatchLabError: `module` was given, and cannot be recorded.
    """
    notes: list[str] = []
    root, options = checkout.root, pytest_options(checkout.root)
    configured = folders_of(options.get(SCENARIOS, []))
    folder = configured[0].rstrip("/") if configured else f"tests/{FOLDER}" if (root / "tests").is_dir() else FOLDER
    expect = str(options.get(EXPECT, "expect" if configured else f"{folder}/expect"))
    name = module or (checkout.modules[0] if checkout.certain else None)
    existing = next(
        (
            stem
            for stem in ((name,) if module else (name, EXAMPLE))
            if stem and (root / folder / f"{stem}.yaml").exists()
        ),
        None,
    )
    if existing is not None:
        path = f"{folder}/{existing}.yaml"
        scenario_file = PlannedFile(path, "kept", _read(root / path), "the first scenario")
        name = name if existing == name else None
    else:
        name, text = _first_scenario(checkout, name, record, notes, required=module is not None)
        path = f"{folder}/{name or EXAMPLE}.yaml"
        what = "what importing the package registers" if name else "an example"
        scenario_file = _planned(root, path, marked(text, FileKind.SCENARIO), what)
    report, text = golden(parse_scenario(scenario_file.text, file=path))
    golden_path = f"{expect}/{Path(path).relative_to(folder).with_suffix('.txt').as_posix()}"
    files = [scenario_file, _planned(root, golden_path, text, "its golden file")]
    if ci != "none":
        text = workflow(folder, name, sarif=ci == "sarif")
        files.append(_planned(root, ".github/workflows/dispatchlab.yml", text, "runs it on GitHub"))
    missing: dict[str, str | list[str]] = {} if configured else {SCENARIOS: [folder], EXPECT: expect}
    if name is not None and RECORDS not in options:
        missing[RECORDS] = [path]
    matters = report.exploration.verdict is Verdict.ORDER_DEPENDENT and not report.as_expected
    to_add = option_lines(root, missing) if missing else ("", ())
    return Plan(root, tuple(files), tuple(notes), folder, name, path if matters else None, to_add)


def _first_scenario(
    checkout: Checkout, name: str | None, record: Callable[[str], str], notes: list[str], *, required: bool
) -> tuple[str | None, str]:
    """Return the recorded module and its scenario, or the example if there is no module."""
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


def _planned(root: Path, path: str, text: str, what: str) -> PlannedFile:
    target = root / path
    return PlannedFile(path, "kept", _read(target), what) if target.exists() else PlannedFile(path, "wrote", text, what)


def _read(path: Path) -> str:
    try:
        return read_file(path, limit=MAX_BYTES, what="files that are kept").decode("utf-8", "replace")
    except OSError as error:
        from dispatchlab.files import WriteError

        raise WriteError(str(path), error.strerror or str(error)) from None


def record_module(module: str) -> str:
    """Record the registrations of a module in a new process; return the text of a scenario.

    Raises:
        TorchMissingError: there is no PyTorch.
        ImportFailedError: the module cannot be imported.
        NothingToRecordError: it registers nothing.
    """
    from dispatchlab.questions.sources.find_sources import recorded_packages

    found = recorded_packages((module,))
    if not found.registrations:
        raise NothingToRecordError(module)
    return found.text


def plan_text(plan: Plan) -> str:
    """Return a line for each file, and the next steps."""
    return "".join(f"{line}\n" for line in _lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    yield f"{plan.root}:"
    width = max(len(file.path) for file in plan.files)
    for file in plan.files:
        yield f"  {file.action:<5}  {file.path:<{width}}  {file.what}"
    path, lines = plan.to_add
    if lines:
        yield f"Add to {path}:"
        yield from (f"  {line}" for line in lines)
    if plan.dependent is not None:
        yield f"The order of these registrations matters, so the test of {plan.dependent} fails until you decide:"
        yield f"  dispatchlab permute {plan.dependent}  # two orders that disagree, and why"
        yield f"  remove the cause and {plan.dependent}, and run dispatchlab init"
        yield "  or accept it: write `expect: order-dependent` into that file"
    yield "Next:"
    yield f"  pytest {plan.run}"
    if plan.module is not None:
        yield f"  dispatchlab check {plan.module}"


_HEAD = """\
# Check what this package registers: findings annotate pull requests, and the scenarios still hold.
name: dispatchlab

on:
  push:
  pull_request:

permissions:
  contents: read
{more}
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


_SARIF = """\
      - run: dispatchlab check {module} --format sarif > dispatchlab.sarif
      - uses: github/codeql-action/upload-sarif@48ab28a6f5dbc2a99bf1e0131198dd8f1df78169  # v3.28.0
        if: always()
        with:
          sarif_file: dispatchlab.sarif
"""


def workflow(folder: str, module: str | None, *, sarif: bool) -> str:
    """Return the text of the workflow.

    Args:
        folder: the folder of the scenarios.
        module: the module to check; None for none.
        sarif: whether to upload the findings; then the workflow needs a permission.
    """
    check = _SARIF.format(module=module) if sarif else f"      - run: dispatchlab check {module} --format github\n"
    tests = f"      - run: pytest {folder}\n        if: always()\n"
    head = _HEAD.replace("{more}", "  security-events: write\n" if sarif else "")
    return f"{head}{'' if module is None else check}{tests}"
