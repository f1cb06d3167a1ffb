"""How many examples a test tries: all of them with `--whole`, a share otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import pytest
    from hypothesis import settings

_Item = TypeVar("_Item")
_Other = TypeVar("_Other")

percent = 15
"""The share of a loop's turns; `conftest.py` raises it to the whole."""

example_percent = 5
"""The share of generated examples, each of which costs more than a turn; with every tier it is that of turns."""


def share(count: int) -> int:
    """What this run tries of `count` examples."""
    return max(1, count * percent // 100)


def some(items: Sequence[_Item]) -> Sequence[_Item]:
    """What this run tries of `items`: no less than its share of them, spread over all."""
    return items[:: 100 // percent]


def crossed(rows: Iterable[_Item], columns: Sequence[_Other]) -> list[tuple[_Item, _Other]]:
    """Pairs of a row and a column: all with `--whole`, otherwise one of each row, in another column than the last."""
    if percent == 100:
        return [(row, column) for row in rows for column in columns]
    return [(row, columns[at % len(columns)]) for at, row in enumerate(rows)]


def only_whole() -> pytest.MarkDecorator:
    """Mark a test that does what a quicker one does, and more of it: it runs with `--whole`."""
    import pytest

    return pytest.mark.skipif(
        percent < 100, reason="a quicker test does less of the same; `--whole` runs this one, too"
    )


def examples(count: int) -> settings:
    """Try a property on as many generated examples, always the same ones."""
    from hypothesis import settings

    tried = max(1, count * example_percent // 100)
    return settings(derandomize=True, deadline=None, database=None, max_examples=tried)
