"""The check as blocks: a line for each question, then the findings, the most harmful first."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from dispatchlab.prover.result import Verdict as OrderVerdict
from dispatchlab.questions.check.findings import KINDS, name_of
from dispatchlab.questions.check.report import Answer, CheckReport, Question
from dispatchlab.questions.lint.debug_text import sites_in
from dispatchlab.questions.lint.rule import LEVELS, FindingGroup, Level, level_counts
from dispatchlab.questions.lint.rules import rule_named
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.blocks import (
    Block,
    Cell,
    Facts,
    Folded,
    Frame,
    Line,
    Mood,
    Page,
    Section,
    Span,
    Stack,
    Table,
    Verdict,
    code,
    mark,
    quiet,
    source,
    strong,
)
from dispatchlab.views.formatting import counted
from dispatchlab.views.view import View

SHOWN = 20
"""How many findings are shown, those of one cause counted once, unless all are requested."""

_OTHERS = 3
_MOODS: dict[Level, Mood] = {Level.ERROR: "bad", Level.WARNING: "warn", Level.INFORMATION: ""}
_WIDTH = 11


def check_view(found: CheckReport, *, complete: bool = False) -> View[CheckReport]:
    """How a check is shown.

    Args:
        found: the check.
        complete: show every finding, every operator of a cause, and every note.
    """
    lines, screen = partial(_lines, complete=complete), partial(_screen, complete=complete)
    return View(found, lines=lines, screen=screen, page=_page, indent=1, torch=found.torch, whole=complete)


@as_json.register
def _(value: Answer) -> object:
    return fields_of(value)


_SHOWN_AS_ANSWERS = ("order", "lint", "readiness", "drift", "upgrade")


@as_json.register
def _(value: CheckReport) -> object:
    return fields_of(value, without=_SHOWN_AS_ANSWERS, summary=summary(value), exit_code=value.exit_code)


def summary(found: CheckReport) -> str:
    """The result in one line."""
    packages = " and ".join(found.packages)
    if found.nothing:
        names = " and ".join(found.nothing)
        verb = "registers" if len(found.nothing) == 1 else "register"
        return f"{names} {verb} nothing: name the module that registers, such as {found.nothing[0]}.ops"
    counts = level_counts([group.level for group in found.groups])
    accepted = f"{counted(found.accepted, 'finding')} that the baseline accepts"
    return f"{packages}: {counts or (f'nothing but {accepted}' if found.accepted else 'nothing found')}"


def hidden_text(found: CheckReport) -> str:
    """How many findings are not shown; empty when all are."""
    hidden = found.groups[SHOWN:]
    if not hidden:
        return ""
    number = counted(sum(len(group.findings) for group in hidden), "finding")
    return f"{counted(len(hidden), 'more cause')} with {number} not shown; --all shows them"


# -- lines and screen


def _lines(found: CheckReport, *, complete: bool) -> Iterator[Block]:
    yield Line(summary(found))
    yield from _questions(found, complete=complete)
    for group in _groups(found, complete=complete):
        yield Line()
        about = group.first if group.first.operator else f"{group.code}: {group.first.message}"
        yield Line(f"{group.level}: {about}")
        yield from _details(group, complete=complete)
    yield from _end(found, complete=complete)


def _screen(found: CheckReport, *, complete: bool) -> Iterator[Block]:
    bad, good = bool(found.exit_code), not found.groups
    lines = (Line(summary(found), "strong"), *_questions(found, complete=complete))
    yield Frame(lines, "bad" if bad else "good" if good else "warn")
    for group in _groups(found, complete=complete):
        finding = group.first
        key = "" if finding.key is None else f" {finding.key}"
        yield Line()
        level = Span(f"{group.level} {name_of(group.code)}", _MOODS[group.level] or "strong")
        yield Line((level, strong(f" {finding.operator}{key}")), hang=4)
        yield Line(finding.message, indent=2)
        yield from _details(group, complete=complete)
    yield from _end(found, complete=complete)


def _questions(found: CheckReport, *, complete: bool) -> Iterator[Line]:
    yield _row("registered", found.registered)
    for answer in found.answers:
        yield _row(str(answer.question), answer.shown, _mood(answer))
        for text in answer.notes if complete else _needed_notes(answer, found):
            yield Line(text, "quiet", label="", width=_WIDTH)


def _row(label: str, text: str, mood: Mood = "") -> Line:
    return Line(text, mood, label=f"{label:<{_WIDTH}}", width=_WIDTH)


def _mood(answer: Answer) -> Mood:
    if not answer.asked:
        return "quiet"
    return "bad" if answer.is_bad else ""


def _needed_notes(answer: Answer, found: CheckReport) -> tuple[str, ...]:
    """The notes that qualify an answer; of a verdict, why it is no proof."""
    if answer.question is not Question.ORDER or found.order is None:
        return answer.notes
    exploration = found.order.exploration
    if exploration.verdict in (OrderVerdict.ORDER_INDEPENDENT, OrderVerdict.ORDER_DEPENDENT):
        return ()
    return tuple(note for note in answer.notes if note not in exploration.notes[:-1])  # the last one says why


def _groups(found: CheckReport, *, complete: bool) -> tuple[FindingGroup, ...]:
    return found.groups if complete else found.groups[:SHOWN]


def _details(group: FindingGroup, *, complete: bool) -> Iterator[Line]:
    """Where it is registered, what has the same cause, and what fixes it."""
    places = dict.fromkeys(site for debug in group.first.owners for site in list(sites_in(debug))[:1])
    for path, line in list(places)[:_OTHERS]:
        yield Line(source(f"{path}:{line}"), indent=2, label=quiet("at: "))
    others = group.findings[1:]
    if others:
        shown = others if complete else others[:_OTHERS]
        more = f", and {len(others) - len(shown):,} more" if len(others) > len(shown) else ""
        yield Line(f"{', '.join(one.operator for one in shown)}{more}", indent=2, label=quiet("the same: "))
    if group.first.mend:
        yield Line(group.first.mend, indent=2, label=quiet("to fix it: "))


def _end(found: CheckReport, *, complete: bool) -> Iterator[Line]:
    texts = [] if complete else [hidden_text(found)]
    if found.accepted:
        texts.append(f"{counted(found.accepted, 'finding')} more accepted by the baseline")
    if found.outdated:
        shown = ", ".join(map(str, found.outdated[:_OTHERS])) + (", ..." if len(found.outdated) > _OTHERS else "")
        texts.append(f"{len(found.outdated):,} of the baseline not found any more: {shown}")
    texts += found.notes
    texts = [text for text in texts if text]
    if texts:
        yield Line()
    yield from (Line(text, "quiet") for text in texts)


# -- a page


def _page(found: CheckReport) -> Page:
    bad = bool(found.exit_code)
    mood: Mood = "bad" if bad else "warn" if found.groups else "good"
    text = "nothing is registered" if found.nothing else "findings" if bad else "no finding that fails"
    lead = (Verdict(text, mood, f" {summary(found)}"), Facts((("PyTorch", found.torch),)))
    rows = tuple(
        (
            Cell(str(answer.question), "name"),
            Cell(mark(_state(answer), _mood(answer) if answer.asked else "quiet"), "name"),
            Cell(Stack((answer.text, *(quiet(note) for note in answer.notes))), "prose"),
        )
        for answer in found.answers
    )
    rows = ((Cell("registered", "name"), Cell("", "name"), Cell(found.registered, "prose")), *rows)
    marked = frozenset(at for at, answer in enumerate(found.answers, 1) if answer.is_bad)
    questions = Table("Questions", ("question", "", "answer"), rows, marked)
    sections = [
        Section("Questions", (questions,), "questions"),
        Section("Findings", (_finding_table(found),), "findings"),
    ]
    codes = sorted({group.code for group in found.groups})
    if codes:
        sections.append(Section("What these are about", tuple(map(_about, codes)), "about"))
    notes = [line for line in _end(found, complete=True) if line.content]
    if notes:
        sections.append(Section("Notes", tuple(notes), "notes"))
    return Page("check", ", ".join(found.packages), lead, tuple(sections))


def _state(answer: Answer) -> str:
    if not answer.asked:
        return "not checked"
    return "findings" if answer.is_bad else "information" if answer.findings else "nothing found"


def _finding_table(found: CheckReport) -> Table:
    rows = tuple(
        (
            Cell(group.first.operator or str(group.code), "name"),
            len(group.findings),
            Cell(mark(str(group.level), _MOODS[group.level]), "name", LEVELS.index(group.level)),
            Cell(name_of(group.code), "name"),
            Cell(
                Stack((group.first.message, *((("To fix it: ", code(group.first.mend)),) if group.first.mend else ()))),
                "prose",
            ),
            Cell(Stack(tuple(source(debug) for debug in group.first.owners)), "code"),
        )
        for group in found.groups
    )
    errors = frozenset(at for at, group in enumerate(found.groups) if group.level is Level.ERROR)
    heads = ("such as", "findings", "level", "kind", "what was found, and how to fix it", "registered at")
    return Table("Findings by cause, the most harmful first", heads, rows, errors)


def _about(kind: str) -> Folded:
    about = KINDS.get(kind) or rule_named(kind)
    return Folded(
        name_of(kind),
        (Line(about.what), Line((strong("Why: "), about.why)), Line((strong("To fix it: "), about.mend))),
    )
