"""A quarter of all attacks and innocent groups with `--whole`, and more generated ones: no proof is false.

`python -m tests.live.package_truth COUNT --jobs 2` compares all of them.
"""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests.effort import only_whole, share
from tests.live.test_package_verdicts_live import compared, false_proofs, proved_of_agreeing


@only_whole()
def test_no_attack_and_no_generated_group_is_proved_by_mistake() -> None:
    rows = compared(every=4 * 100 // share(100), count=share(20), seed=17)
    assert false_proofs(rows) == []
    assert proved_of_agreeing(rows) > 0.7
