"""The long tests of tests/test_lint.py, which the quick tier leaves out."""

from __future__ import annotations

from dispatchlab.registries.file import open_bundled
from tests.test_lint import lint


def test_messages_name_owners_that_are_in_the_registry() -> None:
    recorded = open_bundled("torch-2.13-cpu")
    seen = 0
    for finding in lint("torch-2.13-cpu", select=("DL006", "DL010", "DL011")).findings[::5]:
        operator = recorded.operator(finding.operator)
        assert operator is not None
        assert {*finding.owners} <= {kernel.debug for kernel in operator.kernels}
        seen += 1
    assert seen == 27
