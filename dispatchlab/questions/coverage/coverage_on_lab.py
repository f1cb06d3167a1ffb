"""Coverage on the lab: which operators of a registry a backend can run, and what further registrations would change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dispatchlab.engine.handle import RegistrationHandle
from dispatchlab.engine.semantics import Semantics
from dispatchlab.errors import RegistrationError
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.installed_torch import model_for
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.registration import Fallback, Impl, Kernel, KernelFlags, KernelForm, Registration
from dispatchlab.model.schema_parser import parse_name
from dispatchlab.questions.sources.find_sources import EmptySourceError
from dispatchlab.questions.sources.replay_on_lab import bench, for_registry
from dispatchlab.registries.backend_coverage import (
    Coverage,
    CoverageReport,
    Filled,
    Moved,
    Supposition,
    Way,
    WhatIf,
    compared,
    coverage,
    parse_what_if,
)
from dispatchlab.registries.builds import backend_named, has_kernels_for, is_in_tree, no_answer
from dispatchlab.registries.model import Recorded, RecordedFallback, RecordedKernel, RecordedOperator
from dispatchlab.registries.replay import run

SEMANTICS = "strict"
"""The precedence that coverage goes by; it is the same under all semantics that replay a registry."""

_WAYS = {Provenance.KERNEL: Way.DIRECT, Provenance.FALLBACK: Way.FALLBACK, Provenance.AMBIGUOUS: Way.AMBIGUOUS}


def coverage_report(
    recorded: Recorded,
    key: DispatchKey,
    *,
    name: str,
    operators: Sequence[RecordedOperator],
    listed: Sequence[Way] = (),
    what_if: Sequence[str] = (),
) -> CoverageReport:
    """Find out how a backend covers operators, and how it would with more registrations.

    Args:
        recorded: the registry.
        key: the runtime key of the backend.
        name: what to call the registry.
        operators: which of its operators.
        listed: the ways whose operators are to be listed.
        what_if: registrations to suppose, `impl OP KEY` or `fallback KEY`, one on top of the other.

    Raises:
        WhatIfError: a supposed registration cannot be read.
        EmptySourceError: there is no operator.
        DispatchLabError: an operator cannot be used.
    """
    if not operators:
        raise EmptySourceError((name,))
    semantics = for_registry(model_for(recorded.torch))
    found = coverage(recorded, key, Fill(semantics, recorded.fallbacks), name=name, operators=operators)
    supposed = [parse_what_if(text, recorded.names) for text in what_if]
    return CoverageReport(
        found,
        tuple(listed),
        tuple(_what_if(recorded, supposed)),
        tuple(_moved(recorded, found, supposed, semantics, operators)) if supposed else (),
        _no_answer(recorded, key, name),
    )


def _no_answer(recorded: Recorded, key: DispatchKey, name: str) -> str:
    """Why nothing follows for a backend whose kernels come with other builds; empty where all is well."""
    backend = backend_named(key)
    if backend is None or not is_in_tree(backend) or has_kernels_for(recorded.torch, recorded.imports, backend):
        return ""
    return no_answer(name, recorded.torch, backend)


class Fill:
    """What a slot of an operator holds, by the precedence of some semantics, key by key."""

    def __init__(self, semantics: Semantics, fallbacks: Sequence[RecordedFallback]) -> None:
        self._plain = semantics.precedence.plain
        self._fallthrough = frozenset(fallback.key for fallback in fallbacks if fallback.fallthrough)
        self._fallbacks = frozenset(fallback.key for fallback in fallbacks)

    def __call__(self, operator: RecordedOperator, key: DispatchKey) -> Filled:
        direct = frozenset(kernel.key for kernel in operator.kernels)
        for candidate in self._plain.candidates(key, direct, self._fallbacks, self._fallthrough):
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


def _what_if(recorded: Recorded, supposed: Sequence[Supposition]) -> Iterator[WhatIf]:
    """Each registration on a dispatcher that has its operators, and what was supposed before it."""
    names = tuple(dict.fromkeys(name for each in supposed for name in each.operators))
    made = bench(recorded, semantics=SEMANTICS, operators=names)
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
