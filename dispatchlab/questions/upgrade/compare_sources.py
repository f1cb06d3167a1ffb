"""Upgrades: compare two registries, each under the model of its PyTorch, for users of the first one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from dispatchlab._gc_pause import collector_paused
from dispatchlab.errors import RequestError
from dispatchlab.model.keys import BACKENDS
from dispatchlab.questions.sources.find_sources import (
    LIVE,
    ImportOfRecordError,
    check_sources,
    in_either,
    recorded_from,
)
from dispatchlab.questions.upgrade.operator_changes import Terms, Upgrade, upgrade
from dispatchlab.questions.upgrade.slot_models import Model, SlotDifference, models_of
from dispatchlab.registries.builds import backend_named, has_kernels_for, is_in_tree
from dispatchlab.registries.model import Recorded
from dispatchlab.registries.overlay import overlaid_names
from dispatchlab.registries.ownership import first_use_operators, ownership_of
from dispatchlab.registries.side_by_side import Pair, Reduced, leave_out, operators_of

if TYPE_CHECKING:
    from dispatchlab.questions.upgrade.package_changes import PackageUpgrade
    from dispatchlab.questions.upgrade.python_changes import PythonDiff

Layer: TypeAlias = Literal["cxx", "python", "all"]
"""What is compared: what C++ dispatches by, what Python registers beside it, or both."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two registries.

    Args:
        source: the name that the user gave.
        torch: its version of PyTorch.
        operators: the number of its operators.
        model: the name of its dispatcher.
    """

    source: str
    torch: str
    operators: int
    model: str


@dataclass(frozen=True, slots=True)
class UpgradeReport:
    """The effect of the second registry on users of the first.

    Args:
        before: the first registry.
        after: the second one.
        upgrade: the differences.
        package: the effect on the registrations of a package, if the user named one.
        layer: the compared layer; with `python`, the upgrade contains no operators.
        python: the differences of Python's registrations, if the user asked for them.
    """

    before: Side
    after: Side
    upgrade: Upgrade
    package: PackageUpgrade | None = None
    layer: Layer = "cxx"
    python: PythonDiff | None = None

    @property
    def exit_code(self) -> int:
        """0 if the requested parts do not differ, else 1; used for --exit-code."""
        if self.package is not None:
            return int(self.package.is_affected)
        python = self.python is not None and bool(self.python.changes)
        return int(python or not self.upgrade.is_empty)


def upgrade_sources(
    before: str,
    after: str,
    *,
    imports: tuple[str, ...] = (),
    operators: Sequence[str] = (),
    everything: bool = True,
    package: str | None = None,
    layer: Layer = "cxx",
    report: Callable[[str], None] | None = None,
) -> UpgradeReport:
    """Return the effect of the second source on users of the first.

    Args:
        before: the first source: `live`, the name of a bundled registry, a file, or a scenario.
        after: the second one.
        imports: modules to import into the source `live`; into the second one if both are, so that `live` twice is
            the registry without the imports and then with them.
        operators: names and globs of the operators to compare; empty for all operators and fallbacks.
        everything: also compare registrations that PyTorch makes when a part of it is first used.
        package: the scenario or recording of a package, to report the effect on it.
        layer: compare the dispatch tables, the registrations of Python, or both.
        report: see `recorded_from`.

    Raises:
        ImportOfRecordError: there are modules to import, and no source is `live`.
        UnknownOperatorError: an operator is in neither.
        RequestError: neither has an operator or a fallback.
        RequestError: only Python's registrations should be compared, but a source does not have them.
        DispatchLabError: a source cannot be used.
    """
    if imports and LIVE not in (before, after):
        raise ImportOfRecordError(tuple(imports))
    check_sources((before, after))
    into_first = imports if before == LIVE and after != LIVE else ()
    into_second = imports if after == LIVE else ()
    python = layer != "cxx"
    first = recorded_from(before, imports=into_first, python=python, report=report)
    second = recorded_from(after, imports=into_second, python=python, report=report)
    if not any((first.names, second.names, first.fallbacks, second.fallbacks)):
        have = f"{before} has" if before == after else f"{before} and {after} have"
        raise RequestError(f"{have} no operator, so there is nothing to report: record some that do")
    ownerships = ownership_of(first), ownership_of(second)
    listed, first_used = not before == after == LIVE, first_use_operators()

    def reduced(pair: Pair) -> Pair:
        old, new = pair
        operator = old or new
        if listed and (operator is None or str(operator.name) not in first_used):
            return pair
        return (
            ownerships[0].without_lazy(old, new, listed=listed),
            ownerships[1].without_lazy(new, old, listed=listed),
        )

    models = models_of(first.torch, second.torch)
    if report is not None:
        for note in dict.fromkeys(model.note for model in models if model.note):
            report(f"note: {note}")
    chosen = in_either(first.names, second.names, operators) if operators and not python else None
    in_python: PythonDiff | None = None
    if python:
        in_python, chosen = _of_python((before, first), (after, second), layer, operators)
    of_package: PackageUpgrade | None = None
    if package is not None:
        from dispatchlab.questions.upgrade.package_changes import package_upgrade  # which replays, and reads YAML

        of_package = package_upgrade(first, second, models, package)
    with collector_paused():
        found = compare_registries(first, second, models, operators=chosen, reduced=None if everything else reduced)
    return UpgradeReport(
        Side(before, first.torch, len(first.names), models[0].name),
        Side(after, second.torch, len(second.names), models[1].name),
        found,
        of_package,
        layer,
        in_python,
    )


def _of_python(
    before: tuple[str, Recorded], after: tuple[str, Recorded], layer: Layer, asked: Sequence[str]
) -> tuple[PythonDiff, frozenset[str] | None]:
    """Return Python's registrations, compared, and the operators to compare in C++; None for all of them."""
    from dispatchlab.questions.upgrade.python_changes import python_side_of, python_upgrade

    first, second = (python_side_of(source, recorded) for source, recorded in (before, after))
    chosen: frozenset[str] | None = None
    in_cxx = frozenset((*before[1].names, *after[1].names))
    if asked:
        chosen = in_either(in_cxx, {one.operator for layer in (first, second) for one in layer}, asked)
    found = python_upgrade(first, second, operators=chosen)
    if layer == "python":
        return found, frozenset()
    return found, None if chosen is None else chosen & in_cxx


def compare_registries(
    before: Recorded,
    after: Recorded,
    models: tuple[Model, Model],
    *,
    operators: Collection[str] | None = None,
    reduced: Reduced | None = None,
) -> Upgrade:
    """Return the effect of an upgrade from one registry to another.

    Args:
        before: the first.
        after: the second one.
        models: their dispatchers.
        operators: compare only these; default: all operators and fallbacks.
        reduced: the parts of a differing operator to compare, on both sides.

    Raises:
        RegistryFileError: a registry is in a file that is damaged.
    """
    some = operators
    if some is None and models[0].semantics is models[1].semantics and before.fallbacks == after.fallbacks:
        some = overlaid_names(before, after)
    sides = operators_of(before, some), operators_of(after, some)
    left_out = leave_out(*sides, reduced)
    first, second = (model.semantics.existing for model in models)
    builds = frozenset(
        name
        for name in BACKENDS
        if is_in_tree(name)
        and has_kernels_for(before.torch, before.imports, name) is not has_kernels_for(after.torch, after.imports, name)
    )
    terms = Terms(
        SlotDifference(models, (before.fallbacks, after.fallbacks)),
        first - second,
        second - first,
        builds,
        (ownership_of(before), ownership_of(after)),
        backend_named,
    )
    return upgrade(
        *sides,
        (before.fallbacks, after.fallbacks) if operators is None else ((), ()),
        terms,
        names=None if some is None else (before.names, after.names),
        compared=None if operators is not None else len({*before.names, *after.names}),
        left_out=left_out,
    )
