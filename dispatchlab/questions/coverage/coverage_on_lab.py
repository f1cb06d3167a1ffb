"""Coverage on the lab: which operators of a registry a backend can run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from dispatchlab.engine.semantics import Semantics
from dispatchlab.errors import RequestError
from dispatchlab.model.dump_format import Provenance, TableEntry, aliases_of, parse_table
from dispatchlab.model.installed_torch import model_for
from dispatchlab.model.keys import RUNTIME_KEYS, DispatchKey
from dispatchlab.questions.sources.replay_on_lab import for_registry
from dispatchlab.registries.backend_coverage import CoverageReport, Filled, FillOf, Stale, Way, coverage
from dispatchlab.registries.builds import backend_named, has_kernels_for, is_in_tree, no_answer
from dispatchlab.registries.debug_text import owner
from dispatchlab.registries.model import Recorded, RecordedFallback, RecordedOperator
from dispatchlab.views.formatting import counted

_WAYS = {Provenance.KERNEL: Way.DIRECT, Provenance.FALLBACK: Way.FALLBACK, Provenance.AMBIGUOUS: Way.AMBIGUOUS}


def coverage_report(
    recorded: Recorded,
    key: DispatchKey,
    *,
    name: str,
    operators: Sequence[RecordedOperator],
    listed: Sequence[Way] = (),
) -> CoverageReport:
    """Return how a backend covers operators.

    Args:
        recorded: the registry.
        key: the runtime key of the backend.
        name: the name of the registry in output.
        operators: the operators to include.
        listed: the ways whose operators are listed.

    Raises:
        RequestError: there is no operator.
        DispatchLabError: an operator cannot be used.
    """
    if not operators:
        raise RequestError(f"{name} has no operator, so there is nothing to report: record some that do")
    semantics = for_registry(model_for(recorded.torch))
    found = coverage(recorded, key, Fill(semantics, recorded.fallbacks), name=name, operators=operators)
    backend = backend_named(key) or ""
    other = is_in_tree(backend) and not has_kernels_for(recorded.torch, recorded.imports, backend)
    lacks = no_answer(name, recorded.torch, backend).replace("no answer for", "the table is incomplete for", 1)
    return CoverageReport(found, tuple(listed), f"{lacks}; it has only the kernels for all backends" if other else "")


class Fill:
    """Finds the kernel that calls use at a key: in the recorded slot, else in a computed table.

    Args:
        semantics: the semantics of the table.
        fallbacks: the backend fallbacks.
    """

    def __init__(self, semantics: Semantics, fallbacks: Sequence[RecordedFallback]) -> None:
        self._plain = semantics.precedence.plain
        self._fallthrough = frozenset(fallback.key for fallback in fallbacks if fallback.fallthrough)
        self._fallbacks = frozenset(fallback.key for fallback in fallbacks)

    def __call__(self, operator: RecordedOperator, key: DispatchKey) -> Filled:
        computed = self._computed(operator, key)
        if not operator.slots:
            return computed
        held = _slots(operator.slots).get(key)
        kernel = None if computed.source is None else operator.active_at(computed.source)
        says = "" if kernel is None else kernel.debug
        way = Way.MISSING if held is None else _WAYS.get(held.provenance, Way.COMPOSITE)
        if way is computed.way and (way is not Way.COMPOSITE or held is None or held.debug == says):
            return computed
        if held is None:
            return Filled(way, stale=Stale("", says))
        keys = aliases_of(held.provenance) or (key,)
        source = next((one.key for one in operator.kernels if one.key in keys and one.debug == held.debug), keys[-1])
        return Filled(way, source, held.fallthrough, Stale(held.debug, says))

    def _computed(self, operator: RecordedOperator, key: DispatchKey) -> Filled:
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


@lru_cache(1)
def _slots(text: str) -> Mapping[DispatchKey, TableEntry]:
    return parse_table(text)


def stale_text(operator: RecordedOperator, fill: FillOf, torch: str) -> str:
    """Return a sentence about the slots that hold another kernel than the table shows; empty without such slots.

    Args:
        operator: the operator, as it was recorded.
        fill: the content of its slots.
        torch: the version of PyTorch.
    """
    held = ((key, fill(operator, key).stale) for key in RUNTIME_KEYS) if operator.slots else ()
    stale = [(key, each) for key, each in held if each is not None]
    if not stale:
        return ""
    (key, first), count = stale[0], counted(len(stale), "stale slot")
    runs, says = (owner(debug) if debug else "no kernel" for debug in (first.held, first.says))
    version = ".".join(torch.split(".")[:2])
    return f"calls at {key} run {runs} where the table says {says}: {count}, a defect of PyTorch {version}"
