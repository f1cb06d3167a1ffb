"""Walks through calls, held to backtraces of PyTorch 2.13 that a debugger took."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from tests import cpp_backtraces  # noqa: E402  torch has to be there first


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="the backtraces were taken with PyTorch 2.13")
def test_walks_are_the_backtraces_of_a_debugger() -> None:
    recorded = cpp_backtraces.load()
    chosen = [case for case in cpp_backtraces.cases() if case.code in recorded]
    assert len(chosen) == len(recorded) > 300
    assert len({case.walked for case in chosen}) > 200
    different = [text for case in chosen[::5] if (text := cpp_backtraces.difference(case.walk(), recorded[case.code]))]
    assert not different, "\n".join(different)
