"""The public functions: questions about orders, calls, operators, packages and registries, and their answers."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, get_args, overload

from dispatchlab.errors import DispatchLabError, ErrorKind, RequestError, did_you_mean
from dispatchlab.model.registration import Block, Claim, Def, Fallback, Impl, NameOnly, Registration
from dispatchlab.model.sequence import StepSequence, format_sequence
from dispatchlab.model.snapshot import Snapshot
from dispatchlab.prover.limits import WalkName
from dispatchlab.prover.result import Counterexample, Exploration, Verdict
from dispatchlab.questions.explain.result import CallExplanation
from dispatchlab.questions.order.report import Report
from dispatchlab.questions.order.run_scenario import RunOptions, run_scenario
from dispatchlab.questions.sources.engines import EngineName
from dispatchlab.questions.sources.find_sources import LIVE, source_with_package
from dispatchlab.registries.file import bundled_names, open_named
from dispatchlab.scenario.load import load_scenario, parse_scenario
from dispatchlab.scenario.scenario import Scenario, operators_named_by
from dispatchlab.views.view import View

if TYPE_CHECKING:
    from dispatchlab.call.operators import Operator
    from dispatchlab.call.trace import Trace
    from dispatchlab.engine.dispatcher import Dispatcher
    from dispatchlab.live.recording.record_package import PackageRecord
    from dispatchlab.model.keys import DispatchKey
    from dispatchlab.model.operator_view import OperatorView
    from dispatchlab.questions.certify.certificate import Certification
    from dispatchlab.questions.check.report import CheckReport
    from dispatchlab.questions.explain.argument_specs import ArgumentSpec
    from dispatchlab.questions.lint.rule import LintReport
    from dispatchlab.questions.trace.torch_trace import TorchTrace
    from dispatchlab.questions.upgrade.compare_sources import UpgradeReport
    from dispatchlab.questions.why.diagnose import Answer
    from dispatchlab.registries.backend_coverage import CoverageReport
    from dispatchlab.registries.stored import StoredRegistry

_KINDS = (Def, Impl, Fallback, NameOnly, Claim, Block)


class CheckSubjectError(DispatchLabError):
    """The subject has no order to check."""

    found: str

    template = (
        "check_order expects a scenario file, a Scenario, registrations such as Def and Impl, "
        "or package='my_package', but got {found}"
    )


class CheckOptionError(DispatchLabError):
    """An option of a check has an unknown value, or does not fit another option.

    Args:
        option: its name.
        found: the value that was given.
        wanted: the allowed values.
    """

    option: str
    found: object
    wanted: str

    template = "{option}={found!r}: {wanted}"


_Report = TypeVar("_Report")


@dataclass(frozen=True, slots=True, repr=False)
class Result(Generic[_Report]):
    """The answer to a question: its report, and the whole text as `str`. Results of equal reports are equal.

    >>> from dispatchlab import lint
    >>> found = lint("scenarios/lint/dl012_found.yaml")
    >>> found
    <Result: scenarios/lint/dl012_found.yaml: 1 finding in 2 operators (1 error)>
    >>> found == lint("scenarios/lint/dl012_found.yaml"), found.report.exit_code
    (True, 1)

    Args:
        report: the report.
    """

    report: _Report
    _summary: str = field(compare=False)
    _view: Callable[[], View[Any]] = field(compare=False)

    def __repr__(self) -> str:
        return f"<Result: {self._summary}>"

    def __str__(self) -> str:
        return self._view().text()

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: the summary, and the first details of each part."""
        return self._view().notebook()


@dataclass(frozen=True, slots=True, repr=False)
class OrderCheck:
    """The answer to whether the order matters: the verdict, the counterexample, and the report as `str`.

    >>> from dispatchlab import DispatchKey, Impl, check_order, parse_name
    >>> foo = parse_name("test::foo")
    >>> two = check_order([Impl(foo, DispatchKey.CPU, debug="fn_1"), Impl(foo, DispatchKey.CPU, debug="fn_2")])
    >>> two.verdict, two.as_expected
    (Verdict.ORDER_DEPENDENT, False)
    >>> bool(two)  # so `assert check_order(...)` is a test
    False
    >>> print(two)  # doctest: +ELLIPSIS
    registrations: order-dependent (model: torch-...), NOT as expected: order-independent
    cause: the registrations fn_1 and fn_2 both set the CPU kernel of test::foo. A later registration ...

    Args:
        report: everything that was found.
        scenario: the checked scenario; `scenario_text` returns it as a file for `dispatchlab permute`.
    """

    report: Report
    scenario: Scenario

    @property
    def verdict(self) -> Verdict:
        """The verdict: order-independent, order-dependent, no violation found, ..."""
        return self.report.exploration.verdict

    @property
    def as_expected(self) -> bool:
        """True when the verdict is what the scenario expects; by default, that the order does not matter."""
        return self.report.as_expected

    @property
    def counterexample(self) -> Counterexample | None:
        """The two shortest sequences that disagree; None when there are none."""
        return self.report.exploration.counterexample

    @property
    def exploration(self) -> Exploration:
        """The verdict with its counts: sets, states, edges, orders."""
        return self.report.exploration

    def __bool__(self) -> bool:
        return self.as_expected

    def __repr__(self) -> str:
        found = self.counterexample
        if found is None:
            count = self.exploration.registrations
            return f"<OrderCheck: {self.verdict}, {count:,} registration{'' if count == 1 else 's'}>"
        sequences = dict.fromkeys(map(format_sequence, (found.expected_sequence, found.actual_sequence)))
        return f"<OrderCheck: {self.verdict}, {found.flaw}: {' against '.join(sequences)}>"

    def __str__(self) -> str:
        from dispatchlab.questions.order.blocks import report_view

        return report_view(self.report).text()

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: the verdict, the counterexample, and the exploration."""
        from dispatchlab.questions.order.blocks import report_view

        return report_view(self.report, details=True).notebook()


def check_order(
    subject: str | os.PathLike[str] | Scenario | Iterable[Registration] | None = None,
    *,
    package: str | None = None,
    engine: EngineName | None = None,
    semantics: str | None = None,
    walk: WalkName = "auto",
    samples: int | None = None,
    seed: int = 0,
    max_states: int | None = None,
    timeout_s: float | None = None,
    allow_import: bool = False,
) -> OrderCheck:
    """Check whether the order of registrations matters, over every order of registrations and releases.

    >>> from dispatchlab import Def, DispatchKey, Impl, check_order, parse_name, parse_schema
    >>> foo = parse_name("test::foo")
    >>> check_order([Def(parse_schema("test::foo(Tensor x) -> Tensor")), Impl(foo, DispatchKey.CPU, debug="fn_cpu")])
    <OrderCheck: order-independent, 2 registrations>
    >>> check_order([Impl(foo, DispatchKey.CPU, debug="fn_1"), Impl(foo, DispatchKey.CPU, debug="fn_2")])
    <OrderCheck: order-dependent, non-commuting: +0 +1 against +1 +0>

    Args:
        subject: a scenario file, a scenario, or registrations; releases are checked too.
        package: instead of a subject, a package to import in a separate process: its registrations are checked in
            every order in which its modules can be imported.
        engine: `lab`, or `torch` for the installed PyTorch; default: `lab`, and `torch` for a package.
        semantics: the dispatcher of the lab engine; default: the one that the scenario names, or the newest
            PyTorch.
        walk: `auto` proves by the strongest reduction that applies; `graph` visits every state once, with no reduction;
            `orders` runs every order; `sample` walks at random.
        samples: the number of random walks of `sample`.
        seed: their seed.
        max_states: stop at so many states.
        timeout_s: stop after so many seconds.
        allow_import: import the functions that a scenario file names, which runs their code.

    Raises:
        CheckSubjectError: there is nothing to check.
        CheckOptionError: an option has no such value, or two options exclude each other.
        RequestError: the import of the package registers nothing.
        DispatchLabError: the scenario, the package or the engine cannot be used.
    """
    if (subject is None) == (package is None):
        raise CheckSubjectError("nothing" if subject is None else "both a subject and a package")
    options = RunOptions(
        engine=engine or (None if package is None else "torch"),
        semantics=semantics,
        walk=walk,
        samples=samples,
        seed=seed,
        max_states=max_states,
        timeout_s=timeout_s,
    )
    _check_options(options)
    scenario = _scenario(subject, allow_import=allow_import) if package is None else _recorded(package)
    return OrderCheck(run_scenario(scenario, options).report, scenario)


def _check_options(options: RunOptions) -> None:
    """Refuse options without effect, and options with which the check would do nothing."""
    choices: tuple[tuple[str, str | None, tuple[str, ...]], ...] = (
        ("engine", options.engine, get_args(EngineName)),
        ("walk", options.walk, get_args(WalkName)),
    )
    for option, value, known in choices:
        if value is not None and value not in known:
            raise CheckOptionError(option, value, f"expected one of {', '.join(known)}{did_you_mean(value, known)}")
    if options.semantics is not None and options.engine == "torch":
        reason = "the engine torch behaves as the PyTorch that is installed; leave semantics out, or use engine='lab'"
        raise CheckOptionError("semantics", options.semantics, reason)
    if options.samples is not None and options.walk != "sample":
        reason = f"the walk {options.walk} takes no samples; use walk='sample'"
        raise CheckOptionError("samples", options.samples, reason)
    for option in ("samples", "max_states", "timeout_s"):
        number = getattr(options, option)
        if number is not None and number <= 0:
            raise CheckOptionError(option, number, "expected more than 0")


def _scenario(subject: object, *, allow_import: bool) -> Scenario:
    match subject:
        case Scenario():
            return subject
        case str() | os.PathLike():
            return load_scenario(os.fspath(subject), allow_import=allow_import)
        case Def() | Impl() | Fallback() | NameOnly() | Claim() | Block():
            raise CheckSubjectError(f"one {type(subject).__name__}, which has no order: give all of them in a list")
        case Iterable():
            registrations = tuple(subject)
        case _:
            raise CheckSubjectError(f"a {type(subject).__name__}")
    strange = next((registration for registration in registrations if not isinstance(registration, _KINDS)), None)
    if strange is not None or not registrations:
        raise CheckSubjectError("no registrations" if not registrations else f"a {type(strange).__name__} among them")
    return Scenario(
        claim="The order of these registrations does not matter.",
        registrations=registrations,
        operators=operators_named_by(registrations),
    )


def _recorded(package: str) -> Scenario:
    from dispatchlab.questions.sources.find_sources import recorded_packages

    found = recorded_packages((package,))
    scenario = parse_scenario(found.text, file=package)
    if not scenario.registrations:
        from dispatchlab.questions.check.registering_modules import what_to_name

        raise RequestError(f"{package} registers nothing when it is imported: {what_to_name(package)}")
    return scenario


class TooManyStatesError(DispatchLabError):
    """A predicate was not checked in every state."""

    states: int

    template = (
        "the predicate holds in {states:,} states, but there are more: increase max_states, or use fewer registrations"
    )


@dataclass(frozen=True, slots=True)
class StateCheck:
    """The result of a predicate.

    >>> from dispatchlab import Claim, explore
    >>> explore([Claim("a")], always=lambda operators: True)
    StateCheck(holds=True, states=2, sequence=None, snapshots=())

    Args:
        holds: whether it holds in every state.
        states: the number of tested states.
        sequence: a shortest sequence to a state in which it does not hold; None if it holds in all.
        snapshots: the operators after it.
    """

    holds: bool
    states: int
    sequence: StepSequence | None = None
    snapshots: tuple[Snapshot, ...] = ()

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        if self.sequence is None:
            return f"holds in every state ({self.states:,})"
        return f"does not hold after {format_sequence(self.sequence)}"


def explore(
    subject: str | os.PathLike[str] | Scenario | Sequence[Registration],
    *,
    always: Callable[[tuple[Snapshot, ...]], bool],
    semantics: str | None = None,
    max_states: int = 100_000,
) -> StateCheck:
    """Check a predicate in every state that registrations and releases can reach on the lab engine.

    The `order` of a scenario holds. If a scenario has `modules`, each is imported as a whole, and nothing is released.

    >>> from dispatchlab import DispatchKey, Impl, explore, parse_name
    >>> foo = parse_name("test::foo")
    >>> two = [Impl(foo, DispatchKey.CPU, debug="fn_1"), Impl(foo, DispatchKey.CPU, debug="fn_2")]
    >>> print(explore(two, always=lambda operators: "fn_1" in operators[0].dump or not operators[0].exists))
    does not hold after +1

    Args:
        subject: a scenario or its file, or registrations.
        always: takes the snapshots of the observed operators, in their order.
        semantics: the dispatcher; by default the scenario's, or else the newest PyTorch.
        max_states: raise an error if there are more states.

    Raises:
        TooManyStatesError: there are more states.
        DispatchLabError: the scenario cannot be used.
    """
    from dispatchlab.engine.lab_engine import LabEngine
    from dispatchlab.prover.modules import import_states
    from dispatchlab.prover.states import ReachableStates

    scenario = _scenario(subject, allow_import=False)
    space = LabEngine(semantics or scenario.semantics).space(scenario.registrations, scenario.operators)
    count = len(scenario.registrations)
    reached: Iterable[tuple[Any, StepSequence]]
    if scenario.modules:
        reached = import_states(space, count, scenario.modules, scenario.order)
    else:
        found = ReachableStates(space, range(count), scenario.order)
        reached = ((found.states[node], found.sequence(node)) for node in found.nodes())
    tested = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of kernels that are overridden
        for state, sequence in reached:
            if tested == max_states:
                raise TooManyStatesError(tested)
            snapshots, tested = space.observe(state), tested + 1
            if not always(snapshots):
                return StateCheck(False, tested, sequence, snapshots)  # noqa: FBT003
    return StateCheck(True, tested)  # noqa: FBT003


@dataclass(frozen=True, slots=True, repr=False)
class ExplainedCall:
    """The kernel that a call runs and why; the whole explanation as `str`.

    >>> from dispatchlab import explain
    >>> call = explain("aten::relu", "xla requires_grad")
    >>> call
    <ExplainedCall: aten::relu, AutogradXLA -> XLA, missing_kernel>
    >>> call.key, call.refusal
    (DispatchKey.AutogradXLA, ErrorKind.MISSING_KERNEL)

    Args:
        explanation: each hop with its key sets, its kernel and the kernels that lost.
        no_answer: a sentence if the source has no kernels for the backend of the call; else empty.
    """

    explanation: CallExplanation
    no_answer: str = ""

    @property
    def kernels(self) -> tuple[str, ...]:
        """The debug texts of the kernels, in the order in which they run; see `is_known` about the last one."""
        return tuple(hop.kernel.debug for hop in self.explanation.hops if hop.kernel is not None)

    @property
    def key(self) -> DispatchKey:
        """The first dispatch key at which the call runs."""
        return self.explanation.hops[0].key

    @property
    def is_known(self) -> bool:
        """True if the action of the last kernel is known; if not, it may redispatch."""
        return self.explanation.known

    @property
    def refusal(self) -> ErrorKind | None:
        """The kind of error that the call ends in; None when a kernel runs."""
        return self.explanation.hops[-1].refusal

    def __repr__(self) -> str:
        keys = " -> ".join([*(str(hop.key) for hop in self.explanation.hops), *([] if self.is_known else ["?"])])
        return f"<ExplainedCall: {self.explanation.operator}, {keys}{f', {self.refusal}' if self.refusal else ''}>"

    def __str__(self) -> str:
        from dispatchlab.questions.explain.blocks import explanation_text

        return explanation_text(self.explanation, no_answer=self.no_answer)

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: the arguments and each hop with its kernel."""
        from dispatchlab.questions.explain.blocks import call_blocks
        from dispatchlab.views.html.notebook import notebook_html

        return notebook_html(self.no_answer or self.explanation.schema, call_blocks(self.explanation))


def explain(
    operator: str | Operator,
    *arguments: ArgumentSpec,
    of: Dispatcher | str | None = None,
    include: Iterable[DispatchKey | str] = (),
    exclude: Iterable[DispatchKey | str] = (),
) -> ExplainedCall:
    """Explain which kernel a call of an operator runs, without running it.

    >>> from dispatchlab import explain
    >>> explain("aten::add.Tensor", "cpu requires_grad", "cpu")
    <ExplainedCall: aten::add.Tensor, AutogradCPU -> CPU>
    >>> from dispatchlab import Lab, tensor
    >>> explain(Lab()("add.Tensor"), tensor([1.0]), tensor([2.0]))
    <ExplainedCall: aten::add.Tensor, AutogradCPU -> CPU>

    Args:
        operator: its name, with the overload if there are several; or an `Operator`.
        arguments: the arguments that decide the dispatch, in order: a description of each tensor, such as
            `cuda requires_grad`, or a tensor or a list of tensors; or `NAME=...`; CPU tensors when left out. See
            `dispatchlab explain --help`.
        of: a dispatcher, or a source that `dispatchlab explain --from` takes; the bundled registry that has the kernels
            of the call when left out. The dispatcher of an `Operator` is its own.
        include: keys that a guard includes; guards that are open now do not count.
        exclude: keys that a guard excludes.

    Raises:
        DispatchLabError: there is no such operator or source, or an argument or key cannot be read.
    """
    from dispatchlab.call.operators import Operator
    from dispatchlab.model.keys import parse_key
    from dispatchlab.questions.explain.argument_specs import describe_arguments
    from dispatchlab.questions.explain.explain_operator import explain_operator
    from dispatchlab.questions.explain.hops import explain as explain_call
    from dispatchlab.questions.explain.hops import schema_of, thread_keys

    if isinstance(operator, Operator):
        of = operator.dispatcher
        operator = str(operator.name)
    guards = [[str(key) for key in keys] for keys in (include, exclude)]
    if of is None or isinstance(of, str):
        source, imports = _source(of)
        found = explain_operator(
            operator, arguments, source=source, imports=imports, include=guards[0], exclude=guards[1]
        )
        return ExplainedCall(found.explanation, found.no_answer)
    view = of.explain(operator)
    if view is None:
        of.find_schema_or_raise(operator)
    assert view is not None
    thread = thread_keys(*(tuple(map(parse_key, keys)) for keys in guards))
    return ExplainedCall(explain_call(view, describe_arguments(schema_of(view), arguments), thread))


@dataclass(frozen=True, slots=True, repr=False)
class OperatorDump:
    """An operator with its kernels and its dispatch table; `str` is the text that PyTorch prints.

    >>> from dispatchlab import dump
    >>> relu = dump("aten::relu", of="torch-2.13-cpu")
    >>> relu
    <OperatorDump: aten::relu, 13 kernels>
    >>> print(relu)  # doctest: +ELLIPSIS
    name: aten::relu
    schema: aten::relu(Tensor self) -> Tensor
    ...

    Args:
        view: the operator, with the reason of each row of its table.
        text: its dump and its table.
    """

    view: OperatorView
    text: str

    def __repr__(self) -> str:
        count = len(self.view.kernels)
        return f"<OperatorDump: {self.view.name}, {count:,} kernel{'' if count == 1 else 's'}>"

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: the kernels with the keys that run them."""
        from dispatchlab.questions.dump.operator_blocks import operator_blocks
        from dispatchlab.views.html.notebook import notebook_html

        return notebook_html(self.view.name, operator_blocks(self.view))


def dump(operator: str, *, of: Dispatcher | str | None = None, after: str | None = None) -> OperatorDump:
    """Show an operator: its registrations, and the kernel that each key runs.

    >>> from dispatchlab import dump
    >>> [row.text for row in dump("aten::relu", of="torch-2.13-cpu").view.table if row.key == "Meta"]
    ['registered at torch/_meta_registrations.py:54 [kernel]']

    Args:
        operator: its name, with the overload if there are several.
        of: a dispatcher, or a source that `dispatchlab dump --from` takes; the bundled registry of the installed
            PyTorch, or else the newest, when left out.
        after: the steps of a scenario to run first, such as `+0 +2 -0`; default: all its registrations.

    Raises:
        DispatchLabError: there is no such operator or source, or the steps cannot be read.
    """
    from dispatchlab.questions.dump.operator_text import operator_text

    if of is None or isinstance(of, str):
        from dispatchlab.model.names import is_glob
        from dispatchlab.questions.dump.inspect_operators import inspect_operators
        from dispatchlab.questions.dump.inspect_scenario import InspectOptions

        if is_glob(operator):
            raise RequestError(f"{operator!r} is a glob, but dump needs the name of one operator")
        source, imports = _source(of)
        found = inspect_operators(operator, source=source, options=InspectOptions(imports=imports, after=after))
        (snapshot,) = found.snapshots
        return OperatorDump(found.only_view, operator_text(snapshot))
    if after is not None:
        raise CheckOptionError("after", after, "a dispatcher is shown as it is now; leave after out")
    view = of.explain(operator)
    if view is None:
        of.find_schema_or_raise(operator)
    assert view is not None
    return OperatorDump(view, f"{of.dump(operator)}\n{of.dump_table(operator)}")


def diff(
    before: str | os.PathLike[str],
    after: str | os.PathLike[str],
    *,
    operators: Iterable[str] = (),
    package: str | os.PathLike[str] | None = None,
) -> Result[UpgradeReport]:
    """Compare two registries, scenarios or versions of PyTorch, as a whole or for one package.

    >>> from dispatchlab import diff
    >>> diff("torch-2.12", "torch-2.13", operators=["aten::relu"])
    <Result: torch-2.12 to torch-2.13>
    >>> diff("torch-2.9", "torch-2.12", package="docs/upgrade.yaml").report.package.is_affected
    True

    Args:
        before: the name of a bundled registry, a recorded one, a scenario, or `live`.
        after: the same for the second side.
        operators: names and globs of operators; all of them when there are none.
        package: the recording or scenario of the package that it is about.

    Raises:
        CheckOptionError: operators are named, and it is about a package, whose file names its operators.
        DispatchLabError: a source cannot be read, or an operator is in neither.
    """
    from dispatchlab.questions.upgrade.blocks import upgrade_view
    from dispatchlab.questions.upgrade.compare_sources import upgrade_sources

    named = tuple(operators)
    if named and package is not None:
        raise CheckOptionError("operators", operators, "the file of the package names its operators; leave them out")
    found = upgrade_sources(
        os.fspath(before),
        os.fspath(after),
        operators=named,
        everything=bool(named),
        package=None if package is None else os.fspath(package),
    )
    summary = f"{found.before.source} to {found.after.source}"
    return Result(found, summary, lambda: upgrade_view(found, everything=True))


def check(
    *packages: str,
    records: Iterable[str | os.PathLike[str]] = (),
    baseline: str | os.PathLike[str] | None = None,
) -> Result[CheckReport]:
    """Ask every question about packages: order, lint, upgrade, drift from a record.

    The packages are imported in separate processes.

    >>> from dispatchlab import check
    >>> check("my_package")  # doctest: +SKIP
    <Result: my_package: 1 error, 3 warnings, 1 information>

    Args:
        packages: the modules, imported in this order.
        records: the files of their records.
        baseline: the file of the findings that are accepted.

    Raises:
        ImportFailedError: a package cannot be imported.
        DispatchLabError: PyTorch, a record or the baseline cannot be used.
    """
    from dispatchlab.questions.check.blocks import check_view, summary
    from dispatchlab.questions.check.check_packages import check_packages
    from dispatchlab.questions.lint.baseline import load_baseline

    accepted = () if baseline is None else load_baseline(os.fspath(baseline))
    _named("check", packages)
    found = check_packages(packages, records=[os.fspath(one) for one in records], accepted=accepted)
    return Result(found, summary(found), lambda: check_view(found))


def lint(
    source: str | os.PathLike[str] = LIVE,
    *,
    package: str | None = None,
    operators: Iterable[str] = (),
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
) -> Result[LintReport]:
    """Find likely mistakes in registrations.

    >>> from dispatchlab import lint
    >>> lint("scenarios/lint/dl012_found.yaml", select=["DL001"])
    <Result: scenarios/lint/dl012_found.yaml: 0 findings in 2 operators>
    >>> lint(package="my_package")  # doctest: +SKIP
    <Result: live: 2 findings in 3,599 operators (1 warning, 1 information)>

    Args:
        source: a scenario, a recorded registry, the name of a bundled one, `live`, the installed PyTorch, or a package.
        package: a package to import first, into `live`; only its additions are reported.
        operators: names and globs of operators; all of them when there are none.
        select: the rules that are checked, by code or name; all when there are none.
        ignore: the rules that are not checked.

    Raises:
        DispatchLabError: the source cannot be used, or there is no such rule or operator.
    """
    from dispatchlab.questions.check.blocks import check_view
    from dispatchlab.questions.check.check_sources import check_report
    from dispatchlab.questions.check.selection import selected
    from dispatchlab.questions.lint.blocks import summary
    from dispatchlab.questions.lint.run import lint_source

    rules = selected(tuple(select), tuple(ignore))
    name, imports = _source(source, package)
    found = lint_source(name or LIVE, rules, operators=tuple(operators), imports=imports)
    return Result(found, summary(found), lambda: check_view(check_report([found])))


def coverage(
    key: str,
    *,
    of: str | os.PathLike[str] | None = None,
    package: str | None = None,
    operators: Iterable[str] = (),
) -> Result[CoverageReport]:
    """Find out which operators a backend can run, and how.

    >>> from dispatchlab import coverage
    >>> coverage("PrivateUse1", of="torch-2.13-cpu", operators=["aten::relu"])
    <Result: PrivateUse1 in torch-2.13-cpu: 1 operator>

    Args:
        key: the runtime key of the backend.
        of: a scenario, a recorded registry, the name of a bundled one, `live`, or a package, which is imported into it;
            default: the bundled registry of the installed PyTorch, or else the newest.
        package: a package to import first, into `live`.
        operators: names and globs of operators; all of them when there are none.

    Raises:
        DispatchLabError: the source cannot be used, or there is no such key or operator.
    """
    from dispatchlab.questions.coverage.blocks import coverage_view
    from dispatchlab.questions.coverage.coverage_on_lab import coverage_report
    from dispatchlab.questions.sources.find_sources import chosen, recorded_from
    from dispatchlab.registries.backend_coverage import runtime_key
    from dispatchlab.registries.builds import default_registry
    from dispatchlab.views.formatting import counted

    named, imports = _source(of, package)
    source = named or default_registry([key]).name
    recorded = recorded_from(source, imports=imports)
    asked = tuple(chosen(recorded, tuple(operators)))
    row = runtime_key(key, privateuse1=recorded.privateuse1)
    found = coverage_report(recorded, row, name=source, operators=asked)
    summary = f"{row} in {source}: {counted(len(asked), 'operator')}"
    return Result(found, summary, lambda: coverage_view(found, torch=recorded.torch))


def certify(
    registry: str | os.PathLike[str] | None = None,
    *,
    package: str | None = None,
    operators: Iterable[str] = (),
    semantics: str | None = None,
) -> Result[Certification]:
    """Prove for every operator of a registry that the order of its registrations does not matter.

    >>> from dispatchlab import certify
    >>> certify("torch-2.13", operators=["aten::relu"])
    <Result: torch-2.13: 1 of 1 operator order-independent>

    Args:
        registry: a scenario, a recorded registry, the name of a bundled one, `live`, or a package; when left out, the
            bundled registry of the installed PyTorch, or else the newest.
        package: a package to import first, into `live`.
        operators: names and globs of operators; those that are not as in the bundled registry of their PyTorch when
            there are none.
        semantics: the dispatcher; default: the model of the registry's PyTorch.

    Raises:
        DispatchLabError: the registry cannot be used, or there is no such operator.
    """
    from dispatchlab.questions.certify.blocks import certification_view
    from dispatchlab.questions.certify.certificate import Certified
    from dispatchlab.questions.certify.certify_registry import certification_of_own
    from dispatchlab.questions.sources.find_sources import recorded_from
    from dispatchlab.registries.builds import default_registry
    from dispatchlab.views.formatting import counted

    named, imports = _source(registry, package)
    name = named or default_registry().name
    recorded = recorded_from(name, imports=imports)
    found = certification_of_own(recorded, name, operators=tuple(operators), semantics=semantics)
    proved = sum(certificate.verdict is Certified.ORDER_INDEPENDENT for certificate in found.certificates)
    summary = f"{name}: {proved:,} of {counted(len(found.certificates), 'operator')} order-independent"
    return Result(found, summary, lambda: certification_view(found, torch=recorded.torch))


def record(*packages: str) -> Result[PackageRecord]:
    """Record the registrations of packages; `str` is the scenario, as `dispatchlab record` writes it.

    >>> from dispatchlab import record
    >>> record("my_package")  # doctest: +SKIP
    <Result: my_package: 7 registrations>

    Args:
        packages: the modules, imported in this order.

    Raises:
        DispatchLabError: PyTorch or a package cannot be imported.
    """
    from dispatchlab.questions.sources.find_sources import recorded_packages
    from dispatchlab.views.blocks import Code
    from dispatchlab.views.formatting import counted

    _named("record", packages)
    found = recorded_packages(packages)
    summary = f"{' and '.join(packages)}: {counted(found.registrations, 'registration')}"
    return Result(found, summary, lambda: View(found, lines=lambda one: (Code(one.text),)))


def why(error: BaseException | str) -> Result[Answer]:
    """Explain why an exception was raised, and how to fix it.

    Call `watch_exceptions` first, before torch is imported, so that registrations have lines.

    >>> from dispatchlab import why
    >>> try:
    ...     {}["a"]
    ... except KeyError as error:
    ...     print(why(error))  # doctest: +ELLIPSIS
    cause: ...KeyError: 'a'...

    Args:
        error: the exception, with its traceback; or the text of a traceback.

    Raises:
        TypeError: `error` is neither.
    """
    from dispatchlab.live.failure.program_watch import ProgramWatch
    from dispatchlab.questions.why.answer_blocks import why_view
    from dispatchlab.questions.why.exception import why_exception
    from dispatchlab.questions.why.run import why_text

    if not isinstance(error, BaseException | str):
        raise TypeError(f"pass an exception, or the text of a traceback, not {error!r}")
    answer = why_text(error) if isinstance(error, str) else why_exception(error, ProgramWatch.current())
    return Result(answer, answer.cause, lambda: why_view(answer))


def _named(function: str, packages: Sequence[str]) -> None:
    if not packages:
        raise CheckOptionError("packages", packages, f"expected the name of a package: {function}('my_package')")


def _source(source: str | os.PathLike[str] | None, package: str | None = None) -> tuple[str | None, tuple[str, ...]]:
    """Return the name of a source, and the package that is imported into it; no name when none was given."""
    if package is not None:
        return LIVE if source is None else os.fspath(source), (package,)
    return (None, ()) if source is None else source_with_package(os.fspath(source))


def open_registry(source: str | os.PathLike[str] | None = None) -> StoredRegistry:
    """Open a recorded registry: a bundled one by its name, or a file by its path.

    Args:
        source: the name or the path; default: the bundled registry of the installed PyTorch, or else the newest.

    >>> from dispatchlab import open_registry
    >>> registry = open_registry("torch-2.13")
    >>> len(registry)
    3599
    >>> str(registry.operator("aten::add.Tensor").schema)
    'aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor'

    Raises:
        UnknownRegistryError: there is no registry of this name, and no such file.
        RegistryFileError: the file cannot be read.
    """
    if source is None:
        from dispatchlab.registries.builds import default_registry

        source = default_registry().name
    return open_named(os.fspath(source))


def bundled_registries() -> tuple[str, ...]:
    """Return the names of the registries that come with dispatchlab, the oldest PyTorch first.

    Each is of the public wheel, which has the kernels for CUDA, but for `torch-2.13-cpu`.

    >>> from dispatchlab import bundled_registries
    >>> bundled_registries()[:3]
    ('torch-2.4', 'torch-2.5', 'torch-2.6')
    """
    return bundled_names()


@overload
def trace(line: Callable[[str], object] | None = None, *, engine: Literal["lab"] = "lab") -> Trace: ...


@overload
def trace(*, engine: Literal["torch"]) -> TorchTrace: ...


def trace(line: Callable[[str], object] | None = None, *, engine: EngineName = "lab") -> Trace | TorchTrace:
    """Record the calls of operators inside of a `with` block.

    >>> from dispatchlab import Lab, tensor, trace
    >>> lab = Lab()
    >>> with trace(print) as record:
    ...     _ = lab.sin(tensor([0.0]))
     [call] op=[aten::sin], key=[AutogradCPU]
      [redispatchBoxed] op=[aten::sin], key=[CPU]
    >>> len(record.calls)
    2

    Args:
        line: a function that gets a line for each call of the lab when it begins, in PyTorch's format.
        engine: `lab`, or `torch` for the operators of the PyTorch of this process, whose trace is read after the block.

    Raises:
        TorchMissingError: PyTorch is not installed.
        TorchTraceError: another trace of PyTorch is on.
    """
    if engine == "torch":
        from dispatchlab.questions.trace.torch_trace import TorchTrace

        return TorchTrace()
    from dispatchlab.call.trace import Trace

    return Trace(line)
