"""A predicate that must hold in every state of a scenario, with the shortest sequence after which it fails."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.errors import DispatchLabError
from dispatchlab.model.registration import Registration
from dispatchlab.model.sequence import StepSequence, format_sequence
from dispatchlab.model.snapshot import Snapshot
from dispatchlab.prover.states import ReachableStates
from dispatchlab.scenario.load import load_scenario
from dispatchlab.scenario.scenario import Scenario, operators_named_by


class TooManyStatesError(DispatchLabError):
    """A predicate was not checked in every state."""

    states: int

    template = (
        "the predicate holds in {states:,} states, but there are more: increase max_states, or use fewer registrations"
    )


@dataclass(frozen=True, slots=True)
class StateCheck:
    """The result of a predicate.

    >>> from dispatchlab import Claim, explore
    >>> explore([Claim("a")], always=lambda operators: True)
    StateCheck(holds=True, states=2, sequence=None, snapshots=())

    Args:
        holds: whether it holds in every state.
        states: in how many states it was tested.
        sequence: a shortest sequence to a state in which it does not hold; None where it holds in all.
        snapshots: the operators after it.
    """

    holds: bool
    states: int
    sequence: StepSequence | None = None
    snapshots: tuple[Snapshot, ...] = ()

    def __str__(self) -> str:
        if self.sequence is None:
            return f"holds in every state ({self.states:,})"
        return f"does not hold after {format_sequence(self.sequence)}"


def explore(
    subject: str | os.PathLike[str] | Scenario | Sequence[Registration],
    *,
    always: Callable[[tuple[Snapshot, ...]], bool],
    semantics: str | None = None,
    max_states: int = 100_000,
) -> StateCheck:
    """Check a predicate in every state that registrations and releases can reach on the lab engine.

    >>> from dispatchlab import DispatchKey, Impl, explore, parse_name
    >>> foo = parse_name("test::foo")
    >>> two = [Impl(foo, DispatchKey.CPU, debug="fn_1"), Impl(foo, DispatchKey.CPU, debug="fn_2")]
    >>> print(explore(two, always=lambda operators: "fn_1" in operators[0].dump or not operators[0].exists))
    does not hold after +1

    Args:
        subject: a scenario or its file, or registrations.
        always: takes the snapshots of the observed operators, in their order.
        semantics: the dispatcher; by default the scenario's, or else the newest PyTorch.
        max_states: raise an error where there are more.

    Raises:
        TooManyStatesError: there are more states.
        DispatchLabError: the scenario cannot be used.
    """
    if isinstance(subject, str | os.PathLike):
        subject = load_scenario(subject)
    if isinstance(subject, Scenario):
        registrations, operators, order = subject.registrations, subject.operators, subject.order
        semantics = semantics or subject.semantics
    else:
        registrations, operators, order = tuple(subject), operators_named_by(subject), ()
    space = LabEngine(semantics).space(registrations, operators)
    stop = lambda states, _: "full" if states > max_states else None  # noqa: E731
    found = ReachableStates(space, range(len(registrations)), order, stop=stop)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of kernels that are overridden
        edges = found.edges()
        tested = 0
        while True:
            for node in range(tested, len(found.states)):
                snapshots = space.observe(found.states[node])
                if not always(snapshots):
                    return StateCheck(False, node + 1, found.sequence(node), snapshots)  # noqa: FBT003
            tested = len(found.states)
            if next(edges, None) is None:
                break
    if found.stopped is not None:
        raise TooManyStatesError(tested)
    return StateCheck(True, tested)  # noqa: FBT003
