"""The lab engine as a state space: every state that registrations can reach is a value to continue from."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from dispatchlab.engine import plan
from dispatchlab.engine.cells import FALLBACKS, Cell, State, Transaction
from dispatchlab.engine.operator_entry import OperatorEntry
from dispatchlab.engine.plan import Plan, plan_of
from dispatchlab.engine.preloaded import preloaded
from dispatchlab.engine.primitives import RegisterFallback
from dispatchlab.engine.semantics import Semantics
from dispatchlab.engine.view import snapshot, violations_in
from dispatchlab.engine.why import why
from dispatchlab.errors import RegistrationError
from dispatchlab.model.names import OperatorName
from dispatchlab.model.refusal import Refusal
from dispatchlab.model.registration import Block, Claim, Def, Fallback, Impl, NameOnly, Registration
from dispatchlab.model.schema import FunctionSchema, clone_with_name
from dispatchlab.model.snapshot import Snapshot, Violation


class LabState:
    """One state of a dispatcher. Equal states have the same future."""

    __slots__ = ("cells",)

    def __init__(self, cells: State) -> None:
        self.cells = cells

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabState) and self.cells == other.cells

    def __hash__(self) -> int:
        return hash(frozenset((cell, _hash(value)) for cell, value in self.cells.items()))


def _hash(value: object) -> int:
    if isinstance(value, OperatorEntry):
        kernels, slots = frozenset(value.kernels.items()), frozenset(value.slots.items())
        return hash((value.stored, value.defs, kernels, slots, value.signatures, value.tags, value.names))
    return hash(value)


class LabSpace:
    """The states that registrations can reach under one semantics.

    Args:
        registrations: what a word's numbers mean.
        operators: what is observed.
        semantics: which dispatcher.
    """

    def __init__(
        self, registrations: Sequence[Registration], operators: Sequence[OperatorName], semantics: Semantics
    ) -> None:
        self._registrations = tuple(registrations)
        self._operators = tuple(operators)
        self._semantics = semantics
        self._plans: tuple[Plan, ...] = tuple(plan_of(registration, semantics) for registration in registrations)
        self._empty = LabState(preloaded(semantics))
        self._touched: set[Cell] = set()

    def empty(self) -> LabState:
        """The state in which nothing is registered but what the semantics brings along."""
        return self._empty

    def register(self, state: LabState, index: int, /) -> tuple[LabState, Refusal | None]:
        """The state after registering `index`, and how it was refused if it was."""
        transaction = Transaction(state.cells, self._touched)
        try:
            plan.register(self._semantics, transaction, self._plans[index])
        except RegistrationError as error:
            if self._semantics.refusal_leaves_traces and transaction.changes:
                state = LabState(transaction.applied())
            return state, Refusal.of(error)
        return LabState(transaction.applied()), None

    def release(self, state: LabState, index: int, /) -> LabState:
        """The state after releasing `index`."""
        transaction = Transaction(state.cells, self._touched)
        plan.release(self._semantics, transaction, self._plans[index])
        return LabState(transaction.applied())

    def observe(self, state: LabState, /) -> tuple[Snapshot, ...]:
        """What can be seen of the observed operators."""
        self._look()
        return tuple(snapshot(state.cells, name, self._semantics) for name in self._operators)

    def violations(self, state: LabState, /) -> tuple[Violation, ...]:
        """The invariants that do not hold for the observed operators."""
        self._look()
        found: tuple[Violation, ...] = ()
        for name in self._operators:
            found += violations_in(state.cells, name, self._semantics)
        return found

    def why(self, expected: LabState, actual: LabState, /) -> tuple[str, ...]:
        """Why two states of the same registrations differ."""
        return why(expected.cells, actual.cells, self._semantics)

    def cells(self, index: int, /) -> frozenset[Cell]:
        """The cells that registration `index` writes by name."""
        return self._plans[index].written_cells()

    def is_broadcast(self, index: int, /) -> bool:
        """Whether it is a fallback, which reaches every operator."""
        primitives = self._plans[index].primitives
        return bool(primitives) and all(isinstance(primitive, RegisterFallback) for primitive in primitives)

    def shared_cells(self) -> frozenset[Cell]:
        """The cell of the fallbacks, which every operator reads."""
        return frozenset({FALLBACKS})

    def touched(self) -> frozenset[Cell]:
        """Every cell that was read or written so far."""
        return frozenset(self._touched)

    def pattern(self, indices: Sequence[int], /) -> Hashable:
        """The registrations with operators, libraries and debug texts renamed in order of appearance."""
        return _Renaming().all([self._registrations[index] for index in indices])

    def _look(self) -> None:
        self._touched.add(FALLBACKS)
        self._touched.update(str(name) for name in self._operators)


class _Renaming:
    """Renames in order of appearance, so that registrations of the same pattern become equal."""

    def __init__(self) -> None:
        self._names: dict[object, int] = {}

    def all(self, registrations: Sequence[Registration]) -> Hashable:
        return tuple(self._one(registration, "") for registration in registrations)

    def _number(self, kind: str, value: object) -> int:
        return self._names.setdefault((kind, value), len(self._names))

    def _operator(self, name: OperatorName, namespace: str) -> OperatorName:
        return OperatorName("", f"op{self._number('operator', name.within(namespace))}")

    def _debug(self, debug: str) -> str:
        return f"debug{self._number('debug', debug)}" if debug else ""

    def _one(self, registration: Registration, namespace: str) -> Registration:
        match registration:
            case Def(schema=schema):
                name = self._operator(registration.operator, namespace)
                named = clone_with_name(schema, name) if isinstance(schema, FunctionSchema) else name
                return replace(registration, schema=named, debug=self._debug(registration.debug))
            case Impl() | NameOnly():
                renamed = replace(registration, operator=self._operator(registration.operator, namespace))
                return renamed if isinstance(renamed, NameOnly) else replace(renamed, debug=self._debug(renamed.debug))
            case Fallback():
                return replace(registration, debug=self._debug(registration.debug))
            case Claim():
                return replace(registration, debug=self._debug(registration.debug))
            case Block():
                # The rules of blocks look at namespaces, so a block keeps its own and its names keep theirs.
                inner = tuple(replace(one, debug=self._debug(one.debug)) for one in registration.registrations)
                return replace(registration, registrations=inner, debug=self._debug(registration.debug))
