"""What an interactive session is about: the registrations of a scenario, or those of one operator of a registry.

A `Subject` has everything that a session needs but the engine; `runner_for` makes that. `saved_scenario` is the way
back: the registrations of a sequence as a scenario of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dispatchlab.engine.semantics import Semantics, semantics_named
from dispatchlab.escape import one_line
from dispatchlab.model.installed_torch import model_for
from dispatchlab.model.kernel_identity import distinguished
from dispatchlab.model.names import OperatorName, find_operators, name_of
from dispatchlab.model.profile import version_of
from dispatchlab.model.registration import Block, Fallback, Registration, operators_of
from dispatchlab.model.sequence import StepSequence, format_sequence
from dispatchlab.prover.chains import ChainsWithin
from dispatchlab.prover.result import Expectation, Verdict
from dispatchlab.questions.dump.inspect_scenario import ground_of
from dispatchlab.questions.explore.session import LabRunner, Runner, SandboxRunner, SessionError
from dispatchlab.questions.order.run_scenario import RunOptions, run_scenario
from dispatchlab.questions.sources.engines import EngineName, ImportForLabError, SemanticsOfTorchError, engine_for
from dispatchlab.questions.sources.find_sources import registry_of_scenario
from dispatchlab.questions.sources.replay_on_lab import for_registry
from dispatchlab.registries.file import bundled_name
from dispatchlab.registries.model import Recorded
from dispatchlab.registries.replay import fallback_registration, operator_registrations
from dispatchlab.scenario.scenario import SEMANTICS, Scenario, operators_named_by
from dispatchlab.scenario.write import scenario_text

if TYPE_CHECKING:
    from dispatchlab.prover.protocol import Engine

_MOST_STATES = 2_000
"""A scenario that is saved is explored as far as this for what it expects."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a session is about.

    Args:
        title: the scenario file or the operator.
        origin: where it comes from, for a reader; empty for a scenario.
        scenario: its registrations, and what is observed.
        registrations: the same registrations with marks in debug texts that could be taken for one another.
        semantics: those of the lab engine.
        ground: what is registered beneath, for good.
        start: the sequence to begin with.
        notes: what else a reader should know, a sentence each.
        build: the version of the PyTorch that was recorded; empty for a scenario that stands alone.
        imports: the packages that it had imported.
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
        """What is observed."""
        return self.scenario.operators

    def concerning(self, operator: OperatorName) -> tuple[int, ...]:
        """The registrations that an operator can depend on, by number."""
        own = enumerate(map(tuple, map(operators_of, self.scenario.registrations)))
        reach_all = {
            index
            for index, one in enumerate(self.scenario.registrations)
            if any(isinstance(part, Fallback) for part in (one.registrations if isinstance(one, Block) else (one,)))
        }
        return tuple(index for index, names in own if operator in names or not names or index in reach_all)


def subject_of_scenario(scenario: Scenario, *, semantics: str | None = None) -> Subject:
    """A session about the registrations of a scenario, all registered in the order of its file.

    Args:
        scenario: the scenario.
        semantics: those of the lab engine; those that the scenario names when left out.

    Raises:
        SessionError: it has nothing that could be registered or observed.
        DispatchLabError: the semantics or the registry that it names cannot be used.
    """
    title = scenario.file or scenario.claim.rstrip(".")
    if not scenario.registrations or not scenario.operators:
        raise SessionError(f"{title}: there is nothing to explore: it registers nothing about an operator")
    asked = semantics or scenario.semantics or "strict"
    beneath = registry_of_scenario(scenario)
    chosen, ground = (semantics_named(asked), ()) if beneath is None else ground_of(scenario, beneath, (), asked)
    notes = (
        ("the modules of the scenario are left out: each registration stands by itself",) if scenario.modules else ()
    )
    registrations = distinguished(scenario.registrations)
    start = tuple(range(len(registrations)))
    build, imports = ("", ()) if beneath is None else (beneath.torch, (*beneath.imports, *scenario.packages))
    return Subject(title, "", scenario, registrations, chosen, ground, start, notes, build, imports)


class Catalogue:
    """The operators of a registry, to be searched and opened.

    Args:
        recorded: the registry.
        source: what it is called.
        semantics: those of the lab engine; the model of the PyTorch that was recorded when left out.
    """

    def __init__(self, recorded: Recorded, source: str, semantics: str | None = None) -> None:
        self._recorded, self.source, self._semantics = recorded, source, semantics
        self.names = tuple(recorded.names)
        self._search = tuple((name.lower(), name) for name in self.names)

    def search(self, text: str) -> tuple[str, ...]:
        """The operators whose names hold each word of a text, the best first.

        A name that the text begins comes before one of which a part begins like it, and that before all others; of
        equals the shorter comes first.
        """
        words = text.lower().split()
        if not words:
            return self.names
        first = words[0]
        found = []
        for lower, name in self._search:
            if all(word in lower for word in words):
                _, _, bare = lower.rpartition("::")
                base = bare.partition(".")[0]
                rank = (
                    base != first,
                    not lower.startswith(first) and not bare.startswith(first),
                    f"_{first}" not in bare,
                )
                found.append((rank, len(name), name))
        return tuple(name for _, _, name in sorted(found))

    def named(self, asked: str) -> tuple[str, ...]:
        """The operators that a name, a name without overload or a glob means.

        Raises:
            UnknownOperatorError: it means none.
        """
        from dispatchlab.errors import UnknownOperatorError
        from dispatchlab.model.names import find_names

        found = find_names(self.names, asked)
        if not found:
            raise UnknownOperatorError(asked, self.names, self.source)
        return found

    def subject(self, name: str) -> Subject:
        """A session about one operator, with everything registered that the registry has.

        Raises:
            DispatchLabError: there is no such operator, or its record cannot be read.
        """
        (found,) = find_operators(name, self.names, source=self.source)
        operator = self._recorded.operator(found)
        assert operator is not None
        torch = self._recorded.torch
        asked = self._semantics or (model_for(torch) if version_of(torch) is not None else "strict")
        fallbacks = tuple(map(fallback_registration, self._recorded.fallbacks))
        registrations = operator_registrations(operator)
        scenario = Scenario(
            f"The registrations of {found} in {self.source}.",
            registrations,
            (name_of(found),),
            semantics=asked if asked in SEMANTICS else None,
        )
        semantics = replace(for_registry(asked, torch=torch), fallbacks=fallbacks)
        start = tuple(range(len(registrations)))
        brought = {(fallback.key, fallback.kernel.form) for fallback in semantics_named(asked).fallbacks}
        others = brought != {(fallback.key, fallback.kernel.form) for fallback in fallbacks}
        note = f"{self.source} has other backend fallbacks than {asked}, which a check and a saved scenario have"
        return Subject(
            title=found,
            origin=self.source,
            scenario=scenario,
            registrations=distinguished(registrations),
            semantics=semantics,
            ground=(),
            start=start,
            notes=(note,) if others else (),
            build=torch,
            imports=tuple(self._recorded.imports),
        )


@contextmanager
def engine_of_session(
    name: EngineName, *, semantics: str | None, imports: Sequence[str] = ()
) -> Iterator[Engine | None]:
    """The live engine, started once for all sessions; None for the lab, which needs none.

    Raises:
        SemanticsOfTorchError: semantics were asked for of the live engine.
        ImportForLabError: modules were named for the lab engine.
        TorchMissingError: there is no PyTorch here.
    """
    if name == "lab":
        if imports:
            raise ImportForLabError(imports[0])
        yield None
        return
    if semantics is not None:
        raise SemanticsOfTorchError(semantics)
    with engine_for(name, asked=None, in_file=None, imports=imports) as engine:
        yield engine


def runner_for(subject: Subject, engine: Engine | None, *, imports: Sequence[str] = ()) -> Runner:
    """The registrations of a subject on an engine.

    Args:
        subject: the subject.
        engine: the live engine; None for the lab.
        imports: what the live engine has imported.

    Raises:
        SessionError: the subject stands on a registry, which a sandbox of the live engine does not have.
    """
    if engine is None:
        return LabRunner(subject.registrations, subject.operators, subject.semantics, subject.ground)
    if subject.ground:
        raise SessionError(
            f"{subject.title} stands on a registry, and a sandbox on the installed PyTorch has none of its kernels: "
            "leave --engine torch out"
        )
    from dispatchlab.questions.order.stand_ins import with_known_classes, with_stand_ins

    registrations, _ = with_stand_ins(subject.registrations)
    if not imports:
        registrations, _ = with_known_classes(registrations)
    return SandboxRunner(engine, registrations, subject.operators)


# -- saved


def saved_scenario(subject: Subject, sequence: StepSequence, *, path: str = "") -> tuple[str, StepSequence]:
    """The registrations of a sequence as the text of a scenario file, and the sequence in its numbers.

    Registrations stand in the order in which the sequence first names them. What the scenario expects is what exploring
    it shows; where that is too long, it is left at the default.

    Args:
        subject: what the sequence is about.
        sequence: the steps; a registration that is released or refused is in the file as well.
        path: where the file will be, which decides how it names the registry that it stands on.

    Raises:
        SessionError: the sequence is empty.
        UnwritableError: a registration cannot be written.
    """
    members = tuple(dict.fromkeys(max(step, ~step) for step in sequence))
    if not members:
        raise SessionError("there is nothing to save: the sequence is empty")
    number = {member: new for new, member in enumerate(members)}
    renumbered = tuple(number[step] if step >= 0 else ~number[~step] for step in sequence)
    whole = subject.scenario
    registrations = tuple(whole.registrations[member] for member in members)
    named = operators_named_by(registrations)
    about = subject.title if not subject.origin else f"{subject.title} of {subject.origin}"
    chains = ChainsWithin(whole.order).among(members)
    scenario = replace(
        whole,
        claim=f"The sequence {format_sequence(sequence)} of {about}.",
        registrations=registrations,
        operators=tuple(name for name in whole.operators if name in named) or whole.operators,
        semantics=subject.semantics.name if subject.semantics.name in SEMANTICS else whole.semantics,
        registry=_registry_beside(whole, path),
        order=tuple(chain for chain in chains if list(chain) == sorted(chain)),
        modules=(),
        expect=Expectation.ORDER_INDEPENDENT,
        file=path,
    )
    scenario = replace(scenario, expect=_expectation(scenario))
    file = one_line(os.path.basename(path) or "FILE")
    first = one_line(str(scenario.operators[0]))
    head = f"# What was looked at: dispatchlab dump {first} --from {file} --after '{format_sequence(renumbered)}'\n"
    return head + scenario_text(scenario), renumbered


def _registry_beside(scenario: Scenario, path: str) -> str | None:
    """The registry that a scenario stands on, as a file at another place names it."""
    if scenario.registry is None or bundled_name(scenario.registry) is not None:
        return scenario.registry
    registry = os.path.join(os.path.dirname(scenario.file), scenario.registry)
    return os.path.relpath(registry, os.path.dirname(path) or ".")


def _expectation(scenario: Scenario) -> Expectation:
    found = run_scenario(scenario, RunOptions(max_states=_MOST_STATES)).report.exploration
    match found.verdict:
        case Verdict.ORDER_DEPENDENT:
            return Expectation.ORDER_DEPENDENT
        case Verdict.ORDER_INDEPENDENT if found.conflicts or found.never_accepted:
            return Expectation.REFUSED
        case _:
            return Expectation.ORDER_INDEPENDENT
