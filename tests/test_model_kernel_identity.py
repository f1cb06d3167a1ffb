"""Kernels that share a debug text are distinguished by their registration, and one function registered twice is not."""

from __future__ import annotations

import os.path
from dataclasses import replace

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.engine.semantics import SEMANTICS
from dispatchlab.model.kernel_identity import distinguished
from dispatchlab.model.keys import RUNTIME_KEYS, DispatchKey
from dispatchlab.model.registration import (
    Block,
    BlockKind,
    Fallback,
    Impl,
    Kernel,
    NameOnly,
    Registration,
    TorchLibraryCall,
    TorchLibraryFunction,
    shown_text,
)
from dispatchlab.prover.explore import explore
from dispatchlab.prover.result import Verdict
from tests.engine_shorthand import FOO, K, define, each_semantics, overrides_allowed

NAMEABLE = [key for key in RUNTIME_KEYS if key in SEMANTICS["torch-2.13"].keys and key != K.Undefined]
ALIASES = [key for key in DispatchKey if key.is_alias]


def _debugs(*registrations: Registration) -> list[str]:
    return [shown_text(one) for one in distinguished(registrations) if not isinstance(one, NameOnly)]


def _verdict(*registrations: Registration, semantics: str = "strict") -> Verdict:
    with overrides_allowed():
        return explore(LabEngine(semantics), registrations, [FOO]).verdict


def _boxed(function: object) -> Kernel:
    assert callable(function)
    return Kernel(function=function)


def _loop() -> list[Impl]:
    return [Impl(FOO, K.CPU, _boxed(lambda x, n=n: x + n), "registered at ops.py:12") for n in (1, 2)]


@each_semantics
def test_two_closures_of_one_line_are_order_dependent(semantics: str) -> None:
    with overrides_allowed():
        found = explore(LabEngine(semantics), _loop(), [FOO])
    assert found.verdict is Verdict.ORDER_DEPENDENT
    assert found.counterexample is not None
    assert "-CPU: registered at ops.py:12 (registration 1) [kernel]\n" in found.counterexample.diff
    assert "+CPU: registered at ops.py:12 (registration 0) [kernel]\n" in found.counterexample.diff


def test_one_function_registered_twice_is_one_kernel() -> None:
    class Ops:
        def kernel(self, x: object) -> object:
            return x

    ops = Ops()
    for function in (os.path.join, ops.kernel):
        twice = [Impl(FOO, K.CPU, _boxed(function), "fn") for _ in range(2)]
        assert distinguished(twice) == tuple(twice)
        assert _verdict(*twice) is Verdict.ORDER_INDEPENDENT
    methods = [Impl(FOO, K.CPU, _boxed(each.kernel), "fn") for each in (ops, Ops())]
    assert _verdict(*methods) is Verdict.ORDER_DEPENDENT


def test_a_function_is_not_asked_whether_it_equals_another() -> None:
    class Agreeable:
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 0

        def __call__(self, x: object) -> object:
            return x

    assert _verdict(*(Impl(FOO, K.CPU, _boxed(Agreeable()), "fn") for _ in range(2))) is Verdict.ORDER_DEPENDENT


def test_of_three_kernels_those_of_one_function_share_a_mark() -> None:
    functions = (os.path.join, os.path.split, os.path.join)
    three = [Impl(FOO, K.CPU, _boxed(function), "fn") for function in functions]
    assert _debugs(*three) == ["fn (registration 0)", "fn (registration 1)", "fn (registration 0)"]


def test_texts_are_marked_where_kernels_meet_and_nowhere_else() -> None:
    apart: list[Registration] = [
        Impl(FOO, K.CPU, debug="fn"),
        Impl(FOO, K.CUDA, debug="fn"),
        Impl(FOO, K.CUDA, debug="fn_2"),
        Fallback(K.CPU, debug="fn"),
        define("test::bar(Tensor x) -> Tensor", "fn"),
    ]
    assert all(one is other for one, other in zip(distinguished(apart), apart, strict=True))


def test_marks_are_made_once() -> None:
    once = distinguished(_loop())
    assert all(one is other for one, other in zip(distinguished(once), once, strict=True))


def test_keys_that_mean_the_same_or_read_the_same_in_a_table_are_one_place() -> None:
    assert _debugs(*(Impl(FOO, key) for key in (None, K.Undefined, K.CompositeImplicitAutograd))) == [
        f"registration {number}" for number in range(3)
    ]
    explicit = (K.CompositeExplicitAutograd, K.CompositeExplicitAutogradNonFunctional)
    assert _debugs(*(Impl(FOO, key, debug="fn") for key in explicit)) == ["fn (registration 0)", "fn (registration 1)"]


def test_a_text_that_reads_like_a_mark_gets_no_twin() -> None:
    texts = ["fn (registration 1)", "fn", "fn", ""]
    assert _debugs(*(Impl(FOO, K.CPU, debug=text) for text in texts)) == [
        "fn (registration 1)",
        "fn (registration 1)'",
        "fn (registration 2)",
        "registration 3",
    ]


def test_the_kernels_of_a_def_and_of_fallbacks_at_overlapping_keys_are_marked() -> None:
    definition = replace(define(debug="fn"), kernel=Kernel(), key=K.CPU)
    assert _debugs(definition, Impl(FOO, K.CPU, debug="fn")) == ["fn (registration 0)", "fn (registration 1)"]
    kernel = Kernel()
    fallbacks = Fallback(K.Autograd, kernel, "fn"), Fallback(K.AutogradCPU, kernel, "fn"), Fallback(K.CPU, kernel, "fn")
    assert _debugs(*fallbacks) == ["fn (registration 0)", "fn (registration 1)", "fn"]


def test_kernels_in_blocks_are_marked_one_by_one() -> None:
    one, two = Impl(FOO.without_namespace), Impl(FOO.without_namespace, debug="own")
    blocks = [
        Block("test", BlockKind.IMPL, (one, two, one), K.CPU, "fn"),
        Block("test", BlockKind.IMPL, (one,), K.CPU, "fn"),
    ]
    first, second = distinguished(blocks)
    assert isinstance(first, Block)
    assert isinstance(second, Block)
    assert [inner.debug for inner in first.registrations] == [
        "fn (registration 0, kernel 0)",
        "own",
        "fn (registration 0, kernel 2)",
    ]
    assert [inner.debug for inner in second.registrations] == ["fn (registration 1)"]
    assert (first.debug, second.debug) == ("fn", "fn")


def test_a_call_of_torch_library_has_one_mark_inside_and_outside() -> None:
    call = TorchLibraryCall(TorchLibraryFunction.IMPL, FOO.without_namespace)
    inner = Impl(FOO.without_namespace, K.CPU, debug="ops.py:12")
    block = Block("test", BlockKind.FRAGMENT, (inner, inner), None, "ops.py:12", call)
    assert distinguished([block]) == (block,)
    for index, marked in enumerate(distinguished([block, block])):
        assert isinstance(marked, Block)
        assert {marked.debug, *(each.debug for each in marked.registrations)} == {f"ops.py:12 (registration {index})"}
    empty = Block("test", BlockKind.FRAGMENT, (), None, "ops.py:12", call)
    assert _debugs(empty, empty) == ["ops.py:12 (registration 0)", "ops.py:12 (registration 1)"]
