"""Operators, to be called, redispatched, and called with a stack.

An `Operator` also works after kernels or its def were registered or released; every call uses the registrations at its
start, or raises an error that says what is missing. The names are those of c10::OperatorHandle and of `torch.ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary, WeakValueDictionary

from dispatchlab.call.call_observer import CallKind, ObservedCall, observers
from dispatchlab.call.call_signature import MISSING, CallSignature
from dispatchlab.call.calling_conventions import returns_of, run_on_stack
from dispatchlab.call.dispatch_table import CallTable
from dispatchlab.call.local_key_set import thread
from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.introspection import operator_in
from dispatchlab.errors import CallError, ErrorKind, no_operator
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.schema_parser import parse_name

_NO_KEYS = DispatchKeySet()


class Operator:
    """An operator of a dispatcher, to be called.

    >>> from dispatchlab import DispatchKey, DispatchKeySet, Lab, tensor
    >>> sin = Lab()("sin")
    >>> sin(tensor([0.0]))
    tensor([0.])
    >>> sin.redispatch(DispatchKeySet.of(DispatchKey.CPU), tensor([0.0], requires_grad=True))  # no autograd
    tensor([0.])

    Args:
        dispatcher: its dispatcher.
        name: its name.
    """

    __slots__ = ("__weakref__", "_table", "_variable", "dispatcher", "name")

    def __init__(self, dispatcher: Dispatcher, name: OperatorName) -> None:
        self.dispatcher = dispatcher
        self.name = name
        self._variable = str(name)  # under which a state has its entry
        self._table: CallTable | None = None

    @property
    def schema(self) -> FunctionSchema:
        """Its schema.

        Raises:
            RegistrationError: of kind `no_such_schema`, if it has no def now.
        """
        return self.dispatcher.find_schema_or_raise(self.name)

    @property
    def table(self) -> CallTable:
        """The table that calls use now.

        Raises:
            RegistrationError: of kind `no_such_schema`.
        """
        table = self._table
        entry = operator_in(self.dispatcher.state, self._variable)
        if table is not None and table.entry is entry:
            return table
        schema = self.schema if entry is None or entry.stored is None else entry.stored.schema
        assert entry is not None
        signature = table.signature if table is not None and table.signature.schema is schema else CallSignature(schema)
        table = self._table = CallTable(self.dispatcher, self, entry, signature)
        return table

    def __call__(self, /, *args: object, **kwargs: object) -> Any:
        """Call it.

        Raises:
            CallError: the arguments are wrong, there is no kernel, or the kernel returned something wrong.
        """
        table = self.table
        return self._call(CallKind.CALL, table, table.signature.bind(args, kwargs), None)

    def redispatch(self, keys: DispatchKeySet | object = MISSING, /, *args: object, **kwargs: object) -> Any:
        """Run the kernel for exactly these keys.

        Raises:
            CallError: as for a call.
        """
        table = self.table
        handed = _key_set(table, keys)
        return self._call(CallKind.REDISPATCH, table, table.signature.bind(args, kwargs), handed)

    def __repr__(self) -> str:
        return f"<Operator {self.dispatcher.find_schema(self.name) or self.name}>"

    def _call(self, kind: CallKind, table: CallTable, values: _Values, handed: DispatchKeySet | None) -> object:
        keys = handed
        if keys is None:
            included, kept = thread.masks
            keys = table.masked((table.signature.key_bits(values, generators=True) | included) & kept)

        def run() -> object:
            found = table.found(keys)
            return returns_of(table.returns(values, found.target(*values), found.entry))

        return _observed(self._observed_call(kind, table, values, handed), run) if observers else run()

    def _observed_call(
        self, kind: CallKind, table: CallTable, values: _Values, handed: DispatchKeySet | None
    ) -> ObservedCall:
        if handed is not None:
            keys = base = arguments = handed
            include = exclude = _NO_KEYS
            each: dict[str, DispatchKeySet] = {}
        else:
            with_generators = kind is CallKind.CALL
            arguments = DispatchKeySet(table.signature.key_bits(values, generators=with_generators))
            each = table.signature.each_key_set(values, generators=with_generators)
            include, exclude = thread.included, thread.excluded
            base = DispatchKeySet((arguments.bits | thread.masks.included) & thread.masks.kept)
            keys = table.masked(base.bits)
        return ObservedCall(kind, self.name, arguments, each, include, exclude, base, keys, table.entry_at(keys))

    # -- boxed

    def call_boxed(self, stack: list[object]) -> None:
        """Call with the last values of a stack as the arguments, in the schema's order; the returns replace them.

        Args:
            stack: the stack; unchanged if the call fails.

        Raises:
            CallError: the arguments are wrong, there is no kernel, or the kernel returned something wrong.
        """
        self._call_boxed(CallKind.CALL_BOXED, stack, None)

    def redispatch_boxed(self, keys: DispatchKeySet, stack: list[object]) -> None:
        """Call the next kernel with exactly these keys."""
        self._call_boxed(CallKind.REDISPATCH_BOXED, stack, _key_set(self.table, keys))

    def _call_boxed(self, kind: CallKind, stack: list[object], handed: DispatchKeySet | None) -> None:
        table = self.table
        signature = table.signature
        count = len(signature.arguments)
        if len(stack) < count:
            name = signature.arguments[len(stack)].name
            message = f"{self.name} takes {count} arguments from the stack, which holds {len(stack)} values"
            raise signature.refused(ErrorKind.MISSING_ARGUMENT, message, name)
        start = len(stack) - count
        values = signature.checked(stack[start:])
        keys = handed
        if keys is None:
            included, kept = thread.masks
            keys = table.masked((signature.key_bits(values, generators=False) | included) & kept)

        def run() -> None:
            found = table.found(keys)
            if found.entry.registered.kernel.takes_stack:
                stack[start:] = values
                run_on_stack(self, signature, found.entry, keys, stack, count)
                result = returns_of(stack[start:])
            else:
                result = found.target(*values)
            stack[start:] = table.returns(values, result, found.entry)

        before = [*stack]
        try:
            if observers:
                _observed(self._observed_call(kind, table, values, handed), run)
            else:
                run()
        except BaseException:
            stack[:] = before
            raise


_Values: TypeAlias = Sequence[object]
_Named: TypeAlias = Mapping[str, object]


def _key_set(table: CallTable, keys: object) -> DispatchKeySet:
    if isinstance(keys, DispatchKeySet):
        return keys
    what = "no key set" if keys is MISSING else f"{type(keys).__name__} for the key set"
    message = f"a redispatch of {table.signature.name} got {what}: pass a DispatchKeySet before the arguments"
    raise table.signature.refused(ErrorKind.WRONG_TYPE, message, "keyset")


def _observed(call: ObservedCall, run: Callable[[], object]) -> object:
    """Run a call while the observers watch; an observer that is added later misses the call."""
    watching = [*observers]
    for observer in watching:
        observer.entered(call)
    try:
        result = run()
    except BaseException as error:
        for observer in reversed(watching):
            observer.left(call, error)
        raise
    for observer in reversed(watching):
        observer.left(call, None)
    return result


_operators: WeakKeyDictionary[Dispatcher, WeakValueDictionary[str, Operator]] = WeakKeyDictionary()


def operator(dispatcher: Dispatcher, name: OperatorName | str) -> Operator:
    """Return the operator of that name, to be called; always the same handle while there is a reference to it.

    >>> from dispatchlab import Lab, operator
    >>> operator(Lab().dispatcher, "aten::mm")
    <Operator aten::mm(Tensor self, Tensor mat2) -> Tensor>

    Raises:
        RegistrationError: of kind `no_such_schema`, if it has no def.
        ParseError: the name cannot be read.
    """
    parsed = parse_name(name) if isinstance(name, str) else name
    dispatcher.find_schema_or_raise(parsed)
    known = _operators.setdefault(dispatcher, WeakValueDictionary())
    found = known.get(str(parsed))
    return known.setdefault(str(parsed), Operator(dispatcher, parsed)) if found is None else found


class Operators:
    """The operators of a dispatcher by attribute: `ops.aten.add.Tensor`, and `ops.aten.add` when that is all there is.

    >>> from dispatchlab import Lab
    >>> from dispatchlab.call import Operators
    >>> Operators(Lab().dispatcher).aten.sum.overloads()
    ('default', 'dim_IntList')

    Args:
        dispatcher: the dispatcher.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def __repr__(self) -> str:
        return f"<Operators of {self._dispatcher!r}>"

    def __getattr__(self, namespace: str) -> Namespace:
        if namespace.startswith("__"):
            raise AttributeError(namespace)
        return Namespace(self._dispatcher, namespace)


class Namespace:
    """The operators of one namespace."""

    def __init__(self, dispatcher: Dispatcher, namespace: str) -> None:
        self._dispatcher = dispatcher
        self._namespace = namespace

    def __repr__(self) -> str:
        return f"<Namespace {self._namespace} of {self._dispatcher!r}>"

    def __getattr__(self, name: str) -> Packet:
        full = f"{self._namespace}::{name}"
        overloads = tuple(
            one.overload for one in self._dispatcher.operators() if f"{one.namespace}::{one.name}" == full
        )
        if not overloads:
            raise AttributeError(no_operator(full, sorted({one.qualified for one in self._dispatcher.operators()})))
        return Packet(self._dispatcher, full, overloads)


class Packet:
    """The overloads of one name; a call runs the overload without a name, or the only overload."""

    def __init__(self, dispatcher: Dispatcher, name: str, overloads: tuple[str, ...]) -> None:
        self._dispatcher = dispatcher
        self._name = name
        self._overloads = overloads

    def __repr__(self) -> str:
        return f"<Packet {self._name} of {', '.join(self.overloads())}>"

    def overloads(self) -> tuple[str, ...]:
        """Return the overload names; `default` for the overload without a name."""
        return tuple(overload or "default" for overload in self._overloads)

    def __getattr__(self, overload: str) -> Operator:
        if overload not in self.overloads():
            raise AttributeError(f"{self._name} has no overload {overload}: it has {', '.join(self.overloads())}")
        return operator(
            self._dispatcher, f"{self._name}{'' if overload == 'default' else '.'}{overload.removeprefix('default')}"
        )

    def __call__(self, *args: object, **kwargs: object) -> Any:
        chosen = "default" if "" in self._overloads else self._overloads[0]
        if "" not in self._overloads and len(self._overloads) > 1:
            known = ", ".join(self.overloads())
            message = f"{self._name} has several overloads, and none without a name: say which of {known}"
            raise CallError(ErrorKind.OTHER, message, {"operator": self._name, "overloads": known})
        return getattr(self, chosen)(*args, **kwargs)


def ops(dispatcher: Dispatcher) -> Operators:
    """Return the operators of a dispatcher by attribute, as `torch.ops` has them.

    >>> from dispatchlab import Lab, ops, tensor
    >>> ops(Lab().dispatcher).aten.add.Tensor(tensor([1.0]), tensor([2.0]))
    tensor([3.])
    """
    return Operators(dispatcher)
