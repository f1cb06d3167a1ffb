"""Arguments for the operators of bitsandbytes, torch_harmonics and attn_gym, beside those of `readiness_arguments`.

What runs under a mode is decided before the arguments are looked at. So an operator that has no kernel for the CPU is
called with `any_arguments`: they fit the schema alone, and its fake implementation may raise once it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

from tests.deep.readiness_arguments import _full, _int8, _torch, _wave


def _bytes(*shape: int) -> Any:
    return _int8(*shape).abs().to(_torch().uint8)


def _4_bits() -> Any:
    """A weight of 8 x 32 in 4 bits, two of them in a byte, with a scale for each block of 32."""
    return _bytes(128, 1), _full(0.1, 8)


def _code() -> Any:
    return _wave(256).sort().values


_ADAM = (0.9, 0.999, 0.0, 0.0, 1e-8)

MORE_ARGUMENTS: dict[str, Callable[[], Any]] = {
    "bitsandbytes::dequantize_4bit": lambda: (*_4_bits(), 32, "nf4", [8, 32], _torch().float32),
    "bitsandbytes::dequantize_4bit.out": lambda: (*_4_bits(), 32, "nf4", [8, 32], _torch().float32, _wave(8, 32)),
    "bitsandbytes::dequantize_blockwise": lambda: (_bytes(64), _full(0.1, 2), _code(), 32, _torch().float32),
    "bitsandbytes::dequantize_blockwise.out": lambda: (
        *(_bytes(64), _full(0.1, 2), _code(), 32, _torch().float32),
        _wave(64),
    ),
    "bitsandbytes::gemm_4bit": lambda: (_wave(2, 32), _4_bits()[0], [8, 32], _4_bits()[1], 32, "nf4"),
    "bitsandbytes::gemv_4bit": lambda: (_wave(1, 32), _4_bits()[0], [8, 32], _4_bits()[1], _wave(16), 32),
    "bitsandbytes::gemv_4bit.out": lambda: (
        *(_wave(1, 32), _4_bits()[0], [8, 32], _4_bits()[1], _wave(16), 32),
        _wave(1, 8),
    ),
    "bitsandbytes::int8_double_quant": lambda: (_wave(4, 8),),
    "bitsandbytes::int8_linear_matmul": lambda: (_int8(32, 32), _int8(32, 32)),
    "bitsandbytes::int8_linear_matmul.out": lambda: (
        *(_int8(32, 32), _int8(32, 32)),
        _int8(32, 32).to(_torch().int32),
    ),
    "bitsandbytes::int8_mixed_scaled_mm": lambda: (
        *(_wave(32, 32), _int8(32, 32), _int8(32, 32), _full(0.1, 32), _full(0.1, 32)),
    ),
    "bitsandbytes::int8_mm_dequant": lambda: (_int8(4, 8).to(_torch().int32), _full(0.1, 4), _full(0.1, 8)),
    "bitsandbytes::int8_scaled_mm": lambda: (_int8(32, 32), _int8(32, 32), _full(0.1, 32), _full(0.1, 32)),
    "bitsandbytes::int8_vectorwise_dequant": lambda: (_int8(4, 8), _full(0.1, 4)),
    "bitsandbytes::int8_vectorwise_quant": lambda: (_wave(4, 8),),
    "bitsandbytes::optimizer_update_32bit": lambda: (
        *("adam", _wave(64), _wave(64), _wave(64), _wave(64), None, 0.0, 0.0, *_ADAM, 0.0, 1, 0.1, 1.0),
    ),
    "bitsandbytes::optimizer_update_8bit_blockwise": lambda: (
        *("adam", _wave(256), _wave(256), _bytes(256), _bytes(256), *_ADAM, 1, 0.1),
        *(_code(), _code(), _full(0.1, 1), _full(0.1, 1), 0.0, 1.0),
    ),
    "bitsandbytes::quantize_4bit": lambda: (_wave(8, 32), 32, "nf4", _torch().uint8),
    "bitsandbytes::quantize_blockwise": lambda: (_wave(64), _code(), 32),
    "attention_kernels::permute_to_nchw": lambda: (_wave(1, 4, 8, 2),),
    "attention_kernels::permute_to_nhwc": lambda: (_wave(1, 2, 4, 8),),
}
"""Operator -> a function that makes arguments to call it with."""


def module_calls() -> Iterator[Callable[[], Any]]:
    """Calls of modules of torch_harmonics, which call its operators with the indices that these need."""
    torch = _torch()
    try:
        harmonics: Any = import_module("torch_harmonics")
    except ModuleNotFoundError:
        return
    grid = {"in_shape": (6, 12), "out_shape": (6, 12), "grid_in": "equiangular", "grid_out": "equiangular"}
    attention = harmonics.NeighborhoodAttentionS2(4, num_heads=1, **grid)
    yield partial(attention, torch.randn(1, 4, 6, 12))
    for made in (harmonics.DiscreteContinuousConvS2, harmonics.DiscreteContinuousConvTransposeS2):
        convolution = made(2, 2, kernel_shape=(2, 2), **grid)
        yield partial(convolution, torch.randn(1, 2, 6, 12))


NAMESPACES = ("attn_gym", "attention_kernels", "disco_kernels")
"""The namespaces whose operators are called with `any_arguments` where they have no kernel for the CPU."""


def any_arguments(schema: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments that fit a schema, and nothing more."""
    by_type: dict[str, Callable[[], Any]] = {
        "Tensor": lambda: _wave(1, 4, 2, 8),
        "List[Tensor]": lambda: [_wave(1, 4, 2, 8)],
        "int": lambda: 4,
        "SymInt": lambda: 4,
        "List[int]": lambda: [4, 8],
        "float": lambda: 1.0,
        "bool": lambda: False,
        "str": lambda: "none",
    }
    positional, named = [], {}
    for argument in schema.arguments:
        text = str(argument.type)
        value = None if text.startswith("Optional[") else by_type[text]()
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            positional.append(value)
    return tuple(positional), named
