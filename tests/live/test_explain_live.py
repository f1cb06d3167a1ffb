"""What `explain` predicts from the bundled registry against the key and the kernel of the running PyTorch."""

from __future__ import annotations

import importlib
import random
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest

from dispatchlab import Dispatcher, Library
from dispatchlab.engine.kernel import KernelFunction
from dispatchlab.live.introspection.package_paths import package_roots, without_roots
from dispatchlab.live.introspection.queries import look_at
from dispatchlab.live.introspection.registry_reader import record_operators
from dispatchlab.model.keys import RUNTIME_KEYS
from dispatchlab.model.operator_view import OperatorView, view_of
from dispatchlab.model.registration import Kernel, KernelForm
from dispatchlab.model.schema_parser import parse_name
from dispatchlab.questions.dump.inspect_operators import inspect_operator
from dispatchlab.questions.dump.inspect_scenario import InspectOptions
from dispatchlab.questions.explain.argument_specs import describe_arguments
from dispatchlab.questions.explain.hops import explain, schema_of, thread_keys
from dispatchlab.questions.explain.result import CallExplanation, Hop
from dispatchlab.questions.sources.engines import EngineName
from dispatchlab.questions.sources.find_sources import recorded_from
from dispatchlab.questions.sources.replay_on_lab import bench
from tests.scenario_texts import STAYS

torch: Any = pytest.importorskip("torch", reason="compares with the installed PyTorch, and there is none")
C: Any = importlib.import_module("torch._C")

OPERATORS, SEED = 200, 20263
KINDS = ("cpu", "cpu requires_grad", "cpu inference", "meta")
REASONS = {"kernel", "autograd kernel", "math kernel", "backend fallback"}
ROW = re.compile(r"^(\w+): (.*)$", re.MULTILINE)


def tensor_of(kind: str) -> Any:
    with torch.inference_mode("inference" in kind):
        if kind == "meta":
            return torch.ones(2, device="meta")
        return torch.ones(2, requires_grad="requires_grad" in kind)


def live_keys(name: str, kinds: tuple[str, ...]) -> list[str]:
    """The keys that PyTorch's call goes by, highest first: its tensors' and its thread's, but for fallthroughs."""
    keys = C._dispatch_tls_local_include_set()
    for kind in kinds:
        keys = keys | C._dispatch_keys(tensor_of(kind))
    keys = keys - C._dispatch_tls_local_exclude_set()
    left = []
    for key in RUNTIME_KEYS:
        parsed = C._parse_dispatch_key(key.name)
        if parsed is None or not keys.has(parsed) or key.name == "Undefined":
            continue
        if not (live_table(name).get(key.name) or "").startswith("fallthrough "):
            left.append(key.name)
    return left[::-1]


@cache
def live_table(name: str) -> dict[str, str]:
    """PyTorch's table as it prints it."""
    return dict(ROW.findall(C._dispatch_dump_table(name)))


def live_kernel(name: str, key: str) -> str | None:
    """The row of PyTorch's table."""
    found = live_table(name).get(key)
    if found is None or "registered at" not in found:
        return found
    at = found.index("registered at")
    debug, bracket, reason = found[at:].rpartition(" [")
    return found[:at] + without_roots(debug, package_roots()) + bracket + reason


def explained_kernel(hop: Hop) -> str | None:
    kernel = hop.kernel
    return None if kernel is None else f"{'fallthrough ' * kernel.fallthrough}{kernel.debug} [{kernel.reason}]"


def sampled() -> list[str]:
    """Operators of the bundled registry that the running PyTorch has, too, and that can be called."""
    recorded = recorded_from("torch-2.13-cpu")
    there = set(C._dispatch_get_all_op_names()) - set(C._dispatch_find_dangling_impls())
    names = [name for name in recorded.names if name in there and C._dispatch_has_kernel(name)]
    # What another test has imported may have registered kernels that the record does not have.
    live = record_operators(set(names))
    same = [name for name in names if live.operator(name) == recorded.operator(name)]
    with_def = [name for name in same if not getattr(recorded.operator(name), "is_dangling", True)]
    return sorted(random.Random(SEED).sample(with_def, OPERATORS))


@pytest.fixture(scope="module")
def views() -> dict[str, OperatorView]:
    if not torch.__version__.startswith("2.13."):
        pytest.skip(f"the bundled registry is of PyTorch 2.13, and this is {torch.__version__}")
    names = sampled()
    replayed = bench(recorded_from("torch-2.13-cpu"), semantics="torch-2.13", operators=names)
    found = {name: replayed.dispatcher.explain(name) for name in names}
    return {name: view for name, view in found.items() if view is not None}


def explained(view: OperatorView, kind: str, *, inference: bool = False) -> tuple[CallExplanation, tuple[str, ...]]:
    """A call whose tensors, lists of tensors included, are all of one kind; and the kinds of them."""
    schema = schema_of(view)
    deciding = [one for at, one in enumerate(schema.arguments) if schema.dispatch_arguments() >> at & 1]
    specs = [f"{one.name}={'list:' if str(one.type).endswith(']') else ''}{kind}" for one in deciding]
    thread = thread_keys(inference=inference)
    return explain(view, describe_arguments(schema, specs), thread), (kind,) * bool(specs)


@pytest.mark.parametrize("inference", [False, True])
def test_the_key_and_the_kernel_are_those_of_the_running_pytorch(
    views: dict[str, OperatorView], *, inference: bool
) -> None:
    compared: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    different = []
    for name, view in views.items():
        for kind in KINDS:
            found, kinds = explained(view, kind, inference=inference)
            first = found.hops[0]
            with torch.inference_mode(inference):
                keys = live_keys(name, kinds)
            expected = (keys or ["Undefined"])[0]
            ours = [str(key) for key in first.order]
            if (ours, str(first.key), explained_kernel(first)) != (keys, expected, live_kernel(name, expected)):
                different.append((name, kind, keys, ours, explained_kernel(first), live_kernel(name, expected)))
            compared[kind] += 1
            reasons["" if first.kernel is None else first.kernel.reason] += 1
    assert different == []
    assert compared == dict.fromkeys(KINDS, OPERATORS)
    assert set(reasons) >= ({"kernel", "math kernel", ""} if inference else REASONS)


def test_every_later_hop_names_the_kernel_in_the_row_that_it_goes_to(views: dict[str, OperatorView]) -> None:
    hops = 0
    for name, view in views.items():
        for kind in KINDS:
            for hop in explained(view, kind)[0].hops[1:]:
                assert explained_kernel(hop) == live_kernel(name, str(hop.key)), (name, kind, hop.key)
                hops += 1
    assert hops > 300


def test_the_hop_after_an_autograd_kernel_is_handed_the_set_that_pytorch_hands_on() -> None:
    library = torch.library.Library("dlabhops", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    heard: list[tuple[str, int]] = []
    after = C._dispatch_keyset_full_after(C.DispatchKey.AutogradOther)

    def autograd(keys: Any, x: Any) -> Any:
        heard.append(("AutogradCPU", keys.raw_repr()))
        return torch.ops.dlabhops.twice.default.redispatch(keys & after, x)

    def cpu(keys: Any, x: Any) -> Any:
        heard.append(("CPU", keys.raw_repr()))
        return x.detach() * 2

    library.impl("twice", autograd, "AutogradCPU", with_keyset=True)
    library.impl("twice", cpu, "CPU", with_keyset=True)
    torch.ops.dlabhops.twice(torch.ones(2, requires_grad=True))
    dispatcher = Dispatcher("torch-2.13")
    ours = Library("dlabhops", "FRAGMENT", dispatcher=dispatcher)
    ours.define("twice(Tensor x) -> Tensor")
    generated = "registered at /torch/csrc/autograd/generated/VariableType_0.cpp:1"
    ours.impl("twice", KernelFunction(Kernel(KernelForm.BOXED)).debug(generated), "AutogradCPU")
    ours.impl("twice", lambda x: x, "CPU")
    view = dispatcher.explain("dlabhops::twice")
    assert view is not None
    found = explain(view, describe_arguments(schema_of(view), ["cpu requires_grad"]), thread_keys())
    assert [(str(hop.key), hop.keys.bits) for hop in found.hops] == heard
    library._destroy()


def test_the_live_pytorch_explains_itself_with_what_lost() -> None:
    found = inspect_operator("aten::add.Tensor", options=InspectOptions("torch"))
    assert found.source == f"PyTorch {torch.__version__}"
    explanation = explain(
        found.only_view, describe_arguments(schema_of(found.only_view), ["cpu", "cpu"]), thread_keys()
    )
    assert [str(hop.key) for hop in explanation.hops] == ["AutogradCPU", "CPU"]
    for hop in explanation.hops:
        assert explained_kernel(hop) == live_kernel("aten::add.Tensor", str(hop.key))
        assert hop.kernel is not None
        assert hop.kernel.beaten


REDISPATCHED: dict[str, tuple[str, ...]] = {
    "neg": ("cpu", "cpu requires_grad", "inference"),
    "sin": ("cpu requires_grad", "conj"),
    "add.Tensor": ("cpu", "cpu requires_grad"),
    "add_.Tensor": ("cpu",),
    "mul_.Tensor": ("cpu",),
    "_to_copy": ("cpu", "cpu requires_grad"),
    "randn": ("",),
}


def live_tensor(kind: str) -> Any:
    if kind == "conj":
        return torch.ones(2, dtype=torch.complex64).conj()
    if kind == "inference":
        with torch.inference_mode():
            return torch.ones(2)
    return tensor_of(kind)


@pytest.mark.filterwarnings("ignore:Warning only once for all operators:UserWarning")
def test_the_last_hop_is_handed_the_set_that_pytorchs_own_kernels_redispatch_with() -> None:
    heard: list[int] = []

    def kernel(keys: Any, *arguments: Any, **named: Any) -> Any:
        heard.append(keys.raw_repr())
        return arguments[0] if isinstance(arguments[0], torch.Tensor) else made

    made = torch.ones(2)
    calls = 0
    for name, kinds in REDISPATCHED.items():
        library = torch.library.Library("aten", "IMPL")
        packet, _, overload = name.partition(".")
        operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
        count = 2 if overload else 1
        for kind in kinds:
            given = (live_tensor(kind),) * count if kind else ([2],)
            library.impl(name, kernel, "CPU", with_keyset=True, allow_override=True)
            try:
                heard.clear()
                operator(*given)
            finally:
                library._destroy()
                library = torch.library.Library("aten", "IMPL")
            found = inspect_operator(f"aten::{name}")
            specs = [kind] * count if kind else []
            hops = explain(found.only_view, describe_arguments(schema_of(found.only_view), specs), thread_keys()).hops
            assert [hops[-1].keys.bits] == heard, (name, kind)
            assert str(hops[-1].key) == "CPU"
            calls += 1
        library._destroy()
    assert calls == 12


@pytest.mark.filterwarnings("ignore:Warning only once for all operators:UserWarning")
@pytest.mark.parametrize("name", ["add.Tensor", "sin", "mul.Tensor"])
def test_below_functionalize_the_guard_of_the_autograd_kernel_still_holds(name: str) -> None:
    excluded: list[Any] = []

    def kernel(x: Any, *more: Any) -> Any:
        excluded.append(C._dispatch_tls_local_exclude_set())
        return x.clone()

    packet, _, overload = name.partition(".")
    count = 2 if overload else 1
    given = [torch._to_functional_tensor(torch.ones(2)) for _ in range(count)]
    library = torch.library.Library("aten", "IMPL")
    library.impl(name, kernel, "CPU", allow_override=True)
    torch._enable_functionalization(reapply_views=True)
    try:
        getattr(getattr(torch.ops.aten, packet), overload or "default")(*given)
    finally:
        torch._disable_functionalization()
        library._destroy()
    found = inspect_operator(f"aten::{name}")
    specs = ["cpu Functionalize"] * count
    hops = explain(found.only_view, describe_arguments(schema_of(found.only_view), specs), thread_keys()).hops
    assert [str(hop.key) for hop in hops] == ["AutogradCPU", "Functionalize", "CPU"]
    by_guard = {str(left.key) for left in hops[-1].left_out if left.why == "excluded by a guard"}
    assert by_guard == {"AutogradCPU", "ADInplaceOrView", "Functionalize"}
    (inside,) = excluded
    assert all(inside.has(C._parse_dispatch_key(key)) for key in ("AutogradOther", "ADInplaceOrView", "Functionalize"))


def test_a_scenario_is_explained_on_the_running_pytorch_as_on_its_model(tmp_path: Path) -> None:
    path = tmp_path / "stale.yaml"
    path.write_text(STAYS)
    explanations = [
        explain(found.only_view, describe_arguments(schema_of(found.only_view), ["cpu requires_grad"]), thread_keys())
        for engine, semantics in (("torch", None), ("lab", "torch-2.13"))
        for options in [InspectOptions(cast(EngineName, engine), semantics)]
        for found in [inspect_operator("foo", source=str(path), options=options)]
    ]
    live, model = explanations
    assert live == model
    (hop,) = live.hops
    assert hop.kernel is not None
    assert (hop.kernel.debug, hop.kernel.reason) == ("fn_implicit", "math kernel")
    assert hop.kernel.stale is not None
    assert [lost.why for lost in hop.kernel.beaten] == ["CompositeExplicitAutograd has a kernel"]


def planted(behaviour: str, key: str, heard: list[str]) -> Any:
    """A kernel of somebody that notes that it runs, and then does what nobody can see in a registry."""
    below = C._dispatch_keyset_full_after(getattr(C.DispatchKey, "AutogradOther" if "Autograd" in key else key))

    def kernel(keys: Any, x: Any) -> Any:
        heard.append(key)
        if behaviour == "redispatches":
            return torch.ops.dlabplanted.f.default.redispatch(keys & below, x)
        if behaviour == "calls another operator":
            with torch._C._AutoDispatchBelowAutograd():
                return torch.ops.dlabplanted.inner(x)
        return x.detach().clone()

    return kernel


def explained_here(name: str, *specs: str) -> CallExplanation:
    """An operator of this process, explained by what it prints."""
    ((snapshot, violations),) = look_at([parse_name(name)])
    view = view_of(snapshot, violations)
    return explain(view, describe_arguments(schema_of(view), specs), thread_keys())


@pytest.mark.parametrize("key", ["AutogradCPU", "Autograd", "ADInplaceOrView", "BackendSelect"])
@pytest.mark.parametrize("behaviour", ["redispatches", "calls another operator", "does it all"])
def test_no_explanation_lists_a_kernel_that_a_kernel_of_somebody_never_calls(behaviour: str, key: str) -> None:
    heard: list[str] = []
    library = torch.library.Library("dlabplanted", "FRAGMENT")
    try:
        library.define("f(Tensor x) -> Tensor")
        library.define("inner(Tensor x) -> Tensor")
        library.impl("inner", lambda x: x + 1, "CPU")
        library.impl("f", planted(behaviour, key, heard), key, with_keyset=True)
        library.impl("f", planted("does it all", "CPU", heard), "CPU", with_keyset=True)
        torch.ops.dlabplanted.f(torch.ones(2))
        found = explained_here("dlabplanted::f", "cpu")
    finally:
        library._destroy()
    own = [hop for hop in found.hops if hop.kernel is not None and "[backend fallback]" not in str(hop.kernel.reason)]
    listed = [{"AutogradCPU": key, "BackendSelect": key}.get(str(hop.key), str(hop.key)) for hop in own]
    assert [one for one in listed if one in (key, "CPU")][:1] == [key]
    assert [one for one in listed if one in (key, "CPU") and one not in heard] == []
    assert ("CPU" in heard) is (behaviour == "redispatches")
    assert not found.known
    assert found.end.startswith("what comes next is not known: ")


def test_the_kernels_that_custom_op_makes_are_followed_to_the_kernel_that_runs() -> None:
    heard: list[str] = []

    def compute_twice(x: torch.Tensor) -> torch.Tensor:
        heard.append("CPU")
        return x * 2

    def compute_fill(x: torch.Tensor) -> None:
        heard.append("CPU")
        x.fill_(1)

    made = torch.library.custom_op
    twice = made("dlabcustom::twice", compute_twice, mutates_args=(), device_types="cpu")
    fill = made("dlabcustom::fill", compute_fill, mutates_args=("x",), device_types="cpu")
    twice.register_autograd(lambda ctx, grad: grad * 2)
    for name, custom in (("twice", twice), ("fill", fill)):
        heard.clear()
        custom(torch.ones(2))
        found = explained_here(f"dlabcustom::{name}", "cpu")
        keys = ["AutogradCPU", *(["ADInplaceOrView"] if name == "fill" else []), "CPU"]
        assert ([str(hop.key) for hop in found.hops], found.known, heard) == (keys, True, ["CPU"])
