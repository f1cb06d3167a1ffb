"""What is explored of a scenario: its registrations, and those of Python whose rule is known, in one list.

See Note [Where a registration of Python comes].
"""

# Note [Where a registration of Python comes]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# The entries of the field `python` follow the registrations, and their numbers do. A scenario without modules registers
# them in any order, like the others. In one with modules, a module may list them by number, which says exactly when
# they come. A record that does not say it leaves these cases:
#
# - no registration defines the operator, and nothing else is kept in the slot: then nothing reads or writes what this
#   one does, and it may come at any time;
# - nothing else is kept in the slot, and the module with the line of it makes the def as well: it comes when the module
#   ends, since it came after the def when the record was made, and a module runs from its first line to its last;
# - no registration defines the operator, and there are others in the slot: they may come in any order, which is more
#   orders than there are: a difference may be one that the imports between the modules rule out;
# - in any other case nothing is known, and it is not explored.

# Note [What make_fallback writes]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# `make_fallback` of Inductor writes two registries: it adds the operator to the fallbacks and makes its lowering. A
# record has both entries, with the line of the call. A scenario that has the fallback alone, beside the lowering of
# another package, does not say which of the two lowerings is the later one: such a fallback is not explored.

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import PythonImpl, defined_by, with_defs_needed
from dispatchlab.prover.program import Module
from dispatchlab.scenario.scenario import Scenario, operators_named_by

if TYPE_CHECKING:
    from dispatchlab.model.python_layer import PythonRegistration


def explored(scenario: Scenario, *, live: bool = False) -> Scenario:
    """The scenario with what an engine can register of its field `python` among the registrations.

    What is left in `python` is not explored: its rule, or when it comes, is not known.

    Args:
        scenario: the scenario.
        live: for the live engine, which cannot make all that the lab engine can.
    """
    if not scenario.python:
        return replace(scenario, python=unsaid) if (unsaid := tuple(_half_fallbacks(scenario))) else scenario
    chosen = _Chosen(scenario, live=live)
    if not chosen.numbers:
        return replace(scenario, modules=_without(scenario.modules, len(scenario.registrations)))
    registrations = with_defs_needed((*scenario.registrations, *chosen.made))
    named = operators_named_by(registrations)
    is_all = scenario.operators == operators_named_by(scenario.registrations)
    return replace(
        scenario,
        registrations=registrations,
        operators=named if is_all else tuple(dict.fromkeys((*scenario.operators, *_operators(chosen.made)))),
        modules=tuple(chosen.modules()),
        python=tuple(
            dict.fromkeys(
                (
                    *(one for at, one in enumerate(scenario.python) if at not in chosen.numbers),
                    *_half_fallbacks(scenario),
                )
            )
        ),
    )


def _half_fallbacks(scenario: Scenario) -> Iterator[PythonRegistration]:
    """The fallbacks of Inductor without the lowering that they make. See Note [What make_fallback writes]."""
    given = (*scenario.python, *(one.code for one in scenario.registrations if isinstance(one, PythonImpl)))
    if not given:
        return
    from dispatchlab.model.python_layer import ASSIGNMENT  # costs start-up, and few scenarios have any

    lowered = {(one.operator, one.site) for one in given if one.registry == "inductor_lowerings"}
    operators = {operator for operator, _ in lowered}
    for one in given:
        is_made = one.registry == "inductor_fallbacks" and one.call != ASSIGNMENT and not one.effect
        if is_made and one.operator in operators and (one.operator, one.site) not in lowered:
            yield one


def _operators(made: Sequence[PythonImpl]) -> Iterator[OperatorName]:
    return (one.operator for one in made)


def _without(modules: Sequence[Module], count: int) -> tuple[Module, ...]:
    """Modules without the numbers of registrations of Python."""
    return tuple(
        replace(module, body=tuple(item for item in module.body if isinstance(item, str) or item < count))
        for module in modules
    )


def _meets(one: PythonRegistration) -> tuple[str, str, str]:
    """Equal for registrations that may write one slot, or refuse one another."""
    beside = "" if one.described.rule is None else one.described.rule.beside
    return beside or one.registry, one.operator, one.key


class _Chosen:
    """The entries of the field that are explored.

    Attributes:
        made: their registrations.
        numbers: by their place in the field, their numbers among all registrations.
    """

    def __init__(self, scenario: Scenario, *, live: bool) -> None:
        self._scenario, self._live = scenario, live
        self._count = len(scenario.registrations)
        written = [one for one in scenario.python if one.effect != "used"]
        self._slots = Counter(one.slot for one in written)
        self._meeting = Counter(map(_meets, written))
        self._defined = frozenset(defined_by(scenario.registrations))
        self._bases = frozenset((name.namespace, name.name) for name in self._defined)
        self._listed = frozenset(item for module in scenario.modules for item in module.body if isinstance(item, int))
        self._half = frozenset(_half_fallbacks(scenario))
        self._at_end: dict[str, list[int]] = {}  # by module, those that come when it ends
        self._free: list[int] = []  # those that come at any time
        self.made: list[PythonImpl] = []
        self.numbers: dict[int, int] = {}
        for at, one in enumerate(scenario.python):
            if self._is_explored(at, one):
                self.numbers[at] = self._count + len(self.made)
                self.made.append(PythonImpl(self._as_it_was_made(one)))

    def _as_it_was_made(self, one: PythonRegistration) -> PythonRegistration:
        """Where calls were not watched, one that took the place of another was assigned: a call would be refused."""
        from dispatchlab.model.python_layer import ASSIGNMENT  # costs start-up, and few scenarios have any

        return one if one.call or one.effect or self._slots[one.slot] == 1 else one._replace(call=ASSIGNMENT)

    def _is_explored(self, at: int, one: PythonRegistration) -> bool:
        from dispatchlab.model.python_layer import NO_CALL_OF_ITS_OWN  # costs start-up, and few scenarios have any

        name = PythonImpl(one).operator
        if self._live and (one.registry in NO_CALL_OF_ITS_OWN or one.is_effect or one.effect == "removed"):
            return False
        if one in self._half or one.rule is None or (one.is_packet and (name.namespace, name.name) in self._bases):
            return False
        if not self._scenario.modules or self._count + at in self._listed:
            return True
        if name not in self._defined or not one.rule.by_object:
            if self._meeting[_meets(one)] > 1:
                self._free.append(at)
            return True
        module = self._module_with(one.site, name)
        if module is None or self._meeting[_meets(one)] > 1:
            return False
        self._at_end.setdefault(module, []).append(at)
        return True

    def _module_with(self, site: str, name: OperatorName) -> str | None:
        """The module that has the line of a registration of Python, if it makes the def of the operator, too."""
        path = site.partition(" ")[0].rpartition(":")[0]
        for module in self._scenario.modules:
            folders = module.name.replace(".", "/")
            if path in (f"{folders}.py", f"{folders}/__init__.py"):
                numbers = (item for item in module.body if isinstance(item, int) and item < self._count)
                if any(name in defined_by((self._scenario.registrations[number],)) for number in numbers):
                    return module.name
        return None

    def modules(self) -> Iterator[Module]:
        """The modules with the numbers that the explored ones have."""
        number: Mapping[int, int] = {self._count + at: number for at, number in self.numbers.items()}
        for module in self._scenario.modules:
            body = (item if isinstance(item, str) or item < self._count else number.get(item) for item in module.body)
            ends = (self.numbers[at] for at in self._at_end.get(module.name, ()))
            yield replace(module, body=(*(item for item in body if item is not None), *ends))
        for at in self._free:
            one = self._scenario.python[at]
            yield Module(f"{one.site or one.function or one.registry} #{self.numbers[at]}", (self.numbers[at],))
