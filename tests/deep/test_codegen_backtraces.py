"""Walks through calls, held to backtraces that a debugger takes of the installed PyTorch, and to all recorded ones."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

packaged: Any = pytest.importorskip("torchgen.packaged")

from dispatchlab.codegen.read.native_functions import load_native_functions  # noqa: E402
from dispatchlab.questions.native_functions.cpp_frames import Layer  # noqa: E402
from dispatchlab.questions.native_functions.walk_calls import walk_call  # noqa: E402  torch has to be there first
from tests import cpp_backtraces  # noqa: E402
from tests.effort import only_whole, share, some  # noqa: E402

pytestmark = pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="the registry of a walk is that of PyTorch 2.13"
)


def test_all_recorded_backtraces_are_those_of_walks() -> None:
    recorded = cpp_backtraces.load()
    chosen = [case for case in cpp_backtraces.cases() if case.code in recorded]
    different = [text for case in chosen if (text := cpp_backtraces.difference(case.walk(), recorded[case.code]))]
    assert not different, "\n".join(different)


def test_every_native_function_has_a_walk_of_known_kernels() -> None:
    folder = Path(next(iter(packaged.__path__))) / "ATen" / "native"
    functions = load_native_functions(folder / "native_functions.yaml").functions
    assert len(functions) == 3101
    chosen = some(functions[::5])
    walks = [walk_call(str(function.name)) for function in chosen]
    for function, walk in zip(chosen, walks, strict=True):
        assert walk.function.name == function.name
        layers = {frame.layer for frame in walk.frames}
        assert Layer.OTHER not in layers, function.short_name
        refused = walk.explained.explanation.hops[-1].refusal is not None
        assert refused or layers & {Layer.NATIVE, Layer.IMPL}, function.short_name
    assert sum(walk.explained.explanation.hops[-1].refusal is None for walk in walks) > share(500)


@only_whole()  # the PyTorch that was recorded does not change
@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")
def test_the_debugger_still_shows_what_was_recorded(tmp_path: Path) -> None:
    recorded = cpp_backtraces.load()
    chosen = [case for case in cpp_backtraces.cases() if case.code in recorded][::12]
    found = cpp_backtraces.record(chosen, tmp_path)
    assert len(found) > 0.9 * len(chosen)
    for case in chosen:
        if case.code in found:
            assert not cpp_backtraces.difference(case.walk(), found[case.code])
