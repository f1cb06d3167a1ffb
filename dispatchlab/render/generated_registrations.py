"""What is generated for native functions, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dispatchlab.analysis.generated_registrations import Comparison, Difference, RegistrationReport
from dispatchlab.codegen.emit.registrations import FunctionRegistrations, GeneratedKernel
from dispatchlab.escape import printable
from dispatchlab.model.names import OperatorName
from dispatchlab.render.as_json import as_json, fields_of, json_text

_NAMED = 8


def registrations_text(report: RegistrationReport) -> str:
    """The functions that were asked for, or how many kernels each part of the generated code has; what is left out."""
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: RegistrationReport) -> Iterator[str]:
    for each in report.selected:
        yield from _function(each, report.file)
        yield ""
    total = sum(report.kernels.values())
    yield f"{printable(report.file)}: {report.functions:,} functions, {total:,} kernels"
    if not report.selected:
        width = max(map(len, report.kernels), default=0)
        for part, number in sorted(report.kernels.items()):
            yield f"  {part:<{width}}  {number:>6,}"
    yield f"autograd: {printable(report.derivatives) or 'no derivatives.yaml'}"
    for left in report.left_out:
        yield f"not generated: {left.why}: {_some(left.functions)}"
    yield "not in the file: what C++ and Python register by hand, such as batching rules and autocast"
    if report.comparison is not None:
        yield from _compared(report.comparison)


def _function(each: FunctionRegistrations, file: str) -> Iterator[str]:
    function = each.function
    yield str(function.schema)
    line = "" if function.location is None else f"{printable(file)}:{function.location.line}"
    made = f"made from the function at {line}" if function.is_generated else line
    yield f"  {made}; tags: {', '.join(sorted(function.tags)) or 'none'}"
    if not each.kernels:
        yield "  no kernel is generated"
    width = max((len(str(kernel.key)) for kernel in each.kernels), default=0)
    for kernel in each.kernels:
        yield f"  {kernel.key!s:<{width}}  {_kernel(kernel)}"


def _kernel(kernel: GeneratedKernel) -> str:
    what = str(kernel.body)
    if kernel.node:
        what = f"{what}: {kernel.node}"
    elif kernel.calls and kernel.calls != kernel.name:
        what = f"calls {kernel.calls}"
    return f"{kernel.name} ({kernel.file}): {what}"


def _some(names: Sequence[OperatorName]) -> str:
    shown = ", ".join(str(each.without_namespace) for each in names[:_NAMED])
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f"{len(names):,} function{'' if len(names) == 1 else 's'}: {shown}{more}"


def _compared(found: Comparison) -> Iterator[str]:
    yield f"equal in {printable(found.registry)}: {found.defs:,} defs, {found.kernels:,} kernels"
    for rule, number in found.by_rule.items():
        yield f"  {number:,} {rule}"
    for each in found.unexplained:
        yield from _difference(each)


def _difference(each: Difference) -> Iterator[str]:
    yield f"  {each.operator} at {each.key or 'its def'}"
    yield f"    generated: {each.generated or 'nothing'}"
    yield f"    recorded:  {printable(each.recorded) or 'nothing'}"


def registrations_json(report: RegistrationReport) -> str:
    """The same as JSON, with the names of all functions for which something is left out."""
    comparison = report.comparison
    return json_text(
        fields_of(
            report,
            selected=[_function_json(each) for each in report.selected],
            comparison=None
            if comparison is None
            else fields_of(
                comparison,
                without=("differences",),
                differences={str(rule): number for rule, number in comparison.by_rule.items()},
                unexplained=[as_json(each) for each in comparison.unexplained],
            ),
        )
    )


def _function_json(each: FunctionRegistrations) -> dict[str, object]:
    function = each.function
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
            for kernel in each.kernels
        ],
    }
