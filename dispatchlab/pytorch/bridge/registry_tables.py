"""The tables in which the running PyTorch keeps registrations of Python, and what their entries stand for.

A registry whose `PythonRegistry.home` is a dictionary from operators to functions is looked up there; each of the
others has a function here. Nothing is imported, unless the tables are asked to be filled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from typing import Any, NamedTuple

from dispatchlab.model.python_layer import EFFECT, EVERY_OVERLOAD, FUNCTIONS, NOTHING, REGISTRY_NAMED
from dispatchlab.pytorch.bridge.call_sites import is_api_file
from dispatchlab.pytorch.bridge.reserved_namespaces import is_own
from dispatchlab.pytorch.bridge.torch import bindings, torch


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


class Table(NamedTuple):
    """A table of a registry.

    Args:
        registry: the name of the registry.
        entries: what it has, by operator, by key, or by both.
        operator: the operator of all entries, which are kept by key then.
        key: the key of all entries, which are kept by operator then.
        of: gives the entries behind a key of the table and its value, where these are something else.
        part: which of several such tables it is.
    """

    registry: str
    entries: Mapping[Any, Any]
    operator: Any = None
    key: str = ""
    of: Callable[[Any, Any], Iterator[Entry]] | None = None
    part: str = ""

    @property
    def name(self) -> tuple[int, str, str]:
        """What distinguishes it from the other tables of its registry."""
        return id(self.operator), self.key, self.part

    def entry(self, at: Any, value: Any) -> Iterator[Entry]:
        """What one key of the table and its value stand for."""
        if self.of is not None:
            yield from self.of(at, value)
        elif self.operator is not None:
            yield Entry(operator_text(self.operator), key_text(at), value)
        else:
            yield Entry(operator_text(at), self.key, value)


class NotFoundHere(Exception):
    """This version does not keep a registry where it is looked for; the text says what was looked for."""


UNREADABLE = (NotFoundHere, AttributeError, ImportError, KeyError, TypeError, ValueError)
"""What is raised where a version keeps something else in a registry."""


def tables_of(registry: str) -> Iterator[Table]:
    """The tables of a registry as they lie in memory; raises one of `UNREADABLE`."""
    tables = _TABLES.get(registry)
    if tables is None:
        yield _plain(registry)
    else:
        yield from tables(registry)


def plain_table(registry: str) -> Mapping[Any, Any]:
    """The table from operators to functions that a registry is, filled; raises one of `UNREADABLE`."""
    fill(registry)
    (table,) = tables_of(registry)
    return table.entries


def is_plain(registry: str) -> bool:
    """Whether a registry is looked up where its record says."""
    return registry not in _TABLES


def is_loaded(registry: str) -> bool:
    """Whether a registry can have something: false where it is plain, and nobody has imported its module."""
    return registry in _TABLES or _module(registry) in sys.modules


def entries_of(registry: str) -> Iterator[Entry]:
    """What a registry has, once PyTorch has put its own into it; raises one of `UNREADABLE`."""
    reader = _READERS.get(registry)
    if reader is not None:
        yield from reader()
        return
    fill(registry)
    for table in tables_of(registry):
        for at, value in list(table.entries.items()):
            if value is not None:
                yield from table.entry(at, value)


def fill(registry: str) -> None:
    """Have PyTorch put its own entries into a registry, where that waits until somebody asks."""
    match registry:
        case "jvp_decompositions":
            import_module(_module(registry))  # it registers nothing for an operator by itself
        case "fast_fake_rules":
            _attribute(REGISTRY_NAMED[registry].home)()
        case "dtensor_rules" | "dtensor_handlers":
            if not hasattr(sys.modules.get("torch.distributed.tensor"), "DTensor"):  # PyTorch 2.4 has it elsewhere
                import_module("torch.distributed._tensor")


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


# -- what modules have


def _module(registry: str) -> str:
    return REGISTRY_NAMED[registry].home.partition(":")[0]


def _attribute(home: str, *others: str) -> Any:
    """What a module that is imported has by a path of names, `module:path`, or by one of other paths.

    Raises:
        NotFoundHere: it is not imported, or has no such thing.
    """
    module, _, path = home.partition(":")
    if module not in sys.modules:
        raise NotFoundHere(home)
    for names in (path, *filter(None, others)):
        value: Any = sys.modules.get(module)
        for name in names.split("."):
            value = getattr(value, name, None)
        if value is not None:
            return value
    raise NotFoundHere(home)


def _home(registry: str) -> Any:
    """What a registry is in this version."""
    record = REGISTRY_NAMED[registry]
    return _attribute(record.home, record.formerly)


def _mapping(value: Any, registry: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise NotFoundHere(f"{REGISTRY_NAMED[registry].home} is no table")
    return value


def _plain(registry: str) -> Table:
    return Table(registry, _mapping(_home(registry), registry))


# -- tables that are not where a record says, or have something else in them

_FAST_RULES = f"{_module('fast_fake_rules')}:FAST_OP_IMPLEMENTATIONS"
_MASKED_FUNCTIONS = f"{_module('masked_tensor')}:_MASKEDTENSOR_FUNCTION_TABLE"
_SEMI_STRUCTURED = "torch.sparse.semi_structured:SparseSemiStructuredTensor"
_CUSTOM_SHARDED = f"{_module('sharded_tensor')}:_CUSTOM_SHARDED_OPS"
_CUSTOM_BY_SPEC = "torch.distributed._shard.sharding_spec.api:_CUSTOM_SHARDING_SPEC_OPS"


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


def attributes(registry: str) -> tuple[str, ...]:
    """What versions call the table of an operator that is kept in this registry, the newer name first."""
    record = REGISTRY_NAMED[registry]
    return tuple(home.rpartition(".")[2] for home in (record.home, record.formerly) if home)


def _of_overloads(registry: str) -> Iterator[Table]:
    names = attributes(registry)
    attribute = next((name for name in names if hasattr(torch().ops.aten.add.Tensor, name)), "")
    if not attribute:
        raise NotFoundHere(names[0])
    for overload in overloads():
        yield Table(registry, getattr(overload, attribute), operator=overload)


def _decompositions(registry: str) -> Iterator[Table]:
    for key, table in list(_mapping(_home(registry), registry).items()):
        if key != "meta":
            yield Table(registry, table, key=key)


def _fake_checks(registry: str) -> Iterator[Table]:
    """The rules for operators that have a property, each by its check."""

    def of(at: Any, rule: Any) -> Iterator[Entry]:
        return _having_property(overloads(), [at])

    yield Table(registry, {tuple(rule): rule[1] for rule in _home(registry)}, of=of)


def _fake_check_entries() -> Iterator[Entry]:
    return _having_property(overloads(), list(_home("fake_checks")))


def _having_property(operators: Iterable[Any], rules: Sequence[tuple[Any, Any]]) -> Iterator[Entry]:
    """The rules at each operator that has the property which they ask for."""
    by_name = _home("fake_rules")
    checks = [(check, rule) for check, rule in rules if getattr(check, "__self__", None) is not by_name]
    for overload in operators if checks else ():
        for check, rule in checks:
            try:
                applies = bool(check(overload))
            except Exception:  # a property that this operator cannot be asked for
                continue
            if applies:
                yield Entry(operator_text(overload), getattr(rule, "__name__", type(rule).__name__), rule)


def _torch_library() -> Iterator[Entry]:
    """Every operator of the registry of torch.library, with each thing that was registered for it there."""
    made = _mapping(_home("custom_ops"), "custom_ops")
    for name, holder in list(_home("torch_library")._data.items()):
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
            yield Entry(name, f"{EFFECT}{key_text(effect)}", type(holder.effect))
        symmetric = getattr(getattr(holder, "symm_mem_args", None), "_symm_mem_args", None)
        if symmetric:
            yield Entry(name, f"symm_mem_args {','.join(symmetric)}", type(holder.symm_mem_args))
        if not (kernels or rules or symmetric) and effect is None:
            yield Entry(name, NOTHING, type(holder))


def _custom_ops() -> Iterator[Entry]:
    for name, made in list(_home("custom_ops").items()):
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
        for device, dtype in casts_of(made):
            yield Entry(name, f"autocast {device} {dtype}", made._init_fn)


def casts_of(made: Any) -> list[tuple[str, Any]]:
    """The device types that a `custom_op` is cast for, and to what; before PyTorch 2.13 each has an attribute."""
    named = {each: getattr(made, f"_autocast_{each}_dtype", None) for each in ("cpu", "cuda")}
    found = getattr(made, "_autocast_dtype", named)
    return [(device, dtype) for device, dtype in found.items() if dtype is not None]


def _objects(registry: str) -> Iterator[Table]:
    """The table of a registry that keeps an object of its own for each operator."""
    entries = {
        (entry.operator, entry.key, id(entry.value)): entry for entry in _READERS[registry]() if entry.key != NOTHING
    }

    def of(at: tuple[str, str, int], value: object) -> Iterator[Entry]:
        yield entries[at]

    yield Table(registry, {at: entry.value for at, entry in entries.items()}, of=of)


_OWN_TABLES = (*attributes("py_kernels"), *attributes("mode_rules"), "functorch_table")


def roots_of(registry: str) -> tuple[object, ...]:
    """The objects that everything of a registry is reached from; raises one of `UNREADABLE`."""
    roots = _ROOTS.get(registry)
    return (_home(registry),) if roots is None else roots()


_SHOWN_OF_CUSTOM_OP = "_init_fn", "_abstract_fn"
"""What the registry of `torch.library` shows of a custom operator."""

_OF_CUSTOM_OP = (
    *(*_SHOWN_OF_CUSTOM_OP, "_backward_fn", "_vmap_fn", "_setup_context_fn"),
    *("_backend_fns", "_torch_dispatch_fns", "_autocast_dtype", "_autocast_cpu_dtype", "_autocast_cuda_dtype"),
)


def _roots_of_custom_ops(attributes: Sequence[str] = _OF_CUSTOM_OP) -> tuple[object, ...]:
    """The functions by name, and not the objects, which the registry keeps weakly, so that nothing else may."""
    made = dict(_home("custom_ops"))
    return *made, *(getattr(each, attribute, None) for each in made.values() for attribute in attributes)


def _roots_of_sharding_rules() -> tuple[object, ...]:
    propagator = sharding_propagator()
    return tuple(getattr(propagator, attribute, None) for attribute, _ in SHARDING_RULES.values())


def _roots_of_semi_structured() -> tuple[object, ...]:
    classes = _subclasses(_attribute(_SEMI_STRUCTURED))
    return *classes, *(getattr(each, "SPARSE_DISPATCH", None) for each in classes)


_ROOTS: Mapping[str, Callable[[], tuple[object, ...]]] = {
    "meta_functions": lambda: (_home("decompositions"),),
    "fast_fake_rules": lambda: (_attribute(_FAST_RULES),),
    "torch_library": lambda: (_home("torch_library"), *_roots_of_custom_ops(_SHOWN_OF_CUSTOM_OP)),
    "custom_ops": _roots_of_custom_ops,
    "dtensor_rules": _roots_of_sharding_rules,
    "dtensor_handlers": lambda: (_dtensor_dispatcher()._custom_op_handlers,),
    "inductor_fallbacks": lambda: (_home("inductor_fallbacks"), _home("inductor_lowerings")),
    "masked_tensor": lambda: (_home("masked_tensor"), _attribute(_MASKED_FUNCTIONS)),
    "semi_structured": _roots_of_semi_structured,
    "sharded_tensor": lambda: (_home("sharded_tensor"), _attribute(_CUSTOM_SHARDED), _attribute(_CUSTOM_BY_SPEC)),
    "privateuse1_name": lambda: (sys.intern(bindings()._get_privateuse1_backend_name()),),  # a new text each time
}


def live_contents(roots: Iterable[object]) -> list[Iterable[object]]:
    """All that is reached from the roots of a registry, as views that stay true until one of them has other objects.

    Raises:
        NotFoundHere: a root is something that has no such view.
    """
    views: list[Iterable[object]] = []
    known: dict[int, object] = {}
    left = list(roots)
    while left:
        one = left.pop()
        if id(one) in known:
            continue
        known[id(one)] = one
        kind: type[Any] = type(one)
        if isinstance(one, dict):
            views += (one,), one, one.values()  # the table itself, so that what moves to the next one is seen
        elif isinstance(one, list | set):
            views += (one,), one
        elif _keeps_registrations(kind) and hasattr(one, "__dict__"):  # type: ignore[arg-type]  # a class has a hash
            views += (vars(one),), vars(one).values()
        elif isinstance(one, Mapping):
            raise NotFoundHere(kind.__qualname__)
        else:
            continue
        left += views[-1]
    return views


@cache
def _keeps_registrations(kind: type[Any]) -> bool:
    """Whether objects of a class keep what is registered for an operator."""
    return kind.__module__.startswith(_KEEPING) or issubclass(kind, import_module("torch._ops").HigherOrderOperator)


_KEEPING = ("torch._library.", "torch.onnx.")


def own_tables(operator: Any) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    """The tables that an operator has of its own, by their names, where there is something in them."""
    for name in _OWN_TABLES:
        table = getattr(operator, name, None)
        if table:
            yield name, table


def _higher_order(registry: str) -> Iterator[Table]:
    """The operators, and the tables of each."""
    made = _mapping(_home(registry), registry)

    def definition(at: Any, operator: Any) -> Iterator[Entry]:
        yield Entry(operator_text(operator), "", type(operator))

    yield Table(registry, made, of=definition)
    for operator in list(made.values()):
        for name, table in own_tables(operator):
            yield Table(registry, table, operator=operator, part=name)


def _higher_order_entries() -> Iterator[Entry]:
    for operator in list(_mapping(_home("higher_order"), "higher_order").values()):
        tables = list(own_tables(operator))
        for _, table in tables:
            for key, function in list(table.items()):
                yield Entry(operator_text(operator), key_text(key), function)
        if not tables:
            yield Entry(operator_text(operator), "", operator)


SHARDING_RULES: Mapping[str, tuple[str, str]] = {
    "rule": ("op_to_rules", "register_sharding_prop_rule"),
    "strategy": ("op_strategy_funcs", "register_op_strategy"),
    "strategy for one dimension of a mesh": ("op_single_dim_strategy_funcs", "register_single_dim_op_strategy"),
}
"""The tables of DTensor by what each is called here, and the methods that write them."""


def sharding_propagator() -> Any:
    """What has the sharding rules of DTensor."""
    return _dtensor_dispatcher().sharding_propagator


def _dtensor_dispatcher() -> Any:
    for module in ("torch.distributed.tensor", "torch.distributed._tensor.api", "torch.distributed._tensor"):
        if hasattr(sys.modules.get(module), "DTensor"):
            return _attribute(f"{module}:DTensor._op_dispatcher")
    raise NotFoundHere("DTensor")


def _dtensor_rules(registry: str) -> Iterator[Table]:
    propagator = sharding_propagator()
    if not hasattr(propagator, "op_strategy_funcs"):
        raise NotFoundHere("op_strategy_funcs")
    for key, (attribute, _) in SHARDING_RULES.items():
        table = getattr(propagator, attribute, None)
        if table is not None:
            yield Table(registry, table, part=key, of=partial(_rule, key))


def _rule(key: str, operator: Any, rule: Any) -> Iterator[Entry]:
    """A sharding rule by what `register_sharding` was given, and not by what PyTorch makes of it."""
    function = getattr(rule, "func", rule)
    given = getattr(rule, "args", ())
    made = getattr(function, "__qualname__", "").startswith("register_sharding.<locals>")
    yield Entry(operator_text(operator), key, given[0] if made and given and callable(given[0]) else function)


def _inductor_fallbacks(registry: str) -> Iterator[Table]:
    """The operators in a set; what runs for one is its lowering."""
    lowerings = _mapping(_home("inductor_lowerings"), "inductor_lowerings")

    def of(operator: Any, value: Any) -> Iterator[Entry]:
        yield Entry(operator_text(operator), "", lowerings.get(operator, operator))

    yield Table(registry, {operator: operator for operator in list(_home(registry))}, of=of)


def _of_functions(registry: str, table: Any, key: str = "") -> Table:
    """A table whose keys are functions that `__torch_function__` has."""

    def of(function: Any, value: Any) -> Iterator[Entry]:
        yield Entry(_function_text(function), key, value)

    return Table(registry, _mapping(table, registry), of=of, part=key)


def _masked_tensor(registry: str) -> Iterator[Table]:
    yield _plain(registry)
    yield _of_functions(registry, _attribute(_MASKED_FUNCTIONS), "__torch_function__")


def _semi_structured() -> Iterator[Entry]:
    """The table of each class, or what a class fills its table with once it has an object."""
    for of in _subclasses(_attribute(_SEMI_STRUCTURED)):
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


def _sharded_tensor(registry: str) -> Iterator[Table]:
    yield _of_functions(registry, _home(registry))
    yield _of_functions(registry, _attribute(_CUSTOM_SHARDED), "custom")
    by_spec = _attribute(_CUSTOM_BY_SPEC)
    for spec, table in list(by_spec.items()):
        yield _of_functions(registry, table, spec)


RENAMES_PRIVATEUSE1 = f"{FUNCTIONS}::torch.utils.rename_privateuse1_backend"
"""What stands for the operator of the name of PrivateUse1."""


def _privateuse1_name(registry: str) -> Iterator[Table]:
    name = sys.intern(bindings()._get_privateuse1_backend_name())  # which gives a new text each time
    yield Table(registry, {} if name == "privateuseone" else {RENAMES_PRIVATEUSE1: name})


def _onnx_functions(registry: str) -> Iterator[Table]:
    """The functions that take the place of PyTorch's, by operator and opset."""
    groups = list(_home(registry)._registry.items())

    def of(at: tuple[str, int], function: Any) -> Iterator[Entry]:
        yield Entry(at[0], f"opset {at[1]}", function)

    overrides = {(name, at): one for name, group in groups for at, one in group._functions._overrides.items()}
    yield Table(registry, overrides, of=of)


_TABLES: Mapping[str, Callable[[str], Iterable[Table]]] = {
    "py_kernels": _of_overloads,
    "mode_rules": _of_overloads,
    "decompositions": _decompositions,
    "meta_functions": lambda registry: [Table(registry, _home("decompositions")["meta"])],
    "export_decompositions": lambda registry: [Table(registry, _home(registry)())],
    "fake_checks": _fake_checks,
    "fast_fake_rules": lambda registry: [Table(registry, _attribute(_FAST_RULES))],
    "torch_library": _objects,
    "custom_ops": _objects,
    "higher_order": _higher_order,
    "dtensor_rules": _dtensor_rules,
    "dtensor_handlers": lambda registry: [Table(registry, _dtensor_dispatcher()._custom_op_handlers)],
    "inductor_fallbacks": _inductor_fallbacks,
    "masked_tensor": _masked_tensor,
    "semi_structured": _objects,
    "sharded_tensor": _sharded_tensor,
    "privateuse1_name": _privateuse1_name,
    "onnx_functions": _onnx_functions,
    "fx_side_effects": lambda registry: [Table(registry, {each: each for each in list(_home(registry))})],
}
"""The tables of each registry that is no dictionary from operators to functions where its record says."""

_READERS: Mapping[str, Callable[[], Iterator[Entry]]] = {
    "fake_checks": _fake_check_entries,
    "torch_library": _torch_library,
    "custom_ops": _custom_ops,
    "higher_order": _higher_order_entries,
    "semi_structured": _semi_structured,
}
"""What reads the entries of registries whose tables are made of them, or cost more to read one by one."""
