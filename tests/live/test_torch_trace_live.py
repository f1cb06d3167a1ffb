"""Traces of real PyTorch programs: what the profiler names is there, and the hops are those that ran."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import platform
import random
import runpy
import shutil
import subprocess
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dispatchlab.call.trace import TracedCall
from dispatchlab.live.bridge.running_keys import raw_bits
from dispatchlab.live.introspection.queries import keys_by_rule, look_at
from dispatchlab.live.introspection.slot_memory import SlotView, entry_address, entry_addresses, memory_layout
from dispatchlab.live.tracing.recorder import TorchTraceError, model_set
from dispatchlab.live.tracing.slot_probes import unavailable
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.names import name_of
from dispatchlab.model.operator_view import OperatorView, view_of
from dispatchlab.questions.explain.argument_specs import Described, Options
from dispatchlab.questions.explain.hops import explain
from dispatchlab.questions.explain.result import ArgumentKeys, ThreadKeys
from dispatchlab.questions.trace.torch_trace import ARGUMENTS_UNKNOWN, EITHER, RAISED, TorchTrace

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "hops can be recorded")

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


def is_quiet(name: str) -> bool:
    """Whether calls of a custom operator go past the profiler, as since PyTorch 2.15, where one is no packet's call."""
    made = torch._library.custom_ops.OPDEFS.get(name)
    return getattr(getattr(made, "_opoverload", None), "_pyobj_dispatcher", None) is not None


@contextmanager
def traced() -> Iterator[TorchTrace]:
    """A trace, and the slots as they were when it is over."""
    layout = memory_layout()
    assert layout is not None
    before = {name: SlotView(layout, at).fingerprints().tolist() for name, at in entry_addresses(layout)}
    with TorchTrace() as found:
        yield found
    after = {name: SlotView(layout, at).fingerprints().tolist() for name, at in entry_addresses(layout)}
    assert before == {name: slots for name, slots in after.items() if name in before}


def is_call(call: TracedCall) -> bool:
    """Whether a hop is one that a profiler would name."""
    return "redispatch" not in call.kind


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_every_operator_that_the_profiler_names_is_in_the_trace_as_often(program: Path) -> None:
    run(program)  # what is done once, is done
    theirs = profiled(program)
    with TorchTrace() as found:
        run(program)
    ours = Counter(call.operator.partition(".")[0] for call in found.calls if is_call(call))
    unobserved = {name for name in ours if name.startswith("profiler::") or is_quiet(name)}  # PyTorch hides these
    assert {name: count for name, count in ours.items() if name not in unobserved} == dict(theirs)
    assert len(ours) >= 20
    assert not found.notes
    assert all(call.kernel is not None and call.ended_ns is not None for call in found.calls)
    assert EITHER not in {call.kind for call in found.calls}


def test_the_trace_is_what_explain_says() -> None:
    compared = followed = 0
    for program in PROGRAMS:
        with TorchTrace() as found:
            run(program)
        views: dict[str, OperatorView] = {}
        known: dict[object, int] = {}
        for call in found.calls:
            if not is_call(call) or call.note or call.operator.startswith("dispatchlab_program::"):
                continue
            compared += 1
            same = call.operator, call.arguments, call.included, call.excluded, _chain(call)
            if same not in known:
                known[same] = _followed(call, _view(call.operator, views))
            followed += known[same]
    assert compared > 2000
    assert followed > 1000


def _chain(call: TracedCall) -> object:
    """What `_followed` reads of a call."""
    inside = [one for one in call.steps if isinstance(one, TracedCall) and one.operator == call.operator]
    return call.keys, call.kernel, call.error, tuple(map(_chain, inside))


def _followed(call: TracedCall, view: OperatorView) -> int:
    """Compare a call with what `explain` says of it; returns how many redispatches were followed."""
    argument = ArgumentKeys("all", "Tensor", "", call.arguments)
    described = Described((argument,), Options(), requires_grad=False)
    hops = iter(explain(view, described, ThreadKeys(call.included, call.excluded)).hops)
    first, here, followed = next(hops), call, 0
    assert first.keys == call.keys
    assert first.kernel is not None
    assert call.kernel is not None
    assert (first.kernel.debug, first.kernel.reason) == (call.kernel.debug, call.kernel.reason)
    for hop in hops:
        if here.keys.highest() is DispatchKey.BackendSelect:
            break  # it goes by dtype, layout and device, which a trace does not have
        inside = [one for one in here.steps if isinstance(one, TracedCall) and one.operator == call.operator]
        if hop.kernel is None:  # and nothing ran: what has no kernel is no hop
            assert here.error == RAISED
            assert not inside
            break
        assert [one.keys for one in inside] == [hop.keys], (call, hop)
        here, followed = inside[0], followed + 1
    return followed


def _view(name: str, views: dict[str, OperatorView]) -> OperatorView:
    if name not in views:
        ((snapshot, violations),) = look_at([name_of(name)])
        (by_rule,) = keys_by_rule([name_of(name)])
        views[name] = replace(view_of(snapshot, violations), by_rule=by_rule)
    return views[name]


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
        LOG.clear()
        with TorchTrace() as found:
            for _ in range(count):
                operator, kinds = chosen.choice(operators)
                made = {kind: tensors(chosen) for kind in ("x", "y")}
                given: list[Any] = [made.get(str(kind), kind) for kind in kinds if kind != "?" or chosen.random() < 0.5]
                given = [[made["y"], made["x"]] if one == "more" else made["y"] if one == "?" else one for one in given]
                with guards(chosen):
                    try:
                        operator(*given)
                    except (NotImplementedError, RuntimeError):
                        seen["failed"] += 1
        ours = [call for call in found.calls if call.operator.startswith("dispatchlab_planted") and _is_planted(call)]
        assert [(call.operator, call.keys) for call in ours] == [(name, model_set(bits)) for name, _, bits in LOG]
        for call, (name, key, _) in zip(ours, LOG, strict=True):
            assert call.kernel is not None
            assert call.kernel.source == key, (name, call)
        seen["hops"] = len(ours)
        seen["unread"] = sum(ARGUMENTS_UNKNOWN in call.note for call in ours)
        seen["kinds"] = len({call.kind for call in ours})
    return seen


def _planted(name: str) -> Any:
    return getattr(torch.ops.dispatchlab_planted, name).default


def _is_planted(call: TracedCall) -> bool:
    return call.kernel is not None and call.kernel.reason is not Provenance.FALLBACK


ATEN = ("aten::sin", "aten::neg", "aten::add.Tensor", "aten::exp", "aten::mm", "aten::sum", "aten::t")


@pytest.mark.skipif(not hasattr(torch.library, "get_kernel"), reason="this PyTorch gives no kernel that can be called")
def test_kernels_planted_before_those_of_pytorch_log_the_hops_of_the_trace() -> None:
    chosen = random.Random(2)
    # Not Meta, where PyTorch's own kernels are of Python: under a mode PyTorch runs the Python kernel that was
    # registered last, though it was released (python_registrations_ in torch/csrc/utils/python_dispatch.cpp).
    keys = ("AutogradCPU", "CPU", "Conjugate", "Negative", "ADInplaceOrView", "Python")
    with ExitStack() as undo, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of overrides
        library = undo.enter_context(torch.library._scoped_library("aten", "IMPL"))
        for name, key in ((name, getattr(C.DispatchKey, key)) for name in ATEN for key in keys):
            if C._dispatch_has_computed_kernel_for_dispatch_key(name, key.name) and (
                not C._dispatch_kernel_for_dispatch_key_is_fallthrough(name, key.name)
                if C._dispatch_has_kernel_for_dispatch_key(name, key.name)
                else key.name not in ("ADInplaceOrView",)
            ):
                kernel = C._dispatch_get_computed_kernel_for_dispatch_key(name, key)
                library.impl(name.removeprefix("aten::"), logs(name, key, kernel), key.name, with_keyset=True)
        with TorchTrace() as found:
            LOG.clear()  # of the calls by which the first trace of a process tries itself
            for _ in range(60):
                x = chosen.choice([torch.ones(2, 2), torch.ones(2, 2, dtype=torch.complex64).conj()])
                x = x.imag if x.is_complex() and chosen.random() < 0.5 else x
                x.requires_grad_(chosen.random() < 0.5 and x.is_leaf)
                with guards(chosen):
                    for operator in (torch.sin, torch.neg, torch.t, lambda x: x + x, lambda x: x @ x, torch.sum):
                        operator(x)
    planted = {(name, key) for name, key, _ in LOG}
    ours = [call for call in found.calls if (call.operator, str(call.keys.highest())) in planted]
    assert [(call.operator, str(call.keys.highest()), call.keys) for call in ours] == [
        (name, key, model_set(bits)) for name, key, bits in LOG
    ]
    assert len(LOG) > 700
    assert len(planted) > 20


def logs(name: str, key: Any, kernel: Any) -> Callable[..., object]:
    """A kernel that logs, and goes on to the one that it takes the place of."""

    def planted(keys: Any, *arguments: object, **keywords: object) -> object:
        LOG.append((name, key.name, keys.raw_repr()))
        result: object = kernel.call_boxed(keys, *arguments, **keywords)
        return result

    return planted


def test_a_kernel_may_raise_whose_own_caller_catches(tmp_path: Path) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("the C++ of this test needs a compiler")
    source, built = Path(__file__).with_name("cpp") / "catching_caller.cpp", tmp_path / "catching_caller.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", str(source), "-o", str(built)], check=True, timeout=60)
    ours = ctypes.CDLL(str(built))
    layout = memory_layout()
    assert layout is not None
    with torch.library._scoped_library("dispatchlab_catching", "DEF") as library:
        library.define("f() -> Tensor")
        library.impl("f", lambda: torch.ones(1), "CPU")
        entry = entry_address(layout, "dispatchlab_catching::f", "")
        assert entry is not None
        words = (ctypes.c_uint64 * (layout.count * layout.stride // 8)).from_address(entry + layout.table)
        at = next(at for at, value in enumerate(words) if at % (layout.stride // 8) == 1 and value)
        kernel, words[at] = words[at], ctypes.cast(ours.raises, ctypes.c_void_p).value or 0
        with TorchTrace() as found:
            raised = ours.calls(ctypes.c_void_p(words[at]))
        words[at] = kernel
    assert raised == 1
    (call,) = [call for call in found.calls if call.operator == "dispatchlab_catching::f"]
    assert call.error == RAISED


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


def test_errors_are_those_without_a_trace() -> None:
    before = dict(failing())
    with traced() as found:
        during = dict(failing())
    assert during == before
    assert len(before) == 7
    assert "NotImplementedError: Could not run 'aten::_linalg_svd'" in before["no kernel"]
    raised = {call.operator for call in found.calls if call.error == RAISED}
    assert {"aten::linalg_svd", "aten::mm", "aten::index.Tensor"} <= raised
    assert not [call for call in found.calls if call.ended_ns is None]


def test_what_is_registered_and_released_meanwhile_is_traced_too() -> None:
    with traced() as found, warnings.catch_warnings():
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


def test_every_thread_has_a_tree_of_its_own() -> None:
    def work() -> None:
        for _ in range(50):
            torch.ones(2, requires_grad=True).sin().sum().backward()

    def work_and_wait() -> None:
        work()
        done.wait(60)
        done.wait(60)

    workers = [threading.Thread(target=work, name=f"worker {number}") for number in range(3)]
    done = threading.Barrier(4)
    workers += [threading.Thread(target=work_and_wait, name=f"w{n}") for n in range(3)]
    with traced() as found:
        work()
        for worker in workers:
            worker.start()
        done.wait(60)
        for worker in workers[:3]:
            worker.join()
        alone = threading.Thread(target=done.wait, args=(60,))
    alone.start()
    for worker in workers[3:]:
        worker.join()
    assert {"MainThread", "w0", "w1", "w2"} <= {thread.name for thread in found.threads}
    shapes = {tuple(_shape(step) for step in thread.steps[:4]) for thread in found.threads}
    assert len(shapes) == 1
    assert sum(call.operator == "aten::sin" and call.depth == 1 for call in found.calls) == 7 * 50


def _shape(step: object) -> object:
    assert isinstance(step, TracedCall)
    return step.kind, step.operator, str(step.keys), tuple(map(_shape, step.steps))


def test_beyond_the_limit_hops_are_counted_alone_and_the_trace_says_so() -> None:
    with TorchTrace(limit=50) as found:
        for _ in range(100):
            torch.ones(2)
    assert len(found.calls) <= 100
    assert found.notes == ("the first 50 hops were kept, and later ones are not shown",)


def test_a_trace_inside_of_another_is_refused() -> None:
    with TorchTrace(), pytest.raises(TorchTraceError, match="another trace is on"), TorchTrace():
        pass
    with TorchTrace() as found:
        torch.ones(2)
    assert found.calls


def test_a_library_that_the_collector_releases_while_probes_are_put_in_does_no_harm() -> None:
    gc.collect()
    for number in range(3):
        library = torch.library.Library(f"dispatchlab_garbage{number}", "DEF")
        library.define("f(Tensor x) -> Tensor")
        library.impl("f", lambda x: x, "CPU")
        cycle: list[object] = [library]
        cycle.append(cycle)
        del library, cycle
        threshold = gc.get_threshold()
        gc.set_threshold(1)
        try:
            with TorchTrace() as found:
                torch.ones(2)
        finally:
            gc.set_threshold(*threshold)
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


def test_where_hops_cannot_be_recorded_a_mode_notes_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    x = torch.ones(2, requires_grad=True)
    with TorchTrace() as found:
        y = torch.add(x, other=torch.ones(2)).sum()
        with pytest.raises(RuntimeError):
            torch.ones(2, 3) @ torch.ones(2, 3)
    assert y.requires_grad
    add = next(call for call in found.calls if call.operator == "aten::add.Tensor")
    assert (add.kind, add.keys.highest(), add.kernel, [*add.each]) == (
        "[call]",
        DispatchKey.CPU,
        None,
        ["self", "other"],
    )
    assert {"aten::ones", "aten::sum", "aten::mm"} <= {call.operator for call in found.calls}
    assert [call.operator for call in found.calls if call.error == RAISED] == ["aten::mm"]
    (note,) = found.notes
    assert note.startswith("the hops of calls can be recorded on Linux on x86-64 alone, so these are the calls that")
