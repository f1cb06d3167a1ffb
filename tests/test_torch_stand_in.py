"""The stand-in of torch: the bindings that PyTorch's tests of its dispatcher call, on a lab dispatcher."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from dispatchlab import (
    BlockKind,
    CallError,
    Dispatcher,
    DispatchKey,
    ErrorKind,
    Library,
    RegistrationError,
    boxed,
)
from tools.torch_stand_in import CapturedOutput, StandInError, TestCase, blocks_of, stand_in, text_of


@pytest.fixture
def c() -> Any:
    return stand_in("torch-2.13", recorded=False)["torch._C"]


def test_a_library_of_the_stand_in_registers_what_its_calls_say(c: Any) -> None:
    library = c._dispatch_library("FRAGMENT", "test", "")
    library.def_("foo(Tensor x) -> Tensor", alias="PURE_FUNCTION").impl_t_t("foo", "CPU", debug="fn_cpu")
    library.impl_t_t("foo", dispatch="Autograd")
    assert c._dispatch_dump("test::foo") == (
        "name: test::foo\nschema: test::foo(Tensor x) -> Tensor\ndebug: registered at /dev/null:0\n"
        "alias analysis kind: PURE_FUNCTION\n"
        "CPU: fn_cpu :: (Tensor _0) -> Tensor _0 [ boxed unboxed ]\n"
        "Autograd[alias]: impl_t_t :: (Tensor _0) -> Tensor _0 [ boxed unboxed ]\n"
    )
    table = c._dispatch_dump_table("test::foo").splitlines()
    assert "CPU: fn_cpu [kernel]" in table
    assert "AutogradXLA: impl_t_t [autograd kernel]" in table
    assert c._dispatch_has_kernel("test::foo")
    assert c._dispatch_has_kernel_for_dispatch_key("test::foo", "CPU")
    assert not c._dispatch_has_kernel_for_dispatch_key("test::foo", "CUDA")
    assert c._dispatch_get_registrations_for_dispatch_key("CPU") == ["test::foo"]


def test_a_library_that_is_forgotten_takes_its_registrations_with_it_in_every_order(c: Any) -> None:
    seen: dict[frozenset[int], str] = {frozenset(): ""}
    calls = (
        lambda m: m.def_("foo(Tensor x) -> Tensor"),
        lambda m: m.impl_t_t("foo"),
        lambda m: m.impl_t_t("foo", "CPU"),
    )
    orders = list(permutations(range(3)))
    for come in orders:
        for go in orders:
            kept: dict[int, object] = {}
            for at in come:
                kept[at] = c._dispatch_library("FRAGMENT", "test", "")
                calls[at](kept[at])
                c._dispatch_check_invariants("test::foo")
                assert seen.setdefault(frozenset(kept), dump := c._dispatch_dump("test::foo")) == dump
            for at in go:
                del kept[at]
                assert seen.setdefault(frozenset(kept), dump := c._dispatch_dump("test::foo")) == dump
    assert len(seen) == 8
    assert len({*seen.values()}) == 8


def test_a_schema_of_a_kernel_is_inferred(c: Any) -> None:
    library = c._dispatch_library("DEF", "test", "", "/tmp/a.cpp", 7)
    library.def_name_t_t("foo").def_schema_t_t("bar(Tensor x) -> Tensor", alias="CONSERVATIVE", debug="fn")
    library.def_legacy("baz(Tensor x) -> Tensor")
    assert c._dispatch_dump("test::foo").splitlines()[1:] == [
        "schema: test::foo(Tensor _0) -> Tensor _0",
        "debug: registered at /tmp/a.cpp:7",
        "alias analysis kind: CONSERVATIVE",
        "CompositeImplicitAutograd[alias]: default_def_name_t_t :: (Tensor _0) -> Tensor _0 [ boxed unboxed ]",
    ]
    assert "alias analysis kind: CONSERVATIVE\n" in c._dispatch_dump("test::bar")
    assert "alias analysis kind: CONSERVATIVE (default)\n" in c._dispatch_dump("test::baz")
    assert library.define("qux.out(Tensor x) -> Tensor") == "qux.out"
    library.reset()
    assert c._dispatch_get_all_op_names() == []


def test_fallbacks_and_python_kernels_come_with_their_keys(c: Any) -> None:
    definitions = c._dispatch_library("DEF", "test", "")
    definitions.def_("foo(Tensor x) -> Tensor")
    definitions.impl("foo", "CPU", lambda x: x)
    wildcard = c._dispatch_library("IMPL", "_", "XLA")
    wildcard.fallback_fallthrough()
    other = c._dispatch_library("IMPL", "_", "IPU")
    other.fallback("IPU", lambda op, *args: args[0])
    table = c._dispatch_dump_table("test::foo").splitlines()
    assert "XLA: fallthrough registered at /dev/null:0 [backend fallback]" in table
    assert "IPU: registered at /dev/null:0 [backend fallback]" in table


def test_keys_that_pytorch_cannot_parse_are_given_as_keys(c: Any) -> None:
    library = c._dispatch_library("FRAGMENT", "test", "")
    library.impl("foo", c.DispatchKey.QuantizedHIP, lambda x: x)
    c._dispatch_library("IMPL", "_", "").fallback(c.DispatchKey.SparseLazy, lambda op, *args: args[0])
    assert "QuantizedHIP: registered at /dev/null:0 [kernel]\n" in c._dispatch_dump_table("test::foo")
    with pytest.raises(RuntimeError, match="could not parse dispatch key: QuantizedXLA"):
        library.impl("foo", "QuantizedXLA", lambda x: x)


def test_an_error_without_words_of_pytorch_keeps_its_own() -> None:
    assert text_of(RegistrationError(ErrorKind.OTHER, "it is so")) == "other: it is so"
    missing = CallError(ErrorKind.MISSING_KERNEL, "no", {"operator": "test::foo", "key": "XLA"})
    assert text_of(missing) == "Could not run 'test::foo' with arguments from the 'XLA' backend."


EXTENSION = """\
#include <torch/extension.h>

void nothing() { }
at::Tensor twice(const at::Tensor& x, int64_t n) { return x; }

TORCH_LIBRARY(test, m) {
    m.def("foo(Tensor x, int n) -> Tensor");
}

TORCH_LIBRARY_IMPL(test, CPU, m) {
    m.impl("foo", twice);
    m.impl("bar", &nothing);
}
"""


def test_the_blocks_of_a_cpp_file_are_read(tmp_path: Path) -> None:
    source = tmp_path / "extension.cpp"
    source.write_text(EXTENSION, encoding="utf-8")
    modules = stand_in("torch-2.13", recorded=False)
    module = modules["torch.utils.cpp_extension"].load(name="extension", sources=[str(source)], verbose=True)
    assert module.__name__ == "extension"
    definition, kernels = blocks_of(EXTENSION, "a.cpp")
    assert (definition.kind, kernels.kind, kernels.key) == (BlockKind.DEF, BlockKind.IMPL, DispatchKey.CPU)
    c: Any = modules["torch._C"]
    assert f"CPU: registered at {source}:10 :: (Tensor _0, int _1) -> Tensor _0 [ boxed unboxed ]" in c._dispatch_dump(
        "test::foo"
    )
    assert c._dispatch_find_dangling_impls() == [
        f"name: test::bar\nschema: (none)\nCPU: registered at {source}:10 :: () -> () [ boxed unboxed ]\n"
    ]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (
            "TORCH_LIBRARY(test, m) {\n  m.def(schema());\n}\n",
            "a.cpp:1: this registration cannot be read without a compiler: m.def(schema())",
        ),
        (
            'TORCH_LIBRARY_IMPL(test, CPU, m) {\n  m.impl("foo", foo);\n}\n',
            "a.cpp:1: no function foo is written out in this file",
        ),
        (
            'int foo(std::string x) { }\n\nTORCH_LIBRARY_IMPL(test, CPU, m) {\n  m.impl("foo", foo);\n}\n',
            "a.cpp:3: the C++ type std::string is not one of at::Tensor, torch::Tensor, int64_t, double, bool",
        ),
    ],
)
def test_what_needs_a_compiler_is_refused_in_a_sentence(source: str, sentence: str) -> None:
    with pytest.raises(StandInError) as caught:
        list(blocks_of(source, "a.cpp"))
    assert str(caught.value) == sentence


def test_a_message_may_be_a_function_and_output_is_captured() -> None:
    case = TestCase()
    say: Any = lambda standard: f"{standard} : before"  # noqa: E731  # as PyTorch's tests write it
    with pytest.raises(AssertionError, match="1 not found in \\[\\] : before"):
        case.assertIn(1, [], say)  # noqa: PT009
    with CapturedOutput() as captured:
        print("one")  # noqa: T201
    assert captured.capturedtext == "one\n"


def test_the_stand_in_is_a_lab_dispatcher_and_nothing_else(c: Any) -> None:
    """A dispatcher that registers the same by the public API prints the same."""
    dispatcher = Dispatcher("torch-2.13")
    library = Library("test", "FRAGMENT", dispatcher=dispatcher, debug="registered at /dev/null:0")
    library.define("foo(Tensor x) -> Tensor")
    library.impl("foo", boxed(lambda op, stack: None), "CPU")
    stood = c._dispatch_library("FRAGMENT", "test", "")
    stood.def_("foo(Tensor x) -> Tensor")
    stood.impl("foo", "CPU", lambda x: x)
    assert c._dispatch_dump("test::foo") == dispatcher.dump("test::foo")
    assert c._dispatch_dump_table("test::foo") == dispatcher.dump_table("test::foo")
