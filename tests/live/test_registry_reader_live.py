"""What cannot be read of the running PyTorch costs one operator."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.live.introspection import registry_reader
from dispatchlab.model.dump_format import DumpError
from dispatchlab.registries.model import RecordedOperator, read_dump


def test_an_operator_that_cannot_be_read_costs_none_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def reads_most(text: str) -> RecordedOperator:
        if text.startswith("name: aten::relu\n"):
            raise DumpError("a line of tomorrow", "a line of today")
        return read_dump(text)

    names = ["aten::relu", "aten::relu_", "aten::sin"]
    monkeypatch.setattr(registry_reader, "read_dump", reads_most)
    found = registry_reader.record_operators(names)
    assert found.names == ("aten::relu_", "aten::sin")
    (sentence,) = found.unreadable
    assert sentence.startswith("aten::relu cannot be read and is left out: ")
    assert "a line of tomorrow" in sentence
