"""Count what the Python-side registries of this process have, without the readers that are tested with it."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from dispatchlab.live.introspection.python_registries import read_python_layer
from dispatchlab.model.python_layer_in_memory import PythonLayerInMemory


def whole_layer() -> PythonLayerInMemory:
    """All that is read, with every part of PyTorch imported."""
    return read_python_layer(all_known=True)


def counts() -> dict[str, int]:
    """The counts, by what is counted."""
    import torch
    from torch._decomp import global_decomposition_table
    from torch._library.simple_registry import singleton
    from torch._subclasses.fake_impls import op_implementations_dict

    def had(module: str, *path: str) -> Any:
        found: Any = sys.modules.get(module)
        for name in path:
            found = getattr(found, name, ())
        return found

    keys: Counter[str] = Counter()
    operators = 0
    for text in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = text.partition("::")
        name, _, overload = rest.partition(".")
        packet = getattr(getattr(torch.ops, namespace), name, None)
        if namespace.startswith("_dispatchlab") or packet is None or (overload or "default") not in packet.overloads():
            continue
        kernels = getattr(packet, overload or "default").py_kernels
        operators += bool(kernels)
        keys.update(key.name for key in kernels)
    rules = had("torch.distributed.tensor", "DTensor", "_op_dispatcher", "sharding_propagator")
    return {
        "operators with Python kernels": operators,
        **{f"Python kernels at {key}": count for key, count in keys.items()},
        "decompositions": len(global_decomposition_table["post_autograd"])
        + len(global_decomposition_table["pre_autograd"]),
        "meta functions": len(global_decomposition_table["meta"]),
        "fake-tensor rules": len(op_implementations_dict),
        "operators of torch.library": len(singleton._data),
        "higher-order operators": len(torch._ops._higher_order_ops),
        "sharding rules": sum(
            len(getattr(rules, table, ()))
            for table in ("op_to_rules", "op_strategy_funcs", "op_single_dim_strategy_funcs")
        ),
        "lowerings": len(had("torch._inductor.lowering", "lowerings")),
        "fallbacks": len(had("torch._inductor.lowering", "fallbacks")),
        "decompositions of Inductor": len(had("torch._inductor.decomposition", "decompositions")),
        "jagged functions": len(had("torch.nested._internal.ops", "JAGGED_OPS_TABLE")),
        "random decompositions of Inductor": len(had(_RANDOM, "extra_random_decomps")),
        "random decompositions": len(had(_RANDOM, "rng_decompositions")),
        "functions of masked tensors": len(had(_MASKED, "_MASKEDTENSOR_DISPATCH_TABLE"))
        + len(had(_MASKED, "_MASKEDTENSOR_FUNCTION_TABLE")),
        "functions of sharded tensors": len(had(f"{_SHARDED}.sharded_tensor.api", "_SHARDED_OPS"))
        + len(had(f"{_SHARDED}.sharded_tensor.api", "_CUSTOM_SHARDED_OPS"))
        + sum(map(len, dict(had(f"{_SHARDED}.sharding_spec.api", "_CUSTOM_SHARDING_SPEC_OPS")).values())),
    }


_RANDOM = "torch._decomp.decompositions_for_rng"
_MASKED = "torch.masked.maskedtensor._ops_refs"
_SHARDED = "torch.distributed._shard"


def semi_structured_tables() -> list[int]:
    """How many tables of semi-structured tensors are filled, what is read twice, and how many are filled then."""

    def filled() -> int:
        return sum(getattr(one, "SPARSE_DISPATCH", None) is not None for one in _semi_structured_classes())

    from dispatchlab.live.introspection.python_registries import READERS

    before = filled()
    return [before, *(len(list(READERS["semi_structured"]())) for _ in range(2)), filled()]


def _semi_structured_classes() -> list[Any]:
    from torch.sparse import semi_structured

    return [semi_structured.SparseSemiStructuredTensorCUTLASS, semi_structured.SparseSemiStructuredTensorCUSPARSELT]
