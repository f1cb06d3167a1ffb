"""Trials of what PyTorch makes of an operator: gradients, vmap, autocast, functionalization and compiled graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from dispatchlab.live.trials.inputs import Inputs, copy_of, is_tensor, tensors_of
from dispatchlab.live.trials.subject import NotNeededError, Subject, WrongResultError, difference

_NO_FORMULA: Final = ("no autograd formula was registered", "an autograd kernel was not registered")
_STEPS: Final = {"float64": (1e-5, 1e-3), "float32": (2e-2, 5e-2)}
"""The step of a finite difference, and by how much a gradient may differ from it."""


def backward(subject: Subject) -> None:
    """Compare gradients with finite differences along one direction."""
    _is_plain(subject)
    subject.bound("setup_context", "backward")
    subject.over(partial(_check_gradient, subject))


def _is_plain(subject: Subject) -> None:
    """Raise where one call does not give what another one gives."""
    if subject.writes:
        raise NotNeededError("it writes its arguments")
    if subject.random:
        raise NotNeededError("it is random")


def _check_gradient(subject: Subject, given: Inputs, inputs: Inputs) -> None:
    import torch

    double = given.map(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)
    exact = double if subject.takes(double) else given
    tensors = [tensor for tensor in tensors_of(exact.values) if tensor.is_floating_point()]
    if not tensors or any(str(tensor.dtype) not in ("torch.float64", "torch.float32") for tensor in tensors):
        raise NotNeededError("no argument is a plain number that has a gradient")
    graded = exact.map(lambda tensor: copy_of(tensor).requires_grad_(tensor.is_floating_point()))
    leaves = [tensor for tensor in tensors_of(graded.values) if tensor.requires_grad]
    result = tensors_of(subject.call(graded, grad=True))
    places = [at for at, tensor in enumerate(result) if tensor.requires_grad and tensor.is_floating_point()]
    if not places:
        raise NotNeededError("it has no autograd formula")
    draw = torch.Generator().manual_seed(0)
    weights = [torch.rand(result[at].shape, generator=draw, dtype=result[at].dtype) + 0.5 for at in places]
    try:
        grads = torch.autograd.grad([result[at] for at in places], leaves, weights, allow_unused=True)
    except RuntimeError as error:
        if any(text in str(error) for text in _NO_FORMULA):
            raise NotNeededError("it has no autograd formula") from None
        raise
    subject.graded = True
    directions = [
        torch.rand(leaf.shape, generator=draw, dtype=leaf.dtype) - 0.5 if is_tensor(grad) else torch.zeros_like(leaf)
        for leaf, grad in zip(leaves, grads, strict=True)
    ]
    step, tolerance = _STEPS[str(leaves[0].dtype).removeprefix("torch.")]
    slope = partial(_slope, subject, exact, directions, places, weights)
    wanted, again = slope(step), slope(step / 4)
    pairs = zip(grads, directions, strict=True)
    found = sum(float((grad * way).sum()) for grad, way in pairs if is_tensor(grad))
    allowed = tolerance * max(1.0, abs(wanted), abs(found))
    if wanted == 0 or abs(wanted - again) > allowed:
        raise NotNeededError("its result is not smooth")
    if abs(wanted - found) > allowed:
        raise WrongResultError(
            f"the backward of {subject.name} gives a slope of {found:.4g} where finite differences give {wanted:.4g}"
        )


def _moved(inputs: Inputs, directions: Sequence[Any], step: float) -> Inputs:
    """Return inputs a step along directions, one for each tensor of floating point."""
    ways = iter(directions)
    return inputs.map(lambda tensor: tensor + step * next(ways) if tensor.is_floating_point() else copy_of(tensor))


def _slope(
    subject: Subject,
    inputs: Inputs,
    directions: Sequence[Any],
    places: Sequence[int],
    weights: Sequence[Any],
    step: float,
) -> float:
    """Return how fast the weighted results change along directions, by finite differences."""
    ends = []
    for signed in (step, -step):
        result = tensors_of(subject.call(_moved(inputs, directions, signed)))
        ends.append([result[at] for at in places])
    return sum(
        float(((after - before) * weight).sum()) for after, before, weight in zip(*ends, weights, strict=True)
    ) / (2 * step)


def vmap(subject: Subject) -> None:
    """Compare a call on a batch under vmap with calls on each example."""
    import torch
    from torch.utils._pytree import tree_flatten, tree_unflatten

    _is_plain(subject)
    subject.bound("vmap rule")
    ruled = any(function.role == "vmap rule" for function in subject.functions)

    def check(given: Inputs, inputs: Inputs) -> None:
        other = given.map(lambda tensor: tensor.flip(0) if tensor.dim() else tensor)
        examples = [given.copy(), (other if subject.takes(other) else given).copy()]
        leaves, tree = tree_flatten((given.positional, given.named))
        at = [index for index, leaf in enumerate(leaves) if is_tensor(leaf)]
        if not at:
            raise NotNeededError("it takes no tensor")

        def batched(*tensors: Any) -> Any:
            filled = list(leaves)
            for index, tensor in zip(at, tensors, strict=True):
                filled[index] = tensor
            positional, named = tree_unflatten(filled, tree)
            return subject.op(*positional, **named)

        wanted = [tensors_of(subject.call(example)) for example in examples]
        stacks = [torch.stack(pair) for pair in zip(*(tensors_of(example.values) for example in examples), strict=True)]
        try:
            found = tensors_of(subject.call(Inputs(tuple(stacks)), torch.vmap(batched, randomness="same")))
        except Exception as error:
            if ruled:
                raise
            raise NotNeededError(f"it has no rule: {str(error).partition(chr(10))[0][:120]}") from None
        if difference([torch.stack(pair) for pair in zip(*wanted, strict=True)], found):
            raise WrongResultError(f"{subject.name} gives other values under vmap than for each example")

    subject.over(check)


def autocast(subject: Subject) -> None:
    """Call the operator under autocast, and look for devices with a kernel and without one for autocast."""
    import torch

    has = torch._C._dispatch_has_kernel_for_dispatch_key
    devices = [key for key in ("CPU", "CUDA", "XPU", "MPS") if has(subject.name, key)]
    casts = [key for key in ("CPU", "CUDA", "XPU", "MPS") if has(subject.name, f"Autocast{key}")]

    def check(given: Inputs, inputs: Inputs) -> None:
        try:
            with torch.autocast(subject.device, dtype=torch.bfloat16):
                subject.call(inputs)
        except Exception as error:
            if casts or isinstance(error, RecursionError):
                raise
            raise NotNeededError(
                f"it has no autocast kernel; it raises {type(error).__name__} under autocast"
            ) from None

    subject.over(check)
    lacking = [key for key in devices if key not in casts]
    if casts and lacking:
        raise WrongResultError(f"{subject.name} has an autocast kernel for {casts[0]} and none for {lacking[0]}")


def functionalize(subject: Subject) -> None:
    """Compare a call under functionalization with the plain one, in results and in what is written."""
    import torch
    from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

    subject.decided()
    if "empty" in subject.name:
        raise NotNeededError("its results have no values")

    library: Any = torch

    def plain(value: Any) -> Any:
        library._sync(value)
        return library._from_functional_tensor(value.elem)

    def check(given: Inputs, inputs: Inputs) -> None:
        other = given.copy()
        with FunctionalTensorMode():
            wrapped = other.map(FunctionalTensor.to_functional)
            result = tensors_of(subject.call(wrapped))
            found = [plain(tensor) if isinstance(tensor, FunctionalTensor) else tensor for tensor in result]
            written = [plain(tensor) for tensor in tensors_of(wrapped.values)]
        if difference(tensors_of(subject.call(inputs)), found) or difference(tensors_of(inputs.values), written):
            raise WrongResultError(f"{subject.name} gives other values under functionalization than without")

    subject.over(check)


def aot(subject: Subject) -> None:
    """Run opcheck's test of AOTAutograd."""
    import torch

    _is_traced(subject)

    def check(given: Inputs, inputs: Inputs) -> None:
        graded = inputs.map(lambda tensor: tensor.requires_grad_(tensor.is_floating_point() and subject.graded))
        torch.library.opcheck(subject.op, graded.positional, graded.named, test_utils="test_aot_dispatch_dynamic")

    subject.over(check, most=2)


def compile_consumer(subject: Subject) -> None:
    """Compile the operator with a consumer of its results by Inductor, and compare."""

    def consumer(op: Any, inputs: Inputs) -> Any:
        return [
            _and_one(tensor)
            for tensor in (*tensors_of(op(*inputs.positional, **inputs.named)), *tensors_of(inputs.values))
        ]

    _compare_compiled(subject, "inductor", consumer)


def compile_write(subject: Subject) -> None:
    """Compile a graph in which results and inputs are written after the call, and compare."""
    if any(returned.alias_info is not None for returned in subject.schema.returns):
        raise NotNeededError("its schema says that results alias arguments")

    def writer(op: Any, inputs: Inputs) -> Any:
        result = tensors_of(op(*inputs.positional, **inputs.named))
        kept = [tensor * 1 for tensor in tensors_of(inputs.values)]
        for tensor in (*result, *tensors_of(inputs.values)):
            if tensor.is_floating_point():
                tensor.add_(1)
        return [tensor * 1 for tensor in (*result, *tensors_of(inputs.values))] + kept

    _compare_compiled(subject, "aot_eager", writer)


def _and_one(tensor: Any) -> Any:
    return ~tensor if str(tensor.dtype) == "torch.bool" else tensor + 1


def _is_traced(subject: Subject) -> None:
    """Raise what keeps a compiler from the operator."""
    subject.decided()
    if subject.random:
        raise NotNeededError("it is random")
    if subject.fakeless:
        raise NotNeededError("it has no fake")


def _compare_compiled(subject: Subject, backend: str, graph: Callable[[Any, Inputs], Any]) -> None:
    import torch

    _is_traced(subject)

    def check(given: Inputs, inputs: Inputs) -> None:
        torch._dynamo.reset()
        op, other = subject.op, given.copy()
        compiled = torch.compile(lambda *args, **named: graph(op, Inputs(args, named)), backend=backend, fullgraph=True)
        wanted = graph(op, inputs)
        found = compiled(*other.positional, **other.named)
        if difference(wanted, found) or difference(tensors_of(inputs.values), tensors_of(other.values)):
            raise WrongResultError(f"{subject.name} gives other values in a graph that is compiled by {backend}")

    subject.over(check, layouts=True, most=1)
