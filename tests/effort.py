"""How many examples a test tries: all of them with `--whole`, a quarter with `--all-tiers`, fewer otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hypothesis import settings

percent = 15
"""The share of a loop's turns; `conftest.py` raises it to `ALL_TIERS` or to the whole."""

ALL_TIERS = 25
"""The share when every tier runs: what a change has to pass."""

QUICK_EXAMPLES = 5
"""The percent of generated examples in the quick tier, where each costs more than a turn of a loop."""


def share(count: int) -> int:
    """What this run tries of `count` examples."""
    return max(1, count * percent // 100)


def examples(count: int) -> settings:
    """Try a property on as many generated examples, always the same ones."""
    from hypothesis import settings

    tried = share(count) if percent >= ALL_TIERS else max(1, count * QUICK_EXAMPLES // 100)
    return settings(derandomize=True, deadline=None, database=None, max_examples=tried)
