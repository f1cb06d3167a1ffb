"""The subject of `check`: the packages of the checkout with its settings, or named packages."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from dispatchlab.errors import RequestError
from dispatchlab.files import module_spec
from dispatchlab.questions.check.configuration import Settings, settings_of
from dispatchlab.questions.check.report import Question
from dispatchlab.questions.setup.checkout import find_checkout, module_at
from dispatchlab.questions.setup.pytest_option import RECORDS, PytestConfigError, folders_of, pytest_configuration
from dispatchlab.questions.sources.find_sources import is_registry_source, is_scenario_source


class CheckSubject(NamedTuple):
    """The subject of a check.

    Args:
        packages: the modules.
        sources: the scenarios and registries; only lint is asked about them.
        records: the files of their records, relative to the current folder.
        fails: the questions whose findings fail the check.
        baseline: the file of accepted findings; None without one.
        settings: the rules in the settings of the project; they do not apply to other packages.
    """

    packages: tuple[str, ...]
    sources: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    fails: tuple[Question, ...] = tuple(Question)
    baseline: str | None = None
    settings: Settings = Settings()


def check_subject(packages: Sequence[str], *, report: Callable[[str], None]) -> CheckSubject:
    """Return the packages of the checkout around this folder; afterwards, their modules can be imported.

    Args:
        packages: the modules, paths to them, or scenarios and registries. If empty: the modules of the settings, or
            the module with the name of the project, if any.
        report: a function that gets a sentence about modules that are not installed.

    Raises:
        RequestError: no module was named, and there are several; or some are modules and some are not.
        SettingsError: the settings cannot be read.
    """
    packages = () if list(packages) == ["."] else packages
    sources = tuple(name for name in packages if is_registry_source(name) or is_scenario_source(name))
    at = {one: found for one in packages if one not in sources and (found := module_at(one)) is not None}
    sys.path[:0] = [
        folder for folder in dict.fromkeys(str(folder) for _, folder in at.values()) if folder not in sys.path
    ]
    packages = tuple(at[one][0] if one in at else one for one in packages)
    checkout = find_checkout(Path.cwd())
    settings = settings_of(checkout.root)
    named = tuple(packages) or settings.packages or (checkout.modules[:1] if checkout.certain else ())
    if sources and len(sources) < len(packages):
        raise RequestError(f"{sources[0]} is not a package, so only lint can be asked: check it alone")
    if sources or not (named or checkout.modules):
        return CheckSubject((), sources, baseline=settings.baseline, settings=settings)
    if not named:
        several = f"{checkout.root} has several packages, {', '.join(checkout.modules)}"
        settings_line = 'the modules in [tool.dispatchlab] of pyproject.toml: packages = ["my_package"]'
        raise RequestError(f"{several}: name the module that registers operators, or {settings_line}")
    beside = [name for name in named if module_spec(name.partition(".")[0]) is None and Path(f"{name}.py").is_file()]
    if beside:
        sys.path.append(str(Path.cwd()))
        report(f"note: {' and '.join(beside)} not installed, so imported from {Path.cwd()}")
    own = {name.partition(".")[0] for name in (*checkout.modules, *settings.packages)}
    if not {name.partition(".")[0] for name in named} <= own:
        return CheckSubject(named)
    if missing := [name for name in named if module_spec(name.partition(".")[0]) is None]:
        sys.path.append(str(checkout.source))
        report(f"note: {' and '.join(missing)} not installed, so imported from {checkout.source}")
    fails = tuple(Question) if settings.fail is None else settings.fail
    records = tuple(map(os.path.relpath, settings.record or _records_of_pytest(checkout.root)))
    return CheckSubject(named, (), records, fails, settings.baseline, settings)


def _records_of_pytest(root: Path) -> tuple[str, ...]:
    """Return the records that pytest compares with the registrations."""
    try:
        values = pytest_configuration(root).options
    except PytestConfigError:  # it is pytest that says what is wrong with it
        return ()
    return tuple(str(root / one) for one in folders_of(values.get(RECORDS, [])))
