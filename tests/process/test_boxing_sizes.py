"""A boxed kernel is one function, whatever the number of operators; a compiler says how large each form is."""

from __future__ import annotations

import shutil

import pytest

from tools.boxing_sizes import signature, size_of, source


@pytest.mark.skipif(not (shutil.which("g++") and shutil.which("size")), reason="needs a C++ compiler and binutils")
def test_a_boxed_kernel_does_not_grow_with_the_operators_and_the_others_do() -> None:
    assert size_of(source("boxed", 1)) == size_of(source("boxed", 10))
    for form in ("unboxed", "template"):
        assert size_of(source(form, 10)) > 5 * size_of(source(form, 1))
    assert size_of(source("boxed, called unboxed", 2)) > size_of(source("unboxed", 2)) > size_of(source("boxed", 2))
    assert len({signature(number) for number in range(100)}) == 100
