"""What torch.compile with Inductor runs for a call of an operator, seen by wrappers where it looks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch._C import DispatchKey
from torch._guards import detect_fake_mode as fake_mode_of
from torch._inductor import config as inductor_config
from torch._inductor import graph as inductor_graph
from torch._inductor import lowering
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch.fx.experimental import proxy_tensor

from dispatchlab.pytorch.introspection.package_paths import package_roots
from dispatchlab.pytorch.introspection.python_sites import FunctionSites
from dispatchlab.questions.explain.result import ImplementedBy
from tests.live.mode_calls import OperatorCall, Seen
from tests.live.traced_calls import function_of, lacks_kernel

try:
    from torch._inductor.compile_fx import record_original_output_strides
except ImportError:  # PyTorch 2.4 records none
    record_original_output_strides = bool  # type: ignore[assignment]


def seen_under_inductor(call: OperatorCall, *, code: bool = False) -> tuple[Seen, ...]:
    """What `torch.compile` runs for a call, from Dynamo to the lowerings of Inductor, seen by wrappers.

    Args:
        call: the call.
        code: have Inductor write and compile its code, too, and run it; this takes seconds.
    """
    called, tensors = function_of(call)
    tracer = _CompileTracer(call.operator)

    def inner(module: Any, inputs: Any, **kwargs: Any) -> Any:
        if not code:
            return tracer.lower(module, inputs, **kwargs)
        tracer.check(module)
        return compile_fx_inner(module, inputs, **kwargs)

    def backend(module: Any, inputs: Any) -> Any:
        tracer.started = True
        return compile_fx(module, inputs, inner_compile=inner)

    torch._dynamo.reset()
    with tracer.planted(), inductor_config.patch(fx_graph_cache=False):
        try:
            torch.compile(called, backend=backend, fullgraph=True, dynamic=False)(*tensors)
        except Exception as error:
            lacks = isinstance(error, NotImplementedError) and lacks_kernel(call.operator, error)
            # PyTorch 2.4 cannot run the seeds of Inductor that are in a graph.
            if not tracer.lowered and not (tracer.seen and lacks):
                raise
    return tuple(tracer.seen)


class _CompileTracer:
    """Wrappers for one operator, which note the first thing that runs for it, and what follows when this gives up."""

    def __init__(self, operator: Any) -> None:
        self.operator = operator
        self.seen: list[Seen] = []
        self.started = False
        self.traced = False
        self.lowered = False  # all was seen, and the graph runs as it is
        self._done = False
        self._depth = 0
        self._sites = FunctionSites(package_roots())

    def _noted(self, kind: ImplementedBy, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if not self.started or self._done or self._depth:
                return function(*args, **kwargs)
            self._depth += 1
            self.seen.append(Seen(kind, self._sites.of(function).function))
            self._done = True
            try:
                result = function(*args, **kwargs)
            finally:
                self._depth -= 1
            if result is NotImplemented:
                self.seen[-1] = self.seen[-1]._replace(gave_up=True)
                self._done = False
            return result

        return wrapper

    def _fallback(self, kind: ImplementedBy) -> Callable[..., Any]:
        """A function that makes a fallback, and notes the one that it makes for the operator."""
        original = lowering.make_fallback if kind is ImplementedBy.IMPLICIT_FALLBACK else lowering.fallback_handler

        def wrapper(target: Any, *args: Any, **kwargs: Any) -> Any:
            if target is self.operator and not self._done and not self._depth:
                self.seen.append(Seen(kind, ""))
                self._done = True
            return original(target, *args, **kwargs)  # type: ignore[no-untyped-call]

        return wrapper

    def _decomp(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(mode: Any, func: Any, *rest: Any) -> Any:
            made = original(mode, func, *rest)
            if func is self.operator and made is NotImplemented and not self._done:
                self.traced = True
            return made

        return wrapper

    def check(self, module: Any) -> None:
        """Note that an operator was gone before the graph, or that it is not there any more."""
        left = any(node.target is self.operator for node in module.graph.nodes)
        if not self._done and not left and not self.traced:
            self.seen.append(Seen(ImplementedBy.COMPOSITE, ""))
            self._done = True

    def lower(self, module: Any, inputs: Any, **kwargs: Any) -> Any:
        """Inductor's own lowering of a graph, without code."""
        self.check(module)
        if self._done:
            self.lowered = True
            return module.forward
        record_original_output_strides(module)
        fake = fake_mode_of(inputs) or fake_mode_of([node.meta.get("val") for node in module.graph.nodes])
        # The graph is run again, and what depends on data has new symbols then.
        lowered = GraphLowering(module, example_inputs=inputs, shape_env=fake.shape_env if fake else None)
        with V.set_graph_handler(lowered), V.set_fake_mode(fake):
            lowered.run(*inputs)
        self.lowered = True
        return module.forward

    @contextmanager
    def planted(self) -> Iterator[None]:
        """With the wrappers in their places."""
        operator = self.operator
        with ExitStack() as stack:
            enter = stack.enter_context
            table = lowering.lowerings
            enter(mock.patch.dict(table))
            known = set(lowering.fallbacks)  # a graph adds the fallbacks that it makes
            stack.callback(_restore, lowering.fallbacks, known)
            kernels = {
                key: self._noted(ImplementedBy.PYTHON_KERNEL, kernel)
                for key, kernel in operator.py_kernels.items()
                if key != DispatchKey.Meta
            }
            enter(mock.patch.dict(operator.py_kernels, kernels))
            operator._dispatch_cache.clear()
            stack.callback(operator._dispatch_cache.clear)
            decompositions = select_decomp_table()
            if operator in decompositions:
                planted = {operator: self._noted(ImplementedBy.DECOMPOSITION, decompositions[operator])}
                enter(mock.patch.dict(decompositions, planted))
            if operator in table:
                kind = ImplementedBy.FALLBACK if operator in lowering.fallbacks else ImplementedBy.LOWERING
                enter(mock.patch.dict(table, {operator: self._noted(kind, table[operator])}))
            else:
                enter(
                    mock.patch.object(inductor_graph, "make_fallback", self._fallback(ImplementedBy.IMPLICIT_FALLBACK))
                )
            enter(mock.patch.object(inductor_graph, "fallback_handler", self._fallback(ImplementedBy.FALLBACK)))
            enter(
                mock.patch.object(proxy_tensor, "maybe_handle_decomp", self._decomp(proxy_tensor.maybe_handle_decomp))
            )
            yield


def _restore(fallbacks: Any, known: set[Any]) -> None:
    fallbacks.clear()
    fallbacks.update(known)
