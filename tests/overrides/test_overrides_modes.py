"""Modes: the order in which they see a call, and the order in which they are left."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from dispatchlab import (
    Operator,
    tensor,
)
from dispatchlab.lab import Lab
from dispatchlab.lab.overrides import (
    DispatchMode,
    NoImplementationError,
    OverrideError,
    modes,
)
from tests.overrides.wrappers import Noting, wrapper


def test_modes_see_every_call_in_their_scope_innermost_first_then_the_arguments(lab: Lab) -> None:
    log: list[str] = []
    kind = wrapper()
    x = tensor([1.0])
    outer, inner = Noting("outer", log), Noting("inner", log)
    with outer, inner:
        assert modes() == (outer, inner)
        lab.add(x, x)
        lab.sin(kind(x))
    assert log == ["inner aten::add.Tensor", "outer aten::add.Tensor", "inner aten::sin", "outer aten::sin"]
    assert len(kind.calls) == 1
    lab.add(x, x)
    assert modes() == ()


def test_a_mode_sees_factories_and_may_decline(lab: Lab) -> None:
    class Zero(DispatchMode):
        def __torch_dispatch__(self, func: Operator, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return tensor([0.0]) if func.name.name == "empty" else NotImplemented

    x = wrapper(lambda func, types, args, kwargs: args[0])(tensor([0.0]))
    with Zero():
        assert lab.empty([3]).numpy().tolist() == [0.0]
        assert lab.sin(x) is x
        with pytest.raises(NoImplementationError, match="Zero"):
            lab.sin(tensor([1.0]))
    assert lab.empty([3]).shape == (3,)


def test_a_mode_belongs_to_its_thread(lab: Lab) -> None:
    log: list[str] = []
    with Noting("mode", log):
        thread = threading.Thread(target=lambda: lab.sin(tensor([1.0])))
        thread.start()
        thread.join()
    assert log == []


def test_modes_that_are_left_in_a_wrong_order_are_refused_and_stay(lab: Lab) -> None:
    log: list[str] = []
    outer, inner = Noting("outer", log), Noting("inner", log)
    with outer:
        with inner:
            with pytest.raises(OverrideError, match="Noting is inside of it; leave modes in the reverse order"):
                outer.__exit__(None, None, None)
            assert modes() == (outer, inner)
            lab.sin(tensor([1.0]))
        assert modes() == (outer,)
    assert log == ["inner aten::sin", "outer aten::sin"]
    with pytest.raises(OverrideError, match="no mode is open in this thread"):
        outer.__exit__(None, None, None)


def test_a_mode_without_a_handler_says_so(lab: Lab) -> None:
    with (
        DispatchMode(),
        pytest.raises(NotImplementedError, match="DispatchMode is a mode without a __torch_dispatch__"),
    ):
        lab.sin(tensor([1.0]))
