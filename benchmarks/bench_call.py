"""Benchmarks of calls: the cost over the kernel, beside other dispatchers of Python functions, on two arguments.

`track_*` is the overhead in nanoseconds: the call less the kernel alone. Whatever is not installed is left out.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from functools import singledispatch
from importlib import import_module
from typing import Any

from dispatchlab import (
    Dispatcher,
    DispatchKey,
    DispatchKeySet,
    Library,
    Operator,
    boxed,
    fallthrough,
    operator,
    tensor,
    unboxed,
)
from dispatchlab.call import AutoDispatchBelowAutograd, Tensor
from dispatchlab.lab import Lab

CALLS, REPEATS = 50_000, 7


def kernel(x: object, y: object) -> object:
    """What every dispatcher here calls: as good as nothing."""
    return x


def nanoseconds(call: Callable[[Any, Any], object], x: object, y: object) -> float:
    """One call, the best of several rounds."""
    timer = timeit.Timer("call(x, y)", globals={"call": call, "x": x, "y": y})
    return min(timer.repeat(REPEATS, CALLS)) / CALLS * 1e9


def overhead(call: Callable[[Any, Any], object], x: object, y: object) -> float:
    """What the call costs over `kernel`; the dispatcher must really have called it."""
    assert call(x, y) is x
    return nanoseconds(call, x, y) - nanoseconds(kernel, x, y)


class Ours:
    """An operator with a CPU kernel and fallthroughs above it, as torch's operators have them."""

    def setup(self) -> None:
        self.dispatcher = Dispatcher(builtin_fallbacks=False)
        self.libraries = [Library("bench", "FRAGMENT", dispatcher=self.dispatcher)]
        self.libraries[0].define("foo(Tensor x, Tensor y) -> Tensor")
        self.libraries[0].define("scaled(Tensor x, Tensor y, *, Scalar alpha=1) -> Tensor")
        for name in ("foo", "scaled"):
            self.libraries[0].impl(name, kernel, "CPU")
        self.libraries.append(Library("_", "IMPL", dispatcher=self.dispatcher))
        for key in ("BackendSelect", "ADInplaceOrView", "Autograd"):
            self.libraries[1].fallback(fallthrough, key)
        self.foo, self.scaled = operator(self.dispatcher, "bench::foo"), operator(self.dispatcher, "bench::scaled")
        self.x, self.y = tensor([1.0]), tensor([2.0])

    def track_call(self) -> float:
        """Two tensors."""
        return overhead(self.foo, self.x, self.y)

    def track_call_with_a_default(self) -> float:
        """Two tensors and a default."""
        return overhead(self.scaled, self.x, self.y)

    def track_call_under_a_guard(self) -> float:
        """Two tensors, while this thread excludes autograd."""
        with AutoDispatchBelowAutograd():
            return overhead(self.foo, self.x, self.y)

    def track_redispatch(self) -> float:
        """Two tensors and the set of a caller."""
        keys, redispatch = DispatchKeySet.of(DispatchKey.CPU), self.foo.redispatch
        return overhead(lambda x, y: redispatch(keys, x, y), self.x, self.y)

    def track_call_by_name(self) -> float:
        """A positional argument by its name."""
        foo = self.foo
        return overhead(lambda x, y: foo(x, y=y), self.x, self.y)

    def track_call_boxed(self) -> float:
        """Both tensors on a stack."""
        call_boxed = self.foo.call_boxed

        def call(x: object, y: object) -> object:
            stack = [x, y]
            call_boxed(stack)
            return stack[0]

        return overhead(call, self.x, self.y)

    def track_first_call_after_a_registration(self) -> float:
        """A kernel comes and goes, and two calls follow, both of which look the kernel up anew."""

        def once() -> None:
            handle = self.libraries[0].impl("foo", kernel, "CUDA")
            assert self.foo(self.x, self.y) is self.x
            handle.release()
            assert self.foo(self.x, self.y) is self.x

        return min(timeit.repeat(once, number=200, repeat=5)) / 200 * 1e9

    for _track in (
        *(track_call, track_call_with_a_default, track_call_under_a_guard, track_redispatch),
        *(track_call_by_name, track_call_boxed, track_first_call_after_a_registration),
    ):
        _track.unit = "ns"  # type: ignore[attr-defined]  # asv reads it


class CallsOn:
    """A kernel at AutogradCPU that calls on: unboxed, as one is generated for each operator, and a boxed fallback."""

    def setup(self) -> None:
        below = DispatchKeySet.full_after(DispatchKey.AutogradCPU)
        self.libraries: list[Library] = []
        found = []
        for is_boxed in (False, True):
            dispatcher = Dispatcher(builtin_fallbacks=False)
            library, everywhere = (
                Library(one, "FRAGMENT" if one == "b" else "IMPL", dispatcher=dispatcher) for one in "b_"
            )
            library.define("foo(Tensor x, Tensor y) -> Tensor")
            library.impl("foo", kernel, "CPU")
            foo = operator(dispatcher, "b::foo")
            for key in ("BackendSelect", "ADInplaceOrView"):
                everywhere.fallback(fallthrough, key)
            if is_boxed:

                def on_stack(called: Operator, keys: DispatchKeySet, stack: list[object]) -> None:
                    called.redispatch_boxed(keys & below, stack)

                everywhere.fallback(boxed(on_stack, with_keyset=True), "AutogradCPU")
            else:
                redispatch = foo.redispatch

                def on(keys: DispatchKeySet, x: Tensor, y: Tensor) -> Tensor:
                    return redispatch(keys & below, x, y)  # type: ignore[no-any-return]  # noqa: B023 - of this round

                library.impl("foo", unboxed(on), "AutogradCPU", with_keyset=True)
            found.append(foo)
            self.libraries += [library, everywhere]
        self.unboxed, self.boxed = found
        self.x, self.y = tensor([1.0]), tensor([2.0])

    def track_unboxed(self) -> float:
        """Two tensors, past an unboxed kernel."""
        return overhead(self.unboxed, self.x, self.y)

    def track_boxed_fallback(self) -> float:
        """Two tensors, past the fallback."""
        return overhead(self.boxed, self.x, self.y)

    for _track in (track_unboxed, track_boxed_fallback):
        _track.unit = "ns"  # type: ignore[attr-defined]  # asv reads it


class Others:
    """The same two-argument call through what else there is."""

    params = ("singledispatch", "multipledispatch", "plum", "ovld", "torch.library", "torch.library, C++ kernel")
    param_names = ("dispatcher",)

    def setup(self, dispatcher: str) -> None:
        try:
            self.call, self.x, self.y = _others()[dispatcher]()
        except ImportError as error:
            raise NotImplementedError(dispatcher) from error  # asv skips it

    def track_call(self, dispatcher: str) -> float:
        """Two arguments."""
        if dispatcher == "torch.library, C++ kernel":
            return nanoseconds(self.call, self.x, self.y)
        return overhead(self.call, self.x, self.y)

    track_call.unit = "ns"  # type: ignore[attr-defined]  # asv reads it


class Layers:
    """A whole `add`: autograd, and the CPU kernel in numpy."""

    def __init__(self) -> None:
        self.lab = Lab()
        self.x, self.y = tensor([1.0, 2.0]), tensor([3.0, 4.0])
        self.leaf = tensor([1.0, 2.0], requires_grad=True)
        for _ in range(3):  # the first call of an operator looks its kernel up, which is not what is measured here
            self.time_add()
            self.time_add_recorded()
            self.time_vmap_of_add()

    def time_add(self) -> None:
        """Nothing requires gradients."""
        self.lab.add(self.x, self.y)

    def time_add_recorded(self) -> None:
        """One tensor does."""
        self.lab.add(self.leaf, self.y)

    def time_vmap_of_add(self) -> None:
        """Both slices of a batch of two."""
        self.lab.vmap(self.lab.add)(self.x, self.y)


Made = tuple[Callable[[Any, Any], object], object, object]


def _others() -> dict[str, Callable[[], Made]]:
    return {
        "singledispatch": _singledispatch,
        "multipledispatch": _multipledispatch,
        "plum": _plum,
        "ovld": _ovld,
        "torch.library": _torch_library,
        "torch.library, C++ kernel": _torch_cpp,
    }


def _singledispatch() -> Made:
    call = singledispatch(lambda x, y: y)
    call.register(Tensor, kernel)
    return call, tensor([1.0]), tensor([2.0])


def _multipledispatch() -> Made:
    dispatcher: Any = import_module("multipledispatch.dispatcher").Dispatcher("foo")
    dispatcher.add((Tensor, Tensor), kernel)
    dispatcher.add((int, int), lambda x, y: y)
    return dispatcher, tensor([1.0]), tensor([2.0])


def _plum() -> Made:
    plum: Any = import_module("plum")
    dispatch = plum.Dispatcher()

    def foo(x: Tensor, y: Tensor) -> object:
        return x

    def foo_of_ints(x: int, y: int) -> object:
        return y

    foo_of_ints.__name__ = "foo"
    foo.__annotations__ = {"x": Tensor, "y": Tensor}
    foo_of_ints.__annotations__ = {"x": int, "y": int}
    foo.__qualname__ = foo_of_ints.__qualname__ = "foo"
    dispatch(foo_of_ints)
    return dispatch(foo), tensor([1.0]), tensor([2.0])


def _ovld() -> Made:
    ovld: Any = import_module("ovld")

    def foo(x: Tensor, y: Tensor) -> object:
        return x

    def foo_of_ints(x: int, y: int) -> object:
        return y

    foo.__annotations__ = {"x": Tensor, "y": Tensor}
    foo_of_ints.__annotations__ = {"x": int, "y": int}
    made = ovld.Ovld()
    made.register(foo)
    made.register(foo_of_ints)
    return made, tensor([1.0]), tensor([2.0])


def _torch_library() -> Made:
    torch: Any = import_module("torch")
    namespace = "dispatchlab_bench"
    library = torch.library.Library(namespace, "FRAGMENT")
    library.define("foo(Tensor x, Tensor y) -> Tensor")
    library.impl("foo", kernel, "CPU")
    library.impl("foo", torch.library.fallthrough_kernel, "AutogradCPU")
    call: Any = torch.ops.dispatchlab_bench.foo.default
    _kept_alive.append(library)
    return call, torch.ones(1), torch.ones(1)


_kept_alive: list[object] = []


def _torch_cpp() -> Made:
    torch: Any = import_module("torch")
    return torch.ops.aten.add.Tensor, torch.ones(1), torch.ones(1)
