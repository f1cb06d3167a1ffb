"""Each invariant, broken by hand and found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dispatchlab.engine.dispatcher import Dispatcher, InvariantError
from dispatchlab.engine.fallbacks import Fallbacks
from dispatchlab.engine.introspection import fallbacks_in
from dispatchlab.engine.kernel import RegisteredKernel
from dispatchlab.engine.operator_entry import HeldSignature, OperatorEntry
from dispatchlab.engine.precedence import computed_table
from dispatchlab.engine.primitives import RegisterClaim, RegisterName
from dispatchlab.engine.semantics import SEMANTICS
from dispatchlab.engine.state import FALLBACKS, NamespaceVariable, PythonState, PythonVariable, State
from dispatchlab.errors import RegistrationError
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.registration import AliasKind, Def, Kernel, KernelForm
from dispatchlab.model.schema_parser import parse_inferred, parse_schema
from dispatchlab.model.slot_set import KEY_BIT
from tests.engine_shorthand import BAR, BOXED, FOO, TYPED, K, define, impl, overwrite, typed
from tools.torch_stand_in import upstream_violations

CPU, UNDEFINED = KEY_BIT[K.CPU], KEY_BIT[K.Undefined]
OTHER_SCHEMA = parse_schema("test::foo() -> ()")
WRONG = RegisteredKernel(Kernel(KernelForm.UNBOXED, parse_inferred("(str _0, str _1) -> ()")), "wrong", K.CUDA)
OTHER = RegisteredKernel(typed(signature="another"), "other", K.CUDA)


def _without_kernel(entry: OperatorEntry) -> OperatorEntry:
    return entry._replace(own=0, held={held: bits & ~CPU for held, bits in entry.slots.items() if bits & ~CPU})


def _with_kernels(key: K, *kernels: RegisteredKernel) -> Callable[[OperatorEntry], OperatorEntry]:
    def corrupt(entry: OperatorEntry) -> OperatorEntry:
        return entry._replace(kernels={**entry.kernels, KEY_BIT[key]: kernels}, present=entry.present | KEY_BIT[key])

    return corrupt


def _refilled(entry: OperatorEntry) -> OperatorEntry:
    """The same kernel set with its slots as they should be."""
    return entry._replace(
        own=0, held=computed_table(SEMANTICS["torch-2.13"].precedence, entry.present, entry.kernels, Fallbacks({}))
    )


BROKEN: dict[str, tuple[Callable[[OperatorEntry], OperatorEntry], str, str]] = {
    "a slot that lost its kernel": (
        _without_kernel,
        "stale slot",
        "the slot of CPU holds nothing and should hold fn [kernel]",
    ),
    "a slot with a kernel for another reason": (
        lambda entry: entry._replace(own=0, held={entry.kernels[CPU][0].because(Provenance.MATH): CPU}),
        "stale slot",
        "the slot of CPU holds fn [math kernel] and should hold fn [kernel]",
    ),
    "a slot with an equal kernel that is another one": (
        lambda entry: entry._replace(
            own=0, held={RegisteredKernel(TYPED, "fn", K.CPU).because(Provenance.KERNEL): CPU}
        ),
        "stale slot",
        "the slot of CPU holds fn [kernel] and should hold fn [kernel]",
    ),
    "a kernel in the slot of Undefined": (
        lambda entry: entry._replace(own=0, held={**entry.slots, OTHER.because(Provenance.MATH): UNDEFINED}),
        "stale slot",
        "the slot of Undefined holds other [math kernel] and should hold nothing",
    ),
    "a schema that nobody defined": (lambda entry: entry._replace(defs=()), "schema without def", "def_count is 0"),
    "a def without its schema": (lambda entry: entry._replace(stored=None), "schema without def", "def_count is 1"),
    "a schema that no def has": (
        lambda entry: entry._replace(stored=entry.stored and entry.stored._replace(schema=OTHER_SCHEMA)),
        "schema of no def",
        "test::foo() -> () and not test::foo",
    ),
    "an alias kind that no def has": (
        lambda entry: entry._replace(stored=entry.stored and entry.stored._replace(alias=AliasKind.CONSERVATIVE)),
        "alias kind of no def",
        "CONSERVATIVE and not FROM_SCHEMA",
    ),
    "a debug text that no def has": (
        lambda entry: entry._replace(stored=entry.stored and entry.stored._replace(debug="another")),
        "debug text of no def",
        "another and not ",
    ),
    "a def that is there twice": (
        lambda entry: entry._replace(defs=(*entry.defs, *entry.defs)),
        "several defs",
        "",
    ),
    "a kernel that is there twice": (
        lambda entry: entry._replace(kernels={CPU: entry.kernels[CPU] * 2}),
        "kernel that is there twice",
        "at CPU",
    ),
    "a kernel that does not fit the schema": (
        lambda entry: _refilled(_with_kernels(K.CUDA, WRONG)(entry)),
        "kernel against the schema",
        "wrong: ",
    ),
    "a slot that there is not": (
        lambda entry: entry._replace(own=0, held={held: bits | 1 << 900 for held, bits in entry.slots.items()}),
        "slot that is none",
        "a kernel is in the slots 1000",
    ),
    "a signature that nothing holds": (
        lambda entry: entry._replace(signatures=(HeldSignature("another", "x", "CPU"), None)),
        "signature that is held",
        "these semantics hold none",
    ),
    "a schema of another operator": (
        lambda entry: entry._replace(
            stored=entry.stored and entry.stored._replace(schema=parse_schema("test::bar() -> ()"))
        ),
        "name of the schema",
        "the schema is of test::bar",
    ),
    "a kernel list at Undefined": (
        lambda entry: _refilled(_with_kernels(K.Undefined, RegisteredKernel(BOXED, "u", K.Undefined))(entry)),
        "kernels at Undefined",
        "a kernel without a key belongs to a composite key",
    ),
    "an empty kernel list": (
        lambda entry: entry._replace(kernels={**entry.kernels, KEY_BIT[K.Dense]: ()}),
        "empty kernel list",
        "at Dense",
    ),
    "a kernel in the list of another key": (
        lambda entry: _refilled(_with_kernels(K.XLA, RegisteredKernel(BOXED, "lost", K.CUDA))(entry)),
        "kernel at another key",
        "lost of CUDA",
    ),
    "places that are not those of the kernels": (
        lambda entry: entry._replace(present=entry.present | KEY_BIT[K.Dense]),
        "places with kernels",
        "",
    ),
    "signatures that differ": (
        lambda entry: _refilled(_with_kernels(K.CUDA, OTHER)(entry)),
        "signatures differ",
        "another and at::Tensor (at::Tensor const&)",
    ),
    "tags that no def gave": (
        lambda entry: entry._replace(tags=frozenset({"core"})),
        "tags",
        "core, pointwise: the live defs say otherwise",
    ),
}


FOLLOWS = {
    "a schema that nobody defined": ["tags"],
    "an empty kernel list": ["places with kernels"],
    "a schema of another operator": ["schema of no def"],
}
"""What else is then broken."""


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_entry_is_found_and_nothing_else_is_blamed(name: str) -> None:
    corrupt, rule, detail = BROKEN[name]
    dispatcher = Dispatcher("strict", builtin_fallbacks=False)
    handles = [
        dispatcher.register(Def(define().schema, tags=frozenset({"pointwise"}))),
        dispatcher.register(impl(K.CPU, "fn", TYPED)),
    ]
    dispatcher.check_invariants()
    entry = dispatcher.operator_entry(FOO)
    assert entry is not None
    overwrite(dispatcher, str(FOO), corrupt(entry))
    with pytest.raises(InvariantError) as caught:
        dispatcher.check_invariants(FOO)
    found = caught.value.violations
    with pytest.raises(InvariantError):
        dispatcher.check_invariants()
    assert {violation.rule for violation in found} == {rule, *FOLLOWS.get(name, ())}
    assert next(violation.detail for violation in found if violation.rule == rule).startswith(detail)
    assert str(caught.value).startswith("test::foo: ")
    assert dispatcher.violations(FOO) == found
    overwrite(dispatcher, str(FOO), entry)
    dispatcher.check_invariants()
    assert len(handles) == 2


def test_a_signature_that_pytorch_should_hold_and_does_not_is_found() -> None:
    dispatcher = Dispatcher.for_scenario("torch-2.13")
    handle = dispatcher.register(impl(K.CPU, "fn", TYPED))
    entry = dispatcher.operator_entry(FOO)
    assert entry is not None
    for held in (None, HeldSignature("another", "x", "CPU")):
        overwrite(dispatcher, str(FOO), entry._replace(signatures=(held, None)))
        assert [violation.rule for violation in dispatcher.violations(FOO)] == ["signature that is not held"]
    overwrite(dispatcher, str(FOO), entry)
    dispatcher.check_invariants(FOO)
    assert not handle.is_released


def test_a_slot_that_does_not_follow_a_fallback_is_found() -> None:
    dispatcher = Dispatcher("strict", builtin_fallbacks=False)
    handle = dispatcher.register(impl(K.CPU, "fn"))
    overwrite(dispatcher, FALLBACKS, Fallbacks({KEY_BIT[K.XLA]: RegisteredKernel(BOXED, "fb", K.XLA)}))
    found = dispatcher.violations(FOO)
    assert [(one.rule, one.keys) for one in found] == [("stale slot", ("XLA",))]
    assert found[0].detail == "the slot of XLA holds nothing and should hold fb [backend fallback]"
    assert not handle.is_released


def test_all_operators_are_checked_and_an_unknown_one_is_an_error() -> None:
    dispatcher = Dispatcher("strict", builtin_fallbacks=False)
    handles = [dispatcher.register(impl(K.CPU, "fn", operator=name)) for name in (FOO, BAR)]
    for name in (FOO, BAR):
        entry = dispatcher.operator_entry(name)
        assert entry is not None
        overwrite(dispatcher, str(name), _without_kernel(entry))
    with pytest.raises(InvariantError) as caught:
        dispatcher.check_invariants()
    assert [str(violation.operator) for violation in caught.value.violations] == ["test::bar", "test::foo"]
    with pytest.raises(RegistrationError, match="there is no operator foo"):
        dispatcher.check_invariants("foo")
    assert dispatcher.violations(FOO.within("x")) != ()
    assert len(handles) == 2


def test_upstream_compares_functions_only_and_skips_undefined() -> None:
    dispatcher = Dispatcher("strict", builtin_fallbacks=False)
    handle = dispatcher.register(impl(K.CPU, "fn", BOXED))
    entry = dispatcher.operator_entry(FOO)
    assert entry is not None
    another = RegisteredKernel(BOXED, "other", K.CPU).because(Provenance.KERNEL)
    cases = {
        "another boxed kernel": {another: CPU},
        "nothing": {},
        "Undefined too": {**entry.slots, another: UNDEFINED},
        "a typed kernel": {OTHER.because(Provenance.KERNEL): CPU},
    }
    found = {
        name: upstream_violations(
            entry._replace(own=0, held=slots), fallbacks_in(dispatcher.state), dispatcher.semantics
        )
        for name, slots in cases.items()
    }
    assert found == {"another boxed kernel": (), "nothing": ("CPU",), "Undefined too": (), "a typed kernel": ("CPU",)}
    assert not handle.is_released


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (lambda entry: {str(BAR): entry}, "name of the entry"),
        (lambda entry: {str(BAR): OperatorEntry(BAR)}, "entry of nothing"),
        (lambda entry: {str(FOO): entry._replace(names=(*entry.names, RegisterName(FOO)))}, "what is in force"),
        (lambda entry: {str(FOO): entry._replace(names=(object(),))}, "what is in force"),
        (lambda entry: {str(FOO): _refilled(_with_kernels(K.CUDA, OTHER)(entry))}, "what is in force"),
        (lambda entry: {NamespaceVariable("a"): RegisterClaim(NamespaceVariable("a"), "x")}, "value of a variable"),
        (lambda entry: {FALLBACKS: Fallbacks({KEY_BIT[K.XLA]: OTHER})}, "fallbacks"),
        (lambda entry: {PythonVariable("a::b"): PythonState(())}, "registries of Python"),
        (lambda entry: {str(FOO): object()}, "value of a variable"),
    ],
)
def test_what_is_of_nothing_in_force_is_found(broken: Callable[[OperatorEntry], State], rule: str) -> None:
    dispatcher = Dispatcher("strict", builtin_fallbacks=False)
    handles = [dispatcher.register(define()), dispatcher.register(impl(K.CPU, "fn"))]
    entry = dispatcher.operator_entry(FOO)
    assert entry is not None
    dispatcher.check_invariants()
    whole = dict(dispatcher.state)
    for variable, value in broken(entry).items():
        overwrite(dispatcher, variable, value)
    with pytest.raises(InvariantError) as caught:
        dispatcher.check_invariants()
    assert rule in {violation.rule for violation in caught.value.violations}
    dispatcher.state = whole
    dispatcher.check_invariants()
    assert len(handles) == 2
