"""Engines of a few lines with defects planted on purpose, to hold the explorer against.

A toy engine has `count` registrations and a list of flaws. A flaw keeps one small hidden number, which its trigger
moves, and has an effect once that number is not zero and certain registrations are active.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, TypeAlias

from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Claim, Registration
from dispatchlab.model.snapshot import Refusal, Snapshot, Violation
from dispatchlab.prover.prng import SplitMix64
from dispatchlab.prover.protocol import EngineCrashed, StateSpace

FOO = OperatorName("test", "foo")

Trigger: TypeAlias = Literal["counts", "sticks", "remembers", "is poisoned", "is haunted", "depends on order"]
Effect: TypeAlias = Literal["nothing", "shows", "refuses", "rewords", "breaks", "jams", "crashes"]
TRIGGERS: tuple[Trigger, ...] = ("counts", "sticks", "remembers", "is poisoned", "is haunted", "depends on order")
EFFECTS: tuple[Effect, ...] = ("nothing", "shows", "refuses", "rewords", "breaks", "jams")

State: TypeAlias = tuple[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Planted:
    """One flaw: a number that `trigger` moves on account of `by` and `partner`, and what it does.

    Args:
        trigger: `counts` accepted `+by` modulo `modulo`; `sticks` at 1 after `+by` while `partner` is active;
            `remembers` whether `partner` was active at the last `+by`; `is poisoned` by a refused `+by`; `is haunted`
            after `-by`; `depends on order`: `+by` while `partner` is active, until one of them goes.
        effect: `refuses` `+target`, `rewords` (adds another fact when `target` is refused anyway), `jams` (the release
            of `target` fails), `crashes` on `+target`.
        when: the effect is there while all of this mask is active.
        unless: and nothing of this mask.
    """

    trigger: Trigger
    by: int
    partner: int
    effect: Effect
    target: int = 0
    when: int = 0
    unless: int = 0
    modulo: int = 2

    def moved(self, value: int, mask: int, step: int, *, refused: bool) -> int:
        with_partner = int(mask >> self.partner & 1)
        mine = step == self.by
        match self.trigger:
            case "counts":
                return (value + 1) % self.modulo if mine and not refused else value
            case "sticks":
                return 1 if mine and not refused and with_partner else value
            case "remembers":
                return with_partner if mine and not refused else value
            case "is poisoned":
                return 1 if mine and refused else value
            case "is haunted":
                return 1 if step == ~self.by else value
            case "depends on order":
                if step in (~self.by, ~self.partner):
                    return 0
                return with_partner if mine and not refused else value

    def acts(self, value: int, mask: int) -> bool:
        return value != 0 and mask & self.when == self.when and not mask & self.unless


@dataclass(frozen=True, slots=True)
class Exclusion:
    """`members` cannot all be active, unless all of another mask is too.

    `only_last` restricts that to one of them coming last, `kinds` are the refusals, by index.
    """

    members: int
    only_last: int | None = None
    kinds: tuple[ErrorKind, ...] = (ErrorKind.DUPLICATE_DEF,)
    names_last: bool = False
    unless: int = 0

    def refusal(self, mask: int, index: int) -> Refusal | None:
        if not self.members >> index & 1 or (mask | 1 << index) & self.members != self.members:
            return None
        if self.only_last not in (None, index) or (self.unless and mask & self.unless == self.unless):
            return None
        kind = self.kinds[index % len(self.kinds)]
        facts = (("last", str(index)),) if self.names_last else ()
        return Refusal(kind, facts, f"{self.members:b} exclude one another")


@dataclass(frozen=True)
class ToySpace:
    """The states of a toy engine: the active set and one number for each flaw."""

    count: int
    planted: tuple[Planted, ...] = ()
    exclusions: tuple[Exclusion, ...] = ()

    def empty(self) -> State:
        return 0, (0,) * len(self.planted)

    def register(self, state: State, index: int, /) -> tuple[State, Refusal | None]:
        mask, values = state
        refusal = next((found for rule in self.exclusions if (found := rule.refusal(mask, index))), None)
        for flaw, value in zip(self.planted, values, strict=True):
            if flaw.target == index and flaw.acts(value, mask):
                if flaw.effect == "crashes":
                    raise EngineCrashed("the toy is broken")
                if flaw.effect == "refuses" and refusal is None:
                    refusal = Refusal(ErrorKind.SIGNATURE_MISMATCH, (), "the flaw says no")
                if flaw.effect == "rewords" and refusal is not None:
                    refusal = replace(refusal, facts=(*refusal.facts, ("flaw", str(value))))
        moved = self._moved(state, index, refused=refusal is not None)
        return (mask if refusal else mask | 1 << index, moved), refusal

    def release(self, state: State, index: int, /) -> State:
        mask, values = state
        for flaw, value in zip(self.planted, values, strict=True):
            if flaw.effect == "jams" and flaw.target == index and flaw.acts(value, mask):
                raise RegistrationError(ErrorKind.OTHER, "the handle is jammed")
        return mask ^ 1 << index, self._moved(state, ~index, refused=False)

    def observe(self, state: State, /) -> tuple[Snapshot, ...]:
        mask, values = state
        shown = [
            f"flaw {number}: {value}\n"
            for number, (flaw, value) in enumerate(zip(self.planted, values, strict=True))
            if flaw.effect == "shows" and flaw.acts(value, mask)
        ]
        return (Snapshot(FOO, f"active: {mask:0{self.count}b}\n", "".join(shown)),)

    def violations(self, state: State, /) -> tuple[Violation, ...]:
        mask, values = state
        return tuple(
            Violation(FOO, "the toy is in order", f"flaw {number} has {value}")
            for number, (flaw, value) in enumerate(zip(self.planted, values, strict=True))
            if flaw.effect == "breaks" and flaw.acts(value, mask)
        )

    def why(self, expected: State, actual: State, /) -> tuple[str, ...]:
        return tuple(
            f"flaw {number}: {one} and {other}"
            for number, (one, other) in enumerate(zip(expected[1], actual[1], strict=True))
            if one != other
        )

    def _moved(self, state: State, step: int, *, refused: bool) -> tuple[int, ...]:
        mask, values = state
        flaws = zip(self.planted, values, strict=True)
        return tuple(flaw.moved(value, mask, step, refused=refused) for flaw, value in flaws)


@dataclass
class ToyHandle:
    """A registration that is in force in a toy sandbox."""

    sandbox: ToySandbox
    index: int
    released: bool = False

    def release(self) -> None:
        if not self.released:
            self.sandbox.state = self.sandbox.space.release(self.sandbox.state, self.index)
            self.released = True


@dataclass
class ToySandbox:
    """A toy engine that can only be registered with, as a live one."""

    space: StateSpace[Any]
    registrations: Sequence[Registration]
    operators: Sequence[OperatorName] = (FOO,)
    state: Any = field(init=False)

    def __post_init__(self) -> None:
        self.state = self.space.empty()

    def register(self, registration: Registration, /) -> ToyHandle:
        index = self.registrations.index(registration)
        self.state, refusal = self.space.register(self.state, index)
        if refusal is not None:
            raise RegistrationError(refusal.kind, refusal.message, dict(refusal.facts))
        return ToyHandle(self, index)

    def snapshot(self, operator: OperatorName, /) -> Snapshot:
        return self.space.observe(self.state)[self.operators.index(operator)]

    def violations(self, operator: OperatorName, /) -> tuple[Violation, ...]:
        return tuple(broken for broken in self.space.violations(self.state) if broken.operator == operator)


@cache
def _claims(count: int) -> tuple[Registration, ...]:
    return tuple(Claim(f"n{index}") for index in range(count))


@dataclass(frozen=True)
class ToyEngine:
    """A toy engine that cannot fork."""

    toy: ToySpace
    name: str = "toy"
    semantics: str = "toy"

    @property
    def registrations(self) -> tuple[Registration, ...]:
        return _claims(self.toy.count)

    @contextmanager
    def sandbox(self) -> Iterator[ToySandbox]:
        yield ToySandbox(self.toy, self.registrations)


@dataclass(frozen=True)
class ForkableToyEngine(ToyEngine):
    """A toy engine whose whole state is a value."""

    def space(self, registrations: Sequence[Registration], operators: Sequence[OperatorName], /) -> ToySpace:
        assert tuple(registrations) == self.registrations
        assert tuple(operators) == (FOO,)
        return self.toy


def toy(count: int, *planted: Planted, exclusions: tuple[Exclusion, ...] = ()) -> ToySpace:
    """A toy engine with these flaws."""
    return ToySpace(count, planted, exclusions)


def random_toy(seed: int, count: int = 3) -> ToySpace:
    """A toy engine with up to two flaws and up to two exclusions, always the same one for a seed."""
    random = SplitMix64(seed)
    exclusions = []
    for _ in range(random.below(3)):
        members = 1 + random.below((1 << count) - 1)
        odd_one = random.below(count) if random.chance(15) else None
        kinds = (
            (ErrorKind.DUPLICATE_DEF, ErrorKind.SCHEMA_CONFLICT) if random.chance(10) else (ErrorKind.DUPLICATE_DEF,)
        )
        exclusions.append(Exclusion(members, odd_one, kinds, names_last=random.chance(30)))
    planted = []
    for _ in range(random.below(3)):
        trigger = TRIGGERS[random.below(len(TRIGGERS))]
        effect = EFFECTS[random.below(len(EFFECTS))]
        by, partner, target = (random.below(count) for _ in range(3))
        when, unless = (random.below(1 << count) & random.below(1 << count) for _ in range(2))
        modulo = 2 + random.below(2)
        planted.append(Planted(trigger, by, partner, effect, target, when, unless & ~when, modulo))
    return ToySpace(count, tuple(planted), tuple(exclusions))
