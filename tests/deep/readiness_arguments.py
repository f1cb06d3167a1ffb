"""Arguments for the operators of torchao, optimum-quanto and torchvision, and 30 of these drawn at random.

A program imports this module beside the packages; a package that is not installed leaves its arguments unused.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from random import Random
from typing import Any

MODULES = {
    "torchao": "torchao",
    "torchao.kernel.intmm_triton": "triton",
    "torchao.sparsity.blocksparse": "torchao",
    "optimum.quanto": "optimum.quanto",
    "torchvision": "torchvision",
}
"""What registers them, and the package that has to be installed for it."""

SEED = 18


def drawn() -> frozenset[str]:
    """The 30 operators that the figure is about, of all that the modules define where CUDA's kernels are built."""
    return frozenset(Random(SEED).sample(sorted(ARGUMENTS), 30))


def _torch() -> Any:
    import torch

    return torch


def _wave(*shape: int) -> Any:
    """Numbers between -1 and 1, the same every time."""
    torch = _torch()
    return torch.sin(torch.arange(float(torch.Size(shape).numel()))).reshape(shape)


def _int8(*shape: int) -> Any:
    torch = _torch()
    return (torch.arange(torch.Size(shape).numel()) % 7 - 3).to(torch.int8).reshape(shape)


def _float8(*shape: int) -> Any:
    return _wave(*shape).to(_torch().float8_e4m3fn)


def _full(value: float, *shape: int) -> Any:
    return _torch().full(shape, value)


# -- torchao: blocks of 8 in a 4 x 8 tensor, a scale for each row

_BLOCK = [1, 8]


def _zeros() -> Any:
    torch = _torch()
    return torch.zeros(4, dtype=torch.int32)


def _scale_of_weight() -> Any:
    """A weight of 32 x 32 in float8, with the scale that torchao chooses for each row."""
    torch = _torch()
    primitives: Any = import_module("torchao.quantization.quant_primitives")

    weight = _wave(32, 32)
    scale = primitives._choose_scale_float8(weight, float8_dtype=torch.float8_e4m3fn, block_size=[1, 32])
    return primitives._quantize_affine_float8(weight, scale, torch.float8_e4m3fn), scale


def _quantized_4_bits() -> Any:
    """A weight of 32 x 32 in 4 bits as torchao quantizes it, with scales and zero points for groups of 32."""
    torch = _torch()
    primitives: Any = import_module("torchao.quantization.quant_primitives")

    weight = _wave(32, 32)
    scale, zero = primitives.choose_qparams_affine(
        weight, primitives.MappingType.ASYMMETRIC, (1, 32), torch.uint8, 0, 15, zero_point_dtype=torch.int32
    )
    packed = primitives.quantize_affine(weight, (1, 32), scale, zero, torch.uint8, quant_min=0, quant_max=15)
    return packed.to(torch.uint8), scale, zero.to(torch.int8)


def _da8w4() -> Any:
    torch = _torch()
    activations = (torch.arange(2 * 32) % 200).to(torch.uint8).reshape(2, 32)
    weight = torch.zeros(1, 1, 32, 16, dtype=torch.uint8)
    scales, points = _full(0.1, 1, 1, 32), torch.zeros(1, 1, 32, dtype=torch.int8)
    compensation = torch.zeros(1, 1, 32, dtype=torch.int32)
    per_row = (_full(0.1, 2), torch.zeros(2, dtype=torch.int32))
    return (activations, *per_row, weight, scales, points, compensation, None, torch.float32)


def _embedding_bag() -> Any:
    torch = _torch()
    indices, offsets = torch.tensor([0, 2, 4, 5]), torch.tensor([0, 2, 4])
    return (_int8(8, 64), indices, offsets, _full(0.1, 1), 1.0, 0, True, torch.float32)


def _blocks() -> Any:
    """A matrix of 4 x 4 in blocks of 2 x 2: row pointers, columns, values."""
    torch = _torch()
    return torch.tensor([0, 1, 2]), torch.tensor([0, 1]), _wave(2, 2, 2)


def _semi_sparse() -> Any:
    """A float8 weight of 32 x 64 in which two of four numbers are zero, and what it takes packed."""
    torch = _torch()
    weight = _wave(32, 64)
    weight[:, 2::4] = 0
    weight[:, 3::4] = 0
    return weight.to(torch.float8_e4m3fn)


# -- torchvision: two regions of an 8 x 8 picture


def _regions() -> Any:
    return _torch().tensor([[0.0, 0.3, 0.4, 4.7, 5.2], [0.0, 1.1, 1.2, 6.3, 6.1]])


def _picture() -> Any:
    torch = _torch()
    return torch.arange(128.0).reshape(1, 2, 8, 8) / 100 + _wave(1, 2, 8, 8)


def _boxes() -> Any:
    torch = _torch()
    return torch.tensor([[0.0, 0, 4, 4], [1, 1, 5, 5], [10, 10, 14, 14]]), torch.tensor([0.9, 0.8, 0.7])


def _deformed() -> Any:
    torch = _torch()
    return (
        _picture(),
        _wave(2, 2, 3, 3),
        _wave(1, 18, 6, 6) * 0.3,
        _full(0.7, 1, 9, 6, 6),
        torch.ones(2),
        *(1, 1, 0, 0, 1, 1, 1, 1, True),
    )


def _pixels() -> Any:
    torch = _torch()
    return (torch.arange(3 * 8 * 8) % 255).to(torch.uint8).reshape(3, 8, 8)


def _vision() -> Any:
    return _torch().ops.torchvision


def _image() -> Any:
    return _torch().ops.image


def _encoded(form: str) -> Any:
    """A picture as bytes of a form that torchvision itself does not write."""
    import io

    torch = _torch()
    image: Any = import_module("PIL.Image")

    into = io.BytesIO()
    image.fromarray(_pixels().permute(1, 2, 0).contiguous().numpy()).save(into, format=form)
    return torch.frombuffer(bytearray(into.getvalue()), dtype=torch.uint8)


def _file() -> str:
    import os
    import tempfile

    path = os.path.join(tempfile.gettempdir(), f"readiness_{os.getpid()}.png")
    _image().write_file(path, _image().encode_png(_pixels(), 6))
    return path


def _quantized_picture() -> Any:
    torch = _torch()
    whole = torch.quantize_per_tensor(_picture(), 0.1, 0, torch.quint8)
    return whole, torch.quantize_per_tensor(_regions(), 0.1, 0, torch.quint8)


def _quantized_boxes() -> Any:
    torch = _torch()
    boxes, scores = _boxes()
    return torch.quantize_per_tensor(boxes, 1.0, 0, torch.quint8), torch.quantize_per_tensor(
        scores, 0.01, 0, torch.quint8
    )


ARGUMENTS: dict[str, Callable[[], Any]] = {
    "blocksparse::addmm": lambda: (_wave(4, 8), *_blocks(), 4, 4, _wave(4)),
    "blocksparse::bsr_to_dense": lambda: (*_blocks(), 4, 4),
    "blocksparse::int_addmm": lambda: (
        *_blocks()[:2],
        _int8(2, 2, 2),
        _int8(4, 8),
        _full(0.1, 4),
        _full(0.1, 8),
    ),
    "float8_sparse::fp8_sparse_mm": lambda: (_float8(8, 16), _float8(8, 12), None, _full(1.0, 1), 8, 8),
    "image::_is_compiled_against_turbo": lambda: (),
    "image::_jpeg_version": lambda: (),
    "image::decode_gif": lambda: (_encoded("GIF"),),
    "image::decode_image": lambda: (_image().encode_jpeg(_pixels(), 75), 0),
    "image::decode_jpeg": lambda: (_image().encode_jpeg(_pixels(), 75), 0),
    "image::decode_jpegs_cuda": lambda: ([_image().encode_jpeg(_pixels(), 75)], 0, _torch().device("cpu")),
    "image::decode_png": lambda: (_image().encode_png(_pixels(), 6), 0),
    "image::decode_webp": lambda: (_encoded("WEBP"), 0),
    "image::encode_jpeg": lambda: (_pixels(), 75),
    "image::encode_jpegs_cuda": lambda: ([_pixels()], 75),
    "image::encode_png": lambda: (_pixels(), 6),
    "image::read_file": lambda: (_file(),),
    "image::write_file": lambda: (_file(), _image().encode_png(_pixels(), 6)),
    "quanto::qbytes_mm": lambda: (_wave(4, 8), _int8(5, 8), _full(0.1, 5, 1)),
    "quanto::quantize_affine": lambda: (_wave(4, 8), 4, 0, None, _full(0.1, 4, 1), _full(0.5, 4, 1)),
    "quanto::quantize_symmetric": lambda: (_wave(4, 8), _torch().int8, None, _torch().tensor(0.1)),
    "quanto::unpack": lambda: ((_torch().arange(32) % 255).to(_torch().uint8).reshape(4, 8), 4),
    "torchao::_scaled_embedding_bag": _embedding_bag,
    "torchao::choose_qparams_affine": lambda: (_wave(4, 8), "SYMMETRIC", _BLOCK, _torch().int8),
    "torchao::choose_scale_float8": lambda: (_wave(4, 8), _BLOCK),
    "torchao::da8w4_linear_cpu": _da8w4,
    "torchao::da8w4_linear_prepack_cpu": _quantized_4_bits,
    "torchao::dequantize_affine": lambda: (_int8(4, 8), _BLOCK, _full(0.1, 4), _zeros(), _torch().int8),
    "torchao::dequantize_affine_float8_non_decomposed": lambda: (_float8(4, 8), _full(0.1, 4, 1)),
    "torchao::float8_linear_cpu": lambda: (
        _float8(2, 32),
        _full(0.1, 2, 1),
        *_scale_of_weight(),
        None,
        _torch().float32,
    ),
    "torchao::float8_linear_prepack_cpu": _scale_of_weight,
    "torchao::int_matmul": lambda: (_int8(32, 32), _int8(32, 32)),
    "torchao::int_scaled_matmul": lambda: (_int8(32, 32), _int8(32, 32), _full(1.0, 32, 1)),
    "torchao::mx_fp8_bf16": lambda: (
        _float8(4, 8),
        _float8(8, 4),
        _full(1.0, 4, 1),
        _full(1.0, 4, 1),
    ),
    "torchao::qscaled_dot_product": lambda: (*(_int8(1, 2, 4, 8).to(_torch().uint8) for _ in range(3)),),
    "torchao::quantize_affine": lambda: (_wave(4, 8), _BLOCK, _full(0.1, 4), _zeros(), _torch().int8),
    "torchao::quantize_affine_float8_non_decomposed": lambda: (_wave(4, 8), _full(0.1, 4, 1)),
    "torchao::rowwise_scaled_linear_sparse_cutlass_f8f8": lambda: (
        _float8(32, 64),
        _full(0.1, 32),
        _float8(32, 32),
        _int8(32, 8).to(_torch().uint8),
        _full(0.1, 32),
    ),
    "torchao::swizzle_mm": lambda: (_wave(4, 8), _wave(8, 4), False, False),
    "torchao::swizzle_scaled_mm": lambda: (
        _float8(4, 8),
        _float8(8, 4),
        False,
        False,
        _full(1.0, 4, 1),
        _full(1.0, 1, 4),
    ),
    "torchao::to_sparse_semi_structured_cutlass_sm9x_f8": lambda: (_semi_sparse(),),
    "torchvision::_cuda_version": lambda: (),
    "torchvision::_deform_conv2d_backward": lambda: (_full(1.0, 1, 2, 6, 6), *_deformed()),
    "torchvision::_ps_roi_align_backward": lambda: (
        _full(1.0, 2, 2, 2, 2),
        _regions(),
        _vision().ps_roi_align(_wave(1, 8, 8, 8), _regions(), 1.0, 2, 2, 2)[1],
        *(1.0, 2, 2, 2, 1, 8, 8, 8),
    ),
    "torchvision::_ps_roi_pool_backward": lambda: (
        _full(1.0, 2, 2, 2, 2),
        _regions(),
        _vision().ps_roi_pool(_wave(1, 8, 8, 8), _regions(), 1.0, 2, 2)[1],
        *(1.0, 2, 2, 1, 8, 8, 8),
    ),
    "torchvision::_roi_align_backward": lambda: (
        _full(1.0, 2, 2, 2, 2),
        _regions(),
        *(1.0, 2, 2, 1, 2, 8, 8, 2, True),
    ),
    "torchvision::_roi_pool_backward": lambda: (
        _full(1.0, 2, 2, 2, 2),
        _regions(),
        _vision().roi_pool(_picture(), _regions(), 1.0, 2, 2)[1],
        *(1.0, 2, 2, 1, 2, 8, 8),
    ),
    "torchvision::box_iou_rotated": lambda: (
        _torch().tensor([[5.0, 5, 4, 2, 30]]),
        _torch().tensor([[5.0, 5, 3, 2, 10], [6.0, 5, 3, 2, 10]]),
    ),
    "torchvision::deform_conv2d": _deformed,
    "torchvision::nms": lambda: (*_boxes(), 0.5),
    "torchvision::ps_roi_align": lambda: (_wave(1, 8, 8, 8), _regions(), 1.0, 2, 2, 2),
    "torchvision::ps_roi_pool": lambda: (_wave(1, 8, 8, 8), _regions(), 1.0, 2, 2),
    "torchvision::qnms": lambda: (
        *((one * factor).to(_torch().uint8) for one, factor in zip(_boxes(), (10, 10), strict=True)),
        0.5,
    ),
    "torchvision::qroi_align": lambda: (
        (_picture() * 10).abs().to(_torch().uint8),
        _regions().to(_torch().uint8),
        *(0.1, 0, 0.1, 0, 1.0, 2, 2, 2, False),
    ),
    "torchvision::roi_align": lambda: (_picture(), _regions(), 1.0, 2, 2, 2, True),
    "torchvision::roi_pool": lambda: (_picture(), _regions(), 1.0, 2, 2),
}
"""Operator -> a function that makes arguments to run it on."""
