"""Engines of a few lines that declare what their state depends on, and keep some of it to themselves.

A `Cell` is a variable of one of two operators. It holds a number that follows from groups of registrations, or the
order in which its writers came. A `Coupling` is what the engine does besides, and does not declare.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.explore.prng import SplitMix64
from dispatchlab.model.dependence import Dependence
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Claim, Registration
from dispatchlab.model.snapshot import Refusal, Snapshot, Violation
from tests.brute_force import Failure
from tests.toy_engines import ToySandbox

OPERATORS = (OperatorName("toy", "one"), OperatorName("toy", "two"))

State: TypeAlias = "tuple[int, tuple[Hashable, ...], tuple[int, ...]]"
"""The registrations in force, the value of each cell, and a number for each coupling."""

Kind: TypeAlias = Literal[
    "reads", "writes", "arrives", "counts", "refuses", "shows", "leaves", "breaks", "hides", "jams"
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
    """

    operator: int
    groups: tuple[int, ...]
    table: tuple[int, ...] = ()
    lazy: int = 0
    lazy_on_release: int = 0

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
            return Dependence(tuple(1 << index for index in indices), {index: index for index in indices})
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
        return Dependence(self.groups, roles, lazy if honest else 0, holders, OPERATORS[self.operator])


@dataclass(frozen=True)
class Coupling:
    """What an engine does without declaring it.

    Args:
        kind: `reads`: the cell depends on `by`, too; `writes`: `by` changes it when it comes while `partner` is in
            force; `arrives`: it shows whether `by` came after `partner`; `counts`: how often `by` came, modulo 2;
            `refuses`: `by` is refused while `partner` is in force; `leaves`: a refusal of `by` changes the cell;
            `shows`: the observation alone shows whether `by` came after `partner`; `breaks`: an invariant fails while
            both are in force; `hides`: a variable that is not declared shows how often `by` came; `jams`: `by` cannot
            be released while `partner` is in force.
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
    """The states of an engine; `indices` are those of its registrations that can come."""

    count: int
    cells: tuple[Cell, ...]
    holders: tuple[int, int]
    couplings: tuple[Coupling, ...] = ()
    exclusions: tuple[int, ...] = ()
    indices: tuple[int, ...] = ()
    operators: tuple[OperatorName, ...] = OPERATORS
    honest: bool = True
    traces: bool = False

    def empty(self) -> State:
        return 0, tuple(self._fresh(cell, 0) for cell in self.cells), (0,) * len(self.couplings)

    def register(self, state: State, index: int, /) -> tuple[State, Refusal | None]:
        mask, values, numbers = state
        one = self.indices[index]
        if any(rule >> one & 1 and mask & rule for rule in self.exclusions):
            left = tuple(
                1 if each.kind == "leaves" and one == each.by else number
                for each, number in zip(self.couplings, numbers, strict=True)
            )
            return (mask, values, left), Refusal(ErrorKind.DUPLICATE_DEF, (), "they exclude one another")
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
        return (after, tuple(held), self._moved(numbers, mask, one)), None

    def release(self, state: State, index: int, /) -> State:
        mask, values, numbers = state
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
        return after, tuple(held), kept

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
                if each.kind in ("shows", "hides") and self.cells[each.cell].operator == number
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
        return {
            ("cell", at): cell.declared(self.holders[cell.operator], honest=self.honest)
            for at, cell in enumerate(self.cells)
        }

    def values(self, state: State, /) -> Mapping[Hashable, Hashable]:
        mask, values, numbers = state
        shown: dict[Hashable, Hashable] = {}
        for at, value in enumerate(values):
            if value is None:
                continue
            coupled = [
                number if each.kind != "reads" else mask >> each.by & 1
                for each, number in zip(self.couplings, numbers, strict=True)
                if each.cell == at and each.kind in ("reads", "writes", "arrives", "counts", "leaves")
            ]
            shown["cell", at] = (value, *coupled)
        for at, each in enumerate(self.couplings):
            if each.kind == "hides" and numbers[at]:
                shown["hidden", at] = numbers[at]
        return shown

    def deciders(self) -> Sequence[int]:
        found = [0] * self.count
        for rule in self.exclusions:
            for index in range(self.count):
                found[index] |= rule if rule >> index & 1 else 0
        return found

    def leaves_traces(self) -> bool:
        return self.traces

    def restricted(self, indices: Sequence[int], operators: Sequence[OperatorName], /) -> DeclaringSpace:
        return replace(self, indices=tuple(self.indices[index] for index in indices), operators=tuple(operators))

    def _fresh(self, cell: Cell, mask: int) -> Hashable:
        return () if not cell.table else cell.value(mask) if not self.holders[cell.operator] else None

    def _appears(self, cell: Cell, mask: int, one: int) -> bool:
        holders = self.holders[cell.operator]
        return bool(holders >> one & 1 and not mask & holders)

    def _moved(self, numbers: tuple[int, ...], mask: int, one: int) -> tuple[int, ...]:
        def moved(each: Coupling, number: int) -> int:
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


def random_engine(seed: int, *, secrets: bool) -> tuple[DeclaringEngine, tuple[int, ...]]:
    """An engine with up to three cells and an order to keep, always the same for a seed.

    Args:
        seed: the seed.
        secrets: whether it couples what it does not declare.
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
    space = DeclaringSpace(count, tuple(cells), holders, tuple(couplings), exclusions, tuple(range(count)))
    return DeclaringEngine(space), tuple(order[: random.below(count + 1)]) if random.chance(30) else ()


def shortest_failure(space: DeclaringSpace, order: Sequence[int], *, longest: int) -> Failure | None:
    """The shortest sequence that breaks a rule, of all sequences up to a length.

    The toy is a function of its state, so sequences to one state and one active set go on alike.
    """
    later = [0] * space.count
    after = 0
    for index in reversed(order):
        later[index] = after
        after |= 1 << index
    seen = {0: (space.observe(space.empty()), space.violations(space.empty()))}
    answers: dict[tuple[int, int], object] = {}
    last: dict[int, str] = {}
    broken: set[int] = set()
    frontier = known = {(0, space.empty())}
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
