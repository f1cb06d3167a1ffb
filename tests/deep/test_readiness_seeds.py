"""Right operators on other random inputs than in the quick test: none is condemned."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.effort import only_whole
from tests.process.test_readiness_runs import condemned


@only_whole()
@pytest.mark.parametrize("seed", range(1, 5))
def test_no_right_operator_is_condemned_in_other_seeds(tmp_path: Path, seed: int) -> None:
    assert not condemned(tmp_path, seed=seed)
