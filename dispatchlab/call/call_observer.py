"""Observers of calls. Without observers, a call only checks an empty list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from dispatchlab._short_repr import WordEnum
from dispatchlab.engine.kernel import TableEntry
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.names import OperatorName


class CallKind(WordEnum):
    """The ways of a call into an operator, as upstream's trace prints them."""

    CALL = "[call]"
    REDISPATCH = "[redispatch]"
    CALL_BOXED = "[callBoxed]"
    REDISPATCH_BOXED = "[redispatchBoxed]"


@dataclass(frozen=True, slots=True)
class ObservedCall:
    """A call before its kernel runs.

    Args:
        kind: `call`, `redispatch`, or their boxed forms.
        operator: the operator.
        arguments: the keys of the arguments; for a redispatch, the given key set.
        each: the keys of each argument that has keys, by name; empty for a redispatch.
        included: the keys that the thread includes; empty for a redispatch.
        excluded: the keys that the thread excludes; empty for a redispatch.
        base: the set before the operator's fallthroughs were masked.
        keys: the final set.
        entry: the kernel that was found; None when there is none that could run.
    """

    kind: CallKind
    operator: OperatorName
    arguments: DispatchKeySet
    each: Mapping[str, DispatchKeySet]
    included: DispatchKeySet
    excluded: DispatchKeySet
    base: DispatchKeySet
    keys: DispatchKeySet
    entry: TableEntry | None


class Observer(Protocol):
    """An observer of every call, of every thread, in that thread."""

    def entered(self, call: ObservedCall, /) -> None:
        """Note the kernel that will run; None without a kernel."""

    def left(self, call: ObservedCall, error: BaseException | None, /) -> None:
        """Note that the call is over; `error` is the exception that it raised."""

    def guard_opened(self, guard: object, included: DispatchKeySet, excluded: DispatchKeySet, /) -> None:
        """Note that a guard has set the included and excluded keys of the thread to these sets."""

    def guard_closed(self, guard: object, included: DispatchKeySet, excluded: DispatchKeySet, /) -> None:
        """Note that a guard has put these sets back."""


observers: list[Observer] = []
"""The observers of now."""
