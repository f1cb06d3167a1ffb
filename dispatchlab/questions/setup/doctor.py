"""What works here: the versions, and each feature tried on the PyTorch that is installed.

Nothing is concluded from a version. A feature is tried in a worker process, and what it raises is the reason why it
does not work; a worker that crashes is such a reason, too. `FEATURES` says which commands need which feature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal, TypeAlias

from dispatchlab.errors import DispatchLabError
from dispatchlab.questions.setup.environment import Fact, distribution_version, facts
from dispatchlab.registries.file import bundled_names, newest_bundled
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.blocks import Inline, Line, Mood, Span, warn
from dispatchlab.views.view import View

if TYPE_CHECKING:
    from dispatchlab.live.worker.engine import LiveEngine


State: TypeAlias = Literal["works", "limited", "absent", "fails"]
"""`limited` finds less; `absent` is not offered for this version of PyTorch, which is no defect of the installation."""

_STATES: dict[State, str] = {
    "works": "works",
    "limited": "limited",
    "absent": "not offered",
    "fails": "does not work",
}
"""How a state is shown."""

_PROBES = "dispatchlab.questions.setup.live_probes"


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that dispatchlab does with the installed PyTorch.

    Args:
        name: what it is.
        commands: the commands that need it, as a user writes them.
        limits: whether these commands work without it and find less; else they fail.
    """

    name: str
    commands: tuple[str, ...]
    limits: bool = False


FEATURES: dict[str, Feature] = {
    "keys": Feature("dispatch keys", ("permute --engine torch", "explain --from live"), limits=True),
    "registry": Feature(
        "read the registry",
        (
            "dump --from live",
            "explain --from live",
            "check live",
            "diff live",
            "coverage live",
            "permute live",
            "record --all",
        ),
    ),
    "explore": Feature("register and release", ("permute --engine torch",)),
    "slots": Feature("read slots", ("permute --engine torch",), limits=True),
    "conform": Feature("compare with the lab engine", ("permute --engine torch --conform",)),
    "record": Feature("record a package", ("record", "init")),
    "imports": Feature("watch imports", ("check --orders",)),
    "leaks": Feature("find leaks", ("fixture dispatcher_leaks",)),
}
"""Each feature by its probe: `explore` and `conform` run from here, the others are functions of `live_probes`."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A feature after it was tried.

    Args:
        feature: what was tried.
        state: what became of it.
        why: what was seen, or why it does not work.
    """

    feature: Feature
    state: State
    why: str


@dataclass(frozen=True, slots=True)
class TorchFound:
    """The PyTorch that is installed.

    Args:
        version: what it says of itself; what its metadata says, when it cannot be imported.
        semantics: its version as semantics and registries are called, `torch-2.13`.
        error: why it cannot be imported.
        tried: each feature, in the order of `FEATURES`; empty when it cannot be imported.
    """

    version: str
    semantics: str
    error: str = ""
    tried: tuple[Tried, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything that `dispatchlab doctor` shows.

    Args:
        facts: versions, the terminal, optional tools.
        torch: the PyTorch that is installed; None when there is none.
    """

    facts: tuple[Fact, ...]
    torch: TorchFound | None

    @property
    def exit_code(self) -> int:
        """1 when something that is installed does not work, else 0; a machine without PyTorch is well."""
        torch = self.torch
        broken = torch is not None and (bool(torch.error) or any(one.state == "fails" for one in torch.tried))
        return int(broken or any(fact.problem for fact in self.facts))


def diagnose(*, progress: Callable[[str], None] | None = None) -> Diagnosis:
    """Look at this machine, and try every feature on the PyTorch that is installed.

    Args:
        progress: called with the name of each feature before it is tried.
    """
    return Diagnosis(facts(), _torch(progress or (lambda name: None)))


def _torch(progress: Callable[[str], None]) -> TorchFound | None:
    from dispatchlab.live.bridge.torch import TorchMissingError
    from dispatchlab.live.worker.engine import LiveEngine

    try:
        engine = LiveEngine()
    except TorchMissingError:
        return None
    with engine:
        progress("import PyTorch")
        try:
            # NB: the first request starts the worker, so there is nothing yet that a timer could end.
            version = engine.worker.version
        except Exception as error:
            version = distribution_version("torch") or "of an unknown version"
            return TorchFound(version, f"torch-{version}", _sentence(error))
        tried = []
        for probe, feature in FEATURES.items():
            progress(feature.name)
            tried.append(_tried(engine, probe, feature))
        return TorchFound(version, engine.semantics, tried=tuple(tried))


def _tried(engine: LiveEngine, probe: str, feature: Feature) -> Tried:
    from dispatchlab.prover.protocol import EngineCrashed
    from dispatchlab.questions.setup.live_probes import NotOffered

    try:
        return Tried(feature, "works", _run(engine, probe))
    except NotOffered as error:
        return Tried(feature, "absent", error.reason)
    except Exception as error:
        missed = feature.limits and not isinstance(error, EngineCrashed)
        return Tried(feature, "limited" if missed else "fails", _sentence(error))


def _run(engine: LiveEngine, probe: str) -> str:
    match probe:
        case "explore":
            return _explore(engine)
        case "conform":
            return _conform(engine)
        case _:
            return str(engine.ask(f"{_PROBES}:{probe}"))


def _explore(engine: LiveEngine) -> str:
    """Explore registrations that commute, and registrations that do not."""
    from dispatchlab.prover.result import Verdict
    from dispatchlab.questions.setup.live_probes import ProbeFailed
    from dispatchlab.scenario.load import parse_scenario

    wanted = {_COMMUTES: Verdict.NO_VIOLATION_FOUND, _DISAGREES: Verdict.ORDER_DEPENDENT}
    edges = 0
    for text, verdict in wanted.items():
        scenario = parse_scenario(text, file="doctor")
        found = engine.explore(scenario.registrations, scenario.operators)
        edges += found.edges
        if found.verdict is not verdict:
            raise ProbeFailed(f"two registrations were explored: expected {verdict} and found {found.verdict}")
    return f"two scenarios explored, {edges} edges"


def _conform(engine: LiveEngine) -> str:
    """Walk the live engine and the lab engine of the same version side by side."""
    from dispatchlab.engine.semantics import SEMANTICS
    from dispatchlab.prover.result import Verdict
    from dispatchlab.questions.order.conformance import conform, sentence
    from dispatchlab.questions.setup.live_probes import NotOffered, ProbeFailed
    from dispatchlab.scenario.load import parse_scenario

    if engine.semantics not in SEMANTICS:
        raise NotOffered("there is no model of this version: the nearest one answers elsewhere")
    found = conform(engine, engine.semantics, parse_scenario(_COMMUTES, file="doctor"))
    if found.verdict is not Verdict.NO_VIOLATION_FOUND:
        raise ProbeFailed(sentence(found))
    return f"the lab engine's {engine.semantics} and this PyTorch agree on a scenario"


_COMMUTES = """
claim: A def and two kernels at different keys commute.
registrations:
  - def: foo(Tensor x) -> Tensor
  - {impl: foo, dispatch: CPU, debug: fn_cpu}
  - {impl: foo, dispatch: CUDA, debug: fn_cuda}
"""
_DISAGREES = """
claim: Two kernels at one key do not commute.
registrations:
  - {impl: foo, dispatch: CPU, debug: fn_1}
  - {impl: foo, dispatch: CPU, debug: fn_2}
"""


def _sentence(error: BaseException) -> str:
    """The error in one line; of one that came with a traceback, its last line."""
    if isinstance(error, DispatchLabError):
        lines = [line for line in str(error).splitlines() if line.strip()]
        if "Traceback (most recent call last):" in lines:
            return lines[-1].strip()
        return lines[0] if lines else type(error).__name__
    return f"{type(error).__name__}: {error}"


def doctor_view(found: Diagnosis) -> View[Diagnosis]:
    """How a diagnosis is shown: facts, each feature with its state and reason, and the commands of those that fail."""
    return View(found, lines=_lines)


@as_json.register
def _(value: Diagnosis) -> dict[str, object]:
    return {"ok": value.exit_code == 0, **fields_of(value)}


@as_json.register
def _(value: Tried) -> dict[str, object]:
    return fields_of(value, feature=value.feature.name, commands=value.feature.commands)


def _lines(found: Diagnosis) -> Iterator[Line]:
    for group, some in groupby(found.facts, lambda fact: fact.group):
        yield Line(f"{group}:", "strong")
        yield from _table((fact.name, warn(f"PROBLEM: {fact.value}") if fact.problem else fact.value) for fact in some)
    torch = found.torch
    if torch is None:
        yield Line("PyTorch: not installed", "strong")
        needed = "commands about the installed PyTorch need it: pip install 'dispatchlab[torch]'; the others work"
        yield Line(needed, indent=2)
    elif torch.error:
        yield Line(f"PyTorch: {torch.version} is installed and cannot be imported", "bad")
        yield Line(torch.error, indent=2)
    else:
        yield from _torch_lines(torch)


def _torch_lines(torch: TorchFound) -> Iterator[Line]:
    works = sum(one.state == "works" for one in torch.tried)
    how_many = "all" if works == len(torch.tried) else f"{works} of"
    yield Line(f"PyTorch: {torch.version}, {how_many} {len(torch.tried)} features work", "strong")
    if torch.semantics not in bundled_names():
        answers = f"no registry of it is bundled: what does not name `live` answers for {newest_bundled()}"
        yield Line(answers, indent=2)
    yield from _table(
        (one.feature.name, (Span(_STATES[one.state], _MOODS[one.state]), f": {one.why}")) for one in torch.tried
    )
    for one in torch.tried:
        if one.state != "works":
            yield Line(f"{one.feature.name} is for: {', '.join(one.feature.commands)}", indent=2)


_MOODS: dict[State, Mood] = {"works": "good", "limited": "warn", "absent": "quiet", "fails": "bad"}


def _table(rows: Iterable[tuple[str, Inline]]) -> Iterator[Line]:
    found = tuple(rows)
    width = 2 + max((len(name) for name, _ in found), default=0)
    return (Line(value, indent=2, label=name, width=width) for name, value in found)
