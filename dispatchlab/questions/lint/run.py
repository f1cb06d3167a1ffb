"""Run rules on a registry, or on a source: load its registry at the moments that rules compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.installed_torch import model_for
from dispatchlab.questions.certify.certificate import OrderReason, pattern_of
from dispatchlab.questions.certify.certify_registry import certification_of
from dispatchlab.questions.certify.operator_neighbourhoods import patterns_with_stale_slots
from dispatchlab.questions.coverage.coverage_on_lab import Fill
from dispatchlab.questions.lint.provenance import OperatorCalls, calls_in
from dispatchlab.questions.lint.rule import Finding, Identity, LintReport, Rule, Subject
from dispatchlab.questions.sources.find_sources import (
    LIVE,
    chosen,
    is_scenario_source,
    recorded_from,
    report_renamed,
    report_unreadable,
)
from dispatchlab.questions.sources.replay_on_lab import for_registry
from dispatchlab.registries.debug_text import imported_packages, in_its_language, other_owner
from dispatchlab.registries.file import python_layer_of
from dispatchlab.registries.model import Recorded, RecordedOperator, registry_of
from dispatchlab.registries.overlay import Overlay
from dispatchlab.registries.ownership import ownership_of
from dispatchlab.scenario.load import load_scenario

if TYPE_CHECKING:
    from dispatchlab.live.introspection.registry_reader import RegistryMoments


class NothingToLintError(DispatchLabError):
    """No rule applies to any operator, so there is nothing to report.

    Args:
        source: the source.
        reason: a clause that says why there is nothing.
    """

    source: str
    reason: str

    template = "{source}: there is nothing to check: {reason}"


def lint(
    subject: Subject,
    rules: Sequence[Rule],
    *,
    source: str,
    base: Subject | None = None,
    operators: Sequence[RecordedOperator] | None = None,
    accepted: Collection[Identity] = (),
    imports: Sequence[str] = (),
    without_own: bool = False,
    must_differ: bool = False,
) -> LintReport:
    """Return the mistakes in a registry.

    Args:
        subject: the registry.
        rules: the rules to run.
        source: its name in output.
        base: the registry before; findings that it also has are left out, and operators that are equal in both.
        operators: the operators to lint; default: all.
        accepted: the identities of findings that a baseline accepts.
        imports: the packages to lint; registrations of other packages are left out.
        without_own: leave out the operators that only PyTorch has registered. A finding about such an operator
            stays if it is about a package, for example about its fallback.
        must_differ: the base is the registry before the imports, and the imports must register something.

    Raises:
        NothingToLintError: there is no operator, no rule can run, or the imports registered nothing.
        RegistryFileError: the registry is in a file that is damaged.
    """
    chosen = list(subject.recorded) if operators is None else list(operators)
    if not chosen and not subject.python and not (subject.earlier is not None and subject.earlier.names):
        raise NothingToLintError(source, "it has no operator")
    looked_at = chosen
    fallbacks = {one.key for one in subject.recorded.fallbacks}
    if base is not None and fallbacks == {one.key for one in base.recorded.fallbacks}:
        before = {str(operator.name): operator for operator in _of(base.recorded, [str(one.name) for one in chosen])}
        looked_at = [operator for operator in chosen if before.get(str(operator.name)) != operator]
    own: list[RecordedOperator] = []
    if without_own:
        ownership = ownership_of(subject.recorded)
        own = [operator for operator in looked_at if ownership.is_own_operator(operator)]
        left_out = {operator.name for operator in own}
        looked_at = [operator for operator in looked_at if operator.name not in left_out]
    names = None
    if operators is not None and not without_own:  # the caller names them
        names = {*(str(operator.name) for operator in chosen), *(one.operator for one in subject.python)}
    runnable = [rule for rule in rules if rule.can_run(subject)]
    if not runnable:
        raise NothingToLintError(
            source, "; ".join(f"{rule.code} {rule.name} cannot run: {rule.needs}" for rule in rules)
        )
    found = _run(subject, runnable, looked_at, names)
    if must_differ and not looked_at and not found:
        raise NothingToLintError(
            source,
            f"importing {', '.join(imports)} registers no operator and no kernel; name the module that registers, such "
            f"as {imports[0]}.ops",
        )
    known = 0
    if base is not None and found:
        concerned = _of(base.recorded, {finding.operator for finding in found})
        earlier = _run(base, [rule for rule in runnable if rule.can_run(base)], concerned, None)
        old = {(finding.identity, finding.owners) for finding in earlier}
        fresh = [finding for finding in found if (finding.identity, finding.owners) not in old]
        known, found = len(found) - len(fresh), fresh
    others: Counter[str] = Counter()
    if imports:
        packages = imported_packages(looked_at)
        others.update(other for one in found if (other := other_owner(one.owners, packages, imports)))
        found = [one for one in found if not other_owner(one.owners, packages, imports)]
    kept = [finding for finding in found if finding.identity not in accepted]
    identities = {finding.identity for finding in found}
    return LintReport(
        source,
        len(chosen),
        tuple(rule.code for rule in runnable),
        tuple(kept),
        known=known,
        own=len(own),
        others=dict(sorted(others.items())),
        accepted=len(found) - len(kept),
        outdated=tuple(sorted(set(accepted) - identities)),
        not_checked={rule.code: rule.needs for rule in rules if rule not in runnable},
    )


def _run(
    subject: Subject, rules: Sequence[Rule], operators: Sequence[RecordedOperator], names: Collection[str] | None
) -> list[Finding]:
    found = {
        Finding(
            rule.code,
            one.operator,
            one.key,
            one.message,
            one.owners,
            one.level or rule.level,
            one.cause,
            in_its_language(one.fix, one.owners, one.operator.partition("::")[0]),
        )
        for rule in rules
        for one in rule.check(subject, operators)
        if names is None or one.operator in names
    }
    return sorted(found, key=lambda finding: (finding.operator, finding.code, finding.identity, finding.message))


_FEW = 100


def _of(recorded: Recorded, names: Collection[str]) -> list[RecordedOperator]:
    """Return the existing operators with these names; a few operators are read one by one."""
    if len(names) <= _FEW:
        return [found for name in names if (found := recorded.operator(name)) is not None]
    wanted = frozenset(names)
    return [operator for operator in recorded if str(operator.name) in wanted]


def lint_source(
    source: str,
    rules: Sequence[Rule],
    *,
    operators: Sequence[str] = (),
    imports: Sequence[str] = (),
    against: str | None = None,
    accepted: Collection[Identity] = (),
    report: Callable[[str], None] | None = None,
    moments: RegistryMoments | None = None,
) -> LintReport:
    """Run rules on one source.

    Args:
        source: a registry, a scenario or `live`.
        rules: the rules to run.
        operators: names and globs; empty for all operators.
        imports: modules to import first, only for `live`; the findings are about these modules.
        against: a source whose findings are left out.
        accepted: the identities of findings that a baseline accepts.
        report: see `recorded_from`.
        moments: the moments of `live`, if they were already read.

    Raises:
        DispatchLabError: the source or an operator cannot be used.
    """
    base, recorded, earlier, calls = _moments(source, imports, against, report, moments)
    scenario = load_scenario(source) if is_scenario_source(source) else None
    if scenario is not None:
        calls = calls_in(scenario.registrations)
    looked_at: tuple[RecordedOperator, ...] | None = tuple(chosen(recorded, operators)) if operators else None
    if isinstance(recorded, Overlay):
        if base is None:  # what the registry beneath has is not of the packages
            base = recorded.beneath
            earlier = registry_of(base.torch, _of(base, recorded.over.names), base.fallbacks)  # no other one can go
        looked_at = looked_at or tuple(recorded.over)
        imports = recorded.over.imports  # the packages of the record, which may have imported others
    asked = {str(operator.name) for operator in looked_at} if looked_at is not None and operators else None
    listed = () if scenario is None else scenario.python
    python = tuple(one for one in listed if asked is None or one.operator in asked)
    beneath = python_layer_of(recorded.beneath) if python and isinstance(recorded, Overlay) else None
    return lint(
        replace(_subject(recorded, earlier, calls), python=python, beneath=beneath),
        rules,
        source=source,
        base=None if base is None else _subject(base, None),
        operators=looked_at,
        accepted=accepted,
        imports=imports if not operators else (),
        without_own=(bool(imports) or isinstance(recorded, Overlay)) and not operators,
        must_differ=bool(imports) and not operators and against is None,
    )


def _moments(
    source: str,
    imports: Sequence[str],
    against: str | None,
    report: Callable[[str], None] | None,
    found: RegistryMoments | None,
) -> tuple[Recorded | None, Recorded, Recorded | None, Mapping[str, OperatorCalls]]:
    """Return the former, present and expected state, and the calls that registered it.

    For `live`, these are the states before the imports, after garbage collection, and after the imports.
    """
    base = None if against is None else recorded_from(against, report=report)
    if source != LIVE:
        return base, recorded_from(source, imports=imports, report=report), base, {}
    if found is None:
        from dispatchlab.live.registry import live_moments

        found = live_moments(imports)
    report_unreadable(found.kept, report)
    report_renamed(found.kept.privateuse1, report)
    before = found.before if base is None and imports else base
    calls = {name: OperatorCalls(functions) for name, functions in found.functions.items()}
    return before, found.kept, found.after, calls


def _subject(recorded: Recorded, earlier: Recorded | None, calls: Mapping[str, OperatorCalls] | None = None) -> Subject:
    fill = Fill(for_registry(model_for(recorded.torch)), recorded.fallbacks)
    return Subject(recorded, fill, _Order(recorded), earlier, calls or {})


class _Order:
    """Certifies the operators whose order can matter under PyTorch's refreshes; it skips all others.

    The refreshes are those of the recorded PyTorch, or of the newest one for a scenario that names none.
    """

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded

    def __call__(self, operators: Sequence[RecordedOperator]) -> Mapping[str, tuple[OrderReason, ...]]:
        model = model_for(self._recorded.torch)
        patterns = patterns_with_stale_slots(for_registry(model), {pattern_of(operator) for operator in operators})
        concerned = [operator for operator in operators if pattern_of(operator) in patterns]
        if not concerned:
            return {}
        found = certification_of(self._recorded, name="", semantics=model, operators=concerned)
        return {certificate.operator: certificate.reasons for certificate in found.certificates}
