"""How many examples a property is tried on: all of them with `--all-tiers`, a share of them otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hypothesis import settings

percent = 25
"""The share; `conftest.py` raises it to the whole when every tier runs."""


def examples(count: int) -> settings:
    """Try a property on `count` examples, always the same ones, or on the share of them that this run asks for."""
    from hypothesis import settings

    return settings(derandomize=True, deadline=None, database=None, max_examples=max(1, count * percent // 100))
