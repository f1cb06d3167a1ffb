"""The example of `dispatchlab demo`: two kernels in two orders, a call after each, and the exploration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import NamedTuple

from dispatchlab.call.operators import operator
from dispatchlab.call.tensor import tensor
from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.library import Library
from dispatchlab.model.registration import Def, Impl
from dispatchlab.model.sequence import format_sequence
from dispatchlab.questions.order.blocks import reason_lines
from dispatchlab.questions.order.report import Report
from dispatchlab.questions.order.report_text import sequence_names, step_text
from dispatchlab.questions.order.run_scenario import RunOptions, run_scenario
from dispatchlab.scenario.load import parse_scenario
from dispatchlab.scenario.scenario import Scenario
from dispatchlab.views import blocks as b

RETURNS = {"kernel_a": 2.0, "kernel_b": 3.0}
"""What each kernel of the example multiplies by."""


class Called(NamedTuple):
    """One order of registrations, and a call after it.

    Args:
        order: the registrations by number.
        result: what the call returned for 1.0.
        dump: the dump and the dispatch table of the operator before the call.
    """

    order: tuple[int, ...]
    result: float
    dump: tuple[str, str]


class Demo(NamedTuple):
    """The content of the example.

    Args:
        text: the scenario, as the text of a file.
        calls: both orders.
        report: the exploration of every order.
    """

    text: str
    calls: tuple[Called, Called]
    report: Report


def demo_scenario() -> str:
    """Return the scenario of the example, which comes with the package."""
    return files("dispatchlab.questions.setup").joinpath("demo.yaml").read_text(encoding="utf-8")


def run_demo() -> Demo:
    """Register the kernels in both orders, call after each, and explore every order."""
    text = demo_scenario()
    scenario = parse_scenario(text, file="demo.yaml")
    first, second = (_called(scenario, order) for order in ((0, 1, 2), (0, 2, 1)))
    return Demo(text, (first, second), run_scenario(scenario, RunOptions()).report)


def _called(scenario: Scenario, order: Sequence[int]) -> Called:
    """Register on a fresh dispatcher in this order, and call."""
    dispatcher = Dispatcher(scenario.semantics)
    name = str(scenario.operators[0])
    with Library(scenario.namespace, "FRAGMENT", dispatcher=dispatcher) as library:
        for index in order:
            one = scenario.registrations[index]
            if isinstance(one, Def):
                library.define(str(one.schema).removeprefix(f"{scenario.namespace}::"))
            if isinstance(one, Impl) and one.key is not None:
                kernel = lambda x, factor=RETURNS[one.debug]: tensor(x.numpy() * factor)  # noqa: E731
                library.impl(one.operator, kernel, one.key, debug=one.debug)
        dump = dispatcher.dump(name), dispatcher.dump_table(name)
        result = operator(dispatcher, name)(tensor([1.0]))
    return Called(tuple(order), float(result.numpy()[0]), dump)


NEXT = (
    ("dispatchlab demo --save demo.yaml", "keep this example as a scenario file"),
    ("dispatchlab permute demo.yaml", "show the whole report; --engine torch runs it on your PyTorch"),
    ("dispatchlab doctor", "show what works with your PyTorch"),
    ("dispatchlab init", "in your package's checkout: a first scenario, a golden file, CI"),
)
"""What to do next: each command with what it does."""


def demo_blocks(demo: Demo) -> Iterator[b.Line]:
    """Return the example: registrations, a call after each order, the exploration, and what to do next."""
    names, found = demo.report.registrations, demo.report.exploration
    first, second = demo.calls
    yield b.Line("A package registers an operator and two kernels, on the dispatcher of PyTorch 2.13:")
    yield b.Line()
    for index, name in enumerate(names):
        returns = next((f" returns {value:g} * x" for kernel, value in RETURNS.items() if f"({kernel})" in name), "")
        yield b.Line(f"{index}  {name}{returns}", indent=2)
    yield b.Line()
    yield b.Line("A call with a CPU tensor that holds 1.0 gives two results, one for each order of the kernels:")
    yield b.Line()
    for called in demo.calls:
        yield b.Line(f"{format_sequence(called.order)}  returns {called.result:.1f}", indent=2)
    yield b.Line()
    if first.dump == second.dump:
        yield b.Line(
            "PyTorch prints the same dump and the same dispatch table for both, so a test of these texts finds nothing."
        )
    counterexample, reason = found.counterexample, demo.report.reason
    if counterexample is not None and reason is not None:
        orders = f"every order of registration and release ({found.orders} orders)"
        yield b.Line(f"dispatchlab runs {orders} and finds the reason:")
        yield b.Line()
        yield b.Line(demo.report.verdict_text, "bad", indent=2)
        yield from reason_lines(reason, indent=2)
        sequences = counterexample.expected_sequence, counterexample.actual_sequence
        for title, sequence in zip(sequence_names(counterexample), sequences, strict=True):
            yield b.Line(f"{title}: {format_sequence(sequence)}", indent=2)
            yield from (b.Line(step_text(step, names), indent=4) for step in sequence)
    yield b.Line()
    yield b.Line("Next:", "strong")
    width = max(len(command) for command, _ in NEXT) + 2
    yield from (b.Line(f"{command:<{width}}{what}", indent=2, hang=width) for command, what in NEXT)
