"""Count what the Python-side registries of this process have, without the readers that are tested with it."""

from __future__ import annotations

import sys
from collections import Counter
from importlib import import_module
from typing import Any

from dispatchlab.model.python_layer import PYTHON_REGISTRIES
from dispatchlab.model.python_layer_in_memory import PythonLayerInMemory
from dispatchlab.pytorch.introspection.python_registries import read_whole_layer


def whole_layer() -> PythonLayerInMemory:
    """All that is read, with every part of PyTorch imported."""
    return read_whole_layer()


def counts() -> dict[str, int]:
    """The counts, by registry and by dispatch key of Python kernels."""
    import torch
    from torch._decomp import global_decomposition_table
    from torch._library.simple_registry import singleton
    from torch._subclasses import fake_impls

    import_module("torch._decomp.decompositions_for_jvp")  # it registers nothing by itself
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
        by_mode += len(_first(found, "python_key_table", "python_key_mode_table"))
        by_check += sum(bool(check(found)) for check, _ in checks)
        keys.update(key.name for key in kernels)
    homes = ("torch.distributed.tensor", "torch.distributed._tensor", "torch.distributed._tensor.api")
    dispatchers = [_had(f"{home}:DTensor._op_dispatcher") for home in homes]
    dtensor = next((one for one in dispatchers if one), ())
    rules = getattr(dtensor, "sharding_propagator", ())
    constraints = _first(sys.modules.get("torch._inductor.lowering"), "_maybe_layout_constraints", "layout_constraints")
    export = _first(torch._decomp, "_core_aten_decompositions_post_autograd", "core_aten_decompositions")
    otherwise = {
        "py_kernels": operators,
        "mode_rules": by_mode,
        "decompositions": sum(len(global_decomposition_table[key]) for key in ("post_autograd", "pre_autograd")),
        "meta_functions": len(global_decomposition_table["meta"]),
        "export_decompositions": len(export()),
        "fake_checks": by_check,
        "fast_fake_rules": len(fake_impls.get_fast_op_impls()),
        "torch_library": len(singleton._data),
        "dtensor_handlers": len(getattr(dtensor, "_custom_op_handlers", ())),
        "dtensor_rules": sum(
            len(getattr(rules, table, ()))
            for table in ("op_to_rules", "op_strategy_funcs", "op_single_dim_strategy_funcs")
        ),
        "inductor_constraints": sum(one is not None for one in constraints.values()),
        "masked_tensor": len(_had(f"{_MASKED}:_MASKEDTENSOR_DISPATCH_TABLE"))
        + len(_had(f"{_MASKED}:_MASKEDTENSOR_FUNCTION_TABLE")),
        "semi_structured": 0,
        "sharded_tensor": len(_had(f"{_SHARDED}.sharded_tensor.api:_SHARDED_OPS"))
        + len(_had(f"{_SHARDED}.sharded_tensor.api:_CUSTOM_SHARDED_OPS"))
        + sum(map(len, dict(_had(f"{_SHARDED}.sharding_spec.api:_CUSTOM_SHARDING_SPEC_OPS")).values())),
    }
    plain = {one.name: len(_had(one.home)) for one in PYTHON_REGISTRIES if one.name not in otherwise}
    return {**{f"py_kernels at {key}": count for key, count in keys.items()}, **plain, **otherwise}


def _had(home: str) -> Any:
    """What a module that is imported has; nothing where it is not."""
    module, _, path = home.partition(":")
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, ())
    return found


def _first(home: Any, *names: str) -> Any:
    return next((getattr(home, name) for name in names if hasattr(home, name)), {})


_MASKED = "torch.masked.maskedtensor._ops_refs"
_SHARDED = "torch.distributed._shard"


def semi_structured_tables() -> list[int]:
    """How many tables of semi-structured tensors are filled, what is read twice, and how many are filled then."""

    def filled() -> int:
        return sum(getattr(one, "SPARSE_DISPATCH", None) is not None for one in _semi_structured_classes())

    from dispatchlab.pytorch.bridge.registry_tables import entries_of

    before = filled()
    return [before, *(len(list(entries_of("semi_structured"))) for _ in range(2)), filled()]


def _semi_structured_classes() -> list[Any]:
    from torch.sparse import semi_structured

    return [semi_structured.SparseSemiStructuredTensorCUTLASS, semi_structured.SparseSemiStructuredTensorCUSPARSELT]
