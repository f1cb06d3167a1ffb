"""`TorchTrace`: the calls of the installed PyTorch's operators inside of a `with` block."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from types import TracebackType
from typing import Final, NamedTuple, Self

from dispatchlab.call.dispatch_table import masks
from dispatchlab.call.local_key_set import DEFAULT_EXCLUDED, DEFAULT_INCLUDED, masks_of
from dispatchlab.call.trace import TracedCall, TracedKernel, TracedThread, calls_in
from dispatchlab.live.introspection.queries import look_at
from dispatchlab.live.tracing import CallRecorder, RecordedCall
from dispatchlab.model.dump_format import TableEntry, aliases_of, key_text, parse_dump, parse_table
from dispatchlab.model.key_set import FUNCTIONALITY_BITS, DispatchKeySet
from dispatchlab.model.keys import RUNTIME_KEYS, DispatchKey
from dispatchlab.model.names import name_of
from dispatchlab.model.operator_view import view_of
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.slot_set import slots_of
from dispatchlab.model.snapshot import Snapshot
from dispatchlab.questions.explain.argument_specs import Described, Options
from dispatchlab.questions.explain.hops import explain, guard_of, schema_of
from dispatchlab.questions.explain.result import EMPTY, ArgumentKeys, Hop, ThreadKeys
from dispatchlab.views.as_json import deep_nesting

LIMIT: Final = 250_000
"""How many calls a trace keeps by default."""

OPERATOR_GONE: Final = "the operator is no longer registered, so nothing shows what ran"
BY_MODE: Final = (
    "calls cannot be observed with this PyTorch on this platform, so a TorchDispatchMode sees them: the calls that "
    "kernels make do not appear, nor the handlers of __torch_dispatch__ of the program"
)
HOW_FAR: Final = "the call raised: the trace does not show how far it was redispatched"
NO_RULE: Final = "the trace does not show whether this kernel redispatches"
NO_BACKEND: Final = "the trace does not show which backend BackendSelect chose"
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
        self._recorder.stop()
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
        if self._recorder.by_mode:
            notes.append(BY_MODE)
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
        earlier = self._recorder.looked_at
        return {str(now.operator): _Operator(now, earlier.get(str(now.operator), now)) for now, _ in look_at(names)}

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


class _Chain(NamedTuple):
    """The hops of a call.

    Args:
        keys: the key set of each.
        guards: the keys that the kernel of each excludes from the calls inside of it.
        unknown: a sentence about what is not known after the last; often empty.
    """

    keys: tuple[DispatchKeySet, ...]
    guards: tuple[DispatchKeySet, ...]
    unknown: str = ""


class _Operator:
    """An operator with the kernels that its calls use.

    Args:
        snapshot: PyTorch's output about it, including the slots.
        earlier: the output at its first call, for an operator that is gone.
    """

    def __init__(self, snapshot: Snapshot, earlier: Snapshot) -> None:
        self.is_gone = not snapshot.exists
        self.snapshot = snapshot = earlier if self.is_gone else snapshot
        self._view = view_of(snapshot)
        self._computed = parse_table(snapshot.table)
        self._held = self._computed if snapshot.slots is None else parse_table(snapshot.slots)
        dump = parse_dump(snapshot.dump) if snapshot.exists else None
        self._registered = {line.key: line.debug for line in dump.kernels if line.active} if dump else {}
        fallthroughs = frozenset(key for key, entry in self._held.items() if entry.fallthrough)
        self._masks = masks(slots_of(fallthroughs))
        self._chains: dict[object, _Chain] = {}

    def kernel(self, keys: DispatchKeySet) -> tuple[TracedKernel | None, str]:
        """Return the kernel of a hop with this key set, and a note about it."""
        if self.is_gone:
            return None, OPERATOR_GONE
        key = RUNTIME_KEYS[keys.slot()]
        held, computed = self._held.get(key), self._computed.get(key)
        note = "" if held == computed else f"a stale slot: the table says {computed or 'nothing'}"
        if held is None:
            return None, note
        return TracedKernel(held.debug, held.provenance, self._source(key, held), ""), note

    def chain(self, call: RecordedCall) -> _Chain:
        """Return the hops of a call: the first, then those by PyTorch's rules, up to the last that is known."""
        same = (*call.each.items(), call.included, call.excluded, call.handed, call.backend, call.error)
        if same not in self._chains:
            self._chains[same] = self._found_chain(call)
        return self._chains[same]

    def _found_chain(self, call: RecordedCall) -> _Chain:
        if self._view.schema is None:
            return _Chain((call.handed or DispatchKeySet(self._masks.applied(self.base(call).bits)),), (EMPTY,))
        arguments = tuple(ArgumentKeys(name, "Tensor", "", keys) for name, keys in call.each.items())
        described = Described(arguments, Options(call.backend or DispatchKey.CPU), requires_grad=False)
        found = explain(self._view, described, ThreadKeys(call.included, call.excluded), call.handed)
        schema, hops, unknown = schema_of(self._view), [found.hops[0]], ""
        for hop in found.hops[1:]:
            above = hops[-1]
            # Python's redispatches and new calls are calls of their own; a handler of Python gets no redispatch.
            if hop.kind == "call" or above.key == DispatchKey.Python or not _is_of_cpp(above):
                break
            if call.error is not None and _can_refuse_above(schema, call.error):
                unknown = HOW_FAR
            elif above.key == DispatchKey.BackendSelect and call.backend is None:
                unknown = NO_BACKEND
            if unknown:
                break
            hops.append(hop)
        if not found.known and len(hops) == len(found.hops) and hops[-1].key != DispatchKey.Python:
            unknown = NO_RULE * _is_of_cpp(hops[-1])
        guards = tuple(guard_of(hop, self._view, schema) for hop in hops)
        return _Chain(tuple(hop.keys for hop in hops), guards, unknown)

    def base(self, call: RecordedCall) -> DispatchKeySet:
        """Return the key set of a call before keys with fallthroughs are removed."""
        applied = masks_of(call.included, call.excluded)
        return DispatchKeySet((_union(call.each).bits | applied.included) & applied.kept)

    def _source(self, key: DispatchKey, held: TableEntry) -> str:
        """Return the key of the registration of the kernel in a slot."""
        *aliases, source = aliases_of(held.provenance) or (key,)
        return key_text(next((alias for alias in aliases if self._registered.get(alias) == held.debug), source))


def _is_of_cpp(hop: Hop) -> bool:
    """Return whether the kernel of a hop is of C++."""
    return hop.kernel is not None and re.search(r"\.(c|cc|cpp|cu|cxx|h|hpp|mm):\d+", hop.kernel.debug) is not None


def _can_refuse_above(schema: FunctionSchema, error: str) -> bool:
    """Return whether a kernel above the backends can have raised: they check writes, views and gradients."""
    return "forward AD" in error or any(each.alias is not None for each in (*schema.arguments, *schema.returns))


def _union(each: Mapping[str, DispatchKeySet]) -> DispatchKeySet:
    bits = 0
    for keys in each.values():
        bits |= keys.bits
    return DispatchKeySet(bits)


def _traced(call: RecordedCall, depth: int, operators: Mapping[str, _Operator]) -> TracedCall:
    """Return a call with its hops inside each other, and with the calls that the kernel of each hop made.

    A call inside is of the last hop whose kernels above have excluded their keys from it. A kernel that calls its own
    operator anew is the last.
    """
    operator = operators[call.operator]
    chain, when = operator.chain(call), (call.began_ns, call.ended_ns)
    last = len(chain.keys) - 1
    made: list[list[TracedCall]] = [[] for _ in chain.keys]
    for inside in call.inside:
        excluded, anew = inside.excluded.bits, inside.operator == call.operator and inside.handed is None
        at = (
            last
            if anew
            else next((at for at in range(last) if chain.guards[at].bits & ~excluded & FUNCTIONALITY_BITS), last)
        )
        made[at].append(_traced(inside, depth + at + 1, operators))
    for at in range(last, -1, -1):
        keys = chain.keys[at]
        kernel, note = operator.kernel(keys)
        note = "; ".join(filter(None, (note, chain.unknown * (at == last))))
        end = kernel, call.error, made[at], *when, note
        if at or call.handed is not None:
            sets = EMPTY, EMPTY, EMPTY, EMPTY, keys, keys
            traced = TracedCall("[redispatch]", call.operator, depth + at, keys, {}, *sets, *end)
        else:
            own = call.included - DEFAULT_INCLUDED, call.excluded - DEFAULT_EXCLUDED
            sets = call.included, call.excluded, *own, operator.base(call), keys
            traced = TracedCall("[call]", call.operator, depth, _union(call.each), call.each, *sets, *end)
        if at:
            first = min((step.began_ns for steps in made[at:] for step in steps), default=call.began_ns)
            made[at - 1].insert(sum(step.began_ns < first for step in made[at - 1]), traced)
    return traced
