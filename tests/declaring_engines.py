"""Engines of a few lines that declare what their state depends on, and keep some of it to themselves.

A `Cell` is a variable of one of two operators. It holds a number that follows from groups of registrations, or the
order in which its writers came. A `Memory` is hidden and outlives who wrote it. A `Coupling` is what the engine does
besides, and does not declare.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias

from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.model.dependence import Dependence
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Claim, Registration
from dispatchlab.model.snapshot import Refusal, Snapshot, Violation
from dispatchlab.prover.chains import Chains, later_masks
from dispatchlab.prover.prng import SplitMix64
from dispatchlab.prover.protocol import StateSpace
from tests.brute_force import Failure
from tests.toy_engines import ToySandbox

OPERATORS = (OperatorName("toy", "one"), OperatorName("toy", "two"))

State: TypeAlias = "tuple[int, tuple[Hashable, ...], tuple[int, ...], tuple[int, ...]]"
"""The registrations in force, the value of each cell, a number for each coupling, and the color in each memory."""

Kind: TypeAlias = Literal[
    "reads", "writes", "arrives", "counts", "refuses", "shows", "leaves", "breaks", "hides", "jams", "remembers"
]
KINDS: tuple[Kind, ...] = (
    "reads",
    "writes",
    "arrives",
    "counts",
    "refuses",
    "shows",
    "leaves",
    "breaks",
    "hides",
    "jams",
)


@dataclass(frozen=True)
class Cell:
    """A variable.

    Args:
        operator: whose it is.
        groups: registrations, as bits; the value depends on which groups have a member in force.
        table: the value for each combination of groups, modulo its length; empty for the order of arrival.
        lazy: registrations that do not write it when they come, as bits.
        lazy_on_release: or when they go.
        by_refusal: registrations that write it when they are refused.
        spoilt: they write something else than its value then.
    """

    operator: int
    groups: tuple[int, ...]
    table: tuple[int, ...] = ()
    lazy: int = 0
    lazy_on_release: int = 0
    by_refusal: int = 0
    spoilt: bool = False

    @property
    def members(self) -> int:
        """Everybody in a group."""
        found = 0
        for group in self.groups:
            found |= group
        return found

    def value(self, mask: int) -> int:
        """What it should hold."""
        combination = sum(1 << at for at, group in enumerate(self.groups) if mask & group)
        return self.table[combination % len(self.table)]

    def declared(self, holders: int, *, honest: bool = True) -> Dependence:
        """What an engine says of it."""
        indices = [index for index in range(self.members.bit_length()) if self.members >> index & 1]
        if not self.table:
            groups = tuple(1 << index for index in indices)
            return Dependence(groups, {index: index for index in indices}, is_list=True)
        lazy = (self.lazy | self.lazy_on_release) & self.members
        roles = {
            index: (
                tuple(group >> index & 1 for group in self.groups),
                self.lazy >> index & 1,
                self.lazy_on_release >> index & 1,
                holders >> index & 1,
            )
            for index in indices
        }
        traces = self.by_refusal if honest else 0
        return Dependence(self.groups, roles, lazy if honest else 0, holders, OPERATORS[self.operator], traces=traces)


@dataclass(frozen=True)
class Memory:
    """A hidden variable: the color of the first registration that came, while the operator lives.

    A registration of another color is refused.

    Args:
        operator: whose it is.
        colors: the registrations of the first and of the second color, as bits.
        secret: registrations that make it forget when they come, which is not declared, as bits.
    """

    operator: int
    colors: tuple[int, int]
    secret: int = 0

    def color(self, index: int) -> int:
        """1 or 2, or 0 for a registration without a color."""
        return 1 if self.colors[0] >> index & 1 else 2 if self.colors[1] >> index & 1 else 0

    def declared(self, holders: int) -> Dependence:
        """What an engine says of it."""
        members = self.colors[0] | self.colors[1]
        roles = {index: True for index in range(members.bit_length()) if members >> index & 1}
        return Dependence((), roles, 0, holders, OPERATORS[self.operator], traces=members, is_hidden=True)


@dataclass(frozen=True)
class Coupling:
    """What an engine does without declaring it.

    Args:
        kind: `reads`: the cell depends on `by`, too; `writes`: `by` changes it when it comes while `partner` is in
            force; `arrives`: it shows whether `by` came after `partner`; `counts`: how often `by` came, modulo 2;
            `refuses`: `by` is refused while `partner` is in force; `leaves`: a refusal of `by` changes the cell;
            `shows`: the observation alone shows whether `by` came after `partner`; `breaks`: an invariant fails while
            both are in force; `hides`: a variable that is not declared shows how often `by` came; `jams`: `by` cannot
            be released while `partner` is in force; `remembers`: a refusal of `by` makes the next step show it, if that
            is to register `partner` while nothing else is in force, and is forgotten with any other registration.
        cell: the cell.
        by: a registration.
        partner: another.
    """

    kind: Kind
    cell: int
    by: int
    partner: int


@dataclass(frozen=True)
class DeclaringSpace:
    """The states of an engine.

    `indices` are those of its registrations that can come; those in `exclusions` cannot be in force together, and those
    in `never` not at all.
    """

    count: int
    cells: tuple[Cell, ...]
    holders: tuple[int, int]
    couplings: tuple[Coupling, ...] = ()
    exclusions: tuple[int, ...] = ()
    indices: tuple[int, ...] = ()
    operators: tuple[OperatorName, ...] = OPERATORS
    honest: bool = True
    memories: tuple[Memory, ...] = ()
    never: int = 0

    def empty(self) -> State:
        fresh = tuple(self._fresh(cell, 0) for cell in self.cells)
        return 0, fresh, (0,) * len(self.couplings), (0,) * len(self.memories)

    def register(self, state: State, index: int, /) -> tuple[State, Refusal | None]:
        mask, values, numbers, memories = state
        one = self.indices[index]
        if any(held and memory.color(one) not in (0, held) for memory, held in self._held(memories)):
            return self._after_refusal(state, one), Refusal(ErrorKind.SIGNATURE_MISMATCH, (), "of another color")
        memories = tuple(
            memory.color(one) if not held and self._lives(memory.operator, mask | 1 << one) else held
            for memory, held in self._held(memories)
        )
        if self.never >> one & 1 or any(rule >> one & 1 and mask & rule for rule in self.exclusions):
            noted = tuple(held if self._lives(memory.operator, mask) else 0 for memory, held in self._held(memories))
            left = tuple(
                1 if each.kind in ("leaves", "remembers") and one == each.by else number
                for each, number in zip(self.couplings, numbers, strict=True)
            )
            refusal = Refusal(ErrorKind.DUPLICATE_DEF, (), "they exclude one another")
            return self._after_refusal((mask, values, left, noted), one), refusal
        if any(each.kind == "refuses" and one == each.by and mask >> each.partner & 1 for each in self.couplings):
            return state, Refusal(ErrorKind.SIGNATURE_MISMATCH, (), "the coupling refuses it")
        after = mask | 1 << one
        held = []
        for cell, value in zip(self.cells, values, strict=True):
            if not cell.table:
                held.append((one, *value) if cell.members >> one & 1 else value)  # type: ignore[misc]  # an order
            elif self._appears(cell, mask, one) or (cell.members >> one & 1 and not cell.lazy >> one & 1):
                held.append(cell.value(after))
            else:
                held.append(value)
        kept = tuple(0 if memory.secret >> one & 1 else color for memory, color in self._held(memories))
        return (after, tuple(held), self._moved(numbers, mask, one), kept), None

    def _after_refusal(self, state: State, one: int) -> State:
        """With what is written although `one` is refused."""
        mask, values, numbers, memories = state
        written = tuple(
            (-1 if cell.spoilt else cell.value(mask))
            if cell.table and cell.by_refusal >> one & 1 and value is not None
            else value
            for cell, value in zip(self.cells, values, strict=True)
        )
        return mask, written, numbers, memories

    def _held(self, memories: tuple[int, ...]) -> Iterator[tuple[Memory, int]]:
        return zip(self.memories, memories, strict=True)

    def _lives(self, operator: int, mask: int) -> bool:
        return not self.holders[operator] or bool(mask & self.holders[operator])

    def release(self, state: State, index: int, /) -> State:
        mask, values, numbers, memories = state
        one = self.indices[index]
        if any(each.kind == "jams" and each.by == one and mask >> each.partner & 1 for each in self.couplings):
            raise RegistrationError(ErrorKind.OTHER, "the handle is jammed")
        after = mask ^ 1 << one
        held: list[Hashable] = []
        for cell, value in zip(self.cells, values, strict=True):
            holders = self.holders[cell.operator]
            if not cell.table:
                held.append(tuple(each for each in value if each != one))  # type: ignore[attr-defined]  # an order
            elif holders >> one & 1 and not after & holders:
                held.append(None)
            elif cell.members >> one & 1 and not cell.lazy_on_release >> one & 1 and value is not None:
                held.append(cell.value(after))
            else:
                held.append(value)
        kept = tuple(
            0 if each.kind in ("arrives", "shows", "writes") and one in (each.by, each.partner) else number
            for each, number in zip(self.couplings, numbers, strict=True)
        )
        remembered = tuple(
            color if self._lives(memory.operator, after) else 0 for memory, color in self._held(memories)
        )
        return after, tuple(held), kept, remembered

    def observe(self, state: State, /) -> tuple[Snapshot, ...]:
        shown = self.values(state)
        looks = []
        for number, name in enumerate(OPERATORS):
            if name not in self.operators:
                continue
            lines = [
                f"{at}: {shown.get(('cell', at))}" for at, cell in enumerate(self.cells) if cell.operator == number
            ]
            lines += [
                f"coupling {at}: {state[2][at]}"
                for at, each in enumerate(self.couplings)
                if (each.kind in ("shows", "hides") or (each.kind == "remembers" and state[2][at] == 2))
                and self.cells[each.cell].operator == number
            ]
            looks.append(Snapshot(name, "\n".join(lines), ""))
        return tuple(looks)

    def violations(self, state: State, /) -> tuple[Violation, ...]:
        return tuple(
            Violation(OPERATORS[self.cells[each.cell].operator], "the toy is in order", "both are in force")
            for each in self.couplings
            if each.kind == "breaks"
            and state[0] >> each.by & state[0] >> each.partner & 1
            and OPERATORS[self.cells[each.cell].operator] in self.operators
        )

    def why(self, expected: State, actual: State, /) -> tuple[str, ...]:
        return ()

    # --- what is declared

    def dependences(self) -> Mapping[Hashable, Dependence] | str:
        cells: dict[Hashable, Dependence] = {
            ("cell", at): cell.declared(self.holders[cell.operator], honest=self.honest)
            for at, cell in enumerate(self.cells)
        }
        memories: dict[Hashable, Dependence] = {
            ("memory", at): memory.declared(self.holders[memory.operator]) for at, memory in enumerate(self.memories)
        }
        return {**cells, **memories}

    def values(self, state: State, /) -> Mapping[Hashable, Hashable]:
        mask, values, numbers, memories = state
        shown: dict[Hashable, Hashable] = {}
        for at, value in enumerate(values):
            if value is None:
                continue
            coupled = [
                number if each.kind != "reads" else mask >> each.by & 1
                for each, number in zip(self.couplings, numbers, strict=True)
                if each.cell == at and each.kind in ("reads", "writes", "arrives", "counts", "leaves")
            ]
            shown["cell", at] = (*value, *coupled) if isinstance(value, tuple) else (value, *coupled)
        shown |= {("memory", at): color for at, color in enumerate(memories) if color}
        for at, each in enumerate(self.couplings):
            if each.kind == "hides" and numbers[at]:
                shown["hidden", at] = numbers[at]
        return shown

    def deciders(self) -> Sequence[int]:
        found = [0] * self.count
        colored = [one.colors[0] | one.colors[1] for one in self.memories if all(one.colors)]
        never = [1 << index for index in range(self.count) if self.never >> index & 1]
        for rule in (*self.exclusions, *colored, *never):
            for index in range(self.count):
                found[index] |= rule if rule >> index & 1 else 0
        return found

    def restricted(self, indices: Sequence[int], operators: Sequence[OperatorName], /) -> DeclaringSpace:
        return replace(self, indices=tuple(self.indices[index] for index in indices), operators=tuple(operators))

    def _fresh(self, cell: Cell, mask: int) -> Hashable:
        return () if not cell.table else cell.value(mask) if not self.holders[cell.operator] else None

    def _appears(self, cell: Cell, mask: int, one: int) -> bool:
        holders = self.holders[cell.operator]
        return bool(holders >> one & 1 and not mask & holders)

    def _moved(self, numbers: tuple[int, ...], mask: int, one: int) -> tuple[int, ...]:
        def moved(each: Coupling, number: int) -> int:
            if each.kind == "remembers":
                return 2 if number == 1 and one == each.partner and not mask else 0
            if one != each.by:
                return number
            match each.kind:
                case "counts" | "hides":
                    return number ^ 1
                case "arrives" | "shows" | "writes":
                    return mask >> each.partner & 1
                case _:
                    return number

        return tuple(moved(each, number) for each, number in zip(self.couplings, numbers, strict=True))


@dataclass(frozen=True)
class DeclaringEngine:
    """An engine with such a space."""

    whole: DeclaringSpace
    name: str = "toy"
    semantics: str = "toy"

    @property
    def registrations(self) -> tuple[Registration, ...]:
        return tuple(Claim(f"n{index}") for index in range(self.whole.count))

    @contextmanager
    def sandbox(self) -> Iterator[ToySandbox]:
        yield ToySandbox(self.whole, self.registrations, OPERATORS)

    def space(self, registrations: Sequence[Registration], operators: Sequence[OperatorName], /) -> DeclaringSpace:
        return replace(self.whole, operators=tuple(operators))


def random_engine(seed: int, *, secrets: bool, refusals: bool = False) -> tuple[DeclaringEngine, Chains]:
    """An engine with up to three cells and an order to keep, always the same for a seed.

    Args:
        seed: the seed.
        secrets: whether it couples what it does not declare.
        refusals: whether refusals leave something behind, and memories refuse.
    """
    random = SplitMix64(seed)
    count = 3 + random.below(3)

    def some(chance: int = 50) -> int:
        return sum(1 << index for index in range(count) if random.chance(chance))

    first = some()
    holders = (first | 1, some() & ~first) if random.chance(50) else (0, 0)
    cells = []
    for _ in range(1 + random.below(3)):
        if random.chance(20):
            cells.append(Cell(random.below(2), (some(35),)))
            continue
        groups = tuple(some(40) for _ in range(1 + random.below(3)))
        table = tuple(random.below(3) for _ in range(1 << len(groups)))
        lazy, lazy_on_release = (some(30) if random.chance(30) else 0 for _ in range(2))
        cells.append(Cell(random.below(2), groups, table, lazy, lazy_on_release))
    couplings = []
    for _ in range(1 + random.below(2) if secrets else 0):
        kind, by = KINDS[random.below(len(KINDS))], random.below(count)
        couplings.append(Coupling(kind, random.below(len(cells)), by, (by + 1 + random.below(count - 1)) % count))
    exclusions = tuple(some(40) for _ in range(random.below(2)))
    order = list(range(count))
    random.shuffle(order)
    kept = (order[: random.below(count + 1)],) if random.chance(30) else ()
    memories = []
    if refusals:
        for at, cell in enumerate(cells):
            if cell.table and random.chance(50):
                cells[at] = replace(cell, by_refusal=some(40), spoilt=random.chance(20))
        if random.chance(60):
            one = some(40)
            memories.append(Memory(random.below(2), (one, some(40) & ~one if random.chance(70) else 0)))
        if not exclusions and random.chance(70):
            exclusions = (some(40),)
    indices = tuple(range(count))
    space = DeclaringSpace(
        count, tuple(cells), holders, tuple(couplings), exclusions, indices, memories=tuple(memories)
    )
    return DeclaringEngine(space), kept


class CountedSpace(StateSpace[Any], Protocol):
    """States of `count` registrations."""

    @property
    def count(self) -> int:
        """How many registrations there are."""


def shortest_failure(space: CountedSpace, order: Chains, *, longest: int) -> Failure | None:
    """The shortest sequence that breaks a rule, of all sequences up to a length.

    The toy is a function of its state, so sequences to one state and one active set go on alike.
    """
    later = later_masks(space.count, order)
    seen = {0: (space.observe(space.empty()), space.violations(space.empty()))}
    answers: dict[tuple[int, int], object] = {}
    last: dict[int, str] = {}
    broken: set[int] = set()
    frontier: set[tuple[int, Any]] = {(0, space.empty())}
    known = frontier
    note: Callable[[str, int], Failure] = lambda rule, length: Failure(length, rule)  # noqa: E731
    for length in range(1, longest + 1):
        further = set()
        for mask, state in frontier:
            for index in range(space.count):
                if mask >> index & 1:
                    try:
                        new = space.release(state, index)
                    except RegistrationError:
                        return note("release", length)
                    now = mask ^ 1 << index
                elif later[index] & mask:
                    continue
                else:
                    new, refusal = space.register(state, index)
                    answer = None if refusal is None else (refusal.kind, refusal.facts)
                    if answers.setdefault((mask, index), answer) != answer:
                        return note("outcome", length)
                    whole = mask | 1 << index
                    kind = "accepted" if refusal is None else refusal.kind.value
                    if last.setdefault(whole, kind) != kind:
                        return note("symmetry", length)
                    now = whole if refusal is None else mask
                look = space.observe(new), space.violations(new)
                if look[1]:
                    broken.add(now)
                if seen.setdefault(now, look) != look or look[1]:
                    return note("state", length)
                further.add((now, new))
        frontier = further - known
        known = known | further
    return None
