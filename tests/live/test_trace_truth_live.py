"""Traces against what a plain run does: the profiler's tree, and kernels and handlers that log themselves."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from dispatchlab.call.trace import TracedCall, TracedEvent
from dispatchlab.live.bridge import record_function
from dispatchlab.live.bridge.running_keys import raw_bits
from dispatchlab.live.tracing import model_set
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.questions.trace.torch_trace import HOW_FAR, TorchTrace

torch: Any = pytest.importorskip("torch")
C = torch._C
NAME = "trace_truth"
pytestmark = pytest.mark.skipif(record_function._layout() is None, reason="calls cannot be observed on this platform")

LOG: list[tuple[str, str, DispatchKeySet | None]] = []
"""The operator, the key and the key set of each kernel and handler that ran; a handler gets no key set."""


def logged(name: str, function: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a kernel for the CPU that logs."""

    def kernel(keys: Any, x: Any) -> Any:
        LOG.append((name, "CPU", model_set(raw_bits(keys))))
        return function(x)

    return kernel


def autograd(keys: Any, x: Any) -> Any:
    """Redispatch below autograd, and log."""
    LOG.append((f"{NAME}::f", "AutogradCPU", model_set(raw_bits(keys))))
    with C._AutoDispatchBelowAutograd():
        return f.default.redispatch(keys & C._after_autograd_keyset, x)


def raising(_: Any) -> Any:
    """Raise."""
    raise ValueError("no")


library = torch.library.Library(NAME, "DEF")
for operator in ("f", "g", "composite", "outer", "bad"):
    library.define(f"{operator}(Tensor x) -> Tensor")
f, g, outer, bad = (getattr(torch.ops.trace_truth, operator) for operator in ("f", "g", "outer", "bad"))
library.impl("f", logged(f"{NAME}::f", lambda x: x.sin()), "CPU", with_keyset=True)
library.impl("f", autograd, "AutogradCPU", with_keyset=True)
library.impl("g", logged(f"{NAME}::g", lambda x: x * 2), "CPU", with_keyset=True)
library.impl("composite", lambda x: g(x).cos(), "CompositeImplicitAutograd")
library.impl("outer", logged(f"{NAME}::outer", lambda x: f(x) + g(x)), "CPU", with_keyset=True)
library.impl("bad", logged(f"{NAME}::bad", raising), "CPU", with_keyset=True)


@torch.library.custom_op(f"{NAME}::custom", mutates_args=(), schema="(Tensor x) -> Tensor")  # type: ignore[untyped-decorator]
def custom(x: Any) -> Any:
    """Return the sine."""
    return x.sin()


custom.register_autograd(
    lambda ctx, gradient: gradient * ctx.saved_tensors[0].cos(),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)


class Mode(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
    """A mode that calls what it gets."""

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        LOG.append((function.name(), "Python", None))
        return function(*arguments, **(named or {}))


class Wrapper(torch.Tensor):  # type: ignore[misc]
    """A subclass that calls what it gets on the wrapped tensor."""

    inner: Any

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, requires_grad=inner.requires_grad)

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        LOG.append((function.name(), "Python", None))
        return function(*(one.inner if isinstance(one, Wrapper) else one for one in arguments), **(named or {}))


class WrapperUnderMode(Wrapper):
    """A subclass that calls what it gets under a mode."""

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        with Mode():
            return super().__torch_dispatch__(function, types, arguments, named)


class Super(torch.Tensor):  # type: ignore[misc]
    """A subclass that calls the handler of its base."""

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        LOG.append((function.name(), "Python", None))
        return super().__torch_dispatch__(function, types, arguments, named or {})


class Declining(torch.Tensor):  # type: ignore[misc]
    """A subclass that declines, or raises for the cosine."""

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        LOG.append((function.name(), "Python", None))
        if function.name() == "aten::cos":
            raise KeyError("mine")
        return NotImplemented


class Doubling(torch.Tensor):  # type: ignore[misc]
    """A subclass with `__torch_function__`."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        with C.DisableTorchFunctionSubclass():
            return torch.mul(function(*arguments, **(named or {})), 2)


def ones(*, grad: bool = False) -> Any:
    """Return a tensor."""
    return torch.ones(2, requires_grad=grad)


def in_modes(*modes: Any, grad: bool = False) -> None:
    """Call an operator in modes."""
    with contextlib.ExitStack() as stack:
        for mode in modes:
            stack.enter_context(mode)
        f(ones(grad=grad))


def refused() -> None:
    """Make calls that raise."""
    for call in (
        lambda: torch.sin(ones().as_subclass(Declining)),
        lambda: torch.cos(ones().as_subclass(Declining)),
        lambda: bad(ones(grad=True)),
        lambda: ones(grad=True).add_(1),
        lambda: torch.mm(torch.ones(2, 3), torch.ones(2, 3)),
    ):
        with contextlib.suppress(TypeError, KeyError, ValueError, RuntimeError):
            call()  # type: ignore[no-untyped-call]


def cast() -> None:
    """Call under autocast."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.mm(torch.ones(2, 2), torch.ones(2, 2, requires_grad=True))
        f(ones())


def written() -> None:
    """Write to views, and compute gradients."""
    x = ones(grad=True) * 1
    x[1:].mul_(3)
    x.view(-1).relu().sum().backward()


PROGRAMS: dict[str, Callable[[], object]] = {
    "wrapper": lambda: (f(Wrapper(ones())), f(Wrapper(ones(grad=True))), torch.sin(Wrapper(ones(grad=True)))),
    "mode": lambda: in_modes(Mode()),
    "modes": lambda: in_modes(Mode(), Mode(), grad=True),
    "mode in a subclass": lambda: f(WrapperUnderMode(ones())),
    "super": lambda: (torch.sin(ones().as_subclass(Super)), f(ones().as_subclass(Super))),
    "torch function": lambda: (ones().as_subclass(Doubling) + 1, torch.sin(ones().as_subclass(Doubling))),
    "refusals": refused,
    "redispatch": lambda: (f(ones()), f(ones(grad=True)), outer(ones(grad=True)), torch.ones_like(ones(grad=True))),
    "composite": lambda: (torch.ops.trace_truth.composite(ones(grad=True)), torch.ones(2, 2) @ torch.ones(2, 2)),
    "custom op": lambda: (custom(ones()), custom(ones(grad=True)).sum().backward()),
    "autocast": cast,
    "views": written,
    "no grad": lambda: in_modes(torch.no_grad(), grad=True),
    "inference": lambda: in_modes(torch.inference_mode()),
    "grad": lambda: torch.func.grad(lambda x: x.sin().sum())(ones()),
    "jvp": lambda: torch.func.jvp(torch.sin, (ones(),), (ones(),)),
    "vmap": lambda: torch.func.vmap(lambda x: x.sin() + x)(torch.ones(3, 2)),
    "functionalize": lambda: torch.func.functionalize(lambda x: x.clone().add_(1))(ones()),
    "conjugate": lambda: torch.ones(2, dtype=torch.complex64).conj().imag + 1,
}


def profiled(program: Callable[[], object]) -> list[tuple[int, str]]:
    """Return the operators that the profiler names in a plain run, with their depths."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        program()

    def named(events: Any, depth: int) -> Iterator[tuple[int, str]]:
        for event in sorted(events, key=lambda event: event.start_time_ns):
            of_operator = "::" in event.name and not event.name.startswith(("autograd::", "torch::", "profiler::"))
            if of_operator:
                yield depth, event.name
            yield from named(event.children, depth + of_operator)

    return [*named(profiler.profiler.kineto_results.experimental_event_tree(), 0)]


def called(steps: Sequence[TracedEvent], depth: int = 0) -> Iterator[tuple[int, str]]:
    """Return the calls of a trace with their depths, without overloads."""
    for step in steps:
        assert isinstance(step, TracedCall)
        if step.kind == "[call]":
            yield depth, step.operator.partition(".")[0]
        yield from called(step.steps, depth + (step.kind == "[call]"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_trace_shows_the_operators_of_a_plain_run_and_the_hops_that_log_themselves(name: str) -> None:
    program = PROGRAMS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program()  # what is done once, is done
        plain = profiled(program)
        LOG.clear()
        program()
        log = [*LOG]
        LOG.clear()
        with TorchTrace() as found:
            program()
    assert log == LOG
    assert [*called([step for thread in found.threads for step in thread.steps])] == plain
    assert len(plain) >= 3
    # A saved result is detached by the handler alone: no call reaches it.
    log = [each for each in log if each[:2] != ("aten::detach", "Python")]
    logging = {each[:2] for each in log}
    hops = [(call.operator, str(call.keys.highest()), call.keys) for call in found.calls]
    assert [
        (operator, key, None if key == "Python" else keys)
        for operator, key, keys in hops
        if (operator, key) in logging or key == "Python"
    ] == log
    assert found.notes == ()


def test_a_call_that_raised_has_its_exception_and_no_hop_that_may_not_have_run() -> None:
    with TorchTrace() as found:
        refused()
    raised = [
        (call.operator, str(call.keys.highest()), str(call.error), call.note) for call in found.calls if call.error
    ]
    declined = "TypeError: Multiple dispatch failed for 'torch._ops.aten.sin.default'; all __torch_dispatch__ handlers "
    assert [(*each[:2], each[3]) for each in raised] == [
        *(("aten::sin", key, "") for key in ("PythonTLSSnapshot", "AutogradCPU", "Python")),
        *(("aten::cos", key, "") for key in ("PythonTLSSnapshot", "AutogradCPU", "Python")),
        (f"{NAME}::bad", "AutogradCPU", ""),
        (f"{NAME}::bad", "CPU", ""),
        ("aten::add_.Tensor", "AutogradCPU", HOW_FAR),
        ("aten::mm", "AutogradCPU", ""),
        ("aten::mm", "CPU", ""),
    ]
    assert raised[0][2].startswith(declined)
    assert [each[2].partition(" (")[0] for each in raised[3::2]] == [
        "KeyError: 'mine'",
        "KeyError: 'mine'",
        "ValueError: no",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied",
    ]


def test_a_call_without_a_kernel_is_shown_and_one_with_wrong_arguments_is_not() -> None:
    with torch.inference_mode():
        x = ones().to_sparse()
    with TorchTrace() as found, torch.inference_mode():
        for arguments in ((x,), (1,)):
            with contextlib.suppress(NotImplementedError, RuntimeError):
                g(*arguments)
            with contextlib.suppress(NotImplementedError, RuntimeError):
                g.default(*arguments)
    assert [(call.operator, str(call.keys.highest()), call.kernel) for call in found.calls] == [
        (f"{NAME}::g", "SparseCPU", None)
    ] * 2
    assert {str(call.error).partition(" with")[0] for call in found.calls} == {
        f"NotImplementedError: Could not run '{NAME}::g'"
    }


def test_an_argument_may_have_the_name_of_a_parameter_of_the_trace() -> None:
    with TorchTrace() as found:
        result = torch.ops.aten.neg.default(**{"self": ones()})
    assert result.tolist() == (-ones()).tolist()
    assert [call.operator for call in found.calls if call.kind == "[call]"][-1] == "aten::neg"


def test_the_exception_of_a_handler_is_the_same_with_a_trace() -> None:
    def fail() -> BaseException:
        with pytest.raises(KeyError, match="mine") as caught:
            torch.cos(ones().as_subclass(Declining))
        return caught.value

    plain = fail()
    with TorchTrace():
        traced = fail()
    assert (type(traced), traced.args, traced.__context__) == (type(plain), plain.args, plain.__context__)
    assert traced.__traceback__ is not None
