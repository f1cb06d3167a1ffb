"""Every defect of order in a recorded registry has its reason: the kernels, what decides, and what helps."""

from __future__ import annotations

import pytest

from dispatchlab.questions.lint.rules import rule_named
from dispatchlab.questions.lint.run import lint_source
from dispatchlab.registries.debug_text import owner
from dispatchlab.registries.file import bundled_names


@pytest.mark.parametrize("name", bundled_names())
def test_every_defect_of_order_in_a_recorded_registry_has_a_reason(name: str) -> None:
    found = lint_source(name, [rule_named("DL002"), rule_named("DL009")]).findings
    assert found
    for one in found:
        assert one.fix, one
        assert all(owner(debug) in one.message for debug in one.owners), one
        if one.code == "DL009":
            several = len(one.owners) > 1
            assert (
                "decides which kernel a call runs at" if several else "A call can then run an old kernel"
            ) in one.message, one
