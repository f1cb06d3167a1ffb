"""The words of a report: steps, counts, and the line of one scenario among many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dispatchlab.model.sequence import Step, format_sequence
from dispatchlab.prover.result import Counterexample, Exploration
from dispatchlab.views.formatting import counted, readable


def step_text(step: Step, registrations: Sequence[str]) -> str:
    """Return a step with its registration: `+1 impl test::foo CPU (fn_cpu)`."""
    index = ~step if step < 0 else step
    return f"{'-' if step < 0 else '+'}{index} {registrations[index]}"


def sequence_names(found: Counterexample) -> tuple[str, str]:
    """Return the names of both sequences: two orders of the same steps, or the same without and with some steps."""
    one, other = found.expected_sequence, found.actual_sequence
    if sorted(one) == sorted(other):
        return "one order", "the other order"
    (short, *_, long), more = sorted((one, other), key=len), list[Step]()
    left = [*short]
    for step in long:
        more += [step] if step not in left[:1] else left[:0]
        left = left[1:] if step in left[:1] else left
    steps = f"{'a second ' * (more[0] in short)}step{'s' * (len(more) > 1)} {format_sequence(tuple(more))}"
    names = ("one sequence", "the other sequence") if left else (f"without {steps}", f"with {steps}")
    return names if one is short else names[::-1]


def counts(found: Exploration) -> Iterator[tuple[str, str]]:
    """Return the amount of work as titled numbers."""
    yield "sets", f"{found.sets:,}"
    yield "states", f"{found.states:,}"
    yield "edges", f"{found.edges:,}"
    yield "orders", readable(found.orders)
    if found.modules is not None:
        yield "modules", f"{found.modules:,}"
    if found.components > 1:
        yield "components", f"{found.components:,}"
    if found.seed is not None:
        yield "seed", str(found.seed)
    if found.passes is not None:
        yield "passes", f"{found.passes:,}"


def reductions_text(found: Exploration) -> str:
    """Return the reductions of the walk: `partition, neighbourhoods (17)`."""
    names = [f"{one} ({found.neighbourhoods:,})" if one == "neighbourhoods" else one for one in found.reductions]
    return ", ".join(names) or "none"


def summary(reports: int, *, as_expected: int, unreadable: int = 0, not_explored: int = 0) -> str:
    """Return the line that ends the reports of several scenarios."""
    others = {"not": reports - as_expected, "could not be read": unreadable, "not explored": not_explored}
    parts = (f", {count:,} {what}" for what, count in others.items() if count)
    total = counted(reports + unreadable + not_explored, "scenario")
    return f"{total}: {as_expected:,} as expected{''.join(parts)}"
