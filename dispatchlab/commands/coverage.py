"""`dispatchlab coverage`: what a backend can run, and what a registration would change."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dispatchlab.analysis.replay_on_lab import bench, for_registry
from dispatchlab.analysis.sources import chosen, recorded_from
from dispatchlab.commands.output import Format, chosen_format, note, out
from dispatchlab.engine.handle import RegistrationHandle
from dispatchlab.engine.semantics import Semantics
from dispatchlab.errors import RegistrationError
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.registration import Fallback, Impl, Kernel, KernelFlags, KernelForm, Registration
from dispatchlab.model.schema_parser import parse_name
from dispatchlab.registry.bundled import DEFAULT
from dispatchlab.registry.coverage import Coverage, Filled, Way, coverage, runtime_key
from dispatchlab.registry.model import Recorded, RecordedFallback, RecordedKernel, RecordedOperator
from dispatchlab.registry.replay import run
from dispatchlab.registry.what_if import CoverageReport, Moved, Supposition, WhatIf, compared, parse_what_if

_WAYS = {Provenance.KERNEL: Way.DIRECT, Provenance.FALLBACK: Way.FALLBACK, Provenance.AMBIGUOUS: Way.AMBIGUOUS}


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageRequest:
    """What was asked for; each field is an option of the command."""

    key: str
    source: str = DEFAULT
    operators: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    what_if: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    semantics: str = "strict"
    format: Format | None = None
    color: bool = True


def show_coverage(request: CoverageRequest) -> int:
    """Print the coverage.

    Returns:
        The exit code: 0.

    Raises:
        DispatchLabError: the source, the key, an operator or a supposition cannot be used.
    """
    key = runtime_key(request.key)
    recorded = recorded_from(request.source, imports=request.imports, report=note)
    report = coverage_report(recorded, key, request)
    match chosen_format(request.format):
        case "json":
            from dispatchlab.render.coverage import coverage_json

            out(coverage_json(report))
        case "text":
            from dispatchlab.render.coverage import coverage_text

            out(coverage_text(report))
        case "rich":
            from dispatchlab.render.coverage import print_coverage
            from dispatchlab.render.rich_view import console

            terminal = console(sys.stdout, color=request.color)
            with terminal.capture() as captured:
                print_coverage(terminal, report)
            out(captured.get())
    return 0


def coverage_report(recorded: Recorded, key: DispatchKey, request: CoverageRequest) -> CoverageReport:
    """What the command shows.

    Raises:
        DispatchLabError: an operator or a supposition cannot be used.
    """
    operators = tuple(chosen(recorded, request.operators))
    semantics = for_registry(request.semantics)
    found = coverage(recorded, key, Fill(semantics, recorded.fallbacks), name=request.source, operators=operators)
    supposed = [parse_what_if(text, recorded.names) for text in request.what_if]
    return CoverageReport(
        found,
        tuple(Way(way) for way in request.listed),
        tuple(_what_if(recorded, supposed, request.semantics)),
        tuple(_moved(recorded, found, supposed, semantics, operators)) if supposed else (),
    )


class Fill:
    """Asks a precedence, key by key, what a slot holds."""

    def __init__(self, semantics: Semantics, fallbacks: Sequence[RecordedFallback]) -> None:
        self._plain = semantics.precedence.plain
        self._fallthrough = frozenset(fallback.key for fallback in fallbacks if fallback.fallthrough)
        self._fallbacks = frozenset(fallback.key for fallback in fallbacks)

    def __call__(self, operator: RecordedOperator, key: DispatchKey) -> Filled:
        direct = frozenset(kernel.key for kernel in operator.kernels)
        for candidate in self._plain(key, direct, self._fallbacks, self._fallthrough):
            if candidate.held_back:
                continue
            way = _WAYS.get(candidate.reason, Way.COMPOSITE)
            if way is Way.FALLBACK:
                return Filled(way, key, key in self._fallthrough)
            kernel = None if candidate.source is None else operator.active_at(candidate.source)
            return Filled(way, candidate.source, kernel is not None and kernel.is_fallthrough)
        return Filled(Way.MISSING)


def _registration(supposed: Supposition, operator: str | None) -> Registration:
    kernel = Kernel(KernelForm.FALLTHROUGH if supposed.fallthrough else KernelForm.BOXED)
    if operator is None:
        return Fallback(supposed.key, kernel, "your fallback")
    return Impl(parse_name(operator), supposed.key, kernel, "your kernel")


def _what_if(recorded: Recorded, supposed: Sequence[Supposition], semantics: str) -> Iterator[WhatIf]:
    """Each registration on a dispatcher that has its operators, and what was supposed before it."""
    names = tuple(dict.fromkeys(name for each in supposed for name in each.operators))
    made = bench(recorded, semantics=semantics, operators=names)
    in_force: list[RegistrationHandle] = []
    for each in supposed:
        targets: tuple[str | None, ...] = each.operators or (None,)
        for name in targets:
            before = None if name is None else made.dispatcher.explain(name)
            try:
                in_force += run([_registration(each, name)], made.dispatcher.register)
            except RegistrationError as error:
                yield WhatIf(each.text, name or "", refused=error.message)
                continue
            after = None if name is None else made.dispatcher.explain(name)
            if before is not None and after is not None:
                yield compared(each.text, each.key, before, after)


def _moved(
    recorded: Recorded,
    found: Coverage,
    supposed: Sequence[Supposition],
    semantics: Semantics,
    operators: Sequence[RecordedOperator],
) -> Iterator[Moved]:
    """How many operators are covered in another way when all that is supposed is there."""
    fallbacks = {fallback.key: fallback for fallback in recorded.fallbacks}
    added: dict[str, list[RecordedKernel]] = {}
    for each in supposed:
        if not each.operators:
            fallbacks.setdefault(each.key, RecordedFallback(each.key, each.fallthrough, "your fallback"))
        for name in each.operators:
            flags = KernelFlags.FALLTHROUGH if each.fallthrough else KernelFlags.BOXED
            added.setdefault(name, []).insert(0, RecordedKernel(each.key, "your kernel", None, flags))
    fill = Fill(semantics, tuple(fallbacks.values()))
    pairs: dict[tuple[Way, Way], list[str]] = {}
    for before, operator in zip(found.operators, operators, strict=True):
        changed = _with_kernels(operator, added.get(before.operator, ()))
        after = fill(changed, found.key)
        if after.way is not before.filled.way:
            pairs.setdefault((before.filled.way, after.way), []).append(before.operator)
    for (old, new), names in sorted(pairs.items()):
        yield Moved(old, new, len(names), names[0])


def _with_kernels(operator: RecordedOperator, added: Sequence[RecordedKernel]) -> RecordedOperator:
    """An operator with newer kernels."""
    kernels = sorted([*added, *operator.kernels], key=lambda kernel: kernel.key)
    seen: set[DispatchKey] = set()
    active = []
    for kernel in kernels:
        active.append(replace(kernel, active=kernel.key not in seen))
        seen.add(kernel.key)
    return replace(operator, kernels=tuple(active))
