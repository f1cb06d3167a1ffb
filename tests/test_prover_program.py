"""Programs: the orders in which modules are imported, against Python's own imports; and what is found over them."""

from __future__ import annotations

import random
import sys
from itertools import groupby, permutations, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Def, Fallback, Impl, Registration
from dispatchlab.model.schema_parser import parse_schema
from dispatchlab.model.snapshot import Snapshot, Violation
from dispatchlab.prover.program import Module, Program, modules_of
from dispatchlab.prover.program_walk import explore_program
from dispatchlab.prover.protocol import Engine, Handle, Sandbox
from dispatchlab.prover.result import Exploration, Flaw, Verdict
from dispatchlab.prover.walk_options import WalkName, WalkOptions
from tests.effort import examples

pytestmark = pytest.mark.filterwarnings("ignore:.*is overridden")

FOO, BAR = OperatorName("test", "foo"), OperatorName("test", "bar")
DEF = Def(parse_schema("test::foo(Tensor x) -> Tensor"))
CPU, CPU_TOO = Impl(FOO, DispatchKey.CPU, debug="fn_1"), Impl(FOO, DispatchKey.CPU, debug="fn_2")
CUDA, OTHER = Impl(FOO, DispatchKey.CUDA, debug="fn_cuda"), Impl(BAR, DispatchKey.CPU, debug="fn_bar")


def explored(
    registrations: list[Registration], *modules: Module, engine: Engine | None = None, walk: WalkName = "graph"
) -> Exploration:
    return explore_program(
        engine or LabEngine("strict"),
        registrations,
        [FOO, BAR],
        Program.of(len(registrations), modules),
        WalkOptions(walk=walk),
    )


@st.composite
def modules(draw: st.DrawFn) -> list[Module]:
    """Up to four modules, packages among them, that import each other in any way; a number for each registration."""
    shuffled: list[str] = draw(st.permutations(["a", "a.x", "b", "c"]))
    names = shuffled[: draw(st.integers(1, 4))]
    found, number = [], 0
    for name in names:
        body: list[int | str] = []
        for _ in range(draw(st.integers(0, 3))):
            others = [other for other in names if other != name and other not in body]
            if draw(st.booleans()) and others:
                body.append(draw(st.sampled_from(others)))
            else:
                body.append(number)
                number += 1
        found.append(Module(name, tuple(body)))
    return found


def orders_of_python(found: list[Module]) -> set[tuple[int, ...]]:
    """The orders that come of importing the modules in any order, with import lines in any order.

    A package that registers nothing constrains nothing: importing its module is two lines, in any order.
    """
    making = {module.name for module in found if any(isinstance(item, int) for item in module.body)}
    if any(module.name == "a" for module in found):
        found = [Module(module.name, with_package(module, separate="a" not in making)) for module in found]
    choices: dict[str, list[tuple[tuple[int | str, ...], ...]]] = {}
    for module in found:
        runs = [list(run) for _, run in groupby(module.body, key=lambda item: isinstance(item, str))]
        ways = [permutations(run) if isinstance(run[0], str) else [tuple(run)] for run in runs]
        choices[module.name] = list(product(*ways))
    orders = set()
    for arrangement in product(*choices.values()):
        text = {name: [item for run in runs for item in run] for name, runs in zip(choices, arrangement, strict=True)}
        for roots in permutations(text):
            orders.add(made_by_python(text, roots, making))
    return orders


def with_package(module: Module, *, separate: bool) -> tuple[int | str, ...]:
    """The body of a module without imports of its package; if `separate`, `import a.x` is two lines."""
    if module.name == "a.x":
        return tuple(item for item in module.body if item != "a")
    lines: list[int | str] = []
    for item in module.body:
        lines += ["a", item] if separate and item == "a.x" and module.name != "a" else [item]
    return tuple(lines)


def made_by_python(text: dict[str, list[int | str]], roots: tuple[str, ...], making: set[str]) -> tuple[int, ...]:
    """What is registered when these modules are imported one after the other, packages before their modules."""
    made: list[int] = []
    begun: set[str] = set()

    def load(name: str) -> None:
        parts = name.split(".")
        for each in (".".join(parts[: length + 1]) for length in range(len(parts))):
            if each in begun or (each != name and each not in making):
                continue
            begun.add(each)
            for item in text[each]:
                if isinstance(item, int):
                    made.append(item)
                else:
                    load(item)

    for root in roots:
        load(root)
    return tuple(made)


def imports_more_in_between(found: list[Module]) -> bool:
    """Whether a line between registrations imports a module that imports others; they may be lines of their own."""
    bodies = {module.name: module.body for module in found}
    for body in bodies.values():
        first = next((at for at, item in enumerate(body) if isinstance(item, int)), len(body))
        for name in body[first:]:
            if isinstance(name, str) and ("." in name or any(isinstance(item, str) for item in bodies[name])):
                return True
    return False


@examples(200)
@given(modules())
def test_the_orders_are_those_that_python_comes_to_with_imports_in_every_order(found: list[Module]) -> None:
    count = sum(isinstance(item, int) for module in found for item in module.body)
    program = Program.of(count, found)
    orders = list(program.orders())
    assert len(set(orders)) == len(orders)
    assert set(orders) >= orders_of_python(found)
    if not imports_more_in_between(found):
        assert set(orders) == orders_of_python(found)
    assert 1 <= len(orders) <= program.count_orders()
    assert all(program.allows(order) for order in orders)


@examples(100)
@given(modules(), st.randoms(use_true_random=False))
def test_a_restricted_program_has_all_orders_without_the_registrations_left_out(
    found: list[Module], choose: random.Random
) -> None:
    count = sum(isinstance(item, int) for module in found for item in module.body)
    members = [index for index in range(count) if choose.random() < 0.6]
    program = Program.of(count, found)
    left = {tuple(members.index(step) for step in order if step in members) for order in program.orders()}
    # What is left out kept some apart; the program of the others may have more orders for it, and never fewer.
    assert left <= set(program.restricted_to(members).orders())
    assert left <= set(Program.of(len(members), modules_of(found, members)).orders())


@examples(60)
@given(modules())
def test_where_many_modules_are_in_circles_no_order_is_lost(found: list[Module]) -> None:
    count = sum(isinstance(item, int) for module in found for item in module.body)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dispatchlab.prover.program._MAX_CYCLIC", 0)
        assert set(Program.of(count, found).orders()) >= orders_of_python(found)


def test_modules_of_a_circle_that_register_nothing_double_no_positions() -> None:
    names = [f"idle_{number}" for number in range(40)]
    found = [Module(name, (names[number - 1], f"made_{number % 3}")) for number, name in enumerate(names)]
    found += [Module(f"made_{number}", (number,)) for number in range(3)]
    found.append(Module("last", ("made_2", *names, 3)))
    program = Program.of(4, found)
    assert set(program.orders()) == {order for order in permutations(range(4)) if order.index(2) < order.index(3)}


def test_python_imports_the_same_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "lp_shop/__init__.py": "import sys\nsys.lp_log.append(0)\nfrom . import one, two\nsys.lp_log.append(5)\n",
        "lp_shop/one.py": "import sys\nsys.lp_log.append(1)\nimport lp_shop.base\nsys.lp_log.append(3)\n",
        "lp_shop/base.py": "import sys\nsys.lp_log.append(2)\n",
        "lp_shop/two.py": "import sys\nfrom lp_shop.base import sys\nsys.lp_log.append(4)\n",
    }
    (tmp_path / "lp_shop").mkdir()
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    log: list[int] = []
    monkeypatch.setattr(sys, "lp_log", log, raising=False)
    try:
        __import__("lp_shop.two")
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "lp_shop"]:
            del sys.modules[name]
    shop = [
        Module("lp_shop", (0, "lp_shop.one", "lp_shop.two", 5)),
        Module("lp_shop.one", (1, "lp_shop.base", 3)),
        Module("lp_shop.base", (2,)),
        Module("lp_shop.two", ("lp_shop.base", 4)),
    ]
    orders = list(Program.of(6, shop).orders())
    assert tuple(log) in orders
    # Python has no order with 3 before 4 after 2 unless `import lp_shop.base` is a line of its own.
    assert orders == [(0, 1, 2, 3, 4, 5), (0, 2, 1, 3, 4, 5), (0, 2, 4, 1, 3, 5)]


def test_modules_that_import_each_other_end_in_the_order_in_which_they_began() -> None:
    both = Program.of(2, [Module("b", ("a", 0)), Module("a", ("b", 1))])
    assert list(both.orders()) == [(0, 1), (1, 0)]


def test_a_circle_through_a_module_that_registers_nothing_has_an_order_from_there() -> None:
    texts = [Module("entry", ("one", "other")), Module("one", ("entry", 0)), Module("other", (1,))]
    # From `entry`, `one` runs while `other` waits; from `one`, all of `entry` comes first.
    assert list(Program.of(2, texts).orders()) == [(0, 1), (1, 0)]
    before = [Module("entry", ("one", 2, "other")), Module("one", ("entry", 0)), Module("other", (1,))]
    assert list(Program.of(3, before).orders()) == [(0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 1, 0)]


@pytest.mark.parametrize("walk", ["graph", "orders", "sample"])
def test_two_modules_that_override_each_other_are_found(walk: WalkName) -> None:
    found = explored([DEF, CPU, CPU_TOO, CUDA], Module("one", (0, 1)), Module("two", (2, 3)), walk=walk)
    assert (found.verdict, found.walk, found.modules, found.orders) == (Verdict.ORDER_DEPENDENT, "program", 2, 2)
    assert found.counterexample is not None
    assert found.counterexample.flaw is Flaw.NON_COMMUTING
    assert sorted([found.counterexample.expected_sequence, found.counterexample.actual_sequence]) == [
        (0, 1, 2, 3),
        (2, 3, 0, 1),
    ]


@pytest.mark.parametrize("walk", ["graph", "orders"])
def test_one_module_that_overrides_its_own_kernel_is_a_program(walk: WalkName) -> None:
    found = explored([DEF, CPU, CPU_TOO], Module("one", (0, 1, 2)), walk=walk)
    assert (found.verdict, found.orders, found.sets, found.conflicts) == (Verdict.ORDER_INDEPENDENT, 1, 4, ())
    assert found.notes[-1].startswith("this is about the one order in which one can be imported, with the lines of")


def test_an_import_keeps_the_order_that_it_makes() -> None:
    free = explored([CPU, CPU_TOO], Module("one", (0,)), Module("two", (1,)))
    kept = explored([CPU, CPU_TOO], Module("one", (0,)), Module("two", ("one", 1)))
    assert (free.verdict, kept.verdict) == (Verdict.ORDER_DEPENDENT, Verdict.ORDER_INDEPENDENT)
    assert (free.orders, kept.orders) == (2, 1)


def test_modules_without_a_part_in_it_are_left_out_of_a_counterexample() -> None:
    everywhere = Fallback(DispatchKey.AutogradCPU)
    found = explored([everywhere, CPU, OTHER, CPU_TOO, CUDA], *(Module(name, (at,)) for at, name in enumerate("abcde")))
    assert found.counterexample is not None
    steps = {*found.counterexample.expected_sequence, *found.counterexample.actual_sequence}
    assert steps == {1, 3}


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
    kind: type[_Fussy] = _Fussy

    def __init__(self) -> None:
        self._manager = LabEngine("strict").sandbox()

    def __enter__(self) -> Sandbox:
        return self.kind(self._manager.__enter__())

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
    alone = explored([CPU, OTHER], Module("one", (0, 1)), engine=FussyEngine())
    assert [conflict.members for conflict in alone.conflicts] == [(0,)]
    assert alone.never_accepted == (0,)
    assert alone.notes[0] == "1 registration that comes after a refused one in its module was never reached"


class _Moody(_Fussy):
    """A sandbox that shows the number of times that it was looked at in all."""

    looks = 0

    def snapshot(self, operator: OperatorName, /) -> Snapshot:
        _Moody.looks += 1
        return Snapshot(operator, f"look {_Moody.looks}\n", "")


def test_an_engine_that_does_not_do_the_same_twice_is_found_out() -> None:
    class MoodyEngine(FussyEngine):
        def sandbox(self) -> _Opened:
            opened = _Opened()
            opened.kind = _Moody
            return opened

    found = explored([DEF, CPU], Module("ops", (0, 1)), engine=MoodyEngine())
    assert found.verdict is Verdict.NONDETERMINISTIC
