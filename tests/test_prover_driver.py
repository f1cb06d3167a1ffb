"""What a walk found is run again from scratch before it is reported; what cannot be run again is nondeterministic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dispatchlab.errors import ErrorKind
from dispatchlab.model.snapshot import Refusal
from dispatchlab.prover.driver import conclude, crashed
from dispatchlab.prover.explore import explore
from dispatchlab.prover.limits import WalkName, WalkOptions
from dispatchlab.prover.protocol import EngineCrashed, Look
from dispatchlab.prover.result import Flaw, Verdict
from dispatchlab.prover.run_sequence import Session, Sessions
from tests.toy_engines import FOO, ForkableToyEngine, ToyEngine, toy


class Moody:
    """Refuses registration 0 from the second session on."""

    def __init__(self, *, refuses: bool) -> None:
        self._refuses = refuses

    def register(self, index: int, /) -> Refusal | None:
        return Refusal(ErrorKind.OTHER, (), "not today") if self._refuses and index == 0 else None

    def release(self, index: int, /) -> Refusal | None:
        return None

    def look(self) -> Look:
        return (), ()


def moody(*, from_session: int) -> tuple[Sessions, list[int]]:
    opened: list[int] = []

    @contextmanager
    def sessions() -> Iterator[Session]:
        opened.append(len(opened))
        yield Moody(refuses=len(opened) > from_session)

    return sessions, opened


def test_a_sequence_that_cannot_be_run_again_is_nondeterministic() -> None:
    sessions, opened = moody(from_session=0)
    verdict, found = conclude(sessions, 2, ((1,), (0, ~0, 1)), order=())
    assert (verdict, found.flaw, len(opened)) == (Verdict.NONDETERMINISTIC, Flaw.NONDETERMINISTIC, 1)
    assert found.why == (
        "a sequence of a walk cannot be run from scratch: step -0 cannot be run: after +0, 0 is not registered",
    )


def test_sequences_that_agree_this_time_are_nondeterministic() -> None:
    sessions, _ = moody(from_session=9)
    verdict, found = conclude(sessions, 2, ((1,), (0, ~0, 1)), order=())
    assert (verdict, found.flaw) == (Verdict.NONDETERMINISTIC, Flaw.NONDETERMINISTIC)
    assert found.why == ("the sequences disagreed in a walk and agree when they are run from scratch",)


def test_a_crash_whose_sequence_cannot_be_run_again_is_reported_as_it_is() -> None:
    sessions, _ = moody(from_session=0)
    sequence = (*(0, ~0) * 40, 1)
    verdict, found = crashed(sessions, 2, sequence, EngineCrashed("it ended"), order=())
    assert (verdict, found.actual_sequence) == (Verdict.CRASHED, sequence)
    assert found.why[0] == "it ended"
    assert found.why[1].startswith("it could not be made shorter: step -0 cannot be run")


@pytest.mark.parametrize("walk", ["graph", "orders", "sample"])
@pytest.mark.parametrize("kind", [ToyEngine, ForkableToyEngine])
@pytest.mark.parametrize("bound", [1, 2, 3, 7, 16])
def test_no_walk_reports_more_states_than_its_bound(walk: WalkName, kind: type[ToyEngine], bound: int) -> None:
    engine = kind(toy(4))
    found = explore(engine, engine.registrations, [FOO], WalkOptions(walk=walk, max_states=bound, samples=50))
    assert found.sets <= found.states <= bound
    assert (found.verdict is Verdict.INCOMPLETE) == (f"stopped at the bound of {bound} states" in found.notes)
    if walk != "sample":
        assert (found.states, found.verdict is Verdict.INCOMPLETE) == (bound, bound < 16)
