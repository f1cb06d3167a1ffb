"""The long tests of tests/test_prover_program.py, which the quick tier leaves out."""

from __future__ import annotations

import pytest

from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Impl
from dispatchlab.prover.prng import SplitMix64
from dispatchlab.prover.program import Module, Program
from dispatchlab.prover.result import Verdict
from tests import test_prover_program
from tests.test_prover_program import explored

pytestmark = test_prover_program.pytestmark


def test_a_package_of_a_hundred_modules_that_import_each_other_has_orders() -> None:
    names = [f"package.module_{number}" for number in range(100)]
    random_numbers = SplitMix64(1)
    found = [Module("package", (100, *names))]
    for number, name in enumerate(names):
        others = {names[random_numbers.below(100)] for _ in range(5)} - {name}
        found.append(Module(name, (*sorted(others), number)))
    program = Program.of(101, found)
    order = program.random_order(random_numbers)
    assert sorted(order) == list(range(101))
    assert program.allows(order)


@pytest.mark.parametrize(("count", "is_noted"), [(6, False), (7, True)])
def test_a_report_says_when_more_orders_than_there_are_were_explored(count: int, *, is_noted: bool) -> None:
    names = [f"m{number}" for number in range(count)]
    circle = [Module(name, (at, names[(at + 1) % count])) for at, name in enumerate(names)]
    registrations = [Impl(OperatorName("test", f"op{at}"), DispatchKey.CPU, debug=f"fn_{at}") for at in range(count)]
    found = explored(list(registrations), *circle)
    assert any("7 modules import each other in circles" in note for note in found.notes) is is_noted
    assert found.verdict is Verdict.ORDER_INDEPENDENT
    program = Program.of(count, circle)
    assert program.count_orders() >= sum(1 for _ in program.orders())
