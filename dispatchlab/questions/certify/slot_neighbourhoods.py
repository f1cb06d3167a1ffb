"""Neighbourhoods of slots: one kernel of each role, each kernel in turn, and which of them are equal up to renaming.

See Note [Kernels that play the same part].
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from dispatchlab.engine.dependences import Variable, dependences
from dispatchlab.engine.footprint import judged_keys
from dispatchlab.engine.lab_engine import LabSpace
from dispatchlab.engine.lowering import lower
from dispatchlab.engine.primitives import RegisterImpl
from dispatchlab.engine.reference_precedence import winner
from dispatchlab.engine.semantics import Semantics
from dispatchlab.model.dependence import Dependence
from dispatchlab.model.keys import SLOT_OF_KEY, DispatchKey
from dispatchlab.model.registration import Def, Impl, Kernel, Registration
from dispatchlab.model.slot_set import KEY_OF_BIT, set_bits
from dispatchlab.prover.chains import keeping, later_masks
from dispatchlab.prover.neighbourhoods import combination, one_of_each_role
from dispatchlab.prover.prng import SplitMix64
from dispatchlab.prover.result import Verdict
from dispatchlab.prover.symmetry import Symmetry
from dispatchlab.questions.certify.certificate import Pattern
from dispatchlab.questions.certify.operator_neighbourhoods import (
    MAX_KEYS,
    NAME,
    SCHEMA,
    Explored,
    Neighbourhood,
    fallback_comes_and_goes,
    key_bits,
    scenario_of,
)

# Note [Kernels that play the same part]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Of 18 kernels of an operator, a slot is filled from at most seven places: its own key, five alias keys, and
# any of the keys that take the composite kernel away from it. A slot does not see which of those it was. So the
# neighbourhood of a slot has one kernel of each role, as in docs/proof.md, with each kernel of a role in turn, and with
# each fallback that writes the slot in turn, the others in force. All kernels of one key come together, and how many
# there are is part of the role.
# Neighbourhoods with equal tables, up to which key is which, are explored once, by what is said in symmetry.py. A
# backend that joins with the kernels that others have adds none.
# What is checked:
#   (groups)     who wins a slot depends on the groups alone that the precedence declares, and slots with the same names
#                of groups have the same winner: every combination, with one member of each role, with each other in
#                its place, with all of them, and with all keys besides that the slot may look at (`undeclared`);
#   (walk)       a neighbourhood is explored in both directions of every edge, each slot compared with the plain
#                computation, as Note [What a certificate stands on] says, (d) included;
#   (reads)      no refresh of a window read a key that the plain computation would not look at for its slots;
#   (alike)      of a neighbourhood that is not explored the tables are equal up to renaming to those of one that is,
#                and a random sequence of its own keeps every slot as it should be;
#   (far)        the same for sequences over all registrations of every operator, as there.
# A pattern where one of these fails is explored by whole windows, as that note has it, and the report counts it.


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """The neighbourhoods of some patterns.

    Args:
        wanted: the neighbourhoods of each pattern that can be taken so.
        explored: which of them to explore.
        alike: the others -> the one of those that has equal tables.
    """

    wanted: Mapping[Pattern, frozenset[Neighbourhood]]
    explored: tuple[Neighbourhood, ...]
    alike: Mapping[Neighbourhood, Neighbourhood]

    def unproved(
        self, semantics: Semantics, known: Mapping[Neighbourhood, Explored], looks: Mapping[Neighbourhood, str]
    ) -> set[Pattern]:
        """The patterns of which something that they stand on was not found so.

        Args:
            semantics: the dispatcher.
            known: what the exploration of each has shown.
            looks: what a sequence over each of the others has shown, a sentence; empty when nothing.
        """
        wrong = {
            each
            for each in self.explored
            if (found := known[each]).verdict is not Verdict.ORDER_INDEPENDENT
            or (found.trouble or found.strays or found.stale)
            or reads_more(semantics, found.reads)
        }
        wrong |= {each for each, like in self.alike.items() if looks[each] or like in wrong}
        return {pattern for pattern, wanted in self.wanted.items() if wanted & wrong}


def slot_plan(semantics: Semantics, patterns: Sequence[Pattern]) -> SlotPlan:
    """The neighbourhoods of the slots of patterns; a pattern that cannot be taken so is left out.

    Args:
        semantics: the dispatcher, with the fallbacks of the registry.
        patterns: what operators have in common.
    """
    roles = _Roles(semantics, {key for pattern in patterns for key in pattern.keys})
    if roles.is_unknown or undeclared(semantics, roles.keys):
        return SlotPlan({}, (), {})
    wanted = {pattern: found for pattern in patterns if (found := roles.neighbourhoods(pattern)) is not None}
    first: dict[Hashable, Neighbourhood] = {}
    alike: dict[Neighbourhood, Neighbourhood] = {}
    for each in sorted(frozenset().union(*wanted.values()), key=lambda one: one.rank):
        shape = roles.shape(each)
        same = first.setdefault(shape, each)
        if same is not each:
            alike[each] = same
    return SlotPlan(wanted, tuple(first.values()), alike)


class _Roles:
    """What kernels at keys, and fallbacks, do to slots, by the tables of the semantics."""

    def __init__(self, semantics: Semantics, keys: Iterable[DispatchKey]) -> None:
        plain = replace(semantics, fallbacks=())
        within = replace(plain, keys=frozenset(DispatchKey))  # fallbacks come from within, as `initial_state` has them
        self.keys = tuple(sorted(keys))
        fallbacks = sorted(semantics.fallbacks, key=lambda one: not fallback_comes_and_goes(semantics, one))
        registrations: list[Registration] = [Def(SCHEMA)]
        registrations += [Impl(NAME, key, Kernel(), str(key)) for key in self.keys]
        lowered = [lower(one, plain) for one in registrations] + [lower(fallback, within) for fallback in fallbacks]
        found = dependences(lowered, plain)
        self.is_unknown = isinstance(found, str)
        declared: Mapping[Hashable, Dependence] = {} if isinstance(found, str) else found
        self._of_key = {key: at for at, key in enumerate(self.keys, 1)}
        self._refused = {
            key for key, at in self._of_key.items() if not isinstance(lowered[at].primitives[0], RegisterImpl)
        }
        first = 1 + len(self.keys)
        self._of_fallback = {
            one.key: at for at, one in enumerate(fallbacks, first) if fallback_comes_and_goes(semantics, one)
        }
        self._fallback_at = {at: key for key, at in self._of_fallback.items()}
        self._kernels = (1 << first) - 2
        self._coming = sum(1 << at for at in self._fallback_at)
        background = (1 << len(lowered)) - (1 << first)
        self._symmetry = Symmetry(declared, background)
        self._slots = [
            (one, sum(1 << index for index in one.roles))
            for variable, one in declared.items()
            if isinstance(variable, Variable) and variable.kind == "slot"
        ]
        self._known: dict[tuple[int, tuple[tuple[DispatchKey, int], ...]], tuple[Neighbourhood, ...]] = {}

    def neighbourhoods(self, pattern: Pattern) -> frozenset[Neighbourhood] | None:
        """The neighbourhoods of a pattern; None when it cannot be taken so."""
        keys = pattern.kernel_keys
        if keys & self._refused:
            return None
        counts = dict(pattern.counted(keys))
        mine = sum(1 << self._of_key[key] for key in keys)
        found = {Neighbourhood(((key, count),)) for key, count in counts.items()}
        found |= {Neighbourhood((), key) for key in self._of_fallback}
        for number, (slot, touching) in enumerate(self._slots):
            kernels = tuple((self.keys[at - 1], counts[self.keys[at - 1]]) for at in set_bits(touching & mine))
            known = self._known.get((number, kernels))
            if known is None:
                known = self._known[number, kernels] = tuple(self._of_slot(slot, touching, dict(kernels)))
            found.update(known)
        return None if any(each.size > MAX_KEYS + 1 for each in found) else frozenset(found)

    def _of_slot(self, slot: Dependence, touching: int, counts: Mapping[DispatchKey, int]) -> Iterator[Neighbourhood]:
        roles = {self._of_key[key]: (slot.roles[self._of_key[key]], count) for key, count in counts.items()}
        fallbacks = [self._fallback_at[at] for at in set_bits(touching & self._coming)]
        for chosen in one_of_each_role(roles, slot.lazy):
            keys = [self.keys[at - 1] for at in set_bits(chosen)]
            # An order of all kernels of several keys would be no order of each key's, so one key has its number.
            alone: list[DispatchKey | None] = [None]
            for several in [key for key in keys if counts[key] > 1] or alone:
                kernels = tuple((key, counts[key] if key is several else 1) for key in keys)
                for fallback in fallbacks or (None,):
                    yield Neighbourhood(kernels, fallback)

    def shape(self, one: Neighbourhood) -> Hashable:
        """Equal for neighbourhoods that are equal up to renaming; itself when that is not known."""
        members = [0, *(self._of_key[key] for key, _ in one.kernels)]
        labels = [0, *(count for _, count in one.kernels)]
        if one.fallback is not None:
            members.append(self._of_fallback[one.fallback])
            labels.append(0)
        shaped = self._symmetry.shaped(members, labels)
        return one if shaped is None else shaped.shape


def undeclared(semantics: Semantics, keys: Iterable[DispatchKey]) -> str:
    """What the plain computation looks at besides the groups that it declares, a sentence; empty when nothing.

    Args:
        semantics: whose precedence it is.
        keys: those that kernels are registered at.
    """
    plain, present = semantics.precedence.plain, key_bits(keys)
    groups = plain.groups
    if groups is None:
        return f"the semantics {semantics.name} do not say which keys decide about which slots"
    winners: dict[tuple[tuple[str, ...], int, bool], Hashable] = {}
    for slot, masks in groups.items():
        key, names = KEY_OF_BIT[slot], plain.group_names[slot]
        assert key is not None
        grouped = 0
        for mask in masks:
            grouped |= mask
        besides = judged_keys(semantics, SLOT_OF_KEY[key]) & present & ~grouped
        for chosen, with_fallback in product(_combinations(masks, present & grouped), (False, True)):
            for seen in (chosen, chosen | besides):
                won = winner(plain, key, seen, slot if with_fallback else 0, 0)
                value: Hashable = None if won is None else ("own" if won[0] == slot else won[0], won[1])
                known = winners.setdefault((names, combination(masks, chosen), with_fallback), value)
                if known != value:
                    return f"the kernel of {key} depends on more than its groups"
    return ""


def _combinations(groups: Sequence[int], present: int) -> Iterator[int]:
    """Sets of keys: for every choice of roles one key of each, each key in turn, then all keys of these roles."""
    by_role: dict[int, list[int]] = {}
    for key in set_bits(present):
        by_role.setdefault(combination(groups, 1 << key), []).append(1 << key)
    roles = list(by_role.values())
    for choice in range(1 << len(roles)):
        mine = [roles[at] for at in set_bits(choice)]
        yield sum(members[0] for members in mine)
        yield sum(sum(members) for members in mine)
        for at, members in enumerate(mine):
            rest = sum(other[0] for number, other in enumerate(mine) if number != at)
            yield from (rest | member for member in members[1:])


def reads_more(semantics: Semantics, reads: Mapping[int, int]) -> bool:
    """Whether a refresh read a key that decides about none of its slots.

    Args:
        semantics: the dispatcher.
        reads: window -> the keys that were read, as a footprint has them.
    """
    for window, read in reads.items():
        judged = 0 if window else -1  # nothing is written to no slots
        for slot in set_bits(window):
            judged |= judged_keys(semantics, slot)
        if read & ~judged:
            return True
    return False


def look_at(semantics: Semantics, neighbourhood: Neighbourhood) -> str:
    """Run a random sequence over a neighbourhood; what breaks, a sentence, empty when nothing does.

    Args:
        semantics: the dispatcher, with the fallbacks of the registry.
        neighbourhood: what comes and goes there.
    """
    plain, registrations, order = scenario_of(semantics, neighbourhood)
    space, count = LabSpace(registrations, [NAME], plain), len(registrations)
    random, later = SplitMix64(count), later_masks(count, order)
    first, last = list(range(count)), list(range(count))
    random.shuffle(first)
    random.shuffle(last)
    first = keeping(first, order)
    state, mask = space.empty(), 0
    for index in (*first, *last, *(random.below(count) for _ in range(count)), *first):
        if mask >> index & 1:
            state = space.release(state, index)
        elif later[index] & mask:
            continue
        else:
            state, refusal = space.register(state, index)
            if refusal is not None:
                return f"a registration was refused: {refusal.message}"
        mask ^= 1 << index
        for violation in space.violations(state):
            return f"a sequence breaks what one that should be alike keeps: {violation}"
    for index in set_bits(mask):
        state = space.release(state, index)
    return "" if state == space.empty() else "something is left behind by what should be alike"
