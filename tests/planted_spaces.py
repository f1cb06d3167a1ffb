"""Engines whose state space is wrong on purpose: it says something else than the sandbox, or its equality forgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from dispatchlab.errors import RegistrationError
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Claim, Registration
from dispatchlab.model.snapshot import Refusal, Snapshot, Violation
from dispatchlab.prover.explore import explore
from dispatchlab.prover.result import Verdict
from tests.brute_force import brute_force
from tests.toy_engines import FOO, State, ToySandbox, ToySpace, random_toy

LONGEST = 7


@dataclass(frozen=True)
class TwoFacedEngine:
    """An engine whose states are those of one toy, and whose sandboxes are those of another."""

    states: Any
    real: ToySpace
    name: str = "toy"
    semantics: str = "toy"

    @property
    def registrations(self) -> tuple[Registration, ...]:
        return tuple(Claim(f"n{index}") for index in range(self.real.count))

    @contextmanager
    def sandbox(self) -> Iterator[ToySandbox]:
        yield ToySandbox(self.real, self.registrations)

    def space(self, registrations: Sequence[Registration], operators: Sequence[OperatorName], /) -> Any:
        return self.states


class ForgetfulState:
    """A state whose equality sees the active set alone."""

    def __init__(self, state: State) -> None:
        self.state = state

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ForgetfulState) and self.state[0] == other.state[0]

    def __hash__(self) -> int:
        return hash(self.state[0])


class ForgetfulSpace:
    """The states of a toy, with an equality that forgets."""

    def __init__(self, toy: ToySpace) -> None:
        self.toy = toy

    def empty(self) -> ForgetfulState:
        return ForgetfulState(self.toy.empty())

    def register(self, state: ForgetfulState, index: int, /) -> tuple[ForgetfulState, Refusal | None]:
        after, refusal = self.toy.register(state.state, index)
        return ForgetfulState(after), refusal

    def release(self, state: ForgetfulState, index: int, /) -> ForgetfulState:
        return ForgetfulState(self.toy.release(state.state, index))

    def observe(self, state: ForgetfulState, /) -> tuple[Snapshot, ...]:
        return self.toy.observe(state.state)

    def violations(self, state: ForgetfulState, /) -> tuple[Violation, ...]:
        return self.toy.violations(state.state)

    def why(self, expected: ForgetfulState, actual: ForgetfulState, /) -> tuple[str, ...]:
        return ()


def two_faced(seed: int) -> TwoFacedEngine | None:
    """An engine whose states lack the flaws of its sandboxes; None when no sequence shows the difference."""
    real = random_toy(seed)
    states = replace(real, planted=())
    return TwoFacedEngine(states, real) if _disagree(states, real) else None


def forgetful(seed: int) -> TwoFacedEngine | None:
    """An engine whose order matters and whose equality hides it; None when the order does not matter."""
    toy = random_toy(seed)
    if brute_force(toy, toy.count, longest=LONGEST) is None:
        return None
    return TwoFacedEngine(ForgetfulSpace(toy), toy)


def _disagree(one: ToySpace, other: ToySpace) -> bool:
    """Whether some sequence of up to `LONGEST` steps shows that two toys are not the same."""
    pairs: set[tuple[frozenset[int], State, State]] = {(frozenset(), one.empty(), other.empty())}
    known = set(pairs)
    for _ in range(LONGEST):
        further = set()
        for active, mine, theirs in pairs:
            for index in range(one.count):
                try:
                    if index in active:
                        left, right, refused = one.release(mine, index), other.release(theirs, index), False
                    else:
                        left, refusal = one.register(mine, index)
                        right, another = other.register(theirs, index)
                        if _told(refusal) != _told(another):
                            return True
                        refused = refusal is not None
                except RegistrationError:
                    return True
                if one.observe(left) != other.observe(right) or one.violations(left) != other.violations(right):
                    return True
                after = active if refused else active ^ {index}
                if (after, left, right) not in known:
                    known.add((after, left, right))
                    further.add((after, left, right))
        pairs = further
    return False


def _told(refusal: Refusal | None) -> object:
    return None if refusal is None else (refusal.kind, refusal.facts)


def verdicts_of_wrong_spaces(wanted: int) -> Counter[Verdict]:
    """Explore so many engines with a wrong space, half of each kind, and count the verdicts."""
    verdicts: Counter[Verdict] = Counter()
    for make in (two_faced, forgetful):
        seed = found = 0
        while found < wanted // 2:
            engine = make(seed)
            seed += 1
            if engine is None:
                continue
            found += 1
            verdicts[explore(engine, engine.registrations, [FOO]).verdict] += 1
    return verdicts
