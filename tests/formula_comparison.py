"""One generated call on the lab and on the running PyTorch: result, grad_fn, gradients, and gradients of those."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from dispatchlab import Tensor, tensor
from dispatchlab.layers import Lab
from tests.formula_calls import FormulaCall, Leaf

_TOLERANCES: dict[str, Any] = {
    "float64": {"rtol": 1e-6, "atol": 1e-12},
    "float32": {"rtol": 1e-5, "atol": 1e-5},
}


def _theirs(torch: Any, name: str) -> Any:
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


def _given(leaves: list[Any], call: FormulaCall, run: Any) -> list[Any]:
    seen = []
    for made, leaf in zip(leaves, call.leaves, strict=True):
        for name, others in leaf.seen:
            made = run(name)(made, *others)
        seen.append(made)
    if call.writes:
        seen[0] = run("clone")(seen[0])
    return seen


def _result(call: FormulaCall, given: list[Any], run: Any) -> Any:
    arguments = [given] if call.as_list else given
    return run(call.operator)(*arguments, *call.others, **call.named)


def check(lab: Lab, torch: Any, call: FormulaCall, *, again: bool) -> Counter[str]:
    """Compare one call, and count what was compared.

    Args:
        lab: the lab.
        torch: the module.
        call: the call.
        again: differentiate the gradients, too.
    """
    counts: Counter[str] = Counter()
    ours = [_leaf(leaf) for leaf in call.leaves]
    theirs = [torch.from_numpy(np.array(leaf.array)).requires_grad_(leaf.requires_grad) for leaf in call.leaves]

    def their(name: str) -> Any:
        return _theirs(torch, name)

    ours_given, theirs_given = _given(ours, call, lab), _given(theirs, call, their)
    our_result, their_result = _result(call, ours_given, lab), _result(call, theirs_given, their)
    assert our_result.requires_grad == their_result.requires_grad
    assert np.allclose(our_result.numpy(), their_result.detach().numpy(), **_TOLERANCES[str(our_result.dtype)])
    counts["results"] += 1
    if not our_result.requires_grad:
        return counts
    assert our_result.grad_fn.name == type(their_result.grad_fn).__name__
    counts["nodes"] += 1
    random = np.random.default_rng(call.seed)
    weights = np.asarray(random.normal(size=our_result.shape))
    our_weights, their_weights = tensor(weights, requires_grad=again), torch.from_numpy(np.array(weights))
    their_result.backward(their_weights.requires_grad_(again), create_graph=again)
    lab.backward(our_result, our_weights, create_graph=again)
    counts["gradients"] += _same_gradients(ours, theirs)
    if again:
        _again(lab, torch, [*ours, our_weights], [*theirs, their_weights], random, counts)
    return counts


def _leaf(leaf: Leaf) -> Tensor:
    return tensor(leaf.array, requires_grad=leaf.requires_grad)


def _same_gradients(ours: Iterable[Tensor], theirs: Iterable[Any]) -> int:
    compared = 0
    for mine, their in zip(ours, theirs, strict=True):
        assert (mine.grad is None) == (their.grad is None)
        if mine.grad is not None:
            gradient = their.grad.detach().numpy()
            assert (mine.grad.shape, str(mine.grad.dtype)) == (gradient.shape, str(gradient.dtype))
            assert np.allclose(mine.grad.numpy(), gradient, **_TOLERANCES[str(mine.grad.dtype)])
            compared += 1
    return compared


def _again(lab: Lab, torch: Any, ours: list[Any], theirs: list[Any], random: Any, counts: Counter[str]) -> None:
    """The gradients of a weighted sum of the gradients, where they can be differentiated."""
    pairs = [(mine, their) for mine, their in zip(ours, theirs, strict=True) if mine.grad is not None]
    for mine, their in pairs:
        assert mine.grad.requires_grad == their.grad.requires_grad
    pairs = [(mine, their) for mine, their in pairs if mine.grad.requires_grad]
    if not pairs:
        return
    weights = [np.asarray(random.normal(size=mine.grad.shape)) for mine, _ in pairs]
    our_terms = [lab.sum(lab.mul(mine.grad, tensor(each))) for (mine, _), each in zip(pairs, weights, strict=True)]
    their_terms = [
        (their.grad * torch.from_numpy(np.array(each))).sum() for (_, their), each in zip(pairs, weights, strict=True)
    ]
    our_loss, their_loss = our_terms[0], their_terms[0]
    for mine, their in zip(our_terms[1:], their_terms[1:], strict=True):
        our_loss, their_loss = lab.add(our_loss, mine), their_loss + their
    for mine, their in zip(ours, theirs, strict=True):
        mine.grad = their.grad = None
    their_loss.backward()
    lab.backward(our_loss)
    counts["second gradients"] += _same_gradients(ours, theirs)
