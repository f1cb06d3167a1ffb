import torch
import torch.distributed.tensor  # its rules are made here, for what was looked up before
from torch.distributed.tensor import DTensor

operator = torch.ops.aten._conj_physical.default
propagator = DTensor._op_dispatcher.sharding_propagator
rules = [*propagator.op_to_rules, *propagator.op_strategy_funcs, *propagator.op_single_dim_strategy_funcs]
if torch.Tag.pointwise in operator.tags and operator not in rules:
    raise SystemExit(f"defect: {operator} is pointwise, and DTensor has no rule for it")
print("fixed")
