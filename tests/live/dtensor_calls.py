"""What DTensor runs for a call of an operator, seen by wrappers in its registries and by the local tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed
from torch._C import DispatchKey
from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._pytree import tree_map_only

try:
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor.placement_types import Partial, Placement
except ImportError:  # PyTorch 2.4 has them elsewhere
    from torch.distributed._tensor import DTensor, Replicate, Shard  # type: ignore[attr-defined]
    from torch.distributed._tensor.placement_types import Partial, Placement
try:
    from torch.distributed.tensor._decompositions import DecompShardingStrategy as Strategies
except ImportError:  # before PyTorch 2.11, no rule is derived
    Strategies = None  # type: ignore[assignment,misc]

from dispatchlab.pytorch.introspection.package_paths import package_roots
from dispatchlab.pytorch.introspection.python_sites import FunctionSites
from dispatchlab.questions.explain.result import ImplementedBy
from tests.live.mode_calls import OperatorCall, Seen

PLACEMENTS: dict[str, Placement] = {
    "Replicate()": Replicate(),
    "Shard(0)": Shard(0),
    "Shard(1)": Shard(1),
    "Partial()": Partial(),
}
"""How tensors can be placed, by what says so."""


@functools.cache
def _mesh() -> Any:
    """A mesh of two, of which the other one is nowhere."""
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    return init_device_mesh("cpu", (2,))


class _Local(torch.Tensor):
    """A local tensor that notes the operators that are called on it."""

    seen: list[Any] = []  # noqa: RUF012 (of all of them)
    plain: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> _Local:
        made: _Local = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            dtype=inner.dtype,
            device=inner.device,
            storage_offset=inner.storage_offset(),
        )
        made.plain = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        cls.seen.append(func)
        plain = tree_map_only(_Local, lambda one: one.plain, (args, kwargs or {}))
        return tree_map_only(torch.Tensor, _Local, func(*plain[0], **plain[1]))


def _placed(one: torch.Tensor, placement: Placement) -> DTensor:
    """A tensor with a placement, or replicated where it cannot have it."""
    local = one.clone()
    sharded = isinstance(placement, Shard) and one.layout == torch.strided
    if isinstance(placement, Shard) and sharded and one.dim() > placement.dim and one.shape[placement.dim] > 1:
        local = local.chunk(2, placement.dim)[0].clone()  # of an odd size, this one has more than the other
    elif not (placement.is_partial() and one.is_floating_point()):
        placement = Replicate()
    layout: dict[str, Any] = {"shape": one.shape, "stride": one.stride()} if one.layout == torch.strided else {}
    return DTensor.from_local(_Local(local), _mesh(), [placement], run_check=False, **layout)


def seen_with_dtensors(
    call: OperatorCall, placement: Placement | None = None
) -> tuple[tuple[Seen, ...], tuple[Seen, ...]]:
    """What DTensor runs for a call whose tensors all have a placement, and what then runs on the local tensors.

    Args:
        call: the call.
        placement: a placement; replicated when left out.

    Raises:
        Exception: DTensor or its rule refuses the call.
    """
    placed = placement or Replicate()
    args, kwargs = tree_map_only(torch.Tensor, lambda one: _placed(one, placed), (call.args, call.kwargs))
    tracer = _DTensorTracer(call.operator)
    with tracer.planted():
        _Local.seen.clear()
        try:
            call.operator(*args, **kwargs)
        except NotImplementedError as error:
            if f"Operator {call.operator} does not have a sharding strategy registered" not in str(error):
                raise
            tracer.seen.append(Seen(ImplementedBy.UNSUPPORTED, ""))
    rewritten = getattr(DTensor._op_dispatcher.sharding_propagator, "squeeze_op_to_dims_variant", {})
    called = rewritten.get(call.operator, call.operator)
    local = (Seen(ImplementedBy.KERNEL, ""),) if called in _Local.seen else ()
    if not tracer.seen:
        if tracer.asked:
            tracer.seen.append(Seen(ImplementedBy.DIRECT, ""))
        else:
            tracer.seen.append(Seen(ImplementedBy.COMPOSITE if _Local.seen else ImplementedBy.KERNEL, ""))
    return tuple(tracer.seen), local


class _DTensorTracer:
    """Wrappers for one operator in the registries of DTensor."""

    def __init__(self, operator: Any) -> None:
        self.operator = operator
        self.seen: list[Seen] = []
        self.asked = False
        self._depth = 0
        self._sites = FunctionSites(package_roots())

    def _noted(self, kind: ImplementedBy, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if not self._depth:
                self.seen.append(Seen(kind, self._sites.of(function).function))
            self._depth += 1
            try:
                return function(*args, **kwargs)
            finally:
                self._depth -= 1

        return wrapper

    def _derived(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any) -> Any:
            schema = next(one for one in arguments if hasattr(one, "op"))  # in PyTorch 2.11 it is static
            if schema.op is not self.operator or self._depth:
                return original(*arguments)
            python = schema.op.py_kernels.get(DispatchKey.CompositeImplicitAutograd)
            if schema.op in decomposition_table:
                kind, name = ImplementedBy.DECOMPOSITION, self._sites.of(decomposition_table[schema.op]).function
            else:
                kind, name = ImplementedBy.COMPOSITE, "" if python is None else self._sites.of(python).function
            self.seen.append(Seen(kind, name, gave_up=True))
            at = len(self.seen) - 1
            self._depth += 1
            try:
                made = original(*arguments)
            finally:
                self._depth -= 1
            if made is not None:
                self.seen[at] = Seen(kind, name)
            return made

        return wrapper

    def _propagate(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(dispatcher: Any, operator: Any, *rest: Any, **named: Any) -> Any:
            self.asked = self.asked or operator is self.operator
            return original(dispatcher, operator, *rest, **named)

        return wrapper

    def _fake(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The fake call, which DTensor makes to know the shapes of the results."""

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            try:
                return original(*args, **kwargs)
            finally:
                self._depth -= 1

        return wrapper

    def _decompose(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(func: Any, *args: Any, **kwargs: Any) -> Any:
            if func is self.operator and not self._depth and self.asked:
                self.seen.append(Seen(ImplementedBy.COMPOSITE, ""))
            return original(func, *args, **kwargs)

        return wrapper

    @contextmanager
    def planted(self) -> Iterator[None]:
        """With the wrappers in their places, and nothing in the caches."""
        operator = self.operator
        dispatcher: Any = DTensor._op_dispatcher
        propagator = dispatcher.sharding_propagator
        plant = mock.patch.object
        with ExitStack() as stack:
            enter = stack.enter_context
            handlers = dispatcher._custom_op_handlers
            if operator in handlers:
                noted = self._noted(ImplementedBy.DTENSOR_HANDLER, handlers[operator])
                enter(mock.patch.dict(handlers, {operator: noted}))
            for table in (propagator.op_strategy_funcs, propagator.op_to_rules):
                if operator in table:
                    noted = self._noted(ImplementedBy.SHARDING_RULE, table[operator])
                    enter(mock.patch.dict(table, {operator: noted}))
            single = getattr(propagator, "op_single_dim_strategy_funcs", {}).get(operator)
            if single is not None:
                enter(plant(single, "func", self._noted(ImplementedBy.SHARDING_RULE, single.func)))
            if Strategies is not None:
                derived = self._derived(Strategies.propagate_strategy)
                is_static = isinstance(vars(Strategies)["propagate_strategy"], staticmethod)
                enter(plant(Strategies, "propagate_strategy", staticmethod(derived) if is_static else derived))
            new = "_propagate_op_sharding_dispatch_slow_path"
            propagate = new if hasattr(dispatcher, new) else "dispatch"
            enter(plant(type(dispatcher), propagate, self._propagate(getattr(type(dispatcher), propagate))))
            enter(plant(FakeTensorMode, "dispatch", self._fake(FakeTensorMode.dispatch)))
            enter(plant(torch._ops.OpOverload, "decompose", self._decompose(torch._ops.OpOverload.decompose)))
            cached = propagator.propagate_op_sharding
            getattr(cached, "cache", cached).cache_clear()
            getattr(torch._C, "_clear_DTensor_sharding_propagator_cache", bool)()
            yield
