"""Which neighbourhoods have to be explored to decide a pattern, and what do they say of it when they have been?

See Note [What a certificate stands on].
"""

# Note [What a certificate stands on]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# An operator with 18 kernels, a def and 38 fallbacks has 2 to the 57 active sets: they cannot be visited one by one,
# and need not be. The state of an operator has parts: for each place (a key) the list of its kernels, the def, and for
# each slot what calls use there; the fallbacks are parts of the dispatcher, one for each slot. What a registration
# writes is one list, the def or one fallback, and a window of slots, which it refreshes in one call.
#
# Claim. Let f(s) be what the invariants say that slot s should hold. For every word over all registrations of the
# operator and all fallbacks, every slot s holds f(s), which is a function of what is in force and nothing else.
#
# Ground. f(s) looks at `judged_places(s)` and the fallback of s (by construction: the rest is masked away). A
# neighbourhood is a set of places N, explored as a scenario of its own: the def and the kernels at N, all sets, both
# directions of every edge, with every slot compared with f at every state (Note [When states may be merged]).
# Footprints of every refresh are recorded meanwhile (Note [Footprints of a refresh]). It is required, and checked,
# that
#   (a) every slot s has a neighbourhood with judged_places(s) in it,
#   (b) every window W of a registration of the operator, or of a fallback, has a neighbourhood that holds its place,
#       the judged places of all slots in W, and every place of the operator that a refresh of W was seen to read
#       there,
#   (c) each fallback was registered and released at every set of a neighbourhood as in (b), all others in force,
#   (d) no footprint shows a stray.
# That a registration refreshes one window and leaves all other slots alone is how engine/primitives.py is written.
# Step. Let every slot hold f before a step e with window W. For s in W: the refresh reads places of the N of (b)
# alone, so it gives what it gave in the state of N with the same kernels at N, and there that was f(s); with other
# fallbacks in force it differs in what fallbacks fill, slot by slot, as f does. For s outside of W: the slot stays; if
# the place of e is judged for s, then N of (a) holds e and has this very step at every set, after which s held f(s)
# without having been written: f(s) did not change. Otherwise f(s) does not look there. So all slots hold f afterwards.
# An operator that appears gets f of nothing in all slots, which (a) has visited, too. By induction over the word, the
# claim holds.
#
# The rest of the state: the list of a place with one kernel, the def and a fallback are functions of what is in force.
# Nothing is refused: each kernel is checked against the def alone, and the registrations of every operator are run, def
# first and def last. Two kernels at one place are ordered by time: the order matters there, by design, which is shown
# by two words. What the certificate says beyond that is proved with the order of these two kept.
#
# Operators of one pattern differ in names, texts and schemas, which no refresh looks at: it takes the newest kernel of
# a place as a whole. So neighbourhoods are explored once for all patterns that have them. This is checked on every
# operator: a random word over all its registrations with the recorded fallbacks is run on the engine, every slot
# compared with f after each step.
#
# Where the engine does leave a slot behind, as `torch-2.13` does, the same neighbourhoods are exact in the other
# direction: a word of theirs is a word of the operator, and it is run there before anything is said.
#
# Not covered: C++ signatures, which no dump tells; kernels registered without a key are on record with the key that
# they were given; listeners and library claims, which no operator sees.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dispatchlab.commands.certify_neighbourhood import Explored, Neighbourhood
from dispatchlab.commands.left_behind import MAX_PLACES, keys_at, place_bits
from dispatchlab.engine.footprint import judged_places
from dispatchlab.engine.key_bits import KEY_BIT
from dispatchlab.engine.semantics import Semantics
from dispatchlab.model.keys import RUNTIME_KEYS, DispatchKey
from dispatchlab.model.slots import each_slot
from dispatchlab.registry.certify import Pattern


@dataclass(slots=True)
class Plan:
    """What has to be explored for a pattern; grows until footprints stay inside.

    Args:
        pattern: the pattern.
        wanted: the neighbourhoods that (a) and (b) ask for, with the window and the place of (b).
        trouble: why the pattern cannot be decided; empty while it can.
    """

    pattern: Pattern
    wanted: dict[tuple[int, DispatchKey | None, bool], Neighbourhood] = field(default_factory=dict)
    trouble: str = ""

    def want(self, why: tuple[int, DispatchKey | None, bool], places: int) -> None:
        """Ask for a neighbourhood of these places; whether it is for a fallback is the last part of `why`."""
        _, key, is_fallback = why
        wanted = Neighbourhood(self.pattern.counted(keys_at(places)), key if is_fallback else None)
        if wanted.size > MAX_PLACES + 1:
            self.trouble = (
                f"{wanted.size} registrations reach the same slots, and more than {MAX_PLACES} are not explored"
            )
        self.wanted[why] = wanted

    def to_explore(self) -> frozenset[Neighbourhood]:
        """The neighbourhoods without those that are inside of another."""
        if self.trouble:
            return frozenset()
        with_fallback = {each for each in self.wanted.values() if each.fallback is not None}
        plain = {each for each in self.wanted.values() if each.fallback is None}
        largest = {
            one for one in plain if not any(one.places != other.places and _within(one, other) for other in plain)
        }
        return frozenset(with_fallback | largest)

    def grow(self, known: Mapping[Neighbourhood, Explored]) -> bool:
        """Make the neighbourhoods as large as the footprints ask; whether one has grown."""
        grown = False
        places = place_bits(self.pattern.places)
        chosen = self.to_explore()
        for why, wanted in list(self.wanted.items()):
            window, key, _ = why
            if key is None:
                continue
            for each in chosen:
                if each.fallback != wanted.fallback or not _within(wanted, each):
                    continue
                read = known[each].reads.get(window, 0) & places
                if read & ~each.places:
                    self.want(why, each.places | read)
                    grown = True
                break
        return grown

    def trouble_with(self, known: Mapping[Neighbourhood, Explored]) -> str:
        """Why (a) to (d) do not hold for the pattern, a sentence; empty when they do."""
        if self.trouble:
            return self.trouble
        places, chosen = place_bits(self.pattern.places), self.to_explore()
        for each in sorted(chosen, key=lambda one: one.rank):
            explored = known[each]
            if explored.trouble:
                return explored.trouble
            if explored.strays:
                return sorted(explored.strays)[0]
        if self.stale_of(known):
            return ""  # nothing is claimed to be proved, and explorations that found something ended there
        for (window, key, _), wanted in self.wanted.items():
            if not any(
                _within(wanted, each)
                and each.fallback == wanted.fallback
                and (key is None or not known[each].reads.get(window, 0) & places & ~each.places)
                and (key is None or not _judged(window) & places & ~each.places)
                and (key is None or window in known[each].reads)
                for each in chosen
            ):
                return f"a refresh for {key} reads more than any neighbourhood holds"
        return ""

    def stale_of(self, known: Mapping[Neighbourhood, Explored]) -> tuple[Explored, ...]:
        """The neighbourhoods of the pattern that leave a slot behind, one for each set of slots, the smallest."""
        found: dict[frozenset[int], Explored] = {}
        for each in sorted(self.to_explore(), key=lambda one: one.rank):
            if known[each].stale:
                found.setdefault(known[each].stale, known[each])
        return tuple(found.values())


def plan_of(semantics: Semantics, pattern: Pattern) -> Plan:
    """The neighbourhoods of a pattern by (a), (b) and (c), before any footprint is known.

    Args:
        semantics: the dispatcher, with the fallbacks of the registry.
        pattern: what operators have in common.
    """
    plan = Plan(pattern)
    places, refresh = place_bits(pattern.places), semantics.refresh
    for slot in range(len(RUNTIME_KEYS)):
        plan.want((1 << slot, None, False), judged_places(slot) & places)
    for key in pattern.places:
        plan.want((refresh[key], key, False), (_judged(refresh[key]) | KEY_BIT[key]) & places)
    for fallback in semantics.fallbacks:
        assert fallback.key is not None
        window = refresh[fallback.key]
        plan.want((window, fallback.key, True), _judged(window) & places)
    return plan


def _judged(window: int) -> int:
    places = 0
    for slot in each_slot(window):
        places |= judged_places(slot)
    return places


def _within(one: Neighbourhood, other: Neighbourhood) -> bool:
    return one.places & other.places == one.places
