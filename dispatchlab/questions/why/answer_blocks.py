"""Why a program failed, as blocks: the cause, the fix, the evidence, the user's line."""

from __future__ import annotations

from collections.abc import Iterator

from dispatchlab.questions.why.diagnose import Answer
from dispatchlab.views.blocks import Block, Line, good, quiet, strong
from dispatchlab.views.formatting import escaped
from dispatchlab.views.view import View


def why_view(answer: Answer) -> View[Answer]:
    """Return the view of an answer."""
    return View(answer, lines=answer_lines)


def github_annotation(answer: Answer) -> str:
    """Return an answer as an annotation of a GitHub workflow, which GitHub shows beside the user's line."""
    place = "" if answer.at is None else f"file={escaped(answer.at.file, property=True)},line={answer.at.line},"
    title = escaped(f"dispatchlab {answer.code} {answer.title}".replace("  ", " "), property=True)
    fixes = "".join(f"\nfix: {trial.fix.text}" for trial in answer.fixes)
    return f"::{'error' if answer.failed else 'warning'} {place}title={title}::{escaped(answer.cause + fixes)}\n"


def answer_lines(answer: Answer) -> Iterator[Block]:
    """Return an answer as lines, the cause first."""
    yield Line((strong("cause: "), answer.cause))
    for trial in answer.fixes:
        first, *rest = trial.fix.text.splitlines()
        why_not = quiet(f"(not tried: {trial.detail})") if trial.detail else ""
        outcome = good("(tried: it works)") if trial.outcome == "works" else why_not
        yield Line((strong("fix: "), first, *(("  ", outcome) if outcome else ())))
        yield from (Line(line, indent=5) for line in rest)
    yield from (Line((quiet("seen: "), fact)) for fact in answer.evidence)
    if answer.at is not None:
        yield Line((quiet("at: "), f"{answer.at}: {answer.at.text}".removesuffix(": ")))
    if answer.error and answer.code:
        yield Line((quiet("error: "), answer.error))
    if answer.code:
        yield Line(quiet(f"{answer.code} {answer.title}; more: dispatchlab rule {answer.code}"))
