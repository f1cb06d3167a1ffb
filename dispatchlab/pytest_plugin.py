"""Scenarios are tests: name their folders in `dispatchlab_scenarios`, and pytest collects them.

    [pytest]
    dispatchlab_scenarios = scenarios

Each scenario is explored on the lab engine; its verdict has to be what it expects, and what it shows has to be what its
golden file holds, `expect/<same path>.txt`. `EXPECTTEST_ACCEPT=1 pytest` writes golden files, nothing else does. A
golden file without a scenario fails. Without the option this plugin does nothing and imports nothing.

Records of packages are tests, too: `dispatchlab_records` names files or folders of records, as `dispatchlab record`
writes them. Each is compared with what its packages register now, in a process of its own;
`EXPECTTEST_ACCEPT=1 pytest` records it again. Without PyTorch these tests are skipped.

A test that asks for the fixture `dispatcher_leaks` fails when it leaves registrations behind, on a lab dispatcher that
was there before or on the running PyTorch, and shows which; `dispatchlab_leaks = true` asks for it in every test.

`pytest --why` shows below a test that fails why it does, as `dispatchlab why` would: once for each cause.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from difflib import unified_diff
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dispatchlab.live.failure.program_watch import ProgramWatch
    from dispatchlab.questions.leaks import Watch

_SCENARIOS = "dispatchlab_scenarios"
_RECORDS = "dispatchlab_records"
_EXPECT = "dispatchlab_expect"
_ALLOW_IMPORT = "dispatchlab_allow_import"
_LEAKS = "dispatchlab_leaks"
_SUFFIXES = (".yaml", ".yml")
_MOST_LINES = 11
_OWNERS = pytest.StashKey[dict[Path, list[Path]]]()


class GoldenError(Exception):
    """The result of a scenario differs from its claim, or from its golden file."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    parser.getgroup("dispatchlab").addoption(
        "--why", action="store_true", help="show below a failing test why it fails"
    )
    parser.addini(_SCENARIOS, "folders whose scenarios dispatchlab collects as tests", type="paths", default=[])
    parser.addini(_RECORDS, "records of packages, and folders of them, that are checked", type="paths", default=[])
    parser.addini(_EXPECT, "folder of the golden files of dispatchlab's scenarios", default="expect")
    parser.addini(_ALLOW_IMPORT, "let scenarios name functions, which are imported", type="bool", default=False)
    parser.addini(_LEAKS, "fail every test that leaves registrations behind", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Also look into the folders of scenarios, when pytest uses its configured folders."""
    if config.getini(_LEAKS):
        config.pluginmanager.register(_EveryTest(), "dispatchlab-leaks")
    folders = _folders(config)
    for folder in folders:
        if not folder.is_dir():
            raise pytest.UsageError(f"{_SCENARIOS}: there is no folder {folder}")
    records = _records(config)
    for path in records:
        if not path.exists():
            raise pytest.UsageError(f"{_RECORDS}: there is no file or folder {path}")
    for option, paths in ((_SCENARIOS, folders), (_RECORDS, records)):
        for path in paths:
            if path.is_dir() and not _holds_yaml(path):
                raise pytest.UsageError(f"{option}: there is no scenario below {path}: nothing would be tested")
    folders = [*folders, *records]
    if not folders or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    looked_at = [(config.invocation_params.dir / arg).resolve() for arg in config.args]
    config.args += [
        str(folder) for folder in folders if not any(folder.resolve().is_relative_to(path) for path in looked_at)
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Watch registrations before any conftest.py imports torch."""
    if early_config.known_args_namespace.why or "DISPATCHLAB_WHY_EVENTS" in os.environ:
        from dispatchlab.live.failure.program_watch import STARTED, ProgramWatch
        from dispatchlab.live.failure.torch_watch import start

        watch = next(iter(STARTED), None) or ProgramWatch(str(early_config.invocation_params.dir))
        if watch not in STARTED:
            start(watch)
        early_config.pluginmanager.register(_Why(watch), "dispatchlab-why")


class _Why:
    """A hook that adds the reason to the report of a failing test."""

    def __init__(self, watch: ProgramWatch) -> None:
        self._watch = watch
        self._known: dict[tuple[str, str], str] = {}
        self._notes_calls = False

    def pytest_runtest_setup(self) -> None:
        """Forget the calls of earlier tests, and keep the inputs of operators once torch is there."""
        self._watch.forget_calls()
        if "torch" in sys.modules and not self._notes_calls:
            from dispatchlab.live.failure.torch_watch import note_calls

            self._notes_calls = True
            note_calls(self._watch)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Keep the inputs for `dispatchlab check`, for operators without inputs of their own."""
        if self._watch.calls and (cache := getattr(session.config, "cache", None)) is not None:
            from dispatchlab.live.failure.torch_watch import save_calls

            save_calls(self._watch, cache.mkdir("dispatchlab") / "inputs.pt")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Show the whole answer below the first test that fails for a cause; others name that test."""
        report = yield
        if report.failed and call.excinfo is not None and isinstance(call.excinfo.value, Exception):
            from dispatchlab.questions.why.answer_blocks import why_view
            from dispatchlab.questions.why.exception import why_exception

            answer = why_exception(call.excinfo.value, self._watch)
            self._watch.shown = self._watch.shown or call.excinfo.value
            first = self._known.setdefault((answer.code, answer.cause), item.nodeid)
            if answer.code:
                text = why_view(answer).text() if first == item.nodeid else f"{answer.cause} (see {first})"
                report.sections.append((f"dispatchlab why: {answer.code}", text))
        return report


@pytest.fixture
def dispatcher_leaks() -> Iterator[Watch]:
    """Fail a test that leaves registrations behind. Use it before the fixtures that register.

    Registrations from before the test may stay, also operators of `dispatcher_leaks.allow("my_package::*")`, and
    registrations that PyTorch makes when a part of it is first used, such as `torch.compile`.
    """
    from dispatchlab.questions.leaks import Watch, leaks_text

    watch = Watch()
    yield watch
    if found := watch.leaks():
        pytest.fail(leaks_text(found), pytrace=False)


class _EveryTest:
    """A fixture that adds `dispatcher_leaks` to every test, before its other fixtures."""

    @pytest.fixture(autouse=True)
    def _dispatchlab_leaks(self, dispatcher_leaks: Watch) -> None:
        """No further members."""


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Return the collector of a YAML file below one of the folders: a scenario, a record or both."""
    if file_path.suffix not in _SUFFIXES:
        return None
    folder = _folder_of(file_path, _folders(parent.config))
    record_folder = _folder_of(file_path, _records(parent.config))
    if folder is None and record_folder is None:
        return None
    from dispatchlab.scenario.folders import is_scenario_below

    if folder is not None and not is_scenario_below(file_path, folder):
        folder = None
    is_record = record_folder is not None and is_scenario_below(file_path, record_folder)
    if folder is None and not is_record:
        return None
    return ScenarioFile.from_parent(parent, path=file_path, folder=folder, is_record=is_record)


# Note [Folders that pytest leaves out]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# pytest does not look into folders called build, dist or venv, wherever they are, unless a project sets norecursedirs
# itself. Below a folder of scenarios such a name is a topic like any other: a scenario that no test runs looks like one
# that passes. So there these folders are collected, as `dispatchlab permute FOLDER` explores them; what a project
# leaves out on purpose, with norecursedirs or --ignore, stays out, and so do names that begin with a dot.


@pytest.hookimpl(wrapper=True)
def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> Generator[None, bool | None, bool | None]:
    """Look into every folder of scenarios. See Note [Folders that pytest leaves out]."""
    ignored = yield
    if ignored and _is_topic(collection_path, config):
        return None
    return ignored


_USUALLY_LEFT_OUT = ("*.egg", "_darcs", "build", "CVS", "dist", "node_modules", "venv", "{arch}")


def _is_topic(path: Path, config: pytest.Config) -> bool:
    """Return whether pytest ignores a folder of scenarios only because of its defaults."""
    folder = _folder_of(path, _folders(config))
    patterns = config.getini("norecursedirs")
    by_default = set(patterns).issuperset(_USUALLY_LEFT_OUT)
    if not by_default or any(fnmatchcase(path.name, each) for each in patterns if each not in _USUALLY_LEFT_OUT):
        return False
    if folder is None or not path.is_dir() or path.name == "__pycache__" or (path / "pyvenv.cfg").exists():
        return False
    asked = [Path(os.path.abspath(each)) for each in config.getoption("ignore") or ()]
    globs = [os.path.abspath(each) for each in config.getoption("ignore_glob") or ()]
    if path in asked or any(fnmatchcase(str(path), glob) for glob in globs):
        return False
    from dispatchlab.scenario.folders import is_left_out

    return not any(map(is_left_out, path.relative_to(folder).parts))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Check the first of the folders also for golden files without a scenario."""
    report = yield
    if isinstance(collector, pytest.Directory) and report.passed and collector.path in _folders(collector.config)[:1]:
        report.result += [
            OrphanItem.from_parent(collector, name=f"orphan {path.name}", golden=path)
            for path in sorted(_expect(collector.config).rglob("*.txt"))
            if path not in _owners(collector.config)
        ]
    return report


class ScenarioFile(pytest.File):
    """A scenario file: a test of the scenario, a test of the record, or both."""

    def __init__(self, *, folder: Path | None, is_record: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.folder, self.is_record = folder, is_record

    def collect(self) -> Iterator[pytest.Item]:
        """Return the items: the record first, since what is accepted there changes the scenario."""
        if self.is_record:
            yield RecordItem.from_parent(self, name="record", golden=self.path)
        if self.folder is not None:
            yield ScenarioItem.from_parent(self, name="permute", golden=_golden(self.path, self.folder, self.config))


class _Item(pytest.Item):
    """An item whose failures are texts and not tracebacks."""

    def __init__(self, *, golden: Path, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.golden = golden

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the text of the error, without a traceback."""
        from dispatchlab.errors import DispatchLabError

        if isinstance(excinfo.value, (GoldenError, DispatchLabError)):
            return str(excinfo.value).replace(str(self.path), self._shown(self.path))
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return its location."""
        return self.path, None, self._shown(self.path)

    def _shown(self, path: Path) -> str:
        try:
            return path.relative_to(self.config.rootpath).as_posix()
        except ValueError:
            return str(path)


class OrphanItem(_Item):
    """A golden file without a scenario, which fails."""

    def runtest(self) -> None:
        """Fail."""
        raise GoldenError(f"{self._shown(self.golden)} has no scenario: delete it, or put its scenario back")

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return its location."""
        return self.golden, None, self.name


class ScenarioItem(_Item):
    """A scenario to explore and to compare with its golden file."""

    def runtest(self) -> None:
        """Fail when the verdict is not as expected, or the golden file differs from the shown text."""
        from dataclasses import replace

        from dispatchlab.questions.order.blocks import failure_text
        from dispatchlab.questions.order.golden import golden
        from dispatchlab.scenario.load import load_scenario

        for other in _owners(self.config).get(self.golden, ()):
            if other != self.path:
                raise GoldenError(f"{self._shown(other)} has the same golden file: {self._shown(self.golden)}")
        scenario = load_scenario(self.path, allow_import=bool(self.config.getini(_ALLOW_IMPORT)))
        report, actual = golden(replace(scenario, file=self._shown(self.path)))
        if not report.as_expected:
            raise GoldenError(failure_text(report))
        self._compare(actual)

    def _compare(self, actual: str) -> None:
        if is_accepting():
            if not self.golden.exists() or _read(self.golden) != actual:
                from dispatchlab.files import write_file

                self.golden.parent.mkdir(parents=True, exist_ok=True)
                write_file(self.golden, actual)
            return
        shown = self._shown(self.golden)
        accept = "if this is right, accept it with: EXPECTTEST_ACCEPT=1 pytest"
        if not self.golden.exists():
            raise GoldenError(f"there is no golden file {shown}; {accept}")
        expected = _read(self.golden)
        if actual == expected:
            return
        before, after = expected.splitlines(), actual.splitlines()
        at = next((at for at, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), None)
        at = min(len(before), len(after)) if at is None else at
        old, new = (lines[at] if at < len(lines) else "(end)" for lines in (before, after))
        diff = list(unified_diff(before, after, shown, "now", lineterm="", n=1))
        more = len(diff) - _MOST_LINES
        shortened = [*diff[:_MOST_LINES], f"... and {more} more lines"] if more > 0 else diff
        head = f"{shown}:{at + 1} holds {old.strip()!r}, and now it is {new.strip()!r}"
        raise GoldenError("\n".join([head, *shortened, accept]))


def is_accepting() -> bool:
    """Return whether EXPECTTEST_ACCEPT is set to a text that means yes; where CI is set, to `in-ci`.

    Raises:
        GoldenError: it is set in CI, where a test that accepts every result would check nothing.
    """
    accept, ci = (os.environ.get(name, "").strip().casefold() for name in ("EXPECTTEST_ACCEPT", "CI"))
    if accept in _NO:
        return False
    if ci not in _NO and accept != _IN_CI:
        raise GoldenError(
            "EXPECTTEST_ACCEPT is set in CI, where it would hide every difference: unset it, or say "
            f"EXPECTTEST_ACCEPT={_IN_CI}"
        )
    return True


_NO = ("", "0", "false", "no", "off")
_IN_CI = "in-ci"


class RecordItem(_Item):
    """A comparison of a record with the present registrations of its packages."""

    def runtest(self) -> None:
        """Fail when the registrations differ; without PyTorch, skip."""
        from dispatchlab.live.bridge.torch import TorchBrokenError, TorchMissingError
        from dispatchlab.questions.record.blocks import check_view
        from dispatchlab.questions.record.check_record import check_record
        from dispatchlab.questions.setup.checkout import reachable

        try:
            with reachable(self.config.rootpath):
                found = check_record(str(self.path), name=self._shown(self.path))
        except TorchBrokenError:  # it is there, so nothing was checked that could be
            raise
        except TorchMissingError as error:
            pytest.skip(str(error))
        if found.is_same:
            return
        if is_accepting():
            from dispatchlab.files import MARK, FileKind, marked, write_file

            is_marked = MARK in _read(self.golden).partition("\n")[0]
            write_file(self.path, marked(found.text, FileKind.SCENARIO) if is_marked else found.text)
            return
        raise GoldenError(f"{check_view(found).text()}or accept it with: EXPECTTEST_ACCEPT=1 pytest")


def _read(path: Path) -> str:
    from dispatchlab.files import read_file
    from dispatchlab.scenario.load import MAX_BYTES

    try:
        content = read_file(path, limit=MAX_BYTES, what="golden files")
    except OSError as error:
        raise GoldenError(f"{path} cannot be read: {error.strerror or error}") from None
    return content.decode("utf-8", "replace").replace("\r\n", "\n")


# -- where things are


def _holds_yaml(folder: Path) -> bool:
    """Return whether a folder has a YAML file, which may be a scenario: collecting finds out."""
    from dispatchlab.scenario.folders import is_left_out

    for _, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not is_left_out(name)]
        if any(name.endswith(_SUFFIXES) and not is_left_out(name) for name in names):
            return True
    return False


def _folders(config: pytest.Config) -> list[Path]:
    return list(config.getini(_SCENARIOS))


def _records(config: pytest.Config) -> list[Path]:
    return list(config.getini(_RECORDS))


def _expect(config: pytest.Config) -> Path:
    inifile = config.inipath
    base = config.rootpath if inifile is None else inifile.parent
    return base / str(config.getini(_EXPECT))


def _folder_of(path: Path, folders: list[Path]) -> Path | None:
    """Return the innermost of the folders that a file is in; a file may be named itself."""
    around = [folder for folder in folders if path.is_relative_to(folder)]
    return max(around, key=lambda folder: len(folder.parts), default=None)


def _golden(path: Path, folder: Path, config: pytest.Config) -> Path:
    return (_expect(config) / path.relative_to(folder)).with_suffix(".txt")


def _owners(config: pytest.Config) -> dict[Path, list[Path]]:
    """Return the expected golden files with their scenarios; normally one scenario for each."""
    known = config.stash.get(_OWNERS, None)
    if known is not None:
        return known
    from dispatchlab.scenario.folders import scenarios_below

    folders = _folders(config)
    owners: dict[Path, list[Path]] = {}
    for folder in folders:
        for path in scenarios_below(folder).scenarios:
            if _folder_of(path, folders) == folder:
                owners.setdefault(_golden(path, folder, config), []).append(path)
    config.stash[_OWNERS] = owners
    return owners
