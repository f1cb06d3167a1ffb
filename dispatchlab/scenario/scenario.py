"""A scenario as a value: registrations, observed operators, and a claim about their order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.profile import semantics_names
from dispatchlab.model.registration import (
    Block,
    Claim,
    Def,
    Fallback,
    Impl,
    NameOnly,
    Registration,
    TorchLibraryCall,
    TorchLibraryFunction,
    operators_of,
)
from dispatchlab.prover.chains import Module
from dispatchlab.prover.result import Expectation

if TYPE_CHECKING:
    from dispatchlab.model.python_layer import PythonRegistration


SEMANTICS = {name: name for name in semantics_names()}
"""The words that may stand after `semantics:`."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A claim, and its registrations.

    >>> from dispatchlab import parse_scenario
    >>> scenario = parse_scenario("{claim: A sentence., registrations: [{def: foo() -> ()}]}")
    >>> scenario.operators, scenario.names
    ((parse_name('test::foo'),), ('def test::foo',))

    Args:
        claim: the sentence.
        registrations: in the order of the file; numbers name them by their place, from 0.
        operators: the observed operators.
        namespace: the namespace of names without a namespace.
        semantics: the dispatcher of the claim; None for the model of the newest PyTorch.
        keys: the table rows that are shown; empty means all.
        registry: the registry beneath it: the name of a bundled registry, or a file beside the scenario; None without
            a registry.
        packages: the packages whose import made the registrations, in order; empty for what was not recorded.
        order: chains of registrations that keep their order; releases are free.
        modules: the modules that make the registrations; the registrations of a module run together, without releases.
        python: registrations of the packages in Python beside the dispatch tables; they are not explored.
        expect: the expected verdict.
        snapshots: whether the golden file has the observation after each step.
        file: its path, as the user gave it; not compared.
    """

    claim: str
    registrations: tuple[Registration, ...]
    operators: tuple[OperatorName, ...]
    namespace: str = "test"
    semantics: str | None = None
    keys: tuple[DispatchKey, ...] = ()
    registry: str | None = None
    packages: tuple[str, ...] = ()
    order: tuple[tuple[int, ...], ...] = ()
    modules: tuple[Module, ...] = ()
    python: tuple[PythonRegistration, ...] = ()
    expect: Expectation = Expectation.ORDER_INDEPENDENT
    snapshots: bool = False
    file: str = field(default="", compare=False)

    @property
    def privateuse1(self) -> str:
        """The name that its packages give the PrivateUse1 backend; empty without one."""
        if not self.python:
            return ""
        from dispatchlab.model.python_layer import PRIVATEUSE1_NAME  # costs start-up, and few scenarios have any

        return next((one.function for one in self.python if one.registry == PRIVATEUSE1_NAME and one.active), "")

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each registration, all different: see `registration_names`."""
        return registration_names(self.registrations)


def operators_named_by(registrations: Iterable[Registration]) -> tuple[OperatorName, ...]:
    """Return the operators that registrations name, each once, in order of appearance."""
    return tuple(dict.fromkeys(name for each in registrations for name in operators_of(each)))


def registration_names(registrations: Iterable[Registration]) -> tuple[str, ...]:
    """Return a name for each registration that survives edits elsewhere in the file: `impl test::foo CPU`.

    It has no number, no debug text and no schema in it; the second registration of a name gets ` (2)`, and so on.

    >>> from dispatchlab import DispatchKey, Impl, parse_name
    >>> from dispatchlab.scenario import registration_names
    >>> registration_names([Impl(parse_name("test::foo"), DispatchKey.CPU)] * 2)
    ('impl test::foo CPU', 'impl test::foo CPU (2)')
    """
    counts: dict[str, int] = {}
    names: list[str] = []
    for registration in registrations:
        name = _name(registration)
        counts[name] = counts.get(name, 0) + 1
        names.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return tuple(names)


def _name(registration: Registration) -> str:
    match registration:
        case Def():
            return f"def {registration.operator}"
        case Impl():
            return f"impl {registration.operator}{_at(registration.key)}"
        case Fallback():
            return f"fallback{_at(registration.key)}"
        case NameOnly():
            return f"name {registration.operator}"
        case Claim():
            return f"claim {registration.namespace}"
        case Block(made_by=TorchLibraryCall(function=function, operator=operator)):
            inner = registration.registrations[0] if registration.registrations else None
            key = inner.key if function == TorchLibraryFunction.IMPL and isinstance(inner, Impl) else None
            return f"{function} {operator.within(registration.namespace or '')}{_at(key)}"
        case Block():
            return f"library {registration.namespace or '_'} {registration.kind}{_at(registration.key)}"


def _at(key: DispatchKey | None) -> str:
    return f" {key}" if key else ""


def operators_in(scenario: Scenario) -> tuple[OperatorName, ...]:
    """Return the operators that a scenario names or observes, each once."""
    return tuple(dict.fromkeys((*operators_named_by(scenario.registrations), *scenario.operators)))
