"""States as integers against states as values: the same transitions, and nothing left out of what a memo is kept by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from dispatchlab.engine import coded_states
from dispatchlab.engine.coded_states import CodedSpace
from dispatchlab.engine.fallbacks import Fallbacks
from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.engine.lab_space import LabSpace
from dispatchlab.engine.precedence import Kernels, Slots
from dispatchlab.engine.semantics import SEMANTICS, Semantics
from dispatchlab.engine.state import FALLBACKS, NamespaceVariable
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.registration import BlockKind, Claim, Def, NameOnly, Registration
from dispatchlab.model.schema_parser import parse_schema
from dispatchlab.model.slot_set import KEY_BIT
from dispatchlab.prover.explore import explore
from dispatchlab.prover.graph_walk import explore_graph
from dispatchlab.prover.prng import SplitMix64
from dispatchlab.prover.result import Verdict
from tests.effort import examples
from tests.engine_shorthand import ALL_SEMANTICS, BAR, BOXED, FOO, TYPED, K, block, define, fallback, impl, typed
from tests.test_engine_properties import registration_lists

ROOT = Path(__file__).parent.parent / "scenarios"


def disagreement(space: CodedSpace, count: int, steps: Sequence[int]) -> str | None:
    """The first step after which the integers say something else than the values; steps toggle registrations."""
    plain = space.plain
    ours, theirs, mask = space.empty(), plain.empty(), 0
    codes = {theirs: ours}
    for at, chosen in enumerate(steps):
        index = chosen % count
        refusal = wanted = None
        if mask >> index & 1:
            ours, theirs = space.release(ours, index), plain.release(theirs, index)
        else:
            ours, refusal = space.register(ours, index)
            theirs, wanted = plain.register(theirs, index)
        if refusal != wanted:
            return f"step {at}: {refusal} and not {wanted}"
        if wanted is None:
            mask ^= 1 << index
        if space.decoded(ours) != theirs:
            return f"step {at}: another state"
        if codes.setdefault(theirs, ours) != ours:
            return f"step {at}: two integers for one state"
    if len(set(codes.values())) != len(codes):
        return "one integer for two states"
    return None


SEVERAL: list[Registration] = [
    block(BlockKind.FRAGMENT, define(), define("test::bar(Tensor x) -> Tensor")),
    block(BlockKind.IMPL, impl(None, "one", TYPED), impl(None, "one", typed(signature="b"), BAR), key=K.CPU),
    block(BlockKind.IMPL, impl(None, "two", typed(signature="a")), impl(None, "two", TYPED, BAR), key=K.CUDA),
    block(BlockKind.IMPL, impl(None, "three", BOXED), impl(None, "three", TYPED, BAR), key=K.Autograd),
    Def(parse_schema("test::foo(Tensor x) -> Tensor"), kernel=TYPED, debug="def with a kernel"),
    fallback(K.Sparse, "at several keys"),
    NameOnly(BAR),
]


def test_a_part_of_a_space_records_what_it_touches_with_the_whole() -> None:
    whole = CodedSpace([*ten(), impl(K.CPU, "elsewhere", operator=BAR)], [FOO, BAR], SEMANTICS["strict"])
    before = whole.touched()
    part = whole.restricted(range(2, 11), [FOO])
    assert isinstance(part, CodedSpace)
    part.register(part.empty(), 8)
    assert str(BAR) in whole.touched() - before


@pytest.mark.parametrize("semantics", ALL_SEMANTICS)
@examples(30)
@given(registration_lists)
def test_a_walk_on_integers_is_a_walk_on_values(semantics: str, given: list[Registration]) -> None:
    spaces = CodedSpace(given, [FOO, BAR], SEMANTICS[semantics]), LabSpace(given, [FOO, BAR], SEMANTICS[semantics])
    ours, theirs = (replace(explore_graph(space, len(given)), elapsed_s=0.0) for space in spaces)
    assert ours == theirs
    assert spaces[0].touched() <= {*spaces[1].touched(), *map(str, (FOO, BAR))}


@pytest.mark.parametrize("semantics", ALL_SEMANTICS)
def test_fallbacks_that_replace_others_are_followed(semantics: str) -> None:
    two = fallback(K.AutogradPrivateUse1, "a"), fallback(K.AutogradPrivateUse1, "b")
    given: list[Registration] = [*two, impl(K.Autograd), impl()]
    space = CodedSpace(given, [FOO], SEMANTICS[semantics])
    assert disagreement(space, 4, list(_steps(4))) is None


def test_a_long_walk_of_the_engine_is_on_integers() -> None:
    many = [impl(debug=f"fn_{number}") for number in range(33)]
    spaces: list[object] = [LabEngine().space(some, [FOO]) for some in (ten()[:5], ten()[:6], many[:32], many)]
    assert [type(space) for space in spaces] == [LabSpace, CodedSpace, CodedSpace, LabSpace]
    found, plain = explore(LabEngine(), ten()[:8], [FOO]), LabSpace(ten()[:8], [FOO], SEMANTICS["strict"])
    assert (found.verdict, found.edges, found.replayed > 0) == (Verdict.ORDER_INDEPENDENT, 2048, True)
    assert explore_graph(plain, 8).edges == 2048


def test_a_part_with_many_values_gets_more_bits_and_states_from_before_stay() -> None:
    given: list[Registration] = [impl(K.CPU, f"fn_{index}") for index in range(4)]
    ours = replace(explore_graph(CodedSpace(given, [FOO], SEMANTICS["strict"]), 4), elapsed_s=0.0)
    theirs = replace(explore_graph(LabSpace(given, [FOO], SEMANTICS["strict"]), 4), elapsed_s=0.0)
    assert ours == theirs
    given = [NameOnly(FOO) for _ in range(5)]
    ours = explore_graph(CodedSpace(given, [FOO], SEMANTICS["strict"]), 5)
    assert (ours.verdict, ours.sets, ours.states) == (Verdict.ORDER_INDEPENDENT, 32, 326)


def ten() -> list[Registration]:
    keys = (K.CPU, K.CUDA, K.XLA, K.Meta, K.AutogradCPU, K.AutogradCUDA, K.Tracer, K.Autograd, None)
    return [define(debug="def"), *(impl(key, f"fn_{key}", TYPED) for key in keys)]


def test_few_transitions_are_run_and_the_others_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    run = CodedSpace._run

    def counted(self: CodedSpace, state: int, *rest: Any, **named: Any) -> Any:
        ran.append(state)
        return run(self, state, *rest, **named)

    monkeypatch.setattr(CodedSpace, "_run", counted)
    found = explore_graph(LabEngine().space(ten(), [FOO]), 10)
    assert (found.verdict, found.states, found.edges) == (Verdict.ORDER_INDEPENDENT, 1024, 10_240)
    assert 20 <= len(ran) < 1_000


# --- a memo that is keyed too weakly


def _field(name: str) -> Callable[[CodedSpace], Any]:
    return lambda space: space.operator(str(FOO)).field[name]


WEAK: dict[str, tuple[str, Callable[[CodedSpace], Any], list[Registration]]] = {
    "whether the operator exists": ("strict", _field("name"), [impl(K.CPU), impl(K.CUDA)]),
    "defs": (
        "strict",
        _field("defs"),
        [define("test::foo(Tensor x, int y) -> Tensor"), impl(K.CPU, kernel=TYPED), NameOnly(FOO)],
    ),
    "names": ("strict", _field("names"), [NameOnly(FOO), define()]),
    "held signatures": (
        "torch-2.13",
        _field("signatures"),
        [impl(K.CPU, kernel=typed(signature="a")), impl(K.CUDA, kernel=typed(signature="b")), NameOnly(FOO)],
    ),
    "kinds of kernels": ("strict", lambda space: space.operator(str(FOO)).kinds, [impl(K.CPU), impl(K.CUDA)]),
    "kernels at the key": (
        "strict",
        lambda space: space.operator(str(FOO)).at(KEY_BIT[K.CPU]),
        [impl(K.CPU, "older"), impl(K.CPU, "newer"), impl(K.CUDA), NameOnly(FOO)],
    ),
    "fallbacks": ("strict", lambda space: space.other(FALLBACKS), [fallback(K.CPU), NameOnly(FOO)]),
    "claims": ("strict", lambda space: space.other(NamespaceVariable("test")), [Claim("test"), Claim("test", "b")]),
}


def _steps(count: int, length: int = 200) -> Iterator[int]:
    random = SplitMix64(1)
    for _ in range(length):
        yield random.below(count)


@pytest.mark.parametrize("what", WEAK)
def test_every_part_that_is_read_is_needed_in_the_key(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    semantics, forgotten, given = WEAK[what]
    steps = list(_steps(len(given)))
    assert disagreement(CodedSpace(given, [FOO], SEMANTICS[semantics]), len(given), steps) is None
    value = coded_states._WatchedTransaction.value

    def forgetful(self: Any, part: Any) -> Any:
        read = set(self.read)
        found = value(self, part)
        if part is forgotten(self.space):
            self.read = read
        return found

    monkeypatch.setattr(coded_states._WatchedTransaction, "value", forgetful)
    try:
        found = disagreement(CodedSpace(given, [FOO], SEMANTICS[semantics]), len(given), steps)
    except KeyError as error:  # the code of a wrong state can be nobody's
        found = str(error)
    assert found is not None


def coupled() -> Semantics:
    """PyTorch's rules, and a flaw: a refresh of CUDA's slot puts the kernel of XLA there when there is one."""
    strict = SEMANTICS["strict"]
    cuda, xla, right = KEY_BIT[K.CUDA], KEY_BIT[K.XLA], strict.precedence.fill

    def fill(wanted: int, present: int, kernels: Kernels, fallbacks: Fallbacks) -> Slots:
        slots = right(wanted, present, kernels, fallbacks)
        if wanted & cuda and present & cuda and present & xla:
            slots = {held: left for held, bits in slots.items() if (left := bits & ~cuda)}
            held = kernels[xla][0].because(Provenance.KERNEL)
            slots[held] = slots.get(held, 0) | cuda
        return slots

    assert not strict.refresh[K.XLA] & cuda
    return replace(strict, precedence=strict.precedence._replace(fill=fill))


COUPLED: list[Registration] = [impl(K.CPU, "fn_cpu"), impl(K.CUDA, "fn_cuda"), impl(K.XLA, "fn_xla"), define()]
EACH_THEN_CUDA_WITHOUT_XLA = (0, 1, 2, 3, ~0, ~1, ~2, ~3, 0, 1, ~1, ~0)


def _verdict() -> Verdict:
    """The verdict when the first refresh of CUDA that is kept is one without a kernel of XLA."""
    space = CodedSpace(COUPLED, [FOO], coupled())
    state = space.empty()
    for step in EACH_THEN_CUDA_WITHOUT_XLA:
        state = space.release(state, ~step) if step < 0 else space.register(state, step)[0]
    assert state == space.empty()
    return explore_graph(space, len(COUPLED)).verdict


def test_a_planted_coupling_of_two_keys_is_found_and_missed_without_the_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert explore_graph(LabSpace(COUPLED, [FOO], coupled()), 4).verdict is Verdict.ORDER_DEPENDENT
    assert _verdict() is Verdict.ORDER_DEPENDENT

    def unnoted(self: Any, mask: int) -> int:
        self._notes.append(0 if mask == KEY_BIT[K.XLA] else mask)
        bits: int = self._bits & mask
        return bits

    def looked_up(self: Any, bit: int) -> object:
        self._notes.append(bit & ~KEY_BIT[K.XLA])
        return self._kernels[bit]

    for name in ("__and__", "__rand__"):
        monkeypatch.setattr(coded_states._WatchedBits, name, unnoted)
    monkeypatch.setattr(coded_states._WatchedKernels, "__getitem__", looked_up)
    assert _verdict() is Verdict.ORDER_INDEPENDENT  # which is wrong
    monkeypatch.setattr(coded_states, "_EVERY", 3)
    assert _verdict() is Verdict.ORDER_DEPENDENT


def test_a_fill_that_looks_at_everything_and_writes_anywhere_is_followed() -> None:
    strict = SEMANTICS["strict"]
    right, meta = strict.precedence.fill, KEY_BIT[K.Meta]
    kernel = impl(K.Meta, "strayed", BOXED)

    def fill(wanted: int, present: int, kernels: Kernels, fallbacks: Fallbacks) -> Slots:
        slots = right(wanted, int(present), dict(kernels), fallbacks)
        if wanted != strict.precedence.slots and len(kernels) > 1 and present != meta:
            slots[kernels[min(kernels)][0].because(Provenance.KERNEL)] = meta
        return slots

    semantics = replace(strict, precedence=strict.precedence._replace(fill=fill))
    given: list[Registration] = [impl(K.CPU, "a"), impl(K.CUDA, "b"), kernel, NameOnly(FOO)]
    space = CodedSpace(given, [FOO], semantics)
    assert disagreement(space, len(given), list(_steps(len(given)))) is None


# --- invariants that are known to hold


TAGGED = replace(define(debug="tagged"), tags=frozenset({"pointwise"}))
LOOKED_AT: list[Registration] = [
    TAGGED,
    define(debug="plain"),
    impl(K.CPU, "typed", typed(signature="a")),
    impl(K.CPU, "newer", BOXED),
    impl(K.CUDA, "other", typed(signature="b")),
    impl(None, "math", BOXED),
    impl(K.Autograd, "autograd", BOXED),
    fallback(K.XLA, "fb"),
    fallback(K.AutogradCPU, "fb_autograd"),
    NameOnly(FOO),
]
MIXES = 1_500


NEEDED: dict[str, tuple[str, Callable[[CodedSpace], Any], str]] = {
    "whether the operator exists": ("strict", _field("name"), "stale slot"),
    "the schema": ("strict", _field("stored"), "schema without def"),
    "defs": ("strict", _field("defs"), "schema without def"),
    "tags": ("strict", _field("tags"), "tags"),
    "kernels": ("strict", lambda space: space.operator(str(FOO)).at(KEY_BIT[K.CPU]), "stale slot"),
    "kinds of kernels": ("strict", lambda space: space.operator(str(FOO)).kinds, "signatures differ"),
    "held signatures": ("torch-2.13", _field("signatures"), "signature that is not held"),
    "fallbacks": ("strict", lambda space: space.other(FALLBACKS), "stale slot"),
    "slots": ("strict", lambda space: space.operator(str(FOO))._atom_of_slot[KEY_BIT[K.CPU]][1], "stale slot"),
}


def test_few_states_are_looked_at_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []
    violations = LabSpace.violations

    def counted(self: LabSpace, state: Any) -> Any:
        looked.append(state)
        return violations(self, state)

    monkeypatch.setattr(LabSpace, "violations", counted)
    assert explore_graph(LabEngine().space(ten(), [FOO]), 10).states == 1024
    assert 20 <= len(looked) < 400
