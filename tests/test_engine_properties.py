"""Laws of the engine: refused is unchanged, released is never registered, and order counts only where it must."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatchlab.engine.dispatcher import Dispatcher, OverrideWarning
from dispatchlab.engine.handle import RegistrationHandle
from dispatchlab.engine.lab_engine import LabEngine, LabSpace, LabState
from dispatchlab.engine.semantics import semantics_named
from dispatchlab.errors import RegistrationError
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import (
    AliasKind,
    Block,
    BlockKind,
    Claim,
    Def,
    Fallback,
    Impl,
    NameOnly,
    Registration,
)
from tests.effort import examples
from tests.engine_shorthand import BAR, BOXED, FALLTHROUGH, FOO, TYPED, K, define, typed

exactly = examples(300)

KEYS: tuple[DispatchKey | None, ...] = (
    *(None, K.Undefined, K.CPU, K.CUDA, K.QuantizedCPU, K.NestedTensorCPU, K.AutogradCPU, K.AutogradOther, K.Dense),
    *(K.Autograd, K.CompositeImplicitAutograd, K.CompositeExplicitAutograd, K.CompositeExplicitAutogradNonFunctional),
    *(K.CompositeImplicitAutogradNestedTensor, K.FuncTorchBatchedDecomposition, K.Sparse, K.FPGA),
)
KERNELS = (
    BOXED,
    FALLTHROUGH,
    TYPED,
    typed("(Tensor _0) -> Tensor _0", "by value"),
    typed("(Tensor _0, int _1) -> Tensor _0"),
)
SCHEMAS = ("test::foo(Tensor x) -> Tensor", "test::foo(Tensor x, int y) -> Tensor", "test::bar(Tensor x) -> Tensor")
TOO_MANY = f"test::foo({', '.join(f'int x{i}' for i in range(65))}) -> Tensor"

keys = st.sampled_from(KEYS)
kernels = st.sampled_from(KERNELS)
names = st.sampled_from((FOO, FOO, BAR, OperatorName("", "foo")))
aliases = st.sampled_from((None, AliasKind.FROM_SCHEMA, AliasKind.PURE_FUNCTION))
schemas = st.sampled_from((*SCHEMAS, TOO_MANY)).map(lambda text: define(text).schema)
defs = st.builds(
    Def,
    st.one_of(schemas, st.just(FOO)),
    aliases,
    st.sampled_from((frozenset(), frozenset({"core"}))),
    st.just("def"),
    st.one_of(st.none(), kernels),
    keys,
)
impls = st.builds(Impl, names.filter(lambda name: bool(name.namespace)), keys, kernels, st.just("impl"))
fallbacks = st.builds(Fallback, keys, st.sampled_from((BOXED, FALLTHROUGH)), st.just("fallback"))
blocks = st.builds(
    Block,
    st.sampled_from(("test", "other", None)),
    st.sampled_from(tuple(BlockKind)),
    st.lists(st.one_of(defs, st.builds(Impl, names, keys, kernels), fallbacks), max_size=4).map(tuple),
    st.sampled_from((None, None, K.CPU, K.Undefined)),
)
registrations = st.one_of(
    defs, impls, impls, fallbacks, blocks, st.builds(NameOnly, st.sampled_from((FOO, BAR))), st.just(Claim("test"))
)
registration_lists = st.lists(registrations, min_size=1, max_size=6)
STRICT_LIKE = ("strict", "pr35061")


def run(semantics: str, given: Sequence[Registration]) -> tuple[Dispatcher, list[RegistrationHandle]]:
    """A dispatcher with all of these that it accepts."""
    dispatcher = Dispatcher.for_scenario(semantics)
    handles = []
    for registration in given:
        try:
            handles.append(dispatcher.register(registration))
        except RegistrationError:
            continue
    return dispatcher, handles


@pytest.mark.filterwarnings("ignore::dispatchlab.engine.dispatcher.OverrideWarning")
@pytest.mark.parametrize("semantics", STRICT_LIKE)
@exactly
@given(registration_lists, registrations)
def test_a_registration_that_is_refused_leaves_no_trace(
    semantics: str, before: list[Registration], last: Registration
) -> None:
    dispatcher, handles = run(semantics, before)
    found = dict(dispatcher.state)
    seen = [dispatcher.snapshot(name) for name in (FOO, BAR)]
    try:
        handles.append(dispatcher.register(last))
    except RegistrationError:
        assert dispatcher.state == found
        assert [dispatcher.snapshot(name) for name in (FOO, BAR)] == seen
    dispatcher.check_invariants()


@pytest.mark.parametrize("semantics", STRICT_LIKE)
@exactly
@given(registration_lists, registrations)
def test_releasing_what_was_just_registered_gives_the_state_back(
    semantics: str, before: list[Registration], last: Registration
) -> None:
    space = LabEngine(semantics).space([*before, last], [FOO, BAR])
    now = space.empty()
    for index in range(len(before)):
        now, _ = space.register(now, index)
    after, refusal = space.register(now, len(before))
    assert (after if refusal is not None else space.release(after, len(before))) == now


@pytest.mark.filterwarnings("ignore::dispatchlab.engine.dispatcher.OverrideWarning")
@pytest.mark.parametrize("semantics", ["strict", "torch-2.13", "pr35061"])
@exactly
@given(registration_lists, st.randoms(use_true_random=False))
def test_when_all_is_released_nothing_is_left(semantics: str, given: list[Registration], random: object) -> None:
    dispatcher, handles = run(semantics, given)
    if semantics != "torch-2.13":
        dispatcher.check_invariants()
    random.shuffle(handles)  # type: ignore[attr-defined]  # hypothesis gives a Random
    for handle in handles:
        handle.release()
    if semantics != "torch-2.13":
        assert dispatcher.state == Dispatcher.for_scenario(semantics).state
    assert all(dispatcher.def_and_impl_count(name) == 0 for name in (FOO, BAR)) or semantics == "torch-2.13"


distinct = st.lists(
    st.one_of(
        st.builds(Impl, st.just(FOO), keys, st.sampled_from((BOXED, FALLTHROUGH, TYPED)), st.just("impl")),
        st.builds(Fallback, st.sampled_from((K.CPU, K.AutogradCPU, K.XLA)), st.just(BOXED), st.just("fallback")),
        st.just(define()),
        st.just(NameOnly(FOO)),
    ),
    min_size=1,
    max_size=7,
    unique_by=lambda one: (type(one), _target(one)),
)


def _target(registration: Registration) -> object:
    if isinstance(registration, Impl | Fallback):
        composite = isinstance(registration, Impl) and registration.key in (None, K.Undefined)
        return K.CompositeImplicitAutograd if composite else registration.key
    return None


def _whole(semantics: str, given: Sequence[Registration], order: Sequence[int]) -> LabState:
    space = LabSpace(given, [FOO], semantics_named(semantics))
    now = space.empty()
    for index in order:
        now, refusal = space.register(now, index)
        assert refusal is None
    return now


@exactly
@given(st.data(), distinct)
def test_the_state_is_a_function_of_the_set_in_force_when_no_two_share_a_key(
    data: st.DataObject, given: list[Registration]
) -> None:
    space = LabEngine("strict").space(given, [FOO])
    straight = space.empty()
    for index in range(len(given)):
        straight, refusal = space.register(straight, index)
        assert refusal is None
    order = data.draw(st.permutations(range(len(given))))
    there_and_back = space.empty()
    for index in order:
        there_and_back, _ = space.register(there_and_back, index)
        if data.draw(st.booleans()):
            there_and_back, _ = space.register(space.release(there_and_back, index), index)
    assert there_and_back == straight
    assert hash(there_and_back) == hash(straight)
    assert space.observe(there_and_back) == space.observe(straight)
    assert space.violations(straight) == ()
    gone = data.draw(st.sets(st.sampled_from(range(len(given)))))
    for index in gone:
        straight = space.release(straight, index)
    alone = space.empty()
    for index in set(range(len(given))) - gone:
        alone, _ = space.register(alone, index)
    assert alone == straight


def test_under_pytorch_semantics_the_same_law_does_not_hold() -> None:
    given = [Impl(FOO, None), Impl(FOO, K.CompositeExplicitAutograd)]
    assert _whole("torch-2.13", given, (0, 1)) != _whole("strict", given, (0, 1))
    space = LabEngine("torch-2.13").space(given, [FOO])
    states = []
    for order in ((0, 1), (1, 0)):
        now = space.empty()
        for index in order:
            now, _ = space.register(now, index)
        states.append(now)
    assert states[0] != states[1]
    assert [len(space.violations(one)) for one in states] == [1, 0]


def test_the_dispatcher_and_the_space_of_states_do_the_same() -> None:
    given: list[Registration] = [define(), Impl(FOO, None), Impl(FOO, K.CPU), Fallback(K.XLA, BOXED), Impl(FOO, K.CPU)]
    steps = 0
    for semantics in ("strict", "torch-2.13", "pr35061"):
        space = LabEngine(semantics).space(given, [FOO])
        dispatcher, now = Dispatcher.for_scenario(semantics), space.empty()
        handles: dict[int, RegistrationHandle] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OverrideWarning)
            for step in (0, 1, 2, ~0, 3, 4, ~2, 0, ~1, ~3, ~4, ~0):
                if step >= 0:
                    handles[step] = dispatcher.register(given[step])
                    now, refusal = space.register(now, step)
                    assert refusal is None
                else:
                    handles.pop(~step).release()
                    now = space.release(now, ~step)
                assert dispatcher.snapshot(FOO) == space.observe(now)[0]
                assert dispatcher.violations(FOO) == space.violations(now)
                steps += 1
        assert now == space.empty()
    assert steps == 36
