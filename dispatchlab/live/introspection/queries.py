"""Queries about single operators of the running PyTorch: schema, dump, table, PyTorch's own check, and the
overloads that a call of its name tries.

`LiveEngine.ask` calls these functions in the process that has torch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from dispatchlab.errors import DispatchLabError, first_of
from dispatchlab.live.bridge.error_parser import without_backtrace
from dispatchlab.live.bridge.reserved_namespaces import is_own
from dispatchlab.live.bridge.running_keys import running_keys
from dispatchlab.live.bridge.torch import bindings, torch
from dispatchlab.live.introspection.held_kernels import SlotReader
from dispatchlab.live.introspection.package_paths import package_roots, without_roots
from dispatchlab.live.introspection.site_log import log_of_imports, placed_texts
from dispatchlab.model.dump_format import aliases_of, parse_table
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName, name_of
from dispatchlab.model.snapshot import Snapshot, Violation
from dispatchlab.registries.model import read_dump

UPSTREAM = "PyTorch's own check"


def operator_names() -> tuple[OperatorName, ...]:
    """Return every operator with a def or a kernel, sorted, without operators of dispatchlab."""
    names = sorted(bindings()._dispatch_get_all_op_names())
    return tuple(name_of(text) for text in names if not is_own(text))


def look_at(names: Sequence[OperatorName]) -> tuple[tuple[Snapshot, tuple[Violation, ...]], ...]:
    """Return the dump, the table and the schema of operators, and PyTorch's own check of the slots.

    Paths lose the folder in which this machine keeps its packages.
    """
    dangling = frozenset(bindings()._dispatch_find_dangling_impls())
    roots, slots = package_roots(), SlotReader()
    return tuple(_look_at(name, dangling, roots, slots) for name in names)


def keys_by_rule(names: Sequence[OperatorName]) -> tuple[tuple[str, ...], ...]:
    """Return the keys that `custom_op` and `register_autograd` fill, for each operator; they redispatch by a rule.

    The lines of PyTorch that made their libraries show this, and the log of imports for a library of the package.
    """
    folder, library = os.path.dirname(torch().__file__), torch().library
    # The second makes the library for several functions, of which `register_autograd` alone registers at Autograd.
    makers = [getattr(library, name, None) for name in ("register_autograd", "_library_for_registration")]
    code = [maker.__code__ for maker in makers if maker is not None]
    lines = {line for each in code for *_, line in each.co_lines() if line is not None}
    in_library = "|".join(map(str, sorted(lines)))
    made = re.compile(
        rf"registered at {re.escape(folder)}/(?:_library/custom_ops\.py:\d+|library\.py:(?:{in_library}))"
    )
    return tuple(_keys_of(name, made) for name in names)


def _keys_of(name: OperatorName, made: re.Pattern[str]) -> tuple[str, ...]:
    try:
        rows = parse_table(bindings()._dispatch_dump_table(str(name)))
    except (DispatchLabError, ValueError, RuntimeError):
        return ()
    has_formula = (log := log_of_imports()) is not None and log.has_formula(str(name))
    return tuple(
        str(key)
        for key, entry in rows.items()
        if made.fullmatch(entry.debug) or (has_formula and DispatchKey.Autograd in aliases_of(entry.provenance))
    )


def privateuse1_name() -> str:
    """Return the name that a package gave the PrivateUse1 backend; empty without a name."""
    name = str(bindings()._get_privateuse1_backend_name())
    return "" if name == "privateuseone" else name


def schema_text(name: OperatorName) -> str | None:
    """Return the schema of an operator; None without a schema."""
    try:
        return str(bindings()._dispatch_find_schema_or_throw(name.qualified, name.overload).schema())
    except RuntimeError:
        return None


def upstream_check(name: str) -> str | None:
    """Return the report of PyTorch's check of an operator's invariants; None when they hold."""
    try:
        bindings()._dispatch_check_invariants(name)
    except RuntimeError as error:
        return without_backtrace(str(error)).split(", please report", 1)[0]
    return None


def _look_at(
    name: OperatorName, dangling: frozenset[str], roots: tuple[str, ...], reader: SlotReader
) -> tuple[Snapshot, tuple[Violation, ...]]:
    c, text = bindings(), str(name)
    dump = c._dispatch_dump(text)
    table = c._dispatch_dump_table(text) if dump else ""
    is_dangling, log = dump in dangling, log_of_imports()
    if dump and log is not None:
        dump, table = placed_texts(log, dump, table)
    slots: str | None = ""
    if dump:
        try:
            slots = reader.text(text, read_dump(dump).kernels, table)
        except (DispatchLabError, ValueError):
            slots = None
    snapshot = Snapshot(
        name,
        without_roots(dump, roots),
        without_roots(table, roots),
        None if slots is None else without_roots(slots, roots),
        schema=schema_text(name),
        dangling=is_dangling,
    )
    found = upstream_check(text)
    return snapshot, () if found is None else (Violation(name, UPSTREAM, found),)


# Note [Packets of torch.ops]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~
# PyTorch keeps a list of the overloads of a name, in the order in which they were defined, but for those that only
# TorchScript has, which come last. An overload that is released leaves the list, and comes last when it is defined
# again. `torch.ops.ns.name` takes the list as it is when it is first touched, and keeps it: later defs and releases
# through the dispatcher do not change what the packet tries. `torch.library.Library.define` makes the packet anew when
# there is one, and the end of a `Library` forgets it.
# The list is found by the types and names of arguments and returns, without the overload. So of two overloads that
# agree in these, the second release does not find its entry: it stays, and no packet can be made of the name any more.
# New defs wait beside the list until anybody asks for any operator's overloads; one that is released before, leaves no
# entry. Asking for them, as `overload_order` and every `define` of `torch.library` do, is all that it changes.


def overload_order(name: str) -> tuple[str, ...]:
    """Return the overloads that a call of `torch.ops.ns.name` tries now, in order, without filling its cache.

    See Note [Packets of torch.ops].

    Args:
        name: the name without an overload, `ns::name`.

    Returns:
        The overload names, empty text for the default: those of the packet if a program used it, else those
        of a new packet. Empty if there is no such operator, or if it can have no packet.
    """
    namespace, _, operator = name.partition("::")
    kept = vars(vars(torch().ops).get(namespace, object)).get(operator)
    if isinstance(kept, torch()._ops.OpOverloadPacket):
        return tuple(kept._overload_names)
    try:
        found = bindings()._jit_get_operation(name)[1]
    except RuntimeError:
        return ()
    return () if found is None else tuple(found)


def packet_schemas(name: str) -> tuple[tuple[str, str], ...]:
    """Return the overloads in this order with their schemas, including overloads that only TorchScript has."""
    schemas = {each.overload_name: str(each) for each in bindings()._jit_get_schemas_for_operator(name)}
    return tuple((overload, schemas[overload]) for overload in overload_order(name) if overload in schemas)


def unknown_keys() -> tuple[str, ...]:
    """Return the keys of the running PyTorch that dispatchlab does not know, in order; empty for a known release."""
    return tuple(name for name in running_keys().numbers if name not in DispatchKey.__members__)


def limits_of(unknown: tuple[str, ...]) -> str:
    """Return a sentence about what works, and what does not, with a PyTorch that has these unknown keys."""
    return (
        f"it has {first_of(unknown, 3)}, which dispatchlab does not know: registering, releasing and reading slots "
        "work; registrations at such a key cannot be recorded, written in a scenario or predicted"
    )
