"""The long tests of tests/test_engine_register_operators.py, which the quick tier leaves out."""

from __future__ import annotations

import gc

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.kernel import boxed
from dispatchlab.registration_2020 import DEBUG, Options, RegisterOperators
from tests.engine_shorthand import K, each_semantics, state
from tests.test_engine_register_operators import NAME, SCHEMA, one, stack


@each_semantics
def test_an_op_is_a_def_and_an_impl_for_each_kernel(semantics: str) -> None:
    dispatcher = Dispatcher.for_scenario(semantics)
    before = state(dispatcher)
    options = Options().kernel("CPU", one).kernel(K.CUDA, boxed(stack)).catch_all_kernel(one)
    operators: RegisterOperators | None = RegisterOperators(dispatcher=dispatcher).op(SCHEMA, options)
    assert operators is not None
    assert (dispatcher.def_count(NAME), dispatcher.def_and_impl_count(NAME)) == (1, 4)
    dump = dispatcher.dump(NAME).splitlines()
    assert "alias analysis kind: CONSERVATIVE (default)" in dump
    assert f"CUDA: {DEBUG} :: (none) [ boxed ]" in dump
    assert dump[-1].startswith("catchall: " if semantics == "pr35061" else "CompositeImplicitAutograd[alias]: ")
    assert repr(operators) == "<RegisterOperators with 1 operators>"
    operators = None
    gc.collect()
    assert state(dispatcher) == before
