"""Read what Python registers in the running PyTorch: a small reader for each registry of `PYTHON_REGISTRIES`.

A reader yields what its registry has now, and imports nothing. Where a version keeps a registry elsewhere, or keeps
something else in it, the registry is reported as not found.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

from dispatchlab._gc_pause import collector_paused
from dispatchlab.live.bridge.reserved_namespaces import is_own
from dispatchlab.live.bridge.torch import bindings, torch
from dispatchlab.live.introspection.lowering_calls import LoweringCalls
from dispatchlab.live.introspection.package_paths import package_roots
from dispatchlab.live.introspection.python_sites import FunctionSites
from dispatchlab.model.python_layer import (
    EVERY_OVERLOAD,
    FUNCTIONS,
    IMPORTS,
    NOTHING,
    PYTHON_REGISTRIES,
    PythonRegistration,
    PythonRegistry,
)
from dispatchlab.model.python_layer_in_memory import PythonLayerInMemory, python_layer


class Entry(NamedTuple):
    """What a registry keeps.

    Args:
        operator: the name of the operator, as `PythonRegistration` has it.
        key: what it is kept by besides.
        value: the function, or what stands for it.
        source: the line of the call that registered it, where PyTorch remembers it; empty where it does not.
        active: False when a newer one has taken its place.
    """

    operator: str
    key: str
    value: object
    source: str = ""
    active: bool = True


Reader: TypeAlias = Callable[[], Iterator[Entry]]


class NotFoundHere(Exception):
    """This version does not keep a registry where it is looked for; the text says what was looked for."""


def read_python_layer(*, imports: Iterable[str] = (), all_known: bool = False) -> PythonLayerInMemory:
    """Everything that the Python-side registries of this process have.

    Args:
        imports: modules to import one after the other; what comes with one says so.
        all_known: import every module of `IMPORTS` that there is.

    Returns:
        The layer. A registry that is not found is named in `missing`; a module that nobody imported, and one that
        cannot be imported here, in `not_imported`.
    """
    sites = FunctionSites(package_roots())
    calls = LoweringCalls(sites) if all_known else None  # See Note [The line of a lowering that a factory made]
    found, missing = _read_all(sites)
    kept = {_slot(one): one for one in found}
    failed: list[str] = []
    for module in (*imports, *(IMPORTS if all_known else ())):
        if module in sys.modules:
            continue
        try:
            with nullcontext() if calls is None else calls.watched():
                import_module(module)
        except Exception as error:  # a build of PyTorch without this part
            first = (str(error).splitlines() or [type(error).__name__])[0]
            failed.append(f"{module} cannot be imported: {first[:_LONG]}")
            continue
        found, missing = _read_all(sites, calls=calls)
        for one in found:
            known = kept.get(_slot(one))
            needs = module if known is None else known.needs
            kept[_slot(one)] = one._replace(needs=needs)
        gone = kept.keys() - {_slot(one) for one in found}
        for slot in gone:
            del kept[slot]
    not_imported = [module for module in IMPORTS if module not in sys.modules]
    return python_layer(str(torch().__version__), kept.values(), sorted(missing), not_imported, failed)


_LONG = 200


def read_whole_layer() -> PythonLayerInMemory:
    """Everything, after every module of `IMPORTS` is imported."""
    return read_python_layer(all_known=True)


def read_operators(operators: Iterable[str]) -> PythonLayerInMemory:
    """What the registries that are imported have for some operators alone."""
    found, missing = _read_all(FunctionSites(package_roots()), frozenset(operators))
    not_imported = [module for module in IMPORTS if module not in sys.modules]
    return python_layer(str(torch().__version__), found, sorted(missing), not_imported)


def _slot(one: PythonRegistration) -> tuple[object, ...]:
    """What distinguishes one registration from another, whenever it is read."""
    return one.registry, one.operator, one.key, one.function, one.site, one.active


def _read_all(
    sites: FunctionSites, only: frozenset[str] | None = None, calls: LoweringCalls | None = None
) -> tuple[list[PythonRegistration], set[str]]:
    """What all registries have now, and the names of those that are not found."""
    found: list[PythonRegistration] = []
    missing: set[str] = set()
    with collector_paused():
        for registry in PYTHON_REGISTRIES:
            if registry.needs and registry.needs not in sys.modules:
                continue
            try:
                found += _registrations(registry, sites, only, calls)
            except (NotFoundHere, AttributeError, TypeError, ValueError, KeyError, ImportError):
                missing.add(registry.name)
    return found, missing


def _registrations(
    registry: PythonRegistry, sites: FunctionSites, only: frozenset[str] | None, calls: LoweringCalls | None
) -> list[PythonRegistration]:
    found = []
    for entry in READERS[registry.name]():
        if is_own(entry.operator) or (only is not None and entry.operator not in only):
            continue
        function, site = sites.of(entry.value)
        file, _, line = entry.source.rpartition(":")
        if line.isdecimal() and not is_api_file(file):
            site = sites.line(file, int(line)) or site
        if calls is not None:
            site = calls.site(entry.value) or site
        found.append(PythonRegistration(registry.name, entry.operator, entry.key, function, site, "", entry.active))
    return found


def is_api_file(file: str) -> bool:
    """Whether a file is of the registration API, which registers what others ask for."""
    return file.endswith((os.path.join("torch", "library.py"), os.path.join("_library", "custom_ops.py")))


# -- names


def operator_text(operator: object) -> str:
    """The name of an operator of any kind; see `PythonRegistration.operator`."""
    ops = import_module("torch._ops")
    match operator:
        case str():
            return operator if "::" in operator else f"{FUNCTIONS}::{operator}"
        case ops.HigherOrderOperator():
            return f"higher_order::{operator.name()}"
        case ops.OpOverloadPacket():
            return f"{operator._qualified_op_name}.{EVERY_OVERLOAD}"
        case ops.OpOverload():
            return str(operator.name())
    module = getattr(operator, "__module__", None) or getattr(getattr(operator, "__self__", None), "__name__", "torch")
    return f"{FUNCTIONS}::{module}.{getattr(operator, '__qualname__', type(operator).__qualname__)}"


def _function_text(function: object) -> str:
    """The name of a function that `__torch_function__` has, as users call it: `python::torch.Tensor.size`."""
    name = import_module("torch.overrides").resolve_name(function)
    return f"{FUNCTIONS}::{name}" if name and "::" not in name else operator_text(function)


def key_text(key: object) -> str:
    """A key of an operator's table: a dispatch key, a class, or a transform of functorch."""
    if isinstance(key, type):
        return f"{key.__module__}.{key.__qualname__}"
    name = getattr(key, "name", None)
    text = name if isinstance(name, str) else str(key)
    return f"functorch {text}" if type(key).__name__ == "TransformType" else text


def _attribute(module: str, path: str) -> Any:
    """What a module that is imported has by a path of names.

    Raises:
        NotFoundHere: it is not imported, or has no such thing.
    """
    value: Any = sys.modules.get(module)
    if value is None:
        raise NotFoundHere(module)
    for name in path.split("."):
        if not hasattr(value, name):
            raise NotFoundHere(f"{module}.{path}")
        value = getattr(value, name)
    return value


def _table(module: str, path: str) -> Mapping[Any, Any]:
    """A table that a module has; raises NotFoundHere."""
    table = _attribute(module, path)
    if not isinstance(table, Mapping):
        raise NotFoundHere(f"{module}.{path} is no table")
    return table


def _plain(module: str, *names: str) -> Reader:
    """The reader of a table from operators to functions, by the names that versions have for it."""

    def read() -> Iterator[Entry]:
        path = next((name for name in names if hasattr(sys.modules.get(module), name)), names[0])
        for operator, function in list(_table(module, path).items()):
            if function is not None:
                yield Entry(operator_text(operator), "", function)

    return read


# -- readers


def overloads() -> Iterator[Any]:
    """The `OpOverload` of every operator that has one."""
    ops = torch().ops
    for name in bindings()._dispatch_get_all_op_names():
        if is_own(name):
            continue
        namespace, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        try:
            yield getattr(getattr(getattr(ops, namespace), base), overload or "default")
        except (AttributeError, RuntimeError):  # kernels without a def have none
            continue


MODE_TABLES = ("python_key_table", "python_key_mode_table")
"""What versions call the table of an operator by mode and class, the newer name first."""


def _of_overloads(*attributes: str) -> Reader:
    def read() -> Iterator[Entry]:
        attribute = next((name for name in attributes if hasattr(torch().ops.aten.add.Tensor, name)), "")
        if not attribute:
            raise NotFoundHere(attributes[0])
        for overload in overloads():
            for key, function in list(getattr(overload, attribute).items()):
                yield Entry(operator_text(overload), key_text(key), function)

    return read


def _decompositions() -> Iterator[Entry]:
    for table, entries in _table("torch._decomp", "global_decomposition_table").items():
        if table != "meta":
            for operator, function in list(entries.items()):
                yield Entry(operator_text(operator), table, function)


def _meta_functions() -> Iterator[Entry]:
    for operator, function in list(_attribute("torch._decomp", "global_decomposition_table")["meta"].items()):
        yield Entry(operator_text(operator), "", function)


def _export_decompositions() -> Iterator[Entry]:
    name = "_core_aten_decompositions_post_autograd"
    older = "core_aten_decompositions"  # which gives the table itself in PyTorch 2.4
    made = _attribute("torch._decomp", name if hasattr(sys.modules["torch._decomp"], name) else older)()
    for operator, function in made.items():
        yield Entry(operator_text(operator), "", function)


def _jvp_decompositions() -> Iterator[Entry]:
    module = "torch._decomp.decompositions_for_jvp"
    import_module(module)  # it registers nothing for an operator by itself
    yield from _plain(module, "decomposition_table_for_jvp")()


def _fake_checks() -> Iterator[Entry]:
    """The rules for operators that have a property, at each operator that has it."""
    rules = _attribute("torch._subclasses.fake_impls", "op_implementations_checks")
    by_name = _table("torch._subclasses.fake_impls", "op_implementations_dict")
    checks = [(check, rule) for check, rule in rules if getattr(check, "__self__", None) is not by_name]
    for overload in overloads():
        for check, rule in checks:
            try:
                applies = bool(check(overload))
            except Exception:  # a property that this operator cannot be asked for
                continue
            if applies:
                yield Entry(operator_text(overload), f"{rule.__name__}", rule)


def _fast_fake_rules() -> Iterator[Entry]:
    for operator, function in _attribute("torch._subclasses.fake_impls", "get_fast_op_impls")().items():
        yield Entry(operator_text(operator), "", function)


def _torch_library() -> Iterator[Entry]:
    """Every operator of the registry of torch.library, with each thing that was registered for it there."""
    made = _table("torch._library.custom_ops", "OPDEFS")
    entries = _attribute("torch._library.simple_registry", "singleton")
    for name, holder in list(entries._data.items()):
        fakes = getattr(holder, "fake_impl", None) or getattr(holder, "abstract_impl", None)
        kernels = getattr(fakes, "kernels", None)
        if kernels is None:  # before PyTorch 2.7 there was one
            kernel = getattr(fakes, "kernel", None)
            kernels = [] if kernel is None else [kernel]
        for kernel in kernels:
            function, source = kernel.func, str(kernel.source)
            if name in made and is_api_file(
                source.rpartition(":")[0]
            ):  # what `custom_op` registers calls what it was given
                function = getattr(made[name], "_abstract_fn", None) or made[name]._init_fn
            yield Entry(name, "fake", function, source, kernel is kernels[-1])
        rules = getattr(getattr(holder, "torch_dispatch_rules", None), "_data", {})
        for on, rule in rules.items():
            yield Entry(name, f"torch_dispatch {key_text(on)}", rule)
        effect = getattr(getattr(holder, "effect", None), "_effect", None)
        if effect is not None:
            yield Entry(name, f"effect {key_text(effect)}", type(holder.effect))
        symmetric = getattr(getattr(holder, "symm_mem_args", None), "_symm_mem_args", None)
        if symmetric:
            yield Entry(name, f"symm_mem_args {','.join(symmetric)}", type(holder.symm_mem_args))
        if not (kernels or rules or symmetric) and effect is None:
            yield Entry(name, NOTHING, type(holder))


def _custom_ops() -> Iterator[Entry]:
    for name, made in list(_attribute("torch._library.custom_ops", "OPDEFS").items()):
        yield Entry(name, "custom_op", made._init_fn)
        for device, function in list(getattr(made, "_backend_fns", {}).items()):
            if device is not None:
                yield Entry(name, f"kernel {device}", function)
        for key, attribute in (("fake", "_abstract_fn"), ("backward", "_backward_fn"), ("vmap", "_vmap_fn")):
            function = getattr(made, attribute, None)
            if function is not None:
                yield Entry(name, key, function)
        if getattr(made, "_setup_context_fn", None) is not None:
            yield Entry(name, "setup_context", made._setup_context_fn)
        for on, rule in list(getattr(made, "_torch_dispatch_fns", {}).items()):
            yield Entry(name, f"torch_dispatch {key_text(on)}", rule)
        for device, dtype in list(getattr(made, "_autocast_dtype", {}).items()):
            if dtype is not None:
                yield Entry(name, f"autocast {device} {dtype}", made._init_fn)


def _higher_order() -> Iterator[Entry]:
    for operator in list(_table("torch._ops", "_higher_order_ops").values()):
        entries = [
            (key, function)
            for table in ("py_kernels", *MODE_TABLES, "functorch_table")
            for key, function in list(getattr(operator, table, {}).items())
        ]
        for key, function in entries:
            yield Entry(operator_text(operator), key_text(key), function)
        if not entries:
            yield Entry(operator_text(operator), "", operator)


RULES = {  # the tables of DTensor, with what each is called here
    "op_to_rules": "rule",
    "op_strategy_funcs": "strategy",
    "op_single_dim_strategy_funcs": "strategy for one dimension of a mesh",
}


def rule_function(rule: Any) -> Any:
    """The function of a sharding rule: what `register_sharding` was given, and not what PyTorch makes of it."""
    function = getattr(rule, "func", rule)
    given = getattr(rule, "args", ())
    made = getattr(function, "__qualname__", "").startswith("register_sharding.<locals>")
    return given[0] if made and given and callable(given[0]) else function


def _dtensor_dispatcher() -> Any:
    if not hasattr(sys.modules.get("torch.distributed.tensor"), "DTensor"):  # PyTorch 2.4 has it elsewhere
        import_module("torch.distributed._tensor")
    for home in ("torch.distributed.tensor", "torch.distributed._tensor.api", "torch.distributed._tensor"):
        if hasattr(sys.modules.get(home), "DTensor"):
            return _attribute(home, "DTensor._op_dispatcher")
    raise NotFoundHere("DTensor")


def _dtensor_rules() -> Iterator[Entry]:
    propagator = _dtensor_dispatcher().sharding_propagator
    if not hasattr(propagator, "op_strategy_funcs"):
        raise NotFoundHere("op_strategy_funcs")
    for attribute, key in RULES.items():
        for operator, rule in list(getattr(propagator, attribute, {}).items()):
            yield Entry(operator_text(operator), key, rule_function(rule))


def _dtensor_handlers() -> Iterator[Entry]:
    for operator, function in list(_dtensor_dispatcher()._custom_op_handlers.items()):
        yield Entry(operator_text(operator), "", function)


def _inductor_fallbacks() -> Iterator[Entry]:
    lowerings = _table("torch._inductor.lowering", "lowerings")
    for operator in list(_attribute("torch._inductor.lowering", "fallbacks")):
        yield Entry(operator_text(operator), "", lowerings.get(operator, operator))


def _masked_tensor() -> Iterator[Entry]:
    module = "torch.masked.maskedtensor._ops_refs"
    for operator, function in list(_table(module, "_MASKEDTENSOR_DISPATCH_TABLE").items()):
        yield Entry(operator_text(operator), "", function)
    for operator, function in list(_table(module, "_MASKEDTENSOR_FUNCTION_TABLE").items()):
        yield Entry(_function_text(operator), "__torch_function__", function)


def _semi_structured() -> Iterator[Entry]:
    """The table of each class, or what a class fills its table with once it has an object."""
    for of in _subclasses(_attribute("torch.sparse.semi_structured", "SparseSemiStructuredTensor")):
        table = getattr(of, "SPARSE_DISPATCH", None)
        if table is None:  # it is filled in a class of its own, so that nothing changes
            like: Any = type(of.__name__, (of,), {"SPARSE_DISPATCH": None, _STAND_IN: True})
            like._load_dispatch_table()
            table = like.SPARSE_DISPATCH
        for operator, function in list(table.items()):
            yield Entry(operator_text(operator), of.__name__, function)


_STAND_IN = "_dispatchlab_stand_in"


def _subclasses(of: Any) -> list[Any]:
    """The classes below a class of PyTorch, and those below them."""
    found = [sub for sub in of.__subclasses__() if _STAND_IN not in vars(sub)]
    return [each for sub in found for each in (sub, *_subclasses(sub))]


def _sharded_tensor() -> Iterator[Entry]:
    home = "torch.distributed._shard"
    for path, key in (("_SHARDED_OPS", ""), ("_CUSTOM_SHARDED_OPS", "custom")):
        for operator, function in list(_table(f"{home}.sharded_tensor.api", path).items()):
            yield Entry(_function_text(operator), key, function)
    for spec, table in _table(f"{home}.sharding_spec.api", "_CUSTOM_SHARDING_SPEC_OPS").items():
        for operator, function in list(table.items()):
            yield Entry(_function_text(operator), spec, function)


READERS: Mapping[str, Reader] = {
    "py_kernels": _of_overloads("py_kernels"),
    "mode_rules": _of_overloads(*MODE_TABLES),
    "decompositions": _decompositions,
    "meta_functions": _meta_functions,
    "export_decompositions": _export_decompositions,
    "jvp_decompositions": _jvp_decompositions,
    "aot_decompositions": _plain("torch._functorch.aot_autograd", "aot_autograd_decompositions"),
    "fake_rules": _plain("torch._subclasses.fake_impls", "op_implementations_dict"),
    "fake_checks": _fake_checks,
    "fast_fake_rules": _fast_fake_rules,
    "torch_library": _torch_library,
    "custom_ops": _custom_ops,
    "higher_order": _higher_order,
    "higher_order_fakes": _plain("torch._higher_order_ops.utils", "registered_hop_fake_fns"),
    "dtensor_rules": _dtensor_rules,
    "dtensor_handlers": _dtensor_handlers,
    "jagged": _plain("torch.nested._internal.ops", "JAGGED_OPS_TABLE"),
    "inductor_decompositions": _plain("torch._inductor.decomposition", "decompositions"),
    "inductor_lowerings": _plain("torch._inductor.lowering", "lowerings"),
    "inductor_fallbacks": _inductor_fallbacks,
    "inductor_constraints": _plain("torch._inductor.lowering", "_maybe_layout_constraints", "layout_constraints"),
    "inductor_user_lowerings": _plain("torch._inductor.lowering", "user_lowerings"),
    "inductor_random_decompositions": _plain("torch._decomp.decompositions_for_rng", "extra_random_decomps"),
    "random_decompositions": _plain("torch._decomp.decompositions_for_rng", "rng_decompositions"),
    "masked_tensor": _masked_tensor,
    "semi_structured": _semi_structured,
    "sharded_tensor": _sharded_tensor,
}
"""The reader of each registry."""
