"""Neighbourhoods of an operator: the registrations that reach the same slots, explored in all orders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from typing import TypeAlias

from dispatchlab.engine.fallbacks import NO_FALLBACKS
from dispatchlab.engine.invariants import stale_keys
from dispatchlab.engine.kernel import RegisteredKernel
from dispatchlab.engine.lab_engine import LabSpace
from dispatchlab.engine.precedence import Slots, computed_table
from dispatchlab.engine.semantics import Semantics, is_builtin
from dispatchlab.model.keys import SLOT_KEYS, DispatchKey
from dispatchlab.model.registration import Def, Fallback, Impl, Kernel, Registration
from dispatchlab.model.schema_parser import parse_name, parse_schema
from dispatchlab.model.sequence import StepSequence
from dispatchlab.model.slot_set import KEY_BIT, KEY_OF_BIT, key_bits, set_bits
from dispatchlab.prover.chains import Chains
from dispatchlab.prover.graph_walk import explore_graph
from dispatchlab.prover.result import Verdict
from dispatchlab.questions.certify.certificate import Pattern

MAX_KEYS = 16
"""The sets of more kernels than this are not gone through."""


def keys_in(bits: int) -> frozenset[DispatchKey]:
    """Return the keys of these bits; the bit of kernels without a key stands for no key."""
    found = {KEY_OF_BIT[1 << at] for at in set_bits(bits)}
    return frozenset(key for key in found if key is not None)


def slots_left_stale(semantics: Semantics, keys: Sequence[DispatchKey]) -> frozenset[int]:
    """Return the slots that one of these kernels changes without a refresh, for some set of the other kernels."""
    tables = {}
    for count in range(len(keys) + 1):
        for chosen in combinations(keys, count):
            tables[key_bits(chosen)] = _table(semantics, key_bits(chosen))
    found = 0
    for present, table in tables.items():
        for key in keys:
            bit = KEY_BIT[key]
            if not present & bit:
                found |= stale_keys(table, tables[present | bit]) & ~(semantics.refresh[key] & semantics.released[key])
    return frozenset(set_bits(found))


def patterns_with_stale_slots(semantics: Semantics, patterns: Iterable[Pattern]) -> frozenset[Pattern]:
    """Return the patterns in which a kernel can change a slot that it does not refresh.

    In all other patterns, no slot is ever stale.
    """
    known: dict[int, bool] = {}

    def can(judged: int) -> bool:
        if judged not in known:
            keys = sorted(keys_in(judged))
            known[judged] = len(keys) > MAX_KEYS or bool(slots_left_stale(semantics, keys))
        return known[judged]

    def concerns(pattern: Pattern) -> bool:
        present = key_bits(pattern.kernel_keys)
        relevant = semantics.precedence.plain.relevant
        return any(can(judged) for judged in {relevant[slot] & present for slot in range(len(SLOT_KEYS))})

    return frozenset(filter(concerns, patterns))


def order_with_stale_slot(semantics: Semantics, pattern: Pattern, slot: int) -> tuple[DispatchKey, ...] | None:
    """Return an order of all kernels that leaves a slot stale; None if there is no such order.

    The last kernel that refreshes the slot decides. So it is enough to choose which of the kernels without a refresh
    come before.
    """
    keys, refresh = sorted(pattern.kernel_keys), semantics.refresh
    lazy = [
        key for key in keys if KEY_BIT[key] & semantics.precedence.plain.relevant[slot] and not refresh[key] >> slot & 1
    ]
    eager = [key for key in keys if refresh[key] >> slot & 1]
    rest = [key for key in keys if key not in lazy and key not in eager]
    whole = _table(semantics, key_bits(keys))
    for count in range(len(lazy) if eager else 1):
        for before in combinations(lazy, count):
            if stale_keys(_table(semantics, key_bits([*before, *eager])), whole) >> slot & 1:
                return (*rest, *before, *eager, *(key for key in lazy if key not in before))
    return None


def _table(semantics: Semantics, present: int) -> Slots:
    kernels = {bit: (_entry(bit),) for bit in KEY_OF_BIT if present & bit}
    return computed_table(semantics.precedence, present, kernels, NO_FALLBACKS)


@cache
def _entry(bit: int) -> RegisteredKernel:
    return RegisteredKernel(Kernel(), "", KEY_OF_BIT[bit])


KeySequence: TypeAlias = tuple[tuple[DispatchKey | None, bool], ...]
"""A sequence by the keys of its kernels, None for the def, and whether each step is a release."""

NAME = parse_name("pattern::operator")
SCHEMA = parse_schema("pattern::operator(Tensor x) -> Tensor")


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """Keys that are explored together.

    Args:
        kernels: each key with its number of kernels.
        fallback: the fallback that is also registered and released; the other fallbacks stay in force.
    """

    kernels: tuple[tuple[DispatchKey, int], ...]
    fallback: DispatchKey | None = None

    @property
    def size(self) -> int:
        """The number of registrations, with the def."""
        return 1 + sum(count for _, count in self.kernels) + (self.fallback is not None)

    @property
    def rank(self) -> tuple[int, tuple[tuple[DispatchKey, int], ...], DispatchKey]:
        """The sort key: smaller neighbourhoods come first."""
        return self.size, self.kernels, self.fallback or DispatchKey.Undefined


@dataclass(frozen=True, slots=True)
class Explored:
    """The result of a neighbourhood.

    Args:
        sets: active sets.
        edges: registrations and releases.
        sequences: the two sequences of a counterexample, as keys with whether they are released; None means the def.
        trouble: a sentence that says why there is no verdict; empty if there is one.
        stale: after a violation, the slots that a kernel can leave stale.
    """

    sets: int
    edges: int
    sequences: tuple[KeySequence, ...] = ()
    trouble: str = ""
    stale: frozenset[int] = frozenset()


def explore_neighbourhood(semantics: Semantics, neighbourhood: Neighbourhood) -> Explored:
    """Walk every set of a neighbourhood, in both directions of every edge.

    Args:
        semantics: the dispatcher, with the fallbacks of the registry.
        neighbourhood: the registrations that are made and released.
    """
    plain, registrations, order = scenario_of(semantics, neighbourhood)
    space = LabSpace(registrations, [NAME], plain)
    found = explore_graph(space, len(registrations), order=order)
    strange = space.touched() - space.shared_variables() - {str(NAME)}
    trouble, stale = "", frozenset[int]()
    sequences: tuple[KeySequence, ...] = ()
    if found.conflicts or found.never_accepted:
        trouble = "a registration was refused"
    elif found.verdict is Verdict.ORDER_DEPENDENT and found.counterexample is not None:
        counterexample = found.counterexample
        stale = slots_left_stale(semantics, [key for key, _ in neighbourhood.kernels])
        sequences = tuple(
            _in_keys(sequence, registrations)
            for sequence in (counterexample.expected_sequence, counterexample.actual_sequence)
        )
        if not stale or any(
            isinstance(registrations[~at if at < 0 else at], Fallback) for at in counterexample.actual_sequence
        ):
            trouble = f"the exploration found what no kernel explains: {counterexample.flaw}"
    elif found.verdict is not Verdict.ORDER_INDEPENDENT:
        trouble = f"the exploration ended as {found.verdict}"
        if found.counterexample is not None:
            trouble += f": {'; '.join(found.counterexample.why) or found.counterexample.flaw}"
    if strange and not trouble:
        trouble = f"a registration touched {min(map(str, strange))}, which is not its operator"
    return Explored(found.sets, found.edges, sequences, trouble, stale)


def scenario_of(
    semantics: Semantics, neighbourhood: Neighbourhood
) -> tuple[Semantics, tuple[Registration, ...], Chains]:
    """Return a neighbourhood as a scenario: a def, kernels and the fallback, with the order of each key's kernels.

    Args:
        semantics: the dispatcher, with the fallbacks of the registry.
        neighbourhood: the registrations that are made and released.
    """
    in_force = tuple(fallback for fallback in semantics.fallbacks if fallback.key is not neighbourhood.fallback)
    coming = tuple(fallback for fallback in semantics.fallbacks if fallback.key is neighbourhood.fallback)
    registrations: list[Registration] = [Def(SCHEMA)]
    order: list[int] = []
    for key, count in neighbourhood.kernels:
        if count > 1:
            order += range(len(registrations), len(registrations) + count)
        registrations += [Impl(NAME, key, Kernel(), f"{key} {number}") for number in range(count)]
    return replace(semantics, fallbacks=in_force), (*registrations, *coming), (order,) if order else ()


def _in_keys(sequence: StepSequence, registrations: Sequence[Registration]) -> KeySequence:
    steps = []
    for step in sequence:
        registration = registrations[~step if step < 0 else step]
        steps.append((registration.key if isinstance(registration, Impl) else None, step < 0))
    return tuple(steps)


def fallback_comes_and_goes(semantics: Semantics, fallback: Fallback) -> bool:
    """Return whether the proof registers and releases a fallback."""
    return fallback.key is not None and not stays(semantics, fallback.key, fallback.debug)


def stays(semantics: Semantics, key: DispatchKey, debug: str) -> bool:
    """Return whether a fallback of a registry replaced another fallback, so that it is always in force.

    Its release does not restore the state before its registration: see Note [Fallbacks that replace].
    """
    replaces = key in semantics.replaceable_fallbacks and not semantics.replaced_fallback_returns
    return replaces and not is_builtin(debug)
