"""Registries in an archive, read an operator at a time: one recording, or those of many versions of PyTorch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, cast

from dispatchlab.files.file_kinds import BUNDLE_MEMBER, REGISTRY_MEMBER, is_archive
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName, overload_of, qualified
from dispatchlab.model.python_layer import REGISTRY_NAMED, PythonLayer, PythonRegistration
from dispatchlab.model.registration import AliasKind, KernelFlags
from dispatchlab.records.archive import (
    Archive,
    Damaged,
    RegistryFileError,
    archive_bytes,
    as_list,
    as_number,
    as_text,
    as_texts,
)
from dispatchlab.records.model import Recorded, RecordedFallback, RecordedKernel, RecordedOperator, Registry, name_of
from dispatchlab.records.shared_rows import MAX_ENTRIES, Entry, SharedRows, json_bytes, row_members

if TYPE_CHECKING:
    from dispatchlab.model.python_layer_in_memory import PythonLayerInMemory

# Note [The members of registries]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# The first member has the format and, for each registry, what is its own: versions, imports, fallbacks as `[key, debug,
# fallthrough]`, how many kernels it has, and the operators that it lacks, by number. Then come the folder `cxx` with
# rows of operators and, when any registry has a Python layer, `python` with its rows. See Note [Shared rows].
#
# The member `overloads` has, for each registry that knows it, a list for each name of several overloads, by name: where
# the overloads that a call tries one after the other stand among the sorted ones; empty where that is their order. The
# name of another registry stands for what that one has. It is read where a name without an overload is asked for, and
# files from before have none.
#
# The values of an entry are those of the def, which is the first of every operator, `[schema without the name, alias
# kind, [tag...]]`, of a kernel, `[key, inferred schema, flags]`, or of a registration of Python, `[registry, key,
# function, import, active]`. A reader of no Python layer reads none of it.

FORMAT = 4
"""The version of the format; it changes whenever an older reader would misread a file."""

MAX_REGISTRIES = 256
_OVERLOADS = "overloads"

_ALIASES = {alias.name: alias for alias in AliasKind}
_FLAGS = {flags.name: flags for flags in KernelFlags}
_KEYS = {key.name: key for key in DispatchKey if key is not DispatchKey.Undefined}  # it never has a kernel
_VERSION = re.compile(r"\d+")
_KINDS = {
    BUNDLE_MEMBER: ("a bundle of registries", "install dispatchlab again"),
    REGISTRY_MEMBER: ("a recorded registry", "record one with: dispatchlab record --all -o FILE"),
}

T = TypeVar("T")


class StoredRegistries:
    """The registries in an archive's bytes.

    Args:
        data: the bytes of the file.
        path: what errors call it.
        member: the name of the first member: that of a bundle, or of one recording.

    Raises:
        RegistryFileError: these bytes are no such file, or not a whole one. What is amiss in a part in spite of a right
            digest is found when the part is read, with the same error.
    """

    def __init__(self, data: bytes, path: str = "the bundle", member: str = BUNDLE_MEMBER) -> None:
        self.path = path
        kind, made_by = _KINDS[member]
        if not is_archive(data, member):
            start = f"starts with {data[:8]!r}" if data else "is empty"
            raise RegistryFileError(path, f"it is not {kind}: it {start}; {made_by}")
        self.archive = archive = Archive(data, path)
        index = archive.table(member)
        if index.get("format") != FORMAT:
            raise archive.refused(
                f"it is {kind} of format {index.get('format')!r:.20} and this dispatchlab reads format {FORMAT}; "
                f"{made_by}"
            )
        self.rows = SharedRows(archive, "cxx")
        try:
            entries = as_list(index.get("registries"), "its registries")
            if not all(isinstance(facts, dict) for facts in entries):
                raise Damaged("wrong in a registry")
            opened = (StoredRegistry(self, at, cast("Mapping[str, object]", facts)) for at, facts in enumerate(entries))
            self._opened = {registry.name: registry for registry in opened}
        except Damaged as error:
            raise archive.damaged(f"{member} is {error}") from None
        names = [*self._opened]
        if len(names) > MAX_REGISTRIES or len(entries) != len(names) or sorted(names, key=by_version) != names[::-1]:
            raise archive.damaged("its registries are not in order, or too many")

    def __repr__(self) -> str:
        return f"<StoredRegistries {self.path}: {len(self.names)} registries, {len(self.rows.names):,} operators>"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the registries, the oldest version first."""
        return tuple(reversed(self._opened))

    def registry(self, name: str) -> StoredRegistry:
        """One of the registries, the same value for the same name; `name` is one of `names`."""
        return self._opened[name]

    @cached_property
    def python_rows(self) -> SharedRows:
        """The rows of Python layers.

        Raises:
            RegistryFileError: there are none, or they are damaged.
        """
        return SharedRows(self.archive, "python")

    @cached_property
    def overloads(self) -> Mapping[str, object]:
        """The orders of overloads, by registry.

        Raises:
            RegistryFileError: they are damaged.
        """
        return self.archive.table(_OVERLOADS) if self.archive.has(_OVERLOADS) else {}


class StoredRegistry:
    """One registry of an archive; it is a `Recorded`.

    Args:
        registries: the archive.
        number: its number in rows.
        facts: what is its own.

    Raises:
        Damaged: a fact is not one that is ever written.
    """

    def __init__(self, registries: StoredRegistries, number: int, facts: Mapping[str, object]) -> None:
        self._registries, self._number, self.path = registries, number, registries.path
        self.name, self.torch, self.privateuse1 = (
            as_text(facts.get(of), of) for of in ("name", "torch", "privateuse1")
        )
        self.imports = as_texts(facts.get("imports"), "imports")
        self.kernel_count = as_number(facts.get("kernels"), "the number of its kernels", MAX_ENTRIES)
        absent = as_list(facts.get("absent"), "the operators that it lacks")
        last = len(registries.rows.names) - 1
        self._absent = frozenset(as_number(place, "the operators that it lacks", last) for place in absent)
        self._fallbacks = as_list(facts.get("fallbacks"), "its fallbacks")
        self._python = facts.get("python")
        if len(self._absent) != len(absent):
            raise Damaged("wrong in the operators that it lacks")

    def __repr__(self) -> str:
        return f"<StoredRegistry {self.name or self.path}: PyTorch {self.torch}, {len(self):,} operators>"

    def __len__(self) -> int:
        return len(self._registries.rows.names) - len(self._absent)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The operators, sorted."""
        return tuple(name for at, name in enumerate(self._registries.rows.names) if at not in self._absent)

    @cached_property
    def fallbacks(self) -> tuple[RecordedFallback, ...]:
        """The backend fallbacks, by key.

        Raises:
            RegistryFileError: this part of the file is damaged.
        """
        try:
            return _read_fallbacks(self._fallbacks)
        except Damaged as error:
            raise self._registries.archive.damaged(f"a registry is {error}") from None

    def __iter__(self) -> Iterator[RecordedOperator]:
        for at in range(len(self._registries.rows.names)):
            if at not in self._absent:
                yield self._operator(at)

    def operator(self, name: OperatorName | str, /) -> RecordedOperator | None:
        """One operator, for which one block is read; None when there is none of that name.

        Raises:
            RegistryFileError: the block is damaged.
        """
        at = self._registries.rows.place(str(name))
        return None if at is None or at in self._absent else self._operator(at)

    @cached_property
    def python(self) -> StoredPythonLayer | None:
        """What Python had registered; None for a recording without it.

        Raises:
            RegistryFileError: this part of the file is damaged.
        """
        if self._python is None:
            return None
        archive = self._registries.archive
        try:
            if not isinstance(self._python, dict):
                raise Damaged("wrong in its Python layer")
            return StoredPythonLayer(archive, self._registries.python_rows, self._number, self._python)
        except Damaged as error:
            raise archive.damaged(f"its list of registries is {error}") from None

    @cached_property
    def orders(self) -> Mapping[str, tuple[str, ...]]:
        """For each name of several overloads, as a call tries them; empty where that was not recorded.

        Raises:
            RegistryFileError: this part of the file is damaged.
        """
        every = self._registries.overloads
        if self.name not in every:
            return {}
        orders = every[self.name]
        orders = every.get(orders) if isinstance(orders, str) else orders
        try:
            usual = _sorted_overloads(self.names)
            if not isinstance(orders, list) or len(orders) != len(usual):
                raise Damaged("wrong in its overloads")
            return {name: _in_order(usual[name], places) for name, places in zip(usual, orders, strict=True)}
        except Damaged as error:
            raise self._registries.archive.damaged(f"a registry is {error}") from None

    def overload_order(self, name: str, /) -> tuple[str, ...]:
        """The overloads of a name as a call tries them; empty where that was not recorded."""
        return self.orders.get(name, ())

    def is_copy(self, other: StoredRegistry) -> bool:
        """Whether another file holds the same bytes, so that every operator is equal."""
        same = self._registries.archive.data == other._registries.archive.data
        return same and self._number == other._number

    def load(self) -> Registry:
        """All of it; reading ends at the first kernel too many.

        Raises:
            RegistryFileError: a block is damaged, or there are not as many kernels as the file says.
        """
        operators, kernels = [], 0
        for operator in self:
            operators.append(operator)
            kernels += len(operator.kernels)
            if kernels > self.kernel_count:
                break
        if kernels != self.kernel_count:
            raise self._registries.archive.damaged(f"it does not have the {self.kernel_count:,} kernels it declares")
        return Registry(
            self.torch,
            tuple(operators),
            self.fallbacks,
            self.imports,
            self.privateuse1,
            python=self.python,
            orders=self.orders,
        )

    def _operator(self, at: int) -> RecordedOperator:
        rows = self._registries.rows
        try:
            return _read_operator(rows.names[at], rows.entries(at, self._number) or [])
        except Damaged as error:
            raise self._registries.archive.damaged(f"the record of {rows.names[at]!r} is {error}") from None


class StoredPythonLayer:
    """The Python layer of a registry in an archive, read an operator at a time; it is a `PythonLayer`.

    Args:
        archive: the archive.
        rows: its rows of Python layers.
        number: the number of the registry in rows.
        facts: what is its own.

    Raises:
        Damaged: a fact is not one that is ever written.
    """

    def __init__(self, archive: Archive, rows: SharedRows, number: int, facts: Mapping[str, object]) -> None:
        self._archive, self._rows, self._number = archive, rows, number
        self.torch = as_text(facts.get("torch"), "torch")
        self.missing, self.not_imported = (as_texts(facts.get(of), of) for of in ("missing", "not_imported"))
        self._count = as_number(facts.get("registrations"), "the number of its registrations", MAX_ENTRIES)

    def __repr__(self) -> str:
        return f"<StoredPythonLayer {self._archive.path}: PyTorch {self.torch}, {len(self):,} registrations>"

    def __len__(self) -> int:
        return self._count

    def of(self, operator: str) -> tuple[PythonRegistration, ...]:
        """What there is for one operator, for which one block is read.

        Raises:
            RegistryFileError: the block is damaged.
        """
        at = self._rows.place(operator)
        return () if at is None else self._registrations(at)

    def __iter__(self) -> Iterator[PythonRegistration]:
        count = 0
        for at in range(len(self._rows.names)):
            registrations = self._registrations(at)
            count += len(registrations)
            if count > self._count:
                break
            yield from registrations
        if count != self._count:
            raise self._archive.damaged(f"it does not have the {self._count:,} registrations it declares")

    def load(self) -> PythonLayerInMemory:
        """All of it.

        Raises:
            RegistryFileError: a block is damaged.
        """
        from dispatchlab.model.python_layer_in_memory import python_layer  # costs start-up, and one operator needs none

        return python_layer(self.torch, self, self.missing, self.not_imported)

    def _registrations(self, at: int) -> tuple[PythonRegistration, ...]:
        operator = self._rows.names[at]
        try:
            entries = self._rows.entries(at, self._number) or []
            return tuple([_read_registration(operator, site, values) for site, values in entries])
        except Damaged as error:
            raise self._archive.damaged(f"what is registered for {operator!r} is {error}") from None


def registry_in(data: bytes, path: str = "the registry") -> StoredRegistry:
    """The registry in the bytes of a recording.

    Args:
        data: the bytes of the file.
        path: what errors call it.

    Raises:
        RegistryFileError: these bytes are no recording, or not a whole one.
    """
    registries = StoredRegistries(data, path, REGISTRY_MEMBER)
    if registries.names != ("",):
        raise registries.archive.damaged("it has not one registry")
    return registries.registry("")


def recording_bytes(recorded: Recorded, layer: PythonLayer | None) -> bytes:
    """The file of one recording; equal registries give the same bytes. See Note [The members of registries].

    Args:
        recorded: the registry.
        layer: its Python layer; None when that was not recorded.

    Raises:
        RegistryTooLargeError: a reader would refuse it for its size.
    """
    return _archive_of(REGISTRY_MEMBER, {"": recorded}, {"": layer})


def bundle_bytes(registries: Mapping[str, Recorded], layers: Mapping[str, PythonLayer]) -> bytes:
    """The file of a bundle; equal registries give the same bytes. See Note [The members of registries].

    Args:
        registries: by name.
        layers: their Python layers, by the same names, where there are any.

    Raises:
        RegistryTooLargeError: a reader would refuse it for its size.
        ValueError: there are too many registries.
    """
    if len(registries) > MAX_REGISTRIES:
        raise ValueError(f"{len(registries)} registries are too many for a bundle")
    names = sorted(registries, key=by_version, reverse=True)  # the newest first
    return _archive_of(BUNDLE_MEMBER, {name: registries[name] for name in names}, layers)


def _archive_of(member: str, registries: Mapping[str, Recorded], layers: Mapping[str, PythonLayer | None]) -> bytes:
    cxx = [{str(operator.name): _operator_entries(operator) for operator in has} for has in registries.values()]
    python = [_python_entries(layers.get(name)) for name in registries]
    operators = sorted(set().union(*cxx))
    facts = []
    for (name, registry), entries, registrations in zip(registries.items(), cxx, python, strict=True):
        layer = layers.get(name)
        facts.append(
            {
                "name": name,
                "torch": registry.torch,
                "imports": list(registry.imports),
                "privateuse1": registry.privateuse1,
                "kernels": sum(len(some) - 1 for some in entries.values()),
                "absent": [at for at, operator in enumerate(operators) if operator not in entries],
                "fallbacks": [[it.key.name, it.debug, it.fallthrough] for it in registry.fallbacks],
                "python": None
                if layer is None
                else {
                    "torch": layer.torch,
                    "missing": list(layer.missing),
                    "not_imported": list(layer.not_imported),
                    "registrations": sum(map(len, registrations.values())),
                },
            }
        )
    orders: dict[str, list[list[int | str]] | str] = {}
    for name, registry in registries.items():
        if isinstance(registry, Registry | StoredRegistry) and registry.orders:
            usual = _sorted_overloads(registry.names)
            places = [_places(some, registry.orders.get(one, some)) for one, some in usual.items()]
            orders[name] = next((other for other, known in orders.items() if known == places), places)
    return archive_bytes(
        {
            member: json_bytes({"format": FORMAT, "registries": facts}),
            **({_OVERLOADS: json_bytes(orders)} if orders else {}),
            **row_members("cxx", cxx, "the kernels"),
            **(
                row_members("python", python, "the registrations of Python")
                if any(layer is not None for layer in layers.values())
                else {}
            ),
        }
    )


def _sorted_overloads(operators: Iterable[str]) -> dict[str, tuple[str, ...]]:
    overloads: dict[str, list[str]] = {}
    for operator in operators:
        overloads.setdefault(qualified(operator), []).append(overload_of(operator))
    return {name: tuple(sorted(some)) for name, some in sorted(overloads.items()) if len(some) > 1}


def _places(usual: tuple[str, ...], order: tuple[str, ...]) -> list[int | str]:
    # A packet may still list an overload that was released, which has no place.
    return [] if order == usual else [usual.index(name) if name in usual else name for name in order]


def _in_order(usual: tuple[str, ...], places: object) -> tuple[str, ...]:
    places = places or [*range(len(usual))]
    if not isinstance(places, list) or not all(
        isinstance(at, str) or (type(at) is int and 0 <= at < len(usual)) for at in places
    ):
        raise Damaged("wrong in its overloads")
    return tuple(at if isinstance(at, str) else usual[at] for at in places)


def _operator_entries(operator: RecordedOperator) -> list[Entry]:
    schema = None if operator.schema is None else operator.schema[len(str(operator.name)) :]
    alias = None if operator.alias is None else operator.alias.name
    return [
        Entry("def", operator.debug, (schema, alias, sorted(operator.tags))),
        *(
            Entry(kernel.key, kernel.debug, (kernel.key.name, kernel.inferred, kernel.flags.name))
            for kernel in operator.kernels
        ),
    ]


def _read_operator(name: str, entries: list[tuple[str, list[object]]]) -> RecordedOperator:
    """The operator of a row; raises Damaged when a value is not one that a row can have there."""
    if not entries or str(operator := name_of(name)) != name:
        raise Damaged("wrong in its name or its def")
    (debug, definition), *kernels = entries
    schema, alias, tags = as_list(definition, "its def", 3)
    if schema is not None and not as_text(schema, "its schema").startswith("("):
        raise Damaged("wrong in its schema")
    previous, seen, read = None, set(), []
    for site, values in kernels:
        key_name, inferred, flags = as_list(values, "a kernel", 3)
        key = _named(_KEYS, key_name, "a key")
        if key is not previous and key in seen:
            raise Damaged("wrong in a key")
        text = None if inferred is None else as_text(inferred, "an inferred schema")
        read.append(RecordedKernel(key, site, text, _named(_FLAGS, flags, "flags"), key is not previous))
        previous = key
        seen.add(key)
    return RecordedOperator(
        operator,
        None if schema is None else f"{name}{schema}",
        debug,
        None if alias is None else _named(_ALIASES, alias, "an alias kind"),
        frozenset(as_texts(tags, "its tags")),
        tuple(read),
    )


def _read_fallbacks(rows: list[object]) -> tuple[RecordedFallback, ...]:
    fallbacks = []
    for row in rows:
        key, debug, fallthrough = as_list(row, "a fallback", 3)
        if type(fallthrough) is not bool:
            raise Damaged("wrong in a fallback")
        fallbacks.append(RecordedFallback(_named(_KEYS, key, "a key"), fallthrough, as_text(debug, "a fallback")))
    keys = [fallback.key for fallback in fallbacks]
    if keys != sorted(set(keys)):
        raise Damaged("wrong in the order of its fallbacks")
    return tuple(fallbacks)


def _python_entries(layer: PythonLayer | None) -> dict[str, list[Entry]]:
    entries: dict[str, list[Entry]] = {}
    for it in layer or ():
        values = (it.registry, it.key, it.function, it.needs, it.active)
        entries.setdefault(it.operator, []).append(Entry(it.slot, it.site, values))
    return entries


def _read_registration(operator: str, site: str, values: list[object]) -> PythonRegistration:
    """The registration of an entry; raises Damaged when a value is not one that an entry can have there."""
    *texts, active = as_list(values, "an entry", 5)
    registry, key, function, needs = as_texts(texts, "a registry, a key, a function or an import")
    if registry not in REGISTRY_NAMED or type(active) is not bool:
        raise Damaged("wrong in a registry or a mark")
    return PythonRegistration(registry, operator, key, function, site, needs, active)


def _named(values: Mapping[str, T], name: object, what: str) -> T:
    """The value of a name; raises Damaged when there is none."""
    if not isinstance(name, str) or name not in values:
        raise Damaged(f"wrong in {what}")
    return values[name]


def by_version(name: str) -> tuple[tuple[int, ...], str]:
    """A key that sorts names such as `torch-2.4` and `torch-2.13-cpu` by version."""
    return tuple(map(int, _VERSION.findall(name))), name
