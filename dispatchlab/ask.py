"""The public functions that ask a question and give a `Result`: `check`, `lint`, `coverage`, ..."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dispatchlab.sources.find_sources import LIVE
from dispatchlab.views.view import View

if TYPE_CHECKING:
    from dispatchlab.pytorch.recording.record_package import PackageRecord
    from dispatchlab.questions.certify.certificate import Certification
    from dispatchlab.questions.check.report import CheckReport
    from dispatchlab.questions.lint.rule import LintReport
    from dispatchlab.records.backend_coverage import CoverageReport


_Report = TypeVar("_Report")


@dataclass(frozen=True, slots=True, repr=False)
class Result(Generic[_Report]):
    """The answer to a question: its report, and the whole text as `str`. Results of equal reports are equal.

    >>> from dispatchlab import lint
    >>> found = lint("scenarios/lint/dl012_found.yaml")
    >>> found
    <Result: scenarios/lint/dl012_found.yaml: 1 finding in 2 operators (1 error)>
    >>> found == lint("scenarios/lint/dl012_found.yaml"), found.report.exit_code
    (True, 1)

    Args:
        report: what was found.
    """

    report: _Report
    _summary: str = field(compare=False)
    _view: Callable[[], View[Any]] = field(compare=False)

    def __repr__(self) -> str:
        return f"<Result: {self._summary}>"

    def __str__(self) -> str:
        return self._view().text()

    def _repr_html_(self) -> str:
        """What a notebook shows: the summary, and the first details of each part."""
        return self._view().notebook()


def check(
    *packages: str,
    records: Iterable[str | os.PathLike[str]] = (),
    baseline: str | os.PathLike[str] | None = None,
) -> Result[CheckReport]:
    """Ask every question about packages: order, lint, upgrade, drift from a record.

    The packages are imported in processes of their own.

    >>> from dispatchlab import check
    >>> check("my_package")  # doctest: +SKIP
    <Result: my_package: 1 error, 3 warnings, 1 information>

    Args:
        packages: the modules, imported in this order.
        records: the files of their records.
        baseline: the file of the findings that are accepted.

    Raises:
        ImportFailedError: a package cannot be imported.
        DispatchLabError: PyTorch, a record or the baseline cannot be used.
    """
    from dispatchlab.questions.check.blocks import check_view, summary
    from dispatchlab.questions.check.check_packages import check_packages
    from dispatchlab.questions.lint.baseline import load_baseline

    accepted = () if baseline is None else load_baseline(os.fspath(baseline))
    _named("check", packages)
    found = check_packages(packages, records=[os.fspath(one) for one in records], accepted=accepted)
    return Result(found, summary(found), lambda: check_view(found))


def lint(
    source: str | os.PathLike[str] = LIVE,
    *,
    package: str | None = None,
    operators: Iterable[str] = (),
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
) -> Result[LintReport]:
    """Find likely mistakes in registrations.

    >>> from dispatchlab import lint
    >>> lint("scenarios/lint/dl012_found.yaml", select=["DL001"])
    <Result: scenarios/lint/dl012_found.yaml: 0 findings in 2 operators>
    >>> lint(package="my_package")  # doctest: +SKIP
    <Result: live: 2 findings in 3,599 operators (1 warning, 1 information)>

    Args:
        source: a scenario, a recorded registry, the name of a bundled one, or `live`, the installed PyTorch.
        package: a package to import first, into `live`; only what it adds is reported.
        operators: names and globs of operators; all of them when there are none.
        select: the rules that are checked, by code or name; all of them when there are none.
        ignore: rules that are not.

    Raises:
        DispatchLabError: the source cannot be used, or there is no such rule or operator.
    """
    from dispatchlab.questions.lint.blocks import lint_view, summary
    from dispatchlab.questions.lint.rules import selected
    from dispatchlab.questions.lint.run import lint_source

    rules = selected(tuple(select), tuple(ignore))
    found = lint_source(os.fspath(source), rules, operators=tuple(operators), imports=_imports(package))
    return Result(found, summary(found), lambda: lint_view([found]))


def coverage(
    key: str,
    *,
    of: str | os.PathLike[str] | None = None,
    package: str | None = None,
    operators: Iterable[str] = (),
    what_if: Sequence[str] = (),
) -> Result[CoverageReport]:
    """Find out which operators a backend can run, and how.

    >>> from dispatchlab import coverage
    >>> coverage("PrivateUse1", of="torch-2.13-cpu", operators=["aten::relu"])
    <Result: PrivateUse1 in torch-2.13-cpu: 1 operator>

    Args:
        key: the runtime key of the backend.
        of: a scenario, a recorded registry, the name of a bundled one, or `live`; when left out, the bundled registry
            of the installed PyTorch, or else the newest.
        package: a package to import first, into `live`.
        operators: names and globs of operators; all of them when there are none.
        what_if: registrations, `impl OP KEY` or `fallback KEY`, whose effects are shown, each after those before it.

    Raises:
        DispatchLabError: the source cannot be used, or there is no such key or operator.
    """
    from dispatchlab.questions.coverage.blocks import coverage_view
    from dispatchlab.questions.coverage.coverage_on_lab import coverage_report
    from dispatchlab.records.backend_coverage import runtime_key
    from dispatchlab.records.builds import default_registry
    from dispatchlab.sources.find_sources import chosen, recorded_from
    from dispatchlab.views.formatting import counted

    source = os.fspath(of) if of is not None else LIVE if package else default_registry([key]).name
    recorded = recorded_from(source, imports=_imports(package))
    asked = tuple(chosen(recorded, tuple(operators)))
    row = runtime_key(key, privateuse1=recorded.privateuse1)
    found = coverage_report(recorded, row, name=source, operators=asked, what_if=tuple(what_if))
    summary = f"{row} in {source}: {counted(len(asked), 'operator')}"
    return Result(found, summary, lambda: coverage_view(found, torch=recorded.torch))


def certify(
    registry: str | os.PathLike[str] | None = None,
    *,
    package: str | None = None,
    operators: Iterable[str] = (),
    semantics: str | None = None,
    jobs: int = 1,
) -> Result[Certification]:
    """Prove for every operator of a registry that the order of its registrations does not matter.

    >>> from dispatchlab import certify
    >>> certify("torch-2.13", operators=["aten::relu"])
    <Result: torch-2.13: 1 of 1 operator order-independent>

    Args:
        registry: a scenario, a recorded registry, the name of a bundled one, or `live`; when left out, the bundled
            registry of the installed PyTorch, or else the newest.
        package: a package to import first, into `live`.
        operators: names and globs of operators; those that are not as in the bundled registry of their PyTorch when
            there are none.
        semantics: the dispatcher; that of the PyTorch of the registry when left out.
        jobs: how many processes to use.

    Raises:
        DispatchLabError: the registry cannot be used, or there is no such operator.
    """
    from dispatchlab.questions.certify.blocks import certification_view
    from dispatchlab.questions.certify.certificate import Certified
    from dispatchlab.questions.certify.certify_registry import certification_of_own
    from dispatchlab.records.builds import default_registry
    from dispatchlab.sources.find_sources import recorded_from
    from dispatchlab.views.formatting import counted

    name = os.fspath(registry) if registry is not None else LIVE if package else default_registry().name
    recorded = recorded_from(name, imports=_imports(package))
    found = certification_of_own(recorded, name, operators=tuple(operators), semantics=semantics, jobs=jobs)
    proved = sum(certificate.verdict is Certified.ORDER_INDEPENDENT for certificate in found.certificates)
    summary = f"{name}: {proved:,} of {counted(len(found.certificates), 'operator')} order-independent"
    return Result(found, summary, lambda: certification_view(found, torch=recorded.torch))


def record(*packages: str) -> Result[PackageRecord]:
    """Record what importing packages registers; `str` is the scenario, as `dispatchlab record` writes it.

    >>> from dispatchlab import record
    >>> record("my_package")  # doctest: +SKIP
    <Result: my_package: 7 registrations>

    Args:
        packages: the modules, imported in this order.

    Raises:
        DispatchLabError: PyTorch or a package cannot be imported.
    """
    from dispatchlab.sources.recorded_packages import recorded_packages
    from dispatchlab.views.blocks import Code
    from dispatchlab.views.formatting import counted

    _named("record", packages)
    found = recorded_packages(packages)
    summary = f"{' and '.join(packages)}: {counted(found.registrations, 'registration')}"
    return Result(found, summary, lambda: View(found, lines=lambda one: (Code(one.text),)))


def _named(function: str, packages: Sequence[str]) -> None:
    from dispatchlab.api import CheckOptionError

    if not packages:
        raise CheckOptionError("packages", packages, f"expected the name of a package: {function}('my_package')")


def _imports(package: str | None) -> tuple[str, ...]:
    return () if package is None else (package,)
