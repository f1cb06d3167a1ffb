"""Handlers of a class, `__torch_function__` and `__torch_dispatch__`: whether it has one that is not switched off."""

from __future__ import annotations

from dispatchlab.call.tensor_keys import PYTHON_KEYS

DISPATCH = "__torch_dispatch__"


def disabled(*args: object, **kwargs: object) -> object:
    """The value of `__torch_function__` or `__torch_dispatch__` in a class that wants none, as None is."""
    return NotImplemented


def has_handler(kind: type, protocol: str) -> bool:
    """Whether a class has a handler of that name that is not switched off."""
    handler = getattr(kind, protocol, None)
    return handler is not None and handler is not disabled


def python_bits(kind: type) -> int:
    """The keys that a tensor carries because its class has a `__torch_dispatch__`."""
    return PYTHON_KEYS.bits if has_handler(kind, DISPATCH) else 0
