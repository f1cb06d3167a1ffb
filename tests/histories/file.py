"""The file of recorded histories: what changed at each step, as JSON that xz makes small."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import (
    AliasKind,
    Block,
    BlockKind,
    Claim,
    Def,
    Fallback,
    Impl,
    Kernel,
    NameOnly,
    Registration,
)
from dispatchlab.model.schema import FunctionSchema, source_text
from dispatchlab.model.schema_parser import parse_schema
from dispatchlab.model.snapshot import Snapshot
from tests.histories.generate import BOXED, FALLTHROUGH, OPERATORS, TYPED
from tests.histories.history import History, Seen

FOLDER = Path(__file__).parents[1] / "data" / "histories"
KERNELS = {"boxed": BOXED, "fallthrough": FALLTHROUGH, "typed": TYPED}
_KERNEL_NAMES = {kernel: name for name, kernel in KERNELS.items()}


@dataclass(frozen=True, slots=True)
class Recorded:
    """Histories, and what a PyTorch showed after each of their steps.

    Args:
        torch: its version.
        slots: how its slots were read: `memory`, or `bindings`, which show only whether they are filled.
        runtime: its keys with a slot, in the order of the slots.
        histories: each history with what was seen.
    """

    torch: str
    slots: str
    runtime: tuple[str, ...]
    histories: tuple[tuple[History, tuple[Seen, ...]], ...]


def file_of(name: str) -> Path:
    """The file of the PyTorch that a semantics such as `torch-2.13` is about."""
    return FOLDER / f"{name}.json.xz"


def packed(recorded: Recorded) -> bytes:
    """The content of the file."""
    writer = _Writer(recorded.runtime)
    histories = [writer.history(history, seen) for history, seen in recorded.histories]
    value = {
        "torch": recorded.torch,
        "slots": recorded.slots,
        "runtime": recorded.runtime,
        "sets": [*writer.sets],
        "texts": [*writer.texts],
        "histories": histories,
    }
    text = json.dumps(value, separators=(",", ":"))
    return lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)


def unpacked(content: bytes, *, every: int = 1) -> Recorded:
    """What a file says, or of every so many histories one."""
    value = json.loads(lzma.decompress(content))
    reader = _Reader(value)
    histories = tuple(reader.history(one) for one in value["histories"][::every])
    return Recorded(value["torch"], value["slots"], tuple(value["runtime"]), histories)


# -- registrations


def _registration_value(registration: Registration) -> list[Any]:
    match registration:
        case Def(schema=schema, alias=alias, tags=tags, debug=debug, kernel=kernel, key=key):
            name = source_text(schema) if isinstance(schema, FunctionSchema) else str(schema)
            typed = [kernel and _KERNEL_NAMES[kernel], key and key.name]
            return ["def", name, alias, sorted(tags), debug, *typed]
        case Impl(operator=operator, key=key, kernel=kernel, debug=debug):
            return ["impl", str(operator), key and key.name, _KERNEL_NAMES[kernel], debug]
        case Fallback(key=key, kernel=kernel, debug=debug):
            return ["fallback", key and key.name, _KERNEL_NAMES[kernel], debug]
        case Claim(namespace=namespace, debug=debug):
            return ["claim", namespace, debug]
        case Block(namespace=namespace, kind=kind, registrations=inner, key=key, debug=debug):
            return ["block", namespace, kind, key and key.name, debug, [_registration_value(one) for one in inner]]
        case NameOnly():
            raise ValueError("no binding registers a name alone")


def _registration(value: Sequence[Any]) -> Registration:
    match value:
        case ["def", name, alias, tags, debug, kernel, key]:
            schema = parse_schema(name) if "(" in name else _name(name)
            return Def(
                schema, alias and AliasKind(alias), frozenset(tags), debug, kernel and _kernel(kernel), _key(key)
            )
        case ["impl", operator, key, kernel, debug]:
            return Impl(_name(operator), _key(key), _kernel(kernel), debug)
        case ["fallback", key, kernel, debug]:
            return Fallback(_key(key), _kernel(kernel), debug)
        case ["claim", namespace, debug]:
            return Claim(namespace, debug)
        case ["block", namespace, kind, key, debug, inner]:
            inside = tuple(_registration(one) for one in inner)
            return Block(namespace, BlockKind(kind), inside, _key(key), debug)  # type: ignore[arg-type]
        case _:
            raise ValueError(value)


def _kernel(name: str) -> Kernel:
    return KERNELS[name]


def _key(name: str | None) -> DispatchKey | None:
    return None if name is None else DispatchKey[name]


def _name(text: str) -> OperatorName:
    namespace, _, rest = text.rpartition("::")
    name, _, overload = rest.partition(".")
    return OperatorName(namespace, name, overload)


# -- what was seen

# A step is written as what it changed: of each operator the dump when it is another one, the rows of the table that
# are others, by text, and the rows where the slots differ from the table. Sets of keys and texts are written once.

_NOTHING = ""


class _Writer:
    def __init__(self, runtime: Sequence[str]) -> None:
        self._at = {key: at for at, key in enumerate(runtime)}
        self.sets: dict[str, int] = {}
        self.texts: dict[str, int] = {}

    def history(self, history: History, seen: Sequence[Seen]) -> list[Any]:
        before = [Snapshot.of_no_operator(name) for name in OPERATORS]
        steps = []
        for step, one in zip(history.steps, seen, strict=True):
            changes = [self._change(old, new) for old, new in zip(before, one.snapshots, strict=True)]
            refusal = [one.refused, [[name, self._text(text)] for name, text in one.facts]] if one.refused else 0
            steps.append([step, refusal, *(changes if any(changes) else ())])
            before = [*one.snapshots]
        return [[_registration_value(one) for one in history.registrations], steps]

    def _change(self, old: Snapshot, new: Snapshot) -> list[Any] | int:
        if old == new:
            return 0
        dump = 0 if old.dump == new.dump else self._text(new.dump) + 1
        schema = 0 if old.schema == new.schema else self._text(new.schema or "") + 1
        rows, stale = _rows(new.table), None
        if new.slots is not None and new.slots != new.table:
            stale = self._rows_changed(rows, _rows(new.slots))
        return [dump, schema, int(new.dangling), self._rows_changed(_rows(old.table), rows), stale]

    def _rows_changed(self, old: Mapping[str, str], new: Mapping[str, str]) -> list[int]:
        by_text: dict[str, list[int]] = {}
        for key in {**old, **new}:
            if old.get(key) != new.get(key):
                by_text.setdefault(new.get(key, _NOTHING), []).append(self._at[key])
        return [
            number for text, keys in by_text.items() for number in (self._text(text), self._set(_ranges(sorted(keys))))
        ]

    def _text(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    def _set(self, text: str) -> int:
        return self.sets.setdefault(text, len(self.sets))


class _Reader:
    def __init__(self, value: Mapping[str, Any]) -> None:
        self._runtime, self._texts = value["runtime"], value["texts"]
        self._sets = [[*_keys_in(text)] for text in value["sets"]]

    def history(self, value: Any) -> tuple[History, tuple[Seen, ...]]:
        registrations, steps = value
        history = History(tuple(map(_registration, registrations)), tuple(step for step, *_ in steps))
        return history, tuple(self._seen(steps))

    def _seen(self, steps: Iterable[Any]) -> Iterator[Seen]:
        tables: list[dict[int, str]] = [{} for _ in OPERATORS]
        snapshots = [Snapshot.of_no_operator(name) for name in OPERATORS]
        for _, refusal, *changes in steps:
            for at, change in enumerate(changes):
                if change:
                    snapshots[at] = self._changed(snapshots[at], tables[at], change)
            kind, facts = refusal or ("", ())
            yield Seen(kind, tuple((name, self._texts[text]) for name, text in facts), tuple(snapshots))

    def _changed(self, old: Snapshot, table: dict[int, str], change: Any) -> Snapshot:
        dump, schema, dangling, rows, stale = change
        self._apply(table, rows)
        slots = table
        if stale is not None:
            slots = dict(table)
            self._apply(slots, stale)
        return Snapshot(
            old.operator,
            self._texts[dump - 1] if dump else old.dump,
            self._table(table),
            self._table(slots),
            (self._texts[schema - 1] or None) if schema else old.schema,
            bool(dangling),
        )

    def _apply(self, rows: dict[int, str], numbers: Sequence[int]) -> None:
        for text, keys in zip(numbers[::2], numbers[1::2], strict=True):
            for key in self._sets[keys]:
                rows[key] = self._texts[text]

    def _table(self, rows: Mapping[int, str]) -> str:
        return "".join(f"{self._runtime[at]}: {rows[at]}\n" for at in sorted(rows) if rows[at] != _NOTHING)


def _rows(table: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in table.splitlines())


def _ranges(numbers: Sequence[int]) -> str:
    """`0-3,7` for 0, 1, 2, 3, 7."""
    runs = [[number for _, number in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def _keys_in(ranges: str) -> Iterator[int]:
    for run in ranges.split(","):
        first, _, last = run.partition("-")
        yield from range(int(first), int(last or first) + 1)
