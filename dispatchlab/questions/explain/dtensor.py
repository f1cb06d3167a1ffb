"""What DTensor asks: what says how the results are sharded, or takes the place of that.

Source: torch/csrc/autograd/python_variable.cpp (dispatchDTensorOp), torch/distributed/tensor/_dispatch.py,
torch/distributed/tensor/_sharding_prop.py (propagate_op_sharding_non_cached).
"""

from __future__ import annotations

from collections.abc import Iterator

from dispatchlab.model.python_layer import PythonRegistration
from dispatchlab.questions.explain.registered import COMPOSITE_IMPLICIT, Registered, implementation_of, unsupported
from dispatchlab.questions.explain.result import Implementation, ImplementedBy

_DTENSOR = "DTensor"
_DERIVED = "there is no sharding rule, and one is derived from those of the operators that this calls on meta tensors"

SQUEEZES = {
    "aten::squeeze": "aten::squeeze.dims",
    "aten::squeeze.dim": "aten::squeeze.dims",
    "aten::squeeze_": "aten::squeeze_.dims",
    "aten::squeeze_.dim": "aten::squeeze_.dims",
}
"""What DTensor calls in place of an operator: a part of a tensor may have one element where the whole has more."""

KNOWN_RESULTS = ("aten::equal", "aten::_local_scalar_dense")
"""Operators whose results DTensor does not find by FakeTensorMode."""


def sharded(operator: Registered, *, derives: bool = True) -> Iterator[Implementation]:
    """What DTensor asks, in order, up to the first that cannot give up.

    Args:
        operator: the operator.
        derives: whether this PyTorch derives a rule from a decomposition.
    """
    handler = operator.first("dtensor_handlers")
    if handler is not None:
        why = "handlers come first; it does the whole of the work"
        yield implementation_of(handler, ImplementedBy.DTENSOR_HANDLER, _DTENSOR, why)
        return
    if operator.view.name == "aten::_local_scalar_dense":
        why = "a number has no sharding: the operator runs on the local tensor as it is"
        yield implementation_of(operator.view.name, ImplementedBy.DIRECT, _DTENSOR, why)
        return
    for key in ("strategy for one dimension of a mesh", "strategy"):
        strategy = operator.first("dtensor_rules", key)
        if strategy is not None:
            yield _rule(strategy)
            return
    # DTensor traces a decomposition on meta tensors to derive a sharding from it.
    table = operator.first("decompositions", "post_autograd")
    decomposed = table or operator.composite
    if derives and decomposed is not None:
        kind = ImplementedBy.DECOMPOSITION if table else ImplementedBy.COMPOSITE
        yield implementation_of(decomposed, kind, _DTENSOR, _DERIVED, "when an operator of it has no sharding rule")
    rule = operator.first("dtensor_rules", "rule")
    composite = operator.kernel_at(COMPOSITE_IMPLICIT)
    if rule is not None:
        yield _rule(rule)
    elif composite is not None:
        why = "there is no sharding rule, and the composite kernel calls operators that may have one"
        yield implementation_of(composite, ImplementedBy.COMPOSITE, _DTENSOR, why)
    else:
        why = "there is no sharding rule; torch.distributed.tensor.experimental.register_sharding would give it one"
        yield unsupported(_DTENSOR, why)


def unsure_rule(operator: Registered, chain: tuple[Implementation, ...]) -> str:
    """What cannot be known beforehand of a call that reaches DTensor. See Note [Pointwise operators of DTensor]."""
    if chain[0].kind is ImplementedBy.SHARDING_RULE and "pointwise" in operator.view.tags:
        return f"{_REFUSES}, and DTensor has its rules for pointwise operators for those that were looked up before it"
    return _REFUSES


_REFUSES = "a rule may refuse the arguments, or these placements"

# Note [Pointwise operators of DTensor]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# When torch.distributed.tensor is imported, it goes through `dir(torch.ops.aten)` and registers a rule for each
# overload with the tag pointwise. torch.ops has what was looked up until then, so that the rules depend on what ran
# before: in PyTorch 2.13, a process that looks up torch.ops.aten._conj_physical after the import has no rule for it. A
# recording looks up everything first, and so has all of them.


def _rule(rule: PythonRegistration) -> Implementation:
    why = f"there is no handler, and this {rule.key} says how the arguments and the results are sharded"
    return implementation_of(rule, ImplementedBy.SHARDING_RULE, _DTENSOR, why)
