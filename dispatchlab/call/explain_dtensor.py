"""Explain a call with DTensors: what says how the results are sharded, or takes the place of that.

Source: torch/csrc/autograd/python_variable.cpp (dispatchDTensorOp), torch/distributed/tensor/_dispatch.py,
torch/distributed/tensor/_sharding_prop.py (propagate_op_sharding_non_cached).
"""

from __future__ import annotations

from collections.abc import Iterator

from dispatchlab.call.implementation import Implementation, ImplementedBy, Registered, implementation_of
from dispatchlab.model.python_layer import PythonRegistration

_DTENSOR = "DTensor"
_NO_RULE = "when an operator of it has no sharding rule"
_COMPOSITE = "CompositeImplicitAutograd"

SQUEEZES = {
    "aten::squeeze": "aten::squeeze.dims",
    "aten::squeeze.dim": "aten::squeeze.dims",
    "aten::squeeze_": "aten::squeeze_.dims",
    "aten::squeeze_.dim": "aten::squeeze_.dims",
}
"""What DTensor calls in place of an operator: a part of a tensor may have one element where the whole has more."""

KNOWN_RESULTS = ("aten::equal", "aten::_local_scalar_dense")
"""Operators whose results DTensor does not find by FakeTensorMode."""


def sharded(found: Registered, *, derives: bool = True) -> Iterator[Implementation]:
    """What DTensor asks, in order, up to the first that cannot give up.

    Args:
        found: the operator.
        derives: whether this PyTorch derives a rule from a decomposition, as 2.11 and newer do.
    """
    name = found.view.name
    handler = found.one("dtensor_handlers")
    if handler is not None:
        why = "handlers come first; it does the whole of the work"
        yield implementation_of(handler, ImplementedBy.DTENSOR_HANDLER, _DTENSOR, why)
        return
    if name == "aten::_local_scalar_dense":
        why = "a number has no sharding: the operator runs on the local tensor as it is"
        yield Implementation(ImplementedBy.DIRECT, _DTENSOR, name, "", why)
        return
    for key in ("strategy for one dimension of a mesh", "strategy"):
        strategy = found.one("dtensor_rules", key)
        if strategy is not None:
            yield _rule(strategy)
            return
    if derives:
        yield from _decomposed(found)
    rule = found.one("dtensor_rules", "rule")
    if rule is not None:
        yield _rule(rule)
        return
    if found.kernel_at(_COMPOSITE) is not None:
        why = "there is no sharding rule, and the composite kernel calls operators that may have one"
        yield Implementation(ImplementedBy.COMPOSITE, _DTENSOR, found.kernel_at(_COMPOSITE) or "", "", why)
        return
    why = "there is no sharding rule; torch.distributed.tensor.experimental.register_sharding would give it one"
    yield Implementation(ImplementedBy.UNSUPPORTED, _DTENSOR, "", "", why)


def unsure_rule(found: Registered, chain: tuple[Implementation, ...]) -> str:
    """What cannot be known beforehand of a call that reaches DTensor. See Note [Pointwise operators of DTensor]."""
    if chain[0].kind is ImplementedBy.SHARDING_RULE and "pointwise" in found.view.tags:
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


def _decomposed(found: Registered) -> Iterator[Implementation]:
    """A decomposition, which DTensor traces on meta tensors to derive a sharding from."""
    why = "there is no sharding rule, and one is derived from those of the operators that this calls on meta tensors"
    table = found.one("decompositions", "post_autograd")
    if table is not None:
        yield implementation_of(table, ImplementedBy.DECOMPOSITION, _DTENSOR, why, _NO_RULE)
        return
    python = found.one("py_kernels", _COMPOSITE)
    if python is not None:
        yield implementation_of(python, ImplementedBy.COMPOSITE, _DTENSOR, why, _NO_RULE)
        return
    debug = found.kernel_at(_COMPOSITE)
    if debug is not None:
        yield Implementation(ImplementedBy.COMPOSITE, _DTENSOR, debug, "", why, _NO_RULE)
