"""Coverage of programs: which kernels make programs run on a backend, most needed first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.program_run import AUTOCAST, FALLBACK, MISSING
from dispatchlab.model.schema import Argument
from dispatchlab.model.schema_parser import parse_schema
from dispatchlab.pytorch.registry import backend_of, live_program
from dispatchlab.questions.coverage.program_trace import read_trace
from dispatchlab.records.model import Recorded, RecordedOperator
from dispatchlab.sources.find_sources import with_tags

_COPY = "aten::copy_"
_FUNCTIONAL = DispatchKey.CompositeExplicitAutogradNonFunctional


@dataclass(frozen=True, slots=True)
class ProgramOnDevice:
    """One program on the device.

    Args:
        program: its file.
        calls: how many calls reach the device.
        stops_at: the operator of the first call that nothing serves, which raises; empty when there is none.
        error: what the program raised although every call was served; empty when it came to its end.
        unserved: the operator at which the look ends, because no kernel of the CPU can stand in; empty for none.
        operators: how many calls of each operator reach it, in the order of the first such calls.
    """

    program: str
    calls: int
    stops_at: str
    error: str
    unserved: str
    operators: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class NeededKernel:
    """An operator whose calls reach the device.

    Args:
        operator: its name, or `fallback` and a key.
        schema: its schema; empty for a fallback, and for an operator that the registry does not have.
        calls: how many calls of it reach the device, in all programs.
        served_by: `own`, a kernel of the backend; `fallback`; or `missing`.
        variants: the operators that its kernel serves as well, through kernels of PyTorch's own.
        is_core: it, or one of these, has the tag `core`.
        parts: what its decomposition in `torch._decomp` calls on the device, where a kernel is missing and all of that
            is in this list or is served; empty otherwise.
    """

    operator: str
    schema: str
    calls: int
    served_by: str
    variants: tuple[str, ...]
    is_core: bool
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProgramCoverage:
    """What programs need of a backend.

    Args:
        registry: where its kernels are from.
        device: its name.
        has_fallback: whether it has a fallback to the CPU.
        programs: how each program runs.
        kernels: the operators whose calls reach the device, those with the most calls first.
        trace: the file with the calls; empty where the programs ran.
        tags: the tags of which each of the kernels has all; empty where every kernel is listed.
    """

    registry: str
    device: str
    has_fallback: bool
    programs: tuple[ProgramOnDevice, ...]
    kernels: tuple[NeededKernel, ...]
    trace: str = ""
    tags: tuple[str, ...] = ()

    @cached_property
    def needed(self) -> tuple[NeededKernel, ...]:
        """The kernels that make the programs run: the backend's own ones, and the missing ones."""
        return tuple(one for one in self.kernels if one.served_by != FALLBACK)

    @cached_property
    def missing(self) -> tuple[NeededKernel, ...]:
        """The kernels that are to be written."""
        return tuple(one for one in self.kernels if one.served_by == MISSING)

    @cached_property
    def saved(self) -> tuple[str, ...]:
        """The missing kernels that decompositions save, whose parts stay in the list."""
        saved: dict[str, tuple[str, ...]] = {}
        for one in reversed(self.missing):  # those with the fewest calls first
            used = {part for parts in saved.values() for part in parts}
            if one.parts and one.operator not in used and not saved.keys() & {*one.parts}:
                saved[one.operator] = one.parts
        return tuple(one.operator for one in self.missing if one.operator in saved)

    def first_for(self, part: float) -> int:
        """How many of the needed kernels, most needed first, take this part of their calls."""
        total, found = sum(one.calls for one in self.needed), 0
        for number, one in enumerate(self.needed):
            if found >= part * total:
                return number
            found += one.calls
        return len(self.needed)


def program_coverage(
    recorded: Recorded,
    key: DispatchKey,
    programs: Sequence[str],
    *,
    name: str,
    device: str = "",
    fallback: bool | None = None,
    default: bool = False,
    trace: str = "",
    tags: Sequence[str] = (),
) -> ProgramCoverage:
    """Run programs on a device that stands in for a backend, each in a process of its own, or look at such runs.

    Args:
        recorded: the registry with the kernels of the backend.
        key: its key.
        programs: the files.
        name: what to call the registry.
        device: what the programs call the device; the name that the registry has for it when empty.
        fallback: whether to suppose a fallback to the CPU; None for what the registry has.
        default: make it the default device before a program begins.
        trace: what an earlier answer for programs printed as JSON, in whose place no program runs; empty for none.
        tags: list only the kernels that serve an operator with all of these tags.

    Raises:
        UnknownTagError: no operator has one of the tags.
        TraceError: the file cannot be read, or its programs ran with a fallback and the backend has none, or the
            reverse.
        NoStandInError: the key is not PrivateUse1.
        StandInError: the installed PyTorch cannot stand in for a device.
        TorchMissingError: PyTorch is not installed.
        WorkerCrashed: a program ends its process.
    """
    tagged = {str(one.name) for one in with_tags(recorded, tags)}
    traced = read_trace(trace) if trace else None
    backend = backend_of(recorded, key, device=device or (traced.device if traced else ""), fallback=fallback)
    operators = {str(one.name): one for one in recorded}
    if traced is None:
        options: tuple[Literal["default", "parts"], ...] = ("default", "parts") if default else ("parts",)
        runs = {path: live_program(path, backend, *options) for path in programs}
    else:
        runs = traced.with_kernels(backend)
    counts = Counter[tuple[str, str]]()
    for run in runs.values():
        counts.update(run.calls)
    if (_COPY, MISSING) in counts:  # a kernel that takes the calls of the other one, too
        counts[_COPY, MISSING] += counts.pop(("aten::_copy_from", MISSING), 0)
    served = {operator: by for operator, by in counts if by != FALLBACK}
    served |= {operator: by for operator, by in counts if by == MISSING}  # a fallback that leads to itself
    calls = _called(counts)
    shared = _variants(operators, calls)
    there = {*calls, *backend.kernels}
    parts = {
        name: of for run in runs.values() for name, of in run.parts.items() if backend.has_fallback or there >= {*of}
    }
    found = (
        _needed(
            operator,
            calls[operator],
            served.get(operator, FALLBACK),
            operators.get(operator),
            shared[operator],
            parts.get(operator, ()),
        )
        for operator in calls
    )
    return ProgramCoverage(
        name,
        backend.device,
        backend.has_fallback,
        tuple(
            ProgramOnDevice(
                path,
                sum(run.calls.values()),
                next((_text(operator) for operator, by in run.calls if by == MISSING), ""),
                "" if run.unserved else run.error,
                run.unserved,
                tuple(_called(run.calls).items()),
            )
            for path, run in runs.items()
        ),
        tuple(
            sorted(
                (one for one in found if not tags or tagged.intersection((one.operator, *one.variants))),
                key=lambda one: (-one.calls, one.operator),
            )
        ),
        trace,
        tuple(tags),
    )


def _called(calls: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """How many calls of each operator there are, whatever served them."""
    found = Counter[str]()
    for (operator, _), number in calls.items():
        found[operator] += number
    return found


def _text(operator: str) -> str:
    return f"fallback {operator}" if operator == AUTOCAST else operator


def _needed(
    operator: str,
    calls: int,
    served: str,
    recorded: RecordedOperator | None,
    variants: Sequence[RecordedOperator],
    parts: tuple[str, ...],
) -> NeededKernel:
    all_of = (*variants, *([] if recorded is None else [recorded]))
    return NeededKernel(
        _text(operator),
        "" if recorded is None or recorded.schema is None else recorded.schema,
        calls,
        served,
        tuple(str(one.name) for one in variants),
        any("core" in one.tags for one in all_of),
        parts,
    )


def _variants(
    operators: Mapping[str, RecordedOperator], called: Iterable[str]
) -> Mapping[str, tuple[RecordedOperator, ...]]:
    """The operators that run each of these, by PyTorch's kernels for operators with a structured out variant.

    They have the name of the out variant, perhaps with `_`, and its arguments but for `out`.
    """
    found: dict[str, tuple[RecordedOperator, ...]] = dict.fromkeys(called, ())
    outs = {_shape(operators[name], without_out=True): name for name in found if name in operators}
    outs.pop(None, None)
    for name, one in operators.items():
        if one.active_at(_FUNCTIONAL) is not None and name not in found:
            out = outs.get(_shape(one, without_out=False))
            if out is not None:
                found[out] = (*found[out], one)
    return found


def _shape(one: RecordedOperator, *, without_out: bool) -> tuple[str, ...] | None:
    """The name without `_`, and the arguments; None for an operator that has no out argument and should."""
    if one.schema is None:
        return None
    schema = parse_schema(one.schema)
    arguments = [argument for argument in schema.arguments if not (without_out and _is_out(argument))]
    if without_out and len(arguments) == len(schema.arguments):
        return None
    base = f"{one.name.namespace}::{one.name.name.removesuffix('_')}"
    return (base, *(f"{argument.type} {argument.name}" for argument in arguments))


def _is_out(argument: Argument) -> bool:
    return argument.kwarg_only and argument.is_written
