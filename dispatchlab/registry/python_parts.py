"""Python layers in a file: those of all bundled versions in one, or that of one recording as a part of its file."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import lt
from typing import TYPE_CHECKING

from dispatchlab.file_kinds import PYTHON_MAGIC
from dispatchlab.model.python_layer import REGISTRY_NAMED, PythonLayer, PythonRegistration
from dispatchlab.registry.file_format import (
    MAX_DIRECTORY,
    MAX_FILE,
    MAX_KERNELS,
    MAX_OPERATORS,
    NONE,
    Damaged,
    impossible_name,
    source_and_line,
)
from dispatchlab.registry.locations import Locations, Place
from dispatchlab.registry.operator_rows import (
    MAX_LOCATIONS,
    PER_BLOCK,
    OperatorRows,
    as_list,
    file_of_rows,
    item,
    number_in,
)
from dispatchlab.registry.packed import PackedFile, Part, Texts

if TYPE_CHECKING:
    from dispatchlab.model.python_layer_in_memory import PythonLayerInMemory

# Note [The file of Python layers]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# It is laid out as the bundle of registries is, see Note [The bundle of registries]: a row for each operator in all
# versions, `[[[registry, key, function, location, import, active]...], [variant...], [number of the variant of each
# version...]]`, where a variant lists the entries of the row that a version has, in their order, and -1 stands for a
# version that has nothing for the operator. Registries and imports are numbers of the directory's tables; keys and
# functions are texts. The columns of a version have the sources and lines of the locations; a site that is not known
# is the empty source with line -1.
#
# One recording has the same file of its own layer alone, behind the blocks of its operators. Whoever asks for no Python
# layer reads none of it. One operator costs the directory, two parts, one block and one row.

MAGIC = PYTHON_MAGIC

VERSION = 1
"""The version of the format; it changes whenever an older reader would misread a file."""

MAX_LAYERS = 256

_TEXTS = Texts("a file of Python layers", "install dispatchlab again", "or this one again")


class PythonLayers:
    """The Python layers in the bytes of a file.

    Args:
        data: the bytes.
        path: what errors call it.

    Raises:
        RegistryFileError: these bytes are no file of Python layers, or not a whole one. What is amiss in a part in
            spite of a right digest is found when the part is read, with the same error.
    """

    def __init__(self, data: bytes, path: str = "the Python layers") -> None:
        self.path = path
        self.file = file = PackedFile(data, path)
        directory = file.directory(MAGIC, VERSION, MAX_FILE, MAX_DIRECTORY, _TEXTS)
        self.operators = directory.texts("operators")
        if (wrong := impossible_name(self.operators)) is not None:
            raise file.damaged(f"it has an operator called {wrong!r:.60}, which nothing can be registered for")
        in_order = all(map(lt, self.operators, self.operators[1:]))  # which costs less than to sort them
        if len(self.operators) > MAX_OPERATORS or not in_order:
            raise file.damaged("its operators are not in order, or too many")
        self.sources, self.registries, self.needed = map(directory.texts, ("sources", "registries", "needed"))
        names = directory.texts("layers")
        if len(names) > MAX_LAYERS or len({*names}) != len(names):
            raise file.damaged("its layers are too many, or one is there twice")
        self._number = {name: at for at, name in enumerate(names)}
        self.rows = OperatorRows(
            file,
            directory,
            self.operators,
            len(names),
            width=3,
            versions_are="layers",
            row_is="what is registered for",
        )
        self._opened: dict[str, StoredPythonLayer] = {}

    def __repr__(self) -> str:
        return f"<PythonLayers {self.path}: {len(self.names)} layers, {len(self.operators):,} operators>"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the layers, in the order of the file."""
        return tuple(self._number)

    def layer(self, name: str) -> StoredPythonLayer:
        """One of the layers, the same value for the same name; `name` is one of `names`.

        Raises:
            RegistryFileError: its part is damaged.
        """
        if name not in self._opened:
            at = self._number[name]
            self._opened[name] = StoredPythonLayer(self, name, at, *self.rows.parts_of(at))
        return self._opened[name]


class StoredPythonLayer:
    """One layer of a file, read an operator at a time; it is a `PythonLayer`.

    Args:
        layers: the file.
        name: what it is called.
        at: its number in rows.
        own: the part of the file with its table.
        columns: the part with the sources and the lines of its locations.

    Raises:
        RegistryFileError: the table is damaged.
    """

    def __init__(self, layers: PythonLayers, name: str, at: int, own: Part, columns: Part) -> None:
        self._layers, self.name, self._number, self._part = layers, name, at, columns
        table = layers.file.table(layers.file.part(own, MAX_DIRECTORY, f"the table of {name}"), f"the table of {name}")
        self.torch = table.text("torch")
        self.missing = table.texts("missing")
        self.not_imported = table.texts("not_imported")
        self.count = table.number("count", MAX_KERNELS)

    def __repr__(self) -> str:
        return f"<StoredPythonLayer {self.name}: PyTorch {self.torch}, {self.count:,} registrations>"

    def __len__(self) -> int:
        return self.count

    def of(self, operator: str) -> tuple[PythonRegistration, ...]:
        """What there is for one operator, for which one block is read.

        Raises:
            RegistryFileError: the block is damaged.
        """
        at = self._layers.rows.place(operator)
        return () if at is None else self._registrations(at)

    def __iter__(self) -> Iterator[PythonRegistration]:
        found = 0
        for at in range(len(self._layers.operators)):
            registrations = self._registrations(at)
            found += len(registrations)
            if found > self.count:
                break
            yield from registrations
        if found != self.count:
            raise self._layers.file.damaged(f"{self.name} does not have the {self.count:,} registrations it declares")

    def load(self) -> PythonLayerInMemory:
        """All of it.

        Raises:
            RegistryFileError: a block is damaged.
        """
        from dispatchlab.model.python_layer_in_memory import python_layer  # costs start-up, and one operator needs none

        return python_layer(self.torch, self, self.missing, self.not_imported)

    @cached_property
    def _columns(self) -> tuple[Sequence[int], Sequence[int]]:
        return self._layers.rows.columns(self._part, self.name)

    def _registrations(self, at: int) -> tuple[PythonRegistration, ...]:
        operator = self._layers.operators[at]
        entries, variants, which = self._layers.rows.row(at)
        try:
            number = item(which, self._number, "a layer")
            if type(number) is int and number == NONE:
                return ()
            chosen = as_list(item(variants, number, "a variant"), "a variant")
            if len(chosen) > MAX_KERNELS:
                raise Damaged("wrong in the number of its registrations")
            return tuple(self._registration(operator, item(entries, entry, "an entry")) for entry in chosen)
        except Damaged as error:
            what = f"what is registered for {operator!r} in {self.name}"
            raise self._layers.file.damaged(f"{what} is {error}") from None

    def _registration(self, operator: str, entry: object) -> PythonRegistration:
        registry, key, function, location, needs, active = as_list(entry, "an entry", 6)
        layers, (sources, lines) = self._layers, self._columns
        name = item(layers.registries, registry, "a registry")
        if name not in REGISTRY_NAMED or type(key) is not str or type(function) is not str:
            raise Damaged("wrong in a registry, a key or a function")
        source = item(layers.sources, item(sources, location, "a location"), "a source")
        line = item(lines, location, "a location")
        return PythonRegistration(
            name,
            operator,
            key,
            function,
            source if line == NONE else f"{source}:{line}",
            item(layers.needed, needs, "an import"),
            item((False, True), active, "a mark"),
        )


def python_layers_bytes(layers: Mapping[str, PythonLayer]) -> bytes:
    """The file of Python layers; equal layers give the same bytes. See Note [The file of Python layers].

    Args:
        layers: by name, in the order in which the file has them; neighbours should differ little.

    Raises:
        RegistryTooLargeError: a reader would refuse it for its size.
        ValueError: there are too many layers.
    """
    if len(layers) > MAX_LAYERS:
        raise ValueError(f"{len(layers)} Python layers are too many for a file")
    known = [_by_operator(layer) for layer in layers.values()]
    operators = sorted(set().union(*known)) if known else []
    every = [one for has in known for each in has.values() for one in each]
    sources = _numbered(source_and_line(one.site)[0] for one in every)
    registries, needed = _numbered(one.registry for one in every), _numbered(one.needs for one in every)
    locations = _locations(known, sources)
    rows: list[object] = []
    for operator in operators:
        entries: list[object] = []
        variants: list[object] = []
        which: list[int] = []
        for has in known:
            chosen = [
                number_in(
                    entries,
                    [
                        registries[one.registry],
                        one.key,
                        one.function,
                        locations.number(part),
                        needed[one.needs],
                        int(one.active),
                    ],
                )
                for part, one in _parts(has.get(operator, ()))
            ]
            which.append(number_in(variants, chosen) if operator in has else NONE)
        rows.append([entries, variants, which])
    versions = [
        (
            {
                "torch": layer.torch,
                "missing": list(layer.missing),
                "not_imported": list(layer.not_imported),
                "count": sum(map(len, has.values())),
            },
            locations.columns(at),
        )
        for at, (layer, has) in enumerate(zip(layers.values(), known, strict=True))
    ]
    directory = {
        "layers": list(layers),
        "operators": operators,
        "per_block": PER_BLOCK,
        "sources": list(sources),
        "registries": list(registries),
        "needed": list(needed),
        "locations": len(locations),
    }
    counts = (
        ("the registrations of Python", max((sum(map(len, has.values())) for has in known), default=0), MAX_KERNELS),
        ("the source locations of the Python layer", len(locations), MAX_LOCATIONS),
    )
    return file_of_rows(MAGIC, VERSION, directory, versions, rows, counts, " of the Python layer")


def _by_operator(layer: PythonLayer) -> dict[str, list[PythonRegistration]]:
    found: dict[str, list[PythonRegistration]] = {}
    for one in layer:
        found.setdefault(one.operator, []).append(one)
    return found


def _numbered(texts: Iterator[str]) -> dict[str, int]:
    return {text: at for at, text in enumerate(sorted({*texts}))}


def _parts(registrations: Sequence[PythonRegistration]) -> Iterator[tuple[Hashable, PythonRegistration]]:
    """The registrations of an operator, each by what it keeps from version to version."""
    seen: dict[Hashable, int] = {}
    for one in registrations:
        at = seen[one.slot] = seen.get(one.slot, -1) + 1
        yield (one.slot, at), one


def _locations(known: Sequence[Mapping[str, Sequence[PythonRegistration]]], sources: Mapping[str, int]) -> Locations:
    origins: dict[Hashable, list[Place | None]] = {}
    for at, has in enumerate(known):
        for registrations in has.values():
            for part, one in _parts(registrations):
                source, line = source_and_line(one.site)
                origins.setdefault(part, [None] * len(known))[at] = sources[source], line
    return Locations(origins)
