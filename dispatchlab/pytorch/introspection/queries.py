"""Queries about single operators of the running PyTorch: schema, dump, table, and what its own check finds.

These functions run where torch is; `LiveEngine.ask` calls them there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.dump_format import parse_table
from dispatchlab.model.names import OperatorName
from dispatchlab.model.snapshot import Snapshot, Violation
from dispatchlab.pytorch.bridge.error_parser import without_backtrace
from dispatchlab.pytorch.bridge.reserved_namespaces import is_own
from dispatchlab.pytorch.bridge.torch import bindings, torch
from dispatchlab.pytorch.introspection.package_paths import package_roots, without_roots
from dispatchlab.pytorch.introspection.site_log import log_of_imports, placed_texts

UPSTREAM = "PyTorch's own check"


def operator_names() -> tuple[OperatorName, ...]:
    """Every operator that has a def or a kernel, but for those of this package; sorted."""
    names = sorted(bindings()._dispatch_get_all_op_names())
    return tuple(operator_name(text) for text in names if not is_own(text))


def operator_name(text: str) -> OperatorName:
    """The name of an operator as PyTorch writes it."""
    namespace, _, rest = text.rpartition("::")
    name, _, overload = rest.partition(".")
    return OperatorName(namespace, name, overload)


def look_at(names: Sequence[OperatorName]) -> tuple[tuple[Snapshot, tuple[Violation, ...]], ...]:
    """What PyTorch shows of operators: the dump, the table, the schema, and its own check of the slots.

    Paths lose the folder in which this machine keeps its packages.
    """
    dangling = frozenset(bindings()._dispatch_find_dangling_impls())
    roots = package_roots()
    return tuple(_look_at(name, dangling, roots) for name in names)


def keys_by_rule(names: Sequence[OperatorName]) -> tuple[tuple[str, ...], ...]:
    """For each operator the keys whose kernels `custom_op` and `register_autograd` make, which redispatch by a rule.

    Read off the lines of PyTorch that made their libraries, whatever call sites are shown for them.
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
    return tuple(str(key) for key, entry in rows.items() if made.fullmatch(entry.debug))


def privateuse1_name() -> str:
    """The name that a package gave the PrivateUse1 backend; empty when none did."""
    name = str(bindings()._get_privateuse1_backend_name())
    return "" if name == "privateuseone" else name


def schema_text(name: OperatorName) -> str | None:
    """The schema of an operator; None when it has none."""
    try:
        return str(bindings()._dispatch_find_schema_or_throw(name.qualified, name.overload).schema())
    except RuntimeError:
        return None


def upstream_check(name: str) -> str | None:
    """What PyTorch's check of its invariants reports of an operator; None when they hold."""
    try:
        bindings()._dispatch_check_invariants(name)
    except RuntimeError as error:
        return without_backtrace(str(error)).split(", please report", 1)[0]
    return None


def _look_at(
    name: OperatorName, dangling: frozenset[str], roots: tuple[str, ...]
) -> tuple[Snapshot, tuple[Violation, ...]]:
    c, text = bindings(), str(name)
    dump = c._dispatch_dump(text)
    table = c._dispatch_dump_table(text) if dump else ""
    is_dangling, log = dump in dangling, log_of_imports()
    if dump and log is not None:
        dump, table = placed_texts(log, dump, table)
    snapshot = Snapshot(
        name,
        without_roots(dump, roots),
        without_roots(table, roots),
        schema=schema_text(name),
        dangling=is_dangling,
    )
    found = upstream_check(text)
    return snapshot, () if found is None else (Violation(name, UPSTREAM, found),)
