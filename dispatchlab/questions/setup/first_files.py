"""The files that `dispatchlab init` writes: a folder with a scenario and its golden file, and a workflow.

Existing files are kept; pytest's configuration gets the options that it lacks, and keeps its other lines. A workflow
that an earlier run wrote without a module gets the check of the module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Literal, TypeAlias

from dispatchlab._version import __version__
from dispatchlab.errors import DispatchLabError, RequestError
from dispatchlab.files import FileKind, WriteError, content_of, marked, read_file, write_file
from dispatchlab.model.installed_torch import installed_torch
from dispatchlab.prover.result import Verdict
from dispatchlab.questions.check.registering_modules import what_to_name
from dispatchlab.questions.order.report import Report
from dispatchlab.questions.setup.checkout import NO_PACKAGES, Checkout, is_installable
from dispatchlab.questions.setup.demo import demo_scenario
from dispatchlab.questions.setup.pytest_option import (
    RECORDS,
    folders_of,
    option_lines,
    pytest_configuration,
    with_options,
)
from dispatchlab.scenario.folders import scenarios_below
from dispatchlab.scenario.load import MAX_BYTES, parse_scenario
from dispatchlab.scenario.scenario import Scenario

SCENARIOS = "dispatchlab_scenarios"
EXPECT = "dispatchlab_expect"
EXAMPLE = "example"
FOLDER = "dispatch-scenarios"
"""No name of a Python package, so that a build which looks for packages finds none here."""

Action: TypeAlias = Literal["wrote", "kept", "edited"]


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
        by_hand: lines about a change that the user has to make; empty if there is none.
    """

    root: Path
    files: tuple[PlannedFile, ...]
    notes: tuple[str, ...]
    run: str
    module: str | None
    dependent: str | None
    by_hand: tuple[str, ...] = ()

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
    root, pytest = checkout.root, pytest_configuration(checkout.root)
    options = pytest.options
    configured = folders_of(options.get(SCENARIOS, []))
    folder = configured[0].rstrip("/") if configured else _folder_with_scenarios(root) or FOLDER
    expect = str(options.get(EXPECT, "expect" if configured else f"{folder}/expect"))
    name = module or (checkout.modules[0] if checkout.certain else None)
    stems = (name,) if module else (name, EXAMPLE)
    existing = next((stem for stem in stems if stem and (root / folder / f"{stem}.yaml").exists()), None)
    others = [] if existing or name else scenarios_below(root / folder).scenarios
    if existing is not None or others:
        paths = [f"{folder}/{existing}.yaml"] if existing else [other.relative_to(root).as_posix() for other in others]
        scenarios = [PlannedFile(path, "kept", _read(root / path), "a scenario") for path in paths]
        name = name if existing == name else None
    else:
        name, text = _first_scenario(checkout, name, record, notes, required=module is not None)
        path = f"{folder}/{name or EXAMPLE}.yaml"
        what = "what importing the package registers" if name else "an example"
        scenarios = [_planned(root, path, marked(text, FileKind.SCENARIO), what)]
    planned, dependent = [], None
    for file in scenarios:
        report, text = golden(parse_scenario(file.text, file=file.path))
        golden_path = f"{expect}/{Path(file.path).relative_to(folder).with_suffix('.txt').as_posix()}"
        planned += [file, _planned(root, golden_path, text, "its golden file")]
        if report.exploration.verdict is Verdict.ORDER_DEPENDENT and not report.as_expected:
            dependent = dependent or file.path
    path = scenarios[0].path
    if ci != "none":
        written = partial(workflow, folder, is_installed=is_installable(root))
        text = written(name, sarif=ci == "sarif")
        file = _planned(root, ".github/workflows/dispatchlab.yml", text, "runs it on GitHub")
        if name is not None and file.text in {written(None, sarif=sarif) for sarif in (True, False)}:
            file = replace(file, action="edited", text=text)  # an earlier run knew no module to check
        planned.append(file)
    wanted: dict[str, str | list[str]] = {} if configured else {SCENARIOS: [folder], EXPECT: expect}
    if name is not None:
        wanted[RECORDS] = [path]
    by_hand: list[str] = []
    if missing := {option: value for option, value in wanted.items() if option not in options}:
        edited = with_options(pytest, missing)
        if edited is None:
            by_hand = [f"Add to [{pytest.section}] in {pytest.file}:", *option_lines(pytest.file, missing)]
        else:
            action: Action = "edited" if pytest.text else "wrote"
            planned.append(PlannedFile(pytest.file, action, edited, "the options of pytest"))
    records = folders_of(options.get(RECORDS, [path]))
    if name is not None and not any(f"{path}/".startswith(f"{one.rstrip('/')}/") for one in records):
        by_hand = [f"Change in {pytest.file}:", *option_lines(pytest.file, {RECORDS: [*records, path]})]
    return Plan(root, tuple(planned), tuple(notes), folder, name, dependent, tuple(by_hand))


def _folder_with_scenarios(root: Path) -> str | None:
    """Return the folder that has scenarios, or else one for them below the tests, if there are tests."""
    for path in sorted([*root.glob("[!.]*/*.y*ml"), *root.glob("tests/[!.]*/*.y*ml")]):
        found = None if path.parent.name in NO_PACKAGES else content_of(path)
        if found is not None and found.kind is FileKind.SCENARIO:
            return path.parent.relative_to(root).as_posix()
    return f"tests/{FOLDER}" if (root / "tests").is_dir() else None


def _first_scenario(
    checkout: Checkout, name: str | None, record: Callable[[str], str], notes: list[str], *, required: bool
) -> tuple[str | None, str]:
    """Return the recorded module and its scenario, or the example if there is no module."""
    try:
        if name is None:
            several = f"{checkout.root} has several packages, {', '.join(checkout.modules)}: name the one"
            none = f"no package was found in {checkout.root}: name the module"
            raise RequestError(f"{several if checkout.modules else none} that registers operators")
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
        yield f"  {file.action:<6}  {file.path:<{width}}  {file.what}"
    if plan.by_hand:
        yield plan.by_hand[0]
        yield from (f"  {line}" for line in plan.by_hand[1:])
    if plan.dependent is not None:
        yield f"The order of these registrations matters, so the test of {plan.dependent} fails until you decide:"
        yield f"  dispatchlab permute {plan.dependent}  # two orders that disagree, and why"
        yield f"  remove the cause and {plan.dependent}, and run dispatchlab init"
        yield "  or accept it: write `expect: order-dependent` into that file"
    yield "Next:"
    yield f"  pytest {plan.run}"
    if plan.module is not None:
        yield f"  dispatchlab check {plan.module}"
        yield f"  dispatchlab check {plan.module} --write-baseline FILE  # if it has findings that you accept"


def workflow(folder: str, module: str | None, *, sarif: bool, is_installed: bool = True) -> str:
    """Return the text of the workflow.

    Args:
        folder: the folder of the scenarios.
        module: the module to check; None for none.
        sarif: whether to upload the findings; then the workflow needs a permission.
        is_installed: whether to install the checkout.
    """
    text = files(__package__).joinpath("workflow.txt").read_text(encoding="utf-8")
    version = (installed_torch() or "").partition("+")[0]
    text = text.replace("REQUIREMENT", f"torch=={version}" if version.replace(".", "").isdigit() else "torch")
    text = text if is_installed else text.replace("pip install . ", "pip install ")
    if ".dev" in __version__:  # no index has this version
        text = text.replace(" dispatchlab pytest\n", " git+https://github.com/dispatchlab/dispatchlab pytest\n")
    head, github, uploads, tests = text.split("---\n")
    if sarif:
        head = head.replace("  contents: read\n", "  contents: read\n  security-events: write\n")
    check = "" if module is None else (uploads if sarif else github).replace("MODULE", module)
    return head + check + tests.replace("FOLDER", folder)
