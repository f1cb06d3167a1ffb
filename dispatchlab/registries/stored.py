"""The file of a registry: compressed JSON with a line for each operator, read one line at a time."""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from dispatchlab.errors import DispatchLabError
from dispatchlab.files import REGISTRY_START
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName, name_of
from dispatchlab.model.python_layer import REGISTRY_NAMED, PythonLayer, PythonRegistration
from dispatchlab.model.registration import AliasKind, KernelFlags
from dispatchlab.registries.model import Recorded, RecordedFallback, RecordedKernel, RecordedOperator, Registry

if TYPE_CHECKING:
    from dispatchlab.model.python_layer import PythonLayerInMemory

# Note [The file of a registry]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A file is JSON, compressed by xz. The text is one object, laid out in lines, so that one operator is found and parsed
# without the others: first a line with the format, the version of PyTorch, the imports, the fallbacks, the orders of
# overloads and what is known of the Python layer; then, sorted, a line for each operator, `"NAME":[schema without the
# name, debug, alias kind, tags, kernels]`, with kernels as `[key, debug, inferred schema, flags]`, where 1 stands for
# the inferred schema before it; then, sorted, a line for each operator with registrations in Python,
# `"NAME":[[registry, key, function, site, import, active]...]`.

FORMAT = 6
"""The version of the format; it changes whenever an older reader would misread a file."""

_SAME = 1
"""What stands for the inferred schema of the kernel before."""

MAX_PLAIN = 64 << 20
"""The most bytes of text that a file unpacks to; PyTorch 2.13 has a tenth of them."""

_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "pb": 0}]
"""How xz packs a file smallest: JSON is bytes of text, in which nothing is aligned."""

_OPERATORS = b',\n"operators":{\n'
_REGISTRATIONS = b'\n},\n"registrations":{\n'
_END = b"\n}}\n"
_NAME = re.compile(rb'"(?:[^"\\]|\\.)*"')
_MADE_BY = "record one with: dispatchlab record --all -o FILE"

T = TypeVar("T")


class RegistryFileError(DispatchLabError):
    """A file is not a recorded registry, is incomplete, or cannot be read here.

    Args:
        path: the file.
        reason: a clause about the content, the expected content and what to do.
    """

    path: str
    reason: str

    template = "{path}: {reason}"


class _Rows:
    """The lines of a part of a file, sorted by name."""

    def __init__(self, text: bytes, start: int, end: int) -> None:
        self._text, self._start, self._end = text, start, end

    def find(self, name: str) -> Any:
        """Return the value of a name; None when there is none."""
        start, end = self._start, self._end
        while start < end:
            middle = self._text.rfind(b"\n", start, (start + end) // 2) + 1 or start
            stop = self._text.find(b"\n", middle, end)
            stop = end if stop < 0 else stop
            row = self._text[middle:stop]
            found = _name_in(row)
            if found == name:
                return _value_in(row)
            start, end = (stop + 1, end) if found < name else (start, middle)
        return None

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for row in self._text[self._start : self._end].splitlines():
            yield _name_in(row), _value_in(row)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names, sorted."""
        return tuple(map(_name_in, self._text[self._start : self._end].splitlines()))


def _name_in(row: bytes) -> str:
    found = _NAME.match(row)
    if found is None:
        raise ValueError(row)
    name: str = json.loads(found[0])
    return name


def _value_in(row: bytes) -> Any:
    return json.loads(row[row.index(b'":[') + 2 :].removesuffix(b","))


class StoredRegistry:
    """The registry in the bytes of a file; it is a `Recorded`. See Note [The file of a registry].

    Args:
        data: the bytes of the file.
        path: its name in errors.

    Raises:
        RegistryFileError: these bytes are not a complete recording. A wrong line is found when it
            is read, with the same error.
    """

    def __init__(self, data: bytes, path: str = "the registry") -> None:
        self.path = path
        self._text = text = _unpacked(data, path)
        operators, registrations = text.find(_OPERATORS), text.find(_REGISTRATIONS)
        if min(operators, registrations) < 0 or not text.endswith(_END):
            raise self._damaged("its layout")
        self._facts: dict[str, Any] = self._checked("its first line", lambda: json.loads(text[:operators] + b"}"))
        found = self._facts.get("format")
        if found not in (FORMAT, FORMAT - 1):  # which wrote the inferred schema of every kernel
            reason = f"it is a recorded registry of format {found!r:.20} and this dispatchlab reads format {FORMAT}"
            raise RegistryFileError(path, f"{reason}; {_MADE_BY}")
        self._operators = _Rows(text, operators + len(_OPERATORS), registrations)
        self._registrations = _Rows(text, registrations + len(_REGISTRATIONS), len(text) - len(_END))
        self.torch, self.privateuse1, self.imports, self.fallbacks = self._checked(
            "its first line", lambda: _read_facts(**self._facts)
        )

    def __repr__(self) -> str:
        return f"<StoredRegistry {self.path}: PyTorch {self.torch}, {len(self):,} operators>"

    def __len__(self) -> int:
        return len(self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """The operators, sorted."""
        return self._checked("the names of its operators", lambda: self._operators.names)

    def __iter__(self) -> Iterator[RecordedOperator]:
        yield from self._checked(
            "the records of its operators", lambda: [_read_operator(name, row) for name, row in self._operators]
        )

    def operator(self, name: OperatorName | str, /) -> RecordedOperator | None:
        """Return the operator with this name, from one line of the file; None if there is none.

        Raises:
            RegistryFileError: the line is damaged.
        """
        text = str(name)

        def read() -> RecordedOperator | None:
            row = self._operators.find(text)
            return None if row is None else _read_operator(text, row)

        return self._checked(f"the record of {text!r}", read)

    @cached_property
    def python(self) -> StoredPythonLayer | None:
        """Python's registrations; None for a recording without them."""
        facts = self._facts.get("python")
        if facts is None:
            return None
        missing, not_imported = self._checked(
            "its Python layer", lambda: (tuple(facts["missing"]), tuple(facts["not_imported"]))
        )
        return StoredPythonLayer(self, missing, not_imported)

    def registrations(self, operator: str | None = None) -> tuple[PythonRegistration, ...]:
        """Return Python's registrations for one operator, or for all.

        Raises:
            RegistryFileError: a line is damaged.
        """
        rows = self._registrations

        def read() -> tuple[PythonRegistration, ...]:
            found = rows if operator is None else [(operator, rows.find(operator) or ())]
            return tuple(
                PythonRegistration(registry, name, key, function, site, needs, bool(active))
                for name, entries in found
                for registry, key, function, site, needs, active in entries
                if registry in REGISTRY_NAMED  # an older dispatchlab recorded more
            )

        return self._checked(f"what Python registered for {operator or 'its operators'}", read)

    @cached_property
    def orders(self) -> Mapping[str, tuple[str, ...]]:
        """For each name with several overloads, the order in which a call tries them; empty if not recorded."""
        orders = self._facts.get("orders", {})
        return self._checked("its overloads", lambda: {name: tuple(order) for name, order in orders.items()})

    def overload_order(self, name: str, /) -> tuple[str, ...]:
        """Return the overloads of a name in the order of a call; empty if the order was not recorded."""
        return self.orders.get(name, ())

    def is_copy(self, other: StoredRegistry) -> bool:
        """Return whether another file has the same content, so that every operator is equal."""
        return self._text == other._text

    def load(self) -> Registry:
        """Return the whole registry.

        Raises:
            RegistryFileError: a line is damaged.
        """
        facts = (self.torch, tuple(self), self.fallbacks, self.imports, self.privateuse1)
        return Registry(*facts, python=self.python, orders=self.orders)

    def _checked(self, what: str, read: Callable[[], T]) -> T:
        try:
            return read()
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
            raise self._damaged(what) from None

    def _damaged(self, what: str) -> RegistryFileError:
        return RegistryFileError(self.path, f"it is damaged: {what} cannot be read; get a new copy")


class StoredPythonLayer:
    """The Python layer of a registry in a file, read an operator at a time; it is a `PythonLayer`."""

    def __init__(self, registry: StoredRegistry, missing: tuple[str, ...], not_imported: tuple[str, ...]) -> None:
        self._registry, self.torch = registry, registry.torch
        self.missing, self.not_imported = missing, not_imported

    def __repr__(self) -> str:
        return f"<StoredPythonLayer {self._registry.path}: PyTorch {self.torch}>"

    def of(self, operator: str) -> tuple[PythonRegistration, ...]:
        """Return the registrations of one operator, from one line of the file."""
        return self._registry.registrations(operator)

    def __iter__(self) -> Iterator[PythonRegistration]:
        yield from self._registry.registrations()

    def load(self) -> PythonLayerInMemory:
        """Return the whole registry."""
        from dispatchlab.model.python_layer import python_layer  # one operator needs none

        return python_layer(self.torch, self, self.missing, self.not_imported)


def _unpacked(data: bytes, path: str) -> bytes:
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    try:
        text = unpacker.decompress(data, MAX_PLAIN + 1)
    except lzma.LZMAError:
        text = b""
    if not text.startswith(REGISTRY_START):
        start = f"starts with {data[:8]!r}" if data else "is empty"
        raise RegistryFileError(path, f"it is not a recorded registry: it {start}; {_MADE_BY}")
    if len(text) > MAX_PLAIN:
        raise RegistryFileError(path, f"it unpacks to more than {MAX_PLAIN:,} bytes, the most that a registry can have")
    if not unpacker.eof or unpacker.unused_data:
        raise RegistryFileError(path, "it was cut short or altered after it was written; get a new copy")
    return text


def recording_bytes(recorded: Recorded, layer: PythonLayer | None) -> bytes:
    """Return the file of a registry; equal registries have equal files. See Note [The file of a registry].

    Args:
        recorded: the registry.
        layer: its Python layer; None when that was not recorded.
    """
    facts: dict[str, object] = {
        "format": FORMAT,
        "torch": recorded.torch,
        "imports": list(recorded.imports),
        "privateuse1": recorded.privateuse1,
        "fallbacks": [[fallback.key.name, fallback.debug, fallback.fallthrough] for fallback in recorded.fallbacks],
        "orders": getattr(recorded, "orders", {}),
        "python": None if layer is None else {"missing": list(layer.missing), "not_imported": list(layer.not_imported)},
    }
    registrations: dict[str, list[object]] = {}
    for one in layer or ():
        entry = [one.registry, one.key, one.function, one.site, one.needs, one.active]
        registrations.setdefault(one.operator, []).append(entry)
    text = (
        REGISTRY_START
        + _json(facts)[1:-1]
        + _OPERATORS
        + _lines({str(operator.name): _operator_row(operator) for operator in recorded})
        + _REGISTRATIONS
        + _lines(registrations)
        + _END
    )
    return lzma.compress(text, check=lzma.CHECK_CRC32, filters=_FILTERS)


def _lines(rows: Mapping[str, object]) -> bytes:
    return b",\n".join(_json(name) + b":" + _json(row) for name, row in sorted(rows.items()))


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def _operator_row(operator: RecordedOperator) -> list[object]:
    return [
        None if operator.schema is None else operator.schema[len(str(operator.name)) :],
        operator.debug,
        None if operator.alias is None else operator.alias.name,
        sorted(operator.tags),
        [*_kernel_rows(operator.kernels)],
    ]


def _kernel_rows(kernels: Sequence[RecordedKernel]) -> Iterator[list[object]]:
    last = None
    for kernel in kernels:
        same = kernel.inferred is not None and kernel.inferred == last
        yield [kernel.key.name, kernel.debug, _SAME if same else kernel.inferred, kernel.flags.name]
        last = kernel.inferred or last


def _read_facts(
    *, torch: str, privateuse1: str, imports: list[str], fallbacks: list[tuple[str, str, bool]], **_: object
) -> tuple[str, str, tuple[str, ...], tuple[RecordedFallback, ...]]:
    found = (RecordedFallback(DispatchKey[key], fallthrough, debug) for key, debug, fallthrough in fallbacks)
    return torch, privateuse1, tuple(imports), tuple(found)


def _read_operator(name: str, row: Any) -> RecordedOperator:
    schema, debug, alias, tags, rows = row
    kernels: list[RecordedKernel] = []
    last = None
    for key_name, site, written, flags in rows:
        key, inferred = DispatchKey[key_name], last if written == _SAME else written
        last = inferred or last
        is_active = not kernels or kernels[-1].key is not key
        kernels.append(RecordedKernel(key, site, inferred, KernelFlags[flags], is_active))
    return RecordedOperator(
        name_of(name),
        None if schema is None else name + schema,
        debug,
        None if alias is None else AliasKind[alias],
        frozenset(tags),
        tuple(kernels),
    )
