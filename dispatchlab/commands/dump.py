"""`dispatchlab dump`: what a dispatcher knows of an operator after a word."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from dispatchlab.commands.engines import EngineName, SemanticsOfTorchError, engine_for
from dispatchlab.commands.output import Format, chosen_format, note, out
from dispatchlab.commands.sources import find_operators, operators_in, table_rows
from dispatchlab.errors import DispatchLabError
from dispatchlab.explore.protocol import Sandbox
from dispatchlab.explore.session import SandboxSession, run
from dispatchlab.model.explanation import OperatorView
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import describe
from dispatchlab.model.snapshot import Snapshot
from dispatchlab.model.words import Word, format_word, parse_word
from dispatchlab.render.text import operator_text
from dispatchlab.scenario.load import load_scenario
from dispatchlab.scenario.value import Scenario

_INSTALLED = "dispatchlab.live.installed"


class NoSourceError(DispatchLabError):
    """Nothing says where the operator comes from."""

    def __str__(self) -> str:
        return "the dispatcher is empty: name a scenario whose registrations to make, with --from SCENARIO"


class WordWithoutSourceError(DispatchLabError):
    """A word was given and nothing that it could number."""

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word

    def __str__(self) -> str:
        return f"--after {self.word} numbers the registrations of a scenario: name it with --from SCENARIO"


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpRequest:
    """What was asked for; each field is an option of the command."""

    operator: str
    source: str | None = None
    after: str | None = None
    engine: EngineName = "lab"
    semantics: str | None = None
    keys: tuple[str, ...] = ()
    format: Format | None = None
    color: bool = True
    allow_import: bool = False
    imports: tuple[str, ...] = ()


@runtime_checkable
class Explains(Protocol):
    """A sandbox that knows the reasons behind what it shows."""

    def explain(self, name: OperatorName, /) -> OperatorView | None:
        """An operator with its reasons; None when nothing is registered for it."""


def dump(request: DumpRequest) -> int:
    """Run the word, tell what is refused on the way, and show the operators.

    Returns:
        The exit code: 0. A refusal on the way is told and does not change it, since what is shown is what the
        dispatcher knows then.

    Raises:
        DispatchLabError: the scenario, the word, the operator or a key cannot be used.
    """
    keys = table_rows(request.keys)
    if request.source is None:
        return _dump_installed(request, keys)
    scenario = load_scenario(request.source, allow_import=request.allow_import)
    word = _word(request.after, scenario)
    known = operators_in(scenario)
    names = find_operators(request.operator, known, namespace=scenario.namespace, source=request.source)
    with engine_for(
        request.engine, asked=request.semantics, in_file=scenario.semantics, imports=request.imports
    ) as engine:
        with engine.sandbox() as sandbox:
            session = SandboxSession(sandbox, scenario.registrations, scenario.operators)  # holds what is in force
            refused = _run(session, scenario, word)
            seen = [(sandbox.snapshot(name), _view(sandbox, name)) for name in names]
        semantics = engine.semantics
    for snapshot, _ in seen:
        if not snapshot.exists:
            note(f"nothing is registered for {snapshot.operator} after {format_word(word)}")
    _show(request, seen, semantics, keys, word, refused)
    return 0


def _dump_installed(request: DumpRequest, keys: tuple[str, ...]) -> int:
    """Show operators of the running PyTorch itself, with what was imported."""
    if request.engine != "torch":
        raise NoSourceError
    if request.after is not None:
        raise WordWithoutSourceError(request.after)
    from dispatchlab.live.engine import LiveEngine
    from dispatchlab.render.from_text import view_of

    if request.semantics is not None:
        raise SemanticsOfTorchError(request.semantics)
    with LiveEngine(imports=request.imports) as engine:
        known = engine.ask(f"{_INSTALLED}:operator_names")
        source = f"PyTorch {engine.worker.version}{''.join(f' + {name}' for name in request.imports)}"
        names = find_operators(request.operator, known, namespace="", source=source)
        found = engine.ask(f"{_INSTALLED}:look_at", names)
        seen = [(snapshot, view_of(snapshot, violations)) for snapshot, violations in found]
        _show(request, seen, engine.semantics, keys)
    return 0


def _show(
    request: DumpRequest,
    seen: Sequence[tuple[Snapshot, OperatorView]],
    semantics: str,
    keys: tuple[str, ...],
    word: Word = (),
    refused: Sequence[tuple[int, str]] = (),
) -> None:
    shown = [(snapshot, view) for snapshot, view in seen if snapshot.exists]
    match chosen_format(request.format):
        case "text":
            out("\n".join(operator_text(snapshot, keys=keys) for snapshot, _ in shown))
        case "json":
            from dispatchlab.render.json_view import dump_json

            text = dump_json(
                seen,
                scenario=request.source,
                engine=request.engine,
                semantics=semantics,
                word=word,
                refused=refused,
                keys=keys,
            )
            out(text)
        case "rich":
            from dispatchlab.render.rich_view import console, print_operator

            terminal = console(sys.stdout, color=request.color)
            with terminal.capture() as captured:
                for _, view in shown:
                    print_operator(terminal, view, keys=keys)
            out(captured.get())


def _word(after: str | None, scenario: Scenario) -> Word:
    """All registrations in the order of the file, unless a word is given."""
    count = len(scenario.registrations)
    if after is None:
        return tuple(range(count))
    return () if after == format_word(()) else parse_word(after, count=count)


def _run(session: SandboxSession, scenario: Scenario, word: Word) -> list[tuple[int, str]]:
    """Run a word; the registrations that were refused, with the reasons."""
    refused: list[tuple[int, str]] = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step, refusal in run(session, word):
            if refusal is not None:
                index = ~step if step < 0 else step
                refused.append((index, refusal.message))
                verb = "could not be released" if step < 0 else "was refused"
                what = f"{format_word((step,))} {describe(scenario.registrations[index])}"
                note(f"{what} {verb}: {refusal.kind}: {refusal.message}")
    for warning in told:
        note(f"note: {warning.message}")
    return refused


def _view(sandbox: Sandbox, name: OperatorName) -> OperatorView:
    view = sandbox.explain(name) if isinstance(sandbox, Explains) else None
    if view is not None:
        return view
    from dispatchlab.render.from_text import view_of

    snapshot: Snapshot = sandbox.snapshot(name)
    return view_of(snapshot, sandbox.violations(name))
