"""The long tests of tests/test_model_dump_format.py, which the quick tier leaves out."""

from __future__ import annotations

from dispatchlab.registries.file import open_bundled
from dispatchlab.registries.model import dump_text, read_dump


def test_every_operator_of_pytorch_reads_back() -> None:
    operators = list(open_bundled("torch-2.13-cpu"))
    assert [read_dump(dump_text(operator), operator.tags) for operator in operators] == operators
    assert len(operators) == 3598
