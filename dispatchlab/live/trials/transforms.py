"""Trials of what PyTorch makes of an operator: gradients, vmap, autocast, functionalization and compiled graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from dispatchlab.live.trials.inputs import Inputs, copy_of, is_tensor, tensors_of
from dispatchlab.live.trials.subject import NotNeededError, Subject, WrongResultError, difference

_STEPS: Final = {"torch.float64": (1e-5, 1e-3), "torch.float32": (2e-2, 5e-2)}
"""The step of a finite difference, and by how much a gradient may differ from it."""

_DEVICES: Final = ("CPU", "CUDA", "XPU", "MPS")


def _is_plain(subject: Subject) -> None:
    """Raise where one call does not give what another one gives."""
    if subject.writes or subject.random:
        raise NotNeededError("it writes its arguments" if subject.writes else "it is random")


def backward(subject: Subject) -> None:
    """Compare gradients with finite differences along one direction."""
    _is_plain(subject)
    subject.over(partial(_check_gradient, subject))


def _check_gradient(subject: Subject, given: Inputs, _: Inputs) -> None:
    import torch

    double = given.map(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)
    exact = double if subject.takes(double) else given
    tensors = [tensor for tensor in tensors_of(exact.values) if tensor.is_floating_point()]
    if not tensors or any(str(tensor.dtype) not in _STEPS for tensor in tensors):
        raise NotNeededError("no argument is a plain number that has a gradient")
    graded = exact.map(lambda tensor: copy_of(tensor).requires_grad_(tensor.is_floating_point()))
    leaves = [tensor for tensor in tensors_of(graded.values) if tensor.requires_grad]
    result = tensors_of(subject.call(graded, grad=True))
    places = [at for at, tensor in enumerate(result) if tensor.requires_grad and tensor.is_floating_point()]
    draw = torch.Generator().manual_seed(0)
    weights = [torch.rand(result[at].shape, generator=draw, dtype=result[at].dtype) + 0.5 for at in places]
    try:
        grads = torch.autograd.grad([result[at] for at in places], leaves, weights, allow_unused=True) if places else ()
    except RuntimeError as error:
        if "no autograd formula was registered" not in str(error):
            raise
        grads = ()
    if not grads:
        raise NotNeededError("it has no autograd formula")
    subject.graded = True
    directions = [
        torch.rand(leaf.shape, generator=draw, dtype=leaf.dtype) - 0.5 if is_tensor(grad) else torch.zeros_like(leaf)
        for leaf, grad in zip(leaves, grads, strict=True)
    ]
    step, tolerance = _STEPS[str(leaves[0].dtype)]
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


def _slope(
    subject: Subject, inputs: Inputs, ways: Sequence[Any], places: Sequence[int], weights: Sequence[Any], step: float
) -> float:
    """Return how fast the weighted results change along directions, by finite differences."""

    def weighted(step: float) -> float:
        left = iter(ways)
        moved = inputs.map(lambda tensor: tensor + step * next(left) if tensor.is_floating_point() else copy_of(tensor))
        result = tensors_of(subject.call(moved))
        return sum(float((result[at] * weight).sum()) for at, weight in zip(places, weights, strict=True))

    return (weighted(step) - weighted(-step)) / (2 * step)


def vmap(subject: Subject) -> None:
    """Compare a call on a batch under vmap with calls on each example."""
    import torch
    from torch.utils._pytree import tree_flatten, tree_unflatten

    _is_plain(subject)

    def check(given: Inputs, inputs: Inputs) -> None:
        flipped = given.map(lambda tensor: tensor.flip(0) if tensor.dim() else tensor)
        examples = [inputs, (flipped if subject.takes(flipped) else given).copy()]
        leaves, tree = tree_flatten((given.positional, given.named))
        if not tensors_of(leaves):
            raise NotNeededError("it takes no tensor")

        def batched(*tensors: Any) -> Any:
            left = iter(tensors)
            positional, named = tree_unflatten([next(left) if is_tensor(leaf) else leaf for leaf in leaves], tree)
            return subject.op(*positional, **named)

        wanted = [torch.stack(pair) for pair in zip(*(tensors_of(subject.call(e)) for e in examples), strict=True)]
        stacks = [torch.stack(pair) for pair in zip(*(tensors_of(e.values) for e in examples), strict=True)]
        try:
            found = tensors_of(subject.call(Inputs(tuple(stacks)), torch.vmap(batched, randomness="same")))
        except Exception as error:
            if subject.has("FuncTorchBatched"):
                raise
            raise NotNeededError(f"it has no rule: {str(error).partition(chr(10))[0][:120]}") from None
        if difference(wanted, found):
            subject.watch.note("rule differs", subject.name)
            raise WrongResultError(f"{subject.name} gives other values under vmap than for each example")

    subject.over(check)


def autocast(subject: Subject) -> None:
    """Call the operator under autocast, and look for devices with a kernel and without one for autocast."""
    import torch

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
    """Compare a call under functionalization with the plain one, in results and in what is written."""
    import torch
    from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

    subject.decided()
    library: Any = torch

    def plain(value: Any) -> Any:
        if not isinstance(value, FunctionalTensor):
            return value
        library._sync(value)
        return library._from_functional_tensor(value.elem)

    def check(given: Inputs, inputs: Inputs) -> None:
        other = given.copy()
        with FunctionalTensorMode():
            wrapped = other.map(FunctionalTensor.to_functional)
            result = tensors_of(subject.call(wrapped))
            found = [plain(tensor) for tensor in (*result, *tensors_of(wrapped.values))]
        if "empty" not in subject.name and difference(
            [*tensors_of(subject.call(inputs)), *tensors_of(inputs.values)], found
        ):
            raise WrongResultError(f"{subject.name} gives other values under functionalization than without")

    subject.over(check)


def _is_traced(subject: Subject) -> None:
    """Raise what keeps a compiler from the operator."""
    subject.decided()
    if subject.random or subject.fakeless:
        raise NotNeededError("it is random" if subject.random else "it has no fake")


def aot(subject: Subject) -> None:
    """Run opcheck's test of AOTAutograd."""
    import torch

    _is_traced(subject)

    def check(_: Inputs, inputs: Inputs) -> None:
        graded = inputs.map(lambda tensor: tensor.requires_grad_(tensor.is_floating_point() and subject.graded))
        torch.library.opcheck(subject.op, graded.positional, graded.named, test_utils="test_aot_dispatch_dynamic")

    subject.over(check, most=2)


def compile_consumer(subject: Subject) -> None:
    """Compile the operator with a consumer of its results by Inductor, and compare."""

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
    import torch

    _is_traced(subject)

    def check(given: Inputs, inputs: Inputs) -> None:
        torch._dynamo.reset()
        op, other = subject.op, given.copy()
        compiled = torch.compile(lambda *args, **named: graph(op, Inputs(args, named)), backend=backend, fullgraph=True)
        wanted, found = graph(op, inputs), compiled(*other.positional, **other.named)
        if difference([wanted, *inputs.values], [found, *other.values]):
            raise WrongResultError(f"{subject.name} gives other values in a graph that is compiled by {backend}")

    subject.over(check, layouts=True, most=1)
