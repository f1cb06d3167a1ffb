"""Formulas that are generated from derivatives.yaml, against the running PyTorch: many calls of each operator."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from dispatchlab.layers import Lab
from tests.effort import share
from tests.formula_calls import formula_calls
from tests.formula_comparison import check

torch: Any = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")
COUNT = 6_000


# PyTorch warns that create_graph makes cycles
@pytest.mark.filterwarnings("ignore:Using backward")
def test_gradients_of_many_generated_calls_are_torchs() -> None:
    lab, counts = Lab(), Counter[str]()
    for at, call in enumerate(formula_calls(share(COUNT), seed=2)):
        counts += check(lab, torch, call, again=at % 3 == 0)
    assert counts["results"] == share(COUNT)
    assert counts["nodes"] > share(5_000)
    assert counts["gradients"] > share(6_000)
    assert counts["second gradients"] > share(2_000)
