"""Every registration that is generated for PyTorch's native functions, held to a recorded registry."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dispatchlab.codegen.emit.registrations import left_out, registrations_of
from dispatchlab.codegen.read.native_functions import load_native_functions
from dispatchlab.model.keys import DispatchKey
from dispatchlab.registries.file import open_bundled

WHY = "torchgen comes with PyTorch: pip install 'dispatchlab[torch]'"
packaged: Any = pytest.importorskip("torchgen.packaged", reason=WHY)
FILE = f"{next(iter(packaged.__path__))}/ATen/native/native_functions.yaml"
torch: Any = pytest.importorskip("torch", reason=WHY)

_GENERATED = re.compile(r"(?:/build/aten/src/ATen|torch/csrc/autograd/generated)/(\w+\.cpp):\d+$")


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="the registry is that of 2.13")
def test_every_function_registers_what_the_version_has_recorded() -> None:
    recorded: set[tuple[str, DispatchKey, str, str | None]] = set()
    defs: dict[str, tuple[str | None, frozenset[str]]] = {}
    for one in open_bundled("torch-2.13"):
        defs[str(one.name)] = one.schema, frozenset(one.tags)
        for kernel in one.kernels:
            file = _GENERATED.search(kernel.debug)
            if file is not None and not file[1].startswith("VariableType"):
                recorded.add((str(one.name), kernel.key, file[1], kernel.inferred))
    built = {key for _, key, file, _ in recorded if file.startswith(f"Register{key}_")}
    backends = {None, *(key.backend for key in built)}
    natives = load_native_functions(FILE)
    generated = registrations_of(natives)
    found = {
        (str(one.function.name), kernel.key, kernel.file, str(kernel.inferred))
        for one in generated
        for kernel in one.kernels
        if kernel.key.backend in backends
    }
    assert found == recorded
    assert len(found) > 12_000
    assert {str(one.function.name): (str(one.function.schema), one.function.tags) for one in generated}.items() <= (
        defs.items()
    )
    assert [len(each.functions) for each in left_out(natives)] == [15, 14]
