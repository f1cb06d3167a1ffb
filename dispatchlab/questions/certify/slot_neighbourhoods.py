"""Neighbourhoods of slots: one kernel of each role, each kernel in turn.

See Note [Kernels that play the same part].
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from dispatchlab.engine.dependences import Variable, dependences
from dispatchlab.engine.lowering import lower
from dispatchlab.engine.primitives import RegisterImpl
from dispatchlab.engine.reference_precedence import winner
from dispatchlab.engine.semantics import Semantics
from dispatchlab.model.dependence import Dependence
from dispatchlab.model.keys import SLOT_OF_KEY, DispatchKey
from dispatchlab.model.registration import Def, Impl, Kernel, Registration
from dispatchlab.model.slot_set import KEY_OF_BIT, key_bits, set_bits
from dispatchlab.prover.neighbourhoods import combination, one_of_each_role
from dispatchlab.questions.certify.certificate import Pattern
from dispatchlab.questions.certify.operator_neighbourhoods import (
    MAX_KEYS,
    NAME,
    SCHEMA,
    Neighbourhood,
    fallback_comes_and_goes,
)

# Note [Kernels that play the same part]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# An operator with 18 kernels, a def and 38 fallbacks has 2 to the 57 active sets. Its state has parts: for
# each key the list of its kernels, the def, and for each slot what calls use there; the fallbacks are parts of the
# dispatcher. What a registration writes is one list, the def or one fallback, and a window of slots, which it
# refreshes in one call.
# A slot is filled from at most seven places: its own key, five alias keys, and any of the keys that take the composite
# kernel away from it. A slot does not see which of those it was. So the neighbourhood of a slot has one kernel of each
# role, as in docs/proof.md, with each kernel of a role in turn, and with each fallback that writes the slot in turn,
# the others in force. All kernels of one key come together, and how many there are is part of the role.
# What is checked:
#   (groups)     who wins a slot depends on the groups alone that the precedence declares, and slots with the same names
#                of groups have the same winner: every combination, with one member of each role, with each other in
#                its place, with all of them, and with all keys besides that the slot may look at (`undeclared`);
#   (walk)       a neighbourhood is explored in both directions of every edge, each slot compared with the plain
#                computation at every state, and a random walk over it shows in a fresh sandbox what the states show;
#   (far)        the same for a random sequence over all registrations of every operator, with the def first and last.
# That no refresh of the engine reads a key that the plain computation would not look at for its slots is held by
# tests/test_engine_footprints.py.
# A pattern where one of these fails is not decided. Where the engine does leave a slot stale, as `torch-2.13` does, a
# sequence of a neighbourhood is a sequence of the operator, and it is run there before anything is said.
#
# Operators of one pattern differ in names, texts and schemas, which no refresh looks at: it takes the newest kernel of
# a key as a whole. Nothing is refused: each kernel is checked against the def alone. Two kernels at one key are ordered
# by time: the order matters there, by design, which is shown by two sequences. What the certificate says beyond that is
# proved with the order of these two kept.
# Not covered: C++ signatures, which no dump shows; kernels registered without a key are on record with the key that
# they were given; library claims, which no operator sees.


def neighbourhoods_of(
    semantics: Semantics, patterns: Sequence[Pattern]
) -> Mapping[Pattern, frozenset[Neighbourhood] | str]:
    """Return the neighbourhoods of the slots of each pattern; a sentence for a pattern that has no proof.

    Args:
        semantics: the dispatcher, with the fallbacks of the registry.
        patterns: the patterns of the operators.
    """
    roles = _Roles(semantics, {key for pattern in patterns for key in pattern.keys})
    if unknown := roles.unknown or undeclared(semantics, roles.keys):
        return dict.fromkeys(patterns, unknown)
    return {pattern: roles.neighbourhoods(pattern) for pattern in patterns}


class _Roles:
    """The effect of kernels and fallbacks on slots, by the tables of the semantics."""

    def __init__(self, semantics: Semantics, keys: Iterable[DispatchKey]) -> None:
        plain = replace(semantics, fallbacks=())
        within = replace(plain, keys=frozenset(DispatchKey))  # fallbacks come from within, as `initial_state` has them
        self.keys = tuple(sorted(keys))
        fallbacks = sorted(semantics.fallbacks, key=lambda one: not fallback_comes_and_goes(semantics, one))
        registrations: list[Registration] = [Def(SCHEMA)]
        registrations += [Impl(NAME, key, Kernel(), str(key)) for key in self.keys]
        lowered = [lower(one, plain) for one in registrations] + [lower(fallback, within) for fallback in fallbacks]
        found = dependences(lowered, plain)
        self.unknown, declared = (found, {}) if isinstance(found, str) else ("", found)
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
        self._slots = [
            (one, sum(1 << index for index in one.roles))
            for variable, one in declared.items()
            if isinstance(variable, Variable) and variable.kind == "slot"
        ]
        self._known: dict[tuple[int, tuple[tuple[DispatchKey, int], ...]], tuple[Neighbourhood, ...]] = {}

    def neighbourhoods(self, pattern: Pattern) -> frozenset[Neighbourhood] | str:
        """Return the neighbourhoods of a pattern; a sentence if they cannot be explored."""
        keys = pattern.kernel_keys
        if refused := keys & self._refused:
            return f"a kernel at {min(refused)} was refused"
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
        if (largest := max(each.size for each in found)) > MAX_KEYS + 1:
            return f"{largest} registrations reach the same slots, and more than {MAX_KEYS} are not explored"
        return frozenset(found)

    def _of_slot(self, slot: Dependence, touching: int, counts: Mapping[DispatchKey, int]) -> Iterator[Neighbourhood]:
        roles = {self._of_key[key]: (slot.roles[self._of_key[key]], count) for key, count in counts.items()}
        fallbacks = [self._fallback_at[at] for at in set_bits(touching & self._coming)]
        for chosen in one_of_each_role(roles, slot.lazy):
            keys = [self.keys[at - 1] for at in set_bits(chosen)]
            # An order of all kernels of several keys would be no order of each key's, so one key has its number.
            alone: list[DispatchKey | None] = [None]
            for several in [key for key in keys if counts[key] > 1] or alone:
                kernels = tuple((key, counts[key] if key is several else 1) for key in keys)
                yield from (Neighbourhood(kernels, fallback) for fallback in fallbacks or (None,))


def undeclared(semantics: Semantics, keys: Iterable[DispatchKey]) -> str:
    """Return a sentence if the reference computation uses more than its declared groups; else empty.

    Args:
        semantics: the semantics with this precedence.
        keys: the keys with kernels.
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
        besides = plain.relevant[SLOT_OF_KEY[key]] & present & ~grouped
        for chosen, with_fallback in product(_combinations(masks, present & grouped), (False, True)):
            for seen in (chosen, chosen | besides):
                won = winner(plain, key, seen, slot if with_fallback else 0, 0)
                value: Hashable = None if won is None else ("own" if won[0] == slot else won[0], won[1])
                known = winners.setdefault((names, combination(masks, chosen), with_fallback), value)
                if known != value:
                    return f"the kernel of {key} depends on more than its groups"
    return ""


def _combinations(groups: Sequence[int], present: int) -> Iterator[int]:
    """Return sets of keys: for every choice of roles, one key of each role, each key in turn, then all their keys."""
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
