"""Calls of PyTorch's operators in a transform or autocast, and every hop, seen by probes in the dispatch tables."""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, cast

import torch
from torch._functorch.eager_transforms import enable_inplace_requires_grad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

from dispatchlab.call.autocast_policies import CastPolicy, policy_of
from dispatchlab.call.trace import TracedCall, TracedKernel
from dispatchlab.call.transform_rules import FUNCTIONALIZE, GRAD, VMAP, TransformKeys
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.python_layer import Mode
from dispatchlab.questions.dump.inspect_operators import inspect_operator
from dispatchlab.questions.explain.argument_specs import describe_arguments
from dispatchlab.questions.explain.explain_operator import explain_operator
from dispatchlab.questions.explain.hops import explain, schema_of, thread_keys
from dispatchlab.questions.explain.kernel_rules import BY_VMAP, REGISTERED_BY_VMAP
from dispatchlab.questions.explain.result import Chosen, Implementation, ImplementedBy, ModeExplanation
from dispatchlab.questions.trace.torch_trace import TorchTrace
from dispatchlab.records.builds import default_registry
from tests.live.mode_calls import Compared, OperatorCall, operator_calls, specs_of

_functorch: Any = torch._C._functorch
forward_ad: Any = torch.autograd.forward_ad

_MARK: Any = torch.ops.aten._cast_Char.default
"""An operator that no call is of; it separates the calls in a trace."""


class Ran(NamedTuple):
    """What a call did in a mode.

    Args:
        hops: the hops of the operator that were made from outside of every kernel; one, or none.
        error: what PyTorch raised; empty when it did not.
    """

    hops: tuple[TracedCall, ...]
    error: str


def ran_in(mode: str, calls: Sequence[OperatorCall]) -> list[Ran]:
    """What each call does in a mode, or in several, the outermost first: `vmap grad`."""
    return ran_in_each((mode,), calls)[mode]


def ran_in_each(modes: Sequence[str], calls: Sequence[OperatorCall]) -> dict[str, list[Ran]]:
    """What each call does in each mode, in one trace."""
    mark = torch.ones(1)
    made = [(mode, call) for mode in modes for call in calls]
    errors = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _functorch._set_vmap_fallback_warning_enabled(False)  # noqa: FBT003 - C++ takes it by position
        with TorchTrace(limit=1_000_000) as trace:
            for mode, call in made:
                errors.append(_made(mode, call, mark))
    assert not trace.notes, trace.notes
    found: list[list[TracedCall]] = []
    for step in trace.steps:
        if step.operator == str(_MARK.name()):
            found.append([])
        else:
            found[-1].append(step)
    each: dict[str, list[Ran]] = {mode: [] for mode in modes}
    for (mode, call), steps, error in zip(made, found[1::3], errors, strict=True):
        each[mode].append(Ran(tuple(one for one in steps if one.operator == call.operator.name()), error))
    return each


def _made(mode: str, call: OperatorCall, mark: Any) -> str:
    """Make a call between the second and the third of three marks, and give the error that it raises."""
    _MARK(mark)
    marks, error = 1, ""
    try:
        args, kwargs = tree_map_only(
            torch.Tensor,
            lambda one: _batched(one, mode.count("vmap")),
            (call.args, call.kwargs),
        )
        with ExitStack() as inside:
            for each in mode.split():
                context = CONTEXTS.get(each) or _OTHERS[each]
                args, kwargs = inside.enter_context(context(call.operator))(args, kwargs)
            _MARK(mark)
            marks = 2
            call.operator(*args, **kwargs)
    except Exception as raised:
        error = f"{type(raised).__name__}: {next(iter(str(raised).splitlines()), '')}"
    for _ in range(3 - marks):
        _MARK(mark)
    return error


def _batched(tensor: Any, times: int) -> Any:
    """A tensor in a batch of two, for each time; a copy of it for none."""
    return torch.stack([_batched(tensor, times - 1)] * 2) if times else tensor.clone()


Wrap = Callable[[Any, Any], Any]


@contextmanager
def _vmap(operator: Any) -> Iterator[Wrap]:
    torch.func.vmap(torch.neg)(torch.ones(2))  # what vmap registers when it is first called
    level = _functorch._vmap_increment_nesting(2, "different")
    try:
        yield lambda *both: tree_map_only(torch.Tensor, lambda one: _functorch._add_batch_dim(one, 0, level), both)
    finally:
        _functorch._vmap_decrement_nesting()


@contextmanager
def _grad(operator: Any) -> Iterator[Wrap]:
    level = _functorch._grad_increment_nesting()

    def wrapped(*both: Any) -> Any:
        args, kwargs = tree_map_only(torch.Tensor, lambda one: _functorch._wrap_for_grad(one, level), both)
        tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        floating = next((one for one in tensors if one.is_floating_point() or one.is_complex()), None)
        if floating is not None:  # grad() is of the first argument
            with enable_inplace_requires_grad(True):  # noqa: FBT003
                floating.requires_grad_()
        return _no_leaves_written(operator._schema, args, kwargs)

    try:
        with torch.enable_grad():
            yield wrapped
    finally:
        _functorch._grad_decrement_nesting()


@contextmanager
def _jvp(operator: Any) -> Iterator[Wrap]:
    level = _functorch._jvp_increment_nesting()

    def dual(one: Any) -> Any:
        if one.is_floating_point() or one.is_complex():
            return forward_ad.make_dual(one, torch.ones_like(one))
        return _functorch._wrap_for_grad(one, level)

    try:
        with forward_ad._set_fwd_grad_enabled(True), forward_ad.dual_level():  # noqa: FBT003
            yield lambda *both: tree_map_only(torch.Tensor, dual, both)
    finally:
        _functorch._jvp_decrement_nesting()


def _no_leaves_written(schema: Any, args: Any, kwargs: Any) -> Any:
    """The arguments with a clone for each tensor that is written: autograd refuses to write to a leaf."""
    written = {one.name for one in schema.arguments if one.alias_info is not None and one.alias_info.is_write}

    def clone(name: str, value: Any) -> Any:
        return value.clone() if name in written and isinstance(value, torch.Tensor) else value

    names = [one.name for one in schema.arguments]
    return (
        tuple(clone(name, value) for name, value in zip(names, args, strict=False)),
        {name: clone(name, value) for name, value in kwargs.items()},
    )


@contextmanager
def _functionalize(operator: Any) -> Iterator[Wrap]:
    level = _functorch._func_increment_nesting(True)  # noqa: FBT003
    try:
        yield lambda *both: tree_map_only(
            torch.Tensor, lambda one: _functorch._wrap_functional_tensor(one, level), both
        )
    finally:
        _functorch._func_decrement_nesting()


@contextmanager
def _autocast(operator: Any) -> Iterator[Wrap]:
    with torch.autocast("cpu"):
        yield lambda *both: both


CONTEXTS: dict[str, Any] = {
    "vmap": _vmap,
    "grad": _grad,
    "functionalize": _functionalize,
    "autocast": _autocast,
}


_OTHERS: dict[str, Any] = {"jvp": _jvp}
"""What `explain` has no mode of its own for: it says of `grad` that these take the same hops."""


# -- what is predicted, and what ran


def _is_same(one: Chosen, other: TracedKernel, *, by_line: bool) -> bool:
    """Whether two kernels are one. What Python registered has the line of its call in the record of a package alone."""
    if one.debug == other.debug:
        return True
    in_python = all(".py:" in each.debug for each in (one, other))
    return not by_line and in_python and (one.source, one.reason) == (other.source, other.reason)


_PYTHON = re.compile("torch/_functorch/|at /dev/null:")
"""In what vmap registers: the bindings drop the file before 2.9."""


def difference(under: ModeExplanation, ran: Ran, *, kernels: bool = True) -> str:
    """How the hops that were taken differ from those that were predicted; empty where they do not.

    Each hop has to have the key set and the kernel of the prediction, up to the one that raised, if one did. After the
    last one no hop to a lower key may follow, where the prediction says that none does. The slow fallback of vmap has
    to call the operator once for each of the two elements of the batch.

    Args:
        under: the prediction.
        ran: what ran.
        kernels: whether kernels that Python registered have the same debug texts in both.
    """
    name = under.call.operator
    inside = ran.hops
    for number, hop in enumerate(under.call.hops, 1):
        if not inside:
            return "" if ran.error else f"{name}: no hop {number} to {hop.key}"
        taken = inside[0]
        if taken.keys != hop.keys:
            return f"{name}: hop {number} has {taken.keys} instead of {hop.keys}"
        found, expected = taken.kernel, hop.kernel
        assert found is not None
        by_vmap = expected is not None and expected.debug == BY_VMAP and _PYTHON.search(found.debug) is not None
        if expected is None or (not by_vmap and not _is_same(expected, found, by_line=kernels)):
            return f"{name}: hop {number} runs {found} instead of {expected}"
        inside = tuple(one for one in taken.steps if isinstance(one, TracedCall) and one.operator == name)
        slow = under.runs.kind is ImplementedBy.SLOW_FALLBACK and hop.key == DispatchKey.FuncTorchBatched
        if slow and len(inside) != 2 and not ran.error:
            return f"{name}: the slow fallback calls it {len(inside)} times"
    last = under.call.hops[-1].key
    if under.call.known and inside and inside[0].keys.highest() < last and last <= DispatchKey.NestedTensor:
        return f"{name}: goes on to {inside[0].keys.highest()} after the last hop, to {last}"
    if under.runs.kind is ImplementedBy.UNSUPPORTED and not ran.error:
        return f"{name}: runs, although it was predicted that it does not: {under.runs.why}"
    return ""


def _fails(under: ModeExplanation, ran: Ran) -> bool:
    """Whether a call fails as predicted: there is nothing to run at its last hop."""
    found = f"Could not run '{under.call.operator}' with arguments from"
    return under.call.hops[-1].refusal is not None and found in ran.error


def compared(
    calls: Sequence[OperatorCall], mode: Mode, *, predict: str = "", source: str = "", ran: Sequence[Ran] = ()
) -> Compared:
    """Compare predictions off a record with what runs.

    Args:
        calls: the calls.
        mode: a transform or autocast.
        predict: the mode to predict for, when it is another.
        source: the source of the predictions; the bundled registry of the installed PyTorch when left out.
        ran: what the calls did in the mode, when they were made already.
    """
    agree = 0
    differences, refused, unseen = [], [], []
    for call, one in zip(calls, ran or ran_in(mode, calls), strict=True):
        name = str(call.operator.name())
        chosen = cast(Mode, predict or mode)
        under = explain_operator(name, specs_of(call), source=source or None, mode=chosen).under
        assert under is not None
        if not one.hops:
            unseen.append(f"{name}: {one.error}")  # the arguments of the sample cannot be in the transform
        elif differs := difference(under, one, kernels=not source):
            differences.append(differs)
        elif one.error and under.runs.kind is not ImplementedBy.UNSUPPORTED and not _fails(under, one):
            refused.append(f"{name}: {one.error}")
        else:
            agree += 1
    return Compared(agree, tuple(differences), tuple(refused), tuple(unseen))


# -- transforms in transforms

_NESTS: tuple[tuple[TransformKeys, ...], ...] = (
    (GRAD, GRAD),
    (VMAP, GRAD),
    (GRAD, VMAP),
    (VMAP, VMAP),
    (FUNCTIONALIZE, VMAP),
    (FUNCTIONALIZE, GRAD),
    (GRAD, GRAD, GRAD),
)


def nested_differences(calls: Sequence[OperatorCall]) -> tuple[int, list[str]]:
    """How many calls in transforms of transforms were looked at, and how they differ from `explain`."""
    looked = 0
    wrong = []
    explained = []
    source = default_registry()[0]
    for call in calls:
        view = inspect_operator(str(call.operator.name()), source=source).only_view
        explained.append((view, describe_arguments(schema_of(view), specs_of(call))))
    nothing = Implementation(ImplementedBy.KERNEL, "", "", "", "")
    for nest in _NESTS:
        names = " ".join(one.name for one in nest)
        for (view, described), ran in zip(explained, ran_in(names, calls), strict=True):
            if not ran.hops or view.name in REGISTERED_BY_VMAP:
                continue
            looked += 1
            predicted = explain(view, described, thread_keys(), nest)
            if differs := difference(ModeExplanation("vmap", predicted, (nothing,)), ran):
                wrong.append(f"{names}: {differs}")
    return looked, wrong


# -- a vmap by chunks


def chunked_differences(calls: Sequence[OperatorCall]) -> tuple[int, list[str]]:
    """How many chunks of two of `vmap(..., chunk_size=2)` were looked at, and how they differ from `explain`."""
    mark = torch.ones(1)
    with warnings.catch_warnings(), TorchTrace(limit=1_000_000) as trace:
        warnings.simplefilter("ignore")
        errors = [_call_in_chunks(call, mark) for call in calls]
    found: list[list[TracedCall]] = []
    for step in trace.steps:
        if step.operator == str(_MARK.name()):
            found.append([])
        elif found:
            found[-1].append(step)
    looked, wrong = 0, []
    for at, (call, error) in enumerate(zip(calls, errors, strict=True)):
        name = str(call.operator.name())
        under = explain_operator(name, specs_of(call), mode="vmap").under
        assert under is not None
        for steps in found[4 * at : 4 * at + 4 : 2]:
            hops = tuple(one for one in steps if one.operator == name)
            looked += bool(hops)
            wrong += [differs] if hops and (differs := difference(under, Ran(hops, error))) else []
    return looked, wrong


def _call_in_chunks(call: OperatorCall, mark: Any) -> str:
    """Make a call in a batch of four by chunks of two, each between two marks, and give the error that it raises."""
    leaves, spec = tree_flatten((call.args, call.kwargs))
    at = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    marks, error = 0, ""

    def called(*batched: Any) -> Any:
        nonlocal marks
        args, kwargs = tree_unflatten(
            [dict(zip(at, batched, strict=True)).get(i, x) for i, x in enumerate(leaves)], spec
        )
        _MARK(mark)
        marks += 1
        call.operator(*args, **kwargs)
        _MARK(mark)
        marks += 1
        return batched[0]

    try:
        torch.func.vmap(called, randomness="different", chunk_size=2)(*(torch.stack([leaves[one]] * 4) for one in at))
    except Exception as raised:
        error = type(raised).__name__
    for _ in range(4 - marks):
        _MARK(mark)
    return error


# -- what autocast casts


class _Casts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the dtypes that tensors are cast to before anything else is called."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: set[Any] = set()
        self._over = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._to_copy.default and not self._over:
            self.found.add((kwargs or {}).get("dtype"))
        else:
            self._over = True
        return func(*args, **(kwargs or {}))


def wrong_casts(calls: Sequence[OperatorCall]) -> tuple[int, list[str]]:
    """How many calls with a policy on the CPU were looked at, and where the casts are not those of the policy."""
    looked = 0
    wrong = []
    key = DispatchKey.AutocastCPU
    for call in calls:
        name = str(call.operator.name())
        if not torch._C._dispatch_has_kernel_for_dispatch_key(name, str(key)):
            continue
        policy = policy_of(key, name)
        for first, others in ((torch.float32,) * 2, (torch.bfloat16,) * 2, (torch.bfloat16, torch.float32)):
            found = _casts(call, first, others)
            if found is None:
                continue
            looked += 1
            if found & {torch.bfloat16, torch.float16, torch.float32} != _expected(policy, call, first, others):
                wrong.append(f"{name}, {policy}, of {first} and {others}: {found}")
    return looked, wrong


def _floating(call: OperatorCall) -> list[Any]:
    leaves = tree_leaves((call.args, call.kwargs))
    return [one for one in leaves if isinstance(one, torch.Tensor) and one.is_floating_point()]


def _casts(call: OperatorCall, first: Any, others: Any) -> set[Any] | None:
    """The dtypes that tensors are cast to; None for a call that this makes impossible."""
    tensors = _floating(call)
    if not tensors or any(one.dtype == torch.float64 for one in tensors):
        return None
    args, kwargs = tree_map_only(
        torch.Tensor,
        lambda one: one.to(first if one is tensors[0] else others) if one.is_floating_point() else one.clone(),
        (call.args, call.kwargs),
    )
    mode = _Casts()
    with torch.autocast("cpu"), mode:
        try:
            call.operator(*args, **kwargs)
        except Exception:  # the operator does not do it in this precision, after the casts
            if not mode.found:
                return None
    return mode.found


def _expected(policy: CastPolicy, call: OperatorCall, first: Any, others: Any) -> set[Any]:
    dtypes = {first, *([others] if len(_floating(call)) > 1 else [])}
    match policy:
        case CastPolicy.LOWER_PRECISION:
            wanted = torch.bfloat16
        case CastPolicy.FLOAT32:
            wanted = torch.float32
        case _:
            wanted = torch.float32 if torch.float32 in dtypes else torch.bfloat16
    return {wanted} if dtypes - {wanted} else set()


def package_differences(source: str) -> list[str]:
    """How the operators of `transform_operators` differ in any mode from what is predicted off a record of them."""
    import tests.live.transform_operators  # noqa: F401 - registers them

    tensor, found = torch.randn(3, 2), []
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("transformed::"):
            given: Any = [tensor] if name.endswith("takes_list") else tensor
            found.append(OperatorCall(getattr(torch.ops.transformed, name.partition("::")[2]).default, (given,), {}))
    assert len(found) == 14
    wrong = []
    for mode in CONTEXTS:
        for call, ran in zip(found, ran_in(mode, found), strict=True):
            name = call.operator.name()
            under = explain_operator(name, specs_of(call), source=source, mode=cast(Mode, mode)).under
            assert under is not None
            assert ran.hops, (name, ran.error)
            if differs := difference(under, ran, kernels=False):
                wrong.append(f"{mode}: {differs}")
            if ran.error and under.call.known and under.runs.kind is not ImplementedBy.UNSUPPORTED:
                wrong.append(f"{mode}: {name} raises {ran.error}")
    return wrong


def _result(mode: str, arguments: Sequence[str]) -> object:
    if mode == "package":
        return package_differences(arguments[0])
    made = operator_calls(int(arguments[0]), int(arguments[1]))
    if mode == "casts":
        return dict(zip(("looked", "wrong"), wrong_casts(made), strict=True))
    if mode == "alike":
        looked, wrong = chunked_differences(made)
        return {"jvp": compared(made, cast(Mode, "jvp"), predict="grad")._asdict(), "looked": looked, "wrong": wrong}
    if mode == "nested":
        return dict(zip(("looked", "wrong"), nested_differences(made), strict=True))
    if mode == "each":
        return {each: compared(made, cast(Mode, each))._asdict() for each in CONTEXTS}
    return compared(made, cast(Mode, mode), predict="".join(arguments[2:]))._asdict()


if __name__ == "__main__":
    sys.stdout.write(f"{json.dumps(_result(sys.argv[1], sys.argv[2:]))}\n")
