"""What a scenario states of its states and orders, checked on the walk that `permute` takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import assert_never

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.dump_format import DumpError, parse_dump, parse_table
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.sequence import StepSequence
from dispatchlab.model.snapshot import Refusal, Snapshot
from dispatchlab.prover.program import Program
from dispatchlab.prover.properties import Checked, Statement, check_statements
from dispatchlab.prover.protocol import Engine
from dispatchlab.prover.result import Exploration, Standing, Verdict
from dispatchlab.prover.run_sequence import Look
from dispatchlab.prover.walk_options import WalkOptions
from dispatchlab.scenario.properties import FALLTHROUGH, NOTHING, CallDoes, IsRefused, KernelIsActive, Property, RowRuns
from dispatchlab.scenario.scenario import Scenario

INTERRUPTED = "interrupted"
"""The note of properties that were not checked since Ctrl-C was pressed."""


@dataclass(frozen=True, slots=True)
class PropertyResult:
    """A property and what was found about it.

    Args:
        text: the property.
        standing: what is known of it.
        tested: in how many states it was tested, or at how many attempts.
        sequence: a sequence after whose last step it is violated; of `eventually` an order in which it never holds.
        note: what else a reader should know; empty for nothing.
    """

    text: str
    standing: Standing
    tested: int
    sequence: StepSequence | None = None
    note: str = ""

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against it."""
        return self.standing in (Standing.HOLDS, Standing.NO_VIOLATION_FOUND)


def check_properties(
    engine: Engine,
    scenario: Scenario,
    options: WalkOptions,
    *,
    program: Program | None = None,
    found: Exploration | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> tuple[PropertyResult, ...]:
    """Check the properties of a scenario.

    Arguments that are not named here are those of `explore`.

    Args:
        scenario: what is registered, as the engine takes it.
        program: the modules that make the registrations, where the orders are those of their imports.
        found: what an exploration of the same has found; the parts of a proof are independent.

    Raises:
        DispatchLabError: the arguments of a call cannot be read.
    """
    # Of parts that are alike, an exploration walks one: that is no walk of the others.
    walked = found is not None and found.verdict is Verdict.ORDER_INDEPENDENT and found.classes == found.components
    in_parts = walked and found is not None and found.components > 1
    checked = check_statements(
        engine,
        scenario.registrations,
        scenario.operators,
        [statement_of(each, engine.semantics) for each in scenario.properties],
        options,
        order=scenario.order,
        program=program,
        independent=in_parts,
        cancelled=cancelled,
    )
    return tuple(map(_result, scenario.properties, checked))


def not_checked(scenario: Scenario, why: str) -> tuple[PropertyResult, ...]:
    """The properties of a scenario that were not checked, with the reason."""
    return tuple(PropertyResult(str(each), Standing.INCOMPLETE, 0, note=why) for each in scenario.properties)


def exit_code_of(properties: Sequence[PropertyResult], *, require_proof: bool) -> int:
    """1 for a property that is violated or was never tested, 3 where nothing is known for sure, else 0."""
    if any(each.standing in (Standing.VIOLATED, Standing.NEVER_TESTED) for each in properties):
        return 1
    unsure = (Standing.INCOMPLETE, *((Standing.NO_VIOLATION_FOUND,) if require_proof else ()))
    return 3 if any(each.standing in unsure for each in properties) else 0


def _result(one: Property, found: Checked) -> PropertyResult:
    return PropertyResult(str(one), found.standing, found.tested, found.sequence, found.note)


def statement_of(one: Property, semantics: str) -> Statement:
    """A property as a walk checks it.

    Args:
        one: the property.
        semantics: those of the engine; where they are not PyTorch's, calls skip the keys of its own fallbacks.
    """
    during, without = _mask(one.during), _mask(one.without)
    match one.stated:
        case IsRefused(registration, kind):

            def as_stated(refusal: Refusal | None) -> bool:
                return refusal is not None and (kind is None or refusal.kind is kind)

            return Statement(one.mode, during, without, attempt=registration, of_attempt=as_stated)
        case RowRuns():
            about: Callable[[Snapshot], bool] = partial(_row_runs, one.stated)
        case KernelIsActive():
            about = partial(_is_active, one.stated)
        case CallDoes():
            bare = not semantics.startswith("torch")
            _check_arguments(one.stated)
            about = lru_cache(maxsize=4096)(partial(_call_does, one.stated, bare))
        case _:
            assert_never(one.stated)
    operator = one.stated.operator
    return Statement(one.mode, during, without, frozenset({operator}), partial(_in_look, operator, about))


def _mask(indices: Sequence[int]) -> int:
    return sum(1 << index for index in indices)


def _in_look(operator: OperatorName, about: Callable[[Snapshot], bool], look: Look) -> bool:
    return about(next(snapshot for snapshot in look[0] if snapshot.operator == operator))


def _is_kernel(debug: str, name: str) -> bool:
    """Whether a debug text is that of a kernel, with the mark that distinguishes kernels of one text."""
    return debug == name or (debug.startswith(name) and _MARK.fullmatch(debug, len(name)) is not None)


_MARK = re.compile(r" \(registration \d+(, kernel \d+)?\)'*")


def _row_runs(stated: RowRuns, snapshot: Snapshot) -> bool:
    table = parse_table(snapshot.table if snapshot.slots is None else snapshot.slots)
    for key in stated.keys:
        entry = table.get(key)
        if entry is None:
            runs = stated.runs == NOTHING
        elif entry.fallthrough:
            runs = stated.runs == FALLTHROUGH
        else:
            runs = _is_kernel(entry.debug, stated.runs)
        if not runs:
            return False
    return True


def _is_active(stated: KernelIsActive, snapshot: Snapshot) -> bool:
    if not snapshot.exists:
        return False
    return any(
        kernel.active and _is_kernel(kernel.debug, stated.kernel) and stated.at in (None, kernel.key)
        for kernel in parse_dump(snapshot.dump).kernels
    )


# -- calls


class CallPropertyError(DispatchLabError):
    """The arguments of a call cannot be read."""

    text: str
    reason: str

    template = "the property of {text}: {reason}"


def _check_arguments(stated: CallDoes) -> None:
    """Refuse what no tensor can be, before anything runs; whether the schema takes it shows in each state."""
    from dispatchlab.model.schema_parser import parse_schema
    from dispatchlab.questions.explain.argument_specs import ArgumentSpecError, describe_arguments

    schema = parse_schema(f"t::f({', '.join(f'Tensor? x{at}' for at in range(len(stated.arguments)))}) -> ()")
    try:
        describe_arguments(schema, [argument.partition("=")[2] or argument for argument in stated.arguments])
    except ArgumentSpecError as error:
        raise CallPropertyError(str(stated), str(error)) from None


def _call_does(stated: CallDoes, bare: bool, snapshot: Snapshot) -> bool:  # noqa: FBT001
    """Whether a call runs a kernel on its way, as far as that is known, or raises."""
    from dataclasses import replace

    from dispatchlab.model.operator_view import view_of
    from dispatchlab.questions.explain.argument_specs import describe_arguments
    from dispatchlab.questions.explain.hops import explain, schema_of, thread_keys

    if snapshot.schema is None:
        return stated.runs is None
    try:
        view = view_of(snapshot)
        if bare:
            rows = {row.key for row in view.table}
            view = replace(view, skipped=tuple(key for key in _fallback_keys() if key not in rows))
        explained = explain(view, describe_arguments(schema_of(view), stated.arguments), thread_keys())
    except (DumpError, DispatchLabError):  # the schema of this state does not take these arguments
        return stated.runs is None
    if stated.runs is None:
        return any(hop.refusal is not None for hop in explained.hops)
    return any(
        hop.kernel is not None and hop.refusal is None and _is_kernel(hop.kernel.debug, stated.runs)
        for hop in explained.hops
    )


@lru_cache(maxsize=1)
def _fallback_keys() -> tuple[str, ...]:
    """The keys at which PyTorch has a fallback of its own above the backends."""
    from dispatchlab.model.profile import bundled_profile, bundled_profiles

    named = (DispatchKey.__members__.get(key) for key in bundled_profile(bundled_profiles()[-1]).fallbacks)
    return tuple(key.name for key in named if key is not None and key.functionality > DispatchKey.NestedTensor)
