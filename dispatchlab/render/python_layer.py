"""What Python has registered for an operator, as text and for a terminal; how much each registry has, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from dispatchlab.model.python_layer import (
    PYTHON_REGISTRIES,
    REGISTRY_NAMED,
    PythonLayer,
    PythonRegistry,
    unread_registries,
)
from dispatchlab.model.python_view import Overridden, PythonRow

if TYPE_CHECKING:
    from rich.text import Text

    from dispatchlab.render.page import Page

_NO_LINE = "(no line known)"


def python_text(rows: Sequence[PythonRow]) -> str:
    """A block for each registry: what it holds and when it applies, then a line for each registration."""
    return "".join(_lines(rows))


def _lines(rows: Sequence[PythonRow]) -> Iterator[str]:
    for registry, some in _by_registry(rows):
        yield f"{registry.title}{_filled(registry)}, {registry.applies}\n"
        for row in some:
            one = row.registration
            key = f"{one.key}: " if one.key else ""
            over = "".join(f"; in place of {_overridden(each)}" for each in row.overrides)
            marks = "".join(f" [{mark}]" for mark in _marks(row))
            yield f"  {key}{one.function} at {one.site or _NO_LINE}{marks}{over}\n"


def _by_registry(rows: Sequence[PythonRow]) -> Iterator[tuple[PythonRegistry, list[PythonRow]]]:
    for name, some in groupby(rows, key=lambda row: row.registration.registry):
        yield REGISTRY_NAMED[name], list(some)


def _filled(registry: PythonRegistry) -> str:
    return f" (import {registry.needs})" if registry.needs else ""


def _marks(row: PythonRow) -> Iterator[str]:
    """What is unusual about a registration."""
    one = row.registration
    if not one.active:
        yield "overridden"
    if one.needs != one.described.needs:
        yield f"import {one.needs}"


def _overridden(over: Overridden) -> str:
    return f"{over.what} {over.site}" if over.site else over.what


def print_python(page: Page, rows: Sequence[PythonRow], *, name: str | None = None) -> None:
    """Print the registrations, with a title for each registry.

    Args:
        page: where to.
        rows: the registrations.
        name: the operator, when nothing before has named it.
    """
    from rich.text import Text

    from dispatchlab.render.page import words
    from dispatchlab.render.styles import QUIET, TITLE, WARNING

    if name is not None:
        page.flow(words(name, TITLE))

    def line(row: PythonRow) -> list[Text]:
        one = row.registration
        found = [*words(f"{one.key}:")] if one.key else []
        found += [*words(one.function), *page.source(one.site or _NO_LINE, QUIET)]
        return [*found, *(Text(f"[{mark}]", WARNING) for mark in _marks(row))]

    for registry, some in _by_registry(rows):
        page.title(f"{registry.title}{_filled(registry)}")
        page.flow(words(registry.applies, QUIET), indent=2)
        for row in some:
            page.flow(line(row), indent=6, first=Text("  "))
            for over in row.overrides:
                where = page.source(over.site, QUIET) if over.site else []
                page.flow([*words(f"in place of {over.what}", WARNING), *where], indent=8, first=Text("    "))


def layer_text(layer: PythonLayer) -> str:
    """A line for each registry: how many operators and registrations it has."""
    width = _name_width()
    return "".join(f"{name:<{width}}  {counts}\n" for name, counts in _counts(layer))


def print_layer(page: Page, layer: PythonLayer) -> None:
    """Print the same in two columns; what does not fit beside a name is wrapped."""
    width = _name_width() + 2
    for name, counts in _counts(layer):
        page.field(name, page.words(counts), width=width, style="")


def _name_width() -> int:
    return max(len(registry.name) for registry in PYTHON_REGISTRIES)


def _counts(layer: PythonLayer) -> Iterator[tuple[str, str]]:
    """The name of each registry, and what it has."""
    registrations, operators = counted(layer)
    unread = unread_registries(layer)
    for registry in PYTHON_REGISTRIES:
        if registry.name in layer.missing:
            counts = f"not found here, looked for at {registry.home}"
        elif registry.needs in layer.not_imported:
            counts = f"not there before {registry.needs} is imported"
        elif registry.name in unread:
            counts = "not in this recording, which was made before it was read"
        else:
            by_import = {needs: count for (name, needs), count in registrations.items() if name == registry.name}
            several, made = operators[registry.name], sum(by_import.values())
            counts = f"{several:>5,} operator{'' if several == 1 else 's'}, "
            counts += f"{made:,} registration{'' if made == 1 else 's'}"
            late = {needs: count for needs, count in by_import.items() if needs != registry.needs}
            counts += "".join(f", {count:,} of them with {needs}" for needs, count in sorted(late.items()))
        yield registry.name, counts


def counted(layer: PythonLayer) -> tuple[Counter[tuple[str, str]], Counter[str]]:
    """How many registrations each registry has by import, and for how many operators."""
    registrations: Counter[tuple[str, str]] = Counter()
    named: set[tuple[str, str]] = set()
    for one in layer:
        registrations[one.registry, one.needs] += 1
        named.add((one.registry, one.operator))
    return registrations, Counter(registry for registry, _ in named)
