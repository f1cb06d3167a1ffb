"""Records from the texts that dispatchers print, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatchlab.model.dump_format import DumpError, dump_text, read_dump, read_fallbacks, rows_of
from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.registry.bundled import open_bundled
from dispatchlab.registry.model import RecordedFallback, RecordedKernel, RecordedOperator
from tests.effort import examples
from tests.registry_cases import BAR, DANGLING, FOO

DUMP = """\
name: test::foo
schema: test::foo(Tensor x) -> Tensor
debug: registered at foo.cpp:1
alias analysis kind: FROM_SCHEMA
CPU: registered at foo.cpp:12 :: (Tensor _0) -> Tensor _0 [ boxed unboxed ]
Meta: registered at meta.py:7 :: (none) [ boxed ]
Meta (inactive): registered at foo.cpp:13 :: (Tensor _0) -> Tensor _0 [ boxed unboxed ]
Autograd[alias]:  :: (Tensor _0) -> Tensor _0 [ boxed unboxed ]
"""


def test_a_dump_is_read_and_written() -> None:
    assert read_dump(DUMP, ["core", "pointwise"]) == FOO
    assert dump_text(FOO) == DUMP


def test_every_operator_of_pytorch_reads_back() -> None:
    operators = list(open_bundled())
    assert [read_dump(dump_text(operator), operator.tags) for operator in operators] == operators
    assert len(operators) == 3598


@pytest.mark.parametrize("operator", [FOO, BAR, DANGLING], ids=lambda operator: str(operator.name))
def test_texts_with_lines_of_their_own_and_operators_without_a_def_read_back(operator: RecordedOperator) -> None:
    assert read_dump(dump_text(operator), operator.tags) == operator


@examples(100)
@given(st.text(alphabet="ab :[]()\n", max_size=12))
def test_any_debug_text_is_kept(debug: str) -> None:
    kernels = (RecordedKernel(K.CPU, debug), RecordedKernel(K.CUDA, "b"))
    operator = RecordedOperator(DANGLING.name, kernels=kernels)
    assert read_dump(dump_text(operator)) == operator


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "expected a line that starts with 'name: ' but found ''"),
        ("name: a::b\n", "expected a line that starts with 'schema: ' but found ''"),
        ("name: a::b\nschema: (none)\nCPX: a :: (none) [ boxed ]\n", "expected a dispatch key but found"),
        ("name: a::b\nschema: (none)\nCPU: a :: (none) [ unboxed ]\n", "expected the flags of a kernel: boxed unboxed"),
        ("name: a::b\nschema: (none)\nCPU: a\n", "expected a line 'KEY: DEBUG :: SCHEMA [ FLAGS ]' but found 'CPU: a'"),
        (
            "name: a::b\nschema: (none)\nCPU (inactive): a :: (none) [ boxed ]\n",
            "expected the active kernel of the key",
        ),
        (DUMP.replace("FROM_SCHEMA", "FROM"), "expected an alias analysis kind but found 'FROM'"),
    ],
)
def test_what_is_no_dump_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(DumpError) as caught:
        read_dump(text)
    assert str(caught.value).startswith(f"this is not the dump of an operator: {sentence}")


def test_rows_may_have_lines_of_their_own() -> None:
    table = "CPU: a\nUndefined: b [kernel]\nCUDA: c [kernel]\n"
    assert rows_of(table) == {K.CPU: "a\nUndefined: b [kernel]", K.CUDA: "c [kernel]"}
    assert rows_of("") == {}
    with pytest.raises(DumpError, match="expected a row that starts with a dispatch key but found 'x'"):
        rows_of("x\n")


def test_fallbacks_are_read_off_a_table() -> None:
    table = "Python: registered at a.cpp:1 [backend fallback]\nAutogradCPU: fallthrough b [backend fallback]\n"
    assert read_fallbacks(table) == (
        RecordedFallback(K.Python, fallthrough=False, debug="registered at a.cpp:1"),
        RecordedFallback(K.AutogradCPU, fallthrough=True, debug="b"),
    )
    with pytest.raises(DumpError, match=r"expected a row 'KEY: DEBUG \[backend fallback\]' but found 'CPU: a \[kernel"):
        read_fallbacks("CPU: a [kernel]\n")
