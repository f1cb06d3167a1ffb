"""Calls of `torch.library`: the lab engine refuses, shows and keeps what the running PyTorch does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.engine.semantics import semantics_named
from dispatchlab.live.bridge.torch_library_calls import numbered
from dispatchlab.live.sandbox.kept_in_python import number_of
from tests import effort
from tests.live.torch_library_histories import check_histories

pytestmark = pytest.mark.skipif(
    not semantics_named("torch").torch_library, reason="the lab engine follows other rules than this PyTorch"
)


def test_the_number_of_a_call_is_found_through_wrappers_with_names_that_have_no_value() -> None:
    def wrapped(function: Callable[..., object]) -> Callable[..., object]:
        def wrapper() -> object:
            return unset, function  # noqa: F821  it was deleted, as it should be here

        unset = None
        del unset
        return wrapper

    assert number_of(wrapped(wrapped(numbered(7)))) == 7
    assert number_of(wrapped(print)) is None


def test_what_allow_override_lets_in_is_equal_after_every_step() -> None:
    seen = check_histories(2000, effort.share(150), overrides=True)
    assert {"registered", "released", "duplicate_kernel", "meta_beside_composite"} <= set(seen)


def test_refusals_dumps_and_what_python_keeps_are_equal_after_every_step() -> None:
    seen = check_histories(0, effort.share(400))
    assert {"registered", "released", "duplicate_def", "no_such_schema"} <= set(seen)
    if effort.percent == 100:
        assert {"meta_beside_composite", "duplicate_rule", "not_functional", "other"} <= set(seen)
