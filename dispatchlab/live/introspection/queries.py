"""Queries about single operators of the running PyTorch: schema, dump, table, and what its own check finds.

These functions run where torch is; `LiveEngine.ask` calls them there.
"""

from __future__ import annotations

from collections.abc import Sequence

from dispatchlab.live.bridge.error_parser import without_backtrace
from dispatchlab.live.bridge.reserved_namespaces import is_own
from dispatchlab.live.bridge.torch import bindings
from dispatchlab.live.introspection.package_paths import package_roots, without_roots
from dispatchlab.live.introspection.site_log import log_of_imports, placed_texts
from dispatchlab.model.names import OperatorName
from dispatchlab.model.snapshot import Snapshot, Violation

UPSTREAM = "PyTorch's own check"


def operator_names() -> tuple[OperatorName, ...]:
    """Every operator that has a def or a kernel, but for those of this package; sorted."""
    names = sorted(bindings()._dispatch_get_all_op_names())
    return tuple(_name(text) for text in names if not is_own(text))


def look_at(names: Sequence[OperatorName]) -> tuple[tuple[Snapshot, tuple[Violation, ...]], ...]:
    """What PyTorch shows of operators: the dump, the table, the schema, and its own check of the slots.

    Paths lose the folder in which this machine keeps its packages.
    """
    dangling = frozenset(bindings()._dispatch_find_dangling_impls())
    roots = package_roots()
    return tuple(_look_at(name, dangling, roots) for name in names)


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


def _name(text: str) -> OperatorName:
    namespace, _, rest = text.rpartition("::")
    name, _, overload = rest.partition(".")
    return OperatorName(namespace, name, overload)
