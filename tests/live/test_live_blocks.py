"""What a refused library or def leaves on the running PyTorch, which is what the lab engine says."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'dispatchlab[torch]'")

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.errors import ErrorKind, RegistrationError
from dispatchlab.live.bridge.expressible import NotExpressibleError
from dispatchlab.live.bridge.running_keys import running_keys
from dispatchlab.live.bridge.torch import torch
from dispatchlab.live.sandbox.sandbox import LocalEngine
from dispatchlab.model.keys import DispatchKey as K
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import AliasKind, Block, BlockKind, Def, Fallback, Impl, Registration
from dispatchlab.model.schema_parser import parse_schema
from dispatchlab.model.snapshot import Snapshot
from dispatchlab.prover.protocol import Engine
from dispatchlab.scenario import parse_scenario
from tests.live.live_registrations import BOXED, BY_REFERENCE, FALLTHROUGH, FOO, define, impl

BAR = OperatorName("test", "bar")


def refused(engine: Engine, registration: Registration) -> tuple[RegistrationError, Snapshot, Snapshot]:
    """The refusal, and what is shown afterwards of the operator and of one that was defined before."""
    with engine.sandbox() as sandbox:
        held = sandbox.register(define("test::bar(Tensor x) -> Tensor", "def_bar"))
        with pytest.raises(RegistrationError) as caught:
            sandbox.register(registration)
        found = caught.value, sandbox.snapshot(FOO), sandbox.snapshot(BAR)
        held.release()
    return found


def on_both(registration: Registration) -> tuple[RegistrationError, Snapshot]:
    """What the running PyTorch does, held to its model."""
    live = LocalEngine()
    error, shown, other = refused(live, registration)
    model, expected, expected_of_other = refused(LabEngine(live.semantics), registration)
    assert error.kind is model.kind
    common = error.facts.keys() & model.facts.keys()
    assert {name: error.facts[name] for name in common} == {name: model.facts[name] for name in common}
    assert shown.sections() == expected.sections()
    assert other.sections() == expected_of_other.sections()
    return error, shown


def test_half_a_fallback_goes_with_the_library_that_is_refused() -> None:
    fallback = Fallback(K.CompositeImplicitAutograd, BOXED, "everywhere")
    for inside in ((fallback,), (fallback, Fallback(K.CPU, BOXED, "never"))):
        error, _ = on_both(Block(None, BlockKind.IMPL, inside, debug="library"))
        assert error.kind is ErrorKind.DUPLICATE_FALLBACK


def test_a_def_whose_kernel_has_an_unknown_key_leaves_nothing() -> None:
    lacking = next(key for key in K if key.name not in running_keys().numbers)
    made = Def(parse_schema("test::foo(Tensor x) -> Tensor"), debug="def_foo", kernel=BOXED, key=lacking)
    error, shown = on_both(made)
    assert error.kind is ErrorKind.UNKNOWN_KEY
    assert not shown.exists


def test_keys_that_pytorch_cannot_parse_are_named_where_its_bindings_take_a_key_and_no_text() -> None:
    key, unboxed = K.QuantizedHIP, BY_REFERENCE
    with LocalEngine().sandbox() as sandbox:
        held = [
            sandbox.register(Impl(FOO, key, BOXED, "fn_hip")),
            sandbox.register(Impl(FOO, K.NestedTensorXLA, FALLTHROUGH, "skip_xla")),
            sandbox.register(Def(parse_schema("test::bar(Tensor x) -> Tensor"), kernel=BOXED, key=K.AutogradVE)),
        ]
        assert "QuantizedHIP: fn_hip [kernel]\n" in sandbox.snapshot(FOO).table
        for wanted, what in (
            (Impl(FOO, key, unboxed), "an unboxed kernel"),
            (Def(OperatorName("test", "qux"), AliasKind.CONSERVATIVE, kernel=unboxed, key=key), "an unboxed kernel"),
            (Block("test", BlockKind.IMPL, (Impl(FOO, None, BOXED),), key), "a library"),
        ):
            with pytest.raises(NotExpressibleError) as caught:
                sandbox.register(wanted)
            reason = f"its bindings take the key of {what} as text, and not QuantizedHIP"
            assert str(caught.value).endswith(f" cannot be made on the live PyTorch: {reason}")
        for handle in held:
            handle.release()
    with LocalEngine(parse_keys=True).sandbox() as sandbox, pytest.raises(RegistrationError) as refusal:
        sandbox.register(Impl(FOO, key, BOXED))
    assert refusal.value.kind is ErrorKind.UNKNOWN_KEY


def test_a_second_def_of_one_library_is_refused_by_the_schema_of_the_first() -> None:
    first, second = define("test::foo(Tensor x) -> Tensor", "first"), define("test::foo(int x) -> int", "second")
    error, shown = on_both(Block("test", BlockKind.FRAGMENT, (first, second), debug="library"))
    assert error.kind is ErrorKind.DUPLICATE_DEF
    assert error.facts["other_schema"] == "test::foo(Tensor x) -> Tensor"
    assert not shown.exists


def test_a_stale_fallthrough_keeps_its_name_however_often_it_is_looked_at() -> None:
    registrations = (
        define(),
        impl(K.CompositeImplicitAutograd, "math", FALLTHROUGH),
        impl(K.CUDA, "cuda", FALLTHROUGH),
        impl(K.SparseCUDA, "sparse"),
    )
    seen = []
    for engine in (LocalEngine(), LabEngine(LocalEngine().semantics)):
        with engine.sandbox() as sandbox:
            handles = []
            for registration in registrations:
                handles.append(sandbox.register(registration))
                sandbox.snapshot(FOO)
            other = sandbox.register(define("test::bar(Tensor x) -> Tensor", "def_bar"))
            again = sandbox.register(impl(K.CPU, "cpu"))
            seen.append(sandbox.snapshot(FOO).sections())
            for handle in (*handles, other, again):
                handle.release()
    assert seen[0] == seen[1]
    assert "AutogradOther: fallthrough math [math kernel]" in dict(seen[0])["slots that calls use"]
    assert "fallthrough math [math kernel]" not in dict(seen[0])["table"].partition("AutogradOther: ")[2].split("\n")[0]


def test_stale_fallthroughs_of_one_library_are_named() -> None:
    kernels = (
        impl(K.CompositeImplicitAutograd, "implicit", FALLTHROUGH),
        impl(K.CompositeExplicitAutograd, "explicit", FALLTHROUGH),
    )
    seen = []
    for engine in (LocalEngine(), LabEngine(LocalEngine().semantics)):
        with engine.sandbox() as sandbox:
            handle = sandbox.register(Block("test", BlockKind.FRAGMENT, (define(), *kernels), debug="library"))
            seen.append(sandbox.snapshot(FOO).sections())
            handle.release()
    assert seen[0] == seen[1]
    assert "NestedTensorCPU: fallthrough implicit [math kernel]" in dict(seen[0])["slots that calls use"]


MADE = """\
claim: A recorded custom_op.
namespace: sample
registrations:
  - library: sample
    kind: FRAGMENT
    made_by:
      call: custom_op
      operator: made
      on: [cpu]
    registrations:
      - def: made(Tensor x) -> Tensor
        tags: [needs_fixed_stride_order, pt2_compliant_tag]
"""
"""As it is recorded on PyTorch 2.7, whose `custom_op` gives these tags by itself and takes none."""


def test_a_custom_op_that_takes_no_tags_gives_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    custom_op = torch().library.custom_op
    given: list[dict[str, object]] = []

    def without_tags(name: str, /, *, mutates_args: object, device_types: object, schema: object) -> object:
        given.append({"mutates_args": mutates_args, "device_types": device_types, "schema": schema})
        return custom_op(name, **given[-1])

    monkeypatch.setattr(torch().library, "custom_op", without_tags)
    block = parse_scenario(MADE).registrations[0]
    with LocalEngine().sandbox() as sandbox:
        handle = sandbox.register(block)
        assert sandbox.snapshot(OperatorName("sample", "made")).schema == "sample::made(Tensor x) -> Tensor"
        handle.release()
    assert len(given) == 1
    other = parse_scenario(MADE.replace("needs_fixed_stride_order", "core")).registrations[0]
    with LocalEngine().sandbox() as sandbox, pytest.raises(NotExpressibleError, match="gives no tags to a custom_op"):
        sandbox.register(other)
