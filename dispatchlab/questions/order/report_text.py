"""The plain text of a report. This is the contract: golden files hold it, programs may diff it.

Every view shows the same facts; nothing is only in colours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dispatchlab.model.sequence import Step, StepSequence, format_sequence
from dispatchlab.prover.result import Conflict, Counterexample, Exploration, Flaw, Verdict
from dispatchlab.questions.order.report import Report
from dispatchlab.views.blocks import Block, Code, Difference, Line
from dispatchlab.views.formatting import readable, seconds

FLAWS = {
    Flaw.NON_COMMUTING: "two orders of the same registrations lead to different states",
    Flaw.UNDO: "a release left something behind",
    Flaw.RESIDUE: "a refusal left something behind",
    Flaw.OUTCOME: "the outcome of a registration depends on the order",
    Flaw.ASYMMETRY: "whether a set is accepted depends on the last registration",
    Flaw.INVARIANT: "every sequence to this set breaks an invariant",
    Flaw.RELEASE: "a release failed",
    Flaw.CRASH: "the engine crashed",
    Flaw.NONDETERMINISTIC: "the same sequence gave two results",
}
"""What each flaw means, in a sentence."""


def conflict_text(conflict: Conflict, found: Exploration) -> str:
    """Who excludes whom, and what the engine says to it; whoever is refused alone may be accepted after others."""
    members = [str(member) for member in conflict.members]
    if len(members) == 1:
        always = conflict.members[0] in found.never_accepted or not _is_done(found)
        who = f"{members[0]} is always refused" if always else f"{members[0]} is refused unless others come before it"
    elif len(members) == 2:
        who = f"{members[0]} and {members[1]} exclude one another"
    else:
        who = f"{', '.join(members[:-1])} and {members[-1]} exclude one another"
    blame = "; the last registration decides the error" if conflict.asymmetric else ""
    return f"{who} ({conflict.kind}{blame}): {conflict.message}"


def _is_done(found: Exploration) -> bool:
    """Whether every registration was tried wherever it can be."""
    return found.verdict in (Verdict.ORDER_INDEPENDENT, Verdict.NO_VIOLATION_FOUND)


def step_text(step: Step, registrations: Sequence[str]) -> str:
    """A step and what it registers or releases: `+1 impl test::foo CPU (fn_cpu)`."""
    index = ~step if step < 0 else step
    return f"{'-' if step < 0 else '+'}{index} {registrations[index]}"


def reasons(counterexample: Counterexample) -> tuple[str, ...]:
    """Return why the two sequences disagree: what the engine knows, or else what is seen after one of them alone."""
    if counterexample.why:
        return counterexample.why
    if counterexample.flaw in (Flaw.OUTCOME, Flaw.ASYMMETRY, Flaw.RELEASE):
        return ("see the engine's error",)
    lines = [line for line in counterexample.diff.splitlines() if not line.startswith(("---", "+++"))]
    came = [line[1:].replace(": stale slot:", ":") for line in lines if line.startswith("+")]
    went = [line[1:] for line in lines if line.startswith("-")]
    if counterexample.flaw is Flaw.INVARIANT and came:
        return tuple(came)
    if came or went:
        return (
            f"seen after one: {went[0] if went else 'nothing'}",
            f"after the other: {came[0] if came else 'nothing'}",
        )
    return (FLAWS[counterexample.flaw],)


def counts(found: Exploration) -> Iterator[tuple[str, str]]:
    """How much was done, as titled numbers."""
    yield "sets", f"{found.sets:,}"
    yield "states", f"{found.states:,}"
    yield "edges", f"{found.edges:,}"
    yield "orders", readable(found.orders)
    if found.modules is not None:
        yield "modules", f"{found.modules:,}"
    if found.components > 1:
        patterns = "pattern" if found.classes == 1 else "patterns"
        classes = f" of {found.classes:,} {patterns}" if found.classes != found.components else ""
        yield "components", f"{found.components:,}{classes}"
    if found.seed is not None:
        yield "seed", str(found.seed)
    if found.passes is not None:
        yield "passes", f"{found.passes:,}"


def reductions_text(found: Exploration) -> str:
    """By what less was walked than every state of the whole: `partition, neighbourhoods (17)`."""
    names = [f"{one} ({found.neighbourhoods:,})" if one == "neighbourhoods" else one for one in found.reductions]
    return ", ".join(names) or "none"


def never_accepted_text(found: Exploration, registrations: Sequence[str]) -> tuple[str, ...]:
    """The registrations that were accepted nowhere, one a line."""
    return tuple(f"{index} {registrations[index]}" for index in found.never_accepted)


def report_lines(report: Report) -> Iterator[Block]:
    """Everything about one run: the request, the findings, and the time."""
    found = report.exploration
    if report.scenario:
        yield Line(f"scenario: {report.scenario}")
    yield Line(f"claim: {report.claim}")
    yield Line(f"engine: {report.engine}, {report.semantics}")
    yield Line(f"registrations: {found.registrations:,}")
    yield Line(f"expected: {report.expected}")
    yield from findings(found, report)
    for note in found.notes:
        first, *more = note.splitlines()
        yield Line(f"note: {first}")
        yield Code("\n".join(more), indent=2)
    yield Line(f"walk: {found.walk}")
    if found.walk == "graph":
        yield Line(f"reductions: {reductions_text(found)}")
    yield Line(f"elapsed: {seconds(found.elapsed_s)}")
    yield Line(f"as expected: {'yes' if report.as_expected else 'no'}")


def findings(found: Exploration, report: Report) -> Iterator[Block]:
    """What was found."""
    registrations = report.registrations
    yield Line(f"verdict: {found.verdict}{report.about_text}")
    for title, number in counts(found):
        yield Line(f"{title}: {number}")
    if found.counterexample is None or found.conflicts:
        yield from _listed("conflicts", [conflict_text(conflict, found) for conflict in found.conflicts])
    if found.verdict in (Verdict.ORDER_INDEPENDENT, Verdict.NO_VIOLATION_FOUND):
        yield from _listed("never accepted", never_accepted_text(found, registrations))
    if found.counterexample is not None:
        yield from _counterexample(found.counterexample, registrations)


def _listed(title: str, texts: Sequence[str]) -> Iterator[Block]:
    yield Line(f"{title}:{'' if texts else ' none'}")
    yield from (Code(text, indent=2) for text in texts)


def _counterexample(counterexample: Counterexample, registrations: Sequence[str]) -> Iterator[Block]:
    yield Line(f"counterexample: {counterexample.flaw}, {FLAWS[counterexample.flaw]}")
    yield from _sequence("expected", counterexample.expected_sequence, registrations)
    if counterexample.actual_sequence != counterexample.expected_sequence:
        yield from _sequence("actual", counterexample.actual_sequence, registrations)
    yield from _listed("why", reasons(counterexample))
    if counterexample.diff:
        yield Line("diff:")
        yield Difference(counterexample.diff, indent=2)


def _sequence(title: str, sequence: StepSequence, registrations: Sequence[str]) -> Iterator[Line]:
    yield Line(f"{title} sequence: {format_sequence(sequence)}")
    yield from (Line(step_text(step, registrations), indent=2) for step in sequence)


def line_of(report: Report) -> str:
    """One run in a line, for those that are as expected among many."""
    found = report.exploration
    refused = f", {len(found.conflicts):,} refused" if found.conflicts else ""
    return f"{report.scenario}: {report.verdict_text}, as expected ({found.sets:,} sets{refused})"


def summary(reports: int, *, as_expected: int, unreadable: int = 0, not_explored: int = 0) -> str:
    """The line that ends the reports of several scenarios."""
    total = reports + unreadable + not_explored
    parts = [f"{as_expected:,} as expected"]
    if reports > as_expected:
        parts.append(f"{reports - as_expected:,} not")
    if unreadable:
        parts.append(f"{unreadable:,} could not be read")
    if not_explored:
        parts.append(f"{not_explored:,} not explored")
    return f"{total:,} scenario{'' if total == 1 else 's'}: {', '.join(parts)}"
