"""Modules come as a whole, in orders that Python can make; and what is found over these."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.live.recording.module_blocks import blocks_of
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Def, Fallback, Impl, Registration
from dispatchlab.model.schema_parser import parse_schema
from dispatchlab.model.snapshot import Snapshot, Violation
from dispatchlab.prover.all_orders import orders_keeping
from dispatchlab.prover.chains import Chains, Module, normal
from dispatchlab.prover.limits import WalkName, WalkOptions
from dispatchlab.prover.modules import chains_of, explore_modules
from dispatchlab.prover.protocol import Engine, Handle, Sandbox
from dispatchlab.prover.result import Exploration, Flaw, Verdict
from tests.effort import examples

pytestmark = pytest.mark.filterwarnings("ignore:.*is overridden")

FOO, BAR = OperatorName("test", "foo"), OperatorName("test", "bar")
DEF = Def(parse_schema("test::foo(Tensor x) -> Tensor"))
CPU, CPU_TOO = Impl(FOO, DispatchKey.CPU, debug="fn_1"), Impl(FOO, DispatchKey.CPU, debug="fn_2")
CUDA, OTHER = Impl(FOO, DispatchKey.CUDA, debug="fn_cuda"), Impl(BAR, DispatchKey.CPU, debug="fn_bar")


def explored(
    registrations: list[Registration],
    *modules: Module,
    engine: Engine | None = None,
    walk: WalkName = "graph",
    order: Chains = (),
) -> Exploration:
    engine = engine or LabEngine("strict")
    return explore_modules(engine, registrations, [FOO, BAR], modules, WalkOptions(walk=walk), order=order)


# -- the orders


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, list[int | str]]:
    """Up to five modules, packages among them, that import each other in any way; 0 stands for a registration."""
    shuffled: list[str] = draw(st.permutations(["a", "a.x", "a.y", "b", "c"]))
    names = shuffled[: draw(st.integers(1, 5))]
    lines = {
        name: st.just(0) | st.sampled_from([other for other in names if other != name] or [name]) for name in names
    }
    return {name: draw(st.lists(line, max_size=4)) for name, line in lines.items()}


def made_by_python(text: dict[str, list[int | str]], roots: tuple[str, ...]) -> list[tuple[str, int]]:
    """What is registered, as module and line, when modules are imported one after the other."""
    made: list[tuple[str, int]] = []
    begun: set[str] = set()

    def load(name: str) -> None:
        parts = name.split(".")
        for each in (".".join(parts[: length + 1]) for length in range(len(parts))):
            if each in begun or each not in text:
                continue
            begun.add(each)
            for line, item in enumerate(text[each]):
                if isinstance(item, str):
                    load(item)
                else:
                    made.append((each, line))

    for root in roots:
        load(root)
    return made


@examples(600)
@given(bodies(), st.randoms(use_true_random=False))
def test_every_order_of_the_modules_of_a_record_is_one_that_python_makes(
    text: dict[str, list[int | str]], random: Random
) -> None:
    roots = [*text]
    random.shuffle(roots)
    recorded = made_by_python(text, tuple(roots))
    number = {event: at for at, event in enumerate(recorded)}
    found, order = blocks_of(
        {
            name: [item if isinstance(item, str) else number[name, line] for line, item in enumerate(body)]
            for name, body in text.items()
        }
    )
    assert sorted(index for module in found for index in module.registrations) == list(range(len(recorded)))
    owners = [sorted({recorded[index][0] for index in module.registrations}) for module in found]
    chains = chains_of(found, normal(order))
    for places in list(orders_keeping(len(found), chains))[:24]:
        expected = [recorded[index] for place in places for index in found[place].registrations]
        entries = product(*(_entries(owners[place], text) for place in places))
        assert any(made_by_python(text, entry) == expected for entry in entries)


def _entries(owners: list[str], text: dict[str, list[int | str]]) -> list[str]:
    """The modules by which a circle may be entered: any of those that are there."""
    return [*owners, *(name for name in text if name not in owners)]


def test_a_package_and_what_its_init_imports_is_one_block() -> None:
    found, order = blocks_of(
        {"shop": ["shop.one", "shop.two"], "shop.one": [0, 1], "shop.two": [2], "till": ["shop", 3]}
    )
    assert found == (Module("shop", (0, 1, 2)), Module("till", (3,)))
    assert order == ((2, 3),)


def test_what_registers_nothing_hands_its_imports_on() -> None:
    found, order = blocks_of({"last": ["idle", 1], "idle": ["first"], "first": [0], "free": [2]})
    assert (found, order) == ((Module("first", (0,)), Module("last", (1,)), Module("free", (2,))), ((0, 1),))


# -- what is found


@pytest.mark.parametrize("walk", ["graph", "orders", "sample"])
def test_two_modules_that_override_each_other_are_found(walk: WalkName) -> None:
    found = explored([DEF, CPU, CPU_TOO, CUDA], Module("one", (0, 1)), Module("two", (2, 3)), walk=walk)
    assert (found.verdict, found.walk, found.modules, found.orders) == (Verdict.ORDER_DEPENDENT, "imports", 2, 2)
    assert found.counterexample is not None
    assert found.counterexample.flaw is Flaw.NON_COMMUTING
    assert sorted([found.counterexample.expected_sequence, found.counterexample.actual_sequence]) == [
        (0, 1, 2, 3),
        (2, 3, 0, 1),
    ]
    both = "the registrations fn_1 and fn_2 both set the CPU kernel of test::foo"
    assert found.counterexample.why == (f"{both}. A later registration replaces an earlier registration",)


def test_one_module_that_overrides_its_own_kernel_has_one_order() -> None:
    found = explored([DEF, CPU, CPU_TOO], Module("one", (0, 1, 2)))
    assert (found.verdict, found.orders, found.sets, found.conflicts) == (Verdict.ORDER_INDEPENDENT, 1, 4, ())
    assert found.notes[-1].startswith("checked: the one order of importing one, each module as a whole")


def test_a_chain_keeps_the_order_that_an_import_makes() -> None:
    modules = Module("one", (0,)), Module("two", (1,))
    free, kept = explored([CPU, CPU_TOO], *modules), explored([CPU, CPU_TOO], *modules, order=[(0, 1)])
    assert (free.verdict, kept.verdict) == (Verdict.ORDER_DEPENDENT, Verdict.ORDER_INDEPENDENT)
    assert (free.orders, kept.orders) == (2, 1)


def test_modules_without_a_part_in_it_are_left_out_of_a_counterexample() -> None:
    everywhere = Fallback(DispatchKey.AutogradCPU)
    found = explored([everywhere, CPU, OTHER, CPU_TOO, CUDA], *(Module(name, (at,)) for at, name in enumerate("abcde")))
    assert found.counterexample is not None
    steps = {*found.counterexample.expected_sequence, *found.counterexample.actual_sequence}
    assert steps == {1, 3}


def test_modules_that_share_nothing_are_taken_by_themselves() -> None:
    some = [Impl(OperatorName("test", f"op{at}"), DispatchKey.CPU, debug=f"fn_{at}") for at in range(30)]
    found = explored(list(some), *(Module(f"m{at}", (at,)) for at in range(30)))
    assert (found.verdict, found.components, found.sets) == (Verdict.ORDER_INDEPENDENT, 30, 60)


class _Fussy:
    """A sandbox that refuses a kernel before the def, as `torch.library.register_fake` does."""

    def __init__(self, inner: Sandbox) -> None:
        self._inner, self._defined = inner, False

    def register(self, registration: Registration, /) -> Handle:
        if isinstance(registration, Impl) and not self._defined:
            raise RegistrationError(ErrorKind.OTHER, "there is no def yet")
        self._defined |= isinstance(registration, Def)
        return self._inner.register(registration)

    def snapshot(self, operator: OperatorName, /) -> Snapshot:
        return self._inner.snapshot(operator)

    def violations(self, operator: OperatorName, /) -> tuple[Violation, ...]:
        return self._inner.violations(operator)


class FussyEngine:
    """The lab's engine with fussy sandboxes, and no states that could be kept."""

    name, semantics = "fussy", "strict"

    def sandbox(self) -> _Opened:
        return _Opened()


class _Opened:
    def __init__(self) -> None:
        self._manager = LabEngine("strict").sandbox()

    def __enter__(self) -> Sandbox:
        return _Fussy(self._manager.__enter__())

    def __exit__(self, *error: object) -> None:
        self._manager.__exit__(None, None, None)


def test_the_lines_of_a_module_are_not_run_before_one_another() -> None:
    found = explored([DEF, CPU], Module("ops", (0, 1)), engine=FussyEngine())
    assert (found.verdict, found.conflicts, found.never_accepted) == (Verdict.NO_VIOLATION_FOUND, (), ())


def test_an_import_that_fails_in_one_order_alone_is_order_dependent() -> None:
    found = explored([DEF, CPU], Module("defs", (0,)), Module("kernels", (1,)), engine=FussyEngine())
    assert found.verdict is Verdict.ORDER_DEPENDENT
    assert found.counterexample is not None
    shown = found.counterexample
    assert (shown.flaw, shown.expected_sequence, shown.actual_sequence) == (Flaw.OUTCOME, (0, 1), (1,))
    assert "-+1 accepted\n++1 refused: other\n+there is no def yet\n" in shown.diff


def test_what_fails_in_every_order_is_refused_and_not_order_dependent() -> None:
    found = explored([DEF, DEF, CPU], Module("one", (0,)), Module("two", (1, 2)))
    assert found.verdict is Verdict.NO_VIOLATION_FOUND  # the order decides which of them is in force
    assert [conflict.members for conflict in found.conflicts] == [(0, 1)]
