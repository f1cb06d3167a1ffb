"""Modules: registrations that one import makes together, and that are never released.

See Note [Orders of imports].
"""

# Note [Orders of imports]
# ~~~~~~~~~~~~~~~~~~~~~~~~
# The lines of a module body run in program order, and nothing of another module comes between them but what the body
# imports. So an order of imports is an order of modules, in which a module comes after all that it imports: the chains
# say so. Each such order is one that a program can make, by importing the modules one by one. Orders in which a body is
# half done when it imports another module are left out: no verdict stands on an order that Python cannot make.
# A refusal ends a program: it is an exception at import. So there is a rule besides those of the checker: when one
# order makes every registration, all orders do. When none does, the registrations exclude one another, in whatever
# order. That is no proof: the order decides which of them is in force, and what follows in their modules was not
# reached.
# Registrations that share no variable of the state with others are taken by themselves, as in partition.py, each with
# what is left of its module.

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from dispatchlab.errors import first_of
from dispatchlab.model.kernel_identity import distinguished
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Block, BlockKind, Claim, Fallback, Registration, inner_of, operators_of
from dispatchlab.model.sequence import StepSequence
from dispatchlab.prover.all_orders import orders_keeping
from dispatchlab.prover.chains import (
    Chains,
    ChainsWithin,
    Module,
    count_registration_orders,
    earlier_masks,
    keeping,
    later_masks,
    normal,
)
from dispatchlab.prover.checker import outcome_difference, outcome_text
from dispatchlab.prover.driver import Run, Steps, Walk, explore_walk
from dispatchlab.prover.limits import DEFAULT_WALK, Interrupted, Progress, WalkOptions, Watch
from dispatchlab.prover.partition import among, groups_by, parts_of, places_of, strays_of
from dispatchlab.prover.prng import SplitMix64
from dispatchlab.prover.protocol import Engine, Forkable, StateSpace
from dispatchlab.prover.random_walk import DEFAULT_SAMPLES
from dispatchlab.prover.result import Counterexample, Exploration, Flaw, Verdict
from dispatchlab.prover.run_sequence import Sessions, compare_sequences, on_prefixes, on_sandboxes, reasons_of, run

MOST_ORDERS: Final = 5_040
"""Of more orders of one group, some are chosen at random."""

_NAMED: Final = 6
_GOOD: Final = (Verdict.ORDER_INDEPENDENT, Verdict.NO_VIOLATION_FOUND)


def chains_of(modules: Sequence[Module], order: Chains) -> Chains:
    """Return the chains of modules that follow from chains of registrations, by position.

    Raises:
        ValueError: the chains have a cycle.
    """
    module_of = {index: at for at, module in enumerate(modules) for index in module.registrations}
    chains = ([module_of[index] for index in chain if index in module_of] for chain in order)
    return normal(list(dict.fromkeys(chain)) for chain in chains)


def explore_modules(
    engine: Engine,
    registrations: Sequence[Registration],
    operators: Sequence[OperatorName],
    modules: Sequence[Module],
    options: WalkOptions = DEFAULT_WALK,
    *,
    order: Chains = (),
    cancelled: Callable[[], bool] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Exploration:
    """Explore whether the order of imports matters. See Note [Orders of imports].

    The other arguments are those of `explore`.

    Args:
        modules: the modules with their registrations; a registration without a module counts as a module.

    Returns:
        The verdict on the orders, with sums over the groups, and a counterexample of whole modules.

    Raises:
        Interrupted: Ctrl-C; the error has the results so far.
    """
    watch = Watch(options, cancelled=cancelled, progress=progress)
    registrations = distinguished(registrations)
    blocks = _blocks(len(registrations), modules)
    whole = _Imports(engine, registrations, operators, blocks, chains_of(blocks, order), options, watch)
    names = [module.name for module in modules]
    shown = first_of(names, _NAMED)
    orders = count_registration_orders(len(blocks), whole.chains)
    every = (
        "the one order" if orders == 1 or len(modules) == 1 else "every order"
    )  # a def that comes along is no module
    scope = f"checked: {every} of importing {shown}, each module as a whole; nothing is released"

    def about(found: Exploration) -> Exploration:
        return replace(found, orders=orders, modules=len(modules), notes=(*found.notes, scope))

    try:
        return about(whole.explore())
    except Interrupted as stopped:
        raise Interrupted(about(stopped.exploration)) from None


def _blocks(count: int, modules: Sequence[Module]) -> list[Module]:
    listed = {index for module in modules for index in module.registrations}
    return [*modules, *(Module("", (index,)) for index in range(count) if index not in listed)]


def import_states(
    space: StateSpace[Any], count: int, modules: Sequence[Module], order: Chains
) -> Iterator[tuple[Any, StepSequence]]:
    """Return every state that imports of whole modules can reach, with a sequence of the fewest imports to it."""
    blocks = _blocks(count, modules)
    earlier = earlier_masks(len(blocks), chains_of(blocks, order))
    found: dict[tuple[int, Any], StepSequence] = {(0, space.empty()): ()}
    waiting = deque(found)
    while waiting:
        mask, state = waiting.popleft()
        yield state, found[mask, state]
        for at, block in enumerate(blocks):
            new, refusal = state, None
            if mask >> at & 1 or earlier[at] & ~mask:
                continue
            for index in block.registrations:
                new, refusal = space.register(new, index)
                if refusal is not None:
                    break
            node = mask | 1 << at, new
            if refusal is None and node not in found:
                found[node] = *found[mask, state], *block.registrations
                waiting.append(node)


class _Imports(NamedTuple):
    engine: Engine
    registrations: Sequence[Registration]
    operators: Sequence[OperatorName]
    blocks: Sequence[Module]
    chains: Chains
    options: WalkOptions
    watch: Watch

    def explore(self) -> Exploration:
        """Explore each group separately; if a group is not independent, explore all at once."""
        groups = self._groups()
        total = Exploration(Verdict.ORDER_INDEPENDENT, "imports", len(self.registrations), 0, 0, 0, 0)
        for members in groups:
            found, is_independent = self._explore(members)
            if not is_independent and len(groups) > 1:
                return self._explore(range(len(self.registrations)))[0]
            self.watch.settle(found)
            gravest = found if found.verdict is not Verdict.ORDER_INDEPENDENT else total
            total = replace(
                gravest,
                sets=total.sets + found.sets,
                states=total.states + found.states,
                edges=total.edges + found.edges,
                components=len(groups),
                conflicts=tuple(dict.fromkeys(total.conflicts + found.conflicts)),
                never_accepted=total.never_accepted + found.never_accepted,
                notes=tuple(dict.fromkeys(total.notes + found.notes)),
                elapsed_s=self.watch.elapsed_s,
            )
            if found.verdict not in _GOOD:
                break
        return total

    def _groups(self) -> list[Sequence[int]]:
        """Return the registrations that share variables, or operators if the engine does not know them."""
        everything = range(len(self.registrations))
        if isinstance(self.engine, Forkable):
            space = self.engine.space(self.registrations, self.operators)
            return [part.indices for part in parts_of(space, self.registrations, self.operators)]
        if any(isinstance(inner, Claim | Fallback) for one in self.registrations for inner in inner_of(one)):
            return [everything]
        return [*groups_by(everything, lambda index: _names(self.registrations[index]))]

    def _explore(self, members: Sequence[int]) -> tuple[Exploration, bool]:
        """Return the exploration of some registrations, and whether it used no variable outside of them."""
        engine, options, chosen = self.engine, self.options, {*members}
        taken = {
            at: [index for index in block.registrations if index in chosen] for at, block in enumerate(self.blocks)
        }
        group = [at for at, body in taken.items() if body]
        chains, bodies = ChainsWithin(self.chains).among(group), [taken[at] for at in group]
        named = {name for index in members for name in operators_of(self.registrations[index])}
        operators = among(places_of(self.operators), named)
        samples = options.samples or DEFAULT_SAMPLES
        are_all = options.walk != "sample" and count_registration_orders(len(group), chains) <= MOST_ORDERS
        walk = _ImportWalk(len(self.registrations), bodies, chains, None if are_all else samples, options.seed)
        fresh = on_sandboxes(engine, self.registrations, operators)
        space = engine.space(self.registrations, operators) if isinstance(engine, Forkable) else None
        found = explore_walk(walk, fresh if space is None else on_prefixes(space), watch=self.watch)
        found = replace(found, never_accepted=tuple(index for index in found.never_accepted if index in chosen))
        example = found.counterexample
        if found.verdict is Verdict.NO_VIOLATION_FOUND and walk.whole is not None and walk.refused is not None:
            example = _differ(fresh, walk.whole[: walk.whole.index(walk.refused[-1]) + 1], walk.refused)
            if example is not None:
                found = replace(found, verdict=Verdict.ORDER_DEPENDENT, conflicts=(), never_accepted=())
        if example is not None and found.verdict is Verdict.ORDER_DEPENDENT:
            example = _shorter(fresh, example, bodies, later_masks(len(bodies), chains))
            sets = {*example.expected_sequence}, {*example.actual_sequence}
            is_of_one_set = example.flaw is Flaw.RESIDUE or sets[0] == sets[1]
            if space is not None and not example.why and is_of_one_set:
                example = replace(example, why=reasons_of(space, example))
            return replace(found, counterexample=example), True
        if found.verdict is Verdict.NO_VIOLATION_FOUND and space is not None and are_all and not found.conflicts:
            found = replace(found, verdict=Verdict.ORDER_INDEPENDENT)
        return found, space is None or not strays_of(space, members, operators)


def _names(registration: Registration) -> Iterator[object]:
    """Return the operators of a registration, and the namespace that it claims."""
    yield from operators_of(registration)
    if isinstance(registration, Block) and registration.kind is BlockKind.DEF:
        yield registration.namespace


class _ImportWalk(Walk):
    """Every order of some blocks, or random orders; an order ends at a refusal.

    Args:
        count: the number of registrations.
        bodies: the registrations of each block.
        chains: the chains of blocks, by position.
        samples: the number of random orders; None for every order.
        seed: the seed of random orders.

    Attributes:
        whole: the first order in which all registrations were accepted, if any.
        refused: a shortest sequence that ends with a refusal, if any.
    """

    name = "imports"
    is_shrunk = False

    def __init__(
        self, count: int, bodies: Sequence[Sequence[int]], chains: Chains, samples: int | None, seed: int
    ) -> None:
        self.count, self.order = count, ()
        self._bodies, self._chains, self._samples = bodies, chains, samples
        self._random = SplitMix64(seed)
        self.seed = None if samples is None else seed
        self.whole: StepSequence | None = None
        self.refused: StepSequence | None = None

    def runs(self) -> Iterator[Run]:
        """Return a run for each order."""
        for order in orders_keeping(len(self._bodies), self._chains) if self._samples is None else self._sampled():
            yield Run(self._steps([index for at in order for index in self._bodies[at]]))

    def coverage(self, *, found: bool) -> list[str]:
        """Return a sentence about omitted orders, if there are any."""
        return [] if found or self._samples is None else [f"{self._samples:,} random orders of imports were run"]

    def _sampled(self) -> Iterator[Sequence[int]]:
        for _ in range(self._samples or 0):
            order = list(range(len(self._bodies)))
            self._random.shuffle(order)
            yield keeping(order, self._chains)

    def _steps(self, steps: Sequence[int]) -> Steps:
        for at, index in enumerate(steps, 1):
            if not (yield index):
                if self.refused is None or at < len(self.refused):
                    self.refused = tuple(steps[:at])
                return
        self.whole = self.whole or tuple(steps)


def _shorter(
    fresh: Sessions, example: Counterexample, bodies: Sequence[Sequence[int]], later: Sequence[int]
) -> Counterexample:
    """Return the counterexample without modules that it does not need."""
    left = (1 << len(bodies)) - 1
    is_shorter = True
    while is_shorter:
        is_shorter = False
        for at, body in enumerate(bodies):
            if not left >> at & 1 or later[at] & left:
                continue
            pair = [
                tuple(step for step in sequence if step not in body)
                for sequence in (example.expected_sequence, example.actual_sequence)
            ]
            again = _differ(fresh, pair[0], pair[1]) if all(pair) else None
            if again is not None and again.flaw is example.flaw:
                example, is_shorter = again, True
                left &= ~(1 << at)
    return example


def _differ(fresh: Sessions, expected: StepSequence, actual: StepSequence) -> Counterexample | None:
    """Return the disagreement of two orders: as for any two sequences, or about the acceptance of their last step."""
    example = compare_sequences(fresh, expected, actual)
    if example is not None or expected[-1:] != actual[-1:]:
        return example
    refusals = []
    for sequence in (expected, actual):
        with fresh() as session:
            refusals.append([refusal for _, refusal in run(session, sequence)][-1])
    if (refusals[0] is None) is (refusals[1] is None):
        return None
    texts = [outcome_text(actual[-1], refusal) for refusal in refusals]
    return Counterexample(Flaw.OUTCOME, expected, actual, outcome_difference(*texts))
