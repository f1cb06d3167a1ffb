"""Trials of an operator inside of PyTorch's systems: gradients, vmap, autocast, functionalization, compiled graphs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from math import isfinite
from typing import Any, Final

import torch
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

from dispatchlab.live.trials.inputs import Inputs, copy_of, function_of, tensors_of, transposed, with_optional_tensors
from dispatchlab.live.trials.subject import NotNeededError, Subject, WrongResultError, difference

_STEPS: Final = ((1e-12, 1e-5, 1e-3), (1e-5, 2e-2, 5e-2), (1.0, 0.25, 0.2))
"""A precision of types, the step of a finite difference for it, and by how much a gradient may differ."""

_WITH_FORMULA: Final = ("Autograd", "AutogradCPU", "AutogradCUDA", "CompositeImplicitAutograd")
_DEVICES: Final = ("CPU", "CUDA", "XPU", "MPS")


def _is_plain(subject: Subject) -> None:
    """Raise an error if two calls return different results."""
    if subject.writes or subject.random:
        raise NotNeededError("it writes its arguments" if subject.writes else "it is random")


def backward(subject: Subject) -> None:
    """Compare gradients with finite differences along one direction."""
    _is_plain(subject)
    if not subject.given:
        _check_count(subject)
    try:
        subject.over(partial(_check_gradient, subject))
    except RuntimeError as error:
        meant = None if subject.given or subject.now is None else _of_gradient(error, subject.now)
        if meant is None or not subject.takes(meant):
            raise
        accepted, subject.inputs = subject.inputs, [meant]
        try:
            subject.over(partial(_check_gradient, subject))
        except Exception:
            subject.inputs = accepted
            raise error from None


_UNFIT: Final = re.compile(
    r"returned an invalid gradient at index (\d+) - got \[([\d, ]+)\] but expected shape compatible with \[([\d, ]+)\]"
)


def _of_gradient(error: Exception, inputs: Inputs) -> Inputs | None:
    """Return the inputs with one argument of the shape of its gradient, which the operator may be meant for.

    A kernel that checks no shape accepts any. None if the gradient was reduced or expanded by mistake.
    """
    if (match := _UNFIT.search(str(error))) is None:
        return None
    at, got, shape = int(match[1]), *([int(size) for size in match[part].split(",")] for part in (2, 3))
    other = [one for one, size in zip(got, shape, strict=False) if one != size]
    if at >= len(inputs.positional) or len(got) != len(shape) or min(other) < 2:
        return None
    positional = list(inputs.positional)
    positional[at] = positional[at].new_empty(got).uniform_(0.25, 1.75)
    return Inputs(tuple(positional), inputs.named)


def _has_gradient(tensor: Any) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())


def _double(tensor: Any) -> Any:
    dtype = torch.complex128 if tensor.is_complex() else torch.float64
    return tensor.to(dtype) if _has_gradient(tensor) else tensor


def _dot(left: Any, right: Any) -> float:
    """Return the real part of a product of two tensors."""
    return float((_double(left).conj() * _double(right)).sum().real)


def _check_gradient(subject: Subject, given: Inputs, _: Inputs) -> None:
    chosen = any(tensor.requires_grad for tensor in tensors_of(given.values))  # the user says what has a gradient
    double = given.map(_double)
    exact = double if subject.takes(double) else given
    graded = exact.map(lambda tensor: copy_of(tensor).requires_grad_(_has_gradient(tensor)))
    leaves = [tensor for tensor in tensors_of(graded.values) if tensor.requires_grad]
    if not leaves:
        raise NotNeededError("no argument is a plain number that has a gradient")
    result = tensors_of(subject.call(graded, grad=True))
    places = [at for at, tensor in enumerate(result) if tensor.requires_grad]
    draw = torch.Generator().manual_seed(0)
    try:
        weights = [torch.rand(result[at].shape, generator=draw, dtype=result[at].dtype) + 0.5 for at in places]
    except NotImplementedError as error:  # float8 and its kind
        raise NotNeededError("its result is of a dtype without arithmetic") from error
    first_order: Sequence[Any] = ()
    try:
        if places:
            first_order = torch.autograd.grad([result[at] for at in places], leaves, weights, allow_unused=True)
    except RuntimeError as error:
        if "no autograd formula was registered" not in str(error):
            raise
    if not first_order:
        own = subject.has(f"Autograd{subject.device.upper()}") and subject.events("register_autograd")
        for tensor in filter(_has_gradient, result if own and not places else ()):
            tensor.sum().backward()  # raises: a kernel hides the formula
        raise NotNeededError("it has no autograd formula")
    subject.graded = any(map(subject.has, _WITH_FORMULA))
    asked = [each.requires_grad or not chosen for each in tensors_of(given.values) if _has_gradient(each)]
    only_warns = ["NotImplemented" in result[at].grad_fn.name() for at in places if result[at].grad_fn is not None]
    absent = all(grad is None for grad in first_order) and not any(only_warns)
    grads: list[Any] = [
        torch.zeros_like(leaf) if grad is None and wanted and (chosen or absent) else grad
        for leaf, grad, wanted in zip(leaves, first_order, asked, strict=True)
    ]
    directions = [
        torch.zeros_like(leaf) if grad is None else torch.rand(leaf.shape, generator=draw, dtype=leaf.dtype) - 0.5
        for leaf, grad in zip(leaves, grads, strict=True)
    ]
    found = sum(_dot(grad, way) for grad, way in zip(grads, directions, strict=True) if grad is not None)

    def along(step: float, ways: Sequence[Any] = directions) -> float:
        left = iter(ways)
        moved = exact.map(lambda tensor: tensor + step * next(left) if _has_gradient(tensor) else copy_of(tensor))
        values = tensors_of(subject.call(moved))
        return sum(_dot(weight, values[at]) for at, weight in zip(places, weights, strict=True))

    coarsest = float(max(torch.finfo(tensor.dtype).eps for tensor in (*leaves, *(result[at] for at in places))))
    for precision, step, tolerance in _STEPS[:2] if coarsest <= _STEPS[1][0] else _STEPS[2:]:
        if coarsest > precision:
            continue
        near = step / 4
        first, wanted = (along(step) - along(-step)) / (2 * step), (along(near) - along(-near)) / (2 * near)
        bend = (along(near) + along(-near) - 2 * along(0.0)) / near
        allowed = tolerance * max(1.0, abs(wanted), abs(found))
        if first == 0 or not isfinite(first):
            break
        if abs(first - wanted) > allowed or abs(bend) > allowed:
            continue
        if abs(wanted - found) > allowed:
            if subject.most == 1 and _is_on_purpose(subject, exact, grads, weights[0]):
                raise NotNeededError("its backward is another one on purpose")
            names = [name for name, value in subject.named(graded) for one in tensors_of(value) if one.requires_grad]
            wrong = []
            for name, grad, way in zip(names, grads, directions, strict=True):
                alone, of_one = [each * (each is way) for each in directions], 0.0 if grad is None else _dot(grad, way)
                wrong += [name] * (abs((along(near, alone) - along(-near, alone)) / (2 * near) - of_one) > allowed)
            slopes = f"a slope of {found:.4g} where finite differences give {wanted:.4g}"
            whose = f", by its gradient for {' and '.join(wrong)}" if len(names) > 1 and wrong else ""
            raise WrongResultError(f"the backward of {subject.name} gives {slopes}{whose}")
        if precision == _STEPS[0][0]:
            _check_second(subject, graded)
        return
    raise NotNeededError("its result is not smooth")


def _check_count(subject: Subject) -> None:
    """Raise the error of a backward that returns too few or too many gradients where each optional tensor is given."""
    tries = (each for inputs in subject.inputs[:1] for each in with_optional_tensors(subject.op, inputs))
    filled = next(filter(subject.takes, tries), None)
    if filled is None:
        return
    leaves = filled.map(lambda tensor: copy_of(tensor).requires_grad_(_has_gradient(tensor)))
    try:
        result = [each for each in tensors_of(subject.call(leaves, grad=True)) if each.requires_grad]
        torch.autograd.backward(result, [torch.ones_like(each) for each in result])
    except Exception as error:
        if "incorrect number of gradients" in str(error):
            subject.now = filled
            raise


def _check_second(subject: Subject, inputs: Inputs) -> None:
    """Compare second derivatives with finite differences; a backward may record no second derivative."""
    called, tensors = function_of(subject.op, inputs)

    def function(*given: Any) -> Any:
        return tuple(each for each in tensors_of(subject.call(Inputs(given), called, grad=True)) if each.requires_grad)

    try:
        torch.autograd.gradgradcheck(function, tensors, eps=1e-3, atol=1e-2, rtol=1e-2, fast_mode=True)
    except RuntimeError as error:
        if "Jacobian mismatch" in str(error):
            raise WrongResultError(f"the second derivative of {subject.name} is not that of its backward") from None
        if "once_differentiable" in str(error):
            raise


def _is_on_purpose(subject: Subject, inputs: Inputs, grads: Sequence[Any], weight: Any) -> bool:
    """Return whether an operator returns its input, to change its gradient, or is a straight-through estimator."""
    moved = inputs.map(lambda tensor: tensor + 1e-3 if _has_gradient(tensor) else copy_of(tensor))
    result, further = (tensors_of(subject.call(given.copy()))[0] for given in (inputs, moved))
    slope = (further - result) / 1e-3
    is_flat = not difference(slope, slope.round().clamp(0, 1), 1e-2)
    ratios = [grad / weight for grad in grads if is_flat and grad is not None and grad.shape == weight.shape]
    is_straight = any(not difference(ratio, ratio.mean().expand_as(ratio)) for ratio in ratios)
    return is_straight or any(not difference(result, tensor) for tensor in tensors_of(inputs.values))


def vmap(subject: Subject) -> None:
    """Compare a call on a batch under vmap with calls on each example."""
    subject.decided()
    _is_plain(subject)

    def check(given: Inputs, inputs: Inputs) -> None:
        flipped = given.map(lambda tensor: tensor.flip(0) if tensor.dim() else tensor)
        examples = [inputs, (flipped if subject.takes(flipped) else given).copy(), given.copy()]  # no square of two
        batched, tensors = function_of(subject.op, given)
        if not tensors:
            raise NotNeededError("it takes no tensor")

        def compare(dims: Sequence[int | None]) -> None:
            batch = list(zip(*(tensors_of(example.values) for example in examples), strict=True))
            stacks = [pair[0] if at is None else torch.stack(pair, at) for at, pair in zip(dims, batch, strict=True)]
            rows = [[pair[0 if at is None else row] for at, pair in zip(dims, batch, strict=True)] for row in range(3)]
            results = [tensors_of(subject.call(Inputs(tuple(map(copy_of, row))), batched)) for row in rows]
            wanted = [torch.stack(pair) for pair in zip(*results, strict=True)]
            try:
                rule = torch.vmap(batched, in_dims=tuple(dims), randomness="same")
                found = tensors_of(subject.call(Inputs(tuple(stacks)), rule))
            except Exception as error:
                if subject.has("FuncTorchBatched"):
                    raise
                raise NotNeededError(f"it has no rule: {str(error).partition(chr(10))[0][:120]}") from None
            if difference(wanted, found):
                subject.watch.note("rule differs", subject.name)
                raise WrongResultError(f"{subject.name} gives other values under vmap than for each example")

        compare([0] * len(tensors))
        compare([min(1, tensor.dim()) for tensor in tensors])
        if len(tensors) > 1:
            compare([0, *[None] * (len(tensors) - 1)])

    subject.over(check)


def autocast(subject: Subject) -> None:
    """Call the operator under autocast, and look for devices with a kernel but none for autocast."""
    casts = [key for key in _DEVICES if subject.has(f"Autocast{key}")]

    def check(_: Inputs, inputs: Inputs) -> None:
        try:
            with torch.autocast(subject.device, dtype=torch.bfloat16):
                subject.call(inputs)
        except Exception as error:
            if casts or isinstance(error, RecursionError):
                raise
            raise NotNeededError(f"it has no autocast kernel, and raises {type(error).__name__}") from None

    subject.over(check)
    for key in _DEVICES:
        if casts and key not in casts and subject.has(key):
            subject.watch.note("called", subject.name, f"autocast {key.lower()}")
            raise WrongResultError(f"the dtype of {subject.name} stays as it is under autocast for {key}")


def functionalize(subject: Subject) -> None:
    """Compare a call under functionalization with the plain one, in results and in writes."""
    subject.decided()
    if subject.unsteady and "empty" not in subject.name:
        raise WrongResultError(f"{subject.name} gives other values when it is called again with the same seeds")

    def check(given: Inputs, inputs: Inputs) -> None:
        other = given.copy()
        with FunctionalTensorMode():
            wrapped = other.map(FunctionalTensor.to_functional)
            result = tensors_of(subject.call(wrapped))
            both = (*result, *tensors_of(wrapped.values))
            found = [each.from_functional() if isinstance(each, FunctionalTensor) else each for each in both]
        if "empty" not in subject.name and difference(
            [*tensors_of(subject.call(inputs)), *tensors_of(inputs.values)], found
        ):
            raise WrongResultError(f"{subject.name} gives other values under functionalization than without")

    subject.over(check)


def _is_traced(subject: Subject) -> None:
    """Raise the error that keeps a compiler from tracing the operator."""
    subject.decided()
    if subject.random or subject.fakeless:
        raise NotNeededError("it is random" if subject.random else "it has no fake")


def aot(subject: Subject) -> None:
    """Run opcheck's test of AOTAutograd."""
    _is_traced(subject)

    def check(_: Inputs, inputs: Inputs) -> None:
        graded = inputs.map(lambda tensor: tensor.requires_grad_(tensor.is_floating_point() and subject.graded))
        torch.library.opcheck(subject.op, graded.positional, graded.named, test_utils="test_aot_dispatch_dynamic")

    subject.over(check, most=2)


def compile_consumer(subject: Subject) -> None:
    """Compile the operator and a consumer of its results with Inductor, and compare."""

    def consumer(op: Any, inputs: Inputs) -> Any:
        used = [*tensors_of(op(*inputs.positional, **inputs.named)), *tensors_of(inputs.values)]
        return [~tensor if str(tensor.dtype) == "torch.bool" else tensor + 1 for tensor in used]

    _compare_compiled(subject, "inductor", consumer)


def compile_write(subject: Subject) -> None:
    """Compile a graph in which results and inputs are written after the call, and compare."""
    if any(returned.alias_info is not None for returned in subject.op._schema.returns):
        raise NotNeededError("its schema says that results alias arguments")

    def writer(op: Any, inputs: Inputs) -> Any:
        used = [*tensors_of(op(*inputs.positional, **inputs.named)), *tensors_of(inputs.values)]
        kept = [tensor * 1 for tensor in used]
        for tensor in used:
            if tensor.is_floating_point():
                tensor.add_(1)
        return [*kept, *(tensor * 1 for tensor in used)]

    _compare_compiled(subject, "aot_eager", writer)


def _compare_compiled(subject: Subject, backend: str, graph: Callable[[Any, Inputs], Any]) -> None:
    _is_traced(subject)

    def check(given: Inputs, inputs: Inputs) -> None:
        torch._dynamo.reset()
        op, other = subject.op, given.copy()
        compiled = torch.compile(lambda *args, **named: graph(op, Inputs(args, named)), backend=backend, fullgraph=True)
        wanted, found = graph(op, inputs), compiled(*other.positional, **other.named)
        if difference([wanted, *inputs.values], [found, *other.values]):
            raise WrongResultError(f"{subject.name} gives other values in a graph that is compiled by {backend}")

    subject.over(check, transposed, most=1)
