"""In which order handlers are asked, and what they are told, against the running PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

from dispatchlab import Tensor, tensor
from dispatchlab.overrides import as_subclass, torch_function_dispatch
from tests.handler_orders import Side, compare_orders

torch: Any = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")


def _body(ask: Any) -> dict[str, Any]:
    return {"__torch_function__": classmethod(lambda cls, func, types, args=(), kwargs=None: ask(types))}


def _function(values: Any) -> Any:
    return "implementation"


def _theirs(values: Any) -> Any:
    if torch.overrides.has_torch_function(values):
        return torch.overrides.handle_torch_function(_theirs, values, values)
    return _function(values)


def test_the_order_of_handlers_is_torchs_for_2000_hierarchies() -> None:
    theirs = Side(torch.Tensor, _body, lambda kind: torch.zeros(1).as_subclass(kind))
    ours = Side(Tensor, _body, lambda kind: as_subclass(tensor([0.0]), kind))
    compare_orders((theirs, _theirs), (ours, torch_function_dispatch(lambda values: values)(_function)))
