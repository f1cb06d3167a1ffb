"""Check a record: compare it with the present registrations of its packages.

`check_record` imports the packages in a new process; `compare_records` compares two records as values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from dispatchlab._short_repr import WordEnum
from dispatchlab.errors import RequestError
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import (
    AliasKind,
    Block,
    Claim,
    Def,
    Fallback,
    Impl,
    NameOnly,
    Registration,
    TorchLibraryFunction,
)
from dispatchlab.model.schema import FunctionSchema, clone_with_name, source_text
from dispatchlab.questions.sources.find_sources import foundations_in, registry_of_scenario
from dispatchlab.registries.side_by_side import paired
from dispatchlab.scenario.load import load_scenario, parse_scenario
from dispatchlab.scenario.write import kernel_word

if TYPE_CHECKING:
    from dispatchlab.live.recording.record_package import PackageRecord
    from dispatchlab.scenario.scenario import Scenario


class ChangeKind(WordEnum):
    """The change of a registration."""

    CAME = "came"
    WENT = "went"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class RecordChange:
    """One registration that differs between two records.

    Args:
        kind: whether it is only in the second record, only in the first, or different in both.
        registration: what it is, such as `impl my::op CPU`.
        operator: the operator; None for a fallback and a claim.
        before: its form in the first record; None if it is new.
        after: its form in the second record; None if it is gone.
        debug: its debug text, from the second record if possible.
    """

    kind: ChangeKind
    registration: str
    operator: str | None
    before: str | None
    after: str | None
    debug: str


@dataclass(frozen=True, slots=True)
class RecordCheck:
    """The present registrations of packages, beside a record of them.

    Args:
        file: the record.
        packages: the packages.
        torch: the version of the PyTorch that they were imported into.
        then: the number of registrations in the record.
        now: the number of present registrations.
        changes: the differences, by operator.
        unreadable: a sentence for each part that could not be read or written.
        text: a record of the present registrations.
    """

    file: str
    packages: tuple[str, ...]
    torch: str
    then: int
    now: int
    changes: tuple[RecordChange, ...]
    unreadable: tuple[str, ...]
    text: str

    @property
    def is_same(self) -> bool:
        """True if all registrations are as recorded."""
        return not self.changes

    @property
    def exit_code(self) -> int:
        """0 if all registrations are as recorded, else 1."""
        return 0 if self.is_same else 1


def check_record(file: str, packages: Sequence[str] = (), *, name: str = "") -> RecordCheck:
    """Import packages in a new process, and compare their registrations with a record.

    Source locations are not compared, nor the defs of other packages' operators that a record repeats.

    Args:
        file: the record.
        packages: the packages; default: those that the record names.
        name: the name of the record in output; default: its path.

    Raises:
        RequestError: no package is named.
        ScenarioError: the record cannot be used.
        DispatchLabError: PyTorch or a package cannot be imported.
    """
    from dispatchlab.live.worker.engine import LiveEngine

    before = load_scenario(file)
    imported = tuple(packages) or before.packages
    if not imported:
        how = "add `packages: [my_package]`, or name them on the command line"
        raise RequestError(f"{name or file} does not name the packages that were recorded: {how}")
    with LiveEngine() as engine:
        found: PackageRecord = engine.ask("dispatchlab.live.recording.record_package:record_packages", imported)
    return compare_with_record(name or file, before, found, imported)


def compare_with_record(file: str, before: Scenario, found: PackageRecord, packages: Sequence[str]) -> RecordCheck:
    """Compare a new record with an older one.

    Args:
        file: the name of the older record.
        before: the older record.
        found: the new record.
        packages: the packages that were imported for it.
    """
    after = parse_scenario(found.text, file=file)
    beneath = registry_of_scenario(before)
    foreign = {str(name) for name in found.foundations}
    if beneath is not None:
        numbers = foundations_in(before, beneath)
        foreign |= {str(one.operator) for one in map(before.registrations.__getitem__, numbers) if isinstance(one, Def)}
    changes = compare_records(before, after, foreign=foreign)
    then, now = (sum(not _is_foreign(one, foreign) for one in each.registrations) for each in (before, after))
    return RecordCheck(file, tuple(packages), found.torch, then, now, changes, found.unreadable, found.text)


def compare_records(before: Scenario, after: Scenario, *, foreign: Collection[str] = ()) -> tuple[RecordChange, ...]:
    """Return the differences between two records, by operator; the order of different names is not compared.

    Args:
        before: the first record.
        after: the second one.
        foreign: operators of other packages, whose defs are not compared.
    """
    sides = [_by_name(each, foreign) for each in (before, after)]
    changes = [
        change
        for name in dict.fromkeys((*sides[0], *sides[1]))
        for change in _changes(name, sides[0].get(name, []), sides[1].get(name, []))
    ]
    return tuple(sorted(changes, key=lambda change: (change.operator or "", change.registration)))


@dataclass(frozen=True, slots=True)
class _Item:
    """A part of a record that is compared: a def, a kernel, a call.

    Args:
        name: its identity.
        operator: its operator.
        value: its other properties.
        debug: where it is registered.
    """

    name: str
    operator: str | None
    value: str
    debug: str


def _by_name(record: Scenario, foreign: Collection[str]) -> dict[str, list[_Item]]:
    found: dict[str, list[_Item]] = {}
    for registration in record.registrations:
        if not _is_foreign(registration, foreign):
            for item in _items(registration, ""):
                found.setdefault(item.name, []).append(item)
    for one in record.python:
        name = f"{one.registry} {one.operator}{f' {one.key}' if one.key else ''}"
        found.setdefault(name, []).append(_Item(name, one.operator, one.function, one.site))
    return found


def _is_foreign(registration: Registration, foreign: Collection[str]) -> bool:
    return isinstance(registration, Def) and str(registration.operator) in foreign


def _changes(name: str, before: list[_Item], after: list[_Item]) -> Iterator[RecordChange]:
    """Return the changes; if a name has several registrations, the last is in force, so their order is compared."""
    olds, news = ([item.value for item in side] for side in (before, after))
    if olds == news:
        if len(news) > 1 and _winner(before) != _winner(after):
            was, now = (side[-1].debug.removeprefix("registered at ") for side in (before, after))
            kind, _, rest = name.partition(" ")
            winner = f"the winner of {rest.replace(' ', ' at ') if kind == 'impl' else name}"
            yield RecordChange(ChangeKind.CHANGED, winner, after[-1].operator, was, now, after[-1].debug)
        return
    _, differing = paired(before, after, lambda item: item.value)
    if not differing:
        texts = [" over ".join(reversed(values)) for values in (olds, news)]
        yield RecordChange(ChangeKind.CHANGED, name, after[-1].operator, texts[0], texts[1], after[-1].debug)
    for old, new in differing:
        item = new or old
        assert item is not None
        kind = ChangeKind.CAME if old is None else ChangeKind.WENT if new is None else ChangeKind.CHANGED
        before_value, after_value = (None if each is None else each.value for each in (old, new))
        yield RecordChange(kind, name, item.operator, before_value, after_value, item.debug)


def _winner(items: list[_Item]) -> tuple[str, int]:
    """Return the file of the last registration, and how many later lines of that file register the same.

    Lines alone move with every edit; a path of C++ changes with the folder of the build.
    """
    sites = [item.debug.removeprefix("registered at ").partition(" ")[0].rpartition(":") for item in items]
    path = sites[-1][0]
    lines = [int(line) for file, _, line in sites if file == path and line.isdecimal()]
    return path if path.endswith(".py") else path.rpartition("/")[2], sum(line > lines[-1] for line in lines)


_PLAIN = (TorchLibraryFunction.DEFINE, TorchLibraryFunction.IMPL)


def _items(registration: Registration, namespace: str) -> Iterator[_Item]:
    """Return the parts of a registration, without a difference for `define` or `impl` of torch.library."""
    match registration:
        case Def():
            name = str(registration.operator.within(namespace))
            yield _Item(f"def {name}", name, _def(registration), registration.debug)
        case Impl():
            name = str(registration.operator.within(namespace))
            key = f" {registration.key}" if registration.key else ""
            yield _Item(f"impl {name}{key}", name, kernel_word(registration.kernel), registration.debug)
        case Fallback():
            yield _Item(f"fallback {registration.key}", None, kernel_word(registration.kernel), registration.debug)
        case NameOnly():
            yield _Item(f"name {registration.operator}", str(registration.operator), "", "")
        case Claim():
            yield _Item(f"claim {registration.namespace}", None, "", registration.debug)
        case Block():
            yield from _call(registration)
            for inner in registration.registrations:
                yield from _items(inner, registration.namespace or "")
        case _:
            assert_never(registration)


def _call(block: Block) -> Iterator[_Item]:
    call = block.made_by
    if call is None or call.function in _PLAIN:
        return
    name = str(call.operator.within(block.namespace or ""))
    for one in (call, *call.parts):
        yield _Item(f"{one.function} {name}", name, ", ".join(one.on), one.debug or block.debug)


def _def(definition: Def) -> str:
    schema, text = definition.schema, "a schema that is inferred"
    if isinstance(schema, FunctionSchema):
        text = source_text(clone_with_name(schema, OperatorName("", "")))
    parts = [text]
    if definition.alias is not AliasKind.FROM_SCHEMA:
        parts.append(f"alias kind {definition.alias or 'default'}")
    if definition.tags:
        parts.append(f"tags {' '.join(sorted(definition.tags))}")
    if definition.kernel is not None:
        parts.append(f"kernel {kernel_word(definition.kernel)}{f' at {definition.key}' if definition.key else ''}")
    return ", ".join(parts)
