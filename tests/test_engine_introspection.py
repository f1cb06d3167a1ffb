"""The dumps, to the character."""

from __future__ import annotations

import pytest
from expecttest import TestCase

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.errors import RegistrationError
from dispatchlab.model.registration import AliasKind, Kernel, KernelForm
from tests.engine_shorthand import (
    BOXED,
    FALLTHROUGH,
    FOO,
    TYPED,
    K,
    define,
    fallback,
    impl,
    inferred,
    overrides_allowed,
    typed,
)


class TestDumps(TestCase):
    maxDiff = None

    def test_a_def_with_kernels_of_every_form(self) -> None:
        dispatcher = Dispatcher(builtin_fallbacks=False)
        symint = Kernel(KernelForm.UNBOXED, inferred("(Tensor _0, SymInt _1) -> Tensor _0"), "symint", symint=True)
        with overrides_allowed():
            handles = [
                dispatcher.register(one)
                for one in (
                    define("test::foo(Tensor x, SymInt n=1) -> Tensor", "def.cpp:1", AliasKind.PURE_FUNCTION),
                    impl(K.CPU, "old_cpu", typed("(Tensor _0, int _1) -> Tensor _0")),
                    impl(K.CPU, "new_cpu", BOXED),
                    impl(K.CUDA, "fn_symint", symint),
                    impl(None, "fn_math", typed("(Tensor _0, int _1) -> Tensor _0")),
                    impl(K.Autograd, "", FALLTHROUGH),
                )
            ]
        self.assertExpectedInline(
            dispatcher.dump(FOO),
            """\
name: test::foo
schema: test::foo(Tensor x, SymInt n=1) -> Tensor
debug: def.cpp:1
alias analysis kind: PURE_FUNCTION
CPU: new_cpu :: (none) [ boxed ]
CPU (inactive): old_cpu :: (Tensor _0, int _1) -> Tensor _0 [ boxed unboxed ]
CUDA: fn_symint :: (Tensor _0, SymInt _1) -> Tensor _0 [ boxed ]
Autograd[alias]:  :: (none) [ fallthrough boxed ]
CompositeImplicitAutograd[alias]: fn_math :: (Tensor _0, int _1) -> Tensor _0 [ boxed unboxed ]
""",
        )
        assert len(handles) == 6

    def test_keys_stand_in_the_order_of_their_enum_values(self) -> None:
        dispatcher = Dispatcher(builtin_fallbacks=False)
        keys = (
            *(K.CompositeExplicitAutograd, K.AutogradCPU, K.NestedTensorCPU, K.CPU, K.PythonDispatcher, K.Dense),
            *(K.Autograd, K.CompositeImplicitAutograd, K.FuncTorchBatchedDecomposition, K.FPGA, K.QuantizedMeta),
            *(K.CompositeImplicitAutogradNestedTensor, K.CompositeExplicitAutogradNonFunctional, K.SparseCPU),
        )
        handles = [dispatcher.register(impl(key, str(number))) for number, key in enumerate(keys)]
        self.assertExpectedInline(
            dispatcher.dump(FOO),
            """\
name: test::foo
schema: (none)
Dense: 5 :: (none) [ boxed ]
FPGA: 9 :: (none) [ boxed ]
PythonDispatcher: 4 :: (none) [ boxed ]
CPU: 3 :: (none) [ boxed ]
QuantizedMeta: 10 :: (none) [ boxed ]
SparseCPU: 13 :: (none) [ boxed ]
NestedTensorCPU: 2 :: (none) [ boxed ]
AutogradCPU: 1 :: (none) [ boxed ]
Autograd[alias]: 6 :: (none) [ boxed ]
CompositeImplicitAutograd[alias]: 7 :: (none) [ boxed ]
FuncTorchBatchedDecomposition[alias]: 8 :: (none) [ boxed ]
CompositeImplicitAutogradNestedTensor[alias]: 11 :: (none) [ boxed ]
CompositeExplicitAutograd[alias]: 0 :: (none) [ boxed ]
CompositeExplicitAutogradNonFunctional[alias]: 12 :: (none) [ boxed ]
""",
        )
        assert len(handles) == 14

    def test_an_operator_without_anything_but_a_def(self) -> None:
        dispatcher = Dispatcher(builtin_fallbacks=False)
        with dispatcher.register(define(debug="def.cpp:1", alias=AliasKind.CONSERVATIVE)):
            self.assertExpectedInline(
                dispatcher.dump(FOO) + dispatcher.dump_table(FOO),
                """\
name: test::foo
schema: test::foo(Tensor x) -> Tensor
debug: def.cpp:1
alias analysis kind: CONSERVATIVE
""",
            )
        for shown in (dispatcher.dump, dispatcher.dump_table, dispatcher.dump_slots):
            with pytest.raises(RegistrationError, match=r"^no_such_schema: there is no operator test::foo$"):
                shown(FOO)

    def test_an_operator_that_does_not_exist_is_answered_with_the_nearest(self) -> None:
        dispatcher = Dispatcher(builtin_fallbacks=False)
        with dispatcher.register(define()):
            for shown in (dispatcher.dump, dispatcher.dump_table, dispatcher.dump_slots):
                with pytest.raises(RegistrationError, match="there is no operator test::fo; did you mean test::foo"):
                    shown("test::fo")

    def test_a_table_names_the_reason_of_each_row(self) -> None:
        dispatcher = Dispatcher(builtin_fallbacks=False)
        handles = [
            dispatcher.register(one)
            for one in (
                impl(K.CPU, "fn_cpu"),
                impl(K.FPGA, "fn_fpga"),
                impl(K.Autograd, "fn_autograd"),
                impl(K.CompositeImplicitAutogradNestedTensor, "fn_nested"),
                impl(K.FuncTorchBatchedDecomposition, "fn_batched"),
                impl(None, "fn_math"),
                fallback(K.AutogradCUDA, "fn_fallback", FALLTHROUGH),
                fallback(K.BackendSelect, "fn_select", FALLTHROUGH),
            )
        ]
        lines = dispatcher.dump_table(FOO).splitlines(keepends=True)
        wanted = "Undefined CPU CUDA FPGA NestedTensorCPU BackendSelect AutogradOther AutogradCPU AutogradCUDA"
        wanted += " AutogradNestedTensor FuncTorchBatched"
        self.assertExpectedInline(
            "".join(line for line in lines if line.partition(":")[0] in wanted.split()),
            """\
Undefined: fn_math [math kernel]
CPU: fn_cpu [kernel]
CUDA: fn_math [math kernel]
FPGA: fn_fpga [kernel]
NestedTensorCPU: fn_nested [nested kernel]
BackendSelect: fallthrough fn_select [backend fallback]
AutogradOther: ambiguous_autogradother [ambiguous autogradother]
AutogradCPU: fn_autograd [autograd kernel]
AutogradCUDA: fn_math [math kernel]
AutogradNestedTensor: fn_nested [nested kernel]
FuncTorchBatched: fn_batched [batched kernel]
""",
        )
        assert len(lines) == 106
        assert dispatcher.dump_slots(FOO) == dispatcher.dump_table(FOO)
        assert len(handles) == 8

    def test_fallbacks_are_in_the_table_and_not_in_the_dump(self) -> None:
        dispatcher = Dispatcher(builtin_fallbacks=False)
        with dispatcher.register(fallback(K.CPU, "everybody")), dispatcher.register(impl(K.CUDA, "fn")):
            self.assertExpectedInline(
                dispatcher.dump(FOO) + dispatcher.dump_table(FOO),
                """\
name: test::foo
schema: (none)
CUDA: fn :: (none) [ boxed ]
CPU: everybody [backend fallback]
CUDA: fn [kernel]
""",
            )

    def test_the_dump_of_2020_has_no_debug_line_and_the_catch_all_last(self) -> None:
        dispatcher = Dispatcher.for_scenario("pr35061")
        with overrides_allowed():
            handles = [
                dispatcher.register(one)
                for one in (
                    define("test::foo(Tensor x) -> Tensor", "def.cpp:1", AliasKind.FROM_SCHEMA),
                    impl(None, "old", TYPED),
                    impl(None, "new", TYPED),
                    impl(K.AutogradCPU, "grad", BOXED),
                    impl(K.Dense, "dense", BOXED),
                )
            ]
        self.assertExpectedInline(
            dispatcher.dump(FOO),
            """\
name: test::foo
schema: test::foo(Tensor x) -> (Tensor)
alias analysis kind: FROM_SCHEMA
Dense: dense :: (none) [ boxed ]
AutogradCPU: grad :: (none) [ boxed ]
catchall: new :: (Tensor _0) -> (Tensor _0) [ boxed unboxed ]
catchall (inactive): old :: (Tensor _0) -> (Tensor _0) [ boxed unboxed ]
""",
        )
        assert len(handles) == 5
