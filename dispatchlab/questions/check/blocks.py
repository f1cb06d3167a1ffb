"""The check as a document: a line for each question, then the findings, the most harmful first."""

from __future__ import annotations

from functools import partial

from dispatchlab.model.trial_run import TrialRun
from dispatchlab.questions.check.findings import name_of
from dispatchlab.questions.check.registering_modules import what_to_name
from dispatchlab.questions.check.report import Answer, CheckReport
from dispatchlab.questions.lint.blocks import OTHERS, SHOWN, finding_part
from dispatchlab.questions.lint.rule import level_counts
from dispatchlab.views import blocks as b
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.formatting import counted, first_of
from dispatchlab.views.view import View


def check_view(found: CheckReport, *, complete: bool = False) -> View[CheckReport]:
    """Return the view of a check.

    Args:
        found: the check.
        complete: show every finding, every operator of a cause, and every note.
    """
    return View(found, document=partial(_document, complete=complete), indent=1, torch=found.torch, whole=complete)


@as_json.register
def _(value: CheckReport) -> object:
    return fields_of(value, summary=summary(value), exit_code=value.exit_code)


@as_json.register
def _(value: TrialRun) -> object:
    return fields_of(value, without=("raised", "frames", "stack", "events"), error=value.error)


def summary(found: CheckReport) -> str:
    """Return the result in one line."""
    return f"{' and '.join(found.packages)}: {_result(found)}"


def _result(found: CheckReport) -> str:
    if found.nothing:
        which = "" if found.nothing == found.packages else f"of {' and '.join(found.nothing)} "
        advice = what_to_name(found.nothing[0], found.later, found.failed)
        return f"nothing {which}is registered: {advice}"
    counts = level_counts([group.level for group in found.groups])
    accepted = f"{counted(found.accepted, 'finding')} that the baseline accepts"
    if not any(answer.asked for answer in found.answers):
        return "nothing was checked"
    lost = "the trials were lost: no operator was run"
    nothing = f"nothing but {accepted}" if found.accepted else "nothing found"
    return ", but ".join(
        [counts or nothing] * bool(counts or not found.lost or len(found.answers) > 1) + [lost] * found.lost
    )


def hidden_text(found: CheckReport) -> str:
    """Return the number of findings that are not shown; empty if all are shown."""
    hidden = found.groups[SHOWN:]
    if not hidden:
        return ""
    number = counted(sum(len(group.findings) for group in hidden), "finding")
    return f"{counted(len(hidden), 'more cause')} with {number} not shown; --all shows them"


def _document(found: CheckReport, *, complete: bool) -> b.Document:
    mood: b.Mood = "bad" if found.exit_code else "warn" if found.groups else "good"
    blocks: list[b.Block] = [b.Verdict(_result(found), mood)]
    rows: list[b.Row] = [("registered", found.registered)]
    rows += [(str(answer.question), _answer(answer, found, complete=complete)) for answer in found.answers]
    marked = frozenset(at for at, answer in enumerate(found.answers, 1) if answer.is_bad)
    blocks.append(b.Table("", ("", ""), tuple(rows), marked))
    codes = [group.code for group in found.groups if group.code.isupper()]
    means = tuple(b.Line(f"what {code} means: dispatchlab rule {code}", "quiet", indent=2) for code in codes[:1])
    parts = finding_part("Findings", found.groups, name_of)
    blocks += [b.Section(part.title, (*part.blocks, *means)) for part in parts]
    notes = [f"{counted(found.accepted, 'finding')} more accepted by the baseline"] * bool(found.accepted)
    if found.outdated:
        names = first_of([str(one) for one in found.outdated], OTHERS)
        notes.append(f"{len(found.outdated):,} of the baseline not found any more: {names}")
    notes += found.notes
    if notes:
        blocks.append(b.Section("Notes", tuple(b.Line(text, "quiet", indent=2) for text in notes)))
    return b.Document("check", " and ".join(found.packages), tuple(blocks))


def _answer(answer: Answer, found: CheckReport, *, complete: bool) -> b.Cell:
    mood: b.Mood = "quiet" if not answer.asked else "bad" if answer.is_bad else ""
    notes = tuple(note for note in answer.notes if complete or not note.startswith("compared: "))
    if len(notes) > OTHERS and not complete:
        notes = (*notes[:OTHERS], f"... and {counted(len(notes) - OTHERS, 'more note')}: see --all")
    return b.Cell(b.Stack((b.Span(answer.shown, mood), *map(b.quiet, notes))), "prose")
