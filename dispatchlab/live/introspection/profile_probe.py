"""Measure a profile: how the dispatcher of the running PyTorch differs from other versions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import combinations, count
from typing import Any

from dispatchlab.errors import DispatchLabError
from dispatchlab.live.bridge.call_mark import CallMark
from dispatchlab.live.bridge.expressible import has_fallbacks, stand_in
from dispatchlab.live.bridge.reserved_namespaces import PROFILE
from dispatchlab.live.bridge.running_keys import running_keys
from dispatchlab.live.bridge.torch import bindings, torch
from dispatchlab.live.introspection.process_copies import CopyEndedError, in_a_copy
from dispatchlab.live.introspection.slot_memory import SlotView, entry_address, memory_layout, recomputed_by
from dispatchlab.model.dump_format import AMBIGUOUS_DEBUG
from dispatchlab.model.profile import COMPOSITE, DEFAULTS, FALLBACK, KERNEL, BuiltinFallback, Names, Profile

# Note [Measuring a profile]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~
# Everything is seen on operators that nobody else has. What a slot is given is read from computed tables: of one kernel
# at each alias key, and of the kernels of two keys. What is recomputed cannot be seen there, and not in the slots
# either, because most are given again what they hold; so the slots are overwritten, and those that have something else
# after a registration or a release were recomputed (`recomputed_by`).
#
# What ends the process on some version is tried in a copy of it. The bindings register C++ kernels of one type alone,
# so nobody sees with them how long a signature is held against kernels of another type: `signature_life` is left to
# its default. Where the slots cannot be read, what is recomputed cannot be measured, and there is no profile.

_MARKED, _OTHER = 0, 1  # numbers of calls
_LONGEST_S = 60.0


class NotMeasurableError(DispatchLabError):
    """The dispatcher of this PyTorch cannot be measured.

    Args:
        reason: the missing feature, as a clause.
    """

    reason: str

    def __str__(self) -> str:
        return f"no profile of PyTorch {torch().__version__} can be measured: {self.reason}"


def measure_profile() -> Profile:
    """Return the profile of the running PyTorch; call it in a process without registrations of packages.

    Raises:
        NotMeasurableError: its slots cannot be read.
    """
    if memory_layout() is None:
        raise NotMeasurableError("its slots cannot be read, so what a registration recomputes cannot be seen")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        each_override = _warns_each_override()  # before anything else warns of an override
        keys, refresh = running_keys(), _Refresh()
        aliases = _aliases()
        takes, ambiguous = _taken_from_composite(aliases[COMPOSITE])
        traces = _leaves_traces()
        return Profile(
            torch=str(torch().__version__),
            keys=dict(keys.numbers),
            runtime=keys.runtime,
            parsed=tuple(name for name in keys.numbers if name in keys.parsed),
            aliases=aliases,
            precedence=_precedence(aliases),
            takes_composite=takes,
            ambiguous=ambiguous,
            refresh_on_register=refresh.on_register,
            refresh_on_release=refresh.on_release,
            full_refresh_without_key=refresh.without_key == keys.runtime,
            fallbacks=_fallbacks(),
            # Tried in a copy, which loses PyTorch's own fallback.
            replaceable_fallbacks=tuple(
                _said_by_copy(lambda: " ".join(key for key in running_keys().runtime if _replaces(key))).split()
            ),
            signature_life=str(DEFAULTS["signature_life"]),
            refusal_leaves_traces=traces,
            tags_outlive_def=bool(DEFAULTS["tags_outlive_def"]),
            fallback_without_slot=_accepts_fallback_without_slot(),
            kernels_in_wildcard_block=_accepts_kernels_in_wildcard_block(),
            several_defs=_accepts_several_defs(),
            warn_each_override=each_override,
            not_probed=("signature_life", "tags_outlive_def"),
        )


# -- operators to look at


_numbers = count(1)


class _Operator:
    """An operator of the probe; its libraries name their own lines, not a line of the user."""

    def __init__(self, undo: ExitStack) -> None:
        self._undo, self._mark = undo, CallMark.create()
        self.namespace = f"{PROFILE}{next(_numbers)}"
        self.name = f"{self.namespace}::a"

    def library(self, number: int = _OTHER, *, kind: str = "FRAGMENT") -> Any:
        """Return a library; its registrations are released at the end."""
        mark, namespace = self._mark, "_" if kind == "IMPL" else self.namespace
        made = bindings()._dispatch_library(kind, namespace, "", mark.file, mark.line(number))
        self._undo.callback(made.reset)
        return made

    def impl(self, key: str, number: int = _OTHER) -> Any:
        """Register a kernel at a key, or without a key; return its library."""
        library = self.library(number)
        library.impl("a", _value(key), stand_in)
        return library

    def rows(self) -> dict[str, str]:
        """Return the computed table of the operator: the text behind each key."""
        table = str(bindings()._dispatch_dump_table(self.name))
        return dict(line.split(": ", 1) for line in table.splitlines())

    def filled(self, number: int) -> Names:
        """Return the runtime keys with the kernel of the call with this number."""
        debug = self._mark.debug(number)
        return tuple(
            key for key, row in self.rows().items() if row.startswith((f"{debug} [", f"fallthrough {debug} ["))
        )

    def slots(self) -> SlotView:
        """Return its slots."""
        layout = memory_layout()
        assert layout is not None
        address = entry_address(layout, self.name)
        assert address is not None
        return SlotView(layout, address)


@contextmanager
def _operator(schema: str = "(Tensor x) -> Tensor") -> Iterator[_Operator]:
    """Return an operator, with a def unless the schema is empty; the block removes it at the end."""
    with ExitStack() as undo:
        made = _Operator(undo)
        if schema:
            made.library().define(f"a{schema}", "")
        yield made


def _value(key: str) -> Any:
    c = bindings()
    return c.DispatchKey(running_keys().numbers[key]) if key else c.DispatchKey.Undefined


def _registered_keys() -> tuple[str, ...]:
    """Return the keys where kernels can be registered."""
    return tuple(key for key in running_keys().numbers if key != "Undefined")


def _is_refused(action: Callable[[], object]) -> bool:
    try:
        action()
    except RuntimeError:
        return True
    return False


# -- what a slot is given


def _aliases() -> dict[str, Names]:
    found: dict[str, Names] = {}
    for alias in running_keys().aliases:
        with _operator() as operator:
            operator.impl(alias, _MARKED)
            found[alias] = operator.filled(_MARKED)
    return found


def _precedence(aliases: Mapping[str, Names]) -> Names:
    """Return the alias keys in the order of their precedence, the winner of a shared slot first.

    A key that shares no slot with another alias key comes last.
    """
    behind: dict[str, set[str]] = {alias: set() for alias in aliases}  # an alias key -> those that come before it
    for one, other in combinations(aliases, 2):
        shared = {*aliases[one]} & {*aliases[other]}
        if not shared:
            continue
        with _operator() as operator:
            operator.impl(one, _MARKED)
            operator.impl(other)
            kept = shared & {*operator.filled(_MARKED)}
        behind[other if kept else one].add(one if kept else other)
    rivals = {alias for alias, before in behind.items() if before}.union(*behind.values())
    order: list[str] = []
    while len(order) < len(aliases):
        free = [alias for alias in aliases if alias not in order and behind[alias] <= {*order}]
        if not free:
            raise NotMeasurableError("its alias keys take slots from each other in a circle")
        order.append(max(free, key=lambda alias: (alias in rivals, running_keys().numbers[alias])))
    return (KERNEL, *order, FALLBACK)


def _taken_from_composite(composite: Names) -> tuple[dict[str, Names], dict[str, Names]]:
    """Return the slots that each key takes away from a composite kernel, and the slots that it makes ambiguous."""
    takes: dict[str, Names] = {}
    ambiguous: dict[str, list[str]] = {}
    for key in _registered_keys():
        if key == COMPOSITE:
            continue
        with _operator() as operator:
            operator.impl(COMPOSITE, _MARKED)
            operator.impl(key)
            rows, kept, own = operator.rows(), operator.filled(_MARKED), operator.filled(_OTHER)
        lost = [slot for slot in composite if slot not in kept and slot not in own]
        for slot in lost:
            if rows.get(slot, "").startswith(AMBIGUOUS_DEBUG):
                ambiguous.setdefault(slot, []).append(key)
        if taken := tuple(slot for slot in lost if key not in ambiguous.get(slot, ())):
            takes[key] = taken
    return takes, {slot: tuple(keys) for slot, keys in ambiguous.items()}


def _fallbacks() -> dict[str, BuiltinFallback]:
    with _operator() as operator:
        rows = operator.rows()
    found: dict[str, BuiltinFallback] = {}
    for key, row in rows.items():
        text = row.rpartition(" [")[0]
        debug = text.removeprefix("fallthrough ")
        found[key] = BuiltinFallback("kernel" if debug == text else "fallthrough", debug)
    return found


# -- what is recomputed


class _Refresh:
    """The slots that are recomputed after a registration and a release at each key, and without a key."""

    def __init__(self) -> None:
        self.on_register: dict[str, Names] = {}
        self.on_release: dict[str, Names] = {}
        for key in _registered_keys():
            self.on_register[key], self.on_release[key] = self._measured(key)
        self.without_key, _ = self._measured("")

    def _measured(self, key: str) -> tuple[Names, Names]:
        with _operator() as operator:
            library, value, slots = operator.library(), _value(key), operator.slots()
            came = recomputed_by(slots, lambda: library.impl("a", value, stand_in))
            gone = recomputed_by(slots, library.reset)
        runtime = running_keys().runtime
        return tuple(runtime[slot] for slot in came), tuple(runtime[slot] for slot in gone)


# -- what is refused, and what that leaves


def _fallback(library: Any, key: str) -> None:
    if has_fallbacks():
        library.fallback(_value(key), stand_in)
    else:
        library.fallback_fallthrough(key)


def _leaves_traces() -> bool:
    """Return whether a refusal leaves something behind: a def whose kernel is refused, or a part of a fallback."""
    with _operator("") as operator:
        library = operator.library()
        refused = _is_refused(lambda: library.def_schema_t_t("a(Tensor x, Tensor y) -> Tensor", "CPU", "", "m"))
        if refused and bindings()._dispatch_dump(operator.name):
            return True
    with _operator() as operator:
        library = operator.library(_MARKED, kind="IMPL")
        refused = _is_refused(lambda: _fallback(library, "CompositeExplicitAutograd"))
        return refused and bool(operator.filled(_MARKED))


def _replaces(key: str) -> bool:
    with _operator() as operator:
        return not any(_is_refused(lambda: _fallback(operator.library(kind="IMPL"), key)) for _ in range(2))


def _accepts_fallback_without_slot() -> bool:
    with _operator() as operator:
        return not _is_refused(lambda: _fallback(operator.library(kind="IMPL"), "Dense"))


def _accepts_kernels_in_wildcard_block() -> bool:
    """Return whether such a block is accepted; False if it ends the process."""
    with _operator() as operator:
        library, value = operator.library(kind="IMPL"), _value("CPU")
        return _said_by_copy(lambda: str(library.impl(operator.name, value, stand_in))) != ""


def _accepts_several_defs() -> bool:
    with _operator() as operator:
        return not _is_refused(lambda: operator.library().define("a(Tensor x) -> Tensor", ""))


def _warns_each_override() -> bool:
    seen = []
    for _ in range(2):
        with _operator() as operator, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            operator.impl("CPU")
            operator.impl("CPU")
            seen.append(any("Overriding a previously registered kernel" in str(one.message) for one in caught))
    return seen[-1]


def _said_by_copy(question: Callable[[], str]) -> str:
    """Return the output of a function in a copy of this process; empty if the function did not finish."""
    try:
        return str(in_a_copy(question, _LONGEST_S))
    except (CopyEndedError, TimeoutError):
        return ""
