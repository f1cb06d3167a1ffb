"""What `PythonTables` finds by the views that it keeps is what it finds when it reads every table."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.pytorch.bridge import registry_tables
from dispatchlab.pytorch.introspection.python_tables import PythonTables, TableChange


class _ReadsEveryTable(PythonTables):
    def _is_as_it_was(self, registry: str) -> bool:
        return False

    def _changes(self, registry: str) -> Iterator[TableChange]:
        self._operators._versions.clear()
        self._operators._seen.clear()
        return super()._changes(registry)


def _seen(changes: list[TableChange]) -> list[tuple[object, ...]]:
    return [
        (*one[:3], *(None if entry is None else (entry.value, entry.active) for entry in (one.before, one.after)))
        for one in changes
    ]


def test_random_writes_into_the_tables_are_found_as_by_reading_all_of_them() -> None:
    import torch
    from torch._decomp import global_decomposition_table as decompositions
    from torch._library.simple_registry import singleton
    from torch._ops import _higher_order_ops as rules
    from torch._subclasses.fake_impls import op_implementations_checks as checks
    from torch._subclasses.fake_impls import op_implementations_dict as fakes

    make: Any = torch.library.Library
    library = make("python_tables_live", "FRAGMENT")
    library.define("defined(Tensor x) -> Tensor")

    custom: Any = torch.library.custom_op(
        "python_tables_live::custom", lambda x: x.clone(), mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    aten, keys, chosen = torch.ops.aten, torch._C.DispatchKey, random.Random(7)
    operators = [aten.add.Tensor, aten.sin.default, aten.cos.out]
    holder = singleton.find("python_tables_live::defined")

    def set_or_take_out(table: dict[Any, Any], at: Any) -> None:
        if at in table and chosen.random() < 0.5:
            del table[at]
        else:
            table[at] = lambda *arguments: None

    def move(table: dict[Any, Any], other: dict[Any, Any], at: Any) -> None:
        if at in table:
            other[at] = table.pop(at)

    def custom_op() -> None:
        set_or_take_out(custom._backend_fns, "cpu")
        custom._abstract_fn = chosen.choice([None, lambda x: x])

    def fake() -> None:
        if holder.fake_impl.kernels:
            holder.fake_impl.kernels.pop()
        else:
            holder.fake_impl.register(lambda x: x, "a.py:1", library)

    def check() -> None:
        checks.append((lambda operator: operator is operators[0], fake)) if len(checks) % 2 else checks.pop()

    after, before, of_rule = decompositions["post_autograd"], decompositions["pre_autograd"], rules["cond"].py_kernels
    writes: list[Callable[[], None]] = [
        lambda: set_or_take_out(fakes, chosen.choice(operators)),
        lambda: set_or_take_out(after, chosen.choice(operators)),
        lambda: move(after, before, chosen.choice(operators)),
        lambda: set_or_take_out(chosen.choice(operators).py_kernels, chosen.choice([keys.CPU, keys.Meta])),
        lambda: set_or_take_out(of_rule, keys.CPU),
        lambda: set_or_take_out(holder.torch_dispatch_rules._data, chosen.choice([int, str])),
        lambda: torch._library.custom_ops.OPDEFS.pop("python_tables_live::custom", None),
        lambda: torch._library.custom_ops.OPDEFS.update({"python_tables_live::custom": custom}),
        custom_op,
        fake,
        check,
    ]
    tables: list[dict[Any, Any]] = [
        decompositions,
        after,
        before,
        fakes,
        of_rule,
        *(each.py_kernels for each in operators),
    ]
    kept, kept_checks = [dict(table) for table in tables], list(checks)
    fast, slow = PythonTables(), _ReadsEveryTable()
    found: list[object] = []
    try:
        for _ in range(150):
            for write in chosen.sample(writes, chosen.randrange(3)):
                write()
            expected = _seen(slow.changes())
            assert _seen(fast.changes()) == expected
            found += expected
    finally:
        for table, had in zip(tables, kept, strict=True):
            table.clear()
            table.update(had)
        checks[:] = kept_checks
        library._destroy()
    assert len({change[0] for change in found if isinstance(change, tuple)}) > 5


def test_two_tables_between_which_an_entry_moves_are_told_apart() -> None:
    one, other = {"at": _seen}, dict[str, Any]()
    views = registry_tables.live_contents([one, other])
    before = [each for view in views for each in view]
    other["at"] = one.pop("at")
    assert [each for view in views for each in view] != before
