"""A call under a mode: make it on the installed PyTorch, and show the result."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dispatchlab.questions.why.answer_blocks import answer_lines
from dispatchlab.questions.why.diagnose import Answer
from dispatchlab.questions.why.run import why_program
from dispatchlab.views.blocks import Block, Line, Section, strong
from dispatchlab.views.view import View

_PROGRAM: Final = """\
from importlib import import_module
from dispatchlab.live.trials.under_mode import call_under_mode

for package in {imports!r}:
    import_module(package)
call_under_mode({operator!r}, {mode!r}, {specs!r}, {path!r})
"""


@dataclass(frozen=True, slots=True)
class ModeCall:
    """The result of a call under a mode.

    Args:
        operator: the operator.
        mode: the mode.
        inputs: the arguments, as text.
        seen: the observations, each as a title with lines.
        result: the result, as text; empty if the call raised.
        answer: why it raised; None if it did not raise.
    """

    operator: str
    mode: str
    inputs: str
    seen: tuple[tuple[str, tuple[str, ...]], ...]
    result: str
    answer: Answer | None


def call_under_mode(operator: str, mode: str, specs: Sequence[str], imports: Sequence[str] = ()) -> ModeCall:
    """Make a call under a mode in a new process.

    Args:
        operator: the full name, with the overload.
        mode: a mode of `explain --mode`.
        specs: one for each argument; missing arguments are generated from the schema.
        imports: packages to import first.
    """
    with tempfile.TemporaryDirectory() as folder:
        program, path = Path(folder) / "call.py", Path(folder) / "seen.json"
        text = _PROGRAM.format(imports=tuple(imports), operator=operator, mode=mode, specs=tuple(specs), path=str(path))
        program.write_text(text, encoding="utf-8")
        outcome = why_program([str(program)], quiet=True)
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return ModeCall(
        operator,
        mode,
        found.pop("inputs", ""),
        tuple((title, tuple(lines)) for title, lines in found.items() if isinstance(lines, list)),
        found.get("result", ""),
        outcome.answer,
    )


def mode_view(call: ModeCall) -> View[ModeCall]:
    """Return the view of a call under a mode."""
    return View(call, lines=_lines)


def _lines(call: ModeCall) -> Iterator[Block]:
    outcome = f"gives {call.result}" if call.result else "the process ended"
    outcome = outcome if call.answer is None else f"raises {call.answer.error}"
    yield Line((strong(f"{call.operator}{call.inputs or '(...)'}"), f" under {call.mode}: {outcome}"))
    for title, lines in call.seen:
        yield Section(title, tuple(Line(line, indent=2) for line in lines or ("nothing",)))
    if call.answer is not None:
        yield Line("")
        yield from answer_lines(replace(call.answer, at=None, error=""))
