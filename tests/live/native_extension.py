"""Build the extension of tests/live/cpp with torch's own tools, once; skip the test where it cannot be built."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_name("cpp") / "native_kernels.cpp"


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Build while nobody else builds: torch waits for ever for a build that was killed, whose lock file stays."""
    from torch.utils import cpp_extension

    folder = Path(cpp_extension._get_build_directory(name, verbose=False))
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with (folder / "alone").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # which ends with its process
        (folder / "lock").unlink(missing_ok=True)
        yield


@cache
def _built() -> Path | str:
    from torch.utils import cpp_extension

    compiler: str = cpp_extension.get_cxx_compiler()  # type: ignore[no-untyped-call]  # as torch wrote it
    for tool in ("ninja", compiler):
        if shutil.which(tool) is None:
            return f"{tool} was not found, and the C++ kernels of this test need it"
    with _alone("dispatchlab_native_kernels"):
        module = cpp_extension.load("dispatchlab_native_kernels", [str(_SOURCE)], extra_cflags=["-O0"])
    return Path(str(module.__file__))


def native_kernels() -> Path:
    """The file of the extension; skips the test where it cannot be built."""
    built = _built()
    if isinstance(built, str):
        pytest.skip(built)
    return built


_BUILD = """
from pathlib import Path
from torch.utils import cpp_extension
name, source = {name!r}, {source!r}
cpp_extension.load(name, [source], extra_cflags=["-O0"], is_python_module=False)
print(Path(cpp_extension._get_build_directory(name, False)) / f"{{name}}.so")
"""


@cache
def library(source: str) -> Path:
    """A library of tests/live/cpp, built in another process that alone loads it; skips where it cannot be built."""
    for tool in ("ninja", "c++"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} was not found, and the C++ kernels of this test need it")
    name = f"dispatchlab_{source}"
    script = _BUILD.format(name=name, source=str(_SOURCE.with_name(f"{source}.cpp")))
    with _alone(name):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.splitlines()[-1])
