"""The package of the device in cpp/npu.cpp, whose library NPU_LIBRARY names: what a user of it imports."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class _Npu:
    """`torch.npu`: what AMP, checkpointing and generators ask of it."""

    def is_available(self) -> bool:
        return True

    is_initialized = is_available

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def _is_in_bad_fork(self) -> bool:
        return False

    def _nothing(self, *_: object) -> None:
        pass

    manual_seed = manual_seed_all = synchronize = set_device = _lazy_init = _nothing

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    def get_rng_state(self, _device: object = None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, _device: object = None) -> None:
        torch.set_rng_state(state)

    @contextmanager
    def device(self, _device: object) -> Iterator[None]:
        yield


_torch: Any = torch
_torch.utils.rename_privateuse1_backend("npu")
_torch.ops.load_library(os.environ["NPU_LIBRARY"])
_left_out = os.environ.get("NPU_WITHOUT", "")
if _left_out.startswith("torch.npu."):
    delattr(_Npu, _left_out.removeprefix("torch.npu."))
if _left_out != "torch.npu":
    _torch._register_device_module("npu", _Npu())
if _left_out != "methods":
    _torch.utils.generate_methods_for_privateuse1_backend()
