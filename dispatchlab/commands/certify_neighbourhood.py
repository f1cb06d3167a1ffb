"""What do a few registrations of an operator show when they are explored together, in all orders?

See Note [What a certificate stands on].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from dispatchlab.commands.left_behind import left_behind, place_bits
from dispatchlab.engine.footprint import Footprint
from dispatchlab.engine.semantics import Semantics
from dispatchlab.engine.space import LabSpace
from dispatchlab.explore.graph import explore_graph
from dispatchlab.explore.result import Verdict
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.registration import Def, Fallback, Impl, Kernel, Registration
from dispatchlab.model.schema_parser import parse_name, parse_schema
from dispatchlab.model.slots import ALL_SLOTS
from dispatchlab.model.words import Word

KeyWord: TypeAlias = tuple[tuple[DispatchKey | None, bool], ...]
"""A word by the keys of its kernels, None for the def, and whether each step is a release."""

_NAME = parse_name("pattern::operator")
_SCHEMA = parse_schema("pattern::operator(Tensor x) -> Tensor")


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """Places that are explored together.

    Args:
        kernels: each place with how many kernels it has.
        fallback: the fallback that comes and goes with them; the others are in force.
    """

    kernels: tuple[tuple[DispatchKey, int], ...]
    fallback: DispatchKey | None = None

    @property
    def places(self) -> int:
        """The places, as bits."""
        return place_bits(key for key, _ in self.kernels)

    @property
    def size(self) -> int:
        """How many registrations there are, the def included."""
        return 1 + sum(count for _, count in self.kernels) + (self.fallback is not None)

    @property
    def rank(self) -> tuple[int, tuple[tuple[DispatchKey, int], ...], DispatchKey]:
        """Smaller ones come first."""
        return self.size, self.kernels, self.fallback or DispatchKey.Undefined


@dataclass(frozen=True, slots=True)
class Explored:
    """What a neighbourhood has shown.

    Args:
        verdict: of the exploration.
        reads: window -> the places that its refreshes read.
        strays: what no footprint may show.
        sets: active sets.
        edges: registrations and releases.
        words: the two words of a counterexample, as keys and whether they are released; None is the def.
        trouble: why nothing can be said, a sentence; empty when it can.
        stale: when violated, the slots that a kernel can leave behind.
    """

    verdict: Verdict
    reads: dict[int, int]
    strays: frozenset[str]
    sets: int
    edges: int
    words: tuple[KeyWord, ...] = ()
    trouble: str = ""
    stale: frozenset[int] = frozenset()


def explore_neighbourhood(semantics: Semantics, neighbourhood: Neighbourhood) -> Explored:
    """Every set of a neighbourhood, both directions of every edge, with footprints.

    Args:
        semantics: the dispatcher, with the fallbacks of the registry.
        neighbourhood: what comes and goes there.
    """
    in_force = tuple(each for each in semantics.fallbacks if each.key is not neighbourhood.fallback)
    coming = tuple(each for each in semantics.fallbacks if each.key is neighbourhood.fallback)
    footprint = Footprint(replace(semantics, fallbacks=in_force))
    registrations, order = _small_scenario(neighbourhood.kernels, coming)
    space = LabSpace(registrations, [_NAME], footprint.watched)
    found = explore_graph(space, len(registrations), order=order)
    strays = frozenset({*footprint.strays, *_strange_cells(space)})
    trouble, stale = "", frozenset[int]()
    words: tuple[KeyWord, ...] = ()
    if found.conflicts or found.never_accepted:
        trouble = "a registration was refused"
    elif found.verdict is Verdict.VIOLATED and found.counterexample is not None:
        told = found.counterexample
        stale = left_behind(semantics, [key for key, _ in neighbourhood.kernels])
        words = tuple(_in_keys(word, registrations) for word in (told.expected_word, told.actual_word))
        if not stale or any(isinstance(registrations[~at if at < 0 else at], Fallback) for at in told.actual_word):
            trouble = f"the exploration found a {told.flaw} that no kernel explains"
    elif found.verdict is not Verdict.PROVED:
        trouble = f"the exploration ended as {found.verdict}"
    reads = {window: mask for window, mask in footprint.reads.items() if window != ALL_SLOTS}
    return Explored(found.verdict, reads, strays, found.sets, found.edges, words, trouble, stale)


def _small_scenario(
    kernels: Sequence[tuple[DispatchKey, int]], fallbacks: Sequence[Fallback]
) -> tuple[tuple[Registration, ...], tuple[int, ...]]:
    """A def, kernels and fallbacks, and the order that the kernels of one place keep."""
    registrations: list[Registration] = [Def(_SCHEMA)]
    order: list[int] = []
    for key, count in kernels:
        if count > 1:
            order += range(len(registrations), len(registrations) + count)
        registrations += [Impl(_NAME, key, Kernel(), f"{key} {number}") for number in range(count)]
    return (*registrations, *fallbacks), tuple(order)


def _strange_cells(space: LabSpace) -> Iterable[str]:
    for cell in space.touched() - space.shared_cells() - {str(_NAME)}:
        yield f"a registration touched {cell}, which is not its operator"


def _in_keys(word: Word, registrations: Sequence[Registration]) -> KeyWord:
    steps = []
    for step in word:
        registration = registrations[~step if step < 0 else step]
        steps.append((registration.key if isinstance(registration, Impl) else None, step < 0))
    return tuple(steps)
