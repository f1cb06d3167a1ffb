"""What `explain` says without running anything, against what calls do, and the words that describe arguments."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import ExitStack

import numpy as np
import pytest

from dispatchlab import (
    CallError,
    Dispatcher,
    DispatchKey,
    DispatchKeySet,
    InvariantError,
    Library,
    Tensor,
    fallthrough,
    operator,
    trace,
)
from dispatchlab.call import (
    DType,
    ExcludeDispatchKeyGuard,
    IncludeDispatchKeyGuard,
    InferenceMode,
    Layout,
)
from dispatchlab.call.tensor_keys import PYTHON_KEYS, UNDEFINED_TENSOR_KEYS
from dispatchlab.call.tensor_options import DeviceType
from dispatchlab.engine.kernel import KernelFunction
from dispatchlab.errors import ErrorKind
from dispatchlab.lab import Lab
from dispatchlab.model.registration import Kernel, KernelForm
from dispatchlab.model.schema_parser import parse_schema
from dispatchlab.questions.explain.argument_specs import ArgumentSpecError, describe_arguments, keys_of_spec
from dispatchlab.questions.explain.hops import NotCallableError, explain, schema_of, thread_keys
from dispatchlab.questions.explain.result import CallExplanation
from tests.effort import share

SEED = 20264


def explained(
    dispatcher: Dispatcher,
    name: str,
    *specs: str,
    include: tuple[DispatchKey, ...] = (),
    exclude: tuple[DispatchKey, ...] = (),
) -> CallExplanation:
    view = dispatcher.explain(name)
    assert view is not None
    return explain(view, describe_arguments(schema_of(view), specs), thread_keys(include, exclude))


# -- against calls


def ones(**options: object) -> Tensor:
    return Tensor(np.ones(2, np.float32), **options)  # type: ignore[arg-type]


def with_keys(*names: str) -> Tensor:
    return ones(key_set=DispatchKeySet.of(*(DispatchKey[name] for name in names)))


def subclass() -> Tensor:
    made = ones()
    made.key_bits |= PYTHON_KEYS.bits
    return made


def inference() -> Tensor:
    with InferenceMode():
        return ones()


KINDS = {
    "cpu": ones(),
    "cpu requires_grad": ones(requires_grad=True),
    "cuda": ones(device="cuda"),
    "cuda:1": ones(device="cuda:1"),
    "xla": ones(device="xla"),
    "meta": ones(device="meta"),
    "fpga": ones(device="fpga"),
    "privateuseone": ones(device="privateuseone"),
    "cuda sparse": ones(device="cuda", layout=Layout.sparse),
    "csr": ones(layout=Layout.sparse_csr),
    "mkldnn": ones(layout=Layout.mkldnn),
    "nested": ones(layout=Layout.jagged),
    "cpu quantized": ones(dtype=DType.quint8),
    "conj": with_keys("CPU", "Conjugate"),
    "neg": with_keys("CPU", "Negative"),
    "zero": with_keys("CPU", "ZeroTensor"),
    "cpu python": subclass(),
    "inference": inference(),
}


def test_argument_specs_give_the_keys_of_the_tensors_that_they_describe() -> None:
    different = {specs: made for specs, made in KINDS.items() if keys_of_spec(specs).bits != made.key_bits}
    assert different == {}
    assert {str(device) for device in DeviceType} >= {"cpu", "cuda", "meta", "hip", "mtia", "vulkan"}


def test_the_name_of_a_key_adds_the_key() -> None:
    assert keys_of_spec("cpu Functionalize") == keys_of_spec("cpu").add(DispatchKey.Functionalize)


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("PrivateUse1", "privateuseone"),
        ("PrivateUse1 requires_grad", "privateuseone"),
        ("SparsePrivateUse1", "privateuseone sparse"),
        ("PrivateUse1 sparse", "privateuseone sparse"),
        ("AutogradPrivateUse1", "privateuseone"),
        ("CUDA", "cuda"),
        ("cuda CUDA", "cuda"),
        ("SparseCsrCUDA", "cuda csr"),
        ("QuantizedCPU", "quantized"),
        ("NestedTensorCUDA", "cuda nested"),
        ("MkldnnCPU", "mkldnn"),
        ("Meta conj", "meta conj"),
        ("FPGA", "fpga"),
    ],
)
def test_the_name_of_the_key_of_a_backend_is_a_tensor_of_that_backend(name: str, same: str) -> None:
    assert keys_of_spec(name) == keys_of_spec(same)


def test_a_backend_without_a_device_is_known_by_its_key_alone() -> None:
    assert keys_of_spec("PrivateUse2") == DispatchKeySet.of(
        DispatchKey.PrivateUse2, DispatchKey.AutogradPrivateUse2, DispatchKey.ADInplaceOrView
    )


def test_a_renamed_backend_is_known_by_its_name() -> None:
    assert keys_of_spec("npu:1 sparse", privateuse1="npu") == keys_of_spec("privateuseone sparse")
    found = describe_arguments(SCHEMA, ["npu", "c=list:npu", "g=npu", "device=npu"], privateuse1="npu")
    assert found.arguments[0].keys == keys_of_spec("PrivateUse1")
    assert found.arguments[3].keys == DispatchKeySet.of(DispatchKey.PrivateUse1)
    assert (found.arguments[0].given, found.options.backend) == ("npu", DispatchKey.PrivateUse1)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("cpu PrivateUse1", "'cpu PrivateUse1' names two backends, cpu and PrivateUse1: a tensor has one"),
        ("sparse csr", "'sparse csr' names two layouts, sparse and csr: a tensor has one"),
        ("sparse NestedTensorCPU", "'sparse NestedTensorCPU' names two layouts, sparse and NestedTensorCPU: a tensor"),
        ("Autograd", "Autograd is an alias key, which no tensor has: name a key with a row in tables, such as CPU"),
        ("Dense", "Dense is the functionality of several keys, which no tensor has"),
        ("npuu", "'npuu' does not describe a tensor; did you mean npu?"),
    ],
)
def test_words_that_exclude_each_other_are_refused(spec: str, message: str) -> None:
    with pytest.raises(ArgumentSpecError) as raised:
        keys_of_spec(spec, privateuse1="npu")
    assert str(raised.value).startswith(message)


IMPL_KEYS = (
    *("CPU", "CUDA", "Meta", "SparseCUDA", "SparseCsrCPU", "QuantizedCPU", "MkldnnCPU", "NestedTensorCPU", "FPGA"),
    *("AutogradCPU", "AutogradCUDA", "AutogradOther", "AutogradNestedTensor", "ADInplaceOrView", "BackendSelect"),
    *("Conjugate", "Negative", "ZeroTensor", "Python", "PythonTLSSnapshot", "Autograd"),
    *("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional"),
)
FALLBACK_KEYS = ("ADInplaceOrView", "BackendSelect", "AutogradCPU", "AutogradMeta", "PythonTLSSnapshot", "Negative")
GUARD_KEYS = ("CPU", "Meta", "AutogradCPU", "AutogradOther", "ADInplaceOrView", "BackendSelect", "Tracer", "Python")


def random_operator(rng: random.Random) -> tuple[Dispatcher, list[Library]]:
    """An operator with two tensors, some kernels and fallbacks, some of which fall through."""
    dispatcher = Dispatcher.for_scenario(rng.choice(("strict", "torch-2.13")))
    if dispatcher.semantics.name == "strict":
        libraries = [Library("_", "IMPL", key, dispatcher=dispatcher) for key in FALLBACK_KEYS if rng.random() < 0.4]
        for library in libraries:
            library.fallback(fallthrough if rng.random() < 0.6 else lambda op, x, y: x)
    else:
        libraries = []
    library = Library("t", "FRAGMENT", dispatcher=dispatcher)
    library.define("f(Tensor x, Tensor y) -> Tensor")
    for key in rng.sample(IMPL_KEYS, rng.randint(1, 9)):
        library.impl("f", fallthrough if rng.random() < 0.3 else lambda x, y: x, key)
    return dispatcher, [*libraries, library]


def test_the_first_hop_is_what_a_call_does_for_random_operators_arguments_and_guards() -> None:
    rng = random.Random(SEED)
    endings: Counter[str] = Counter()
    broken: list[bool] = []
    rounds = share(700)
    for _ in range(rounds):
        dispatcher, _held = random_operator(rng)
        kinds = [rng.choice(list(KINDS)) for _ in range(2)]
        included = tuple(DispatchKey[key] for key in rng.sample(GUARD_KEYS, rng.choice((0, 0, 1))))
        excluded = tuple(DispatchKey[key] for key in rng.sample(GUARD_KEYS, rng.choice((0, 0, 1, 2))))
        found = explained(dispatcher, "t::f", *kinds, include=included, exclude=excluded)
        with ExitStack() as stack, trace() as seen:
            for key in included:
                stack.enter_context(IncludeDispatchKeyGuard(key))
            for key in excluded:
                stack.enter_context(ExcludeDispatchKeyGuard(key))
            refusal = None
            try:
                operator(dispatcher, "t::f")(*(KINDS[kind] for kind in kinds))
            except CallError as error:
                refusal = error.kind
            except InvariantError as error:
                broken.append(str(error.violations[0]) in found.end)
                refusal = found.hops[0].refusal
        call, hop = seen.calls[0], found.hops[0]
        assert (hop.keys, found.of_arguments) == (call.keys, call.arguments)
        goes_on = bool(dispatcher.builtin_fallbacks) and hop.refusal is None  # perhaps to an error
        assert goes_on or hop.refusal == refusal
        assert (hop.kernel is None) == (call.kernel is None)
        if hop.kernel is not None and call.kernel is not None:
            assert (hop.kernel.debug, hop.kernel.reason) == (call.kernel.debug, call.kernel.reason)
        kept = {key.functionality for key in hop.keys}
        assert {left.key.functionality for left in hop.left_out} == {key.functionality for key in hop.start} - kept
        assert all(bool(left.debug) == (left.why == "fallthrough") for left in hop.left_out)
        endings[str(refusal)] += 1
    assert endings["None"] > rounds // 4
    assert all(broken)  # few are; tests/test_first_call.py has one
    assert set(endings) >= {"None", "missing_kernel", "ambiguous_autogradother"}


def test_the_hops_of_factories_are_those_of_their_calls() -> None:
    lab = Lab()
    for name in ("empty.memory_format", "randn"):
        for device in ("cpu", "cuda", "meta"):
            found = explained(lab.dispatcher, f"aten::{name}", f"device={device}")
            with trace() as seen:
                lab(name)([2], device=device)
            made = [call for call in seen.calls if call.operator == f"aten::{name}"]
            assert [(hop.key, hop.keys) for hop in found.hops] == [(call.keys.highest(), call.keys) for call in made]
            assert len(made) == 2


# -- reasons


def one_operator(*impls: tuple[str, object], semantics: str = "strict") -> tuple[Dispatcher, Library]:
    dispatcher = Dispatcher.for_scenario(semantics)
    library = Library("t", "FRAGMENT", dispatcher=dispatcher)
    library.define("f(Tensor x) -> Tensor")
    for key, kernel in impls:
        library.impl("f", kernel, key)  # type: ignore[arg-type]
    return dispatcher, library


def kernel(x: Tensor) -> Tensor:
    return x


NOT_BELOW = (DispatchKey.ADInplaceOrView, DispatchKey.BackendSelect)
"""Excluded where a bare dispatcher has no fallthroughs for them."""


def test_a_kernel_that_lost_is_shown_with_the_reason() -> None:
    dispatcher, _held = one_operator(("CompositeImplicitAutograd", kernel), ("Autograd", kernel), ("CPU", kernel))
    (first,) = explained(dispatcher, "t::f", "cpu", exclude=NOT_BELOW).hops
    (second,) = explained(dispatcher, "t::f", "cpu inference", exclude=NOT_BELOW).hops
    assert first.kernel is not None
    assert second.kernel is not None
    assert (first.kernel.source, first.kernel.reason) == ("Autograd", "autograd kernel")
    assert [(lost.source, lost.why) for lost in first.kernel.beaten] == [
        ("CompositeImplicitAutograd", "CPU has a kernel of its own")
    ]
    assert second.kernel.source == "CPU"
    assert [lost.source for lost in second.kernel.beaten] == ["CompositeImplicitAutograd"]


def test_a_composite_kernel_ends_the_chain_at_once() -> None:
    dispatcher, _held = one_operator(("CompositeImplicitAutograd", kernel))
    found = explained(dispatcher, "t::f", "cuda requires_grad")
    assert [str(hop.key) for hop in found.hops] == ["AutogradCUDA"]
    assert found.end == (
        "a composite kernel: it calls other operators, and each of these calls is dispatched from the start"
    )


def test_a_fallthrough_for_one_backend_counts_for_calls_of_that_backend_alone() -> None:
    dispatcher, _held = one_operator(
        ("AutogradCPU", fallthrough),
        ("Autograd", kernel),
        ("CPU", kernel),
        ("CUDA", kernel),
        ("BackendSelect", fallthrough),
    )
    cpu, cuda = (
        explained(dispatcher, "t::f", f"{device} inference AutogradCPU AutogradCUDA") for device in ("cpu", "cuda")
    )
    assert str(cuda.hops[0].key) == "AutogradCUDA"
    assert [left.key.name for left in cuda.hops[0].left_out if left.why == "fallthrough"] == ["BackendSelect"]
    # NB: both descriptions carry the bits of both backends, of which CUDA is the higher one
    assert str(cpu.hops[0].key) == "AutogradCUDA"
    plain = explained(dispatcher, "t::f", "cpu", exclude=(DispatchKey.ADInplaceOrView,)).hops[0]
    assert str(plain.key) == "CPU"
    assert [(left.key.name, left.why) for left in plain.left_out] == [
        ("AutocastCPU", "excluded by every thread"),
        ("AutogradCPU", "fallthrough"),
        ("ADInplaceOrView", "excluded by a guard"),
        ("BackendSelect", "fallthrough"),
    ]


@pytest.mark.parametrize(
    ("impls", "specs", "kind"),
    [
        ([("FPGA", kernel), ("CompositeImplicitAutograd", kernel)], "fpga", ErrorKind.AMBIGUOUS_AUTOGRADOTHER),
        ([("CPU", kernel)], "cuda", ErrorKind.MISSING_KERNEL),
        (
            [("CPU", kernel), ("AutogradCUDA", fallthrough), ("CUDA", fallthrough)],
            "cuda",
            ErrorKind.NO_TENSOR_ARGUMENTS,
        ),
    ],
)
def test_calls_that_fail_say_so_in_the_words_of_the_error(
    impls: list[tuple[str, object]], specs: str, kind: ErrorKind
) -> None:
    dispatcher, _held = one_operator(*impls)
    found = explained(dispatcher, "t::f", specs, exclude=NOT_BELOW)
    assert [hop.refusal for hop in found.hops] == [kind]
    assert found.end.partition(",")[0] == f"the call fails: {kind}"


def test_a_redispatch_to_a_key_without_a_kernel_fails() -> None:
    dispatcher, _held = one_operator(("CPU", kernel), semantics="torch-2.13")
    found = explained(dispatcher, "t::f", "cuda")
    assert [(str(hop.key), hop.refusal) for hop in found.hops] == [
        ("AutogradCUDA", None),
        ("CUDA", ErrorKind.MISSING_KERNEL),
    ]


@pytest.mark.parametrize("key", ["AutogradCPU", "Autograd", "ADInplaceOrView", "BackendSelect", "Functionalize"])
def test_after_a_kernel_that_nobody_knows_the_next_hop_is_not_known(key: str) -> None:
    dispatcher, _held = one_operator((key, kernel), ("CPU", kernel), semantics="torch-2.13")
    found = explained(dispatcher, "t::f", "cpu", include=(DispatchKey.Functionalize,) * (key == "Functionalize"))
    assert found.hops[-1].kernel is not None
    assert found.hops[-1].kernel.source == key
    assert not found.known
    assert found.end.startswith("what comes next is not known: dispatchlab has no rule for what this kernel calls")
    assert "CPU is next only if it redispatches below " in found.end or key == "Functionalize"


@pytest.mark.parametrize(
    ("key", "debug", "is_known"),
    [
        ("AutogradCPU", "/__w/pytorch/pytorch/torch/csrc/autograd/generated/VariableType_3.cpp:10", True),
        ("AutogradCPU", "/home/me/pytorch/torch/csrc/autograd/VariableTypeManual.cpp:10", True),
        ("AutogradCPU", "torch/_library/custom_ops.py:1104", True),
        ("AutogradCPU", "/build/vision/torchvision/csrc/ops/autograd/roi_align_kernel.cpp:180", False),
        ("AutogradCPU", "/build/my_torch/csrc/autograd/VariableTypeManual.cpp:10", False),
        ("AutogradCPU", "torch/library.py:931", False),
        ("AutogradCPU", "/a/torch/csrc/autograd/generated/TraceType_0.cpp:10", False),
        ("ADInplaceOrView", "/a/torch/csrc/autograd/generated/ADInplaceOrViewType_1.cpp:10", True),
        ("ADInplaceOrView", "/a/torch/csrc/autograd/generated/VariableType_1.cpp:10", False),
        ("Tracer", "/a/torch/csrc/autograd/generated/TraceType_0.cpp:10", True),
        ("Tracer", "/a/torch/csrc/autograd/TraceTypeManual.cpp:10", False),
        ("BackendSelect", "/a/build/aten/src/ATen/RegisterBackendSelect.cpp:10", True),
        ("BackendSelect", "torch/_prims/__init__.py:10", False),
    ],
)
def test_the_kernels_of_pytorch_are_known_by_the_file_that_registered_them(
    key: str, debug: str, *, is_known: bool
) -> None:
    known = KernelFunction(Kernel(KernelForm.BOXED)).debug(f"registered at {debug}")
    dispatcher, _held = one_operator((key, known), ("CPU", kernel), semantics="torch-2.13")
    found = explained(dispatcher, "t::f", "cpu", include=(DispatchKey[key],))
    assert found.known is is_known
    assert (str(found.hops[-1].key) == "CPU") is is_known


def test_a_stale_slot_is_reported_with_what_the_registrations_give() -> None:
    dispatcher, _held = one_operator(
        ("CompositeImplicitAutograd", kernel), ("CompositeExplicitAutograd", kernel), semantics="torch-2.13"
    )
    found = explained(dispatcher, "t::f", "cpu requires_grad").hops[0]
    assert str(found.key) == "AutogradCPU"
    assert found.kernel is not None
    assert found.kernel.reason == "math kernel"
    assert found.kernel.stale is not None
    assert found.kernel.stale.endswith("[backend fallback]")
    dispatcher, _held = one_operator(
        ("CompositeExplicitAutograd", kernel), ("CompositeImplicitAutograd", kernel), semantics="torch-2.13"
    )
    healthy = explained(dispatcher, "t::f", "cpu requires_grad").hops[0]
    assert healthy.kernel is not None
    assert (healthy.kernel.reason, healthy.kernel.stale) == ("backend fallback", None)


def test_a_composite_kernel_for_nested_tensors_redispatches_no_further() -> None:
    dispatcher, _held = one_operator(("CompositeImplicitAutogradNestedTensor", kernel), semantics="torch-2.13")
    found = explained(dispatcher, "t::f", "nested")
    assert [str(hop.kernel.reason) for hop in found.hops if hop.kernel is not None] == ["nested kernel"]
    assert (found.known, found.end.partition(":")[0]) == (True, "a composite kernel")


def test_an_operator_without_a_def_cannot_be_explained() -> None:
    dispatcher = Dispatcher()
    library = Library("t", "IMPL", "CPU", dispatcher=dispatcher)
    library.impl("f", kernel)
    with pytest.raises(NotCallableError, match=r"t::f has kernels and no def"):
        explained(dispatcher, "t::f", "cpu")


# -- arguments

SCHEMA = parse_schema("t::f(Tensor a, Tensor? b, Tensor[] c, *, Generator? g=None, Device? device=None) -> Tensor")


def test_arguments_are_taken_in_order_and_by_name() -> None:
    found = describe_arguments(SCHEMA, ["cuda requires_grad", "c=list:cpu, meta", "g=cuda"])
    assert [(one.name, one.given) for one in found.arguments] == [
        ("a", "cuda requires_grad"),
        ("b", "left out"),
        ("c", "list:cpu, meta"),
        ("g", "cuda"),
    ]
    assert found.requires_grad
    a, b, c, g = (one.keys for one in found.arguments)
    assert a == keys_of_spec("cuda")
    assert not b
    assert c == keys_of_spec("cpu") | keys_of_spec("meta")
    assert g == DispatchKeySet.of(DispatchKey.CUDA)


def test_none_is_no_tensor_but_for_an_argument_that_must_be_one() -> None:
    found = describe_arguments(SCHEMA, ["none", "none", "list:"])
    assert [one.keys for one in found.arguments] == [
        UNDEFINED_TENSOR_KEYS,
        DispatchKeySet(),
        DispatchKeySet(),
        DispatchKeySet(),
    ]


def test_tensors_are_on_the_cpu_when_nothing_is_said() -> None:
    found = describe_arguments(SCHEMA, [])
    assert [one.given for one in found.arguments] == ["cpu", "left out", "cpu", "left out"]


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        (["cude"], "'cude' does not describe a tensor; did you mean cuda?"),
        (["cpu,grad"], "'cpu,grad' does not describe a tensor; put + between its words: cpu+grad"),
        (["cpu requires_grid"], "'requires_grid' does not describe a tensor; did you mean requires_grad?"),
        (["cpu Functionalise"], "'Functionalise' does not describe a tensor; did you mean Functionalize?"),
        (
            ["cpu 17"],
            "'17' does not describe a tensor; say where the tensor is and what it is like, such as "
            "'cuda requires_grad' or 'cpu sparse'",
        ),
        (["fpga sparse"], "no dispatch key stands for a tensor of layout sparse on fpga"),
        (["list:cpu"], "a is Tensor and no list: describe one argument, without 'list:'"),
        (["x=cpu"], "t::f has no argument 'x' that decides the dispatch; it has a, b, c, g, device"),
        (["devise=cpu"], "t::f has no argument 'devise' that decides the dispatch; did you mean device?"),
        (["a=cpu", "a=cuda"], "a was described twice: 'cpu' and 'cuda'"),
        (["cuda:x"], "'cuda:x' is not a device: expected a number from 0 to 127 after the colon, as in cuda:0"),
        (
            ["npux"],
            "'npux' does not describe a tensor: if a package gives its backend this name, add --from PACKAGE, or write "
            "privateuse1",
        ),
        (["gpu"], "'gpu' does not describe a tensor; did you mean cuda?"),
        (
            ["cpu"] * 5,
            "'cpu' is one argument too many: t::f has 4 that decide the dispatch: a, b, c, g; say where a factory "
            "makes its tensor with device=cuda",
        ),
        (["device=cude"], "'cude' does not describe a tensor; did you mean cuda?"),
    ],
)
def test_an_argument_that_cannot_be_read_is_refused_with_the_nearest_spelling(specs: list[str], message: str) -> None:
    with pytest.raises(ArgumentSpecError) as raised:
        describe_arguments(SCHEMA, specs)
    assert str(raised.value) == message


def test_a_tensor_that_is_not_described_is_on_the_cpu_whatever_else_is_described() -> None:
    some, every = describe_arguments(SCHEMA, ["cuda:0"]), describe_arguments(SCHEMA, ["cuda:0", "c=cpu"])
    assert some.arguments == every.arguments
    assert [one.given for one in some.arguments if one.name in ("a", "c")] == ["cuda:0", "cpu"]
