"""The grammar of dumps: what is printed parses back, also where a debug text has several lines."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatchlab import Dispatcher
from dispatchlab.model.dump_format import (
    DumpError,
    KernelLine,
    OperatorDump,
    Provenance,
    TableEntry,
    UnknownKeyInDumpError,
    parse_dump,
    parse_entry,
    parse_table,
    row_text,
)
from dispatchlab.model.keys import ALIAS_KEYS, RUNTIME_KEYS
from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.names import OperatorName
from dispatchlab.model.operator_view import OUTRANKED, view_of
from dispatchlab.model.registration import AliasKind, Def, Impl, Kernel, KernelFlags
from dispatchlab.model.schema_parser import parse_schema
from dispatchlab.registries.model import (
    RecordedFallback,
    RecordedKernel,
    RecordedOperator,
    dump_text,
    read_dump,
    read_fallbacks,
)
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
TWO_LINES = "registered at a.py:1\nCPU: by\tb.py"


def test_a_dump_is_read_and_written() -> None:
    assert read_dump(DUMP, ["core", "pointwise"]) == FOO
    assert dump_text(FOO) == DUMP
    assert str(parse_dump(DUMP)) == DUMP


@pytest.mark.parametrize("operator", [FOO, BAR, DANGLING], ids=lambda operator: str(operator.name))
def test_texts_with_lines_of_their_own_and_operators_without_a_def_read_back(operator: RecordedOperator) -> None:
    assert read_dump(dump_text(operator), operator.tags) == operator


@examples(100)
@given(st.text(alphabet="ab :[]()\n", max_size=12))
def test_any_debug_text_is_kept(debug: str) -> None:
    kernels = (RecordedKernel(K.CPU, debug), RecordedKernel(K.CUDA, "b"))
    operator = RecordedOperator(DANGLING.name, kernels=kernels)
    assert read_dump(dump_text(operator)) == operator


# -- generated dumps and tables

line = st.one_of(
    st.sampled_from(
        ["CPU: fn", "CUDA: fn [kernel", "alias analysis kind: ?", "debug: x", ":: (none) [ boxed", "name: a::b", ""]
    ),
    st.text(alphabet="aZ :[]()é\t\r\x0b\u2028", max_size=8),
)
debug_text = st.lists(line, min_size=1, max_size=3).map("\n".join)
inferred = st.none() | st.sampled_from(["(Tensor _0) -> Tensor _0", "() -> ()"])


@st.composite
def kernel_lines(draw: st.DrawFn) -> tuple[KernelLine, ...]:
    keys = draw(st.lists(st.sampled_from([K.CPU, K.CUDA, *RUNTIME_KEYS[30:40], *ALIAS_KEYS]), unique=True, max_size=4))
    catch_all: list[K | None] = [None] if draw(st.booleans()) else []
    return tuple(
        KernelLine(key, draw(debug_text), draw(inferred), draw(st.sampled_from(KernelFlags)), at == 0)
        for key in (*sorted(keys), *catch_all)
        for at in range(draw(st.integers(1, 3)))
    )


@st.composite
def operator_dumps(draw: st.DrawFn) -> OperatorDump:
    kernels = draw(kernel_lines())
    if draw(st.booleans()):
        return OperatorDump("test::foo", kernels=kernels)
    schema, debug = "test::foo(Tensor x) -> Tensor", draw(st.none() | debug_text)
    return OperatorDump("test::foo", schema, debug, draw(st.sampled_from([None, *AliasKind])), kernels)


@examples(100)
@given(operator_dumps())
def test_a_generated_dump_parses_back_to_an_equal_value_that_prints_the_same(dump: OperatorDump) -> None:
    text = str(dump)
    assert parse_dump(text) == dump
    assert str(parse_dump(text)) == text


entries = st.builds(TableEntry, debug_text, st.sampled_from(Provenance), st.booleans())


@examples(100)
@given(st.dictionaries(st.sampled_from(RUNTIME_KEYS), entries, max_size=5))
def test_a_generated_table_parses_back(rows: dict[K, TableEntry]) -> None:
    ordered = dict(sorted(rows.items(), key=lambda row: row[0].slot))
    assert parse_table("".join(row_text(key, str(entry)) for key, entry in ordered.items())) == ordered


# -- debug texts of several lines, from the engine to the view


@pytest.mark.parametrize("semantics", ["strict", "torch-2.13", "pr35061"])
def test_a_view_made_from_texts_keeps_debug_texts_of_two_lines(semantics: str) -> None:
    dispatcher = Dispatcher(semantics=semantics)
    foo = OperatorName("test", "foo")
    with (
        dispatcher.register(Def(parse_schema("test::foo(Tensor x) -> Tensor"), debug=TWO_LINES)),
        dispatcher.register(Impl(foo, K.CPU, Kernel(), TWO_LINES)),
    ):
        seen, read = dispatcher.explain(foo), view_of(dispatcher.snapshot(foo))
    assert seen is not None
    assert [kernel.debug for kernel in read.kernels] == [kernel.debug for kernel in seen.kernels] == [TWO_LINES]
    assert [(row.key, row.debug, row.reason) for row in read.table] == [
        (row.key, row.debug, row.reason) for row in seen.table
    ]
    assert ("CPU", TWO_LINES, Provenance.KERNEL) in [(row.key, row.debug, row.reason) for row in read.table]
    assert read.debug == (None if semantics == "pr35061" else TWO_LINES)


def test_a_record_keeps_the_two_lines_of_a_def_and_of_a_kernel() -> None:
    text = DUMP.replace("registered at foo.cpp:1\n", TWO_LINES + "\n").replace("registered at foo.cpp:12", TWO_LINES)
    record = read_dump(text)
    assert (record.debug, record.kernels[0].debug, len(record.kernels)) == (TWO_LINES, TWO_LINES, 4)
    assert dump_text(record) == text


# -- what is no dump


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "expected a line that starts with 'name: ' but found ''"),
        ("name: a::b\n", "expected a line that starts with 'schema: ' but found ''"),
        ("name: a::b\nschema: (none)\n12: a :: (none) [ boxed ]\n", "expected a dispatch key but found"),
        ("name: a::b\nschema: (none)\nCPU: a :: (none) [ unboxed ]\n", "expected the flags of a kernel: boxed unboxed"),
        ("name: a::b\nschema: (none)\nCPU: a\n", "expected a line 'KEY: DEBUG :: SCHEMA [ FLAGS ]' but found 'CPU: a'"),
        (
            "name: a::b\nschema: (none)\nCPU (inactive): a :: (none) [ boxed ]\n",
            "expected the active kernel of the key",
        ),
        (DUMP.replace("FROM_SCHEMA", "FROM"), "expected an alias analysis kind but found 'FROM'"),
        (
            "name: a::b\nschema: a::b() -> ()\ndebug: a\nb\n",
            "expected a line that starts with 'alias analysis kind: ' but found 'b'",
        ),
    ],
)
def test_what_is_no_dump_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(DumpError) as caught:
        read_dump(text)
    assert str(caught.value).startswith(f"this is not the dump of an operator: {sentence}")


def test_a_key_of_a_later_pytorch_is_named() -> None:
    for read, text in (
        (read_dump, "name: a::b\nschema: (none)\nBrandNew: a :: (none) [ boxed ]\n"),
        (read_dump, "name: a::b\nschema: (none)\nBrandNew[alias]: a :: (none) [ boxed ]\n"),
        (parse_table, "CPU: a [kernel]\nBrandNew: a [kernel]\n"),
        (read_fallbacks, "BrandNew: a [backend fallback]\n"),
    ):
        with pytest.raises(UnknownKeyInDumpError) as caught:
            read(text)
        error = pickle.loads(pickle.dumps(caught.value))
        assert str(error).startswith(
            "dispatchlab does not know the dispatch key BrandNew, which this PyTorch shows in "
        )
        assert "`dispatchlab doctor` shows what does" in str(error)


def test_a_record_has_a_key_for_every_kernel() -> None:
    with pytest.raises(DumpError, match="expected a dispatch key but found 'catchall: a"):
        read_dump("name: a::b\nschema: (none)\ncatchall: a :: (none) [ boxed ]\n")


def test_rows_may_have_lines_of_their_own() -> None:
    table = "CPU: a\nUndefined: b [kernel]\nCUDA: c [kernel]\n"
    kernel = Provenance.KERNEL
    assert parse_table(table) == {K.CPU: TableEntry("a\nUndefined: b", kernel), K.CUDA: TableEntry("c", kernel)}
    assert parse_table("") == {}
    assert [*parse_table("Python: a [kernel]\nFake: b [kernel]\nNamed: c [kernel]\nNegative: d [kernel]\n")] == [
        *(K.Python, K.Fake, K.Named, K.Negative)  # the order of an older PyTorch
    ]
    for text in (
        *("x\n", "CUDA: a [kernel]\nCPU: a [kernel]\n", "CUDA: a [kernel]\nNamed: b [kernel]\nCPU: a [kernel]\n"),
        *("CPU: a [kernel]\nCPU: a [kernel]\n", "Named: a [kernel]\nNamed: a [kernel]\n", "Dense: a [kernel]\n"),
    ):
        with pytest.raises(DumpError, match="expected a row that starts with a dispatch key"):
            parse_table(text)


def test_an_entry_ends_with_a_provenance() -> None:
    assert parse_entry("fallthrough a [b] [math kernel]") == TableEntry("a [b]", Provenance.MATH, fallthrough=True)
    with pytest.raises(DumpError, match=r"expected DEBUG \[PROVENANCE\], where the provenance is one of kernel, "):
        parse_entry("a [some kernel]")


def test_fallbacks_are_read_off_a_table() -> None:
    table = "Python: registered at a.cpp:1 [backend fallback]\nAutogradCPU: fallthrough b [backend fallback]\n"
    assert read_fallbacks(table) == (
        RecordedFallback(K.Python, fallthrough=False, debug="registered at a.cpp:1"),
        RecordedFallback(K.AutogradCPU, fallthrough=True, debug="b"),
    )
    with pytest.raises(DumpError, match=r"expected a row 'KEY: DEBUG \[backend fallback\]' but found 'CPU: a \[kernel"):
        read_fallbacks("CPU: a [kernel]\n")


def test_what_the_rows_of_a_table_say_stands_once_in_the_package() -> None:
    package = Path(__file__).parent.parent / "dispatchlab"
    modules = {path.relative_to(package).as_posix(): path.read_text(encoding="utf-8") for path in package.rglob("*.py")}

    def homes(words: str) -> list[str]:
        return [name for name, text in modules.items() if re.search(rf'["\[]{words}["\]]', text)]

    words = [Provenance.MATH, Provenance.NESTED, Provenance.DEFAULT_BACKEND, Provenance.AMBIGUOUS, Provenance.CATCH_ALL]
    assert [homes(each) for each in words] == [["model/dump_format.py"]] * len(words)
    assert homes(OUTRANKED) == ["model/operator_view.py"]
