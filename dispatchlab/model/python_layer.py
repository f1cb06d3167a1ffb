"""Registrations of Python beside the dispatch tables: the registries that are read, and their entries.

`PYTHON_REGISTRIES` describes them; a `PythonLayer` is their content in one PyTorch. The running PyTorch is read by
`pytorch/introspection/python_registries.py`, a recording by `records/stored.py`. They are only read: which of two
registrations wins in Python is decided by code, so orders of them are run and not explored.
"""

from __future__ import annotations

import tomllib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import NamedTuple, Protocol


class PythonRegistry(NamedTuple):
    """A registry that keeps Python code by operator.

    Args:
        name: its name in dispatchlab.
        title: its entries, as a few words in the plural.
        home: the module and the attribute that PyTorch keeps it in, `module:attribute`.
        applies: a sentence that says when its entries run.
        needs: the module whose import fills it; empty if `import torch` does.
    """

    name: str
    title: str
    home: str
    applies: str
    needs: str = ""


PRIVATEUSE1_NAME = "privateuse1_name"
"""The registry of the name that a package gives to PrivateUse1."""

PYTHON_REGISTRIES: tuple[PythonRegistry, ...] = tuple(
    PythonRegistry(**row)
    for row in tomllib.loads(files(__package__).joinpath("python_registries.toml").read_text("utf-8"))["registry"]
)
"""Every registry that is read, in the order in which they are shown."""

REGISTRY_NAMED = {registry.name: registry for registry in PYTHON_REGISTRIES}

IMPORTS: tuple[str, ...] = tuple(dict.fromkeys(registry.needs for registry in PYTHON_REGISTRIES if registry.needs))
"""The modules that fill registries besides torch itself, in the order in which a recording imports them.

DTensor comes before Inductor, which registers a sharding rule of its own when both are there.
"""

FUNCTIONS = "python"
"""The namespace here of Python functions that a registry of operators has as well, as `python::_operator.add`."""

EVERY_OVERLOAD = "*"
"""The overload here of what a registry has for a name without one: the packet of all overloads."""


def base_name(operator: str) -> str:
    """Return an operator without its overload; return a Python function or a higher-order operator unchanged."""
    namespace, colons, name = operator.partition("::")
    return operator if namespace in (FUNCTIONS, "higher_order") else f"{namespace}{colons}{name.partition('.')[0]}"


class PythonRegistration(NamedTuple):
    """The Python code of one registry for one operator.

    Args:
        registry: the name of the registry, one of `PYTHON_REGISTRIES`.
        operator: the full name of the operator; `higher_order::cond` for a higher-order operator, `aten::add.*` for
            all overloads of a name, `python::math.ceil` for a Python function.
        key: the second part of its position: a dispatch key, a mode or a class, a table, a device; empty if the
            registry has only one entry for each operator.
        function: the function, `module:qualified name`.
        site: the line of the function or of the call that registered it, `file:line` below the folder of its package;
            empty when neither is known.
        needs: the module whose import brought it; empty when `import torch` or a package that was named did.
        active: False if a newer entry has replaced it.
    """

    registry: str
    operator: str
    key: str = ""
    function: str = ""
    site: str = ""
    needs: str = ""
    active: bool = True

    @property
    def slot(self) -> tuple[str, str, str]:
        """The position that keeps it; a newer registration at the same position replaces it."""
        return self.registry, self.operator, self.key

    @property
    def described(self) -> PythonRegistry:
        """The description of its registry."""
        return REGISTRY_NAMED[self.registry]


def by_slot(registrations: Iterable[PythonRegistration]) -> dict[tuple[str, str, str], list[PythonRegistration]]:
    """Return registrations by slot, in order of registration; the last is in force."""
    found: dict[tuple[str, str, str], list[PythonRegistration]] = {}
    for registration in registrations:
        found.setdefault(registration.slot, []).append(registration)
    return found


class PythonLayer(Protocol):
    """The content of one PyTorch's Python-side registries, in memory or in a file."""

    @property
    def torch(self) -> str:
        """The version of the PyTorch."""

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the registries that were not found in this version."""

    @property
    def not_imported(self) -> tuple[str, ...]:
        """The modules of `IMPORTS` that were not imported, so that their registries are empty."""

    def of(self, operator: str, /) -> tuple[PythonRegistration, ...]:
        """Return the registrations of one operator, in the order of the registries."""

    def __iter__(self) -> Iterator[PythonRegistration]:
        """Iterate over everything, by operator."""


@dataclass(frozen=True)
class PythonLayerInMemory:
    """A `PythonLayer` as a value; `python_layer` makes it from registrations in any order.

    Args:
        torch: the version of PyTorch.
        registrations: sorted by operator, registry and key.
        missing: see `PythonLayer`.
        not_imported: see `PythonLayer`.
    """

    torch: str
    registrations: tuple[PythonRegistration, ...] = ()
    missing: tuple[str, ...] = ()
    not_imported: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<PythonLayerInMemory: PyTorch {self.torch}, {len(self.registrations):,} registrations>"

    @cached_property
    def _operators(self) -> list[str]:
        return [registration.operator for registration in self.registrations]

    def of(self, operator: str) -> tuple[PythonRegistration, ...]:
        """Return the registrations of one operator, in the order of the registries."""
        names = self._operators
        return self.registrations[bisect_left(names, operator) : bisect_right(names, operator)]

    def __iter__(self) -> Iterator[PythonRegistration]:
        return iter(self.registrations)

    def __len__(self) -> int:
        return len(self.registrations)


def python_layer(
    torch: str,
    registrations: Iterable[PythonRegistration],
    missing: Sequence[str] = (),
    not_imported: Sequence[str] = (),
) -> PythonLayerInMemory:
    """Return the layer of these registrations; within a slot they keep their order, the newest last."""
    place = {registry.name: at for at, registry in enumerate(PYTHON_REGISTRIES)}
    ordered = sorted(registrations, key=lambda one: (one.operator, place[one.registry], one.key))
    return PythonLayerInMemory(torch, tuple(ordered), tuple(missing), tuple(not_imported))
