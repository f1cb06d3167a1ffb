"""The lab engine, as the explorer uses it: sandboxes, its states as values, and why two of them differ."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from dispatchlab.engine import lowering
from dispatchlab.engine.fallbacks import NO_FALLBACKS, Fallbacks
from dispatchlab.engine.introspection import fallbacks_in, operator_in, snapshot, violations_of
from dispatchlab.engine.invariants import expected_slots, stale_keys
from dispatchlab.engine.lowering import LoweredRegistration, initial_state, lower
from dispatchlab.engine.operator_entry import OperatorEntry
from dispatchlab.engine.primitives import RegisterFallback, RegisterImpl
from dispatchlab.engine.semantics import Semantics, semantics_named
from dispatchlab.engine.state import (
    FALLBACKS,
    NOTHING_IN_PYTHON,
    PythonState,
    PythonVariable,
    State,
    StateVariable,
    Transaction,
)
from dispatchlab.errors import RegistrationError, first_of
from dispatchlab.model.dump_format import key_text
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Block, Registration
from dispatchlab.model.slot_set import KEY_BIT, KEY_OF_BIT, keys_of
from dispatchlab.model.snapshot import Refusal, Snapshot, Violation

if TYPE_CHECKING:
    from dispatchlab.engine.dispatcher import Dispatcher
    from dispatchlab.model.dependence import Dependence


class LabSpace:
    """The states that registrations can reach under one semantics.

    Args:
        registrations: the registrations that sequences number.
        operators: the observed operators.
        semantics: which dispatcher.
    """

    def __init__(
        self, registrations: Sequence[Registration], operators: Sequence[OperatorName], semantics: Semantics
    ) -> None:
        self._registrations = tuple(registrations)
        self._operators = {name: str(name) for name in operators}
        calls = (each.made_by for each in registrations if isinstance(each, Block))
        if all(call is None or call.allow_override is None for call in calls):
            semantics = replace(semantics, notes_kernels=False)
        self._semantics = semantics
        self.lowered: tuple[LoweredRegistration, ...] = tuple(lower(each, semantics) for each in registrations)
        """What the dispatcher does for each registration."""
        self._impls = tuple(map(_only_impl, self.lowered))
        self._empty = LabState(initial_state(semantics, semantics.fallbacks))
        self._touched: set[StateVariable] = set()

    def __repr__(self) -> str:
        return f"<LabSpace {self._semantics.name} of {len(self._registrations)} registrations>"

    def empty(self) -> LabState:
        """Return the state with only the semantics' own registrations."""
        return self._empty

    def register(self, state: LabState, index: int, /) -> tuple[LabState, Refusal | None]:
        """Return the state after registering `index`, and how it was refused if it was."""
        impl = self._impls[index]
        if impl is not None:
            entry, fallbacks = state.get(impl.variable), state.get(FALLBACKS, NO_FALLBACKS)
            try:
                if entry is not None:
                    after = LabState(state)
                    after[impl.variable] = impl.added_to(entry, self._semantics, fallbacks)  # type: ignore[arg-type]
                    return after, None
            except RegistrationError:
                pass  # once more, for what a refusal leaves behind
        transaction = Transaction(state, self._touched)
        try:
            lowering.register(self._semantics, transaction, self.lowered[index])
        except RegistrationError as error:
            if self._semantics.refusal_leaves_traces and transaction.changes:
                state = transaction.applied(LabState)
            return state, Refusal.of(error)
        return transaction.applied(LabState), None

    def release(self, state: LabState, index: int, /) -> LabState:
        """Return the state after releasing `index`."""
        impl = self._impls[index]
        if impl is not None:
            entry, fallbacks = state.get(impl.variable), state.get(FALLBACKS, NO_FALLBACKS)
            if entry is not None:
                left = impl.taken_from(entry, self._semantics, fallbacks)  # type: ignore[arg-type]
                if left is not None:
                    after = LabState(state)
                    after[impl.variable] = left
                    return after
        transaction = Transaction(state, self._touched)
        lowering.release(self._semantics, transaction, self.lowered[index])
        return transaction.applied(LabState)

    def observe(self, state: LabState, /) -> tuple[Snapshot, ...]:
        """Return the observable states of the observed operators."""
        return tuple(snapshot(state, name, self._semantics) for name in self._operators)

    def violations(self, state: LabState, /) -> tuple[Violation, ...]:
        """Return the invariants that do not hold for the observed operators."""
        found: tuple[Violation, ...] = ()
        fallbacks = state.get(FALLBACKS, NO_FALLBACKS)
        for name, variable in self._operators.items():
            entry = state.get(variable)
            if entry is not None:
                found += violations_of(name, entry, fallbacks, self._semantics)  # type: ignore[arg-type]
        return found

    def why(self, expected: LabState, actual: LabState, /) -> tuple[str, ...]:
        """Return the reasons why two states of the same registrations differ."""
        return why(expected, actual, self._semantics)

    def written_variables(self, index: int, /) -> frozenset[StateVariable]:
        """Return the variables that registration `index` writes by name."""
        return self.lowered[index].written_variables()

    def is_broadcast(self, index: int, /) -> bool:
        """Return whether a registration is a fallback, which applies to every operator."""
        primitives = self.lowered[index].primitives
        return bool(primitives) and all(isinstance(primitive, RegisterFallback) for primitive in primitives)

    def shared_variables(self) -> frozenset[StateVariable]:
        """Return the variable of the fallbacks, which every operator reads."""
        return frozenset({FALLBACKS})

    def touched(self) -> frozenset[StateVariable]:
        """Return every variable that was read or written so far, also by observations.

        Entries that Python keeps for an operator are a part of the operator.
        """
        return frozenset({*self._touched, FALLBACKS, *self._operators.values()})

    def dependences(self) -> Mapping[Hashable, Dependence] | str:
        """Return the dependences of an operator's variables, by the semantics' tables; or why they are not known."""
        from dispatchlab.engine.dependences import dependences  # a small scenario is walked without

        return dependences(self.lowered, self._semantics)

    def values(self, state: LabState, /) -> Mapping[Hashable, Hashable]:
        """Return the variables of every operator, of fallbacks and of claims."""
        from dispatchlab.engine.dependences import values

        return values(state)

    def deciders(self) -> Sequence[int]:
        """Return, for each registration, those that can cause its refusal."""
        from dispatchlab.engine.dependences import deciders

        return deciders(self.lowered, self._semantics)

    def restricted(self, indices: Sequence[int], operators: Sequence[OperatorName], /) -> LabSpace:
        """Return the states that some of the registrations can reach; the same primitives, so equal values."""
        part = copy(self)
        part._registrations = tuple(self._registrations[index] for index in indices)
        part.lowered = tuple(self.lowered[index] for index in indices)
        part._impls = tuple(self._impls[index] for index in indices)
        part._operators = {name: str(name) for name in operators}
        return part


class LabState(dict[StateVariable, object]):
    """One state of a dispatcher, never changed. Equal states have the same future."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<LabState with {len(self)} variables>"

    def __hash__(self) -> int:  # type: ignore[override]  # it is a value
        return hash(frozenset((variable, _hash(value)) for variable, value in self.items()))


def _only_impl(lowered: LoweredRegistration) -> RegisterImpl | None:
    """Return the kernel of a registration that has only one, as most have.

    If the operator exists, this needs no transaction: the transaction that made the operator has noted what a kernel
    touches, the operator and the fallbacks.
    """
    first = lowered.primitives[0] if len(lowered.primitives) == 1 else None
    return first if isinstance(first, RegisterImpl) else None


def why(expected: State, actual: State, semantics: Semantics) -> tuple[str, ...]:
    """Return the reasons for the difference; empty when the engine knows none."""
    reasons: list[str] = []
    for name in sorted({variable for state in (expected, actual) for variable in state if isinstance(variable, str)}):
        left, right = operator_in(expected, name), operator_in(actual, name)
        if left is None or right is None:
            there = left or right
            assert there is not None
            content = f"the def {there.stored.schema}" if there.stored else "kernels and no def"
            content = "no registration" if there.is_unused else content
            reasons.append(f"the operator {name} is there after {_side(left)} alone, with {content}")
            continue
        reasons += _entries(name, left, right)
        # Only what one state has and the other lacks counts.
        stale = [
            stale_keys(entry.slots, expected_slots(entry, fallbacks_in(state), semantics))
            for entry, state in ((left, expected), (right, actual))
        ]
        if stale[0] != stale[1]:
            reasons += [_stale_text(name, bits) for bits in stale if bits]
    reasons += _in_python(expected, actual)
    left_fallbacks, right_fallbacks = fallbacks_in(expected), fallbacks_in(actual)
    reasons += _fallbacks(left_fallbacks, right_fallbacks, semantics)
    return tuple(dict.fromkeys(reasons))


_SHOWN = 4


def _fallbacks(left: Fallbacks, right: Fallbacks, semantics: Semantics) -> Iterator[str]:
    bits = left.slots ^ right.slots
    replaced = sum(KEY_BIT[key] for key in semantics.replaceable_fallbacks)
    if bits & ~replaced:
        keys = ", ".join(str(key) for key in keys_of(bits & ~replaced))
        yield f"a refused fallback left others behind, at {keys}"
    for key in keys_of(bits & replaced):
        yield (
            f"{key} has no fallback: a release restores no earlier fallback, not even PyTorch's own. "
            "The release of any fallback of this key empties the key"
        )
    for bit in sorted(left.by_slot.keys() & right.by_slot.keys()):
        if left.by_slot[bit] is not right.by_slot[bit]:
            debugs = left.by_slot[bit].debug, right.by_slot[bit].debug
            yield _set_by(debugs, f"the fallback of {KEY_OF_BIT[bit]}")


def _in_python(expected: State, actual: State) -> Iterator[str]:
    variables = {each for state in (expected, actual) for each in state if isinstance(each, PythonVariable)}
    for variable in sorted(variables):
        kept = [state.get(variable, NOTHING_IN_PYTHON) for state in (expected, actual)]
        left, right = (dict(each.entries) for each in kept if isinstance(each, PythonState))
        for key in sorted(left.keys() | right.keys()):
            ours, theirs = left.get(key, ()), right.get(key, ())
            if ours == theirs or not key.is_shown:
                continue
            if ours and theirs:
                debugs = (entry.debug for entry in (*ours, *theirs))
                yield _set_by(debugs, f"{key} of {variable.operator} in Python")
            else:
                writers = _names(entry.debug for entry in ours or theirs)
                text = f"{key} of {variable.operator} by {writers} is in Python"
                if key.registry == "py_kernels":
                    text = f"{writers} is in py_kernels ({key.key}) of the OpOverload of {variable.operator}"
                yield f"{text} after {_side(ours)} alone"


def _side(expected: object) -> str:
    """Return which of the two orders led to an entry that the other order did not lead to."""
    return "one order" if expected else "the other order"


def _names(debugs: Iterable[str]) -> str:
    """Return registrations by their debug texts, each once: `fast.py:12 and norm.py:16`."""
    names = sorted({debug.removeprefix("registered at ") or "a registration without a debug text" for debug in debugs})
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _set_by(debugs: Iterable[str], what: str) -> str:
    """Return sentences such as `the registrations fast.py:12 and norm.py:16 both set the CPU kernel of ...`."""
    names, both = _names(writers := {*debugs}), "both" if len(writers) == 2 else "all"
    return f"the registrations {names} {both} set {what}. A later registration replaces an earlier registration"


def _stale_text(name: str, bits: int) -> str:
    keys = list(keys_of(bits))
    was = "was" if len(keys) == 1 else "were"
    return f"{first_of(keys, _SHOWN)} of {name} {was} not refreshed: calls use the old entry"


def _entries(name: str, left: OperatorEntry, right: OperatorEntry) -> Iterator[str]:
    for bit in sorted(left.kernels.keys() & right.kernels.keys()):
        ours, theirs = left.kernels[bit], right.kernels[bit]
        if ours != theirs and len(ours) == len(theirs):
            kernel = f"{key_text(KEY_OF_BIT[bit])} kernel of {name}"
            yield _set_by((entry.debug for entry in (*ours, *theirs)), f"the {kernel}")
    for mine, other in zip(left.signatures, right.signatures, strict=True):
        held = other or mine
        if held is not None and (mine is None or other is None or mine.signature != other.signature):
            yield f"the signature {held.signature} of kernel {held.debug} at {held.key} is still held against {name}"
    if left.stored != right.stored:
        defs = _names(stored.debug for stored in (left.stored, right.stored) if stored is not None)
        if left.stored is None or right.stored is None:
            yield f"the def of {name} by {defs} is there after {_side(left.stored)} alone"
        else:
            yield f"the first def of {name} decides its schema and alias kind: {defs}"
    if left.tags != right.tags:
        tags = ", ".join(sorted(left.tags ^ right.tags))
        yield f"tags of {name} outlive the def that brought them: {tags}"
    if left.is_unused != right.is_unused:
        yield f"a refused registration left {name} behind"


def _hash(value: object) -> int:
    if isinstance(value, OperatorEntry):
        kernels, slots = frozenset(value.kernels.items()), frozenset(value.held.items())
        facts = value.own, value.stored, value.defs, value.signatures, value.tags, value.names
        return hash((*facts, kernels, slots))
    return hash(value)


class LabEngine:
    """The commutative registration engine of this package.

    >>> from dispatchlab import LabEngine
    >>> with LabEngine("torch-2.13").sandbox() as dispatcher:
    ...     print(dispatcher)
    <Dispatcher torch-2.13 with 0 operators>

    Args:
        semantics: `strict`, `torch-2.13` or `pr35061`; default: the model of the newest PyTorch.

    Raises:
        UnknownSemanticsError: no semantics have this name.
    """

    name = "lab"

    def __init__(self, semantics: str | Semantics | None = None) -> None:
        self._semantics = semantics if isinstance(semantics, Semantics) else semantics_named(semantics)

    def __repr__(self) -> str:
        return f"<LabEngine {self.semantics}>"

    @property
    def semantics(self) -> str:
        """The name of the semantics."""
        return self._semantics.name

    @property
    def knows_torch_library(self) -> bool:
        """True when it follows the rules of `torch.library`; else it registers the content of such calls."""
        return self._semantics.torch_library

    @contextmanager
    def sandbox(self) -> Iterator[Dispatcher]:
        """Return a fresh dispatcher, as scenarios find it."""
        from dispatchlab.engine.dispatcher import Dispatcher  # a walk has states in place of dispatchers

        yield Dispatcher.for_scenario(self._semantics)

    def space(self, registrations: Sequence[Registration], operators: Sequence[OperatorName], /) -> LabSpace:
        """Return the states that these registrations can reach."""
        return LabSpace(registrations, operators, self._semantics)
