"""One operator in every bundled version of PyTorch: its schema, its kernels, and what its slots hold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from dispatchlab.model.dump_format import parse_table
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import find_operators
from dispatchlab.questions.sources.replay_on_lab import bench
from dispatchlab.registries.file import bundled_names, open_bundled
from dispatchlab.registries.model import RecordedKernel, RecordedOperator
from dispatchlab.views import blocks as b
from dispatchlab.views.formatting import key_names
from dispatchlab.views.view import View


class Era(NamedTuple):
    """A stretch of versions in which something stays the same.

    Args:
        versions: the versions, oldest first, such as `2.4` and `2.5`; with others between them that differ.
        content: what is the same; None where it is not there.
    """

    versions: tuple[str, ...]
    content: str | None


History = tuple[Era, ...]
"""What something is in all versions, oldest first; versions with equal content are one era."""


class KeyHistory(NamedTuple):
    """What is at keys in all versions; the keys have one and the same history."""

    keys: tuple[str, ...]
    eras: History


class OperatorHistory(NamedTuple):
    """An operator in all versions.

    Args:
        operator: its name.
        versions: all versions that were looked at, oldest first.
        present: those that have it.
        schema: its schemas.
        alias: its alias kinds.
        tags: its tags, joined by commas.
        kernels: for each key, the kernels registered there, the active one first; source locations do not count.
        slots: for each runtime key, where the kernel in its slot comes from.
    """

    operator: str
    versions: tuple[str, ...]
    present: tuple[str, ...]
    schema: History
    alias: History
    tags: History
    kernels: tuple[KeyHistory, ...]
    slots: tuple[KeyHistory, ...]


def public_versions() -> tuple[str, ...]:
    """The bundled registries of public wheels, which are alike enough to be compared, oldest first."""
    return tuple(name for name in bundled_names() if not name.endswith("-cpu"))


def operators_across(asked: str, keys: Collection[DispatchKey] = ()) -> tuple[OperatorHistory, ...]:
    """Operators in all bundled versions.

    Args:
        asked: a name, a name without overload when that is unique, or a glob, as `find_operators` reads them.
        keys: only what is at these keys; everything when left out.

    Raises:
        UnknownOperatorError: no version has such an operator; the error names the nearest.
        AmbiguousOperatorError: a name without overload has several.
    """
    registries = {name.removeprefix("torch-"): open_bundled(name) for name in public_versions()}
    versions = tuple(registries)
    known = sorted({name for registry in registries.values() for name in registry.names})
    names = find_operators(asked, known, source=f"PyTorch {versions[0]} to {versions[-1]}")
    operators: dict[str, dict[str, RecordedOperator]] = {name: {} for name in names}
    slots: dict[str, dict[str, dict[DispatchKey, str]]] = {name: {} for name in names}
    for version, registry in registries.items():
        made = bench(registry, operators=names)
        for name in names:
            operator = registry.operator(name)
            if operator is not None:
                operators[name][version] = operator
                slots[name][version] = _slots(made.dispatcher.dump_table(name))
    return tuple(_history(name, versions, operators[name], slots[name], keys) for name in names)


def _slots(table: str) -> dict[DispatchKey, str]:
    return {
        key: f"fallthrough {entry.provenance}" if entry.fallthrough else str(entry.provenance)
        for key, entry in parse_table(table).items()
    }


def _history(
    name: str,
    versions: tuple[str, ...],
    operators: Mapping[str, RecordedOperator],
    slots: Mapping[str, Mapping[DispatchKey, str]],
    keys: Collection[DispatchKey],
) -> OperatorHistory:
    def of(content: Callable[[RecordedOperator], str | None]) -> History:
        return eras(versions, {version: content(operator) for version, operator in operators.items()})

    def is_asked(key: DispatchKey) -> bool:
        return not keys or key in keys

    at_keys = sorted(
        {kernel.key for operator in operators.values() for kernel in operator.kernels if is_asked(kernel.key)}
    )
    in_slots = sorted({key for table in slots.values() for key in table if is_asked(key)})
    return OperatorHistory(
        name,
        versions,
        tuple(version for version in versions if version in operators),
        of(lambda operator: operator.schema),
        of(lambda operator: None if operator.alias is None else str(operator.alias)),
        of(lambda operator: ", ".join(sorted(operator.tags)) or None),
        _by_history((key, _kernels(key, versions, operators)) for key in at_keys),
        _by_history(
            (key, eras(versions, {version: table.get(key) for version, table in slots.items()})) for key in in_slots
        ),
    )


def _kernels(key: DispatchKey, versions: Sequence[str], operators: Mapping[str, RecordedOperator]) -> History:
    found = {version: operator.kernels_at(key) for version, operator in operators.items()}
    differ = len({kernel.inferred for kernels in found.values() for kernel in kernels if kernel.inferred}) > 1

    def text(kernel: RecordedKernel) -> str:
        signature = f"{kernel.inferred} " if differ and kernel.inferred else ""
        typed = " with symbolic integers" if kernel.takes_symint else ""
        return f"{signature}{kernel.flags}{typed}"

    return eras(versions, {version: " over ".join(map(text, kernels)) or None for version, kernels in found.items()})


def eras(versions: Sequence[str], content: Mapping[str, str | None]) -> History:
    """The eras of what each version has."""
    having: dict[str | None, list[str]] = {}
    for version in versions:
        having.setdefault(content.get(version), []).append(version)
    return tuple(Era(tuple(some), text) for text, some in having.items())


def _by_history(histories: Iterable[tuple[DispatchKey, History]]) -> tuple[KeyHistory, ...]:
    """Keys with equal histories together, in the order of the first of each."""
    together: dict[History, list[str]] = {}
    for key, history in histories:
        if any(era.content is not None for era in history):
            together.setdefault(history, []).append(str(key))
    return tuple(KeyHistory(tuple(keys), history) for history, keys in together.items())


def ranges(some: Sequence[str], versions: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Versions as ranges, each from a first to a last between which no version is left out."""
    place = {version: at for at, version in enumerate(versions)}
    numbered = enumerate(sorted(some, key=place.__getitem__))
    runs = ([version for _, version in run] for _, run in groupby(numbered, lambda one: place[one[1]] - one[0]))
    return tuple((run[0], run[-1]) for run in runs)


# -- how it is shown


def across_view(found: Sequence[OperatorHistory]) -> View[object]:
    """How operators are shown across versions."""
    value = {"versions": found[0].versions if found else (), "operators": found}
    title = ", ".join(one.operator for one in found)
    blocks = tuple(block for one in found for block in _blocks(one))
    return View(value, document=lambda _: b.Document("dump", title, blocks), indent=1)


def _blocks(one: OperatorHistory) -> Iterator[b.Block]:
    here = _listed(one.present, one)
    yield b.Line(f"{one.operator}: in PyTorch {here} (bundled: {one.versions[0]} to {one.versions[-1]})")
    for title, history in (("schema", one.schema), ("alias analysis kind", one.alias), ("tags", one.tags)):
        if any(era.content is not None for era in history):
            yield b.Section(title, (b.Table("", ("", ""), tuple(_rows(history, one))),))
    for title, histories in (("kernels", one.kernels), ("slots", one.slots)):
        lines = (
            (", ".join(key_names(each.keys)), b.Cell(b.Stack(tuple(": ".join(row) for row in _rows(each.eras, one)))))
            for each in histories
        )
        yield from b.part(title, ("keys", "versions"), lines)


def _rows(history: History, one: OperatorHistory) -> Iterator[tuple[str, str]]:
    for era in history:
        versions = [version for version in era.versions if version in one.present]
        if versions:
            yield _listed(versions, one), "none" if era.content is None else era.content


def _listed(some: Sequence[str], one: OperatorHistory) -> str:
    return ", ".join(first if first == last else f"{first} to {last}" for first, last in ranges(some, one.versions))
