"""Calls of PyTorch's operators with real arguments, and a tracer that sees what runs for them under FakeTensorMode."""

from __future__ import annotations

import functools
import json
import logging
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Any, NamedTuple, cast
from unittest import mock

import torch
from torch._C import DispatchKey
from torch._subclasses import fake_impls, fake_tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from dispatchlab.model.python_layer import Mode
from dispatchlab.pytorch.introspection.package_paths import package_roots
from dispatchlab.pytorch.introspection.python_sites import FunctionSites
from dispatchlab.questions.explain.explain_operator import explain_operator
from dispatchlab.questions.explain.result import Implementation, ImplementedBy


class OperatorCall(NamedTuple):
    """A call that a program of PyTorch made: an overload and its arguments."""

    operator: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the first call of each overload."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[str, OperatorCall] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keep = func.name() not in self.found and all(
            type(one) is torch.Tensor for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)
        )
        if keep:
            copy = tree_map_only(torch.Tensor, lambda one: one.detach().clone(), (args, kwargs or {}))
            self.found[func.name()] = OperatorCall(func, *copy)
        return func(*args, **(kwargs or {}))


def operator_calls(count: int, seed: int, *, sizes: bool = False) -> list[OperatorCall]:
    """Calls of this many operators, drawn from those that the samples of PyTorch's own tests make.

    A sample gives the overload that it calls, which may be above autograd, and those that the modes see below it.

    Args:
        count: how many.
        seed: the seed of the draw.
        sizes: prefer samples with a size that can be symbolic, to the first sample of each operator.
    """
    from torch.testing._internal.common_methods_invocations import op_db

    entries = list(op_db)
    random.Random(seed).shuffle(entries)
    found: dict[str, OperatorCall] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for entry in entries:
            if len(found) >= count + count // 10:
                break
            try:
                samples = list(islice(entry.sample_inputs("cpu", torch.float32), 12 if sizes else 1))  # type: ignore[no-untyped-call]
                sample = next((one for one in samples if _has_size(one.input)), samples[0])
            except Exception:  # an operator without this dtype, or without samples
                continue
            called = _overload_called(entry, (sample.input, *sample.args), sample.kwargs)
            if called is not None:
                found.setdefault(called.operator.name(), called)
            mode = Calls()
            try:
                with mode:
                    entry.op(sample.input, *sample.args, **sample.kwargs)
            except Exception:  # a sample that PyTorch itself refuses
                continue
            for name, call in mode.found.items():
                known = found.setdefault(name, call)
                if sizes and not _has_size(known[1:]) and _has_size(call[1:]):
                    found[name] = call
        for name, call in list(found.items()):
            if call.operator.namespace not in ("aten", "prims") or not _runs(call):
                del found[name]
    return list(found.values())[:count]


def _has_size(value: Any) -> bool:
    """Whether a size of a tensor can be symbolic: 0 and 1 stay what they are."""
    return any(isinstance(one, torch.Tensor) and any(size > 1 for size in one.shape) for one in tree_leaves(value))


def _runs(call: OperatorCall) -> bool:
    """Whether PyTorch accepts the call, on copies of its tensors."""
    args, kwargs = tree_map_only(torch.Tensor, torch.clone, (call.args, call.kwargs))
    try:
        call.operator(*args, **kwargs)
    except Exception:
        return False
    return torch._C._dispatch_has_kernel(call.operator.name())


def specs_of(call: OperatorCall) -> list[str]:
    """The arguments as `explain --arg` takes them."""
    arguments = call.operator._schema.arguments
    bound = {**dict(zip((one.name for one in arguments), call.args, strict=False)), **call.kwargs}
    specs = []
    for argument in arguments:
        value = bound.get(argument.name)
        if "Tensor" not in str(argument.type):
            continue
        if isinstance(value, torch.Tensor):
            specs.append(f"{argument.name}={_word(value)}")
        elif isinstance(value, (list, tuple)):
            specs.append(f"{argument.name}=list:{', '.join(map(_word, value))}")
    return specs


_LAYOUT_WORDS = {torch.sparse_coo: " sparse", torch.sparse_csr: " csr", torch.sparse_csc: " csc"}


def _word(value: Any) -> str:
    return f"cpu{_LAYOUT_WORDS.get(value.layout, '')}" if isinstance(value, torch.Tensor) else "none"


def _overload_called(entry: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OperatorCall | None:
    packet = getattr(torch.ops.aten, entry.aten_name or entry.name, None)
    if packet is None:
        return None
    try:
        overload = torch._C._jit_resolve_packet(packet._qualified_op_name, *args, **kwargs)
    except RuntimeError:  # the function of the sample takes other arguments than the operator
        return None
    return OperatorCall(getattr(packet, overload or "default"), args, kwargs)


class Seen(NamedTuple):
    """What ran for a call: a kind of `implementation.ImplementedBy`, the function, and whether it gave up."""

    kind: ImplementedBy
    function: str
    gave_up: bool = False


def seen_under_fake(call: OperatorCall, *, symbolic: bool = False) -> tuple[Seen, ...]:
    """What FakeTensorMode runs for a call, seen by wrappers in the places where it looks.

    It is empty if no size is symbolic, and where a number is asked for and the call gives a tensor.

    Args:
        call: the call.
        symbolic: make the sizes of the tensors symbolic; those of 0 and 1 stay what they are.
    """
    shapes = ShapeEnv() if symbolic else None
    mode = FakeTensorMode(shape_env=shapes)
    mode.cache_enabled = False
    args, kwargs = tree_map_only(
        torch.Tensor, lambda one: mode.from_tensor(one, static_shapes=not symbolic), (call.args, call.kwargs)
    )
    if symbolic and not any(getattr(one, "_has_symbolic_sizes_strides", False) for one in tree_leaves((args, kwargs))):
        return ()
    tracer = _FakeTracer(call.operator)
    with tracer.planted():
        try:
            with mode:
                call.operator(*args, **kwargs)
        except Exception as error:
            if "Expected a value of type" in str(error):  # a fake tensor gives no number
                return ()
            tracer.error = error
    return tuple(tracer.seen) or (Seen(ImplementedBy.COMPOSITE if tracer.others else ImplementedBy.KERNEL, ""),)


class _FakeTracer:
    """Wrappers for one operator, which note what its first call under the mode runs and nothing that this calls."""

    def __init__(self, operator: Any) -> None:
        self.operator = operator
        self.seen: list[Seen] = []
        self.error: Exception | None = None
        self.others = False
        self._is_over = False  # 2.4 calls the mode a second time from the autograd kernel of detach
        self._stack: list[Any] = []
        self._depth = 0
        self._sites = FunctionSites(package_roots())

    @property
    def _asked(self) -> bool:
        first = len(self._stack) == 1 and self._stack[0] is self.operator and not self._depth
        return first and not self.others and not self._is_over

    def _noted(self, kind: ImplementedBy, function: Callable[..., Any], value: object = None) -> Callable[..., Any]:
        """A function that notes its first call for the operator."""

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if not self._asked:
                return function(*args, **kwargs)
            at = len(self.seen)
            self.seen.append(Seen(kind, self._sites.of(value or function).function))
            self._depth += 1
            try:
                result = function(*args, **kwargs)
            finally:
                self._depth -= 1
            if result is NotImplemented:
                self.seen[at] = self.seen[at]._replace(gave_up=True)
            return result

        return wrapper

    def _dispatch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(mode: Any, func: Any, *rest: Any) -> Any:
            if func is not self.operator and not self._stack and not self.seen:
                self.others = True
            self._stack.append(func)
            try:
                return original(mode, func, *rest)
            finally:
                self._stack.pop()
                self._is_over = self._is_over or (func is self.operator and not self._stack)

        return wrapper

    def _decompose(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(func: Any, *args: Any, **kwargs: Any) -> Any:
            if func is not self.operator or not self._asked:
                return original(func, *args, **kwargs)
            in_python = func.py_kernels.get(DispatchKey.CompositeImplicitAutograd)
            name = "" if in_python is None else self._sites.of(in_python).function
            there = in_python is not None or torch._C._dispatch_has_kernel_for_dispatch_key(
                func.name(), DispatchKey.CompositeImplicitAutograd
            )
            if there:
                self.seen.append(Seen(ImplementedBy.COMPOSITE, name))
            self._depth += 1
            try:
                return original(func, *args, **kwargs)
            finally:
                self._depth -= 1

        return wrapper

    @contextmanager
    def _kernel(self, mode: Any) -> Iterator[None]:
        asked = self._asked
        if asked:
            self.seen.append(Seen(ImplementedBy.META, ""))
            self._depth += 1
        try:
            with _IN_KERNEL(mode):
                yield
        except NotImplementedError:
            if asked:
                self.seen[-1] = self.seen[-1]._replace(gave_up=True)
            raise
        finally:
            self._depth -= asked

    @contextmanager
    def planted(self) -> Iterator[None]:
        """With the wrappers in their places."""
        plant = mock.patch.object
        operator = self.operator
        rules = [
            (
                check,
                self._noted(
                    ImplementedBy.FAKE_RULE, rule, fake_impls.op_implementations_dict.get(operator) if at == 0 else rule
                ),
            )
            for at, (check, rule) in enumerate(fake_impls.op_implementations_checks)
        ]
        fast = fake_impls.get_fast_op_impls()
        with ExitStack() as stack:
            enter = stack.enter_context
            enter(plant(FakeTensorMode, "dispatch", self._dispatch(FakeTensorMode.dispatch)))
            enter(plant(torch._ops.OpOverload, "decompose", self._decompose(torch._ops.OpOverload.decompose)))
            enter(plant(fake_tensor, "op_implementations_checks", rules))
            enter(plant(fake_tensor, "in_kernel_invocation_manager", self._kernel))
            enter(
                plant(
                    fake_tensor,
                    "run_fallback_kernel",
                    self._noted(ImplementedBy.REAL_KERNEL, fake_tensor.run_fallback_kernel),
                )
            )
            for table, kind in (
                (torch._decomp.decomposition_table, ImplementedBy.DECOMPOSITION),
                (fast, ImplementedBy.FAST_RULE),
            ):
                if operator in table:
                    enter(mock.patch.dict(table, {operator: self._noted(kind, table[operator])}))
            if hasattr(operator, "prim_meta_impl"):
                enter(plant(operator, "prim_meta_impl", self._noted(ImplementedBy.PRIM_META, operator.prim_meta_impl)))
            entry: Any = torch._library.simple_registry.singleton.find(operator.name())
            fakes = getattr(entry, "fake_impl", None) or entry.abstract_impl  # until 2.4
            kernel = fakes.kernel
            if kernel is not None:
                enter(plant(kernel, "func", self._noted(ImplementedBy.LIBRARY_FAKE, kernel.func)))
            yield


_IN_KERNEL = fake_tensor.in_kernel_invocation_manager


def difference(call: OperatorCall, chain: Sequence[Implementation], seen: Sequence[Seen]) -> str:
    """How what ran differs from what was predicted; empty where it does not."""
    if call.operator is torch.ops.aten.copy_.default and chain[0].kind is ImplementedBy.FUNCTIONALIZATION:
        return ""  # functionalization ends a graph with calls of it, which are lowered
    tensors = [one for one in tree_leaves((call.args, call.kwargs)) if isinstance(one, torch.Tensor)]
    if seen and seen[-1].kind is ImplementedBy.FALLBACK and any(one.is_complex() for one in tensors):
        return ""  # Inductor calls the operator itself on complex tensors, as `unsure` says
    for at, one in enumerate(seen):
        if at >= len(chain):
            return f"{call.operator.name()}: {one} after the end of {_shown(chain)}"
        expected = chain[at]
        same_kind = any(one.kind in kinds and expected.kind in kinds for kinds in ({one.kind}, _EARLY, _CALLED))
        same_function = not (one.function and expected.site) or one.function == expected.function
        if not (same_kind and same_function):
            return f"{call.operator.name()}: {one} instead of {_shown(chain)}"
    follows = chain[len(seen)].kind if len(seen) < len(chain) else None
    if seen and seen[-1].gave_up and follows is not ImplementedBy.UNSUPPORTED:
        return f"{call.operator.name()}: nothing after {seen[-1]}"
    return ""


_EARLY = (ImplementedBy.COMPOSITE, ImplementedBy.KERNEL, ImplementedBy.FUNCTIONALIZATION)
"""Kernels of C++, of which a tracer in Python sees only that the operator is gone when its modes are asked."""


_CALLED = (ImplementedBy.FALLBACK, ImplementedBy.IMPLICIT_FALLBACK)
"""Where a tensor is complex, Inductor calls the operator without asking whether it is registered as a fallback."""


def _shown(chain: Sequence[Implementation]) -> str:
    return ", ".join(f"{one.kind} {one.function}" for one in chain)


class Compared(NamedTuple):
    """Predictions and what ran.

    Args:
        agree: how many calls ran what was predicted.
        differences: the calls that did not, each in a sentence.
        refused: the operators whose call PyTorch itself refuses under the mode, as for a result whose size depends on
            data, each with the error.
        unseen: the operators of calls that give nothing, that have no symbolic size when all sizes are made symbolic
            that can be, or that a pass of Inductor over the graph took out of it before the lowering.
    """

    agree: int
    differences: tuple[str, ...]
    refused: tuple[str, ...]
    unseen: tuple[str, ...]


REFUSES = (UnsupportedOperatorException, DynamicOutputShapeException, DataDependentOutputException)


def compared(calls: Sequence[OperatorCall], mode: str, *, predict: str = "", source: str = "") -> Compared:
    """Compare predictions off a record with what runs.

    Args:
        calls: the calls.
        mode: `fake`, or `symbolic` for fake with symbolic sizes.
        predict: the mode to predict for, when it is another.
        source: the source of the predictions; the bundled registry of the installed PyTorch when left out.
    """
    agree = 0
    differences, refused, unseen = [], [], []
    logging.disable(logging.CRITICAL)  # FakeTensorMode logs each call that it refuses
    try:
        for call in calls:
            chosen = cast(Mode, predict or "fake")
            under = explain_operator(call.operator.name(), specs_of(call), source=source or None, mode=chosen).under
            assert under is not None
            chain = under.symbolic or under.chain if mode == "symbolic" else under.chain
            try:
                seen = seen_under_fake(call, symbolic=mode == "symbolic")
            except REFUSES as error:
                refused.append(f"{call.operator.name()}: {type(error).__name__}")
                continue
            if not seen:
                unseen.append(call.operator.name())
            elif differs := difference(call, chain, seen):
                differences.append(differs)
            else:
                agree += 1
    finally:
        logging.disable(logging.NOTSET)
    return Compared(agree, tuple(differences), tuple(refused), tuple(unseen))


if __name__ == "__main__":
    mode, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    predict = "".join(sys.argv[4:])
    drawn = operator_calls(count, seed, sizes=mode == "symbolic")
    sys.stdout.write(f"{json.dumps(compared(drawn, mode, predict=predict)._asdict())}\n")
