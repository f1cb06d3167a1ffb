"""The journal of the registries of Python takes its wrappers off again whatever happens, and counts each write once."""

from __future__ import annotations

import importlib._bootstrap_external as bootstrap
import sys
from collections import Counter
from threading import Thread
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

import torch

from dispatchlab.pytorch.introspection.python_journal import PythonJournal
from dispatchlab.pytorch.introspection.python_tables import PythonTables, tables_now

THREADS, EACH = 4, 12


def watched_functions() -> list[object]:
    loader: Any = bootstrap._LoaderBasics  # type: ignore[attr-defined]  # what all loaders of sources derive from
    return [
        loader.__dict__["exec_module"],
        torch._ops.OperatorBase.__dict__["py_impl"],
        torch._decomp.register_decomposition,
        vars(torch._decomp.decompositions)["register_decomposition"],
        torch._subclasses.fake_impls.register_op_impl,
    ]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_whatever_a_look_raises_the_functions_of_pytorch_are_put_back(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    before = watched_functions()

    def look(tables: PythonTables, registries: object = ()) -> list[object]:
        raise error

    journal = PythonJournal((), tables=tables_now())
    with journal:
        assert all(one is not other for one, other in zip(watched_functions(), before, strict=True))
        monkeypatch.setattr(PythonTables, "changes", look)
        with pytest.raises(error):
            journal.close()
        assert watched_functions() == before
        monkeypatch.undo()
    assert watched_functions() == before


def test_an_interrupt_while_the_functions_are_wrapped_leaves_them_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    before = watched_functions()

    def watch_modules(journal: PythonJournal) -> None:
        assert watched_functions()[1:] != before[1:]
        raise KeyboardInterrupt

    monkeypatch.setattr(PythonJournal, "_watch_modules", watch_modules)
    with pytest.raises(KeyboardInterrupt):
        PythonJournal((), tables=tables_now()).__enter__()
    assert watched_functions() == before


def test_each_write_is_counted_once_while_several_threads_register() -> None:
    library: Any = torch.library.Library("journal_threads", "DEF")  # type: ignore[no-untyped-call]
    names = [f"f{number}" for number in range(THREADS * EACH)]
    for name in names:
        library.define(f"{name}(Tensor x) -> Tensor")
    operators = [getattr(torch.ops.journal_threads, name).default for name in names]
    table = torch._decomp.global_decomposition_table["post_autograd"]

    def register(mine: list[Any]) -> None:
        for operator in mine:
            torch._decomp.register_decomposition(operator)(lambda x: x)

    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with PythonJournal((), tables=tables_now()) as journal:
            threads = [Thread(target=register, args=(operators[at::THREADS],)) for at in range(THREADS)]
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                journal.look()
    finally:
        sys.setswitchinterval(switching)
        for operator in operators:
            table.pop(operator, None)
        library._destroy()
    assert Counter(write.operator for write in journal.writes) == {f"journal_threads::{name}": 1 for name in names}
