"""Build the extension of tests/live/cpp with torch's own tools, once; skip the test where it cannot be built."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_name("cpp") / "native_kernels.cpp"


@cache
def _built() -> Path | str:
    from torch.utils import cpp_extension

    compiler: str = cpp_extension.get_cxx_compiler()  # type: ignore[no-untyped-call]  # as torch wrote it
    for tool in ("ninja", compiler):
        if shutil.which(tool) is None:
            return f"{tool} was not found, and the C++ kernels of this test need it"
    module = cpp_extension.load("dispatchlab_native_kernels", [str(_SOURCE)], extra_cflags=["-O0"])
    return Path(str(module.__file__))


def native_kernels() -> Path:
    """The file of the extension; skips the test where it cannot be built."""
    built = _built()
    if isinstance(built, str):
        pytest.skip(built)
    return built
