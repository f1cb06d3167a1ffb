"""How many examples a property is tried on: all of them with `--all-tiers`, a share of them otherwise."""

from __future__ import annotations

from hypothesis import settings


def examples(count: int) -> settings:
    """Try a property on `count` examples, always the same ones, or on the share of them that this run asks for."""
    percent = settings().max_examples
    return settings(max_examples=max(1, count * percent // 100))
