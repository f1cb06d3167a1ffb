"""Hold a whole state against what is registered: nothing of it is missing, and nothing else is there.

`invariants` look at one operator by itself, and as often as a walk comes to a state. What is here needs to know what
was registered, and is for a dispatcher and for tests.
"""

# Note [What no invariant can see]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Some of a state is history: it was left by a registration that is gone, and what is in force does not say what it was.
# That is, where the semantics allow it: the schema, alias kind and debug text of a first def that others outlive
# (`several_defs`), a signature whose kernel is gone (`SignatureLife.OPERATOR`), tags whose def is gone
# (`tags_outlive_def`), which of several fallbacks of a replaceable key came last, which entries of Python were
# replaced or removed, what a call of `torch.library` has made that took back what another one made, what a refused def
# left behind, and which of two overloads was defined first. Two ways to the same registrations show that.

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from dispatchlab.engine.fallbacks import NO_FALLBACKS, Fallbacks
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
from dispatchlab.engine.python_state import PythonState
from dispatchlab.engine.semantics import Semantics
from dispatchlab.engine.state import FALLBACKS, PythonVariable, State
from dispatchlab.engine.torch_library import TorchLibraryPrimitive, in_libraries
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema_parser import parse_name
from dispatchlab.model.slot_set import KEY_BIT, KEY_OF_BIT
from dispatchlab.model.snapshot import Violation


def state_violations(
    state: State,
    in_force: Sequence[LoweredRegistration],
    semantics: Semantics,
    *,
    builtin: Fallbacks = NO_FALLBACKS,
    refused: Sequence[LoweredRegistration] | None = (),
    exact: bool = True,
) -> tuple[Violation, ...]:
    """The invariants that do not hold for a state as a whole.

    Args:
        state: the state.
        in_force: what is registered, in the order in which it was.
        semantics: whose rules count.
        builtin: the fallbacks that it began with.
        refused: what was refused, whose traces may be there; None when that is not known.
        exact: false when some of `in_force` may be under way, in another thread, and in another order.
    """
    found: list[Violation] = []
    plain = [primitive for made in in_force for primitive in made.plain()]
    traces = () if not semantics.refusal_leaves_traces else refused
    allowed = None if traces is None else [*plain, *(primitive for made in traces for primitive in made.plain())]
    # A call of torch.library decides when it runs what it makes, and takes back what another one has made.
    made = [primitive for each in in_force for primitive in each.primitives]
    decided = [
        each
        for one in in_force
        if not any(isinstance(each, TorchLibraryPrimitive) for each in one.primitives)
        for each in one.primitives
    ]
    in_order = len(decided) == len(plain)
    kept = [each for value in state.values() if isinstance(value, PythonState) for each in in_libraries(value, made)]
    wanted = _contents([*decided, *kept]) if exact else {}
    may_be = None if allowed is None else _contents([*allowed, *kept])
    for variable, value in state.items():
        match value:
            case OperatorEntry() if isinstance(variable, str):
                found += _entry(variable, value, wanted, may_be, in_order=in_order)
                found += violations_in(state, parse_name(variable), semantics)
            case RegisterClaim() if value.variable == variable and value in plain:
                pass
            case Fallbacks() if variable is FALLBACKS:
                found += _fallbacks(value, plain, allowed, builtin, semantics, exact=exact)
            case PythonState() if isinstance(variable, PythonVariable):
                found += _python(variable.operator, value)
            case _:
                found.append(_violation(str(variable), "value of a variable", f"{value!r} of nothing in force"))
    for name in {variable for variable, _ in wanted} - state.keys():
        found.append(_violation(str(name), "entry that is missing", "something is registered, and there is no entry"))
    claims = {primitive.variable for primitive in plain if exact and isinstance(primitive, RegisterClaim)}
    found += [
        _violation(one.namespace, "claim that is missing", "a library claims it") for one in claims - state.keys()
    ]
    if fallbacks_in(state) is NO_FALLBACKS:
        found += _fallbacks(NO_FALLBACKS, plain, allowed, builtin, semantics, exact=exact)
    return tuple(sorted(found, key=lambda one: str(one.operator)))


def _violation(name: str, rule: str, detail: str) -> Violation:
    return Violation(OperatorName("", name), rule, detail)


_Contents = dict[tuple[str, object], list[object]]


def _contents(primitives: Collection[Primitive]) -> _Contents:
    """The defs, names and kernels of each operator, oldest first: by its variable, and `defs`, `names` or a bit."""
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


def _entry(
    variable: str, entry: OperatorEntry, wanted: _Contents, may_be: _Contents | None, *, in_order: bool
) -> Iterator[Violation]:
    held: dict[object, Sequence[object]] = {"defs": entry.defs, "names": entry.names}
    held |= {bit: kernels[::-1] for bit, kernels in entry.kernels.items()}
    places = held.keys() | {place for name, place in wanted if name == variable}
    for place in places:
        there, needed = held.get(place, ()), wanted.get((variable, place), [])
        allowed = None if may_be is None else may_be.get((variable, place), [])
        left = [one for one in there if one in needed]
        is_whole = left == needed if in_order else {*needed} <= {*left}
        if not is_whole or (allowed is not None and any(one not in allowed for one in there)):
            where = place if isinstance(place, str) else f"kernels at {KEY_OF_BIT.get(place)}"  # type: ignore[call-overload]
            yield Violation(entry.name, "what is in force", f"the {where} are not those that are registered")


def _fallbacks(
    fallbacks: Fallbacks,
    plain: Sequence[Primitive],
    allowed: Sequence[Primitive] | None,
    builtin: Fallbacks,
    semantics: Semantics,
    *,
    exact: bool,
) -> Iterator[Violation]:
    made = [each for each in plain if isinstance(each, RegisterFallback)]
    may_be = {each.entry for each in allowed or () if isinstance(each, RegisterFallback)}
    may_be |= {*builtin.by_slot.values()}
    by_slot = fallbacks.by_slot
    for bit, kernel in by_slot.items():
        if kernel.key is None or KEY_BIT[kernel.key] != bit or (allowed is not None and kernel not in may_be):
            yield _violation(str(KEY_OF_BIT.get(bit)), "fallbacks", f"{kernel.debug} is of nothing in force")
    replaceable = {KEY_BIT[key] for key in semantics.replaceable_fallbacks}
    needed = {**builtin.by_slot, **({each.bit: each.entry for each in made} if exact else {})}
    for bit, kernel in needed.items():
        if bit not in replaceable and by_slot.get(bit) is not kernel:
            yield _violation(str(KEY_OF_BIT.get(bit)), "fallbacks", f"{kernel.debug} is in force and is missing")
    replacing = {each.entry for each in made if exact and each.replaces and not semantics.replaced_fallback_returns}
    if not replacing <= fallbacks.replacing or (allowed is not None and not fallbacks.replacing <= may_be):
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
