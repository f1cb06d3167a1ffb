"""Make one registration of Python on the running PyTorch, with a stand-in function, and take it back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from importlib import import_module
from types import MethodType
from typing import Any, ClassVar, NamedTuple, TypeAlias

from dispatchlab.errors import DispatchLabError, ErrorKind, RegistrationError
from dispatchlab.model.python_layer import (
    ASSIGNMENT,
    EVERY_OVERLOAD,
    FUNCTIONS,
    HIGHER_ORDER,
    LEFT_BY_TORCH_LIBRARY,
    PythonRegistration,
)
from dispatchlab.model.registration import PythonImpl
from dispatchlab.pytorch.bridge.error_parser import kind_of, without_backtrace
from dispatchlab.pytorch.bridge.expressible import NotExpressibleError, stand_in
from dispatchlab.pytorch.bridge.registry_tables import (
    SHARDING_RULES,
    UNREADABLE,
    attributes,
    fill,
    plain_table,
    sharding_propagator,
)
from dispatchlab.pytorch.bridge.torch import bindings, torch

# Note [Registrations of Python, live]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Each is made through the call that packages use for its registry, so that PyTorch refuses what it refuses them:
# `py_impl`, `register_decomposition`, `register_op_impl`, `register_lowering` and the like. Where there is no such
# call, the entry is assigned. The caller of such a function has the operator in hand, so an operator that does not
# exist is a refusal, by the `AttributeError` that looking it up raises.
#
# Some calls write more than the entry of one registry: `make_fallback` writes a lowering, too, and a call for a packet
# of overloads writes each of them. A record has an entry for each. So that each is made once, such a call is made on a
# table of our own, and the one entry is taken from there. `register_decomposition` writes the overloads of a packet and
# nothing for the packet itself, whose entry somebody assigned.
#
# PyTorch takes back next to nothing of all this. `reset` does: the entry below comes to light again, as it does with
# kernels, and what was there before the first of ours comes back with the last. An entry belongs to the operator
# object that was there when it was made: when the operator is defined anew, the old object and what is kept by it are
# out of reach, here as in a package.
#
# `torch.ops` remembers operators, and what `torch.library` destroys it removes from there. Operators that the bindings
# alone defined and released are removed by `forget_operator`.

Table: TypeAlias = MutableMapping[Any, Any]

_MISSING = object()


class PythonCallNotExpressibleError(DispatchLabError):
    """A registration of Python that cannot be made by itself.

    Args:
        registration: the registration.
        reason: why not, a clause.
    """

    registration: PythonRegistration
    reason: str

    def __str__(self) -> str:
        one = self.registration
        at = f" {one.key}" if one.key else ""
        return f"{one.registry} {one.operator}{at} cannot be made on the live PyTorch: {self.reason}"


class _Written:
    """One entry of a table that we have written to, with what was there before and what we put there, oldest first."""

    def __init__(self, table: Table, key: Any, before: Any) -> None:
        self.table, self.key, self.before = table, key, before
        self.values: list[Any] = []


def _identity(table: Table) -> int:
    return id(table.members if isinstance(table, _SetTable) else table)


_written: dict[tuple[int, Any], _Written] = {}
"""The entries that hold something of ours, by the identity of their table."""


class MadeInPython:
    """An entry that was made; `reset` takes it back.

    Args:
        table: the table it is in; None where the call wrote nothing.
        key: its key there.
        value: what the call put there; a value of its own kind where it took something out.
        undo: what else to do when it goes.
    """

    __slots__ = ("_key", "_table", "_undo", "value")

    def __init__(self, table: Table | None, key: Any, value: Any, undo: Callable[[], object]) -> None:
        self._table, self._key, self.value, self._undo = table, key, value, undo

    def is_in_force(self) -> bool:
        """Whether the entry is what its table has now."""
        return self._table is not None and self._table.get(self._key, _MISSING) is self.value

    def reset(self) -> None:
        """Take it back; a second time is harmless."""
        table, self._table = self._table, None
        if table is None:
            return
        at = _identity(table), self._key
        written = _written[at]
        written.values.pop(max(at for at, value in enumerate(written.values) if value is self.value))
        if table.get(self._key, _MISSING) is self.value:
            below = written.values[-1] if written.values else written.before
            if below is _MISSING:
                table.pop(self._key, None)
            else:
                table[self._key] = below
        if not written.values:
            del _written[at]
        self._undo()


class _Slot(NamedTuple):
    """Where an entry is kept.

    Args:
        table: the table.
        key: the key in it.
        write: makes the call with a stand-in function.
        undo: what else to do when the entry goes.
    """

    table: Table
    key: Any
    write: Callable[[Any], object]
    undo: Callable[[], object] = lambda: None


FindSlot: TypeAlias = Callable[[PythonRegistration, Any], _Slot]
"""The slot of a registration, given its operator."""


def python_call(
    registration: PythonRegistration, prefix: str = "", function: Callable[..., object] | None = None
) -> Callable[[], MadeInPython]:
    """The call that makes a registration, each time the result is called. See Note [Registrations of Python, live].

    The call raises a `RuntimeError` with the text of PyTorch where that refuses it.

    Args:
        registration: the registration.
        prefix: stands before the namespace of its operator, unless that is a Python function or of higher order.
        function: stands in for the function that is registered; None for a new one in each call.

    Raises:
        PythonCallNotExpressibleError: it is no call by itself, or this PyTorch has no such call.
    """
    find = _slot_finder(registration)

    def made() -> MadeInPython:
        try:
            slot = find(registration, operator_object(registration.operator, prefix))
            before = slot.table.get(slot.key, _MISSING)
            given = function or _stand_in()
            if registration.effect == "removed":
                slot.table.pop(slot.key, None)
            elif registration.call == ASSIGNMENT or (registration.is_packet and find in _WRITE_OVERLOADS):
                slot.table[slot.key] = given
            else:
                slot.write(given)
        except (AssertionError, AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise RuntimeError(f"{error}") from error
        after = slot.table.get(slot.key, _MISSING)
        if after is before:
            return MadeInPython(None, slot.key, None, slot.undo)
        written = _written.setdefault((_identity(slot.table), slot.key), _Written(slot.table, slot.key, before))
        written.values.append(after)
        return MadeInPython(slot.table, slot.key, after, slot.undo)

    return made


class PythonEntries:
    """The entries of Python of one sandbox.

    Args:
        prefix: stands before the namespaces of the sandbox.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._slots: dict[str, dict[tuple[str, str], tuple[PythonRegistration, str]]] = {}
        self._made: list[MadeInPython] = []
        self._by_value: dict[int, PythonImpl] = {}  # by the identity of a value, which `_made` keeps alive
        self._given: dict[str, Any] = {}

    def call(self, registration: PythonImpl, function: Callable[..., object]) -> Callable[[], MadeInPython]:
        """The call that makes a registration; a refusal is a `RegistrationError`.

        Args:
            registration: the registration.
            function: stands in for the function that is registered.

        Raises:
            NotExpressibleError: it is no call by itself, or this PyTorch has no such call.
        """
        code = registration.code
        prefix = self._prefix_of(registration)
        try:
            make = python_call(code, prefix, function)
        except PythonCallNotExpressibleError as error:
            raise NotExpressibleError(registration, error.reason) from error

        def made() -> MadeInPython:
            try:
                one = make()
            except RuntimeError as error:
                raise self._refusal(registration, prefix, str(error)) from error
            self._slots.setdefault(code.operator, {})[code.registry, code.key] = code, prefix
            self._made.append(one)
            self._by_value[id(one.value)] = registration
            return one

        return made

    def now(self, operator: str) -> Iterator[tuple[str, str, object]]:
        """The registry, the key and the value of each slot that the sandbox wrote and that has something now."""
        for (registry, key), (code, prefix) in self._slots.get(operator, {}).items():
            value = entry_now(code, prefix)
            if value is not None and id(value) in self._by_value:
                yield registry, key, value

    def reset(self) -> None:
        """Take everything back."""
        for one in reversed(self._made):
            one.reset()
        for operator, library in self._given.items():
            library.reset()
            forget_operator(operator.partition(".")[0])

    def _prefix_of(self, registration: PythonImpl) -> str:
        """What stands before the namespace of the operator: an operator of PyTorch keeps its name.

        One that a scenario takes as given, and that this PyTorch does not have, is defined for as long.
        """
        if registration.needs_def:
            return self._prefix
        operator = registration.code.operator
        try:
            operator_object(operator)
        except AttributeError:
            pass
        else:
            return ""
        namespace, _, name = operator.partition("::")
        prefix = f"{self._prefix}given_"
        name = name.removesuffix(f".{EVERY_OVERLOAD}")
        qualified = f"{prefix}{namespace}::{name}"
        if qualified not in self._given and namespace != FUNCTIONS:
            library = bindings()._dispatch_library("FRAGMENT", prefix + namespace, "", __file__, 1)
            library.define(f"{name}(Tensor x) -> Tensor", "")
            self._given[qualified] = library
        return prefix

    def _refusal(self, registration: PythonImpl, prefix: str, text: str) -> RegistrationError:
        shown = without_backtrace(text).replace(prefix, "") if prefix else without_backtrace(text)
        code, kind = registration.code, kind_of(shown)
        key = f"{code.registry} {code.key}".rstrip()
        facts = {"operator": str(registration.operator), "registry": key, "debug": registration.debug}
        if kind is ErrorKind.DUPLICATE_PYTHON:
            rule = code.rule
            beside = rule.beside if rule is not None else ""
            there = entry_now(code._replace(registry=beside), prefix) if beside else None
            facts["other_debug"] = self._debug_of(entry_now(code, prefix) if there is None else there)
        return RegistrationError(kind, shown, facts)

    def _debug_of(self, value: object) -> str:
        """The debug text of the registration that has put a value where it is; empty for another's."""
        registration = self._by_value.get(id(value))
        return "" if registration is None else registration.debug


def entry_now(registration: PythonRegistration, prefix: str = "") -> object | None:
    """What the slot of a registration has now; None for nothing, and for an operator that does not exist."""
    try:
        operator = operator_object(registration.operator, prefix)
        slot = _slot_finder(registration)(registration, operator)
    except (AttributeError, PythonCallNotExpressibleError):
        return None
    found: object = slot.table.get(slot.key)
    return found


def forget_operator(qualified: str) -> None:
    """Have `torch.ops` look for an operator again, as it does when `torch.library` destroys one."""
    namespace, _, name = qualified.partition("::")
    known = vars(torch().ops).get(namespace)
    if known is None or name not in vars(known):
        return
    delattr(known, name)
    with suppress(ValueError):
        known._dir.remove(name)


def operator_object(operator: str, prefix: str = "") -> Any:
    """The object that Python has for an operator.

    Args:
        operator: its name, as `PythonRegistration` has it.
        prefix: stands before its namespace.

    Raises:
        AttributeError: there is none.
    """
    namespace, _, name = operator.partition("::")
    if namespace == FUNCTIONS:
        return _python_function(name)
    if namespace == HIGHER_ORDER:
        return _higher_order(name)
    base, _, overload = name.partition(".")
    packet = getattr(getattr(torch().ops, prefix + namespace), base)
    return packet if overload == EVERY_OVERLOAD else getattr(packet, overload or "default")


def _python_function(name: str) -> Any:
    """A function of Python by its dotted name; an AttributeError where there is none."""
    module, _, path = name.rpartition(".")
    while module:
        with suppress(ImportError, AttributeError):
            found: Any = sys.modules.get(module) or import_module(module)
            for part in path.split("."):
                found = getattr(found, part)
            return found
        module, _, part = module.rpartition(".")
        path = f"{part}.{path}"
    raise AttributeError(f"there is no function {name}")


_stand_in_operators: dict[str, Any] = {}


def _higher_order(name: str) -> Any:
    """A higher-order operator; where nobody has made it, one that stands in for it and that nothing else finds."""
    ops = import_module("torch._ops")
    known = ops._higher_order_ops.get(name)
    if known is not None and known is not _stand_in_operators.get(name):
        return known
    made = _stand_in_operators.get(name)
    if made is None:
        kind = type("StandInOperator", (ops.HigherOrderOperator,), {"__call__": lambda self, *arguments: None})
        made = _stand_in_operators[name] = kind(name)
        ops._higher_order_ops.pop(name, None)
    return made


def _stand_in() -> Callable[..., object]:
    """A function that nobody else has, by which its entry is recognised."""

    def function(*arguments: object, **named: object) -> object:
        return stand_in(*arguments, **named)

    return function


def _slot_finder(registration: PythonRegistration) -> FindSlot:
    """What finds the slot of a registration.

    Raises:
        PythonCallNotExpressibleError: it is no call by itself, or this PyTorch has no such call.
    """
    registry = registration.described
    if registry.no_call:
        raise PythonCallNotExpressibleError(registration, registry.no_call)
    find = _FINDERS.get(registry.name, _in_its_table)
    if find is _torch_library and not registration.key.startswith(_TORCH_DISPATCH):
        raise PythonCallNotExpressibleError(registration, LEFT_BY_TORCH_LIBRARY)
    if find is _sharding_rule and registration.key not in SHARDING_RULES:
        raise PythonCallNotExpressibleError(registration, f"DTensor has no {registration.key}")
    needs = registry.needs
    try:
        for module in (needs, registration.needs):
            if module:
                import_module(module)
    except ImportError as error:
        raise PythonCallNotExpressibleError(registration, f"{needs} cannot be imported: {error}") from error
    return find


# -- tables of operator objects


def _key_of(text: str) -> Any:
    """A key of an operator's table: a dispatch key, a transform of functorch, or a class."""
    if text.startswith("functorch "):
        return getattr(bindings()._functorch.TransformType, text.removeprefix("functorch "))
    known = bindings().DispatchKey.__members__.get(text)
    return _class(text) if known is None else known


def _class(name: str) -> type:
    """The class of a mode or of tensors: PyTorch's own by name; for any other, a mode that stands in for it."""
    if name.partition(".")[0] == "torch":
        with suppress(AttributeError):
            found = _python_function(name)
            if isinstance(found, type):
                return found
    made = _stand_in_classes.get(name)
    if made is None:
        mode = import_module("torch.utils._python_dispatch").TorchDispatchMode
        module, _, own = name.rpartition(".")
        made = _stand_in_classes[name] = type(own or "StandIn", (mode,), {"__module__": module})
    return made


_stand_in_classes: dict[str, type] = {}


def _mode_table(operator: Any) -> Table:
    table: Table = next(getattr(operator, name) for name in attributes("mode_rules") if hasattr(operator, name))
    return table


def _of_operator(one: PythonRegistration, operator: Any) -> _Slot:
    """A slot of an operator's own tables, by `py_impl`."""
    key = _key_of(one.key)
    if isinstance(key, type):
        table = _mode_table(operator)
    elif one.key.startswith("functorch "):
        table = operator.functorch_table
    else:
        table = operator.py_kernels
    falls_through = getattr(operator, "non_fallthrough_keys", None)
    fell_through = isinstance(key, bindings().DispatchKey) and falls_through is not None and not falls_through.has(key)

    def undo() -> None:
        with suppress(AttributeError):  # an operator of higher order keeps none
            operator._dispatch_cache.clear()
        if fell_through and key not in table:
            operator.fallthrough(key)

    return _Slot(table, key, lambda function: operator.py_impl(key)(function), undo)


def _of_higher_order(one: PythonRegistration, operator: Any) -> _Slot:
    # An operator that nothing was registered for is an entry without a key, and there as soon as it is made.
    return _of_operator(one, operator) if one.key else _assigned(_made_operators, operator)


_made_operators: dict[Any, Any] = {}


def _higher_order_fake(one: PythonRegistration, operator: Any) -> _Slot:
    utils = import_module("torch._higher_order_ops.utils")
    table = utils.registered_hop_fake_fns

    def write(function: Any) -> None:
        # See Note [Registrations of Python, live]: the rule for FakeTensorMode is an entry of another registry.
        if operator in table:
            raise AssertionError(f"hop {operator} already registered in registered_hop_fake_fns")
        table[operator] = function

    return _Slot(table, operator, write)


# -- decompositions and rules


def _decomposition(one: PythonRegistration, operator: Any) -> _Slot:
    register, table = torch()._decomp.register_decomposition, torch()._decomp.global_decomposition_table[one.key]
    return _Slot(table, operator, lambda function: register(operator, type=one.key)(function))


def _meta_function(one: PythonRegistration, operator: Any) -> _Slot:
    return _decomposition(one._replace(key="meta"), operator)


def _inductor_decomposition(one: PythonRegistration, operator: Any) -> _Slot:
    table = import_module("torch._inductor.decomposition").decompositions
    # Inductor's own function of this name writes a warning to the log, and calls the same.
    register = torch()._decomp.register_decomposition
    return _Slot(table, operator, lambda function: register([operator], table)(function))


# -- torch.library


_TORCH_DISPATCH = "torch_dispatch "


def _torch_library(one: PythonRegistration, operator: Any) -> _Slot:
    """A rule for one mode or class. Of what `torch.library` registers, this alone reaches no dispatch table."""
    name, kept = str(operator.name()), _class(one.key.removeprefix(_TORCH_DISPATCH))
    entries = torch()._library.simple_registry.singleton
    was_there = name in entries._data
    libraries: list[Any] = []

    def write(function: Any) -> None:
        library = torch().library.Library(operator.namespace, "FRAGMENT")
        libraries.append(library)
        torch().library.register_torch_dispatch(name, kept, function, lib=library)

    table: Table = entries.find(name).torch_dispatch_rules._data

    def undo() -> None:
        for library in libraries:
            library._registration_handles.clear()  # the rule is gone already
            library._destroy()
        if not (was_there or table):
            entries._data.pop(name, None)

    return _Slot(table, kept, write, undo)


# -- DTensor


def _sharding_rule(one: PythonRegistration, operator: Any) -> _Slot:
    fill(one.registry)
    propagator, (table, register) = sharding_propagator(), SHARDING_RULES[one.key]
    if not hasattr(propagator, table) or not hasattr(propagator, register):
        raise PythonCallNotExpressibleError(one, f"PyTorch {torch().__version__} has no {register}")

    def write(function: Any) -> None:
        bound: MethodType = getattr(propagator, register)
        bound(operator, function)

    return _Slot(getattr(propagator, table), operator, write)


# -- Inductor


def _lowering(one: PythonRegistration, operator: Any) -> _Slot:
    module = import_module("torch._inductor.lowering")

    def write(function: Any) -> None:
        made: dict[Any, Any] = {}
        module.register_lowering(operator, lowering_dict=made)(function)
        module.lowerings[operator] = made[operator]

    return _Slot(module.lowerings, operator, write)


def _fallback(one: PythonRegistration, operator: Any) -> _Slot:
    module = import_module("torch._inductor.lowering")
    table = _SetTable(module.fallbacks)

    def write(function: Any) -> None:
        if operator in module.decompositions:
            raise AssertionError(f"both a fallback and a decomp for same op: {operator}")
        table[operator] = function

    return _Slot(table, operator, write)


class _SetTable(MutableMapping[Any, Any]):
    """A set of operators as a table, with the functions by which each of our entries is recognised."""

    _functions: ClassVar[dict[Any, Any]] = {}

    def __init__(self, members: Any) -> None:
        self.members = members

    def __getitem__(self, operator: Any) -> Any:
        if operator not in self.members:
            raise KeyError(operator)
        return self._functions.get(operator)

    def __setitem__(self, operator: Any, function: Any) -> None:
        self.members.add(operator)
        self._functions[operator] = function

    def __delitem__(self, operator: Any) -> None:
        self.members.discard(operator)
        self._functions.pop(operator, None)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)


# -- tables from operators to functions


def _in_its_table(one: PythonRegistration, operator: Any) -> _Slot:
    """A slot of the one table of a registry, by the function that registers there; packages assign without one."""
    registry = one.described
    try:
        import_module(registry.home.partition(":")[0])
        table = plain_table(registry.name)
    except UNREADABLE as error:
        reason = f"PyTorch {torch().__version__} has no {registry.title}"
        raise PythonCallNotExpressibleError(one, reason) from error
    assert isinstance(table, MutableMapping), registry
    if not registry.calls:
        return _assigned(table, operator)
    function, *_ = registry.calls
    module, _, name = function.path.partition(":")
    register = getattr(import_module(module), name)
    if function.decorates:
        return _Slot(table, operator, lambda given: register(operator, *function.arguments)(given))
    return _Slot(table, operator, lambda given: register(operator, *function.arguments, given))


def _assigned(table: Table, operator: Any) -> _Slot:
    """A slot for which there is no call: packages assign it."""

    def write(function: Any) -> None:
        table[operator] = function

    return _Slot(table, operator, write)


_FINDERS: Mapping[str, FindSlot] = {
    "py_kernels": _of_operator,
    "mode_rules": _of_operator,
    "decompositions": _decomposition,
    "meta_functions": _meta_function,
    "torch_library": _torch_library,
    "higher_order": _of_higher_order,
    "higher_order_fakes": _higher_order_fake,
    "dtensor_rules": _sharding_rule,
    "inductor_decompositions": _inductor_decomposition,
    "inductor_lowerings": _lowering,
    "inductor_fallbacks": _fallback,
}
"""What finds the slots of the registries whose call is none of `PythonRegistry.calls` alone."""

_WRITE_OVERLOADS = _decomposition, _meta_function, _inductor_decomposition
"""Those whose call writes an entry for each overload when it is given all of them."""
