"""What Python has registered, as JSON.

docs/json.md has the fields of the JSON; none is ever renamed or dropped within a version.
"""

from __future__ import annotations

from collections import Counter

from dispatchlab.model.python_layer import PYTHON_REGISTRIES, PythonLayer, unread_registries
from dispatchlab.model.python_view import PythonRow
from dispatchlab.views.as_json import as_json


@as_json.register
def _(value: PythonRow) -> dict[str, object]:
    one, registry = value.registration, value.registration.described
    return {name: each for name, each in one._asdict().items() if name not in _NOT_SHOWN} | {
        "title": registry.title,
        "applies": registry.applies,
        "overrides": [over._asdict() for over in value.overrides],
    }


_NOT_SHOWN = ("operator", "call", "effect")  # the last two are of records alone
_OF_REGISTRIES = ("name", "title", "home", "applies", "needs", "since")


def layer_value(layer: PythonLayer, *, source: str) -> dict[str, object]:
    """The same, with what is known of each registry."""
    registrations, operators = layer_counts(layer)
    unread = unread_registries(layer)
    counts = [
        {
            **{name: getattr(registry, name) for name in _OF_REGISTRIES},
            "rule": registry.rule and registry.rule._asdict(),
            "found": registry.name not in layer.missing,
            "imported": not registry.needs or registry.needs not in layer.not_imported,
            "recorded": registry.name not in unread,
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
