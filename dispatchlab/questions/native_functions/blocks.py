"""What is generated of native_functions.yaml as blocks and as JSON: the frames of a call, and registrations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dispatchlab.codegen.emit.registrations import FunctionRegistrations, GeneratedKernel
from dispatchlab.escape import printable
from dispatchlab.questions.native_functions.cpp_frames import Entry, Layer
from dispatchlab.questions.native_functions.generated_registrations import Comparison, RegistrationReport
from dispatchlab.questions.native_functions.walk_calls import Walk
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.blocks import Block, Line, Mood, Span, quiet
from dispatchlab.views.formatting import counted, first_of
from dispatchlab.views.view import View

# -- the frames of a call, one a line, the innermost first


def walk_view(walk: Walk) -> View[Walk]:
    """How the frames of a call are shown; those that the compiler inlines are dim."""
    return View(walk, lines=_walk_lines)


_MOODS: Mapping[Layer, Mood] = {
    Layer.BINDING: "strong",
    Layer.API: "strong",
    Layer.DISPATCHER: "quiet",
    Layer.AUTOGRAD: "autograd",
    Layer.VIEWS_AND_WRITES: "autograd",
    Layer.BACKEND_SELECT: "composite",
    Layer.TRACER: "autograd",
    Layer.FUNCTIONALIZE: "composite",
    Layer.OTHER: "fallback",
}


def _walk_lines(walk: Walk) -> Iterator[Block]:
    explained = walk.explained
    explanation = explained.explanation
    yield Line(str(walk.function.schema), "strong")
    given = ", ".join(f"{argument.name}: {printable(argument.given)}" for argument in explanation.arguments)
    by = "called from C++" if walk.entry is Entry.CPP else f"called as a {walk.entry} of Python"
    yield Line(f"{by} with {given}" if given else by, "quiet")
    yield Line()
    numbers = len(str(len(walk.frames)))
    layers = max((len(str(frame.layer)) for frame in walk.frames), default=0)
    for number, frame in walk.numbered:
        mood: Mood = "quiet" if frame.inlined else _MOODS.get(frame.layer, "kernel")
        lab = f" (lab: {frame.lab})" if frame.lab else ""
        place = f"{' [inlined]' if frame.inlined else ''}  at {frame.file}{lab}"
        label = (quiet(f"#{number:<{numbers}}  "), Span(f"{frame.layer!s:<{layers}}  ", mood))
        yield Line((Span(frame.function, mood), quiet(place)), label=label, width=numbers + layers + 5)
    yield Line()
    end = f"{explained.no_answer or explanation.end} ({explained.inspection.source})"
    yield Line(end, "emphasis" if explanation.known else "warn")


@as_json.register
def _(value: Walk) -> dict[str, object]:
    explanation = value.explained.explanation
    return {
        "operator": str(value.function.name),
        "schema": str(value.function.schema),
        "entry": str(value.entry),
        "file": value.file,
        "source": value.explained.inspection.source,
        "arguments": [fields_of(argument, without=("keys", "note")) for argument in explanation.arguments],
        "frames": [fields_of(frame, number=number, layer=str(frame.layer)) for number, frame in value.numbered],
        "end": explanation.end,
        "known": explanation.known,
    }


# -- registrations: the functions that were asked for, or how many kernels each part of the generated code has


def registrations_view(report: RegistrationReport) -> View[RegistrationReport]:
    """How registrations are shown."""
    return View(report, lines=_registration_lines)


def _registration_lines(report: RegistrationReport) -> Iterator[Block]:
    for selected in report.selected:
        yield from _function_lines(selected, report.file)
        yield Line()
    total = sum(report.kernels.values())
    yield Line(f"{report.file}: {report.functions:,} functions, {total:,} kernels")
    if not report.selected:
        width = max(map(len, report.kernels), default=0)
        for part, number in sorted(report.kernels.items()):
            yield Line(f"{number:>6,}", indent=2, label=part, width=width + 2)
    yield Line(f"autograd: {report.derivatives or 'no derivatives.yaml'}")
    for left in report.left_out:
        names = [name.without_namespace for name in left.functions]
        yield Line(f"not generated: {left.why}: {counted(len(left.functions), 'function')}: {first_of(names, _NAMED)}")
    yield Line("not in the file: what C++ and Python register by hand, such as batching rules and autocast")
    if report.comparison is not None:
        yield from _compared(report.comparison)


def _function_lines(selected: FunctionRegistrations, file: str) -> Iterator[Line]:
    function = selected.function
    yield Line(str(function.schema))
    line = "" if function.location is None else f"{file}:{function.location.line}"
    made = f"made from the function at {line}" if function.is_generated else line
    yield Line(f"{made}; tags: {', '.join(sorted(function.tags)) or 'none'}", indent=2)
    if not selected.kernels:
        yield Line("no kernel is generated", indent=2)
    width = max((len(str(kernel.key)) for kernel in selected.kernels), default=0)
    for kernel in selected.kernels:
        yield Line(_kernel_text(kernel), indent=2, label=str(kernel.key), width=width + 2)


def _kernel_text(kernel: GeneratedKernel) -> str:
    what = str(kernel.body)
    if kernel.node:
        what = f"{what}: {kernel.node}"
    elif kernel.calls and kernel.calls != kernel.name:
        what = f"calls {kernel.calls}"
    return f"{kernel.name} ({kernel.file}): {what}"


_NAMED = 8


def _compared(comparison: Comparison) -> Iterator[Line]:
    yield Line(f"equal in {comparison.registry}: {comparison.defs:,} defs, {comparison.kernels:,} kernels")
    for rule, number in comparison.by_rule.items():
        yield Line(f"{number:,} {rule}", indent=2)
    for difference in comparison.unexplained:
        yield Line(f"{difference.operator} at {difference.key or 'its def'}", indent=2)
        yield Line(f"generated: {difference.generated or 'nothing'}", indent=4)
        yield Line(f"recorded:  {difference.recorded or 'nothing'}", indent=4)


@as_json.register
def _(value: Comparison) -> dict[str, object]:
    differences = {str(rule): number for rule, number in value.by_rule.items()}
    return fields_of(value, without=("differences",), differences=differences, unexplained=value.unexplained)


@as_json.register
def _(value: FunctionRegistrations) -> dict[str, object]:
    function = value.function
    return {
        "operator": str(function.name),
        "schema": str(function.schema),
        "tags": sorted(function.tags),
        "location": None if function.location is None else str(function.location),
        "made": function.is_generated,
        "kernels": [
            fields_of(
                kernel,
                without=("function",),
                part=str(kernel.part),
                body=str(kernel.body),
                inferred=None if kernel.inferred is None else str(kernel.inferred),
                file=kernel.file,
            )
            for kernel in value.kernels
        ],
    }
