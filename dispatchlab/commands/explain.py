"""`dispatchlab explain`: which kernel a call would run, and why, without running it."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from dispatchlab.call.argument_words import describe_arguments
from dispatchlab.call.explain import explain, schema_of, thread_keys
from dispatchlab.call.explanation import CallExplanation
from dispatchlab.commands.engines import EngineName
from dispatchlab.commands.explain_sources import Asked, found_for
from dispatchlab.commands.output import Format, chosen_format, note, out
from dispatchlab.model.keys import BACKENDS, parse_key

_META = BACKENDS.index("Meta")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainRequest:
    """What was asked for; each field is an option of the command."""

    operator: str
    args: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    source: str | None = None
    engine: EngineName = "lab"
    semantics: str | None = None
    imports: tuple[str, ...] = ()
    format: Format | None = None
    color: bool = True


def explain_call(request: ExplainRequest) -> int:
    """Show which kernel a call runs.

    Returns:
        The exit code: 0, also when the call would fail, since that is what was asked.

    Raises:
        DispatchLabError: the source, the operator, an argument or a key cannot be used.
    """
    thread = thread_keys(tuple(map(parse_key, request.include)), tuple(map(parse_key, request.exclude)))
    asked = Asked(request.operator, request.source, request.engine, request.semantics, request.imports)
    found = found_for(asked)
    described = describe_arguments(schema_of(found.view), request.args)
    told = explain(found.view, described, thread)
    if found.build.endswith("+cpu") and any(hop.key.backend not in (None, 0, _META) for hop in told.hops):
        note(f"{found.source} is of a build for the CPU alone ({found.build}): it has no kernels for other devices")
    if found.bare and told.hops[-1].refusal is not None:
        note(f"{found.semantics} starts without PyTorch's backend fallbacks: --semantics torch-2.13 has them")
    _show(request, told, found.source, found.semantics)
    return 0


def _show(request: ExplainRequest, told: CallExplanation, source: str, semantics: str) -> None:
    match chosen_format(request.format):
        case "text":
            from dispatchlab.render.explain_text import explanation_text

            out(explanation_text(told))
        case "json":
            from dispatchlab.render.explain_json import explanation_json

            out(explanation_json(told, source=source, engine=request.engine, semantics=semantics))
        case "rich":
            from dispatchlab.render.explain_rich import print_explanation
            from dispatchlab.render.rich_view import console

            terminal = console(sys.stdout, color=request.color)
            with terminal.capture() as captured:
                print_explanation(terminal, told)
            out(captured.get())
