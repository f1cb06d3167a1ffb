"""What many versions have of one name as one row, so that what they share is there once and is read by itself."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import accumulate, chain, pairwise, repeat
from operator import contains, lt
from typing import Any, NamedTuple, TypeAlias, cast

from dispatchlab.records.archive import Archive, Damaged, RegistryTooLargeError, as_list, as_texts, item

# Note [Shared rows]
# ~~~~~~~~~~~~~~~~~~
# The registries of two versions of PyTorch differ in little but the lines of their source locations. So an archive is
# laid out by name, and has what stays the same once:
#
# - A row is one name in all versions, a line of JSON: `[[[location, value...]...], [variant...], [number of the variant
#   of each version...]]`. The first list has the entries: what is registered for the name in any of the versions. An
#   entry that ends like the one before it is cut short there. A variant lists the entries of one version by their
#   numbers. -1 stands for a version that has nothing for the name.
# - A location is what an entry keeps from version to version, though the name of the file and the line differ. Each
#   version has a member with the source and the line of every location, each number as its difference from the one
#   before: where lines only moved, the differences stay the same and pack to almost nothing. A line of -1 stands for
#   none.
#
# The members of a folder are `names.json`, with all names, sorted, and all sources; `locations-VERSION.json`; and
# `rows-BLOCK.jsonl` with `PER_BLOCK` rows each. One name of one version costs one of each; the same name of every
# other version is in that row.

PER_BLOCK = 128

MAX_NAMES = 100_000
MAX_ENTRIES = 400_000
MAX_LOCATIONS = 1_000_000
MAX_VALUES = 8  # that are completed; a made-up file must not grow by its square
MAX_SOURCE = 512
"""The longest text that a line number is added to; a longer one is kept whole, and once."""

NONE = -1

_LONGEST_NAME = 1024
_NAME = re.compile(
    rf"[^\s:\x00-\x1f\x7f-\x9f\ud800-\udfff][^\s\x00-\x1f\x7f-\x9f\ud800-\udfff]{{0,{_LONGEST_NAME - 1}}}"
)
_USUAL_NAMES = re.compile(rf"([!-9;-~][!-~]{{0,{_LONGEST_NAME - 1}}}(\n|\Z))*")
_WITH_LINE = re.compile(r"(.*):(0|[1-9][0-9]{0,8})", re.DOTALL)


class Entry(NamedTuple):
    """What is registered for a name.

    Args:
        part: what it keeps from version to version; of two with the same part, the first is the first one.
        debug: where it comes from.
        values: everything else, as JSON has it; as many in each entry of a folder.
    """

    part: Hashable
    debug: str
    values: tuple[object, ...]


Place: TypeAlias = tuple[int, int]
"""The number of a source, and a line."""

Places: TypeAlias = tuple[Place | None, ...]
"""The place of one thing in every version; None where it is not there."""


class SharedRows:
    """The rows in a folder of an archive. See Note [Shared rows].

    Raises:
        RegistryFileError: the names are damaged.
    """

    def __init__(self, archive: Archive, folder: str) -> None:
        self._archive, self._folder = archive, folder
        table = archive.table(f"{folder}/names.json")
        try:
            self.names, self._sources = (as_texts(table.get(of), f"its {of}") for of in ("names", "sources"))
        except Damaged as error:
            raise archive.damaged(f"{folder}/names.json is {error}") from None
        if (wrong := impossible_name(self.names)) is not None:
            raise archive.damaged(f"it has an operator called {wrong!r:.60}, which no dispatcher can have")
        if len(self.names) > MAX_NAMES or not all(map(lt, self.names, self.names[1:])):
            raise archive.damaged("its operators are not in order, or too many")
        # One value, so that a thread never sees the number of one block with the lines of another.
        self._last: tuple[int, Sequence[bytes]] = (-1, ())
        self._columns: dict[int, tuple[Sequence[int], Sequence[int]]] = {}

    def place(self, name: str) -> int | None:
        """The number of a name; None when no version has it."""
        at = bisect_left(self.names, name)
        return at if at < len(self.names) and self.names[at] == name else None

    def entries(self, at: int, version: int) -> list[tuple[str, list[object]]] | None:
        """What one version has for a name: debug texts and values; None when it has nothing.

        Args:
            at: the number of the name.
            version: the number of the version.

        Raises:
            RegistryFileError: the block, the row or the locations are damaged.
        """
        block, place = divmod(at, PER_BLOCK)
        last = self._last
        if last[0] != block:
            last = self._last = block, self._lines(block)
        what = f"the record of {self.names[at]!r}"
        row = self._archive.value(last[1][place], what)
        try:
            entries, variants, which = (as_list(part, "its parts") for part in as_list(row, "its parts", 3))
            number = item(which, version, "a version")
            if type(number) is int and number == NONE:
                return None
            chosen = as_list(item(variants, number, "a variant"), "a variant")
            if len(chosen) > MAX_ENTRIES:
                raise Damaged("wrong in the number of its entries")
            cuts = (as_list(entry, "an entry") for entry in entries)
            whole = [*accumulate(cuts, lambda before, cut: cut + before[len(cut) : MAX_VALUES])]
            return [self._entry(item(whole, entry, "an entry"), version) for entry in chosen]
        except Damaged as error:
            raise self._archive.damaged(f"{what} is {error}") from None

    def _entry(self, entry: list[object], version: int) -> tuple[str, list[object]]:
        sources, lines = self._locations(version)
        location = entry[0] if entry else None
        source, line = item(sources, location, "a location"), item(lines, location, "a location")
        text = item(self._sources, source, "a source")
        if not NONE <= line < 10**9 or (line != NONE and len(text) > MAX_SOURCE):
            raise Damaged("wrong in a line number")
        return (text if line == NONE else f"{text}:{line}"), entry[1:]

    def _lines(self, block: int) -> Sequence[bytes]:
        name = f"{self._folder}/rows-{block}.jsonl"
        lines = self._archive.member(name).split(b"\n")
        if len(lines) != min(PER_BLOCK, len(self.names) - block * PER_BLOCK):
            raise self._archive.damaged(f"{name} does not hold the operators that belong there")
        return lines

    def _locations(self, version: int) -> tuple[Sequence[int], Sequence[int]]:
        """The source and the line of every location."""
        if version not in self._columns:
            name = f"{self._folder}/locations-{version}.json"
            table = self._archive.table(name)
            sources, lines = (cast("list[int]", as_list(table.get(of), f"its {of}")) for of in ("sources", "lines"))
            if {*map(type, chain(sources, lines))} - {int}:
                raise Damaged(f"without the numbers of {name}")
            self._columns[version] = tuple(accumulate(sources)), tuple(accumulate(lines))
        return self._columns[version]


def row_members(folder: str, versions: Sequence[Mapping[str, Sequence[Entry]]], what: str) -> dict[str, bytes]:
    """The members of a folder with shared rows; equal arguments give the same bytes. See Note [Shared rows].

    Args:
        folder: the folder.
        versions: what each version has, by name; neighbours should differ little.
        what: what errors call entries.

    Raises:
        RegistryTooLargeError: a reader would refuse them for their size.
    """
    names = sorted(set().union(*versions))
    sources = sorted({source_and_line(entry.debug)[0] for has in versions for some in has.values() for entry in some})
    source_numbers = {source: number for number, source in enumerate(sources)}
    places: dict[Hashable, list[Place | None]] = {}
    for version, has in enumerate(versions):
        for name, entries in has.items():
            for part, entry in _parts(entries):
                source, line = source_and_line(entry.debug)
                places.setdefault((name, part), [None] * len(versions))[version] = source_numbers[source], line
    merged = _merged({*map(tuple, places.values())})
    ordered = sorted(set(merged.values()), key=_by_newest)
    numbers = {location: number for number, location in enumerate(ordered)}
    for kind, size, limit in (
        ("the operators", len(names), MAX_NAMES),
        (what, max((sum(map(len, has.values())) for has in versions), default=0), MAX_ENTRIES),
        ("the source locations", len(ordered), MAX_LOCATIONS),
    ):
        if size > limit:
            raise RegistryTooLargeError(kind, size, limit)
    rows = []
    for name in names:
        entry_rows: list[list[object]] = []
        variants: list[object] = []
        which: list[int] = []
        for has in versions:
            chosen = [
                _number_in(entry_rows, [numbers[merged[tuple(places[name, part])]], *entry.values])
                for part, entry in _parts(has.get(name, ()))
            ]
            which.append(_number_in(variants, chosen) if name in has else NONE)
        rows.append(json_bytes([_cut(entry_rows), variants, which]))
    return {
        f"{folder}/names.json": json_bytes({"names": names, "sources": sources}),
        **{f"{folder}/locations-{at}.json": json_bytes(_columns(ordered, at)) for at in range(len(versions))},
        **{
            f"{folder}/rows-{at // PER_BLOCK}.jsonl": b"\n".join(rows[at : at + PER_BLOCK])
            for at in range(0, len(rows), PER_BLOCK)
        },
    }


def json_bytes(value: object) -> bytes:
    """A value as JSON in ASCII, without blanks."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def source_and_line(debug: str) -> tuple[str, int]:
    """A debug text in two: what repeats, and the line; -1 for a text without one."""
    match = _WITH_LINE.fullmatch(debug)
    if match is None or len(match[1]) > MAX_SOURCE:
        return debug, NONE
    return match[1], int(match[2])


def impossible_name(names: Sequence[str]) -> str | None:
    """The first of the texts that is no name of an operator: with blanks or control characters, or far too long."""
    if _USUAL_NAMES.fullmatch("\n".join(names)) and all(map(contains, names, repeat("::"))):
        return None  # they are looked at one by one only where one may be wrong, for it takes long
    return next((name for name in names if "::" not in name or not _NAME.fullmatch(name)), None)


def _parts(entries: Iterable[Entry]) -> Iterable[tuple[Hashable, Entry]]:
    """Entries by what they keep from version to version."""
    seen: Counter[Hashable] = Counter()
    for entry in entries:
        yield (entry.part, seen[entry.part]), entry
        seen[entry.part] += 1


def _cut(entries: Sequence[list[object]]) -> list[list[object]]:
    """Entries without what they end with like the one before."""
    return [
        next(entry[:size] for size in range(1, len(entry) + 1) if entry[size:] == before[size:])
        for before, entry in pairwise([[], *entries])
    ]


def _number_in(values: list[Any], value: object) -> int:
    """The number of a value in a list, to which it is added if it is not there."""
    if value not in values:
        values.append(value)
    return values.index(value)


def _columns(ordered: Sequence[Places], version: int) -> dict[str, list[int]]:
    """The sources and lines of one version; where it has none, it costs the least to stay at the one before."""
    stays: list[Place] = [(0, 0)]
    for places in ordered:
        stays.append(places[version] or stays[-1])
    steps = [(source - old, line - old_line) for (old, old_line), (source, line) in pairwise(stays)]
    return {"sources": [source for source, _ in steps], "lines": [line for _, line in steps]}


def _by_newest(places: Places) -> tuple[Place, list[Place]]:
    return next(place for place in places if place is not None), [place or (NONE, NONE) for place in places]


def _merged(distinct: Iterable[Places]) -> dict[Places, Places]:
    """For each, one that agrees with it wherever both are there; as few different ones as a greedy search finds."""
    ordered = sorted(distinct, key=lambda places: (places.count(None), _by_newest(places)))
    groups: list[list[Place | None]] = []
    group_of: dict[Places, int] = {}
    having: defaultdict[tuple[int, Place], list[int]] = defaultdict(list)
    for places in ordered:
        there = [(version, place) for version, place in enumerate(places) if place is not None]
        group = next(
            (at for at in having[there[0]] if all(groups[at][version] in (None, place) for version, place in there)),
            None,
        )
        if group is None:
            group = len(groups)
            groups.append([None] * len(places))
        for version, place in there:
            if groups[group][version] is None:
                groups[group][version] = place
                having[version, place].append(group)
        group_of[places] = group
    return {places: tuple(groups[group]) for places, group in group_of.items()}
