"""Benchmarks of reading schemas: all 3,598 of PyTorch 2.13."""

from __future__ import annotations

from pathlib import Path

from dispatchlab.model.schema_parser import parse_schema

SCHEMAS = Path(__file__).parents[1] / "tests" / "data" / "torch-2.13-schemas.txt"


class Schemas:
    """Parsing and printing."""

    def setup(self) -> None:
        self.lines = SCHEMAS.read_text(encoding="utf-8").splitlines()
        assert len(self.lines) == 3598

    def time_parse_all(self) -> None:
        """Text to values."""
        assert len([parse_schema(line) for line in self.lines]) == 3598

    def time_parse_and_print_all(self) -> None:
        """Text to values to text."""
        assert sum(len(str(parse_schema(line))) for line in self.lines) > 300_000
