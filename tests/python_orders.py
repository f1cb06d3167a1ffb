"""Scenarios that mix registrations of Python with those of the dispatcher, and what they should come to.

`Tables` is a model of PyTorch's registries of Python that shares nothing with the engine: dictionaries by operator
object, written as PyTorch writes them. `brute_force` runs every sequence up to a length in fresh sandboxes, and judges
them by what the model says is in force.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any

from hypothesis import strategies as st

from dispatchlab import (
    Def,
    DispatchKey,
    Impl,
    LabEngine,
    RegistrationError,
    RegistrationHandle,
    parse_name,
    parse_schema,
)
from dispatchlab.model.kernel_identity import distinguished
from dispatchlab.model.names import OperatorName
from dispatchlab.model.python_layer import PythonRegistration
from dispatchlab.model.registration import PythonImpl, Registration, operators_of
from dispatchlab.prover.explore import explore
from dispatchlab.prover.result import Exploration, Verdict
from dispatchlab.prover.walk_options import WalkOptions

REFUSE, ASSIGN, ADD, REMOVE = "refuse", "assign", "add", "remove"
HOW = {
    "decompositions": REFUSE,
    "meta_functions": REFUSE,
    "jvp_decompositions": REFUSE,
    "inductor_decompositions": REFUSE,
    "inductor_random_decompositions": REFUSE,
    "random_decompositions": REFUSE,
    "fake_rules": REFUSE,
    "py_kernels": REFUSE,
    "mode_rules": REFUSE,
    "higher_order": REFUSE,
    "higher_order_fakes": REFUSE,
    "aot_decompositions": ASSIGN,
    "fast_fake_rules": ASSIGN,
    "dtensor_rules": ASSIGN,
    "dtensor_handlers": ASSIGN,
    "jagged": ASSIGN,
    "masked_tensor": ASSIGN,
    "sharded_tensor": ASSIGN,
    "inductor_lowerings": ASSIGN,
    "inductor_constraints": ASSIGN,
    "inductor_user_lowerings": ASSIGN,
    "inductor_fallbacks": ADD,
}
"""What PyTorch 2.13 does with a second registration, as its functions are written."""

BY_ADD_OP_TO_REGISTRY = {name for name in HOW if name.endswith("decompositions")} - {"aot_decompositions"} | {
    "meta_functions"
}
"""`_add_op_to_registry` fills these; it assigns what is for an operator of higher order."""

NOT_EXPLORED = {"export_decompositions", "fake_checks", "semi_structured", "torch_library", "custom_ops"}

OPERATORS = ("my::one", "my::other", "aten::there", "higher_order::there")


def defines(operator: str, debug: str = "") -> Def:
    """A def."""
    return Def(parse_schema(f"{operator}(Tensor x) -> Tensor"), debug=debug)


def keeps(registry: str, operator: str, function: str, key: str = "", how: str = "") -> PythonImpl:
    """A registration of Python: by a call, by an assignment, or what takes one out."""
    if registry.startswith("higher_order"):
        operator = "higher_order::there"
    call = "assignment" if how == ASSIGN else ""
    name, site = "" if how == REMOVE else f"{function}:f", f"{function}.py:1"
    code = PythonRegistration(registry, operator, key, name, site, call=call)
    return PythonImpl(code._replace(effect="removed") if how == REMOVE else code)


_REGISTRIES = st.sampled_from(sorted(HOW))
_SOME = st.one_of(
    st.builds(defines, st.sampled_from(OPERATORS[:2]), st.sampled_from(["a", "b"])),
    st.builds(
        Impl,
        st.sampled_from([parse_name(name) for name in OPERATORS[:2]]),
        st.sampled_from([DispatchKey.CPU, DispatchKey.Meta]),
        debug=st.sampled_from(["fn_1", "fn_2"]),
    ),
    st.builds(
        keeps,
        _REGISTRIES,
        st.sampled_from(OPERATORS),
        st.sampled_from(["p", "q"]),
        st.sampled_from(["", "CPU"]),
        st.sampled_from(["", "", ASSIGN, REMOVE]),
    ),
)


@st.composite
def scenarios(draw: st.DrawFn, most: int = 4) -> tuple[Registration, ...]:
    """Some registrations; most of them write into few slots, and half the time the def that they need is among them."""
    few = draw(st.lists(_SOME, min_size=1, max_size=most - 1))
    again = [one for one in few if isinstance(one, PythonImpl)]
    if again:
        first = draw(st.sampled_from(again)).code
        few.append(keeps(first.registry, first.operator, draw(st.sampled_from(["p", "q"])), first.key))
        if len(few) < most and first.operator in OPERATORS[:2] and draw(st.booleans()):
            few.append(defines(first.operator))
    return distinguished(draw(st.permutations(few)))


def observed(registrations: Sequence[Registration]) -> tuple[OperatorName, ...]:
    """The operators that are looked at."""
    return tuple(dict.fromkeys(name for one in registrations for name in operators_of(one)))


class Tables:
    """PyTorch's registries of Python, by the objects of operators.

    Attributes:
        active: the registrations in force: an entry that another one has written over is still made.
    """

    def __init__(self, registrations: Sequence[Registration]) -> None:
        self.registrations = registrations
        self.active: set[int] = set()
        self._defined = {str(one.operator) for one in registrations if isinstance(one, Def)}
        self._objects: dict[str, object] = {}
        self._owners: dict[int, object] = {}
        self._tables: dict[tuple[str, str, str], dict[object, str]] = {}

    def _object(self, operator: str) -> object | None:
        if operator not in self._defined:
            return operator
        return self._objects.get(operator)

    def register(self, index: int) -> bool:
        """Whether PyTorch takes a registration of Python; the dispatcher decides about others."""
        one = self.registrations[index]
        if isinstance(one, PythonImpl):
            code = one.code
            owner = self._object(code.operator)
            if owner is None:
                return False
            table = self._tables.setdefault((code.registry, code.operator, code.key), {})
            how = HOW[code.registry]
            if code.operator.startswith("higher_order::") and code.registry in BY_ADD_OP_TO_REGISTRY:
                how = ASSIGN
            if code.registry == "higher_order" and not code.key:
                how = ASSIGN
            beside = self._tables.get(("inductor_decompositions", code.operator, ""), {})
            is_call = code.call != "assignment" and code.effect != "removed"
            if code.registry == "inductor_fallbacks" and is_call and owner in beside:
                return False
            if code.effect == "removed":
                table.pop(owner, None)
            elif how == REFUSE and owner in table and code.call != "assignment":
                return False
            else:
                table[owner] = "in the set" if how == ADD else one.debug
            self._owners[index] = owner
        elif isinstance(one, Def):
            self._objects[str(one.operator)] = object()
        self.active.add(index)
        return True

    def release(self, index: int) -> None:
        """The release of what the dispatcher has."""
        self.active.remove(index)
        one = self.registrations[index]
        if isinstance(one, Def):
            gone = self._objects.pop(str(one.operator))
            self.active -= {at for at in self.active if self._owners.get(at) is gone}

    def text(self, operator: OperatorName) -> str:
        """What there is for an operator, as a snapshot shows it."""
        owner = self._object(str(operator))
        found = sorted(
            (registry, key, table[owner])
            for (registry, of, key), table in self._tables.items()
            if of == str(operator) and owner in table
        )
        return "".join(f"{registry}{f' {key}' if key else ''}: {entry}\n" for registry, key, entry in found)


class Judged:
    """What came of sequences, by the sets in force; `violated` once two of them disagree."""

    def __init__(self) -> None:
        self.violated = False
        self.runs = 0
        self.finals: set[object] = set()
        self._seen: dict[object, object] = {}

    def hold(self, key: object, value: object) -> None:
        """Compare with what was seen for the same."""
        self.violated |= self._seen.setdefault(key, value) != value


def brute_force(registrations: Sequence[Registration], longest: int) -> Judged:
    """Every sequence up to a length in a fresh sandbox, each held to the model as well."""
    judged = Judged()
    engine = LabEngine("strict")
    operators = observed(registrations)
    todo: list[tuple[int, ...]] = [()]
    while todo:
        sequence = todo.pop()
        judged.runs += 1
        model = Tables(registrations)
        with engine.sandbox() as sandbox:
            handles: dict[int, RegistrationHandle] = {}
            for step in sequence:
                before = frozenset(model.active)
                if step < 0:
                    handles.pop(~step).release()
                    model.release(~step)
                    continue
                kind = ""
                try:
                    handles[step] = sandbox.register(registrations[step])
                except RegistrationError as error:
                    kind = str(error.kind)
                if isinstance(registrations[step], PythonImpl):
                    assert model.register(step) is (not kind), (sequence, kind)
                elif not kind:
                    model.register(step)
                judged.hold(("outcome", before, step), kind)
                judged.hold(("last", before | {step}), kind)
            look = tuple(sandbox.snapshot(operator) for operator in operators)
            assert tuple(one.python for one in look) == tuple(map(model.text, operators)), sequence
            judged.hold(frozenset(model.active), look)
            if sorted(sequence) == list(range(len(registrations))):
                judged.finals.add((frozenset(model.active), look))
        if len(sequence) < longest:
            todo += [(*sequence, step) for step in _next_steps(registrations, model.active)]
    return judged


def _next_steps(registrations: Sequence[Registration], active: set[int]) -> Iterator[int]:
    for index, one in enumerate(registrations):
        if index not in active:
            yield index
        elif not isinstance(one, PythonImpl):
            yield ~index


def finals_of_states(registrations: Sequence[Registration]) -> set[object]:
    """Where every order of registration ends, on the states of the lab engine."""
    space = LabEngine("strict").space(registrations, observed(registrations))
    found: set[object] = set()
    for order in permutations(range(len(registrations))):
        state, active = space.empty(), set()
        for index in order:
            state, refusal = space.register(state, index)
            active |= set() if refusal else {index}
        found.add((frozenset(active), space.observe(state)))
    return found


def walked(registrations: Sequence[Registration], walk: Any) -> Exploration:
    """What a walk finds on the lab engine."""
    return explore(LabEngine("strict"), registrations, observed(registrations), WalkOptions(walk=walk))


def check(registrations: Sequence[Registration], *, longest: int) -> int:
    """Hold the walks to every sequence of a few steps; how many of these were run."""
    judged = brute_force(registrations, longest)
    auto, graph, orders = (walked(registrations, walk) for walk in ("auto", "graph", "orders"))
    found = graph.counterexample
    is_short = found is not None and max(map(len, (found.expected_sequence, found.actual_sequence))) <= longest
    assert (auto.verdict, graph.verdict is Verdict.ORDER_DEPENDENT) == (graph.verdict, found is not None)
    assert (orders.verdict is Verdict.ORDER_DEPENDENT) is (found is not None)
    assert judged.violated is is_short
    assert {one.members for one in auto.conflicts} == {one.members for one in graph.conflicts}
    if len(registrations) <= longest:
        assert judged.finals <= finals_of_states(registrations)
    return judged.runs
