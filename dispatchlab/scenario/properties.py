"""The field `properties`: what a scenario states of its states and orders.

A property is a mapping with `always`, `never` or `eventually`, and the registrations that have to be in force, or must
not be, for it to be about a state. What it states is a mapping again, with one of `row`, `kernel`, `call` or `refused`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from dispatchlab.errors import ErrorKind
from dispatchlab.files.yaml_fields import (
    TEXT,
    Context,
    Entry,
    Field,
    FieldRule,
    Shape,
    Table,
    Wrong,
    did_you_mean,
    list_of,
    one_of,
)
from dispatchlab.files.yaml_tree import Listing, Mapping, Node, Scalar, quoted
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Block, Def, Fallback, Impl, Registration
from dispatchlab.prover.result import Mode
from dispatchlab.scenario.registrations import INDEX, KEY, OPERATOR, ROW

T = TypeVar("T")

NOTHING: Final = "nothing"
"""What `runs` says of a row without a kernel."""

FALLTHROUGH: Final = "fallthrough"
"""What `runs` says of a row that calls skip."""


@dataclass(frozen=True, slots=True)
class RowRuns:
    """Each of some rows of an operator's table has a kernel, `nothing`, or `fallthrough`."""

    operator: OperatorName
    keys: tuple[DispatchKey, ...]
    runs: str

    def __str__(self) -> str:
        verb = "runs" if len(self.keys) == 1 else "run"
        return f"{', '.join(key.name for key in self.keys)} of {self.operator} {verb} {self.runs}"


@dataclass(frozen=True, slots=True)
class KernelIsActive:
    """A kernel of an operator is registered and no newer one hides it; at a key, or at any."""

    operator: OperatorName
    kernel: str
    at: DispatchKey | None = None

    def __str__(self) -> str:
        return f"{self.kernel} is active {f'at {self.at.name} ' if self.at else ''}in {self.operator}"


@dataclass(frozen=True, slots=True)
class CallDoes:
    """A call with such arguments runs a kernel, or, where none is named, raises."""

    operator: OperatorName
    arguments: tuple[str, ...]
    runs: str | None = None

    def __str__(self) -> str:
        does = "raises" if self.runs is None else f"runs {self.runs}"
        return f"{self.operator}({', '.join(self.arguments)}) {does}"


@dataclass(frozen=True, slots=True)
class IsRefused:
    """A registration is refused, for a reason or for any."""

    registration: int
    kind: ErrorKind | None = None

    def __str__(self) -> str:
        return f"{self.registration} is refused{f' ({self.kind})' if self.kind else ''}"


Stated: TypeAlias = RowRuns | KernelIsActive | CallDoes | IsRefused


@dataclass(frozen=True, slots=True)
class Property:
    """A property of a scenario.

    Args:
        mode: whether it holds always, never, or in every order at some point.
        stated: what holds then.
        during: the registrations that have to be in force for it to be about a state.
        without: those that must not be.
    """

    mode: Mode
    stated: Stated
    during: tuple[int, ...] = ()
    without: tuple[int, ...] = ()

    def __str__(self) -> str:
        during = f", while {', '.join(map(str, self.during))}" * bool(self.during)
        without = f", without {', '.join(map(str, self.without))}" * bool(self.without)
        return f"{self.mode}: {self.stated}{during}{without}"


# -- the fields


def _one_or_more(item: Shape[T], several: Shape[tuple[T, ...]]) -> Shape[tuple[T, ...]]:
    def read(node: Node, context: Context) -> tuple[T, ...]:
        return several.read(node, context) if isinstance(node, Listing) else (item.read(node, context),)

    return Shape(f"{item.wanted}, or {several.wanted}", read, {"anyOf": [item.schema, several.schema]})


_INDICES = _one_or_more(INDEX, list_of(INDEX, "a list of numbers of registrations"))
_RUNS = Field(
    "runs",
    TEXT,
    "The debug text of the kernel that runs; `nothing` for none, `fallthrough` for skipped.",
    required=True,
)
_OF = Field("of", OPERATOR, "The operator; may be left out where one alone is observed.")
_ROW = Field(
    "row",
    _one_or_more(ROW, list_of(ROW, "a list of dispatch keys")),
    "Rows of the table, one or several.",
    required=True,
)
_KERNEL = Field(
    "kernel", TEXT, "The debug text of a kernel that is registered and that no newer one hides.", required=True
)
_AT = Field("at", KEY, "The key that it is registered at; any when left out.")
_CALL = Field(
    "call",
    _one_or_more(TEXT, list_of(TEXT, "a list of arguments", repeats=True)),
    "A call, by its tensor arguments as `explain` takes them, such as `cpu requires_grad`.",
    required=True,
)
_CALL_RUNS = Field("runs", TEXT, "The debug text of a kernel that the call runs.")
_RAISES = Field(
    "raises", one_of("true", {"true": True}, schema={"enum": [True]}), "true: the call raises, in place of `runs`."
)
_REFUSED = Field("refused", INDEX, "The number of a registration that is refused.", required=True)
_KIND = Field("kind", one_of("a kind of refusal", {kind.value: kind for kind in ErrorKind}), "Why it is refused.")

_STATED: Final = {
    table.head: table
    for table in (
        Table("a property of a row", (_ROW, _RUNS, _OF)),
        Table("a property of a kernel", (_KERNEL, _AT, _OF)),
        Table("a property of a call", (_CALL, _CALL_RUNS, _RAISES, _OF)),
        Table("a property of a refusal", (_REFUSED, _KIND)),
    )
}
_STATED_SHAPE: Shape[Node] = Shape(
    "what a property states", lambda node, context: node, {"anyOf": [table.schema for table in _STATED.values()]}
)
_MODES: Final = {
    Mode.ALWAYS: Field("always", _STATED_SHAPE, "Holds in every state, and at every attempt of a registration."),
    Mode.NEVER: Field("never", _STATED_SHAPE, "Holds in no state, and at no attempt."),
    Mode.EVENTUALLY: Field("eventually", _STATED_SHAPE, "Holds at some point of every order of registration."),
}
_WHILE = Field("while", _INDICES, "It is about states in which these registrations are in force, by number.")
_WITHOUT = Field("without", _INDICES, "It is about states in which these registrations are not in force.")
_PROPERTY = Table("a property", (*_MODES.values(), _WHILE, _WITHOUT))


def _nodes(node: Node, context: Context) -> tuple[Node, ...]:
    if not isinstance(node, Listing) or not node.items:
        raise Wrong(node, "expected a list of properties", "write `- always: {row: CPU, runs: fn}`, or leave it out")
    return tuple(node.items)


PROPERTIES: Final = Field(
    "properties",
    Shape("a list of properties", _nodes, {"type": "array", "minItems": 1, "items": _PROPERTY.schema}),
    "What holds in every state, in none, or at some point of every order; `permute` checks it.",
)


def read_properties(
    nodes: Sequence[Node],
    registrations: Sequence[Registration],
    operators: Sequence[OperatorName],
    namespace: str,
    context: Context,
) -> tuple[Property, ...]:
    """The properties of a scenario; what is wrong with one is reported, and the others are read.

    Args:
        nodes: the items of the field.
        registrations: what is registered.
        operators: what is observed.
        namespace: the namespace of names without one.
        context: what reading carries along.
    """
    reader = _Reader(registrations, operators, namespace, context)
    found = []
    for node in nodes:
        try:
            one = reader.read(node)
            if one is not None:
                found.append(one)
        except Wrong as wrong:
            context.report(wrong)
    return tuple(found)


class _Reader:
    def __init__(
        self,
        registrations: Sequence[Registration],
        operators: Sequence[OperatorName],
        namespace: str,
        context: Context,
    ) -> None:
        self._count, self._operators = len(registrations), operators
        self._kernels = set(kernel_texts(registrations))
        self._namespace, self._context = namespace, context

    def read(self, node: Node) -> Property | None:
        entry = Entry.read(node, _PROPERTY, self._context)
        if not entry.is_right:
            return None
        modes = [mode for mode, field in _MODES.items() if field in entry]
        if len(modes) != 1:
            found = " and ".join(f"`{mode}`" for mode in modes) or "none of them"
            raise Wrong(node, f"expected one of `always`, `never` and `eventually` but found {found}", "write one")
        (mode,) = modes
        stated = self._stated(entry[_MODES[mode]])
        during, without = (self._members(entry, field) for field in (_WHILE, _WITHOUT))
        both = sorted({*during} & {*without})
        if both:
            message = f"{both[0]} is in `while` and in `without`, so the property is about no state"
            raise Wrong(entry.node_of(_WITHOUT), message, "keep one of them")
        if isinstance(stated, IsRefused) and stated.registration in during:
            message = f"{stated.registration} is in force then, and nothing registers it again"
            raise Wrong(entry.node_of(_WHILE), message, "leave it out")
        return None if stated is None else Property(mode, stated, during, without)

    def _stated(self, node: Node) -> Stated | None:
        heads = [key.text for key, _ in node.pairs if isinstance(key, Scalar)] if isinstance(node, Mapping) else []
        known = [head for head in heads if head in _STATED]
        if len(known) != 1:
            near = next((hint for head in heads if (hint := did_you_mean(head, _STATED))), "") if not known else ""
            message = f"expected a mapping with one of {', '.join(_STATED)}"
            raise Wrong(node, message, near or "write {row: CPU, runs: fn}", rule=FieldRule.MISSING_FIELD)
        table = _STATED[known[0]]
        entry = Entry.read(node, table, self._context)
        if not entry.is_right:
            return None
        match table.head:
            case "row":
                return RowRuns(self._operator(entry), entry[_ROW], self._kernel(entry, _RUNS, NOTHING, FALLTHROUGH))
            case "kernel":
                at = entry.get(_AT)
                return KernelIsActive(self._operator(entry), self._kernel(entry, _KERNEL), at)
            case "call":
                return self._call(entry)
        index = entry[_REFUSED]
        self._check(index, entry.node_of(_REFUSED))
        return IsRefused(index, entry.get(_KIND))

    def _call(self, entry: Entry) -> CallDoes:
        if (_CALL_RUNS in entry) is (_RAISES in entry):
            raise Wrong(
                entry.node, "expected one of `runs` and `raises` for a call", "write `raises: true` or `runs: fn`"
            )
        runs = self._kernel(entry, _CALL_RUNS) if _CALL_RUNS in entry else None
        return CallDoes(self._operator(entry), entry[_CALL], runs)

    def _kernel(self, entry: Entry, field: Field[str], *words: str) -> str:
        """A debug text that a kernel of the scenario has: of a slip, `never` would hold for want of a kernel."""
        text = entry[field]
        if text not in self._kernels and text not in words:
            known = ", ".join(sorted(self._kernels)[:_SHOWN]) or "there is none"
            hint = did_you_mean(text, [*self._kernels, *words]) or f"the kernels are {known}"
            raise Wrong(entry.node_of(field), f"no kernel of this scenario has the debug text {quoted(text)}", hint)
        return text

    def _operator(self, entry: Entry) -> OperatorName:
        if _OF not in entry:
            if len(self._operators) == 1:
                return self._operators[0]
            names = ", ".join(map(str, self._operators[:_SHOWN]))
            raise Wrong(entry.node, f"several operators are observed, {names}", "name the one that is meant with `of`")
        name = entry[_OF].within(self._namespace)
        if name not in self._operators:
            near = did_you_mean(str(name), map(str, self._operators))
            raise Wrong(entry.node_of(_OF), f"{name} is not observed", near or "name it in `operators`")
        return name

    def _members(self, entry: Entry, field: Field[tuple[int, ...]]) -> tuple[int, ...]:
        members = entry.get(field, ())
        node = entry.node_of(field)
        for at, index in enumerate(members):
            self._check(index, node.items[at] if isinstance(node, Listing) else node)
        return members

    def _check(self, index: int, node: Node) -> None:
        if index >= self._count:
            hint = "the only one is 0" if self._count == 1 else f"they are 0 to {self._count - 1}"
            raise Wrong(node, f"there is no registration {index}", hint)


_SHOWN: Final = 5


def kernel_texts(registrations: Sequence[Registration]) -> Iterator[str]:
    """The debug texts of the kernels that are registered."""
    for registration in registrations:
        match registration:
            case Block():
                yield from kernel_texts(registration.registrations)
            case Impl() | Fallback():
                yield registration.debug
            case Def(kernel=kernel) if kernel is not None:
                yield registration.debug


def property_lines(one: Property) -> Iterator[tuple[str, object]]:
    """A property as fields with their values, as a file has them: texts, numbers, and lists of these."""
    match one.stated:
        case RowRuns(operator, keys, runs):
            stated: dict[str, object] = {"row": [key.name for key in keys], "runs": runs, "of": str(operator)}
        case KernelIsActive(operator, kernel, at):
            stated = {"kernel": kernel, **({"at": at.name} if at else {}), "of": str(operator)}
        case CallDoes(operator, arguments, runs):
            does: dict[str, object] = {"raises": "true"} if runs is None else {"runs": runs}
            stated = {"call": list(arguments), **does, "of": str(operator)}
        case IsRefused(registration, kind):
            stated = {"refused": registration, **({"kind": kind.value} if kind else {})}
    yield str(one.mode), stated
    if one.during:
        yield "while", list(one.during)
    if one.without:
        yield "without", list(one.without)
