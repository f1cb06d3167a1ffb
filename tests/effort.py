"""How many examples a property is tried on: all of them with `--all-tiers`, a share otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hypothesis import settings

percent = 15
"""The share; `conftest.py` raises it to the whole when every tier runs."""

QUICK_EXAMPLES = 5
"""The percent of generated examples in the quick tier, where each costs more than a turn of a loop."""


def share(count: int) -> int:
    """What this run tries of `count` examples."""
    return max(1, count * percent // 100)


def examples(count: int) -> settings:
    """Try a property on as many generated examples, always the same ones."""
    from hypothesis import settings

    tried = count if percent == 100 else max(1, count * QUICK_EXAMPLES // 100)
    return settings(derandomize=True, deadline=None, database=None, max_examples=tried)
