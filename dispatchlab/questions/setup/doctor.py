"""The features that work here: the versions, and each feature, tried on the installed PyTorch.

A version decides nothing. Each feature is tried in a worker process. If it raises, or if the worker crashes, this is
the reason why the feature does not work. `FEATURES` says which commands need which feature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from dispatchlab.errors import DispatchLabError
from dispatchlab.questions.setup.environment import Fact, distribution_version, facts
from dispatchlab.registries.file import bundled_names, newest_bundled
from dispatchlab.views.as_json import as_json, fields_of
from dispatchlab.views.blocks import Inline, Line, Mood, Section, Span, Verdict, warn
from dispatchlab.views.view import View

if TYPE_CHECKING:
    from dispatchlab.live.worker.engine import LiveEngine
    from dispatchlab.views.blocks import Block

State: TypeAlias = Literal["works", "limited", "does not work"]
"""`limited` finds less."""

_MOODS: dict[State, Mood] = {"works": "good", "limited": "warn", "does not work": "bad"}
_PROBES = "dispatchlab.questions.setup.live_probes"


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature of dispatchlab that needs the installed PyTorch.

    Args:
        name: its name.
        commands: the commands that need it.
        limits: whether these commands find less without it; else they fail without it.
    """

    name: str
    commands: tuple[str, ...]
    limits: bool = False


_LIVE = ("dump --from live", "explain --from live", "check live", "diff live", "coverage live", "record --all")
FEATURES: dict[str, Feature] = {
    "keys": Feature("dispatch keys", ("permute --engine torch", "explain --from live"), limits=True),
    "registry": Feature("read the registry", _LIVE),
    "explore": Feature("register and release", ("permute --engine torch",)),
    "slots": Feature("read slots", ("permute --engine torch",), limits=True),
    "record": Feature("record a package", ("check", "record", "init")),
}
"""Each feature by its probe: `explore` runs from here, the others are functions of `live_probes`."""


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of a tried feature.

    Args:
        feature: the feature.
        state: the result.
        why: the observation, or why it does not work.
    """

    feature: Feature
    state: State
    why: str


@dataclass(frozen=True, slots=True)
class TorchFound:
    """The installed PyTorch.

    Args:
        version: its version; if it cannot be imported, the version in its metadata.
        semantics: the name of its model, such as `torch-2.13`.
        error: why it cannot be imported.
        tried: each feature, in the order of `FEATURES`; empty if PyTorch cannot be imported.
    """

    version: str
    semantics: str
    error: str = ""
    tried: tuple[Tried, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything that `dispatchlab doctor` shows.

    Args:
        facts: versions and optional tools.
        torch: the installed PyTorch; None if there is none.
    """

    facts: tuple[Fact, ...]
    torch: TorchFound | None

    @property
    def exit_code(self) -> int:
        """1 if an installed part does not work, else 0; also 0 without PyTorch."""
        torch = self.torch
        broken = torch is not None and (bool(torch.error) or any(one.state == "does not work" for one in torch.tried))
        return int(broken or any(fact.problem for fact in self.facts))


def diagnose(*, progress: Callable[[str], None] = lambda name: None) -> Diagnosis:
    """Read facts about this machine, and try every feature on the installed PyTorch.

    Args:
        progress: a function that gets the name of each feature before it is tried.
    """
    return Diagnosis(facts(), _torch(progress))


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

    try:
        return Tried(feature, "works", _run(engine, probe))
    except Exception as error:
        missed = feature.limits and not isinstance(error, EngineCrashed)
        return Tried(feature, "limited" if missed else "does not work", _sentence(error))


def _run(engine: LiveEngine, probe: str) -> str:
    """Run a probe; the probe of `explore` explores registrations that do not commute."""
    if probe != "explore":
        return str(engine.ask(f"{_PROBES}:{probe}"))
    from dispatchlab.prover.result import Verdict
    from dispatchlab.questions.setup.live_probes import ProbeFailed
    from dispatchlab.scenario.load import parse_scenario

    scenario = parse_scenario(_DISAGREES, file="doctor")
    found = engine.explore(scenario.registrations, scenario.operators)
    if found.verdict is not Verdict.ORDER_DEPENDENT:
        raise ProbeFailed(f"two registrations at one key were explored, and the verdict is {found.verdict}")
    return f"a scenario explored, {found.edges} edges"


_DISAGREES = """
claim: Two kernels at one key do not commute.
registrations:
  - {impl: foo, dispatch: CPU, debug: fn_1}
  - {impl: foo, dispatch: CPU, debug: fn_2}
"""


def _sentence(error: BaseException) -> str:
    """Return the error in one line; its last line if it came with a traceback."""
    if isinstance(error, DispatchLabError):
        lines = [line for line in str(error).splitlines() if line.strip()]
        if "Traceback (most recent call last):" in lines:
            return lines[-1].strip()
        return lines[0] if lines else type(error).__name__
    return f"{type(error).__name__}: {error}"


def doctor_view(found: Diagnosis) -> View[Diagnosis]:
    """Return the view of a diagnosis: the result in the first line, each feature with its reason, and the versions."""
    return View(found, lines=_blocks)


@as_json.register
def _(value: Diagnosis) -> dict[str, object]:
    return {"ok": value.exit_code == 0, **fields_of(value)}


@as_json.register
def _(value: Tried) -> dict[str, object]:
    return fields_of(value, feature=value.feature.name, commands=value.feature.commands)


def _blocks(found: Diagnosis) -> Iterator[Block]:
    torch = found.torch
    if torch is None:
        yield Verdict("PyTorch is not installed: commands about it need pip install 'dispatchlab[torch]'", "quiet")
    elif torch.error:
        yield Verdict(f"PyTorch {torch.version} is installed and cannot be imported: {torch.error}", "bad")
    else:
        yield from _torch_blocks(torch)
    facts = ((one.name, warn(f"PROBLEM: {one.value}") if one.problem else one.value) for one in found.facts)
    yield Section("This machine", tuple(_table(facts)))


def _torch_blocks(torch: TorchFound) -> Iterator[Block]:
    works = sum(one.state == "works" for one in torch.tried)
    bad = any(one.state == "does not work" for one in torch.tried)
    how_many = f"all {works} features work" if works == len(torch.tried) else f"{works} of {len(torch.tried)} work"
    mood: Mood = "bad" if bad else "good" if works == len(torch.tried) else "warn"
    yield Verdict(f"PyTorch {torch.version}: {how_many}", mood)
    if torch.semantics not in bundled_names():
        yield Line(f"no registry of it is bundled: what does not name `live` answers for {newest_bundled()}", indent=2)
    yield from _table((one.feature.name, (Span(one.state, _MOODS[one.state]), f": {one.why}")) for one in torch.tried)
    for one in torch.tried:
        if one.state != "works":
            yield Line(f"{one.feature.name} is for: {', '.join(one.feature.commands)}", indent=2)


def _table(rows: Iterable[tuple[str, Inline]]) -> Iterator[Line]:
    found = tuple(rows)
    width = 2 + max((len(name) for name, _ in found), default=0)
    return (Line(value, indent=2, label=name, width=width) for name, value in found)
