"""The text of `dispatchlab demo`."""

from __future__ import annotations

from collections.abc import Iterator

from dispatchlab.adopt.demo import RETURNS, Called, Demo
from dispatchlab.model.sequence import format_sequence
from dispatchlab.questions.order.report_text import FLAWS, reasons, step_text

NEXT = (
    ("dispatchlab demo --save demo.yaml", "keep this example as a scenario file"),
    ("dispatchlab permute demo.yaml", "show the whole report; --engine torch runs it on your PyTorch"),
    ("dispatchlab doctor", "show what works with your PyTorch"),
    ("dispatchlab init", "in your package's checkout: a first scenario, a golden file, CI"),
)
"""What to do next: each command with what it does."""


def demo_text(demo: Demo) -> str:
    """The example: registrations, a call after each order, the exploration, and what to do next."""
    return "".join(f"{line}\n" for line in _lines(demo))


def _lines(demo: Demo) -> Iterator[str]:
    names, found = demo.report.registrations, demo.report.exploration
    first, second = demo.calls
    yield "A package registers an operator and two kernels, on the dispatcher of PyTorch 2.13:"
    yield ""
    for index, name in enumerate(names):
        returns = next((f" returns {value:g} * x" for kernel, value in RETURNS.items() if f"({kernel})" in name), "")
        yield f"  {index}  {name}{returns}"
    yield ""
    yield "A call with a CPU tensor of 1.0, after two orders:"
    yield ""
    for called in demo.calls:
        yield f"  {_order(called)}  returns {called.result:.1f}"
    yield ""
    if first.dump == second.dump:
        yield "The dumps and dispatch tables of the two are equal to the character, so no test of dumps finds it."
    counterexample = found.counterexample
    if counterexample is not None:
        yield (
            f"dispatchlab walks every order and release ({found.states} states for {found.orders} orders) and finds "
            "the shortest counterexample:"
        )
        yield ""
        yield f"  verdict: {found.verdict}"
        yield f"  finding: {FLAWS[counterexample.flaw]}"
        for title, sequence in (
            ("expected", counterexample.expected_sequence),
            ("actual", counterexample.actual_sequence),
        ):
            yield f"  {title} sequence: {format_sequence(sequence)}"
            yield from (f"    {step_text(step, names)}" for step in sequence)
        yield from (f"  why: {reason}" for reason in reasons(counterexample))
    yield ""
    yield "Next:"
    width = max(len(command) for command, _ in NEXT)
    yield from (f"  {command:<{width}}  {what}" for command, what in NEXT)


def _order(called: Called) -> str:
    return format_sequence(called.order)
