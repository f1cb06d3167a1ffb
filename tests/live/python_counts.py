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
    from torch._decomp.decompositions_for_jvp import decomposition_table_for_jvp
    from torch._library.custom_ops import OPDEFS
    from torch._library.simple_registry import singleton
    from torch._subclasses import fake_impls

    def had(module: str, *path: str) -> Any:
        found: Any = sys.modules.get(module)
        for name in path:
            found = getattr(found, name, ())
        return found

    def had_first(home: Any, *names: str) -> Any:
        return next((getattr(home, name) for name in names if hasattr(home, name)), {})

    keys: Counter[str] = Counter()
    operators = by_mode = by_check = 0
    checks = [one for one in fake_impls.op_implementations_checks if not hasattr(one[0], "__self__")]
    for text in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = text.partition("::")
        name, _, overload = rest.partition(".")
        packet = getattr(getattr(torch.ops, namespace), name, None)
        if namespace.startswith("_dispatchlab") or packet is None or (overload or "default") not in packet.overloads():
            continue
        found = getattr(packet, overload or "default")
        kernels = found.py_kernels
        operators += bool(kernels)
        by_mode += len(had_first(found, "python_key_table", "python_key_mode_table"))
        by_check += sum(bool(check(found)) for check, _ in checks)
        keys.update(key.name for key in kernels)
    homes = ("torch.distributed.tensor", "torch.distributed._tensor", "torch.distributed._tensor.api")
    dispatchers = [had(home, "DTensor", "_op_dispatcher") for home in homes]
    dtensor = next((one for one in dispatchers if one), ())
    rules = getattr(dtensor, "sharding_propagator", ())
    lowering = sys.modules.get("torch._inductor.lowering")
    constraints = had_first(lowering, "_maybe_layout_constraints", "layout_constraints")
    return {
        "operators with Python kernels": operators,
        **{f"Python kernels at {key}": count for key, count in keys.items()},
        "decompositions": len(global_decomposition_table["post_autograd"])
        + len(global_decomposition_table["pre_autograd"]),
        "decompositions to core ATen": len(
            had_first(torch._decomp, "_core_aten_decompositions_post_autograd", "core_aten_decompositions")()
        ),
        "decompositions for forward mode": len(decomposition_table_for_jvp),
        "decompositions of AOTAutograd": len(had("torch._functorch.aot_autograd", "aot_autograd_decompositions")),
        "meta functions": len(global_decomposition_table["meta"]),
        "fake-tensor rules": len(fake_impls.op_implementations_dict),
        "fake-tensor rules by a property": by_check,
        "fast fake-tensor rules": len(fake_impls.get_fast_op_impls()),
        "rules for one mode": by_mode,
        "operators of torch.library": len(singleton._data),
        "custom operators": len(OPDEFS),
        "higher-order operators": len(torch._ops._higher_order_ops),
        "fake functions of higher-order operators": len(
            had("torch._higher_order_ops.utils", "registered_hop_fake_fns")
        ),
        "handlers of DTensor": len(getattr(dtensor, "_custom_op_handlers", ())),
        "sharding rules": sum(
            len(getattr(rules, table, ()))
            for table in ("op_to_rules", "op_strategy_funcs", "op_single_dim_strategy_funcs")
        ),
        "lowerings": len(had("torch._inductor.lowering", "lowerings")),
        "fallbacks": len(had("torch._inductor.lowering", "fallbacks")),
        "layout constraints": sum(one is not None for one in constraints.values()),
        "lowerings of users": len(had("torch._inductor.lowering", "user_lowerings")),
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
