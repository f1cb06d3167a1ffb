"""Wrapped numbers: Python numbers where tensors are wanted, which hardly count when dtypes are promoted.

Only the operators that PyTorch names take one. Source: torch/csrc/utils/python_arg_parser.cpp
(`should_allow_numbers_as_tensors`), c10/core/TensorImpl.h (`is_wrapped_number`).
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from dispatchlab.call.tensor import Tensor
from dispatchlab.model.names import OperatorName

Number: TypeAlias = int | float | complex
NUMBERS = (int, float, complex)

_BASES = ("add", "div", "divide", "mul", "multiply", "sub", "subtract", "true_divide", "floor_divide")
_NAMES = frozenset(
    (*(f"{base}{form}" for base in _BASES for form in ("", "_", "_out")), "to", "_to_copy", "copy_", "copy", "_conj")
)


def takes_numbers(name: OperatorName) -> bool:
    """Whether an operator takes Python numbers for its tensors."""
    return name.namespace == "prims" or (name.namespace == "aten" and name.name in _NAMES)


def wrapped_number(number: Number) -> Tensor:
    """A number as a tensor without dimensions, of the widest dtype of its kind."""
    made = Tensor(np.array(number))
    made.is_wrapped_number = True
    return made


def unwrapped_number(value: object) -> object:
    """The number of a tensor that is a wrapped one; every other value as it is."""
    return value.item() if isinstance(value, Tensor) and value.is_wrapped_number else value
