"""A dispatcher: the one place where the state of registrations changes.

Registrations are serialised by a lock and appear at once: a look-up, which takes no lock, sees an operator before or
after a registration and never in between. Handles that the garbage collector finds in the middle of a registration
wait until it is done, see Note [Releases that come at a bad time].
"""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Callable
from typing import Protocol

from dispatchlab.engine import plan, view
from dispatchlab.engine.cells import Cell, Transaction
from dispatchlab.engine.dump import dump, dump_table, slots_text
from dispatchlab.engine.handle import RegistrationHandle
from dispatchlab.engine.operator_entry import OperatorEntry
from dispatchlab.engine.plan import Plan, plan_of
from dispatchlab.engine.preloaded import preloaded
from dispatchlab.engine.primitives import RegisterImpl, place_name
from dispatchlab.engine.semantics import Semantics, semantics_named
from dispatchlab.errors import DispatchLabError, ErrorKind, RegistrationError, did_you_mean
from dispatchlab.model.explanation import OperatorView
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Registration, describe
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.schema_parser import parse_name
from dispatchlab.model.snapshot import Snapshot, Violation

# Note [Releases that come at a bad time]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A handle that nobody holds any more is released by the garbage collector, which runs whenever Python allocates: also
# in a registration of the same thread, which the (re-entrant) lock would let in to change the state under its feet.
# While a thread is inside a change, releases of that thread are queued; whoever leaves the outermost change runs them.
# Registrations from a listener come after the state has changed and are therefore let in.


class OverrideWarning(UserWarning):
    """A kernel took the place of another one at the same key."""


class InvariantError(DispatchLabError):
    """An invariant of the dispatcher does not hold."""

    def __init__(self, violations: tuple[Violation, ...]) -> None:
        super().__init__(violations)
        self.violations = violations

    def __str__(self) -> str:
        return "\n".join(map(str, self.violations))


class Listener(Protocol):
    """Hears of operators as their schemas come and go; never of kernels or fallbacks."""

    def on_operator_registered(self, name: OperatorName, schema: FunctionSchema, /) -> None:
        """A def came; the operator already has its schema, and is not counted yet."""

    def on_operator_deregistered(self, name: OperatorName, schema: FunctionSchema, /) -> None:
        """The last def is about to go; the schema can still be found."""


class Dispatcher:
    """A registry of operators, kernels and fallbacks, isolated from every other.

    Args:
        semantics: `strict`, `torch-2.13` or `pr35061`, or a record of choices of your own.

    Raises:
        UnknownSemanticsError: there are no semantics of that name.
    """

    _override_told: bool = False  # under semantics that tell the first override in a process only

    def __init__(self, semantics: str | Semantics = "strict") -> None:
        self.semantics = semantics_named(semantics) if isinstance(semantics, str) else semantics
        self._cells: dict[Cell, object] = dict(preloaded(self.semantics))
        self._lock = threading.RLock()
        self._changing = False
        self._postponed: deque[Callable[[], None]] = deque()
        self._listeners: list[Listener] = []

    # -- changing

    def register(self, registration: Registration) -> RegistrationHandle:
        """Put a registration in force for as long as its handle lives.

        Returns:
            A handle: release it, use it in a `with` block, or let go of it.

        Raises:
            RegistrationError: it is refused; under `strict` nothing has changed then.
        """
        return self.register_plan(plan_of(registration, self.semantics), describe(registration))

    def register_plan(self, made: Plan, what: str) -> RegistrationHandle:
        """The same for a plan that is made already; `what` is what the handle says of itself."""
        self._change(made, self._register)
        return RegistrationHandle(lambda: self._change(made, self._release), what)

    def add_listener(self, listener: Listener) -> RegistrationHandle:
        """Tell `listener` of every operator that has a schema now, and of all that come and go later.

        Returns:
            A handle that ends it.
        """
        with self._lock:
            for entry in view.operators_in(dict(self._cells)):
                if entry.stored is not None:
                    listener.on_operator_registered(entry.name, entry.stored.schema)
            self._listeners.append(listener)
        return RegistrationHandle(lambda: self._remove_listener(listener), f"listener {listener!r}")

    def _remove_listener(self, listener: Listener) -> None:
        with self._lock:
            self._listeners = [other for other in self._listeners if other is not listener]

    def _change(self, made: Plan, how: Callable[[Plan], None]) -> None:
        """Run a change now, or queue a release that comes in the middle of one of the same thread."""
        with self._lock:
            if self._changing:
                self._postponed.append(lambda: how(made))
                return
            how(made)
            while self._postponed and not self._changing:
                self._postponed.popleft()()

    def _register(self, made: Plan) -> None:
        transaction = Transaction(self._cells, set())
        self._changing = True
        try:
            plan.register(self.semantics, transaction, made)
        except RegistrationError:
            if self.semantics.refusal_leaves_traces:
                self._commit(transaction)
            raise
        finally:
            self._changing = False
        overrides = self._overrides(made)
        before = self._with_schema(transaction)
        self._commit(transaction)
        self._tell(before, transaction)
        for text in overrides:
            warnings.warn(text, OverrideWarning, stacklevel=4)

    def _release(self, made: Plan) -> None:
        transaction = Transaction(self._cells, set())
        self._changing = True
        try:
            plan.release(self.semantics, transaction, made)
        finally:
            self._changing = False
        self._tell(self._with_schema(transaction), transaction)
        self._commit(transaction)

    def _commit(self, transaction: Transaction) -> None:
        for cell, value in transaction.changes.items():
            if value is None:
                self._cells.pop(cell, None)
            else:
                self._cells[cell] = value

    def _with_schema(self, transaction: Transaction) -> dict[str, OperatorEntry]:
        """Of the operators that a transaction changes, those that have a schema before it."""
        if not self._listeners:
            return {}
        before = {cell: view.operator_in(self._cells, cell) for cell in transaction.changes if isinstance(cell, str)}
        return {cell: entry for cell, entry in before.items() if entry is not None and entry.stored is not None}

    def _tell(self, before: dict[str, OperatorEntry], transaction: Transaction) -> None:
        """Tell the listeners which schemas a transaction brings and takes."""
        if not self._listeners:
            return
        for cell, value in transaction.changes.items():
            if not isinstance(cell, str):
                continue
            old = before.get(cell)
            new = value if isinstance(value, OperatorEntry) and value.stored is not None else None
            for listener in tuple(self._listeners):
                if old is None and new is not None and new.stored is not None:
                    listener.on_operator_registered(new.name, new.stored.schema)
                elif old is not None and old.stored is not None and new is None:
                    listener.on_operator_deregistered(old.name, old.stored.schema)

    def _overrides(self, made: Plan) -> list[str]:
        texts: list[str] = []
        for primitive in made.primitives:
            if not isinstance(primitive, RegisterImpl):
                continue
            entry = self.operator(primitive.name)
            previous = entry.active(primitive.bit) if entry is not None else None
            if previous is None or previous is primitive.entry:
                continue
            if not self.semantics.warn_each_override:
                key = place_name(primitive.bit)
                if Dispatcher._override_told or key in ("Meta", "MTIA"):
                    continue
                Dispatcher._override_told = True
            texts.append(
                f"the {place_name(primitive.bit)} kernel of {primitive.name} is overridden: "
                f"{primitive.entry.debug or '(no debug text)'} takes the place of {previous.debug or '(no debug text)'}"
            )
        return texts

    # -- looking

    def operator(self, name: OperatorName | str) -> OperatorEntry | None:
        """The entry of an operator; None when nothing is registered for it."""
        return view.operator_in(self._cells, name)

    def operators(self) -> tuple[OperatorName, ...]:
        """Every operator that something is registered for, by name."""
        with self._lock:
            return tuple(entry.name for entry in view.operators_in(self._cells))

    def namespaces(self) -> tuple[str, ...]:
        """The namespaces that DEF libraries claim."""
        with self._lock:
            return view.namespaces_in(self._cells)

    def find_op(self, name: OperatorName | str) -> OperatorName | None:
        """The operator of that name, with or without a schema."""
        entry = self.operator(name)
        return None if entry is None else entry.name

    def find_schema(self, name: OperatorName | str) -> FunctionSchema | None:
        """The schema of an operator; None when there is no such operator or it has no def."""
        entry = self.operator(name)
        return entry.stored.schema if entry is not None and entry.stored is not None else None

    def find_schema_or_raise(self, name: OperatorName | str) -> FunctionSchema:
        """The schema of an operator.

        Raises:
            RegistrationError: of kind `no_such_schema`; it tells an operator that does not exist from one that has
                kernels and no def.
        """
        schema = self.find_schema(name)
        if schema is not None:
            return schema
        has_impl = self.operator(name) is not None
        message = (
            f"{name} has kernels and no def: is the package that defines it imported?"
            if has_impl
            else f"there is no operator {name}{did_you_mean(str(name), map(str, self.operators()))}"
        )
        facts = {"operator": str(name), "has_impl": "yes" if has_impl else "no"}
        raise RegistrationError(ErrorKind.NO_SUCH_SCHEMA, message, facts)

    def def_count(self, name: OperatorName | str) -> int:
        """Live defs of an operator."""
        entry = self.operator(name)
        return 0 if entry is None else entry.def_count

    def def_and_impl_count(self, name: OperatorName | str) -> int:
        """Live defs, kernels and names of an operator."""
        entry = self.operator(name)
        return 0 if entry is None else entry.def_and_impl_count

    def dangling_impls(self) -> tuple[OperatorName, ...]:
        """The operators that have no schema, by name."""
        with self._lock:
            return tuple(entry.name for entry in view.operators_in(self._cells) if entry.stored is None)

    def dump(self, name: OperatorName | str) -> str:
        """What was registered for an operator, as upstream prints it; empty when there is no such operator."""
        entry = self.operator(name)
        return "" if entry is None else dump(entry, self.semantics)

    def dump_table(self, name: OperatorName | str) -> str:
        """The computed table of an operator, as upstream prints it."""
        entry = self.operator(name)
        return "" if entry is None else dump_table(entry, view.fallbacks_in(self._cells), self.semantics)

    def dump_slots(self, name: OperatorName | str) -> str:
        """What calls of an operator really use, in the form of `dump_table`."""
        entry = self.operator(name)
        return "" if entry is None else slots_text(entry.slots)

    def snapshot(self, operator: OperatorName) -> Snapshot:
        """What can be seen of one operator."""
        return view.snapshot(self._cells, operator, self.semantics)

    def explain(self, name: OperatorName | str) -> OperatorView | None:
        """An operator with the reason of each row of its table and what lost to it."""
        parsed = parse_name(name) if isinstance(name, str) else name
        return view.operator_view(self._cells, parsed, self.semantics)

    def violations(self, operator: OperatorName) -> tuple[Violation, ...]:
        """The invariants that do not hold for an operator; none for one that does not exist."""
        return view.violations_in(self._cells, operator, self.semantics)

    def check_invariants(self, name: OperatorName | str | None = None) -> None:
        """Check one operator, or all of them.

        Raises:
            InvariantError: an invariant does not hold.
            RegistrationError: of kind `no_such_schema`, when the operator does not exist.
        """
        if name is not None and self.operator(name) is None:
            self.find_schema_or_raise(name)
        names = self.operators() if name is None else (name,)
        entries = [entry for entry in map(self.operator, names) if entry is not None]
        found = [one for entry in entries for one in self.violations(entry.name)]
        if found:
            raise InvariantError(tuple(found))
