"""What importing a package puts into PyTorch's registries, read here without dispatchlab, against the record of it.

    python -m tests.live.record_contents PACKAGE RECORD

prints how many entries there were before, and in JSON what the import added and which entries only one side has. The
modules of PyTorch that the package imports are imported first, so that nothing of PyTorch's own is among them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from dispatchlab.model.registration import Block, Def, Impl
from dispatchlab.model.registration import TorchLibraryFunction as F
from dispatchlab.scenario import parse_scenario
from tests.live.import_truth import forked

TABLES = (
    "torch._decomp.decompositions_for_jvp:decomposition_table_for_jvp",
    "torch._functorch.aot_autograd:aot_autograd_decompositions",
    "torch._subclasses.fake_impls:op_implementations_dict",
    "torch._subclasses.fake_impls:FAST_OP_IMPLEMENTATIONS",
    "torch._higher_order_ops.utils:registered_hop_fake_fns",
    "torch.nested._internal.ops:JAGGED_OPS_TABLE",
    "torch._inductor.decomposition:decompositions",
    "torch._inductor.lowering:lowerings",
    "torch._inductor.lowering:fallbacks",
    "torch._inductor.lowering:_maybe_layout_constraints",
    "torch._inductor.lowering:user_lowerings",
    "torch._decomp.decompositions_for_rng:extra_random_decomps",
    "torch._decomp.decompositions_for_rng:rng_decompositions",
    "torch.masked.maskedtensor._ops_refs:_MASKEDTENSOR_DISPATCH_TABLE",
    "torch.masked.maskedtensor._ops_refs:_MASKEDTENSOR_FUNCTION_TABLE",
    "torch.distributed._shard.sharded_tensor.api:_SHARDED_OPS",
    "torch.distributed._shard.sharded_tensor.api:_CUSTOM_SHARDED_OPS",
    "torch.utils.flop_counter:flop_registry",
    "torch.fx.node:_side_effectful_functions",
)
"""The tables and sets of operators and functions that modules have, where they are imported."""


class Entry(NamedTuple):
    """One entry: what it is (`def`, `kernel`, `fake`, `rule`, `custom_op`, or `python` for all else), and of what."""

    kind: str
    operator: str
    key: str = ""


def _name(operator: Any) -> str:
    ops = sys.modules["torch._ops"]
    if isinstance(operator, str):
        return operator
    if isinstance(operator, ops.HigherOrderOperator):
        return f"higher_order::{operator.name()}"
    if isinstance(operator, ops.OpOverload):
        return str(operator.name())
    if isinstance(operator, ops.OpOverloadPacket):
        return f"{operator._qualified_op_name}.*"
    return f"python::{getattr(operator, '__module__', '')}.{getattr(operator, '__qualname__', operator)}"


def _operators() -> Iterator[Any]:
    import torch

    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        try:
            yield getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
        except (AttributeError, RuntimeError):  # it has no def
            continue
    yield from torch._ops._higher_order_ops.values()


def _at(path: str) -> Any:
    """What is at `module:attribute.attribute`; an empty table where it is not imported."""
    module, _, names = path.partition(":")
    found = sys.modules.get(module)
    for name in names.split("."):
        found = getattr(found, name, None)
    return {} if found is None else found


def _items(table: Any) -> list[tuple[Any, Any]]:
    return list(table.items()) if isinstance(table, Mapping) else [(each, True) for each in table]


def registries() -> dict[tuple[Entry, str], object]:
    """What every registry has, by the entry and the table that it is in."""
    found: dict[tuple[Entry, str], object] = {}

    def put(kind: str, operator: Any, table: str, value: object, key: str = "") -> None:
        found[Entry(kind, _name(operator), key), table] = value

    for operator in _operators():
        put("python", operator, "operators", type(operator)) if "higher_order" in _name(operator) else None
        for table in ("py_kernels", "python_key_table", "functorch_table"):
            for key, value in (getattr(operator, table, None) or {}).items():
                put("python", operator, f"{table} {key}", value)
    for table in TABLES:
        for operator, value in _items(_at(table)):
            put("python", operator, table, value)
    for table, entries in _at("torch._decomp:global_decomposition_table").items():
        for operator, value in entries.items():
            put("python", operator, table, value)
    propagator = _at("torch.distributed.tensor:DTensor._op_dispatcher.sharding_propagator")
    for table in ("op_to_rules", "op_strategy_funcs", "op_single_dim_strategy_funcs"):
        for operator, value in _items(getattr(propagator, table, {})):
            put("python", operator, table, value)
    for operator, value in _items(_at("torch.distributed.tensor:DTensor._op_dispatcher._custom_op_handlers")):
        put("python", operator, "handlers", value)
    for name, group in _items(_at("torch.onnx._internal.torchscript_exporter.registration:registry._registry")):
        for opset, value in group._functions._overrides.items():
            put("python", name, f"opset {opset}", value)
    for name, holder in _items(_at("torch._library.simple_registry:singleton._data")):
        for kernel in holder.fake_impl.kernels:
            put("fake", name, kernel.source, kernel.func)
        for on, value in holder.torch_dispatch_rules._data.items():
            put("rule", name, f"{on}", value)
    for name, made in _items(_at("torch._library.custom_ops:OPDEFS")):
        put("custom_op", name, "", made)
    for noted in _at("torch.library:_impls"):
        namespace, name, key = noted.split("/")
        put("kernel", f"{namespace}::{name.removesuffix('.default')}", "", None, key or "CompositeImplicitAutograd")
    for name in _at("torch.library:_defs"):
        put("def", name, "", None)
    return found


def recorded(file: Path) -> Iterator[Entry]:
    """The entries that Python registers, as a record has them."""
    scenario = parse_scenario(file.read_text(encoding="utf-8"), file=str(file))
    yield from (Entry("python", each.operator) for each in scenario.python)
    for one in scenario.registrations:
        if isinstance(one, Block) and one.made_by is not None:
            name, namespace = str(one.made_by.operator.within(one.namespace or "")), one.namespace
            for function in (one.made_by.function, *(part.function for part in one.made_by.parts)):
                if function in (F.REGISTER_FAKE, F.CUSTOM_OP):
                    yield Entry("fake", name)
                if function is F.REGISTER_TORCH_DISPATCH:
                    yield Entry("rule", name)
                if function is F.CUSTOM_OP:
                    yield Entry("custom_op", name)
            for inner in one.registrations:
                if isinstance(inner, Impl):
                    key = inner.key or "CompositeImplicitAutograd"
                    yield Entry("kernel", f"{namespace}::{inner.operator.without_namespace}", str(key))
                if isinstance(inner, Def):
                    yield Entry("def", f"{namespace}::{inner.operator.without_namespace}")


def _imported_with(package: str, before: Iterable[str]) -> list[str]:
    """The modules of PyTorch that a package imports besides."""
    import_module(package)
    return [name for name in sys.modules if name.startswith("torch.") and name not in before]


def compared(package: str, file: Path) -> dict[str, Any]:
    """What the import of a package added, and what only one side has."""
    import_module("torch._functorch.aot_autograd")
    before = set(sys.modules)
    needs = forked(lambda: _imported_with(package, before), timeout=600)
    assert isinstance(needs, list), needs
    for name in needs:
        with suppress(ModuleNotFoundError):  # torch.ops and its kind are no modules of a file
            import_module(name)
    old = registries()
    import_module(package)
    now = registries()
    added = {at[0] for at, value in now.items() if at not in old or old[at] is not value}
    wanted = set(recorded(file))
    return {
        "before": len(old),
        "added": len(added),
        "gone": sorted(map(str, old.keys() - now.keys())),
        "unrecorded": sorted(map(str, added - wanted)),
        "not there": sorted(map(str, wanted - added)),
    }


if __name__ == "__main__":
    sys.stdout.write(f"{json.dumps(compared(sys.argv[1], Path(sys.argv[2])))}\n")
