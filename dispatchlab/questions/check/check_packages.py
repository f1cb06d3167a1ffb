"""Import packages once, in a new process, and answer every question about their registrations."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dispatchlab.errors import DispatchLabError, UnknownOperatorError
from dispatchlab.live.bridge.torch import ImportEndedError, ImportFailedError, ImportTimeoutError
from dispatchlab.model.failure import Raised
from dispatchlab.model.names import find_names
from dispatchlab.model.trial_run import TrialRun
from dispatchlab.questions.check.findings import drift_findings, import_findings, upgrade_findings
from dispatchlab.questions.check.registering_modules import registering_modules
from dispatchlab.questions.check.report import Answer, CheckReport, Question
from dispatchlab.questions.check.selection import EVERYTHING, Selection
from dispatchlab.questions.check.trials import (
    Run,
    TrialProcess,
    TrialRequest,
    TrialsFailedError,
    trial_process,
    trials_answer,
)
from dispatchlab.questions.imports.import_orders import (
    COMPARED,
    MOST_ORDERS,
    compare_import_orders,
)
from dispatchlab.questions.lint.rule import Identity, cause_counts
from dispatchlab.questions.lint.rules import RULES
from dispatchlab.questions.lint.run import NothingToLintError, lint_source
from dispatchlab.questions.record.check_record import compare_with_record
from dispatchlab.questions.sources.find_sources import LIVE
from dispatchlab.questions.upgrade.package_changes import package_upgrade
from dispatchlab.questions.upgrade.slot_models import models_of
from dispatchlab.questions.why.diagnose import diagnose
from dispatchlab.questions.why.pasted_traceback import RecordedFacts, failure_of_text
from dispatchlab.registries.file import bundled_names, newest_bundled, open_bundled
from dispatchlab.registries.model import SLOTS_UNREADABLE
from dispatchlab.scenario.load import load_scenario, parse_scenario
from dispatchlab.scenario.scenario import operators_in
from dispatchlab.views.formatting import counted, first_of

if TYPE_CHECKING:
    from dispatchlab.live.recording.package_facts import PackageFacts
    from dispatchlab.scenario.scenario import Scenario

_ORDERS_S = 3.0
_TRIALS_LIMIT_S = 120.0
_GONE = ("WHY102", "WHY233")
_WHOLE_LIMIT_S = 3600.0


def check_packages(
    packages: Sequence[str],
    *,
    records: Sequence[str] = (),
    fails: Collection[Question] = tuple(Question),
    accepted: Collection[Identity] = (),
    questions: Collection[Question] = tuple(Question),
    selection: Selection = EVERYTHING,
    inputs: str = "",
    whole: bool = False,
    submodules: bool = True,
    stage: Callable[[str], None] = lambda _: None,
) -> CheckReport:
    """Answer every question about packages.

    Args:
        packages: the modules, imported in this order.
        records: the files of their records; records of other packages are ignored.
        fails: the questions whose findings fail the check.
        accepted: the identities of findings that a baseline accepts.
        questions: the questions to answer.
        selection: the findings to show.
        inputs: a file of inputs for the trials; empty for generated inputs.
        whole: also run the trials that need a compiler.
        submodules: also import the modules of the packages that register operators.
        stage: a function that gets the name of each stage.

    Raises:
        ImportFailedError: a package cannot be imported.
        DispatchLabError: PyTorch or a record cannot be used.
    """
    named = tuple(packages)
    more = (each for one in named for each in registering_modules(one)) if submodules else ()
    later = tuple(each for each in dict.fromkeys(more) if each not in named)
    before = {file: load_scenario(file) for file in records}
    ended = list[str]()
    while True:
        stage(f"starting PyTorch and importing {' and '.join(named)}")
        try:
            request = TrialRequest(
                named,
                tuple(sys.path),
                inputs,
                whole,
                submodules=later,
                operators=selection.operators,
                trials=Question.TRIALS in questions,
                orders=Question.ORDER in questions,
            )
            report = _checked(request, before, fails, stage, questions)
            break
        except (ImportEndedError, ImportTimeoutError) as error:
            if error.module not in later:
                raise
            later = tuple(each for each in later if each != error.module)
            ended.append(str(error))
    codes = {finding.code for finding in report.findings}
    if codes.intersection(_GONE) or (codes and len(report.nothing) == len(named)):
        report = replace(report, nothing=())  # it registered what is gone or replaced
    return _without_accepted(replace(report, notes=(*report.notes, *ended)), accepted, selection)


def _checked(
    request: TrialRequest,
    before: dict[str, Scenario],
    fails: Collection[Question],
    stage: Callable[[str], None],
    questions: Collection[Question],
) -> CheckReport:
    """Return the report of one import of packages and some of their modules."""
    named = request.packages
    with trial_process(request) as trials:
        report = _asked(request, before, fails, stage, trials, questions)
        if not request.trials or any(answer.question is Question.TRIALS for answer in report.answers):
            return report
        stage(f"running operators of {' and '.join(named)}")
        try:
            limit_s = _WHOLE_LIMIT_S if request.whole else _TRIALS_LIMIT_S
            reported = {(finding.code, finding.operator) for finding in report.findings}
            found = trials.runs(limit_s)
            return _answered(report, trials_answer(found, named, whole=request.whole, reported=reported))
        except TrialsFailedError as error:
            if request.inputs:
                raise
            return _not_asked(report, Question.TRIALS, error)


def _asked(
    request: TrialRequest,
    before: dict[str, Scenario],
    fails: Collection[Question],
    stage: Callable[[str], None],
    trials: TrialProcess,
    questions: Collection[Question],
) -> CheckReport:
    """Return the report with the answers of all questions but the trials."""
    named = request.packages
    try:
        facts = trials.facts()
    except ImportFailedError as error:
        if not request.trials or error.module not in named:
            raise
        return _failed_import(named, fails, trials, error)
    scenario = parse_scenario(facts.record.text, file=" ".join(named))
    names = tuple(map(str, operators_in(scenario)))
    for asked in request.operators:
        if not find_names(names, asked):
            raise UnknownOperatorError(asked, names, " and ".join(named))
    nothing = facts.record.idle(named)
    report = CheckReport(
        named,
        facts.record.torch,
        _registered(facts, named),
        nothing,
        (),
        tuple(one for one in Question if one in fails),
        notes=(
            *([f"imported after {' and '.join(named)}: {', '.join(facts.later)}"] if facts.later else []),
            *(f"not imported: {module}: {reason}" for module, reason in facts.failed.items()),
            *(f"left out: {each}" for each in dict.fromkeys(facts.record.unreadable)),
            *(each for each in facts.moments.kept.unreadable if each == SLOTS_UNREADABLE),
        ),
        later=tuple(facts.later),
        failed=tuple(facts.failed),
    )
    if len(nothing) == len(named):  # a def without a reference is gone by now, and lint knows
        lint, *_ = _lint(report, facts, scenario).answers
        if not lint.findings:
            lint = Answer(Question.LINT, _NOTHING, asked=False)
        others = (Question.ORDER, Question.UPGRADE, Question.DRIFT)
        answers = (lint, *(Answer(one, _NOTHING, asked=False) for one in others))
        return replace(report, answers=tuple(answer for answer in answers if answer.question in questions))
    order = partial(_order, trials=trials, enough_s=_ORDERS_S if len(questions) > 1 else math.inf)
    for ask, question in ((order, Question.ORDER), (_lint, Question.LINT), (_upgrade, Question.UPGRADE)):
        if question in questions:
            stage(f"asking about {question} of {' and '.join(named)}")
            report = ask(report, facts, scenario)
    return _drift(report, facts, before) if Question.DRIFT in questions else report


def _failed_import(
    named: tuple[str, ...], fails: Collection[Question], trials: TrialProcess, error: ImportFailedError
) -> CheckReport:
    """Return the report of packages that cannot be imported, if the cause is known.

    Raises:
        ImportFailedError: the cause is unknown.
    """
    run = TrialRun(
        operator=error.module, trial="import", status="failed", raised=(Raised("RuntimeError", error.reason),)
    )
    found: list[Run] = []
    if isinstance(error, ImportEndedError):
        found = [(run, diagnose(failure_of_text(error.reason, RecordedFacts(open_bundled(newest_bundled())))))]
    else:
        with suppress(TrialsFailedError):
            found = trials.runs(_TRIALS_LIMIT_S)
    known = [one for one in found if one[0].trial == "import" and one[1] is not None and one[1].dispatcher]
    if not known:
        raise error
    others = [Answer(one, "an import fails", asked=False) for one in Question if one is not Question.TRIALS]
    registered = str(error).partition(chr(10))[0]
    answers = (*others, trials_answer(known, named, whole=False))
    return CheckReport(named, "", registered, (), answers, tuple(one for one in Question if one in fails))


_NOTHING = "nothing is registered"


def _without_accepted(report: CheckReport, accepted: Collection[Identity], selection: Selection) -> CheckReport:
    """Return the report with only the findings that are selected and that no baseline accepts."""
    answers = sorted(report.answers, key=lambda answer: list(Question).index(answer.question))
    count = len(report.findings)
    answers = [replace(answer, findings=selection.kept(answer.findings)) for answer in answers]
    if ignored := count - sum(len(answer.findings) for answer in answers):
        report = replace(report, notes=(*report.notes, f"{counted(ignored, 'finding')} not selected or ignored"))
    found = {finding.identity for answer in answers for finding in answer.findings}
    kept = [
        replace(answer, findings=tuple(each for each in answer.findings if each.identity not in accepted))
        for answer in answers
    ]
    count = sum(len(answer.findings) for answer in answers) - sum(len(answer.findings) for answer in kept)
    kept = [
        replace(answer, text=cause_counts(answer.findings) or "no likely mistake")
        if answer.asked and answer.question is Question.LINT
        else answer
        for answer in kept
    ]
    return replace(report, answers=tuple(kept), accepted=count, outdated=tuple(sorted({*accepted} - found)))


def _registered(facts: PackageFacts, packages: Sequence[str]) -> str:
    record = facts.record
    if not record.registrations:
        entries = counted(len(record.in_python), "entry", "entries")
        return f"{entries} of registries in Python, nothing with the dispatcher" if record.in_python else "nothing"
    by = (
        f"made by {counted(len(record.sites), 'line')} of Python"
        if not record.native
        else (f"{record.native:,} of them in C++" if record.native < record.registrations else "all in C++")
    )
    tops = {name.partition(".")[0] for name in packages}
    others = [name for _, name in record.origins if name not in tops]
    whose = " and ".join(sorted({*others}))
    along = f"; the import of {whose} made {len(others):,} of the {record.registrations:,} registrations"
    kernels = f"{counted(record.operators, 'operator')} and {counted(record.kernels, 'kernel')}"
    return f"{kernels}, {by}{along * bool(others)}"


def _answered(report: CheckReport, answer: Answer) -> CheckReport:
    return replace(report, answers=(*report.answers, answer))


def _not_asked(report: CheckReport, question: Question, why: object) -> CheckReport:
    first = next(iter(str(why).splitlines()), "")
    return _answered(report, Answer(question, first, asked=False))


def _order(
    report: CheckReport, facts: PackageFacts, scenario: Scenario, *, trials: TrialProcess, enough_s: float
) -> CheckReport:
    registering = tuple(one for one in facts.record.registering if one not in facts.failed)
    later = tuple(one for one in facts.later if one in registering)
    named = tuple(one for one in report.packages if not any(each.startswith(f"{one}.") for each in later))
    whole = [one for one in report.packages if one not in named]
    first = tuple(whole) if len(report.packages) == 1 else ()
    imports = compare_import_orders(
        (*named, *later),
        registering=registering,
        along=facts.along,
        first=first,
        needed=report.packages,
        enough_s=enough_s,
        prepared=trials.orders,
    )
    what = [one.what for one in imports.differences]
    if facts.failed and (after := [one.removeprefix("import of ") for one in what if one.startswith("import of ")]):
        modules = first_of(sorted({*after}), 3)
        return _not_asked(report, Question.ORDER, f"only after other imports failed, these succeed: {modules}")
    notes = (f"compared: {COMPARED}",) if imports.orders else ()
    if imports.not_run:
        command = f": dispatchlab check {' '.join(report.packages)} --only order"
        notes = (f"{imports.not_run}{command * (len(imports.orders) < MOST_ORDERS)}", *notes)
    reading = "".join(f" {one.what}" for one in imports.differences)
    report = replace(report, nothing=tuple(one for one in report.nothing if f"variable {one}." not in reading))
    text = imports.text.removeprefix("not asked: ")
    if text == "one module registers" and facts.failed:
        text += f", because the import of {first_of(sorted(facts.failed), 3)} failed"
    answer = Answer(Question.ORDER, text, tuple(import_findings(imports)), notes, asked=bool(imports.orders))
    return _answered(report, answer)


def _lint(report: CheckReport, facts: PackageFacts, scenario: Scenario) -> CheckReport:
    try:
        found = lint_source(LIVE, RULES, imports=report.packages, moments=facts.moments)
    except NothingToLintError:
        return _not_asked(report, Question.LINT, "nothing is registered with the dispatcher")
    except DispatchLabError as error:
        return _not_asked(report, Question.LINT, error)
    ordered = {finding.operator for answer in report.answers for finding in answer.findings}
    findings = [one for one in found.findings if one.code != "DL009" or one.operator not in ordered]
    foreign = facts.record.foreign(report.packages)
    others = Counter(found.others) + Counter(foreign[one.operator] for one in findings if one.operator in foreign)
    findings = [one for one in findings if one.operator not in foreign]
    notes = [
        f"{counted(count, 'finding')} about operators of {package} left out: check {package}"
        for package, count in sorted(others.items())
    ]
    notes += [f"{code} was not checked: {why}" for code, why in found.not_checked.items()]
    return _answered(report, Answer(Question.LINT, "", tuple(findings), tuple(notes)))


def _upgrade(report: CheckReport, facts: PackageFacts, scenario: Scenario) -> CheckReport:
    installed, newest = facts.record.registry, newest_bundled()
    if installed is None or installed not in bundled_names():
        why = f"no registry of PyTorch {report.torch} comes with dispatchlab, so there is nothing to compare"
        return _not_asked(report, Question.UPGRADE, why)
    installed = installed.removesuffix("-cpu")  # or every kernel for CUDA would be new
    if installed == newest:
        return _not_asked(report, Question.UPGRADE, f"{newest} is installed, and the newest that dispatchlab knows")
    if not scenario.registrations:
        return _not_asked(report, Question.UPGRADE, "nothing is registered with the dispatcher")
    before, after = open_bundled(installed), open_bundled(newest)
    try:
        found = package_upgrade(before, after, models_of(before.torch, after.torch), scenario)
    except DispatchLabError as error:
        return _not_asked(report, Question.UPGRADE, error)
    findings = tuple(upgrade_findings(found, scenario, to=newest))
    changes = f"{counted(len(findings), 'change')} from {installed} to {newest}"
    text = changes if found.is_affected else f"{newest} accepts the same, and runs the same kernels"
    return _answered(report, Answer(Question.UPGRADE, text, findings))


def _drift(report: CheckReport, facts: PackageFacts, records: dict[str, Scenario]) -> CheckReport:
    fitting = {file: one for file, one in records.items() if set(one.packages) == set(report.packages)}
    others = tuple(
        f"{file} is a record of {' and '.join(one.packages) or 'nothing'}, and not compared"
        for file, one in records.items()
        if file not in fitting
    )
    if not fitting:
        how = f"dispatchlab record {' '.join(report.packages)} -o {report.packages[0]}.yaml"
        return _answered(
            report, Answer(Question.DRIFT, f"there is no record of it; to keep one: {how}", asked=False, notes=others)
        )
    checks = tuple(compare_with_record(file, one, facts.record, report.packages) for file, one in fitting.items())
    findings = tuple(finding for found in checks for finding in drift_findings(found))
    text = "; ".join(
        f"the same as in {found.file}"
        if found.is_same
        else f"{counted(len(found.changes), 'change')} since {found.file} was recorded"
        for found in checks
    )
    return _answered(report, Answer(Question.DRIFT, text, findings, others))
