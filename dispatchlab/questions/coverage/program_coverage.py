"""Coverage of programs: which kernels make programs run on a backend, most needed first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dispatchlab.live.registry import backend_of, live_program
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.program_run import FALLBACK, MISSING
from dispatchlab.registries.model import Recorded
from dispatchlab.views.blocks import Block, Cell, Document, Line, Section, Table
from dispatchlab.views.formatting import counted
from dispatchlab.views.view import View


@dataclass(frozen=True, slots=True)
class ProgramOnDevice:
    """One program on the device.

    Args:
        program: the file of the program.
        calls: the number of calls that reach the device.
        stops_at: the operator of the first call without a kernel, which raises; empty if there is no such call.
        error: the exception of the program although every call had a kernel; empty if the program succeeded.
        unserved: the operator at which the list ends, because no CPU kernel can replace it; empty without one.
    """

    program: str
    calls: int
    stops_at: str
    error: str
    unserved: str


@dataclass(frozen=True, slots=True)
class NeededKernel:
    """An operator whose calls reach the device.

    Args:
        operator: its name.
        schema: its schema; empty for an operator that the registry does not have.
        calls: the number of its calls that reach the device, in all programs.
        served_by: `own`, a kernel of the backend; `fallback`; or `missing`.
        is_core: whether it has the tag `core`.
    """

    operator: str
    schema: str
    calls: int
    served_by: str
    is_core: bool


@dataclass(frozen=True, slots=True)
class ProgramCoverage:
    """The kernels that programs need from a backend.

    Args:
        registry: the registry with its kernels.
        device: the name of the device.
        has_fallback: whether it has a fallback to the CPU.
        programs: how each program runs.
        kernels: the operators whose calls reach the device, the most frequent first.
    """

    registry: str
    device: str
    has_fallback: bool
    programs: tuple[ProgramOnDevice, ...]
    kernels: tuple[NeededKernel, ...]


def program_coverage(
    recorded: Recorded,
    key: DispatchKey,
    programs: Sequence[str],
    *,
    name: str,
    device: str = "",
) -> ProgramCoverage:
    """Run programs on a device that replaces a backend, each in a new process.

    Args:
        recorded: the registry with the kernels of the backend.
        key: its key.
        programs: the files.
        name: the name of the registry in output.
        device: what the programs call the device; the name that the registry has for it when empty.

    Raises:
        NoStandInError: the key is not PrivateUse1.
        StandInError: the installed PyTorch cannot provide a stand-in device.
        TorchMissingError: PyTorch is not installed.
        WorkerCrashed: a program ends its process.
    """
    backend = backend_of(recorded, key, device=device)
    runs = {path: live_program(path, backend) for path in programs}
    calls: Counter[str] = Counter()
    served: dict[str, str] = {}
    for run in runs.values():
        for (operator, by), number in run.calls.items():
            calls[operator] += number
            served[operator] = MISSING if MISSING in (by, served.get(operator)) else by
    known = {str(one.name): one for one in recorded}
    kernels = [
        NeededKernel(
            operator,
            (known[operator].schema or "") if operator in known else "",
            number,
            served[operator],
            operator in known and "core" in known[operator].tags,
        )
        for operator, number in calls.items()
    ]
    return ProgramCoverage(
        name,
        backend.device,
        backend.has_fallback,
        tuple(
            ProgramOnDevice(
                path,
                sum(run.calls.values()),
                next((operator for operator, by in run.calls if by == MISSING), ""),
                "" if run.unserved else run.error,
                run.unserved,
            )
            for path, run in runs.items()
        ),
        tuple(sorted(kernels, key=lambda one: (-one.calls, one.operator))),
    )


def program_coverage_view(found: ProgramCoverage) -> View[ProgramCoverage]:
    """Return the view of the kernels that programs need."""
    return View(found, document=_document, indent=1)


def _document(found: ProgramCoverage) -> Document:
    of = "with a fallback to the CPU" if found.has_fallback else "without a fallback"
    blocks: list[Block] = [Line(_needed(found), "strong")]
    blocks += (line for one in found.programs for line in _program(one, found))
    if found.kernels:
        heads = ("operator", "calls", "served by", "core", "schema")
        rows = tuple(
            (
                Cell(one.operator, "name"),
                Cell(f"{one.calls:,}", "number", one.calls),
                one.served_by,
                "yes" if one.is_core else "",
                Cell(one.schema.removeprefix(one.operator), "code"),
            )
            for one in found.kernels
        )
        marked = frozenset(at for at, one in enumerate(found.kernels) if one.served_by == MISSING)
        blocks.append(Section("Kernels", (Table("Kernels, most needed first", heads, rows, marked),), "kernels"))
    return Document("coverage", f"{found.device} with the kernels of {found.registry}, {of}", tuple(blocks))


def _needed(found: ProgramCoverage) -> str:
    needed = [one for one in found.kernels if one.served_by != FALLBACK]
    missing = sum(one.served_by == MISSING for one in needed)
    if not needed:
        return "no kernel is needed: the fallback serves every call" if found.kernels else "no call reaches the device"
    seen = " as far as is seen" if any(one.error or one.unserved for one in found.programs) else ""
    verb = "is" if len(needed) == 1 else "are"
    others = len(found.kernels) - len(needed)
    served = f"; the fallback serves {counted(others, 'more operator')}" * bool(others)
    text = f"{counted(len(needed), 'kernel')} {verb} needed{seen}: {missing} to be written"
    return f"{text}, {len(needed) - missing} there{served}"


def _program(one: ProgramOnDevice, found: ProgramCoverage) -> Iterator[Line]:
    number = counted(one.calls, "call")
    if one.stops_at:
        yield Line(f"{one.program}: raises at {one.stops_at}; {number} in all", "bad", indent=2)
    elif not one.calls:
        how = f"have it name {found.device}, and leave out its import of the backend, which a stand-in replaces here"
        yield Line(f"{one.program}: no call reaches the device; {how}", "bad", indent=2)
    elif not one.unserved and not one.error:
        runs = "runs, if the fallback, which is not run here, serves its calls" if found.has_fallback else "runs"
        yield Line(f"{one.program}: {runs}; {number}", "good", indent=2)
    if one.unserved:
        text = f"{one.program}: no kernel of the CPU can stand in for {one.unserved}: later calls are not seen"
        yield Line(text, "warn", indent=2)
    if one.error:
        yield Line(f"{one.program}: raises {one.error.splitlines()[0]}: later calls are not seen", "warn", indent=2)
