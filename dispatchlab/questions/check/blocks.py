"""The check as blocks: a line for each question, then the findings, the most harmful first."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from dispatchlab.prover.result import Verdict
from dispatchlab.questions.check.findings import KINDS, name_of
from dispatchlab.questions.check.report import Answer, CheckReport, Question
from dispatchlab.questions.lint.blocks import LEVEL_MOODS, OTHERS, SHOWN, about, group_screen, same_and_fix
from dispatchlab.questions.lint.rule import LEVELS, FindingGroup, Level, level_counts
from dispatchlab.questions.lint.rules import rule_named
from dispatchlab.records.debug_text import sites_in
from dispatchlab.views import blocks as b
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.formatting import counted
from dispatchlab.views.view import View

_WIDTH = 11


def check_view(found: CheckReport, *, complete: bool = False) -> View[CheckReport]:
    """How a check is shown.

    Args:
        found: the check.
        complete: show every finding, every operator of a cause, and every note.
    """
    lines, screen = partial(_lines, complete=complete), partial(_screen, complete=complete)
    return View(found, lines=lines, screen=screen, document=_page, indent=1, torch=found.torch, whole=complete)


@as_json.register
def _(value: Answer) -> object:
    return fields_of(value)


_SHOWN_AS_ANSWERS = ("order", "imports", "lint", "drift", "upgrade")


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


def _lines(found: CheckReport, *, complete: bool) -> Iterator[b.Block]:
    yield b.Line(summary(found))
    yield from _questions(found, complete=complete)
    for group in _groups(found, complete=complete):
        yield b.Line()
        finding = group.first if group.first.operator else f"{group.code}: {group.first.message}"
        yield b.Line(f"{group.level}: {finding}")
        yield from _details(group, complete=complete)
    yield from _end(found, complete=complete)


def _screen(found: CheckReport, *, complete: bool) -> Iterator[b.Block]:
    bad, good = bool(found.exit_code), not found.groups
    lines = (b.Line(summary(found), "strong"), *_questions(found, complete=complete))
    yield b.Frame(lines, "bad" if bad else "good" if good else "warn")
    for group in _groups(found, complete=complete):
        yield from group_screen(group, name_of(group.code))
        yield from _details(group, complete=complete)
    yield from _end(found, complete=complete)


def _questions(found: CheckReport, *, complete: bool) -> Iterator[b.Line]:
    yield _row("registered", found.registered)
    for answer in found.answers:
        yield _row(str(answer.question), answer.shown, _mood(answer))
        notes = answer.notes if complete else _needed_notes(answer, found)
        shown = len(notes) if complete else OTHERS
        more = () if len(notes) <= shown else (f"{counted(len(notes) - shown, 'more note')}; --all shows them",)
        for text in (*notes[:shown], *more):
            yield b.Line(text, "quiet", label="", width=_WIDTH)


def _row(label: str, text: str, mood: b.Mood = "") -> b.Line:
    return b.Line(text, mood, label=f"{label:<{_WIDTH}}", width=_WIDTH)


def _mood(answer: Answer) -> b.Mood:
    if not answer.asked:
        return "quiet"
    return "bad" if answer.is_bad else ""


def _needed_notes(answer: Answer, found: CheckReport) -> tuple[str, ...]:
    """The notes that qualify an answer; of a verdict, why it is no proof."""
    if answer.question is not Question.ORDER or found.order is None:
        return answer.notes
    exploration = found.order.exploration
    if exploration.verdict in (Verdict.ORDER_INDEPENDENT, Verdict.ORDER_DEPENDENT):
        return ()
    return tuple(note for note in answer.notes if note not in exploration.notes[:-1])  # the last one says why


def _groups(found: CheckReport, *, complete: bool) -> tuple[FindingGroup, ...]:
    return found.groups if complete else found.groups[:SHOWN]


def _details(group: FindingGroup, *, complete: bool) -> Iterator[b.Line]:
    """Where it is registered, what has the same cause, and what fixes it."""
    places = dict.fromkeys(site for debug in group.first.owners for site in list(sites_in(debug))[:1])
    for path, line in list(places)[:OTHERS]:
        yield b.Line(b.source(f"{path}:{line}"), indent=2, label=b.quiet("at: "))
    yield from same_and_fix(group, complete=complete)


def _end(found: CheckReport, *, complete: bool) -> Iterator[b.Line]:
    texts = [] if complete else [hidden_text(found)]
    if found.accepted:
        texts.append(f"{counted(found.accepted, 'finding')} more accepted by the baseline")
    if found.outdated:
        shown = ", ".join(map(str, found.outdated[:OTHERS])) + (", ..." if len(found.outdated) > OTHERS else "")
        texts.append(f"{len(found.outdated):,} of the baseline not found any more: {shown}")
    texts += found.notes
    texts = [text for text in texts if text]
    if texts:
        yield b.Line()
    yield from (b.Line(text, "quiet") for text in texts)


# -- a page


def _page(found: CheckReport) -> b.Document:
    bad = bool(found.exit_code)
    mood: b.Mood = "bad" if bad else "warn" if found.groups else "good"
    text = "nothing is registered" if found.nothing else "findings" if bad else "no finding that fails"
    lead = (b.Verdict(text, mood, f" {summary(found)}"), b.Facts((("PyTorch", found.torch),)))
    rows = tuple(
        (
            b.Cell(str(answer.question), "name"),
            b.Cell(b.mark(_state(answer), _mood(answer) if answer.asked else "quiet"), "name"),
            b.Cell(b.Stack((answer.text, *(b.quiet(note) for note in answer.notes))), "prose"),
        )
        for answer in found.answers
    )
    rows = ((b.Cell("registered", "name"), b.Cell("", "name"), b.Cell(found.registered, "prose")), *rows)
    marked = frozenset(at for at, answer in enumerate(found.answers, 1) if answer.is_bad)
    questions = b.Table("Questions", ("question", "", "answer"), rows, marked)
    sections = [
        b.Section("Questions", (questions,), "questions"),
        b.Section("Findings", (_finding_table(found),), "findings"),
    ]
    codes = sorted({group.code for group in found.groups})
    if codes:
        kinds = tuple(about(KINDS.get(code) or rule_named(code), name_of(code)) for code in codes)
        sections.append(b.Section("What these are about", kinds, "about"))
    notes = [line for line in _end(found, complete=True) if line.content]
    if notes:
        sections.append(b.Section("Notes", tuple(notes), "notes"))
    return b.Document("check", ", ".join(found.packages), (*lead, *sections))


def _state(answer: Answer) -> str:
    if not answer.asked:
        return "not checked"
    return "findings" if answer.is_bad else "information" if answer.findings else "nothing found"


def _fix(text: str) -> b.Inline:
    return b.code(text) if "(" in text else text  # a call, or a sentence


def _finding_table(found: CheckReport) -> b.Table:
    rows = tuple(
        (
            b.Cell(group.first.operator or str(group.code), "name"),
            len(group.findings),
            b.Cell(b.mark(str(group.level), LEVEL_MOODS[group.level]), "name", LEVELS.index(group.level)),
            b.Cell(name_of(group.code), "name"),
            b.Cell(
                b.Stack(
                    (group.first.message, *((("To fix it: ", _fix(group.first.mend)),) if group.first.mend else ()))
                ),
                "prose",
            ),
            b.Cell(b.Stack(tuple(b.source(debug) for debug in group.first.owners)), "code"),
        )
        for group in found.groups
    )
    errors = frozenset(at for at, group in enumerate(found.groups) if group.level is Level.ERROR)
    heads = ("such as", "findings", "level", "kind", "what was found, and how to fix it", "registered at")
    return b.Table("Findings by cause, the most harmful first", heads, rows, errors)
