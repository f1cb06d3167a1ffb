"""The readiness of installed packages: their operators read in a process of its own, and a row for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, assert_never

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.measured import model_for
from dispatchlab.model.operator_runs import InputsError, Outcome, Run
from dispatchlab.model.printed_schema import parse_printed
from dispatchlab.questions.coverage.coverage_on_lab import Fill
from dispatchlab.questions.readiness.operator_readiness import (
    COMPILED,
    RUN_ONLY,
    Answer,
    Aspect,
    Cell,
    OperatorFacts,
    Readiness,
    Row,
    python_for,
    readiness,
)
from dispatchlab.records.builds import has_kernels_for
from dispatchlab.records.debug_text import imported_packages, other_owner
from dispatchlab.records.ownership import ownership_of
from dispatchlab.sources.find_sources import chosen
from dispatchlab.sources.replay_on_lab import for_registry
from dispatchlab.views.formatting import counted, first_of

if TYPE_CHECKING:
    from dispatchlab.pytorch.introspection.readiness_reader import PackageOperators


RUN_LIMIT_S = 120.0
"""How long one cell of an operator may take by default; a compile takes seconds."""

_SKIPPED = "a C++ compiler takes long for it: it is run where it is asked for, with --fail-on aot_package"
_EXAMPLES = 3
_REFUSING = "MetaFallbackKernel.cpp"
"""The file of PyTorch's backend fallback for Meta, which raises for every operator."""


class NoOperatorsError(DispatchLabError):
    """Importing packages defines no operator of theirs."""

    packages: tuple[str, ...]
    others: tuple[str, ...] = ()
    """The packages whose operators are defined by that."""

    def __str__(self) -> str:
        said = f"importing {' and '.join(self.packages)} defines no operator of its own"
        if not self.others:
            return f"{said}; name the module whose import does, or one that calls what registers them"
        return f"{said}; it defines operators of {' and '.join(self.others)}: name that, too"


def package_readiness(
    packages: Sequence[str],
    *,
    operators: Sequence[str] = (),
    required: Sequence[Aspect] = COMPILED,
    inputs: str | None = None,
    generate: bool = False,
    limit_s: float = RUN_LIMIT_S,
    jobs: int = 1,
    started: Callable[[str], None] = lambda _: None,
) -> Readiness:
    """Import packages in a process of its own, and judge the operators that they define.

    Args:
        packages: the modules.
        operators: names and globs of those that are judged; all of them when left out. Those of PyTorch and of other
            packages that were imported along are left out unless they are named.
        required: the columns where a gap is not as expected.
        inputs: `module:name` of what makes inputs, or a file of captured ones; operators that have some are run, which
            decides more cells.
        generate: also run the others, on inputs that are made from their schemas.
        limit_s: how long one cell of an operator may take.
        jobs: in how many processes operators are run.
        started: called with each operator that is run.

    Raises:
        InputsError: there are no inputs under that name.
        CaptureError: the file of inputs cannot be read, or is damaged.
        NoOperatorsError: they define none.
        UnknownOperatorError: a name or a glob means none.
        DispatchLabError: PyTorch or a package cannot be imported.
    """
    from dispatchlab.pytorch.introspection.readiness_captures import SUFFIX, check_captures
    from dispatchlab.pytorch.registry import live_operator_runs, live_package_operators

    if inputs is not None and inputs.endswith(SUFFIX):
        check_captures(inputs)  # before the packages are imported, which takes long
    elif inputs is not None and ":" not in inputs:
        raise InputsError(inputs, f"it is neither MODULE:NAME nor a file whose name ends with {SUFFIX}")
    result = readiness_of(live_package_operators(packages), packages, operators=operators, required=required)
    if inputs is None and not generate:
        return result
    names = [row.operator for row in result.rows]
    skipped = {} if Aspect.AOT_PACKAGE in required else {str(Aspect.AOT_PACKAGE): _SKIPPED}
    done = live_operator_runs(
        packages,
        inputs or "",
        names,
        limit_s=limit_s,
        generate=generate,
        skipped=skipped,
        jobs=jobs,
        started=started,
    )
    without = [name for name in names if name not in done.runs]
    lacking = (f"not run, for lack of inputs: {first_of(without, _EXAMPLES)}",) if without else ()
    return with_runs(replace(result, notes=(*result.notes, *done.notes, *lacking)), done.runs)


def readiness_of(
    found: PackageOperators,
    packages: Sequence[str],
    *,
    operators: Sequence[str] = (),
    required: Sequence[Aspect] = COMPILED,
) -> Readiness:
    """Judge the operators that packages define, by what was read when they were imported.

    Args:
        found: what was read.
        packages: the modules.
        operators: see `package_readiness`.
        required: see `package_readiness`.

    Raises:
        NoOperatorsError: they define none.
        UnknownOperatorError: a name or a glob means none.
    """
    registry = found.registry
    judged, others = [one for one in chosen(registry, operators) if one.schema is not None], Counter[str]()
    if not operators:
        ownership = ownership_of(registry)
        judged = [
            one
            for one in judged
            if str(one.name) not in found.before and not ownership.is_own(str(one.name), None, one.debug)
        ]
        known = imported_packages(judged)
        owners = [other_owner((one.debug,), known, packages) for one in judged]
        others.update(filter(None, owners))
        judged = [one for one, other in zip(judged, owners, strict=True) if other is None]
    fallbacks = [one for one in registry.fallbacks if _REFUSING not in one.debug]
    fill = Fill(for_registry(model_for(registry.torch)), fallbacks)
    python = registry.python
    without = frozenset() if python is None else frozenset(python.missing)
    if python is not None and "torch.distributed.tensor" in python.not_imported:
        without |= {"dtensor_rules", "dtensor_handlers"}
    facts = [
        OperatorFacts(
            operator,
            parse_printed(operator.schema),
            python_for(python, str(operator.name)),
            found.functions.get(str(operator.name), frozenset()),
            partial(fill, operator),
            partial(has_kernels_for, registry.torch, ()),
            without,
            str(operator.name) in found.refusing,
            found.fakes.get(str(operator.name)),
            found.offered,
            registry.privateuse1,
        )
        for operator in judged
        if operator.schema is not None
    ]
    if not facts:
        raise NoOperatorsError(tuple(packages), tuple(sorted(others)))
    notes = [
        f"{counted(count, 'operator')} of {package} left out: see readiness {package}"
        for package, count in sorted(others.items())
    ]
    return readiness(packages, registry.torch, facts, required=required, notes=(*registry.unreadable, *notes))


Runs = Mapping[str, Mapping[str, Run]]
"""Operator -> column -> what a run shows."""


def with_runs(found: Readiness, runs: Runs) -> Readiness:
    """The same with the cells that runs decide; what was not run stays as it was."""
    return replace(found, rows=tuple(_row(row, runs.get(row.operator, {})) for row in found.rows))


def _row(row: Row, runs: Mapping[str, Run]) -> Row:
    return replace(row, cells=tuple(decided(cell, runs.get(str(cell.aspect))) for cell in row.cells))


def decided(cell: Cell, run: Run | None) -> Cell:
    """A cell after a run. A gap that a run confirms keeps its reason, and what is not run says why.

    What is not needed is left alone, unless a schema says so and a run refutes it.
    """
    if run is None or (cell.answer is Answer.NOT_NEEDED and cell.aspect is not Aspect.FUNCTIONALIZE):
        return cell
    match run.outcome:
        case Outcome.NOT_DECIDED if cell.answer in (Answer.NO, Answer.NOT_NEEDED):
            return cell
        case Outcome.NOT_DECIDED:
            before = "" if cell.aspect in RUN_ONLY else f"{cell.reason}; "
            return replace(cell, reason=f"{before}no run decides it: {run.how}")
        case Outcome.WORKS if cell.answer is Answer.NOT_NEEDED:
            return cell
        case Outcome.WORKS:
            return Cell(cell.aspect, Answer.YES, run.how, by_run=True)
        case Outcome.NOT_NEEDED:
            return Cell(cell.aspect, Answer.NOT_NEEDED, run.how, by_run=True)
        case Outcome.FAILS if cell.answer is Answer.NO:
            return replace(cell, by_run=True)
        case Outcome.FAILS:
            before = f"; registered: {cell.reason}" if cell.answer is Answer.REGISTERED else ""
            return replace(cell, answer=Answer.NO, reason=f"{run.how}{before}", by_run=True)
    assert_never(run.outcome)
