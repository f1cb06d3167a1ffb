"""What tracing runs for a call of an operator, seen by wrappers where make_fx, AOTAutograd and torch.export look."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch._C import DispatchKey
from torch._decomp import core_aten_decompositions, decomposition_table, global_decomposition_table
from torch._dynamo.backends.registry import lookup_backend
from torch._functorch import aot_autograd
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.fx.experimental import proxy_tensor
from torch.fx.proxy import TracerBase
from torch.utils._pytree import tree_flatten, tree_unflatten

from dispatchlab.model.python_layer import Decompositions
from dispatchlab.pytorch.introspection.package_paths import package_roots
from dispatchlab.pytorch.introspection.python_sites import FunctionSites
from dispatchlab.questions.explain.result import ImplementedBy
from tests.live.mode_calls import OperatorCall, Seen

try:
    from torch._export.utils import _special_op_to_preserve_cia
except ImportError:  # PyTorch 2.4 preserves none
    _special_op_to_preserve_cia = None  # type: ignore[assignment]

_COMPOSITE = DispatchKey.CompositeImplicitAutograd


@functools.cache
def table_of(name: Decompositions) -> Mapping[Any, Callable[..., Any]]:
    """A table of decompositions by its name."""
    match name:
        case "none":
            return {}
        case "all":
            return decomposition_table
        case "pre_autograd":
            return global_decomposition_table["pre_autograd"]
        case "core_aten":
            return dict(core_aten_decompositions())
        case "inductor":
            from torch._inductor.decomposition import select_decomp_table

            return select_decomp_table()


def function_of(call: OperatorCall) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    """A call as a function of its tensors, and copies of these; the other arguments are part of the function."""
    leaves, spec = tree_flatten((call.args, call.kwargs))
    places = [at for at, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    kept = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]

    def called(*tensors: torch.Tensor) -> Any:
        values = list(kept)
        for at, tensor in zip(places, tensors, strict=True):
            values[at] = tensor
        args, kwargs = tree_unflatten(values, spec)
        return call.operator(*args, **kwargs)

    return called, [leaves[at].clone() for at in places]


def seen_under_make_fx(call: OperatorCall, table: Decompositions, *, symbolic: bool = False) -> tuple[Seen, ...]:
    """What make_fx runs for a call when it traces with a table of decompositions."""
    called, tensors = function_of(call)
    decompositions = table_of(table)
    tracer = GraphTracer(call.operator)
    with tracer.planted():
        tracer.started = True
        try:
            proxy_tensor.make_fx(
                called, decomposition_table=decompositions, tracing_mode="symbolic" if symbolic else "real"
            )(*tensors)
        except Exception as error:
            if "get value out of a tracing tensor" in str(error):
                if "proxy" in tracer.reached:
                    tracer.seen.append(Seen(ImplementedBy.UNSUPPORTED, ""))
            elif not tracer.kernel_fails(error):
                raise
    return tracer.concluded()


def seen_under_aot_eager(call: OperatorCall) -> tuple[Seen, ...]:
    """What `torch.compile(backend="aot_eager")` runs for a call, from Dynamo to the call of what it compiled."""
    compiler = lookup_backend("aot_eager")
    tracer = GraphTracer(call.operator)

    def backend(module: Any, inputs: Any, **kwargs: Any) -> Any:
        tracer.started = True
        return compiler(module, inputs, **kwargs)

    return tracer.compiled(call, backend)


def seen_under_export(call: OperatorCall, *, strict: bool = False) -> tuple[tuple[Seen, ...], tuple[Seen, ...]]:
    """What torch.export runs for a call, and then `run_decompositions()`."""
    called, tensors = function_of(call)

    class Module(torch.nn.Module):
        def forward(self, *tensors: torch.Tensor) -> Any:
            return called(*tensors)

    tracer = GraphTracer(call.operator)
    with tracer.planted(), tracer.no_analysis():
        tracer.started = True
        program = torch.export.export(Module(), tuple(tensors), strict=strict)
        first = tracer.concluded()
        is_left = any(node.target is call.operator for node in program.graph.nodes)
        if first[-1].kind is not ImplementedBy.GRAPH_NODE or not is_left:  # PyTorch 2.4 takes out what gives nothing
            return first, ()
        again = GraphTracer(call.operator)
        with again.planted():
            again.started = True
            program.run_decompositions()
        return first, again.concluded()


def lacks_kernel(operator: Any, error: Exception) -> bool:
    """Whether an error says that there is no kernel of the operator for the device of its arguments."""
    return f"Could not run '{operator.name()}' with arguments from" in str(error)


class GraphTracer:
    """Wrappers for one operator, which note the first thing that runs for it, and what follows when this gives up."""

    def __init__(self, operator: Any) -> None:
        self.operator = operator
        self.seen: list[Seen] = []
        self.started = False
        self.reached: set[str] = set()
        self.others = False
        self._done = False
        self._composite = operator.py_kernels.get(_COMPOSITE)
        self._asked: list[tuple[str, Any]] = []
        self._sites = FunctionSites(package_roots())

    def concluded(self) -> tuple[Seen, ...]:
        """What was seen; the C++ kernel that ran where nothing was."""
        if self.seen and not self.seen[-1].gave_up:
            return tuple(self.seen)
        if "proxy" in self.reached:
            kind = ImplementedBy.DIRECT
        elif "functional" in self.reached:
            kind = ImplementedBy.FUNCTIONALIZATION
        else:
            kind = ImplementedBy.COMPOSITE if self.others else ImplementedBy.KERNEL
        return (*self.seen, Seen(kind, ""))

    def compiled(self, call: OperatorCall, backend: Callable[..., Any]) -> tuple[Seen, ...]:
        """What was seen when torch.compile compiled a call, whole, and ran it."""
        called, tensors = function_of(call)
        torch._dynamo.reset()
        with self.planted():
            try:
                torch.compile(called, backend=backend, fullgraph=True, dynamic=False)(*tensors)
            except Exception as error:
                if not self.kernel_fails(error):
                    raise
        return self.concluded() if self.started else ()

    def kernel_fails(self, error: Exception) -> bool:
        """Whether an error comes after all that is compared: the operator was seen, and has no kernel to run."""
        seen = self._done or bool(self.reached)
        return seen and isinstance(error, NotImplementedError) and lacks_kernel(self.operator, error)

    def note(self, kind: ImplementedBy, function: str, *, gave_up: bool = False) -> None:
        """Note what runs; what comes after the end is not the operator's own."""
        if self.started and not self._done:
            self.seen.append(Seen(kind, function, gave_up))
            self._done = not gave_up

    def _python_kernel(self, kernel: Any) -> Callable[..., Any]:
        @functools.wraps(kernel)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if not self._asked:
                self.note(ImplementedBy.PYTHON_KERNEL, self._sites.of(kernel).function)
            return kernel(*args, **kwargs)

        return wrapper

    def _asks(self, who: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """A mode's own handler, which notes that the operator reached it."""

        def wrapper(mode: Any, func: Any, *rest: Any, **kwargs: Any) -> Any:
            if self.started and who != "fake":
                if func is self.operator:
                    self.reached.add(who)
                else:
                    self.others = True
            self._asked.append((who, func))
            try:
                return original(mode, func, *rest, **kwargs)
            finally:
                self._asked.pop()

        return wrapper

    def _asked_by(self, *who: str) -> bool:
        return bool(self._asked) and self._asked[-1][1] is self.operator and self._asked[-1][0] in who

    def _handle(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(mode: Any, func: Any, *rest: Any) -> Any:
            table = getattr(mode, "decomposition_table", None)
            if table is None:  # before PyTorch 2.13
                table = vars(proxy_tensor)["CURRENT_DECOMPOSITION_TABLE"]
            if func is not self.operator or func not in table or self._done:
                return original(mode, func, *rest)
            name = self._sites.of(table[func]).function
            kind = ImplementedBy.DECOMPOSITION
            if name.endswith("_special_op_to_decompose_cia"):
                kind, name = ImplementedBy.COMPOSITE, ""
            elif table[func] is self._composite:
                kind = ImplementedBy.COMPOSITE
            at = len(self.seen)
            self.note(kind, name)
            made = original(mode, func, *rest)
            if made is NotImplemented and at < len(self.seen):
                self.seen[at] = self.seen[at]._replace(gave_up=True)
                self._done = False
            return made

        return wrapper

    def _decompose(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(func: Any, *args: Any, **kwargs: Any) -> Any:
            python = func.py_kernels.get(_COMPOSITE)
            there = python is not None or torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), _COMPOSITE)
            preserved = python is not None and python is _special_op_to_preserve_cia
            if self._asked_by("functional", "proxy") and there and not preserved:
                name = "" if python is None else self._sites.of(python).function
                table = table_of("core_aten").get(func)
                if name.endswith("_special_op_to_decompose_cia"):
                    self.note(ImplementedBy.COMPOSITE, "")
                elif table is not None and python is table and self._sites.of(table).function != "":
                    self.note(ImplementedBy.DECOMPOSITION, name)
                else:
                    self.note(ImplementedBy.COMPOSITE, name)
            return original(func, *args, **kwargs)

        return wrapper

    def _create(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(tracer: Any, kind: str, target: Any, *rest: Any, **kwargs: Any) -> Any:
            if kind == "call_function" and isinstance(target, torch._ops.OpOverload) and self._asked_by("proxy"):
                self.note(ImplementedBy.GRAPH_NODE, str(target.name()))  # type: ignore[no-untyped-call]
            return original(tracer, kind, target, *rest, **kwargs)

        return wrapper

    @contextmanager
    def no_analysis(self) -> Iterator[None]:
        """Note nothing in the run before autograd by which AOTAutograd learns what is written, as of export in 2.4."""
        original = vars(aot_autograd)["run_functionalized_fw_and_collect_metadata"]

        def analysis(*args: Any, **kwargs: Any) -> Callable[..., Any]:
            run = original(*args, **kwargs)

            def wrapper(*tensors: Any) -> Any:
                self.started = False
                try:
                    return run(*tensors)
                finally:
                    self.started = True

            return wrapper

        with mock.patch.object(aot_autograd, "run_functionalized_fw_and_collect_metadata", analysis):
            yield

    @contextmanager
    def planted(self) -> Iterator[None]:
        """With the wrappers in their places."""
        operator = self.operator
        plant = mock.patch.object
        with ExitStack() as stack:
            enter = stack.enter_context
            kernels = {
                key: self._python_kernel(kernel)
                for key, kernel in operator.py_kernels.items()
                if key != DispatchKey.Meta and callable(kernel)
            }
            enter(mock.patch.dict(operator.py_kernels, kernels))
            operator._dispatch_cache.clear()
            stack.callback(operator._dispatch_cache.clear)
            functional = FunctionalTensorMode.__torch_dispatch__
            enter(plant(FunctionalTensorMode, "__torch_dispatch__", self._asks("functional", functional)))
            enter(plant(FakeTensorMode, "dispatch", self._asks("fake", FakeTensorMode.dispatch)))
            enter(plant(proxy_tensor, "proxy_call", self._asks("proxy", proxy_tensor.proxy_call)))
            enter(plant(proxy_tensor, "maybe_handle_decomp", self._handle(proxy_tensor.maybe_handle_decomp)))
            enter(plant(torch._ops.OpOverload, "decompose", self._decompose(torch._ops.OpOverload.decompose)))
            enter(plant(TracerBase, "create_proxy", self._create(TracerBase.create_proxy)))
            yield
