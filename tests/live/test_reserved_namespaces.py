"""Operators in reserved namespaces are left out of whatever is shown, and no others are."""

from __future__ import annotations

from typing import Any

import pytest

from dispatchlab.live.bridge.reserved_namespaces import PROBES, is_own, sandbox_prefix
from dispatchlab.live.introspection.queries import operator_names
from dispatchlab.live.introspection.registry_reader import all_dumps, record_registry
from dispatchlab.live.sandbox.sandbox import LocalEngine
from tests.engine_shorthand import define

torch: Any = pytest.importorskip("torch", reason="asks the installed PyTorch, and there is none")


def test_sandboxes_and_probes_are_in_reserved_namespaces() -> None:
    own = [f"{sandbox_prefix(number)}{namespace}::foo" for number in (1, 23) for namespace in ("test", "aten", "a_b")]
    own += [f"{probe}::untouched" for probe in PROBES]
    assert all(map(is_own, own))


def test_namespaces_that_begin_alike_are_not_reserved() -> None:
    others = ["aten::add.Tensor", "dlab::foo", "dlabels::foo", "dlab1::foo", "dlabbuiltins::foo", "my_dlab1_x::foo"]
    assert not any(map(is_own, others))


def test_of_all_operators_those_in_reserved_namespaces_alone_are_left_out() -> None:
    library = torch.library.Library("dlabels", "FRAGMENT")
    library.define("foo(Tensor x) -> Tensor")
    with LocalEngine().sandbox() as sandbox:
        handle = sandbox.register(define("hidden::foo(Tensor x) -> Tensor"))
        everything = torch._C._dispatch_get_all_op_names()
        assert any(name.endswith("hidden::foo") for name in everything)
        for shown in (map(str, operator_names()), map(str, record_registry().names), all_dumps()):
            names = {*shown}
            assert "dlabels::foo" in names
            assert len(names) == sum(not is_own(name) for name in everything) > 3_000
        handle.release()
    library._destroy()
