"""States with one field changed: each is seen by an invariant, is the same state, or is history.

What is history is in Note [What no invariant can see] of `dispatchlab/engine/in_force.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import NamedTuple

from dispatchlab.engine.fallbacks import Fallbacks
from dispatchlab.engine.in_force import state_violations
from dispatchlab.engine.introspection import fallbacks_in
from dispatchlab.engine.kernel import AMBIGUOUS, RegisteredKernel, TableEntry
from dispatchlab.engine.lab_space import LabSpace, LabState
from dispatchlab.engine.lowering import LoweredRegistration
from dispatchlab.engine.operator_entry import Definition, Earlier, HeldSignature, OperatorEntry, Stored
from dispatchlab.engine.primitives import RegisterClaim, RegisterName
from dispatchlab.engine.python_state import PythonKey, PythonState
from dispatchlab.engine.semantics import Semantics, SignatureLife, semantics_named
from dispatchlab.engine.state import FALLBACKS, NamespaceVariable, PythonVariable, State
from dispatchlab.engine.torch_library import TorchLibraryPrimitive
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import AliasKind, Kernel, KernelForm
from dispatchlab.model.schema_parser import parse_inferred, parse_schema
from dispatchlab.model.slot_set import CATCH_ALL_BIT, KEY_BIT
from dispatchlab.scenario.load import load_scenario
from dispatchlab.scenario.scenario import Scenario

ROOT = Path(__file__).parents[1] / "scenarios"
_OTHER_NAME = OperatorName("test", "another")
_OTHER_SCHEMA = parse_schema("test::another(int x, int y, int z) -> ()")
_OTHER_KERNEL = RegisteredKernel(Kernel(), "another", DispatchKey.CPU)
_WRONG_KERNEL = RegisteredKernel(
    Kernel(KernelForm.UNBOXED, parse_inferred("(str _0, str _1, str _2, str _3) -> ()")), "wrong", DispatchKey.CPU
)
_OUTSIDE = 1 << 900
_FLIPPED = {"CPU": DispatchKey.CUDA}


class Reached(NamedTuple):
    """A state, and how it was reached.

    Args:
        state: the state.
        active: what is in force, in the order in which it was registered.
        refused: what was refused on the way.
    """

    state: LabState
    active: tuple[int, ...] = ()
    refused: frozenset[int] = frozenset()


class Subject(NamedTuple):
    """The states of a scenario under some semantics."""

    name: str
    space: LabSpace
    registrations: int
    semantics: Semantics

    def violations(self, state: State, reached: Reached) -> tuple[object, ...]:
        """What the invariants say of a state that may have been changed."""
        lowered = self.space.lowered
        active: list[LoweredRegistration] = [lowered[index] for index in reached.active]
        refused = [lowered[index] for index in reached.refused]
        builtin = fallbacks_in(self.space.empty())
        return state_violations(state, active, self.semantics, builtin=builtin, refused=refused)

    def reached(self, most: int) -> list[Reached]:
        """States in the order in which a walk comes to them."""
        start = Reached(self.space.empty())
        known = {start.state: start}
        todo = [start]
        for at in todo:
            for index in range(self.registrations):
                if index in at.active:
                    left = tuple(each for each in at.active if each != index)
                    new = Reached(self.space.release(at.state, index), left, at.refused)
                else:
                    state, refusal = self.space.register(at.state, index)
                    if refusal is None:
                        new = Reached(state, (*at.active, index), at.refused)
                    else:
                        new = Reached(state, at.active, at.refused | {index})
                if new.state not in known and len(known) < most:
                    known[new.state] = new
                    todo.append(new)
        return todo


def subjects(names: Sequence[str] = ("strict", "torch-2.13", "pr35061")) -> Iterator[Subject]:
    """All scenarios, each under its own semantics or under those named."""
    for path in sorted(ROOT.rglob("*.yaml")):
        scenario: Scenario = load_scenario(path)
        for name in (scenario.semantics,) if scenario.semantics is not None else names:
            semantics = semantics_named(name)
            space = LabSpace(scenario.registrations, scenario.operators, semantics)
            yield Subject(f"{path.stem} {name}", space, len(scenario.registrations), semantics)


def mutants(state: State, is_taken: Callable[[], bool]) -> Iterator[tuple[str, State]]:
    """A state with each field of each value that is taken changed in several ways, and what was changed."""
    for variable, value in state.items():
        if not is_taken():
            continue
        yield "lost", {each: held for each, held in state.items() if each is not variable}
        yield "value", {**state, variable: object()}
        other = _other_value(variable, value)
        if other is not None:
            yield "name of the variable", {**state, other: value}
        for what, changed in _changed(value):
            yield what, {**state, variable: changed}
    yield "leaked claim", {**state, NamespaceVariable("leaked"): RegisterClaim(NamespaceVariable("leaked"), "a")}
    yield "leaked entry", {**state, str(_OTHER_NAME): OperatorEntry(_OTHER_NAME, names=(RegisterName(_OTHER_NAME),))}
    fallbacks = fallbacks_in(state)
    leaked = RegisteredKernel(Kernel(), "leaked", DispatchKey.Functionalize)
    if KEY_BIT[DispatchKey.Functionalize] not in fallbacks.by_slot:
        yield "leaked fallback", {**state, FALLBACKS: fallbacks.put(KEY_BIT[DispatchKey.Functionalize], leaked)}


def _other_value(variable: object, value: object) -> str | NamespaceVariable | PythonVariable | None:
    if isinstance(variable, str):
        return "test::elsewhere"
    if isinstance(variable, NamespaceVariable):
        return NamespaceVariable("elsewhere")
    return None


def _changed(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, OperatorEntry):
        yield from _changed_entry(value)
    elif isinstance(value, Fallbacks):
        yield from _changed_fallbacks(value)
    elif isinstance(value, PythonState):
        entries = value.entries
        yield "python", PythonState(())
        yield "python", PythonState((*entries, *entries))
        for at, (key, registered) in enumerate(entries):
            left, right = entries[:at], entries[at + 1 :]
            yield "python", PythonState((*left, (key, ()), *right))
            yield "python", PythonState((*left, (key, (*registered, *registered)), *right))
            if len(entries) > 1:
                yield "python", PythonState(tuple(reversed(entries)))
            if type(registered[0]).__name__ == "RegisterPython":
                yield "python", PythonState((*left, (PythonKey(key.registry, key.key + "x"), registered), *right))


def _changed_fallbacks(value: Fallbacks) -> Iterator[tuple[str, object]]:
    for bit, kernel in value.by_slot.items():
        rest = {each: held for each, held in value.by_slot.items() if each != bit}
        yield "fallback lost", Fallbacks(rest, builtin=value.builtin, replacing=value.replacing)
        double = RegisteredKernel(kernel.kernel, kernel.debug, kernel.key)
        yield "fallback", Fallbacks({**rest, bit: double}, builtin=value.builtin, replacing=value.replacing)
        moved = Fallbacks({**rest, bit << 1: kernel}, builtin=value.builtin, replacing=value.replacing)
        if bit << 1 not in rest:
            yield "fallback moved", moved
        wrong = Fallbacks(value.by_slot, builtin=value.builtin, replacing=value.replacing)
        wrong.fallthrough_slots ^= bit
        yield "fallthrough slots", wrong
        wrong = Fallbacks(value.by_slot, builtin=value.builtin, replacing=value.replacing)
        wrong.slots ^= bit
        yield "slots of fallbacks", wrong
    yield "replacing", Fallbacks(value.by_slot, builtin=value.builtin, replacing=value.replacing | {_OTHER_KERNEL})
    yield (
        "builtin",
        Fallbacks(value.by_slot, builtin={**value.builtin, 1 << 50: _OTHER_KERNEL}, replacing=value.replacing),
    )
    for kernel in value.replacing:
        yield "replacing", Fallbacks(value.by_slot, builtin=value.builtin, replacing=value.replacing - {kernel})


def _changed_entry(entry: OperatorEntry) -> Iterator[tuple[str, OperatorEntry]]:
    yield "name", entry._replace(name=_OTHER_NAME)
    yield "name", entry._replace(name=replace(entry.name, overload=entry.name.overload + "x"))
    yield from (("stored", entry._replace(stored=stored)) for stored in _other_stored(entry.stored))
    yield from (("defs", entry._replace(defs=defs)) for defs in _other_defs(entry.defs))
    for names in (entry.names[1:], (*entry.names, RegisterName(entry.name)), (*entry.names, object())):
        yield "names", entry._replace(names=names)
    yield "names", entry._replace(names=(*entry.names, *entry.names))
    yield from (("kernels", other) for other in _other_kernels(entry))
    yield "present", entry._replace(present=entry.present ^ KEY_BIT[DispatchKey.CPU])
    yield "present", entry._replace(present=entry.present | _OUTSIDE)
    yield from (("slots", entry._replace(slots=slots)) for slots in _other_slots(entry))
    held = HeldSignature("void (*)()", "another", "CPU")
    for signatures in ((held, entry.signatures[1]), (entry.signatures[0], held), (None, None), entry.signatures[::-1]):
        yield "signatures", entry._replace(signatures=signatures)
    for tags in (entry.tags | {"another"}, frozenset[str](), frozenset(sorted(entry.tags)[1:])):
        yield "tags", entry._replace(tags=tags)
    for earlier in (
        entry.earlier | {Earlier("test::another", "(1)")},
        entry.earlier | {Earlier(str(entry.name), "(1)")},
        frozenset[Earlier](),
        frozenset(each._replace(call="") for each in entry.earlier),
    ):
        yield "earlier", entry._replace(earlier=earlier)


def _other_stored(stored: Stored | None) -> Iterator[Stored | None]:
    if stored is None:
        yield Stored(_OTHER_SCHEMA, None, "another")
        return
    yield None
    yield stored._replace(schema=_OTHER_SCHEMA)
    yield stored._replace(schema=replace(stored.schema, name=_OTHER_NAME))
    yield stored._replace(schema=replace(stored.schema, arguments=(*stored.schema.arguments, *_OTHER_SCHEMA.arguments)))
    for alias in (None, *AliasKind):
        yield stored._replace(alias=alias)
    yield stored._replace(debug=stored.debug + "x")
    yield stored._replace(debug="")


def _other_defs(defs: tuple[Definition, ...]) -> Iterator[tuple[Definition, ...]]:
    new = Definition(_OTHER_SCHEMA, None, frozenset(), "another")
    yield ()
    yield (new,)
    yield (*defs, new)
    if defs:
        one = defs[0]
        yield defs[1:]
        yield (*defs, one)
        yield defs[::-1]
        yield (Definition(one.schema, one.alias, one.tags, one.debug), *defs[1:])
        yield (*defs, Definition(one.schema, one.alias, one.tags, one.debug))


def _other_kernels(entry: OperatorEntry) -> Iterator[OperatorEntry]:
    kernels = entry.kernels
    cpu = KEY_BIT[DispatchKey.CPU]
    for wrong in (_OTHER_KERNEL, _WRONG_KERNEL):
        with_cpu = {**kernels, cpu: (*kernels.get(cpu, ()), wrong)}
        yield entry._replace(kernels=with_cpu, present=entry.present | cpu)
    yield entry._replace(kernels={**kernels, CATCH_ALL_BIT: (_OTHER_KERNEL,)})
    for bit, some in kernels.items():
        rest = {each: held for each, held in kernels.items() if each != bit}
        yield entry._replace(kernels=rest)
        yield entry._replace(kernels=rest, present=entry.present & ~bit)
        yield entry._replace(kernels={**rest, bit: ()})
        yield entry._replace(kernels={**rest, bit << 1: some})
        yield entry._replace(kernels={**kernels, bit: (*some, some[0])})
        yield entry._replace(kernels={**kernels, bit: some[::-1]})
        yield entry._replace(kernels={**kernels, bit: some[1:] or (_OTHER_KERNEL,)})
        double = RegisteredKernel(some[-1].kernel, some[-1].debug, some[-1].key)
        yield entry._replace(kernels={**kernels, bit: (*some[:-1], double)})


def _other_slots(entry: OperatorEntry) -> Iterator[dict[TableEntry, int]]:
    slots = dict(entry.slots)
    other = _OTHER_KERNEL.because(Provenance.KERNEL)
    yield {**slots, other: 1}
    yield {**slots, other: _OUTSIDE}
    yield {**slots, AMBIGUOUS: slots.get(AMBIGUOUS, 0) ^ KEY_BIT[DispatchKey.AutogradOther]}
    for held, bits in slots.items():
        rest = {each: where for each, where in slots.items() if each is not held}
        yield rest
        yield {**slots, held: bits ^ KEY_BIT[DispatchKey.CUDA]}
        yield {**slots, held: bits | _OUTSIDE}
        yield {**slots, held: bits & (bits - 1)} if bits & (bits - 1) else rest
        yield {**rest, other: bits}
        reason = next(each for each in Provenance if each is not held.reason)
        yield {**rest, held.registered.because(reason): bits}


def _is_history(what: str, before: State, after: State, semantics: Semantics, reached: Reached, *, calls: bool) -> bool:
    """Whether the change is of something that nothing in force has; see the module's docstring.

    Args:
        what: was changed.
        before: the state.
        after: the state with the change.
        semantics: whose rules count.
        reached: the state, and how it was reached: where nothing is in force, it has what refused ones left.
        calls: Python keeps something, or a call of torch.library is in force, which decides when it runs what it makes.
    """
    changed = [key for key in before if before[key] is not after.get(key)]
    entries = [(before[key], after.get(key)) for key in changed]
    (old, new) = entries[0] if entries else (None, None)
    if isinstance(old, OperatorEntry) and isinstance(new, OperatorEntry):
        if what == "stored" and semantics.several_defs and old.stored and new.stored and old.defs:
            return old.stored.schema == new.stored.schema and (
                old.stored.alias == new.stored.alias or all(one.alias is None for one in old.defs)
            )
        if what == "signatures" and semantics.signature_life is SignatureLife.OPERATOR:
            return True
        if what == "tags":
            return semantics.tags_outlive_def and not old.defs
        return what == "earlier" and new.earlier < old.earlier
    if isinstance(old, Fallbacks) and what in ("fallback lost", "fallback"):
        return bool(semantics.replaceable_fallbacks)
    of_refused = isinstance(old, OperatorEntry) and not reached.active and bool(reached.refused)
    return what == "lost" and (calls or of_refused)


def run(most_states: int, share: float, seed: int = 1) -> tuple[Counter[str], list[str]]:
    """Mutate states; how the mutants ended, and those that no invariant saw."""
    rng, kept = random.Random(seed), sqrt(share)  # of values, and of what is made of each: most would be made in vain
    ends: Counter[str] = Counter()
    unseen: list[str] = []
    for subject in subjects():
        for reached in subject.reached(most_states):
            state = reached.state
            found = subject.violations(state, reached)
            known = {(one.rule, str(one.operator)) for one in found}  # type: ignore[attr-defined]  # a defect of upstream
            wrong = {rule for rule, _ in known} - {"stale slot", "entry of nothing"}
            if wrong:
                unseen.append(f"{subject.name} {reached.active}: a state that is right breaks {sorted(wrong)}")
            calls = any(isinstance(variable, PythonVariable) for variable in state) or any(
                isinstance(each, TorchLibraryPrimitive)
                for index in reached.active
                for each in subject.space.lowered[index].primitives
            )
            for what, mutant in mutants(state, lambda: rng.random() < kept):
                if rng.random() >= kept:
                    continue
                broken = subject.violations(mutant, reached)
                if broken and (set(broken) != set(found) or what == "slots"):
                    ends["seen"] += 1
                elif LabState(mutant) == reached.state:
                    ends["the same state"] += 1
                elif _is_history(what, state, mutant, subject.semantics, reached, calls=calls):
                    ends["history"] += 1
                else:
                    ends["unseen"] += 1
                    unseen.append(f"{subject.name} {reached.active}: {what}")
    return ends, unseen
