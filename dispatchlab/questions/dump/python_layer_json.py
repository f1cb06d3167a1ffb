"""What Python has registered, as JSON; a field is never renamed or dropped within a version.

In `python` of an operator (`dump --format json`), a list in the order of the registries:

    registry, title   the name of the registry, and what it holds
    applies           when it applies
    key               a dispatch key, a mode or a class, a table, a device; empty where there is one entry an operator
    function, site    `module:name` of the function, and its line or that of the call that registered it
    needs             the module whose import brought it; empty for `import torch`
    active            false when a newer one has taken its place
    overrides         [{what, site}]: what it takes the place of

All of it counted (`dump --counts --layer python --format json`):

    source, torch     where it comes from, and the PyTorch that it is of
    registries        [{name, title, home, applies, needs, since, rule, found, imported, recorded, operators,
                      registrations, by_import}]; rule says what a second registration of a slot does, null where
                      nothing is explored; recorded is false where the recording was made before it was read;
                      by_import counts the registrations by the module whose import brought them
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
