"""Coverage on the lab: which operators of a registry a backend can run."""

from __future__ import annotations

from collections.abc import Sequence

from dispatchlab.engine.semantics import Semantics
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.installed_torch import model_for
from dispatchlab.model.keys import DispatchKey
from dispatchlab.questions.sources.find_sources import EmptySourceError
from dispatchlab.questions.sources.replay_on_lab import for_registry
from dispatchlab.registries.backend_coverage import (
    CoverageReport,
    Filled,
    Way,
    coverage,
)
from dispatchlab.registries.builds import backend_named, has_kernels_for, is_in_tree, no_answer
from dispatchlab.registries.model import Recorded, RecordedFallback, RecordedOperator

_WAYS = {Provenance.KERNEL: Way.DIRECT, Provenance.FALLBACK: Way.FALLBACK, Provenance.AMBIGUOUS: Way.AMBIGUOUS}


def coverage_report(
    recorded: Recorded,
    key: DispatchKey,
    *,
    name: str,
    operators: Sequence[RecordedOperator],
    listed: Sequence[Way] = (),
) -> CoverageReport:
    """Find out how a backend covers operators.

    Args:
        recorded: the registry.
        key: the runtime key of the backend.
        name: what to call the registry.
        operators: which of its operators.
        listed: the ways whose operators are to be listed.

    Raises:
        EmptySourceError: there is no operator.
        DispatchLabError: an operator cannot be used.
    """
    if not operators:
        raise EmptySourceError((name,))
    semantics = for_registry(model_for(recorded.torch))
    found = coverage(recorded, key, Fill(semantics, recorded.fallbacks), name=name, operators=operators)
    return CoverageReport(found, tuple(listed), _no_answer(recorded, key, name))


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
