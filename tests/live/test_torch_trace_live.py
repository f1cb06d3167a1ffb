"""Traces of real PyTorch programs: the profiler names what is there, and the hops are those that ran."""

from __future__ import annotations

import contextlib
import gc
import random
import runpy
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dispatchlab.call.trace import TracedCall
from dispatchlab.live.bridge import record_function
from dispatchlab.live.bridge.running_keys import raw_bits
from dispatchlab.live.tracing import TorchTraceError, model_set
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import DispatchKey
from dispatchlab.questions.trace.torch_trace import BY_MODE, NO_BACKEND, TorchTrace

torch: Any = pytest.importorskip("torch")

PROGRAMS = sorted((Path(__file__).parents[2] / "examples" / "traced").glob("*.py"))
C = torch._C


def run(program: Path) -> None:
    """Run a program as one of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_path(str(program))
    gc.collect()


def profiled(program: Path) -> Counter[str]:
    """How often PyTorch's profiler names each operator, without overloads."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        run(program)
    names = (event.name() for event in profiler.profiler.kineto_results.events())
    return Counter(name for name in names if "::" in name and not name.startswith(("autograd::", "torch::")))


def test_where_calls_cannot_be_observed_a_mode_sees_them_and_a_note_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_function, "_layout", lambda: None)
    with TorchTrace() as found, torch.autocast("cpu", enabled=False):
        torch.ones(2, requires_grad=True).sin()
    hops = [(call.kind, call.operator, str(call.keys.highest())) for call in found.calls]
    assert hops == [
        ("[call]", "aten::ones", "BackendSelect"),
        ("[call]", "aten::sin", "AutogradCPU"),
        ("[redispatch]", "aten::sin", "CPU"),
    ]
    assert found.calls[0].note == NO_BACKEND
    assert found.notes == (BY_MODE,)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_what_is_traced_is_what_the_profiler_names(program: Path) -> None:
    run(program)  # what is done once, is done
    theirs = profiled(program)
    with TorchTrace() as found:
        run(program)
    ours = {call.operator.partition(".")[0] for call in found.calls}
    assert {name for name in ours if not name.startswith("profiler::")} <= theirs.keys()
    assert len(ours) >= 9
    assert found.notes == ()
    assert all((call.kernel is not None or call.error) and call.ended_ns is not None for call in found.calls)


# -- kernels that log which of them ran

LOG: list[tuple[str, str, int]] = []
"""The operator, the key and the set of each planted kernel that ran."""


def hands_on(operator: Any, key: Any) -> Callable[..., object]:
    """A kernel that logs, and redispatches below its key."""

    def kernel(keys: Any, *arguments: object) -> object:
        LOG.append((operator().name(), key.name, keys.raw_repr()))
        result: object = operator().redispatch(keys & C._dispatch_keyset_full_after(key), *arguments)
        return result

    return kernel


def works(name: str, key: Any) -> Callable[..., object]:
    """A kernel that logs, and gives a new tensor."""

    def kernel(keys: Any, x: Any, *more: object) -> object:
        LOG.append((name, key, keys.raw_repr()))
        with C._AutoDispatchBelowAutograd():
            return torch.empty(x.shape, dtype=x.dtype, device=x.device)

    return kernel


ABOVE = ("AutogradCPU", "AutogradMeta", "ADInplaceOrView", "Conjugate", "Negative", "ZeroTensor", "Functionalize")
BACKENDS = ("CPU", "Meta", "SparseCPU", "CompositeExplicitAutograd")
SCHEMAS: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("f{}(Tensor x) -> Tensor", ("x",)),
    ("g{}(Tensor x, Tensor? y=None) -> Tensor", ("x", "?")),
    ("h{}(Tensor x, float c, Tensor y) -> Tensor", ("x", 1.5, "y")),
    ("k{}(Tensor x, int n, Tensor[] more) -> Tensor", ("x", 3, "more")),
)


def tensors(random: random.Random) -> Any:
    """A tensor of a random kind."""
    made = random.choice(
        (
            lambda: torch.ones(2),
            lambda: torch.ones(2, requires_grad=True),
            lambda: torch.ones(2, device="meta"),
            lambda: torch.ones(2, device="meta", requires_grad=True),
            lambda: torch.ones(2, dtype=torch.complex64).conj(),
            lambda: torch.ones(2, dtype=torch.complex64).conj().imag,
            lambda: torch.ones(2).to_sparse(),
            lambda: torch.ones(2, requires_grad=True).double(),
        )
    )
    return made()  # type: ignore[no-untyped-call]  # some are torch's, which has no types


def guards(random: random.Random) -> Any:
    """A random guard."""
    return random.choice(
        (
            nullcontext,
            torch.no_grad,
            torch.inference_mode,
            C._AutoDispatchBelowAutograd,
            lambda: C._ExcludeDispatchKeyGuard(C.DispatchKeySet(C.DispatchKey.ADInplaceOrView)),
            lambda: C._IncludeDispatchKeyGuard(C.DispatchKey.Functionalize),
        )
    )()


def test_for_operators_with_kernels_planted_at_each_hop_the_hops_are_those_that_ran() -> None:
    seen = planted_hops(count=400, seed=1)
    assert seen["hops"] > 500, seen
    assert seen["failed"] > 20
    assert seen["overloads"] == 40


def planted_hops(*, count: int, seed: int) -> Counter[str]:
    """Compare what planted kernels log with the hops of a trace, for random operators, arguments and guards."""
    chosen, seen = random.Random(seed), Counter[str]()
    with ExitStack() as undo:
        library = undo.enter_context(torch.library._scoped_library("dispatchlab_planted", "FRAGMENT"))
        operators = []
        for number in range(40):
            schema, arguments = SCHEMAS[number % len(SCHEMAS)]
            name = library.define(schema.format(number))
            operator = partial(_planted, name)
            for above in chosen.sample(ABOVE, chosen.randint(0, len(ABOVE))):
                key = getattr(C.DispatchKey, above)
                kernel = torch.library.fallthrough_kernel if chosen.random() < 0.2 else hands_on(operator, key)
                library.impl(name, kernel, above, with_keyset=kernel is not torch.library.fallthrough_kernel)
            for backend in chosen.sample(BACKENDS, chosen.randint(1, len(BACKENDS))):
                library.impl(name, works(f"dispatchlab_planted::{name}", backend), backend, with_keyset=True)
            operators.append((operator(), arguments))
            seen["overloads"] += 1
        for _ in range(count):
            operator, kinds = chosen.choice(operators)
            made = {kind: tensors(chosen) for kind in ("x", "y")}
            given: list[Any] = [made.get(str(kind), kind) for kind in kinds if kind != "?" or chosen.random() < 0.5]
            given = [[made["y"], made["x"]] if one == "more" else made["y"] if one == "?" else one for one in given]
            LOG.clear()
            with guards(chosen), TorchTrace() as found:
                try:
                    operator(*given)
                except (NotImplementedError, RuntimeError):
                    seen["failed"] += 1
            first, *_ = found.calls
            hops = [one for one in found.calls if one.operator == first.operator]
            logged = [(key, model_set(bits) - OF_MODES) for _, key, bits in LOG]
            if logged and _is_planted(first):
                assert first.kernel is not None
                assert (first.kernel.source, first.keys) == logged[0], (first, LOG)
            if logged and len(hops) > 1 and _is_planted(hops[-1]):
                assert hops[-1].kernel is not None
                assert (hops[-1].kernel.source, hops[-1].keys) == logged[-1], (hops, LOG)
                seen["last"] += 1
            seen["hops"] += len(logged)
    return seen


OF_MODES = DispatchKeySet.of(DispatchKey.Python, DispatchKey.PythonTLSSnapshot)


def _planted(name: str) -> Any:
    return getattr(torch.ops.dispatchlab_planted, name).default


def _is_planted(call: TracedCall) -> bool:
    return call.kernel is not None and call.kernel.reason is not Provenance.FALLBACK


# -- what must be as it is without a trace


def failing() -> Iterator[tuple[str, str]]:
    """What fails, and how."""
    sparse = torch.ones(2, 2).to_sparse()
    leaf = torch.ones(2, requires_grad=True)
    for name, act in {
        "no kernel": lambda: torch.linalg.svd(sparse),
        "no such shape": lambda: torch.ones(2, 3) @ torch.ones(2, 3),
        "a leaf": lambda: leaf.add_(1),
        "twice": lambda: [(y := leaf.sin().sum()).backward(), y.backward()],
        "vmap": lambda: torch.func.vmap(lambda x: x.item())(torch.ones(2)),
        "an index": lambda: torch.ones(2)[[7]],
        "a meta tensor": lambda: torch.ones(2, device="meta").item(),
    }.items():
        try:
            act()  # type: ignore[no-untyped-call]  # likewise
        except Exception as error:
            yield name, f"{type(error).__name__}: {error}"


def test_calls_inside_of_kernels_skip_autograd_where_the_kernel_above_excludes_it() -> None:
    ran: list[str] = []
    name = "calls_inside"
    library = torch.library.Library(name, "DEF")

    def autograd(keys: Any, x: Any) -> Any:
        ran.append("AutogradCPU")
        return inner.default.redispatch(keys & C._after_autograd_keyset, x)

    def cpu(x: Any) -> Any:
        ran.append("CPU")
        return x.clone()

    library.define("inner(Tensor x) -> Tensor")
    library.impl("inner", cpu, "CPU")
    library.impl("inner", autograd, "AutogradCPU", with_keyset=True)
    inner = getattr(torch.ops, name).inner

    def write(x: Any) -> None:
        inner(x)

    library.define("plain(Tensor x) -> Tensor")
    library.impl("plain", lambda x: inner(x), "CPU")
    of = "(Tensor x) -> Tensor"
    torch.library.custom_op(f"{name}::custom", lambda x: inner(x), mutates_args=(), schema=of)
    torch.library.custom_op(f"{name}::writes", write, mutates_args=["x"], schema="(Tensor(a!) x) -> ()")
    for outer in ("plain", "custom", "writes"):
        ran.clear()
        call = getattr(getattr(torch.ops, name), outer)
        call(torch.ones(2))
        untraced = [*ran]
        with TorchTrace() as found:
            call(torch.ones(2))
        shown = [str(call.keys.highest()) for call in found.calls if call.operator == f"{name}::inner"]
        assert shown == untraced, outer
    assert untraced == ["CPU"]


def test_errors_are_those_without_a_trace() -> None:
    before = dict(failing())
    with TorchTrace() as found:
        during = dict(failing())
    assert during == before
    assert len(before) == 7
    assert "NotImplementedError: Could not run 'aten::_linalg_svd'" in before["no kernel"]
    raised = {call.operator: call.error for call in found.calls if call.error is not None}
    assert {"aten::_linalg_svd", "aten::mm", "aten::index.Tensor"} <= raised.keys()
    assert str(raised["aten::mm"]).startswith("RuntimeError: mat1 and mat2 shapes cannot be multiplied")
    assert not [call for call in found.calls if call.ended_ns is None]


def test_what_is_registered_and_released_meanwhile_is_traced_too() -> None:
    with TorchTrace() as found, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.library._scoped_library("dispatchlab_meanwhile", "FRAGMENT") as library:
            library.define("f(Tensor x) -> Tensor")
            library.impl("f", lambda x: x.sin(), "CPU")
            torch.ops.dispatchlab_meanwhile.f(torch.ones(2))
            with torch.library._scoped_library("dispatchlab_meanwhile", "IMPL") as other:
                other.impl("f", lambda x: x.cos(), "CPU", allow_override=True)
                torch.ops.dispatchlab_meanwhile.f(torch.ones(2))
            torch.ops.dispatchlab_meanwhile.f(torch.ones(2))
    inside = [
        next(one.operator for one in call.steps if isinstance(one, TracedCall))
        for call in found.calls
        if call.operator == "dispatchlab_meanwhile::f" and call.keys.highest() is DispatchKey.CPU
    ]
    assert inside == ["aten::sin", "aten::cos", "aten::sin"]


def test_beyond_the_limit_hops_are_counted_alone_and_the_trace_says_so() -> None:
    with TorchTrace(limit=50) as found:
        for _ in range(100):
            torch.ones(2)
    assert len(found.calls) <= 100
    assert found.notes == ("the first 50 calls were kept, and later ones are not shown",)


def test_a_trace_inside_of_another_is_refused() -> None:
    with TorchTrace(), pytest.raises(TorchTraceError, match="another trace is on"), TorchTrace():
        pass
    with TorchTrace() as found:
        torch.ones(2)
    assert found.calls


def test_the_keys_of_each_argument_are_in_the_trace() -> None:
    x, y = torch.ones(2, requires_grad=True), torch.ones(2, device="meta")
    with TorchTrace() as found, contextlib.suppress(RuntimeError, NotImplementedError):
        torch.cat([x, x])
        torch.where(torch.ones(2, dtype=torch.bool), x, x)
        torch.add(x, y)
    where = next(call for call in found.calls if call.operator == "aten::where.self")
    assert {name: keys.highest() for name, keys in where.each.items()} == dict.fromkeys(
        ("condition", "self", "other"), DispatchKey.AutocastCPU
    )
    add = next(call for call in found.calls if call.operator == "aten::add.Tensor")
    assert add.arguments == model_set(raw_bits(C._dispatch_keys(x))) | model_set(raw_bits(C._dispatch_keys(y)))
    assert add.each == {
        "self": model_set(raw_bits(C._dispatch_keys(x))),
        "other": model_set(raw_bits(C._dispatch_keys(y))),
    }
    assert not [call.each for call in found.calls if call.kind == "[redispatch]" and call.each]
