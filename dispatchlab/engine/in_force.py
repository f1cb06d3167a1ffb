"""Compare a whole state with the registrations: the state contains all of them, and nothing else.

`invariants` checks one operator, at each state of a walk. This module needs to know what
was registered, and is for a dispatcher and for tests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from dispatchlab.engine.fallbacks import Fallbacks
from dispatchlab.engine.introspection import fallbacks_in, violations_in
from dispatchlab.engine.lowering import LoweredRegistration
from dispatchlab.engine.operator_entry import OperatorEntry
from dispatchlab.engine.primitives import (
    Primitive,
    RegisterClaim,
    RegisterDef,
    RegisterFallback,
    RegisterImpl,
    RegisterName,
)
from dispatchlab.engine.semantics import Semantics
from dispatchlab.engine.state import FALLBACKS, PythonState, State
from dispatchlab.engine.torch_library import added_kernels
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema_parser import parse_name
from dispatchlab.model.slot_set import KEY_BIT, KEY_OF_BIT
from dispatchlab.model.snapshot import Violation


def state_violations(
    state: State, in_force: Sequence[LoweredRegistration], semantics: Semantics, builtin: Fallbacks
) -> tuple[Violation, ...]:
    """Return the invariants that do not hold for a state as a whole.

    Args:
        state: the state; it may lack a registration that another thread is making.
        in_force: the active registrations.
        semantics: the semantics; if a refusal leaves traces, the state may have more than the active registrations.
        builtin: the fallbacks that it began with.
    """
    found: list[Violation] = []
    plain = [primitive for made in in_force for primitive in made.plain()]
    added = [each for value in state.values() if isinstance(value, PythonState) for each in added_kernels(value)]
    allowed = None if semantics.refusal_leaves_traces else _contents([*plain, *added])
    for variable, value in state.items():
        match value:
            case OperatorEntry() if isinstance(variable, str):
                found += [] if allowed is None else _entry(variable, value, allowed)
                found += violations_in(state, parse_name(variable), semantics)
            case RegisterClaim() if value.variable == variable and value in plain:
                pass
            case Fallbacks() if variable is FALLBACKS:
                pass
            case PythonState():
                found += _python(str(variable), value)
            case _:
                found.append(_violation(str(variable), "value of a variable", f"{value!r} of nothing in force"))
    found += _fallbacks(fallbacks_in(state), plain, builtin, semantics)
    return tuple(sorted(found, key=lambda one: str(one.operator)))


def _violation(name: str, rule: str, detail: str) -> Violation:
    return Violation(OperatorName("", name), rule, detail)


_Contents = dict[tuple[str, object], list[object]]


def _contents(primitives: Collection[Primitive]) -> _Contents:
    """Return the defs, names and kernels of each operator: by its variable, and `defs`, `names` or a bit."""
    contents: _Contents = {}
    for each in primitives:
        match each:
            case RegisterDef():
                contents.setdefault((each.variable, "defs"), []).append(each.definition)
            case RegisterName():
                contents.setdefault((each.variable, "names"), []).append(each)
            case RegisterImpl():
                contents.setdefault((each.variable, each.bit), []).append(each.entry)
    return contents


def _entry(variable: str, entry: OperatorEntry, allowed: _Contents) -> Iterator[Violation]:
    held: list[tuple[str | int, Sequence[object]]] = [("defs", entry.defs), ("names", entry.names)]
    for place, there in [*held, *entry.kernels.items()]:
        if any(one not in allowed.get((variable, place), ()) for one in there):
            where = place if isinstance(place, str) else f"kernels at {KEY_OF_BIT.get(place)}"
            yield Violation(entry.name, "what is in force", f"the {where} are not those that are registered")


def _fallbacks(
    fallbacks: Fallbacks, plain: Sequence[Primitive], builtin: Fallbacks, semantics: Semantics
) -> Iterator[Violation]:
    made = {each.entry for each in plain if isinstance(each, RegisterFallback)} | {*builtin.by_slot.values()}
    may_be = None if semantics.refusal_leaves_traces else made
    by_slot = fallbacks.by_slot
    for bit, kernel in by_slot.items():
        if kernel.key is None or KEY_BIT[kernel.key] != bit or (may_be is not None and kernel not in may_be):
            yield _violation(str(KEY_OF_BIT.get(bit)), "fallbacks", f"{kernel.debug} is of nothing in force")
    replaceable = {KEY_BIT[key] for key in semantics.replaceable_fallbacks}
    for bit, kernel in builtin.by_slot.items():
        if bit not in replaceable and by_slot.get(bit) is not kernel:
            yield _violation(str(KEY_OF_BIT.get(bit)), "fallbacks", f"{kernel.debug} is in force and is missing")
    if may_be is not None and not fallbacks.replacing <= may_be:
        yield _violation("", "fallbacks", "those that replace others are not those in force")
    if dict(fallbacks.builtin) != dict(builtin.by_slot):
        yield _violation("", "fallbacks", "the builtin ones are not those that it began with")
    fallthrough = sum(bit for bit, kernel in by_slot.items() if kernel.kernel.is_fallthrough)
    if (fallbacks.slots, fallbacks.fallthrough_slots) != (sum(by_slot), fallthrough):
        yield _violation("", "fallbacks", "their slots are not those of their kernels")


def _python(operator: str, kept: PythonState) -> Iterator[Violation]:
    keys = [key for key, _ in kept.entries]
    if not keys or keys != sorted(set(keys)):
        yield _violation(operator, "registries of Python", "the keys are empty, not in order, or there twice")
    for key, registered in kept.entries:
        if len({*registered}) != len(registered) or not registered:
            yield _violation(operator, "registries of Python", f"{key} has no entry, or the same one twice")
