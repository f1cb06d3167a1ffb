"""Strides, counted in elements: the usual ones, those without gaps, and the shapes that are views of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of memory in the usual order, the last dimension without a gap."""
    return tuple(prod(max(size, 1) for size in shape[at + 1 :]) for at in range(len(shape)))


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether every element has a place of its own and there is no gap between them, in some order of dimensions."""
    expected = 1
    for step, size in sorted((step, size) for size, step in zip(shape, strides, strict=True) if size != 1):
        if step != expected:
            return 0 in shape
        expected *= size
    return True


def is_viewable(shape: Sequence[int], strides: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether elements that lie like this can be seen as another shape of as many elements.

    Dimensions that follow each other in memory without a gap are one run; no dimension of the new shape may reach from
    one run into the next.
    """
    if 0 in shape:
        return True
    runs: list[int] = []
    before = 0
    for size, step in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if runs and before == size * step:
            runs[-1] *= size
        else:
            runs.append(size)
        before = step
    rest = [size for size in wanted if size != 1]
    for run in runs:
        filled = 1
        while filled < run:
            filled *= rest.pop(0)
        if filled != run:
            return False
    return True
