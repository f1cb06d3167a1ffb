"""Read what Python registers in the running PyTorch: the registries of `PYTHON_REGISTRIES`.

The functions import only what their caller asks for. If a version keeps a registry elsewhere, or in another form,
the registry is reported as not found.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from dispatchlab._gc_pause import collector_paused
from dispatchlab.live.bridge.call_sites import is_api_file
from dispatchlab.live.bridge.reserved_namespaces import is_own
from dispatchlab.live.bridge.torch import bindings, torch
from dispatchlab.live.introspection.package_paths import package_roots
from dispatchlab.live.introspection.python_sites import FunctionSites
from dispatchlab.model.python_layer import (
    EVERY_OVERLOAD,
    FUNCTIONS,
    IMPORTS,
    PRIVATEUSE1_NAME,
    PYTHON_REGISTRIES,
    REGISTRY_NAMED,
    PythonLayerInMemory,
    PythonRegistration,
    python_layer,
)

UNREADABLE = (AttributeError, ImportError, KeyError, TypeError, ValueError)
"""What is raised where a version keeps something else in a registry."""


class Entry(NamedTuple):
    """An entry of a registry.

    Args:
        operator: the name of the operator, as in `PythonRegistration`.
        key: the other part of its key in the registry.
        value: the function, or the object in its place.
        source: the line of the call that registered it; empty if PyTorch does not remember the line.
        active: False if a newer entry has replaced it.
    """

    operator: str
    key: str
    value: object
    source: str = ""
    active: bool = True


def read_whole_layer() -> PythonLayerInMemory:
    """Return the content of the registries after every module of `IMPORTS` is imported.

    Returns:
        The layer. `missing` names each registry that is not found; a module that was not imported, or
        cannot be imported here, in `not_imported`.
    """
    sites = FunctionSites(package_roots())
    found, missing = _read_all(sites)
    kept = {_slot(one): one for one in found}
    for module in IMPORTS:
        if module in sys.modules:
            continue
        try:
            import_module(module)
        except Exception:  # a build of PyTorch without this part
            continue
        found, missing = _read_all(sites)
        for one in found:
            known = kept.get(_slot(one))
            kept[_slot(one)] = one._replace(needs=module if known is None else known.needs)
        for slot in kept.keys() - {_slot(one) for one in found}:
            del kept[slot]
    not_imported = [module for module in IMPORTS if module not in sys.modules]
    return python_layer(str(torch().__version__), kept.values(), sorted(missing), not_imported)


def read_operators(operators: Iterable[str]) -> PythonLayerInMemory:
    """Return the entries of some operators in the imported registries."""
    found, missing = _read_all(FunctionSites(package_roots()), frozenset(operators))
    not_imported = [module for module in IMPORTS if module not in sys.modules]
    return python_layer(str(torch().__version__), found, sorted(missing), not_imported)


def read_now() -> tuple[PythonRegistration, ...]:
    """Return the present content of the imported registries."""
    return tuple(_read_all(FunctionSites(package_roots()))[0])


def _slot(one: PythonRegistration) -> tuple[object, ...]:
    """Return the identity of a registration, which is the same in every reading."""
    return one.registry, one.operator, one.key, one.function, one.site, one.active


def _read_all(sites: FunctionSites, only: frozenset[str] | None = None) -> tuple[list[PythonRegistration], set[str]]:
    """Return the present content of all registries, and the names of those that are not found."""
    found: list[PythonRegistration] = []
    missing: set[str] = set()
    with collector_paused():
        for registry in PYTHON_REGISTRIES:
            if registry.needs and registry.needs not in sys.modules:
                continue
            try:
                found += [
                    _registration(registry.name, entry, sites)
                    for entry in entries_of(registry.name)
                    if not is_own(entry.operator) and (only is None or entry.operator in only)
                ]
            except UNREADABLE:
                missing.add(registry.name)
    return found, missing


def _registration(registry: str, entry: Entry, sites: FunctionSites) -> PythonRegistration:
    """Return an entry with its function's name, and the line of the function or of the registering call."""
    function, site = sites.of(entry.value)
    file, _, line = entry.source.rpartition(":")
    if line.isdecimal() and not is_api_file(file):
        site = sites.line(file, int(line)) or site
    return PythonRegistration(registry, entry.operator, entry.key, function, site, "", entry.active)


# -- the entries of each registry


def entries_of(registry: str) -> Iterator[Entry]:
    """Return the entries of a registry; raise one of `UNREADABLE` if a version keeps it in another form."""
    reader = _READERS.get(registry)
    if reader is not None:
        yield from reader()
        return
    for operator, function in list(_home(registry).items()):
        yield Entry(_operator_text(operator), "", function)


def _home(registry: str) -> Any:
    module, _, path = REGISTRY_NAMED[registry].home.partition(":")
    value: Any = sys.modules[module]
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _operator_text(operator: object) -> str:
    """Return the name of an operator of any kind; see `PythonRegistration.operator`."""
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


def _key_text(key: object) -> str:
    """Return a key of an operator's table: a dispatch key, a class, or a transform of functorch."""
    if isinstance(key, type):
        return f"{key.__module__}.{key.__qualname__}"
    name = getattr(key, "name", None)
    text = name if isinstance(name, str) else str(key)
    return f"functorch {text}" if type(key).__name__ == "TransformType" else text


def _py_kernels() -> Iterator[Entry]:
    ops = torch().ops
    for name in bindings()._dispatch_get_all_op_names():
        if is_own(name):
            continue
        namespace, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        try:
            made = getattr(getattr(getattr(ops, namespace), base), overload or "default")
        except (AttributeError, RuntimeError):  # kernels without a def have none
            continue
        for key, function in list(made.py_kernels.items()):
            yield Entry(name, _key_text(key), function)


def _decompositions() -> Iterator[Entry]:
    for key, table in list(sys.modules["torch._decomp"].global_decomposition_table.items()):
        if key != "meta":
            for operator, function in list(table.items()):
                yield Entry(_operator_text(operator), key, function)


def _torch_library() -> Iterator[Entry]:
    made = _home("custom_ops")
    for name, holder in list(_home("torch_library")._data.items()):
        fakes = getattr(holder, "fake_impl", None) or getattr(holder, "abstract_impl", None)
        kernels = getattr(fakes, "kernels", None)
        if kernels is None:  # before PyTorch 2.7 there was one
            kernel = getattr(fakes, "kernel", None)
            kernels = [] if kernel is None else [kernel]
        for kernel in kernels:
            function, source = kernel.func, str(kernel.source)
            if name in made and is_api_file(source.rpartition(":")[0]):  # it calls what the custom_op was given
                function = getattr(made[name], "_abstract_fn", None) or made[name]._init_fn
            yield Entry(name, "fake", function, source, kernel is kernels[-1])
        for on, rule in getattr(getattr(holder, "torch_dispatch_rules", None), "_data", {}).items():
            yield Entry(name, f"torch_dispatch {_key_text(on)}", rule)
        effect = getattr(getattr(holder, "effect", None), "_effect", None)
        if effect is not None:
            yield Entry(name, f"effect {_key_text(effect)}", type(holder.effect))


def _custom_ops() -> Iterator[Entry]:
    for name, made in list(_home("custom_ops").items()):
        yield Entry(name, "custom_op", made._init_fn)
        for device, function in list(getattr(made, "_backend_fns", {}).items()):
            if device is not None:
                yield Entry(name, f"kernel {device}", function)
        for key in ("fake", "backward", "vmap", "setup_context"):
            function = getattr(made, f"_{'abstract' if key == 'fake' else key}_fn", None)
            if function is not None:
                yield Entry(name, key, function)
        for on, rule in list(getattr(made, "_torch_dispatch_fns", {}).items()):
            yield Entry(name, f"torch_dispatch {_key_text(on)}", rule)
        for device, dtype in casts_of(made):
            yield Entry(name, f"autocast {device} {dtype}", made._init_fn)


def casts_of(made: Any) -> list[tuple[str, Any]]:
    """Return the device types for which a `custom_op` is cast, and the dtypes."""
    named = {each: getattr(made, f"_autocast_{each}_dtype", None) for each in ("cpu", "cuda")}  # before PyTorch 2.13
    found = getattr(made, "_autocast_dtype", named)
    return [(device, dtype) for device, dtype in found.items() if dtype is not None]


def _higher_order() -> Iterator[Entry]:
    for operator in list(_home("higher_order").values()):
        tables = [
            table
            for name in ("py_kernels", "python_key_table", "python_key_mode_table", "functorch_table")
            if (table := getattr(operator, name, None))
        ]
        for table in tables:
            for key, function in list(table.items()):
                yield Entry(_operator_text(operator), _key_text(key), function)
        if not tables:
            yield Entry(_operator_text(operator), "", operator)


_SHARDING: Mapping[str, str] = {
    "rule": "op_to_rules",
    "strategy": "op_strategy_funcs",
    "strategy for one dimension of a mesh": "op_single_dim_strategy_funcs",
}


def _dtensor_rules() -> Iterator[Entry]:
    propagator = _home("dtensor_rules").sharding_propagator
    for key, attribute in _SHARDING.items():
        for operator, rule in list((getattr(propagator, attribute, None) or {}).items()):
            function, given = getattr(rule, "func", rule), getattr(rule, "args", ())
            made = getattr(function, "__qualname__", "").startswith("register_sharding.<locals>")
            yield Entry(_operator_text(operator), key, given[0] if made and given and callable(given[0]) else function)


def _inductor_fallbacks() -> Iterator[Entry]:
    lowerings = _home("inductor_lowerings")
    for operator in list(_home("inductor_fallbacks")):
        yield Entry(_operator_text(operator), "", lowerings.get(operator, operator))


def _privateuse1_name() -> Iterator[Entry]:
    name = bindings()._get_privateuse1_backend_name()
    if name != "privateuseone":
        yield Entry(f"{FUNCTIONS}::torch.utils.rename_privateuse1_backend", "", name)


_READERS: Mapping[str, Callable[[], Iterator[Entry]]] = {
    "py_kernels": _py_kernels,
    "decompositions": _decompositions,
    "torch_library": _torch_library,
    "custom_ops": _custom_ops,
    "higher_order": _higher_order,
    "dtensor_rules": _dtensor_rules,
    "inductor_fallbacks": _inductor_fallbacks,
    PRIVATEUSE1_NAME: _privateuse1_name,
}
