"""The report on one scenario: the exploration, the result, and whether the scenario expects the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.model.registration import Block, describe
from dispatchlab.prover.protocol import Engine
from dispatchlab.prover.result import Expectation, Exploration, Flaw, Verdict, judge
from dispatchlab.scenario.scenario import Scenario
from dispatchlab.views.formatting import readable

if TYPE_CHECKING:
    from dispatchlab.model.operator_view import OperatorView
    from dispatchlab.questions.order.reasons import Reason
    from dispatchlab.questions.order.snapshots import Snapshots


_HEADLINES = {
    Flaw.UNDO: "order-dependent: a release does not undo its registration",
    Flaw.RESIDUE: "order-dependent: a refusal changes the state",
    Flaw.INVARIANT: "stale slots in every order",
}
"""The headlines of flaws that are not about two orders of the same registrations."""


@dataclass(frozen=True, slots=True)
class Report:
    """One scenario and its results.

    Args:
        scenario: the path of its file, as the user gave it.
        claim: its sentence.
        engine: the engine that was explored.
        semantics: the semantics of that engine.
        registrations: one line for each registration, in the order of the file.
        expected: the verdict that the scenario expects.
        exploration: the result of the exploration.
        as_expected: whether the verdict is as expected.
        exit_code: the exit code for this scenario.
        is_record: whether it is a record of packages.
        unexplored: the number of registrations of Python in the scenario; see Note [The layers of a verdict].
        reason: the reason of the verdict; None for an expected verdict without a counterexample.
        refusals: sentences about registrations that exclude each other.
        notes: further sentences for the reader; the exploration has the extent of the walk.
    """

    scenario: str
    claim: str
    engine: str
    semantics: str
    registrations: tuple[str, ...]
    expected: Expectation
    exploration: Exploration
    as_expected: bool
    exit_code: int
    is_record: bool = False
    unexplored: int = 0
    reason: Reason | None = None
    refusals: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def noted(self, note: str) -> Report:
        """Return the report with one more note."""
        return replace(self, notes=(*self.notes, note))

    @property
    def verdict_text(self) -> str:
        """The verdict, its layer if another layer is not explored, and its scope."""
        example, verdict = self.exploration.counterexample, str(self.exploration.verdict)
        if example is not None and (example.flaw is not Flaw.INVARIANT or ": stale slot: " in example.diff):
            *before, last = example.actual_sequence  # a step that runs again was refused before
            verdict = _HEADLINES.get(Flaw.RESIDUE if last in before and ~last not in before else example.flaw, verdict)
        return f"{self._packages_text or verdict}{self.layers_text} ({'; '.join(self.standing)})"

    @property
    def _packages_text(self) -> str:
        """The findings about the packages of a record; empty for another scenario."""
        found = self.exploration
        if not self.is_record or found.modules is None:
            return ""
        if found.modules == 1:
            return "not asked: one module registers"
        if found.verdict is Verdict.ORDER_DEPENDENT:
            return "differs"
        is_whole = found.verdict is Verdict.ORDER_INDEPENDENT or (self.unexplored and found.seed is None)
        return f"no difference in {readable(found.orders)} of {readable(found.orders)} import orders" * bool(is_whole)

    @property
    def standing(self) -> tuple[str, ...]:
        """The scope of the verdict: the model, and the sequences that ran if these are not all orders."""
        where = "your PyTorch" if self.engine == "torch" else "model"
        parts = [f"{where}: {self.semantics}{', an idealised dispatcher' * (self.semantics == 'strict')}"]
        if self.exploration.walk == "orders" and self.exploration.counterexample is None:
            parts.append("each registration once, then its release: nothing in between, nothing again")
        elif self.exploration.verdict is Verdict.NO_VIOLATION_FOUND and self.exploration.modules is None:
            parts.append(f"{self.exploration.edges:,} steps tried, not a proof")
        return tuple(parts)

    @property
    def layers_text(self) -> str:
        """The layer of the verdict, if the scenario also has another layer; else empty."""
        if not self.unexplored:
            return ""
        number = f"{self.unexplored:,} registration{'' if self.unexplored == 1 else 's'} of Python"
        return f" in the C++ layer; {number} not explored"


Seen: TypeAlias = "Sequence[tuple[str, Sequence[OperatorView]]]"


@dataclass(frozen=True, slots=True)
class Explored:
    """One scenario of a document.

    Args:
        report: the report of the check.
        seen: operators after some sequence, each with a title that names the sequence.
        notes: further sentences for the reader.
        snapshots: the results of all steps, if the user asked for them.
    """

    report: Report
    seen: Seen = ()
    notes: tuple[str, ...] = ()
    snapshots: Snapshots | None = None


# Note [The layers of a verdict]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# What a package keeps in the Python-side registries of PyTorch, a decomposition or a lowering, stands in the field
# `python` of the scenario and is not explored: there, order may well matter. So a scenario with such registrations is
# never order-independent as a whole: its verdict is "no violation found" at best, names the layer that it is about, and
# is no proof for --require-proof. A violation is one all the same.


def report_of(scenario: Scenario, engine: Engine, found: Exploration, *, require_proof: bool = False) -> Report:
    """Compare the results with the expectation of the scenario. See Note [The layers of a verdict]."""
    notes = []
    calls = sum(isinstance(each, Block) and each.made_by is not None for each in scenario.registrations)
    if calls and isinstance(engine, LabEngine) and not engine.knows_torch_library:
        some = "1 call registers" if calls == 1 else f"{calls:,} calls register"
        note = (
            f"the rules of torch.library are not known for {engine.semantics}: {some} what the scenario says, in any "
            "order, and PyTorch may refuse some"
        )
        verdict = Verdict.NO_VIOLATION_FOUND if found.verdict is Verdict.ORDER_INDEPENDENT else found.verdict
        notes.append(note)
        found = replace(found, verdict=verdict)
    if scenario.python and found.verdict is Verdict.ORDER_INDEPENDENT:
        found = replace(found, verdict=Verdict.NO_VIOLATION_FOUND)
    if scenario.packages and len(scenario.modules) == 1:
        verdict = Verdict.NO_VIOLATION_FOUND if found.verdict is Verdict.ORDER_INDEPENDENT else found.verdict
        found = replace(found, verdict=verdict)
    refusals = len(found.conflicts) + len(found.never_accepted)
    as_expected, code = judge(found.verdict, scenario.expect, conflicts=refusals, require_proof=require_proof)
    reason, conflicts = None, tuple[str, ...]()
    if found.counterexample is not None or found.conflicts or not as_expected:
        from dispatchlab.questions.order.fixes import model_of
        from dispatchlab.questions.order.reasons import conflict_text, reason_of

        reason = reason_of(scenario, found, as_expected=as_expected, engine=model_of(engine))
        conflicts = tuple(conflict_text(conflict, found, scenario.registrations) for conflict in found.conflicts)
    return Report(
        scenario=scenario.file,
        claim=scenario.claim,
        engine=engine.name,
        semantics=engine.semantics,
        registrations=tuple(map(describe, scenario.registrations)),
        expected=scenario.expect,
        exploration=found,
        as_expected=as_expected,
        exit_code=code,
        is_record=bool(scenario.packages),
        unexplored=len(scenario.python),
        reason=reason,
        notes=tuple(notes),
        refusals=conflicts,
    )
