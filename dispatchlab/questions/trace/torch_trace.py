"""`TorchTrace`: what the installed PyTorch's operators do inside of a `with` block, as calls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from types import TracebackType
from typing import Final, Self

from dispatchlab.call.dispatch_table import masks
from dispatchlab.call.local_key_set import DEFAULT_EXCLUDED, DEFAULT_INCLUDED, masks_of
from dispatchlab.call.trace import TracedCall, TracedKernel, TracedThread, calls_in
from dispatchlab.live.tracing.mode_recorder import ModeRecorder, SeenCall
from dispatchlab.live.tracing.recorder import CalledOperator, HopRecorder, RecordedHop, TorchTraceError
from dispatchlab.model.dump_format import aliases_of, key_text, parse_dump, parse_table
from dispatchlab.model.key_set import BACKEND_BITS, DispatchKeySet
from dispatchlab.model.keys import RUNTIME_KEYS, DispatchKey
from dispatchlab.model.slot_set import slots_of
from dispatchlab.questions.explain.kernel_rules import rule_of
from dispatchlab.questions.explain.result import Chosen
from dispatchlab.views.as_json import deep_nesting

LIMIT: Final = 250_000
"""How many hops a trace keeps by default."""

EITHER: Final = "[call or redispatch]"
"""The kind of a hop that could be either."""

EITHER_NOTE: Final = (
    "nothing shows whether the kernel above redispatched or called anew, which would have gone to the same key"
)
KERNEL_GONE: Final = "the kernel that ran is no longer registered, so nothing shows where it came from"
ARGUMENTS_UNKNOWN: Final = (
    "an argument could not be read, so its keys are missing here, and what fell through of them is not known"
)
RAISED: Final = "an exception; what it says is not seen here"


class TorchTrace:
    """What PyTorch's operators do inside of a `with` block, in every thread of this process.

    It is read after the block. One trace can be on at a time. Where hops cannot be recorded, it has the calls that a
    `TorchDispatchMode` sees, and a note says what is missing.

    Args:
        limit: how many hops are kept; later ones are counted alone.

    Raises:
        TorchMissingError: PyTorch is not installed.
        TorchTraceError: another trace is on.
    """

    def __init__(self, *, limit: int = LIMIT) -> None:
        self._limit = limit
        self._unavailable = ""
        self._recorder: HopRecorder | ModeRecorder
        try:
            self._recorder = HopRecorder(2 * limit)
        except TorchTraceError as error:
            self._unavailable = error.reason
            self._recorder = ModeRecorder(limit)
        self._is_over = False

    def __enter__(self) -> Self:
        self._recorder.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._recorder.__exit__(kind, error, traceback)
        self._is_over = True

    @property
    def threads(self) -> tuple[TracedThread, ...]:
        """What each thread did, in the order in which they began; nothing before the block is over."""
        return self._threads if self._is_over else ()

    @property
    def calls(self) -> tuple[TracedCall, ...]:
        """Every call at every depth, in the order in which they began within their thread."""
        return tuple(call for thread in self.threads for call in calls_in(thread.steps))

    @property
    def notes(self) -> tuple[str, ...]:
        """What the trace does not show, a sentence each."""
        notes = []
        if self._unavailable:
            notes.append(
                f"{self._unavailable}, so these are the calls that a TorchDispatchMode sees: below autograd, in this "
                "thread, without redispatches, kernels and what a kernel calls"
            )
        if self._recorder.dropped:
            notes.append(f"the first {self._limit:,} hops were kept, and later ones are not shown")
        if isinstance(self._recorder, HopRecorder) and not self._recorder.has_all_probes:
            notes.append("there are more kernels than can be watched, so that hops to some of them are missing")
        return tuple(notes)

    def __repr__(self) -> str:
        calls = len(self.calls)
        return f"<TorchTrace of {calls} hop{'' if calls == 1 else 's'}>"

    @cached_property
    def _threads(self) -> tuple[TracedThread, ...]:
        recorder = self._recorder
        if isinstance(recorder, ModeRecorder):
            return (TracedThread(recorder.thread, tuple(map(_seen, recorder.calls))),) if recorder.calls else ()
        operators = {name: _Operator(called) for name, called in recorder.operators().items()}
        with deep_nesting():
            return tuple(
                TracedThread(thread.name, tuple(_traced(hop, None, 1, operators) for hop in thread.hops))
                for thread in recorder.threads()
            )


def _seen(call: SeenCall) -> TracedCall:
    """A call that a mode saw: its set has nothing of autograd, which is above the mode."""
    bits = 0
    for keys in call.each.values():
        bits |= keys.bits
    arguments, nothing = DispatchKeySet(bits), DispatchKeySet()
    keys = DispatchKeySet((arguments & _BELOW_AUTOGRAD).bits | bits & BACKEND_BITS)
    error = RAISED if call.raised else None
    return TracedCall(
        *("[call]", call.operator, 1, arguments, call.each, nothing, nothing, nothing, nothing, keys, keys, None),
        *(error, (), call.began_ns, call.ended_ns),
    )


_BELOW_AUTOGRAD = DispatchKeySet.full_after(DispatchKey.ADInplaceOrView)


class _Operator:
    """An operator with the kernels in its slots."""

    def __init__(self, called: CalledOperator) -> None:
        self._functions = called.functions
        self._by_rule = called.by_rule
        self._rows = _rows(called.snapshot.table, called.snapshot.dump)
        fallthroughs = frozenset(key for key, chosen in self._rows.items() if chosen.fallthrough)
        self._masks = masks(slots_of(fallthroughs))

    def kernel(self, hop: RecordedHop) -> Chosen | None:
        """The kernel that ran; None when it is not in the slot any more."""
        key = RUNTIME_KEYS[hop.keys.slot()]
        return self._rows.get(key) if hop.probe.target in self._functions.get(key.name, ()) else None

    def of_new_call(self, hop: RecordedHop) -> DispatchKeySet:
        """The set of a new call with the arguments of a hop, in the state that its thread was in."""
        return DispatchKeySet(self._masks.applied(_base(hop).bits))

    def goes_on_by(self, hop: RecordedHop) -> str:
        """How the kernel of a hop hands the operator on: `redispatch`, `call`, or empty where that is not known."""
        chosen = self.kernel(hop)
        return "" if chosen is None else rule_of(hop.keys.highest(), chosen, self._by_rule).does.goes_on_by


def _base(hop: RecordedHop) -> DispatchKeySet:
    applied = masks_of(hop.included, hop.excluded)
    return DispatchKeySet((hop.arguments.bits | applied.included) & applied.kept)


def _rows(table: str, dump: str) -> dict[DispatchKey, Chosen]:
    """What each slot holds, and the key that it is registered at."""
    registered = {line.key: line.debug for line in parse_dump(dump).kernels if line.active}
    rows = {}
    for key, entry in parse_table(table).items():
        *aliases, source = aliases_of(entry.provenance) or (key,)
        source = next((alias for alias in aliases if registered.get(alias) == entry.debug), source)
        rows[key] = Chosen(entry.debug, entry.provenance, key_text(source), entry.fallthrough)
    return rows


def _traced(hop: RecordedHop, above: RecordedHop | None, depth: int, operators: Mapping[str, _Operator]) -> TracedCall:
    operator = operators.get(hop.probe.operator)
    kind = _kind(hop, above, operator)
    chosen = None if operator is None else operator.kernel(hop)
    notes = [*([KERNEL_GONE] if chosen is None else []), *([EITHER_NOTE] if kind == EITHER else [])]
    if kind != EITHER and "redispatch" in kind:
        arguments = base = hop.keys
        included = excluded = DispatchKeySet()
        each: Mapping[str, DispatchKeySet] = {}
    else:
        included, excluded, arguments, base, each = hop.included, hop.excluded, hop.arguments, _base(hop), hop.each
        if not hop.is_complete:
            notes.append(ARGUMENTS_UNKNOWN)
            base = base | hop.keys
    kernel = None
    if chosen is not None and chosen.reason is not None:
        kernel = TracedKernel(chosen.debug, chosen.reason, chosen.source, _conversion(hop, kind))
    return TracedCall(
        kind,
        hop.probe.operator,
        depth,
        arguments,
        each,
        included,
        excluded,
        included - DEFAULT_INCLUDED,
        excluded - DEFAULT_EXCLUDED,
        base,
        hop.keys,
        kernel,
        RAISED if hop.raised else None,
        tuple(_traced(inside, hop, depth + 1, operators) for inside in hop.inside),
        hop.began_ns,
        hop.ended_ns,
        "; ".join(notes),
    )


def _conversion(hop: RecordedHop, kind: str) -> str:
    has_stack = "Boxed" in kind
    if hop.probe.is_boxed_kernel:
        return "" if has_stack else "boxed"
    return "unboxed" if hop.probe.boxed else ""


# Note [Call or redispatch]
# ~~~~~~~~~~~~~~~~~~~~~~~~~
# The generated functions `at::_ops::NAME::call` and `::redispatch` are exported, so the address that a kernel returns
# to says which of them made the hop. Boxed calls, and those of kernels that are not PyTorch's own, are made by
# functions that are not exported. Of them it is known all the same: a hop that is not inside of one of the same
# operator with a higher key is a call; one whose set a new call would not have computed is a redispatch; and so is
# one that a kernel made which is known to redispatch. What is left could be either, and the trace says so.

_GENERATED = re.compile(r"_ZN2at4_ops(\d+)")


def _kind(hop: RecordedHop, above: RecordedHop | None, operator: _Operator | None) -> str:
    """How a hop came about. See Note [Call or redispatch]."""
    generated = _GENERATED.match(hop.caller)
    if generated is not None:
        rest = hop.caller[generated.end() + int(generated[1]) :]
        if rest.startswith("4callE"):
            return "[call]"
        if rest.startswith("10redispatchE"):
            return "[redispatch]"
    boxed = "Boxed" if hop.probe.boxed and not hop.probe.is_boxed_kernel else ""
    if above is None or above.probe.operator != hop.probe.operator:
        return f"[call{boxed}]"
    if hop.keys.highest_functionality() >= above.keys.highest_functionality():
        return f"[call{boxed}]"
    if operator is None:
        return EITHER
    if hop.is_complete and hop.keys != operator.of_new_call(hop):
        return f"[redispatch{boxed}]"
    known = operator.goes_on_by(above)
    return f"[{known}{boxed}]" if known else EITHER
