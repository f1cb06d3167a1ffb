"""What Python has registered for an operator as blocks and as JSON, and how much each registry has.

docs/json.md has the fields of the JSON; none is ever renamed or dropped within a version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from dispatchlab.model.python_layer import PYTHON_REGISTRIES, PythonLayer, PythonRegistration
from dispatchlab.questions.dump.operator_text import NO_LINE, by_registry, python_marks
from dispatchlab.views.as_json import as_json
from dispatchlab.views.blocks import Block, Line, Section, source, warn
from dispatchlab.views.formatting import counted
from dispatchlab.views.view import View


def python_screen(rows: Sequence[PythonRegistration], *, name: str | None = None) -> Iterator[Block]:
    """The registrations for a terminal, with a title for each registry.

    Args:
        rows: the registrations.
        name: the operator, when nothing before has named it.
    """
    if name is not None:
        yield Line(name, "strong")
    for registry, title, some in by_registry(rows):
        lines = tuple(line for row in some for line in _row(row))
        yield Section(title, (Line(registry.applies, "quiet", indent=2, hang=0), *lines))


def _row(one: PythonRegistration) -> Iterator[Line]:
    key = f"{one.key}: " if one.key else ""
    marks = tuple(warn(f" [{mark}]") for mark in python_marks(one))
    yield Line((f"{key}{one.function} ", source(one.site or NO_LINE, "quiet"), *marks), indent=2, hang=4)


def layer_view(layer: PythonLayer, *, source: str) -> View[object]:
    """How much each registry has: a line for each.

    Args:
        layer: what Python has registered.
        source: where it comes from.
    """
    width = max(len(registry.name) for registry in PYTHON_REGISTRIES) + 2
    lines = [Line(text, label=name, width=width) for name, text in _counts(layer)]
    return View(layer_value(layer, source=source), lines=lambda _: lines)


def _counts(layer: PythonLayer) -> Iterator[tuple[str, str]]:
    """The name of each registry, and what it has."""
    registrations, operators = layer_counts(layer)
    for registry in PYTHON_REGISTRIES:
        if registry.name in layer.missing:
            counts = f"not found here, looked for at {registry.home}"
        elif registry.needs in layer.not_imported:
            counts = f"not there before {registry.needs} is imported"
        else:
            by_import = {needs: count for (name, needs), count in registrations.items() if name == registry.name}
            several, made = operators[registry.name], sum(by_import.values())
            counts = f"{several:>5,} operator{'' if several == 1 else 's'}, {counted(made, 'registration')}"
            late = {needs: count for needs, count in by_import.items() if needs != registry.needs}
            counts += "".join(f", {count:,} of them with {needs}" for needs, count in sorted(late.items()))
        yield registry.name, counts


@as_json.register
def _(value: PythonRegistration) -> dict[str, object]:
    fields = {name: each for name, each in value._asdict().items() if name != "operator"}
    return fields | {"title": value.described.title, "applies": value.described.applies}


_OF_REGISTRIES = ("name", "title", "home", "applies", "needs")


def layer_value(layer: PythonLayer, *, source: str) -> dict[str, object]:
    """What each registry has, as JSON, with what is known of it."""
    registrations, operators = layer_counts(layer)
    counts = [
        {
            **{name: getattr(registry, name) for name in _OF_REGISTRIES},
            "found": registry.name not in layer.missing,
            "imported": not registry.needs or registry.needs not in layer.not_imported,
            "operators": operators[registry.name],
            "registrations": sum(count for (name, _), count in registrations.items() if name == registry.name),
            "by_import": {needs: count for (name, needs), count in registrations.items() if name == registry.name},
        }
        for registry in PYTHON_REGISTRIES
    ]
    return {"source": source, "torch": layer.torch, "registries": counts}


def layer_counts(layer: PythonLayer) -> tuple[Counter[tuple[str, str]], Counter[str]]:
    """How many registrations each registry has by import, and for how many operators."""
    registrations: Counter[tuple[str, str]] = Counter()
    named: set[tuple[str, str]] = set()
    for one in layer:
        registrations[one.registry, one.needs] += 1
        named.add((one.registry, one.operator))
    return registrations, Counter(registry for registry, _ in named)
