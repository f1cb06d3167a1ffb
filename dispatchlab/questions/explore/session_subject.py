"""The subject of an interactive session: the registrations of a scenario, or of one operator of a registry.

A `Subject` has everything that a session needs, except the engine; `runner_for` makes the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dispatchlab.engine.semantics import Semantics, semantics_named
from dispatchlab.model.installed_torch import model_for
from dispatchlab.model.kernel_identity import distinguished
from dispatchlab.model.names import OperatorName, find_operators, is_glob, name_of
from dispatchlab.model.registration import Fallback, Registration, inner_of, operators_of
from dispatchlab.model.sequence import StepSequence
from dispatchlab.questions.dump.inspect_scenario import ground_of
from dispatchlab.questions.explore.session import LabRunner, SessionError
from dispatchlab.questions.sources.find_sources import registry_of_scenario
from dispatchlab.questions.sources.replay_on_lab import for_registry
from dispatchlab.registries.model import Recorded
from dispatchlab.registries.replay import fallback_registration, operator_registrations
from dispatchlab.scenario.scenario import SEMANTICS, Scenario


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a session.

    Args:
        title: the scenario file or the operator.
        origin: its origin, for a reader; empty for a scenario.
        scenario: its registrations, and the observed operators.
        registrations: the same registrations; equal debug texts have marks.
        semantics: the semantics of the lab engine.
        ground: the registrations that are always in force.
        start: the first sequence.
        notes: further sentences for the reader.
        build: the version of the recorded PyTorch; empty for a scenario without a registry.
        imports: the packages that were imported into it.
    """

    title: str
    origin: str
    scenario: Scenario
    registrations: tuple[Registration, ...]
    semantics: Semantics
    ground: tuple[Registration, ...]
    start: StepSequence
    notes: tuple[str, ...] = ()
    build: str = ""
    imports: tuple[str, ...] = ()

    @property
    def operators(self) -> tuple[OperatorName, ...]:
        """The observed operators."""
        return self.scenario.operators

    def concerning(self, operator: OperatorName) -> tuple[int, ...]:
        """Return the registrations that an operator can depend on, by number."""
        own = enumerate(map(tuple, map(operators_of, self.scenario.registrations)))
        reach_all = {
            index
            for index, one in enumerate(self.scenario.registrations)
            if any(isinstance(part, Fallback) for part in inner_of(one))
        }
        return tuple(index for index, names in own if operator in names or not names or index in reach_all)


def subject_of_scenario(scenario: Scenario, *, semantics: str | None = None) -> Subject:
    """Return a session about the registrations of a scenario, all registered in the order of its file.

    Args:
        scenario: the scenario.
        semantics: the semantics of the lab engine; default: those that the scenario names.

    Raises:
        SessionError: it has no registrations or no operators.
        DispatchLabError: the semantics or the registry that it names cannot be used.
    """
    title = scenario.file or scenario.claim.rstrip(".")
    if not scenario.registrations or not scenario.operators:
        raise SessionError(f"{title}: there is nothing to explore: it registers nothing about an operator")
    asked = semantics or scenario.semantics
    beneath = registry_of_scenario(scenario)
    chosen, ground = (semantics_named(asked), ()) if beneath is None else ground_of(scenario, beneath, (), asked)
    notes = (
        ("the modules of the scenario are left out: each registration stands by itself",) if scenario.modules else ()
    )
    registrations = distinguished(scenario.registrations)
    start = tuple(range(len(registrations)))
    build, imports = ("", ()) if beneath is None else (beneath.torch, (*beneath.imports, *scenario.packages))
    return Subject(title, "", scenario, registrations, chosen, ground, start, notes, build, imports)


def subject_of_operator(recorded: Recorded, asked: str, *, source: str, semantics: str | None = None) -> Subject:
    """Return a session about one operator of a registry, with all its registrations in force.

    Args:
        recorded: the registry.
        asked: the name of the operator.
        source: the name of the registry.
        semantics: the semantics of the lab engine; default: the model of the recorded PyTorch.

    Raises:
        DispatchLabError: there is no such operator, or its record cannot be read.
    """
    if is_glob(asked):
        raise SessionError(f"{asked!r} is a glob, but the application shows one operator: give its name")
    (found,) = find_operators(asked, tuple(recorded.names), source=source)
    operator = recorded.operator(found)
    assert operator is not None
    torch = recorded.torch
    name = semantics or model_for(torch)
    fallbacks = tuple(map(fallback_registration, recorded.fallbacks))
    registrations = operator_registrations(operator)
    scenario = Scenario(
        f"The registrations of {found} in {source}.",
        registrations,
        (name_of(found),),
        semantics=name if name in SEMANTICS else None,
    )
    brought = {(fallback.key, fallback.kernel.form) for fallback in semantics_named(name).fallbacks}
    others = brought != {(fallback.key, fallback.kernel.form) for fallback in fallbacks}
    return Subject(
        title=found,
        origin=source,
        scenario=scenario,
        registrations=distinguished(registrations),
        semantics=replace(for_registry(name, torch=torch), fallbacks=fallbacks),
        ground=(),
        start=tuple(range(len(registrations))),
        notes=(f"{source} has other backend fallbacks than {name}, which a check has",) * others,
        build=torch,
        imports=tuple(recorded.imports),
    )


def runner_for(subject: Subject) -> LabRunner:
    """Return the registrations of a subject on the lab engine."""
    return LabRunner(subject.registrations, subject.operators, subject.semantics, subject.ground)
