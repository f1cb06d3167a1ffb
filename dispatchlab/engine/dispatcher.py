"""A dispatcher: the only holder of the current state of registrations.

Registrations are serialised by a lock and appear at once: a look-up, which takes no lock, sees the state before or
after a registration and never in between. Handles that the garbage collector finds in the middle of a registration
wait until it is done, see Note [Releases that come at a bad time].
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dispatchlab.engine import introspection, lowering
from dispatchlab.engine.handle import RegistrationHandle
from dispatchlab.engine.introspection import dump, dump_table, slots_text
from dispatchlab.engine.kernel import call_site
from dispatchlab.engine.lowering import LoweredRegistration, initial_state, lower
from dispatchlab.engine.operator_entry import OperatorEntry
from dispatchlab.engine.primitives import RegisterImpl
from dispatchlab.engine.semantics import Semantics, semantics_named
from dispatchlab.engine.state import FALLBACKS, NamespaceVariable, State, StateVariable, Transaction
from dispatchlab.errors import DispatchLabError, ErrorKind, RegistrationError, no_operator
from dispatchlab.model.dump_format import key_text
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Fallback, Registration, describe
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.schema_parser import parse_name
from dispatchlab.model.slot_set import KEY_OF_BIT
from dispatchlab.model.snapshot import Snapshot, Violation

if TYPE_CHECKING:
    from dispatchlab.model.operator_view import OperatorView


# Note [Releases that come at a bad time]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A handle without a reference is released by the garbage collector, which runs whenever Python allocates. In a
# registration of the same thread the (re-entrant) lock would let it in to change the state under its feet; in any other
# place waiting for the lock can be a deadlock, for it is not known which locks the interrupted code holds. So such a
# release is queued, and what can have the lock without waiting runs the queue: the finalizer itself, or the thread
# that holds the lock, when it leaves it.

# Note [Looking without a lock]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# The values of the state variables are immutable, so a change of one operator is one assignment. A change of several
# variables, or of the fallbacks, which every look-up reads beside an operator, makes a new mapping instead: a look-up
# takes the mapping once and finds the operator and the fallbacks of the same moment in it.


class OverrideWarning(UserWarning):
    """A kernel overrides another kernel at the same key.

    >>> import warnings
    >>> from dispatchlab import Dispatcher, DispatchKey, Impl, OverrideWarning, parse_name
    >>> dispatcher, foo = Dispatcher("strict"), parse_name("test::foo")
    >>> older = dispatcher.register(Impl(foo, DispatchKey.CPU, debug="fn_1"))
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", OverrideWarning)
    ...     newer = dispatcher.register(Impl(foo, DispatchKey.CPU, debug="fn_2"))
    >>> print(caught[0].message)
    the CPU kernel of test::foo is overridden: fn_2 replaces fn_1
    """


class InvariantError(DispatchLabError):
    """An invariant of the dispatcher does not hold.

    >>> from dispatchlab import Dispatcher, DispatchKey, Impl, InvariantError, parse_name
    >>> dispatcher, foo = Dispatcher("torch-2.13", builtin_fallbacks=False), parse_name("test::foo")
    >>> composite = dispatcher.register(Impl(foo, debug="fn_math"))
    >>> sparse = dispatcher.register(Impl(foo, DispatchKey.SparseCPU, debug="fn_sparse"))
    >>> try:
    ...     dispatcher.check_invariants()
    ... except InvariantError as error:
    ...     print(error.violations[0].rule, *error.violations[0].keys)
    stale slot AutogradOther
    """

    violations: tuple[Violation, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.violations))


class Dispatcher:
    """A registry of operators, kernels and fallbacks, isolated from every other.

    >>> from dispatchlab import Def, Dispatcher, DispatchKey, Impl, parse_name, parse_schema
    >>> dispatcher = Dispatcher(builtin_fallbacks=False)
    >>> foo = dispatcher.register(Def(parse_schema("test::foo(Tensor x) -> Tensor")))
    >>> foo_cpu = dispatcher.register(Impl(parse_name("test::foo"), DispatchKey.CPU, debug="fn_cpu"))
    >>> print(dispatcher.dump_table("test::foo"), end="")
    CPU: fn_cpu [kernel]

    Args:
        semantics: `strict`, `torch-2.13` or `pr35061`, the file of a profile, or a record of choices of your own; that
            of the newest PyTorch when left out.
        builtin_fallbacks: start with the backend fallbacks of PyTorch, without which a call needs a kernel or a
            fallthrough at every key that it passes: BackendSelect, ADInplaceOrView, and that of autograd. Without
            them the dispatcher is bare: a table shows nothing but what was registered.

    Attributes:
        builtin_fallbacks: the keys of the fallbacks that it started with.

    Raises:
        UnknownSemanticsError: no semantics have this name.
    """

    _warned_of_override: bool = False  # under semantics that warn of the first override in a process only

    state: State
    """What is registered now, to be read only: operators, fallbacks and claims. See Note [Looking without a lock]."""

    def __init__(self, semantics: str | Semantics | None = None, *, builtin_fallbacks: bool = True) -> None:
        self.semantics = semantics if isinstance(semantics, Semantics) else semantics_named(semantics)
        self._start_with(self.semantics.builtin_fallbacks if builtin_fallbacks else ())
        self._lock = threading.RLock()
        self._changing = False
        self._held: dict[LoweredRegistration, None] = {}  # what is in force, in order
        self._postponed: deque[LoweredRegistration] = deque()

    @classmethod
    def for_scenario(cls, semantics: str | Semantics | None = None) -> Dispatcher:
        """Return a dispatcher as scenarios find it: bare under `strict` and `pr35061`, as PyTorch's under `torch-2.13`.

        Raises:
            UnknownSemanticsError: no semantics have this name.
        """
        made = cls(semantics, builtin_fallbacks=False)
        made._start_with(made.semantics.fallbacks)
        return made

    def _start_with(self, fallbacks: Sequence[Fallback]) -> None:
        self.state = dict(initial_state(self.semantics, fallbacks))
        self._builtin = introspection.fallbacks_in(self.state)
        self.builtin_fallbacks = frozenset(fallback.key for fallback in fallbacks)

    def __repr__(self) -> str:
        count = len(self.operators())
        return f"<Dispatcher {self.semantics.name} with {count} operator{'' if count == 1 else 's'}>"

    # -- changing

    def register(self, registration: Registration) -> RegistrationHandle:
        """Put a registration in force for as long as its handle lives.

        Returns:
            A handle: release it, use it in a `with` block, or let go of it.

        Raises:
            RegistrationError: it is refused; under `strict`, nothing has changed.
        """
        return self._register_lowered(lower(registration, self.semantics), describe(registration))

    def _register_lowered(
        self, made: LoweredRegistration, what: str, home: dict[RegistrationHandle, None] | None = None
    ) -> RegistrationHandle:
        handle = RegistrationHandle(lambda: self._undo(made), what, forget=lambda: self._postpone(made), home=home)
        try:
            with self._lock:
                if self._changing:
                    message = f"a finalizer cannot register while a registration is under way, and one tried to: {what}"
                    raise RegistrationError(ErrorKind.OTHER, message, {"registration": what})
                overridden = self._register(made)
            for text in overridden:
                site = call_site()
                warnings.warn_explicit(text, OverrideWarning, site.file, site.line)
        except RegistrationError:
            handle.settle()  # what semantics leave of one that is refused is not to be released
            raise
        except BaseException:
            handle.release()
            raise
        finally:
            self._settle()
        return handle

    def _undo(self, made: LoweredRegistration) -> None:
        """Release, or queue the release while the same thread changes the dispatcher."""
        try:
            with self._lock:
                if self._changing:
                    self._postponed.append(made)
                else:
                    self._release(made)
        finally:
            self._settle()

    def _postpone(self, made: LoweredRegistration) -> None:
        self._postponed.append(made)
        self._settle()

    def _settle(self) -> None:
        """Run the waiting releases, the oldest first, unless another thread will run them."""
        # See Note [Releases that come at a bad time]
        while self._postponed and not self._changing and self._lock.acquire(blocking=False):
            try:
                while self._postponed and not self._changing:
                    try:
                        self._release(self._postponed.popleft())
                    except Exception:
                        sys.excepthook(*sys.exc_info())
            finally:
                self._lock.release()

    def _register(self, made: LoweredRegistration) -> list[str]:
        """Register, and return the sentences about overridden kernels."""
        transaction = Transaction(self.state, set())
        self._changing = True
        try:
            lowering.register(self.semantics, transaction, made)
            overridden = self._overridden(made, transaction)
            self._commit(transaction)
            self._held[made] = None
        except RegistrationError:
            if self.semantics.refusal_leaves_traces:
                self._commit(transaction)
            raise
        finally:
            self._changing = False
        return overridden

    def _release(self, made: LoweredRegistration) -> None:
        self._changing = True
        try:
            transaction = Transaction(self.state, set())
            lowering.release(self.semantics, transaction, made)
            self._commit(transaction)
            self._held.pop(made, None)
        finally:
            self._changing = False

    def _commit(self, transaction: Transaction) -> None:
        # See Note [Looking without a lock]
        changes = transaction.changes
        if len(changes) > 1 or FALLBACKS in changes:
            self.state = transaction.applied(dict)
            return
        state: dict[StateVariable, object] = self.state  # type: ignore[assignment]  # it is read-only for others
        for variable, value in changes.items():
            if value is None:
                state.pop(variable, None)
            else:
                state[variable] = value

    def _overridden(self, made: LoweredRegistration, transaction: Transaction) -> list[str]:
        texts: list[str] = []
        for primitive in made.plain():
            entry = transaction.operator(primitive.variable) if isinstance(primitive, RegisterImpl) else None
            if entry is None or not isinstance(primitive, RegisterImpl):
                continue
            kernels = entry.kernels_at(primitive.bit)
            if primitive.entry not in kernels:  # which went to a custom_op
                continue
            older = kernels[kernels.index(primitive.entry) + 1 :]
            if not older:
                continue
            key = key_text(KEY_OF_BIT[primitive.bit])
            if not self.semantics.warn_each_override:
                if Dispatcher._warned_of_override or key in ("Meta", "MTIA"):
                    continue
                Dispatcher._warned_of_override = True
            texts.append(
                f"the {key} kernel of {primitive.name} is overridden: {primitive.entry.debug or '(no debug text)'} "
                f"replaces {older[0].debug or '(no debug text)'}"
            )
        return texts

    # -- looking

    def operator_entry(self, name: OperatorName | str) -> OperatorEntry | None:
        """Return the entry of an operator; None if it has no registrations."""
        return introspection.operator_in(self.state, name)

    def operators(self) -> tuple[OperatorName, ...]:
        """Return every operator with a registration, by name."""
        return tuple(entry.name for entry in introspection.operators_in(dict(self.state)))

    def namespaces(self) -> tuple[str, ...]:
        """Return the namespaces that DEF libraries claim."""
        return tuple(sorted(each.namespace for each in dict(self.state) if isinstance(each, NamespaceVariable)))

    def find_op(self, name: OperatorName | str) -> OperatorName | None:
        """Return the operator of that name, with or without a schema."""
        entry = self.operator_entry(name)
        return None if entry is None else entry.name

    def find_schema(self, name: OperatorName | str) -> FunctionSchema | None:
        """Return the schema of an operator; None if there is no such operator, or if it has no def."""
        entry = self.operator_entry(name)
        return None if entry is None or entry.stored is None else entry.stored.schema

    def find_schema_or_raise(self, name: OperatorName | str) -> FunctionSchema:
        """Return the schema of an operator.

        Raises:
            RegistrationError: of kind `no_such_schema`; its message says whether the operator does not exist, or
                has kernels and no def.
        """
        entry = self.operator_entry(name)
        if entry is not None and entry.stored is not None:
            return entry.stored.schema
        if entry is None:
            raise self._no_operator(name)
        message = f"{name} has kernels and no def: is the package that defines it imported?"
        raise RegistrationError(ErrorKind.NO_SUCH_SCHEMA, message, {"operator": str(name), "has_impl": "yes"})

    def def_count(self, name: OperatorName | str) -> int:
        """Return the number of live defs of an operator."""
        entry = self.operator_entry(name)
        return 0 if entry is None else entry.def_count

    def def_and_impl_count(self, name: OperatorName | str) -> int:
        """Return the number of live defs, kernels and names of an operator."""
        entry = self.operator_entry(name)
        return 0 if entry is None else entry.def_and_impl_count

    def dangling_impls(self) -> tuple[OperatorName, ...]:
        """Return the operators that have no schema, by name."""
        return tuple(entry.name for entry in introspection.operators_in(dict(self.state)) if entry.stored is None)

    def dump(self, name: OperatorName | str) -> str:
        """Return the registrations of an operator, as upstream prints them.

        Raises:
            RegistrationError: of kind `no_such_schema`, if it has no registrations; the error names similar operators.
        """
        return dump(self._entry(self.state, name), self.semantics)

    def dump_table(self, name: OperatorName | str) -> str:
        """Return the computed table of an operator, as upstream prints it.

        Raises:
            RegistrationError: as for `dump`.
        """
        state = self.state
        return dump_table(self._entry(state, name), introspection.fallbacks_in(state), self.semantics)

    def dump_slots(self, name: OperatorName | str) -> str:
        """Return the slots that calls of an operator really use, in the form of `dump_table`.

        Raises:
            RegistrationError: as for `dump`.
        """
        return slots_text(self._entry(self.state, name).slots, self.semantics)

    def _entry(self, state: State, name: OperatorName | str) -> OperatorEntry:
        entry = introspection.operator_in(state, name)
        if entry is None:
            raise self._no_operator(name)
        return entry

    def _no_operator(self, name: OperatorName | str) -> RegistrationError:
        message = no_operator(str(name), map(str, self.operators()))
        return RegistrationError(ErrorKind.NO_SUCH_SCHEMA, message, {"operator": str(name), "has_impl": "no"})

    def snapshot(self, operator: OperatorName) -> Snapshot:
        """Return the observable state of one operator."""
        return introspection.snapshot(self.state, operator, self.semantics)

    def explain(self, name: OperatorName | str) -> OperatorView | None:
        """Return an operator with the reason of each row of its table and the kernels that lost to it."""
        parsed = parse_name(name) if isinstance(name, str) else name
        from dispatchlab.engine.row_reasons import operator_view  # costs start-up, and a dump shows no reasons

        return operator_view(self.state, parsed, self.semantics)

    def violations(self, operator: OperatorName) -> tuple[Violation, ...]:
        """Return the invariants that do not hold for an operator; empty for a missing operator."""
        return introspection.violations_in(self.state, operator, self.semantics)

    def check_invariants(self, name: OperatorName | str | None = None) -> None:
        """Check one operator, or all of them.

        Raises:
            InvariantError: an invariant does not hold.
            RegistrationError: of kind `no_such_schema`, when the operator does not exist.
        """
        if name is not None and self.operator_entry(name) is None:
            self.find_schema_or_raise(name)
        if name is not None:
            entry = self.operator_entry(name)
            found = () if entry is None else self.violations(entry.name)
        else:
            with self._lock:
                state, held = dict(self.state), None if self._changing else tuple(self._held)
            if held is None:  # what asks is a finalizer, in the middle of a change
                found = tuple(one for entry in introspection.operators_in(state) for one in self.violations(entry.name))
            else:
                from dispatchlab.engine.in_force import state_violations  # costs start-up, and few ask

                found = state_violations(state, held, self.semantics, self._builtin)
        if found:
            raise InvariantError(found)


def register_lowered(
    dispatcher: Dispatcher,
    lowered: LoweredRegistration,
    what: str,
    *,
    home: dict[RegistrationHandle, None] | None = None,
) -> RegistrationHandle:
    """Put a lowered registration in force, as the front ends do.

    Args:
        dispatcher: where.
        lowered: the registration.
        what: its description in the handle.
        home: the set of handles that contains the new handle while the registration is in force.
    """
    return dispatcher._register_lowered(lowered, what, home)
