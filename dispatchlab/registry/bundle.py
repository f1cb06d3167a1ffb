"""The bundle: the registries of many versions of PyTorch in one file, in which what they share is there once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain

from dispatchlab.file_kinds import BUNDLE_MAGIC
from dispatchlab.model.names import OperatorName
from dispatchlab.registry.file_format import (
    MAX_DIRECTORY,
    MAX_FILE,
    MAX_KERNELS,
    MAX_OPERATORS,
    NONE,
    Damaged,
    Tables,
    fallback_row,
    impossible_name,
    kernel_numbers,
    operator_row,
    read_fallbacks,
    read_operator,
    read_whole,
)
from dispatchlab.registry.locations import Locations, Place
from dispatchlab.registry.model import Recorded, RecordedFallback, RecordedOperator, Registry
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

# Note [The bundle of registries]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# The registries of two versions of PyTorch differ in little but the lines of their source locations. So the bundle is
# laid out by operator, and has what stays the same once:
#
# - A row is one operator in all registries: `[[schema...], [[key, location, inferred, flags]...], [variant...],
#   [number of the variant of each registry...]]`, with -1 for a registry without the operator. A variant is `[schema,
#   location, alias kind, [tag...], [kernel...]]`, with numbers for what the row has in front. What is the same in two
#   registries is one variant.
# - A location is what a kernel keeps from version to version: a place in a source, whose name and line differ. For each
#   registry, two columns have the source and the line of every location, each number as its difference from the one
#   before. Where lines only moved, the differences stay the same and pack to almost nothing.
#
# The head, the directory and the parts are those of a registry file, with its bounds. What the parts are, and what one
# operator costs, is in Note [Rows in blocks].

MAGIC = BUNDLE_MAGIC

VERSION = 1
"""The version of the format; it changes whenever an older reader would misread a file."""

MAX_REGISTRIES = 256

_TEXTS = Texts("a bundle of registries", "install dispatchlab again", "or this one again")
_VERSION = re.compile(r"\d+")


def by_version(name: str) -> tuple[tuple[int, ...], str]:
    """A key that sorts names such as `torch-2.4` and `torch-2.13-cpu` by version."""
    return tuple(map(int, _VERSION.findall(name))), name


class Bundle:
    """The registries in a bundle's bytes.

    Args:
        data: the bytes of the file.
        path: what errors call it.

    Raises:
        RegistryFileError: these bytes are not a bundle, or not a whole one. What is amiss in a part in spite of a right
            digest is found when the part is read, with the same error.
    """

    def __init__(self, data: bytes, path: str = "the bundle") -> None:
        self.path = path
        self.file = file = PackedFile(data, path)
        directory = file.directory(MAGIC, VERSION, MAX_FILE, MAX_DIRECTORY, _TEXTS)
        operators = directory.text("operators")
        self.operators = tuple(operators.split(" ")) if operators else ()
        if (wrong := impossible_name(self.operators)) is not None:
            raise file.damaged(f"it has an operator called {wrong!r:.60}, which no dispatcher can have")
        if len(self.operators) > MAX_OPERATORS or sorted({*self.operators}) != [*self.operators]:
            raise file.damaged("its operators are not in order, or too many")
        self.sources, self.inferred, self.tags = map(directory.texts, ("sources", "inferred", "tags"))
        if not _are_texts(self.sources, self.inferred, self.tags):
            raise file.damaged("one of its texts has half of a surrogate pair")
        names = directory.texts("registries")
        if len(names) > MAX_REGISTRIES or sorted({*names}, key=by_version, reverse=True) != [*names]:
            raise file.damaged("its registries are not in order, or too many")
        self._number = {name: at for at, name in reversed([*enumerate(names)])}
        self.rows = OperatorRows(
            file,
            directory,
            self.operators,
            len(names),
            width=4,
            versions_are="registries",
            row_is="the record of",
        )
        self._opened: dict[str, BundledRegistry] = {}

    def __repr__(self) -> str:
        return f"<Bundle {self.path}: {len(self.names)} registries, {len(self.operators):,} operators>"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the registries, the oldest version first."""
        return tuple(self._number)

    def registry(self, name: str) -> BundledRegistry:
        """One of the registries, the same value for the same name; `name` is one of `names`.

        Raises:
            RegistryFileError: its part is damaged.
        """
        if name not in self._opened:
            at = self._number[name]
            self._opened[name] = BundledRegistry(self, name, at, *self.rows.parts_of(at))
        return self._opened[name]


class BundledRegistry:
    """One registry of a bundle; it is a `Recorded`.

    Args:
        bundle: the bundle.
        name: what it is called.
        at: its number in rows.
        own: the part of the file with its table.
        columns: the part with the sources and the lines of its locations.

    Raises:
        RegistryFileError: the table is damaged.
    """

    def __init__(self, bundle: Bundle, name: str, at: int, own: Part, columns: Part) -> None:
        self._bundle, self.name, self._number, self._part = bundle, name, at, columns
        table = bundle.file.table(bundle.file.part(own, MAX_DIRECTORY, f"the table of {name}"), f"the table of {name}")
        self.torch = table.text("torch")
        self.imports = table.texts("imports")
        self.privateuse1 = table.text("privateuse1", "")
        self.kernel_count = table.number("kernels", MAX_KERNELS)
        absent = table.numbers("absent", len(bundle.operators) - 1)
        self._absent = frozenset(absent)
        self._fallback_rows = table.list("fallbacks")
        if len(self._absent) != len(absent):
            raise bundle.file.damaged(f"the operators that {name} lacks are not as many as it says")

    def __repr__(self) -> str:
        return f"<BundledRegistry {self.name}: PyTorch {self.torch}, {len(self):,} operators>"

    def __len__(self) -> int:
        return len(self._bundle.operators) - len(self._absent)

    @property
    def path(self) -> str:
        """The file of the bundle, for errors."""
        return self._bundle.path

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The operators, sorted."""
        return tuple(name for at, name in enumerate(self._bundle.operators) if at not in self._absent)

    @cached_property
    def fallbacks(self) -> tuple[RecordedFallback, ...]:
        """The backend fallbacks, by key."""
        try:
            return read_fallbacks(self._fallback_rows, Tables(self._bundle.sources, (), ()))
        except Damaged as error:
            raise self._bundle.file.damaged(f"a fallback of {self.name} is {error}") from None

    def __iter__(self) -> Iterator[RecordedOperator]:
        for at in range(len(self._bundle.operators)):
            if at not in self._absent:
                yield self._operator(at)

    def operator(self, name: OperatorName | str, /) -> RecordedOperator | None:
        """One operator, for which one block is read; None when there is none of that name.

        Raises:
            RegistryFileError: the block is damaged.
        """
        at = self._bundle.rows.place(str(name))
        return None if at is None or at in self._absent else self._operator(at)

    def load(self) -> Registry:
        """All of it.

        Raises:
            RegistryFileError: a block is damaged, or there are not as many kernels as the file says.
        """
        try:
            return read_whole(self, self.kernel_count)
        except Damaged as error:
            raise self._bundle.file.damaged(f"{self.name} {error}") from None

    @cached_property
    def _columns(self) -> tuple[Sequence[int], Sequence[int]]:
        """The source and the line of every location."""
        return self._bundle.rows.columns(self._part, self.name)

    @cached_property
    def _tables(self) -> Tables:
        return Tables(self._bundle.sources, self._bundle.inferred, self._bundle.tags)

    def _operator(self, at: int) -> RecordedOperator:
        name = self._bundle.operators[at]
        try:
            return read_operator(name, self._row(self._bundle.rows.row(at)), self._tables)
        except Damaged as error:
            raise self._bundle.file.damaged(f"the record of {name!r} in {self.name} is {error}") from None

    def _row(self, row: list[list[object]]) -> list[object]:
        """The row that a file of this registry alone would have; raises Damaged."""
        schemas, kernels, variants, which = row
        variant = item(variants, item(which, self._number, "a registry"), "a variant")
        schema, location, alias, tags, chosen = as_list(variant, "a variant", 5)
        found = []
        if len(as_list(chosen, "its kernels")) > MAX_KERNELS:
            raise Damaged("wrong in the number of its kernels")
        for number in as_list(chosen, "its kernels"):
            key, origin, *rest = as_list(item(kernels, number, "a kernel"), "a kernel", 4)
            found.append([key, *self._place(origin), *rest])
        return [item(schemas, schema, "a schema"), *self._place(location), alias, tags, found]

    def _place(self, location: object) -> tuple[int, int]:
        sources, lines = self._columns
        return item(sources, location, "a location"), item(lines, location, "a location")


def _are_texts(*tables: Iterable[str]) -> bool:
    """Whether every text can be written out."""
    try:
        for texts in tables:
            "".join(texts).encode()
    except UnicodeEncodeError:
        return False
    return True


def bundle_bytes(registries: Mapping[str, Recorded]) -> bytes:
    """The file of a bundle; equal registries give the same bytes. See Note [The bundle of registries].

    Args:
        registries: by name.

    Raises:
        RegistryTooLargeError: a reader would refuse it for its size.
        ValueError: there are too many registries.
    """
    if len(registries) > MAX_REGISTRIES:
        raise ValueError(f"{len(registries)} registries are too many for a bundle")
    names = sorted(registries, key=by_version, reverse=True)  # the newest first
    known = [{str(operator.name): operator for operator in registries[name]} for name in names]
    operators = sorted(set().union(*known)) if known else []
    tables = _tables_of([registries[name] for name in names])
    locations = _locations(known, tables)
    rows = [_row(name, known, locations, tables) for name in operators]
    versions = []
    for at, (name, has) in enumerate(zip(names, known, strict=True)):
        registry = registries[name]
        own = {
            "torch": registry.torch,
            "imports": list(registry.imports),
            **({"privateuse1": registry.privateuse1} if registry.privateuse1 else {}),
            "kernels": sum(len(operator.kernels) for operator in has.values()),
            "absent": [place for place, operator in enumerate(operators) if operator not in has],
            "fallbacks": [fallback_row(fallback, tables) for fallback in registry.fallbacks],
        }
        versions.append((own, locations.columns(at)))
    directory = {
        "registries": names,
        "operators": " ".join(operators),
        "per_block": PER_BLOCK,
        "sources": list(tables.sources),
        "inferred": list(tables.inferred),
        "tags": list(tables.tags),
        "locations": len(locations),
    }
    counts = (
        ("the kernels", max((sum(len(one.kernels) for one in has.values()) for has in known), default=0), MAX_KERNELS),
        ("the source locations", len(locations), MAX_LOCATIONS),
    )
    return file_of_rows(MAGIC, VERSION, directory, versions, rows, counts)


def _tables_of(registries: Sequence[Recorded]) -> Tables:
    """The tables that all of the registries need."""
    each = [Tables.of(registry) for registry in registries]
    return Tables.sorted(
        sources=chain.from_iterable(tables.sources for tables in each),
        inferred=chain.from_iterable(tables.inferred for tables in each),
        tags=chain.from_iterable(tables.tags for tables in each),
    )


def _kernel_places(operator: RecordedOperator) -> Iterator[tuple[tuple[int, int], str]]:
    """The def and the kernels of an operator, each by what it keeps from version to version, and their debug texts."""
    yield (NONE, 0), operator.debug
    seen: Counter[int] = Counter()
    for kernel in operator.kernels:
        yield (int(kernel.key), seen[kernel.key]), kernel.debug
        seen[kernel.key] += 1


def _locations(known: Sequence[Mapping[str, RecordedOperator]], tables: Tables) -> Locations:
    """The locations of the defs and kernels of all registries, by the operator and the part of it."""
    origins: dict[Hashable, list[Place | None]] = {}
    for at, has in enumerate(known):
        for name, operator in has.items():
            for part, debug in _kernel_places(operator):
                places = origins.setdefault((name, part), [None] * len(known))
                places[at] = tables.place(debug)
    return Locations(origins)


def _row(
    name: str, known: Sequence[Mapping[str, RecordedOperator]], locations: Locations, tables: Tables
) -> list[list[object]]:
    """The row of an operator."""
    schemas: list[object] = []
    kernels: list[object] = []
    variants: list[object] = []
    which: list[object] = []
    for has in known:
        operator = has.get(name)
        if operator is None:
            which.append(NONE)
            continue
        (defined, _), *parts = _kernel_places(operator)
        chosen = [
            number_in(kernels, [int(kernel.key), locations.number((name, part)), *kernel_numbers(kernel, tables)])
            for kernel, (part, _) in zip(operator.kernels, parts, strict=True)
        ]
        schema, _, _, alias, tags, _ = operator_row(replace(operator, kernels=()), tables)
        variant = [number_in(schemas, schema), locations.number((name, defined)), alias, tags, chosen]
        which.append(number_in(variants, variant))
    return [schemas, kernels, variants, which]
