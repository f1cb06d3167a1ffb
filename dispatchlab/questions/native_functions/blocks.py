"""The registrations that are generated from native_functions.yaml, as blocks and as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from dispatchlab.codegen.emit.registrations import FunctionRegistrations
from dispatchlab.questions.native_functions.registrations import RegistrationReport
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.blocks import Block, Line
from dispatchlab.views.formatting import counted, first_of
from dispatchlab.views.view import View

# -- registrations: the functions that were asked for, or how many kernels each part of the generated code has


def registrations_view(report: RegistrationReport) -> View[RegistrationReport]:
    """Return the view of registrations."""
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
    for left in report.left_out:
        names = [name.without_namespace for name in left.functions]
        yield Line(f"not generated: {left.why}: {counted(len(left.functions), 'function')}: {first_of(names, _NAMED)}")
    yield Line("not in the file: kernels of Autograd, and what C++ and Python register by hand, such as batching rules")


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
        what = f"calls {kernel.calls}" if kernel.calls and kernel.calls != kernel.name else str(kernel.body)
        yield Line(f"{kernel.name} ({kernel.file}): {what}", indent=2, label=str(kernel.key), width=width + 2)


_NAMED = 8


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
                inferred=str(kernel.inferred),
                file=kernel.file,
            )
            for kernel in value.kernels
        ],
    }
