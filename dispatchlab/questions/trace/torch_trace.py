"""`TorchTrace`: the calls of the installed PyTorch's operators inside of a `with` block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import Final, Self

from dispatchlab.call.dispatch_table import masks
from dispatchlab.call.local_key_set import DEFAULT_EXCLUDED, DEFAULT_INCLUDED, masks_of
from dispatchlab.call.trace import TracedCall, TracedKernel, TracedThread, calls_in
from dispatchlab.live.introspection.queries import keys_by_rule, look_at
from dispatchlab.live.tracing import CallRecorder, RecordedCall
from dispatchlab.model.dump_format import TableEntry, aliases_of, key_text, parse_dump, parse_table
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import RUNTIME_KEYS, DispatchKey
from dispatchlab.model.names import name_of
from dispatchlab.model.operator_view import view_of
from dispatchlab.model.slot_set import slots_of
from dispatchlab.model.snapshot import Snapshot
from dispatchlab.questions.explain.argument_specs import Described, Options
from dispatchlab.questions.explain.hops import explain, guard_of, schema_of
from dispatchlab.questions.explain.result import EMPTY, ArgumentKeys, ThreadKeys
from dispatchlab.views.as_json import deep_nesting

LIMIT: Final = 250_000
"""How many calls a trace keeps by default."""

OPERATOR_GONE: Final = "the operator is no longer registered, so nothing shows what ran"
HANDLERS: Final = (
    "the program has a handler of __torch_dispatch__: a trace does not show the hop at Python, nor the calls that a "
    "mode handles. Inside of a handler autograd is excluded, also where the trace shows AutogradCPU. "
    "`dispatchlab explain OPERATOR python+grad` shows these hops"
)
UNREADABLE: Final = "the slots of this PyTorch cannot be read, so each kernel is the one that the table shows"


class TorchTrace:
    """The calls of PyTorch's operators inside a `with` block, in the thread of the block.

    Read it after the block. Only one trace can be active.

    Args:
        limit: the number of calls to keep; later calls are only counted.

    Raises:
        TorchMissingError: PyTorch is not installed.
        TorchTraceError: another trace is active.
    """

    def __init__(self, *, limit: int = LIMIT) -> None:
        self._limit = limit
        self._recorder = CallRecorder(limit)
        self._is_over = False

    def __enter__(self) -> Self:
        self._recorder.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._recorder.__exit__(kind, error, traceback)
        self._is_over = True

    def cut_short(self) -> None:
        """Allow to read the calls so far, because the process is about to end."""
        self._is_over = True

    @property
    def threads(self) -> tuple[TracedThread, ...]:
        """The events of the thread; empty before the end of the block."""
        return self._threads if self._is_over else ()

    @property
    def calls(self) -> tuple[TracedCall, ...]:
        """All calls at every depth, in the order of their beginning."""
        return tuple(call for thread in self.threads for call in calls_in(thread.steps))

    @property
    def notes(self) -> tuple[str, ...]:
        """The gaps of the trace, a sentence each."""
        notes = []
        if any(one.snapshot.slots is None for one in self._operators.values()):
            notes.append(UNREADABLE)
        if self._recorder.has_handlers:
            notes.append(HANDLERS)
        if self._recorder.count > self._limit:
            notes.append(f"the first {self._limit:,} calls were kept, and later ones are not shown")
        return tuple(notes)

    def __repr__(self) -> str:
        calls = len(self.calls)
        return f"<TorchTrace of {calls} hop{'' if calls == 1 else 's'}>"

    @cached_property
    def _operators(self) -> Mapping[str, _Operator]:
        """The called operators, in their state at the end of the trace."""
        names = [name_of(name) for name in sorted(set(_names(self._recorder.calls)))]
        looked = zip(look_at(names), keys_by_rule(names), strict=True)
        return {str(snapshot.operator): _Operator(snapshot, rules) for (snapshot, _), rules in looked}

    @cached_property
    def _threads(self) -> tuple[TracedThread, ...]:
        calls, operators = self._recorder.calls, self._operators
        with deep_nesting():
            traced = tuple(_traced(call, 1, operators) for call in calls)
        return (TracedThread(self._recorder.thread.name, traced),) if traced else ()


def _names(calls: list[RecordedCall]) -> Iterator[str]:
    left = [*calls]
    while left:
        call = left.pop()
        yield call.operator
        left += call.inside


class _Operator:
    """An operator with the kernels that its calls use.

    Args:
        snapshot: PyTorch's output about it, including the slots.
        by_rule: the keys whose kernels are known to redispatch.
    """

    def __init__(self, snapshot: Snapshot, by_rule: tuple[str, ...]) -> None:
        self.snapshot = snapshot
        self._view = replace(view_of(snapshot), by_rule=by_rule)
        self._computed = parse_table(snapshot.table)
        self._held = self._computed if snapshot.slots is None else parse_table(snapshot.slots)
        dump = parse_dump(snapshot.dump) if snapshot.exists else None
        self._registered = {line.key: line.debug for line in dump.kernels if line.active} if dump else {}
        fallthroughs = frozenset(key for key, entry in self._held.items() if entry.fallthrough)
        self._masks = masks(slots_of(fallthroughs))
        self._chains: dict[object, tuple[tuple[DispatchKeySet, ...], DispatchKeySet]] = {}

    def kernel(self, keys: DispatchKeySet) -> tuple[TracedKernel | None, str]:
        """Return the kernel of a hop with this key set, and a note about it."""
        key = RUNTIME_KEYS[keys.slot()]
        held, computed = self._held.get(key), self._computed.get(key)
        note = "" if held == computed else f"a stale slot: the table says {computed or 'nothing'}"
        if held is None:
            return None, note if self.snapshot.exists else OPERATOR_GONE
        return TracedKernel(held.debug, held.provenance, self._source(key, held), ""), note

    def chain(self, call: RecordedCall) -> tuple[tuple[DispatchKeySet, ...], DispatchKeySet]:
        """Return the key sets of a call's hops: the first set, sets by PyTorch's rules, and the last set.

        Also return the keys that the kernels of these hops exclude from the calls inside of them.
        """
        same = (tuple(call.each.items()), call.included, call.excluded, call.below)
        if same not in self._chains:
            self._chains[same] = self._found_chain(call)
        return self._chains[same]

    def base(self, call: RecordedCall) -> DispatchKeySet:
        """Return the key set of a call before keys with fallthroughs are removed."""
        applied = masks_of(call.included, call.excluded)
        return DispatchKeySet((_union(call.each).bits | applied.included) & applied.kept)

    def _found_chain(self, call: RecordedCall) -> tuple[tuple[DispatchKeySet, ...], DispatchKeySet]:
        first, guard = DispatchKeySet(self._masks.applied(self.base(call).bits)), EMPTY
        if call.below is None or self._view.schema is None:
            return (first if call.below is None else call.below,), guard
        last = DispatchKeySet(self._masks.applied(call.below.bits))
        arguments = tuple(ArgumentKeys(name, "Tensor", "", keys) for name, keys in call.each.items())
        described = Described(arguments, Options(), requires_grad=False)
        hops = explain(self._view, described, ThreadKeys(call.included, call.excluded)).hops
        followed = [hop.keys for hop in hops]
        if last not in followed:
            return ((first,) if first == last else (first, last)), guard
        followed = followed[: followed.index(last) + 1]
        for hop in hops[: len(followed)]:
            guard |= guard_of(hop, self._view, schema_of(self._view))
        return tuple(followed), guard

    def _source(self, key: DispatchKey, held: TableEntry) -> str:
        """Return the key of the registration of the kernel in a slot."""
        *aliases, source = aliases_of(held.provenance) or (key,)
        return key_text(next((alias for alias in aliases if self._registered.get(alias) == held.debug), source))


def _union(each: Mapping[str, DispatchKeySet]) -> DispatchKeySet:
    bits = 0
    for keys in each.values():
        bits |= keys.bits
    return DispatchKeySet(bits)


def _traced(
    call: RecordedCall, depth: int, operators: Mapping[str, _Operator], above: DispatchKeySet = EMPTY
) -> TracedCall:
    """Return a call with its hops inside each other, and its own calls inside the last.

    Below a mode, PyTorch no longer has the keys that the kernels above excluded: `above`, which rules tell.
    """
    operator, call = operators[call.operator], replace(call, excluded=call.excluded | above)
    (first, *others), guard = operator.chain(call)
    steps = tuple(_traced(inside, depth + 1 + len(others), operators, above | guard) for inside in call.inside)
    when = call.began_ns, call.ended_ns
    for at in range(len(others), 0, -1):
        keys = others[at - 1]
        sets = EMPTY, EMPTY, EMPTY, EMPTY, keys, keys
        kernel, note = operator.kernel(keys)
        last = kernel, call.error, steps, *when, note
        steps = (TracedCall("[redispatch]", call.operator, depth + at, keys, {}, *sets, *last),)
    own = call.included - DEFAULT_INCLUDED, call.excluded - DEFAULT_EXCLUDED
    thread = call.included, call.excluded, *own, operator.base(call), first
    kernel, note = operator.kernel(first)
    arguments = _union(call.each), call.each
    return TracedCall("[call]", call.operator, depth, *arguments, *thread, kernel, call.error, steps, *when, note)
