"""Changes of a scenario that take a difference away: each was tried on an engine before it is advised."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Final, NamedTuple

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.engine.semantics import SEMANTICS as MODELLED
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.registration import Claim, Def, Fallback, NameOnly, Registration, inner_of, operators_of
from dispatchlab.model.slot_set import keys_of, slots_of_key
from dispatchlab.model.snapshot import Refusal, Snapshot
from dispatchlab.prover.chains import ChainsWithin, Module, keeping, normal
from dispatchlab.prover.explore import explore
from dispatchlab.prover.limits import WalkOptions
from dispatchlab.prover.protocol import Engine, Forkable
from dispatchlab.prover.result import Counterexample, Expectation, Flaw, Verdict
from dispatchlab.prover.run_sequence import on_sandboxes, run
from dispatchlab.scenario.scenario import Scenario

_MOST_TRIED: Final = 6
"""Of more registrations, those of the counterexample alone are tried."""

_OPTIONS: Final = WalkOptions(max_states=5_000)
_GOOD: Final = (Verdict.ORDER_INDEPENDENT, Verdict.NO_VIOLATION_FOUND)


def model_of(engine: Engine) -> Engine | None:
    """Return an engine whose states are values: this one or the lab engine that models it; None for none."""
    if isinstance(engine, Forkable):
        return engine
    return LabEngine(engine.semantics) if engine.semantics in MODELLED else None


class Change(NamedTuple):
    """A change of a scenario, as an edit of its file makes it.

    Args:
        dropped: the registrations to leave out.
        order: the registrations to keep in this order.
        releases: whether anything is released; if not, each registration is a module of its own.
        expect: the verdict to expect after the change; None for the one that the scenario expects, or if unknown.
    """

    dropped: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    releases: bool = True
    expect: Expectation | None = None


def changed(scenario: Scenario, change: Change) -> Scenario:
    """Return the scenario after a change."""
    kept = [index for index in range(len(scenario.registrations)) if index not in change.dropped]
    order, expect = normal((*scenario.order, change.order)), change.expect or scenario.expect
    edited = among(replace(scenario, order=order, expect=expect), kept)
    modules = edited.modules
    if not change.releases and not modules:
        modules = tuple(Module(f"m{index}", (index,)) for index in range(len(kept)))
    return replace(edited, modules=modules, snapshots=scenario.snapshots and not modules)


def among(scenario: Scenario, members: Sequence[int]) -> Scenario:
    """Return the scenario with some of its registrations alone."""
    number = {member: new for new, member in enumerate(members)}
    bodies = (Module(name, tuple(number[at] for at in body if at in number)) for name, body in scenario.modules)
    return replace(
        scenario,
        registrations=tuple(scenario.registrations[member] for member in members),
        order=ChainsWithin(scenario.order).among(members),
        modules=tuple(body for body in bodies if body.registrations),
    )


class Fixes(NamedTuple):
    """The changes that help.

    Args:
        drops: the smallest changes that leave registrations out.
        order: the order that helps; None for none.
        is_free: whether the order may also be the reverse.
        is_whole: whether the scenario was tried, and not the registrations of the counterexample alone.
    """

    drops: tuple[Change, ...] = ()
    order: Change | None = None
    is_free: bool = False
    is_whole: bool = True

    @property
    def changes(self) -> tuple[Change, ...]:
        """Each change that helps."""
        return (*self.drops, *([] if self.order is None else [self.order]))


def find_fixes(engine: Engine, scenario: Scenario, example: Counterexample, members: Sequence[int]) -> Fixes:
    """Return the changes after which the order does not matter.

    Args:
        engine: a forkable one, where the counterexample was found or its model.
        scenario: the scenario.
        example: the counterexample.
        members: the registrations that meet in it.
    """
    every, met = scenario.registrations, example.registrations
    names = {name for at in met for name in operators_of(every[at])}
    near = [at for at, one in enumerate(every) if isinstance(one, Fallback) or not names.isdisjoint(operators_of(one))]
    whole = [*range(len(every))] if len(every) <= _MOST_TRIED else sorted({*near, *met})
    is_whole = len(whole) <= _MOST_TRIED
    return _Trial(engine, scenario, example, whole if is_whole else met).fixes(members)._replace(is_whole=is_whole)


class _Tried(NamedTuple):
    """The result of a change.

    Args:
        helps: whether the order does not matter any more, and nothing is refused that was accepted before.
        is_clean: whether nothing is refused if the defs come first.
        late: the registrations that are refused unless others come before them.
    """

    helps: bool
    is_clean: bool
    late: tuple[int, ...] = ()


class _Trial:
    """Changes of some registrations of a scenario, on an engine."""

    def __init__(self, engine: Engine, scenario: Scenario, example: Counterexample, scope: Sequence[int]) -> None:
        self.engine, self.scenario, self.example, self.scope = engine, scenario, example, scope
        self.outside = tuple(at for at in range(len(scenario.registrations)) if at not in scope)
        self.sequences = example.expected_sequence, example.actual_sequence
        ran = [step for sequence in self.sequences for step in replay(engine, scenario, sequence)[0]]
        self.accepted = {index for index, refusal in ran if refusal is None}
        self.tried: dict[Change, _Tried] = {}

    def fixes(self, members: Sequence[int]) -> Fixes:
        """Return what helps; nothing if the difference does not show on this engine."""
        if self._try(Change()).helps:
            return Fixes()
        kernels = [at for at in self.scope if not is_definition(self.scenario.registrations[at])]
        candidates = [*dict.fromkeys((*members, *kernels))]
        drops = self._drops(candidates) or self._drops(self.scope)
        is_clean = any(self._try(change).is_clean for change in drops)
        dropped = {at for change in drops for at in change.dropped}
        others = [at for at in candidates if at not in members]
        orders = self._orders(members, [at for at in others if at in dropped], others)
        helping = (one for one in orders if self._try(one).helps and (self._try(one).is_clean or not is_clean))
        order = next(helping, None)
        completed = tuple(map(self._complete, drops))
        if order is None:
            return Fixes(completed)
        if self._try(order).late:
            order = next((one for one in helping if not self._try(one).late), order)
        turned = [at for at in order.order if at in candidates]
        first = [at for at in order.order if at not in turned]
        back = tuple(keeping((*first, *turned[::-1]), self.scenario.order))
        is_free = back != order.order and self._try(order._replace(order=back)).helps
        return Fixes(completed, self._complete(order), is_free=is_free)

    def _complete(self, change: Change) -> Change:
        """Return a change with the order after which nothing is refused, if there is one, and what to expect."""
        late = self._try(change).late
        if late and not change.order:
            defs = [at for at in self._defs(self.scope) if at not in change.dropped]
            order = tuple(keeping(dict.fromkeys((*defs, *late)), self.scenario.order))
            ways = (Change(change.dropped, order, releases) for releases in (True, False))
            change = next((way for way in ways if self._try(way) == _Tried(helps=True, is_clean=True)), change)
        accepts = self._try(change) == _Tried(helps=True, is_clean=True)
        expect = Expectation.ORDER_INDEPENDENT if accepts else Expectation.REFUSED
        return change if self.outside or expect is self.scenario.expect else change._replace(expect=expect)

    def _drops(self, candidates: Sequence[int]) -> tuple[Change, ...]:
        """Return the smallest removals of registrations, if possible those after which nothing is refused."""
        for size in range(1, len(candidates) + 1):
            changes = [Change(tuple(sorted(dropped))) for dropped in combinations(candidates, size)]
            if helping := [change for change in changes if self._try(change).helps]:
                return tuple(change for change in helping if self._try(change).is_clean) or tuple(helping)
        return ()

    def _orders(self, members: Sequence[int], *groups: Sequence[int]) -> Iterator[Change]:
        """Return the orders to try: first those that leave releases free, then the short ones."""
        met = [[at for at in dict.fromkeys((*sequence, *members)) if at in members] for sequence in self.sequences]
        met += [order[::-1] for order in met] if self.example.flaw is Flaw.INVARIANT else []
        defs = [at for at in self.scope if at not in members and at not in groups[-1]]
        orders = []
        for others in groups:
            orders += [[*first, *order] for first in ([], defs, others, [*defs, *others]) for order in met]
            orders += [[*first, *order, *others] for first in ([], defs) for order in met]
        chosen = [tuple(keeping(order, self.scenario.order)) for order in orders]
        chosen = [order for order in dict.fromkeys(chosen) if len(order) > 1]
        if not self.scenario.modules:
            yield from (Change((), order) for order in chosen)
        if self.example.flaw is Flaw.UNDO:
            yield Change(releases=False)
        if self.example.flaw in (Flaw.RESIDUE, Flaw.INVARIANT) and not self.scenario.modules:  # it would only hide it
            return
        yield from (Change((), order, releases=False) for order in chosen)

    def _try(self, change: Change) -> _Tried:
        if change not in self.tried:
            self.tried[change] = self._explore(change)
        return self.tried[change]

    def _explore(self, change: Change) -> _Tried:
        edited = changed(self.scenario, change._replace(dropped=(*change.dropped, *self.outside)))
        kept = [at for at in self.scope if at not in change.dropped]
        about = self.engine, edited.registrations, edited.operators, _OPTIONS
        found = explore(*about, order=edited.order, modules=edited.modules)
        if found.verdict not in _GOOD:
            return _Tried(helps=False, is_clean=False)
        defs_first = [kept.index(at) for at in (*self._defs(kept), *kept)]
        ran, _ = replay(self.engine, edited, keeping(dict.fromkeys(defs_first), edited.order))
        refused = {kept[at] for at, refusal in ran if refusal is not None}
        late = tuple(kept[one.members[0]] for one in found.conflicts if one.members[0] not in found.never_accepted)
        return _Tried(helps=refused.isdisjoint(self.accepted), is_clean=not refused, late=late)

    def _defs(self, members: Sequence[int]) -> list[int]:
        """Return the registrations that bring a def."""
        return [at for at in members if any(isinstance(one, Def) for one in inner_of(self.scenario.registrations[at]))]


def find_lost(engine: Engine, scenario: Scenario, example: Counterexample, change: Change) -> tuple[str, list[str]]:
    """Return an operator and the keys whose calls run a kernel before a change and raise an error after it.

    The only key is empty if the operator has no def after the change. There are no keys if every call still runs.
    """
    edited = changed(scenario, change)
    every, edited_every = range(len(scenario.registrations)), range(len(edited.registrations))
    defs_first = sorted(edited_every, key=lambda at: not is_definition(edited.registrations[at]))
    whole = [(scenario, (*one, *every)) for one in (example.expected_sequence, example.actual_sequence)]
    *befores, after = (
        replay(engine, of, keeping(dict.fromkeys(step for step in sequence if step >= 0), of.order))[1]
        for of, sequence in (*whole, (edited, tuple(defs_first)))
    )
    backends = set(map(str, keys_of(slots_of_key(DispatchKey.CompositeExplicitAutograd))))
    is_pytorch = engine.semantics not in ("strict", "pr35061")  # these know no builtin fallback, which PyTorch has
    for operator, end in after.items():
        earlier = [before[operator] for before in befores if operator in before]
        if end.schema is None and any(one.schema for one in earlier):
            return operator, [""]
        runs = running(end)
        lost = dict.fromkeys(key for one in earlier for key in running(one) if key not in runs)
        if keys := [key for key in lost if is_pytorch or key in backends]:
            return operator, keys
    return "", []


def running(shown: Snapshot) -> list[str]:
    """Return the keys whose slots hold a kernel that does not raise an error."""
    rows = (row.partition(": ") for row in (shown.slots or shown.table).splitlines())
    return [key for key, _, entry in rows if entry and "ambiguous" not in entry]


def replay(
    engine: Engine, scenario: Scenario, sequence: Iterable[int]
) -> tuple[list[tuple[int, Refusal | None]], dict[str, Snapshot]]:
    """Return the steps of a sequence, each with its refusal, and then each operator by its name."""
    with on_sandboxes(engine, scenario.registrations, scenario.operators)() as session:
        steps = list(run(session, tuple(sequence)))
        return steps, {str(snapshot.operator): snapshot for snapshot in session.look()[0]}


def is_definition(registration: Registration) -> bool:
    """Return whether a registration brings no kernel."""
    return all(
        isinstance(one, NameOnly | Claim) or (isinstance(one, Def) and one.kernel is None)
        for one in inner_of(registration)
    )
