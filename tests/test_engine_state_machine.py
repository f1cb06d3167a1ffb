"""A dispatcher under any sequence of registrations and releases, against the set of what is in force."""

from __future__ import annotations

import warnings

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from dispatchlab.engine.dispatcher import Dispatcher, OverrideWarning
from dispatchlab.engine.handle import RegistrationHandle
from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import AliasKind, Def, Fallback, Impl, Kernel, NameOnly, Registration
from dispatchlab.model.slot_set import KEY_BIT
from tests.effort import examples
from tests.engine_shorthand import BAR, BOXED, FALLTHROUGH, FOO, TYPED, K, define, typed

KEYS = (None, K.CPU, K.QuantizedCPU, K.NestedTensorCPU, K.AutogradCPU, K.Autograd, K.CompositeExplicitAutograd, K.Dense)
KERNELS = (BOXED, FALLTHROUGH, TYPED, typed("(Tensor _0, Tensor _1) -> Tensor _0"))
SCHEMAS = {FOO: define("test::foo(Tensor x) -> Tensor").schema, BAR: define("test::bar(Tensor x) -> Tensor").schema}
FALLEN = (K.CPU, K.AutogradCPU, K.AutogradOther, K.BackendSelect)


class Dispatching(RuleBasedStateMachine):
    """The model: a number for each registration in force, in the order in which they came."""

    live = Bundle("live")

    @initialize()
    def fresh(self) -> None:
        self.dispatcher = Dispatcher("strict", builtin_fallbacks=False)
        self.in_force: dict[int, Registration] = {}
        self.handles: dict[int, RegistrationHandle] = {}
        self.made = 0

    def _of(self, name: OperatorName) -> list[Def | Impl | NameOnly]:
        return [
            one for one in self.in_force.values() if isinstance(one, Def | Impl | NameOnly) and one.operator == name
        ]

    def _wanted_refusal(self, one: Registration) -> ErrorKind | None:
        if isinstance(one, Fallback):
            taken = any(isinstance(other, Fallback) and other.key == one.key for other in self.in_force.values())
            return ErrorKind.DUPLICATE_FALLBACK if taken else None
        if isinstance(one, Def):
            others = self._of(one.operator)
            if any(isinstance(other, Def) for other in others):
                return ErrorKind.DUPLICATE_DEF
            fits = all(_fits(other.kernel) for other in others if isinstance(other, Impl))
            return None if fits else ErrorKind.SCHEMA_MISMATCH
        if isinstance(one, Impl) and one.kernel.inferred is not None:
            others = self._of(one.operator)
            typed_ones = [other.kernel for other in others if isinstance(other, Impl) and other.kernel.inferred]
            if any(other.signature != one.kernel.signature for other in typed_ones):
                return ErrorKind.SIGNATURE_MISMATCH
            if any(isinstance(other, Def) for other in others) and not _fits(one.kernel):
                return ErrorKind.SCHEMA_MISMATCH
        return None

    def _register(self, one: Registration) -> object:
        wanted = self._wanted_refusal(one)
        before = dict(self.dispatcher.state)
        handle = None
        found: ErrorKind | None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", OverrideWarning)
                handle = self.dispatcher.register(one)
        except RegistrationError as error:
            found = error.kind
        else:
            found = None
        assert found is wanted
        if handle is None:
            assert self.dispatcher.state == before
            return multiple()
        number = self.made
        self.made += 1
        self.in_force[number], self.handles[number] = one, handle
        return number

    @rule(target=live, name=st.sampled_from((FOO, BAR)), key=st.sampled_from(KEYS), kernel=st.sampled_from(KERNELS))
    def an_impl(self, name: OperatorName, key: DispatchKey | None, kernel: Kernel) -> object:
        return self._register(Impl(name, key, kernel, f"k{self.made}"))

    @rule(target=live, name=st.sampled_from((FOO, BAR)))
    def a_def(self, name: OperatorName) -> object:
        return self._register(Def(SCHEMAS[name], AliasKind.FROM_SCHEMA, debug=f"d{self.made}"))

    @rule(target=live, name=st.sampled_from((FOO, BAR)))
    def a_name(self, name: OperatorName) -> object:
        return self._register(NameOnly(name))

    @rule(target=live, key=st.sampled_from(FALLEN), kernel=st.sampled_from((BOXED, FALLTHROUGH)))
    def a_fallback(self, key: DispatchKey, kernel: Kernel) -> object:
        return self._register(Fallback(key, kernel, f"f{self.made}"))

    @rule(number=consumes(live))
    def release(self, number: int) -> None:
        self.in_force.pop(number)
        self.handles.pop(number).release()

    @invariant()
    def all_that_can_be_seen_follows_from_what_is_in_force(self) -> None:
        self.dispatcher.check_invariants()
        there = []
        for name in (BAR, FOO):
            mine = self._of(name)
            there += [name] if mine else []
            assert self.dispatcher.def_and_impl_count(name) == len(mine)
            assert self.dispatcher.def_count(name) == sum(isinstance(one, Def) for one in mine)
            entry = self.dispatcher.operator_entry(name)
            if entry is None:
                continue
            newest_first: dict[int, list[str]] = {}
            for one in mine:
                if isinstance(one, Impl):
                    bit = KEY_BIT[one.key or K.CompositeImplicitAutograd]
                    newest_first.setdefault(bit, []).insert(0, one.debug)
            assert {bit: [k.debug for k in kernels] for bit, kernels in entry.kernels.items()} == newest_first
        assert list(self.dispatcher.operators()) == there

    @invariant()
    def registering_the_same_set_afresh_gives_the_same_dumps(self) -> None:
        afresh = Dispatcher("strict", builtin_fallbacks=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OverrideWarning)
            handles = [afresh.register(self.in_force[number]) for number in sorted(self.in_force)]
        for name in (FOO, BAR):
            assert afresh.snapshot(name) == self.dispatcher.snapshot(name)
        assert len(handles) == len(self.in_force)

    def teardown(self) -> None:
        for handle in getattr(self, "handles", {}).values():
            handle.release()
        if hasattr(self, "dispatcher"):
            assert self.dispatcher.state == {}


def _fits(kernel: Kernel) -> bool:
    return kernel.inferred is None or len(kernel.inferred.arguments) == 1


Dispatching.TestCase.settings = settings(examples(60), stateful_step_count=30)
TestDispatching = Dispatching.TestCase
