"""The public variables of modules are described by type, length and plain value."""

from __future__ import annotations

import collections
from types import ModuleType

import pytest

from dispatchlab.live.introspection.module_variables import description, public_variables

torch = pytest.importorskip("torch", reason="describes values of PyTorch, and there is none")


class Loud:
    def __repr__(self) -> str:
        raise AssertionError("code of a package does not run")

    __len__ = __eq__ = __hash__ = __repr__  # type: ignore[assignment]


def loud() -> None:
    pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        ("a\nb", r"'a\nb'"),
        (None, "None"),
        ((1, "x"), "tuple of length 2: 1, 'x'"),
        ([], "list of length 0"),
        ({2, 1}, "set of length 2: 1, 2"),
        (
            collections.OrderedDict(a=[1], b={}),
            "OrderedDict of length 2: 'a': list of length 1: 1, 'b': dict of length 0",
        ),
        ([[[1]]], "list of length 1: list of length 1: list of length 1"),
        (list(range(60)), f"list of length 60: {', '.join(map(str, range(50)))}, ..."),
        (Loud(), f"{__name__}:Loud"),
        (Loud, f"class {__name__}:Loud"),
        (loud, f"function {__name__}:loud"),
        (torch.zeros(2, 3), "Tensor of torch.float32, shape (2, 3)"),
        ({torch.ops.aten.add.Tensor: loud}, f"dict of length 1: aten.add.Tensor: function {__name__}:loud"),
        ("x" * 3000, f"'{'x' * 1999}... (3,002 characters)"),
    ],
)
def test_a_value_is_described_and_no_code_of_its_class_runs(value: object, text: str) -> None:
    assert description(value) == text


def test_private_names_and_modules_are_no_public_variables() -> None:
    module = ModuleType("shown")
    vars(module).update(SHOWN=1, _hidden=2, torch=torch)
    assert public_variables(module) == {"SHOWN": "1"}
