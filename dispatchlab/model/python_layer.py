"""What Python registers beside the dispatch tables: `PythonRegistration`, and what is known of each registry.

`PYTHON_REGISTRIES` describes the registries; `PythonLayer` is what one PyTorch had in them. The running PyTorch is read
by `pytorch/introspection/python_registries.py`, a recording by `records/stored.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, Protocol, TypeAlias

from dispatchlab._short_repr import WordEnum

# Note [Rules of registries]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~
# What a second registration of a slot does is read off the function of PyTorch that fills the registry: an assignment
# replaces; `register_decomposition`, `py_impl` and `register_op_impl` refuse. Who takes an `OpOverload` needs the def
# of the operator before, and what is kept under that object is lost when the operator is defined anew. Nothing takes
# such a registration back. All this was read in PyTorch 2.13.
# A registry without a rule is not explored: PyTorch makes what it holds and no package registers there
# (`export_decompositions`, `semi_structured`), code decides which of two comes first (`fake_checks`, which asks one
# property after the other), or calls of `torch.library` fill it. Of what these calls keep, an effect alone has a rule:
# it is one value, which goes by the name of the operator.


class Second(WordEnum):
    """What a second registration of one slot does."""

    REPLACES = "replaces"
    REFUSED = "refused"
    SAME = "same"


class PythonRule(NamedTuple):
    """What registering in a registry does. See Note [Rules of registries].

    Args:
        second: what a second registration of a slot does: it takes the place of the first one, it is refused, or it
            changes nothing, as adding to a set does.
        by_object: whether it is kept under the `OpOverload`. Then the operator has to be defined before, and what is
            registered is lost when the operator is defined anew.
        refusal: what PyTorch says of a second one, where it refuses it.
        beside: the registry in which the operator must have nothing; empty where there is none.
    """

    second: Second
    by_object: bool = True
    refusal: str = ""
    beside: str = ""


_REPLACES = PythonRule(Second.REPLACES)
_DUPLICATE = PythonRule(Second.REFUSED, refusal="duplicate registrations")
_OVERRIDE = PythonRule(Second.REFUSED, refusal="Trying to override a python impl")
_ALREADY = PythonRule(Second.REFUSED, refusal="already registered")
_ONE_VALUE = PythonRule(Second.SAME, by_object=False)


WriteEffect: TypeAlias = Literal["", "refused", "removed", "used"]
"""What a package did with an entry of a registry: it registered, it was refused since the entry was taken, it took what
was there out of the registry, so that it has no function, or it names the table in code that may look it up or take it
out."""

ASSIGNMENT = "assignment"
"""What `PythonRegistration.call` has for an assignment, which PyTorch never refuses."""

WRITE_EFFECTS: tuple[WriteEffect, ...] = ("refused", "removed", "used")


class RegisteringFunction(NamedTuple):
    """A function of PyTorch that writes a registry.

    Args:
        path: where it is, `module:name`.
        also: the names of the other registries that it writes.
        decorates: whether it gives a decorator, which does it.
        arguments: what it takes after the operator.
    """

    path: str
    also: tuple[str, ...] = ()
    decorates: bool = True
    arguments: tuple[str, ...] = ()


class PythonRegistry(NamedTuple):
    """One registry in which Python code is kept by operator.

    Where `home` is a dictionary from operators to functions, this is all that is needed: it is read, watched and
    written by what stands here. Others have a function in `pytorch/bridge/registry_tables.py`, and one in
    `pytorch/bridge/python_calls.py` where no function in `calls` makes an entry by itself.

    Args:
        name: what it is called here.
        title: what it holds, a few words in the plural.
        home: the module and the attribute that PyTorch keeps it in, `module:attribute`.
        applies: when what it holds runs, one sentence.
        needs: the module that has to be imported before it is filled; empty when `import torch` does.
        since: the version of PyTorch that has it, or the oldest that was looked at where that has it.
        rule: what registering in it does; None when that is not known, and nothing in it is explored then.
        calls: the functions that write it, the one that packages call first; without any they assign.
        no_call: why no registration can be made in it by itself, a clause; empty where one can.
        names: what code calls its tables, and the functions that take entries out; the attribute of `home` when empty.
        formerly: what older versions call the attribute.
        over: the registry whose entry for the operator it takes the place of, and what that entry is called.
        read_later: whether recordings of an older dispatchlab have not read it; every PyTorch that has it fills it.
        is_derived: whether PyTorch computes it from other registries when it is asked.
    """

    name: str
    title: str
    home: str
    applies: str
    needs: str = ""
    since: str = "2.4"
    rule: PythonRule | None = None
    calls: tuple[RegisteringFunction, ...] = ()
    no_call: str = ""
    names: tuple[str, ...] = ()
    formerly: str = ""
    over: tuple[str, str] = ("", "")
    read_later: bool = False
    is_derived: bool = False

    @property
    def names_in_code(self) -> tuple[str, ...]:
        """`names`, or the attribute of `home`; none of a registry that is not explored."""
        attribute = self.home.rpartition(":")[2].rpartition(".")[2]
        return () if self.rule is None else self.names or (attribute,)


def _functions(
    module: str, *names: str, also: tuple[str, ...] = (), decorate: bool = True
) -> tuple[RegisteringFunction, ...]:
    return tuple(RegisteringFunction(f"{module}:{name}", also, decorate) for name in names)


_INDUCTOR = "torch._inductor.lowering"
_DTENSOR = "torch.distributed.tensor"
_DECOMP = "torch._decomp"
_FAKE_IMPLS = "torch._subclasses.fake_impls"
_JAGGED = "torch.nested._internal.ops"

_BESIDE_KERNELS = ("mode_rules", "higher_order")
_BESIDE_DECOMPOSITIONS = ("meta_functions", "inductor_decompositions")
_BESIDE_LOWERINGS = ("inductor_fallbacks", "inductor_constraints", "inductor_user_lowerings")
_MODE_TABLES = ("functorch_table", "python_key_table", "python_key_mode_table")

_OF_PYTORCH = "PyTorch fills it by itself"
_OF_RECORDS = "it is no part of a Python layer"
LEFT_BY_TORCH_LIBRARY = "a call of torch.library leaves it behind, and that is a registration by itself"
"""Why most of what `torch.library` keeps is no registration by itself."""
_DECOMPOSITION = ("decompositions", "the decomposition")

PYTHON_REGISTRIES: tuple[PythonRegistry, ...] = (
    PythonRegistry(
        "py_kernels",
        "Python kernels",
        "torch._ops:OpOverload.py_kernels",
        "when the Python dispatcher is on, as under torch.compile, torch.export and make_fx with symbolic sizes: "
        "in place of the C++ kernel of the slot",
        rule=_OVERRIDE,
        calls=(
            *_functions("torch._ops", "OperatorBase.py_impl", "HigherOrderOperator.py_impl", also=_BESIDE_KERNELS),
            *_functions(
                "torch._ops",
                *("OperatorBase.py_functionalize_impl", "HigherOrderOperator.py_autograd_impl"),
                "HigherOrderOperator.__init__",
                also=_BESIDE_KERNELS,
                decorate=False,
            ),
        ),
    ),
    PythonRegistry(
        "mode_rules",
        "rules for one mode or tensor class",
        "torch._ops:OpOverload.python_key_table",
        "at the key Python, when that mode is on or an argument is of that class: in place of __torch_dispatch__",
        rule=_ALREADY,
        names=_MODE_TABLES,
        formerly="OpOverload.python_key_mode_table",
    ),
    PythonRegistry(
        "decompositions",
        "decompositions",
        "torch._decomp:global_decomposition_table",
        "when a graph is traced with a table of decompositions (make_fx, AOTAutograd, torch.export): "
        "in place of the operator, after autograd or before it",
        rule=_DUPLICATE,
        calls=(
            *_functions(_DECOMP, "register_decomposition", also=_BESIDE_DECOMPOSITIONS),
            *_functions(
                _DECOMP, "_add_op_to_registry", "remove_decompositions", also=_BESIDE_DECOMPOSITIONS, decorate=False
            ),
            *_functions("torch._inductor.decomposition", "register_decomposition", also=_BESIDE_DECOMPOSITIONS),
        ),
        names=(
            *("global_decomposition_table", "decomposition_table", "pre_autograd_decomposition_table"),
            "remove_decompositions",
        ),
    ),
    PythonRegistry(
        "meta_functions",
        "meta functions",
        "torch._decomp:global_decomposition_table[meta]",
        "on meta tensors and under FakeTensorMode, once torch._meta_registrations has put them "
        "into py_kernels, and most of them into the dispatch table, too",
        rule=_DUPLICATE,
        names=("global_decomposition_table", "meta_table", "remove_decompositions"),
        over=_DECOMPOSITION,
    ),
    PythonRegistry(
        "export_decompositions",
        "decompositions to core ATen",
        "torch._decomp:_core_aten_decompositions_post_autograd",
        "when an exported program is decomposed by run_decompositions() with no table of its own",
        no_call="PyTorch computes it from the decompositions",
        formerly="core_aten_decompositions",  # which gives the table itself in PyTorch 2.4
        over=_DECOMPOSITION,
        is_derived=True,
    ),
    PythonRegistry(
        "jvp_decompositions",
        "decompositions for forward mode",
        "torch._decomp.decompositions_for_jvp:decomposition_table_for_jvp",
        "under torch.func.jvp, where an operator has no formula for forward mode and decomposes in TorchScript",
        rule=_DUPLICATE,
        no_call=_OF_PYTORCH,
    ),
    PythonRegistry(
        "aot_decompositions",
        "decompositions of AOTAutograd",
        "torch._functorch.aot_autograd:aot_autograd_decompositions",
        "under AOTAutograd, beside the table that the compiler gives",
        rule=_REPLACES,
    ),
    PythonRegistry(
        "fake_rules",
        "fake-tensor rules",
        "torch._subclasses.fake_impls:op_implementations_dict",
        "under FakeTensorMode: after a fake implementation of torch.library, and before any Meta kernel",
        rule=PythonRule(Second.REFUSED, refusal="duplicate registration"),
        calls=(
            *_functions(_FAKE_IMPLS, "register_op_impl", also=("fake_checks",)),
            *_functions(_FAKE_IMPLS, "_deregister_op_impl", also=("fake_checks",), decorate=False),
        ),
        names=("op_implementations_dict", "_deregister_op_impl"),
    ),
    PythonRegistry(
        "fake_checks",
        "fake-tensor rules by a property of the operator",
        "torch._subclasses.fake_impls:op_implementations_checks",
        "under FakeTensorMode, when the rules before it give no answer and the operator has the property: "
        "before any Meta kernel",
        no_call="it is a rule for every operator with some property, and not for one",
    ),
    PythonRegistry(
        "fast_fake_rules",
        "fast fake-tensor rules",
        "torch._subclasses.fake_impls:get_fast_op_impls",
        "under FakeTensorMode, when a size is symbolic: first of all, where they can answer",
        rule=_REPLACES,
        calls=_functions(_FAKE_IMPLS, "register_fast_op_impl"),
    ),
    PythonRegistry(
        "torch_library",
        "registrations of torch.library",
        "torch._library.simple_registry:singleton",
        "a fake implementation on meta and fake tensors; a torch_dispatch rule under its mode or for its class; "
        "an effect when a graph is traced",
        calls=(
            *_functions("torch.library", "Library._register_torch_dispatch_rule", decorate=False),
            *_functions("torch._higher_order_ops.effects", "_register_effectful_op", decorate=False),
        ),
    ),
    PythonRegistry(
        "custom_ops",
        "parts of custom operators",
        "torch._library.custom_ops:OPDEFS",
        "through the kernels that custom_op puts into the dispatch table: its function on each device, "
        "its backward, its rules for vmap and autocast",
        no_call=LEFT_BY_TORCH_LIBRARY,
    ),
    PythonRegistry(
        "higher_order",
        "rules of higher-order operators",
        "torch._ops:_higher_order_ops",
        "whenever a higher-order operator is called: at the dispatch key, under the mode or in the functorch transform",
        rule=PythonRule(Second.REFUSED, by_object=False, refusal="Trying to override a python impl"),
        names=("py_kernels", *_MODE_TABLES),
    ),
    PythonRegistry(
        "higher_order_fakes",
        "fake functions of higher-order operators",
        "torch._higher_order_ops.utils:registered_hop_fake_fns",
        "when a higher-order operator is called under FakeTensorMode",
        since="2.8",
        rule=PythonRule(Second.REFUSED, by_object=False, refusal="already registered"),
        calls=_functions(
            "torch._higher_order_ops.utils", "register_fake", also=("py_kernels", *_BESIDE_KERNELS), decorate=False
        ),
    ),
    PythonRegistry(
        "dtensor_rules",
        "sharding rules of DTensor",
        "torch.distributed.tensor._sharding_prop:ShardingPropagator",
        "when an argument is a DTensor: they say how the results are sharded",
        needs=_DTENSOR,
        rule=_REPLACES,
        calls=(
            *_functions(f"{_DTENSOR}.experimental", "register_sharding"),
            *_functions(f"{_DTENSOR}.experimental._register_sharding", "register_sharding"),
            *_functions(f"{_DTENSOR}._ops.utils", "register_op_strategy", "register_prop_rule"),
            *_functions(f"{_DTENSOR}._ops.registration", "register_op_strategy", "register_prop_rule"),
            *_functions(f"{_DTENSOR}._ops.single_dim_strategy", "register_single_dim_strategy"),
        ),
        names=("op_strategy_funcs", "op_to_rules", "op_single_dim_strategy_funcs"),
    ),
    PythonRegistry(
        "dtensor_handlers",
        "handlers of DTensor",
        "torch.distributed.tensor._dispatch:OpDispatcher._custom_op_handlers",
        "when an argument is a DTensor: in place of its sharding rules",
        needs=_DTENSOR,
        rule=_REPLACES,
        over=("dtensor_rules", "the sharding rule"),
    ),
    PythonRegistry(
        "jagged",
        "functions of jagged tensors",
        f"{_JAGGED}:JAGGED_OPS_TABLE",
        "when an argument is a nested tensor of the layout jagged: from its __torch_dispatch__",
        needs=_JAGGED,
        rule=_REPLACES,
        calls=(
            RegisteringFunction(f"{_JAGGED}:register_jagged_func", arguments=("self: any",)),
            *_functions(_JAGGED, "register_func"),
        ),
    ),
    PythonRegistry(
        "inductor_decompositions",
        "decompositions of Inductor",
        "torch._inductor.decomposition:decompositions",
        "under torch.compile with Inductor: in place of the operator, before the lowerings",
        needs="torch._inductor.decomposition",
        rule=_DUPLICATE,
        names=("decompositions", "remove_decompositions"),
        over=_DECOMPOSITION,
    ),
    PythonRegistry(
        "inductor_lowerings",
        "Inductor lowerings",
        "torch._inductor.lowering:lowerings",
        "under torch.compile with Inductor, for what is left in the graph after its decompositions",
        needs=_INDUCTOR,
        rule=_REPLACES,
        calls=(
            *_functions(_INDUCTOR, "register_lowering", also=_BESIDE_LOWERINGS),
            *_functions(_INDUCTOR, "_register_lowering", "make_fallback", also=_BESIDE_LOWERINGS, decorate=False),
        ),
    ),
    PythonRegistry(
        "inductor_fallbacks",
        "Inductor fallbacks",
        "torch._inductor.lowering:fallbacks",
        "under torch.compile with Inductor: the lowering calls the operator as the dispatcher does",
        needs=_INDUCTOR,
        rule=PythonRule(Second.SAME, beside="inductor_decompositions"),
    ),
    PythonRegistry(
        "inductor_constraints",
        "layout constraints of Inductor",
        "torch._inductor.lowering:_maybe_layout_constraints",
        "under torch.compile with Inductor: how the arguments are laid out before the lowering or fallback",
        needs=_INDUCTOR,
        rule=_REPLACES,
        calls=_functions(_INDUCTOR, "add_layout_constraint", decorate=False),
        formerly="layout_constraints",
    ),
    PythonRegistry(
        "inductor_user_lowerings",
        "lowerings of users",
        "torch._inductor.lowering:user_lowerings",
        "under torch.compile with Inductor: before its own lowerings",
        needs=_INDUCTOR,
        since="2.12",
        rule=_REPLACES,
        over=("inductor_lowerings", "the lowering"),
    ),
    PythonRegistry(
        "inductor_random_decompositions",
        "decompositions of random operators",
        "torch._decomp.decompositions_for_rng:extra_random_decomps",
        "under torch.compile with Inductor, unless its option fallback_random is on: in place of the operator, "
        "before the lowerings",
        needs="torch._inductor.decomposition",
        rule=_DUPLICATE,
        no_call=_OF_PYTORCH,
        over=_DECOMPOSITION,
        read_later=True,
    ),
    PythonRegistry(
        "random_decompositions",
        "decompositions with the random state as an argument",
        "torch._decomp.decompositions_for_rng:rng_decompositions",
        "under AOTAutograd, when its option functionalize_rng_ops is on",
        needs="torch._decomp.decompositions_for_rng",
        rule=_DUPLICATE,
        no_call=_OF_PYTORCH,
        over=_DECOMPOSITION,
        read_later=True,
    ),
    PythonRegistry(
        "masked_tensor",
        "functions of masked tensors",
        "torch.masked.maskedtensor._ops_refs:_MASKEDTENSOR_DISPATCH_TABLE",
        "when an argument is a MaskedTensor: from its __torch_dispatch__, and for functions of Python from its "
        "__torch_function__",
        needs="torch.masked.maskedtensor._ops_refs",
        rule=_REPLACES,
        no_call=_OF_PYTORCH,
        read_later=True,
    ),
    PythonRegistry(
        "semi_structured",
        "functions of semi-structured sparse tensors",
        "torch.sparse.semi_structured:SparseSemiStructuredTensor.SPARSE_DISPATCH",
        "when an argument is a tensor of that class: from its __torch_dispatch__",
        no_call=_OF_PYTORCH,
        read_later=True,
    ),
    PythonRegistry(
        "sharded_tensor",
        "functions of sharded tensors",
        "torch.distributed._shard.sharded_tensor.api:_SHARDED_OPS",
        "when an argument is a ShardedTensor: from its __torch_function__, after those of its sharding spec",
        needs="torch.distributed._shard.sharded_tensor",
        rule=_REPLACES,
        no_call=_OF_PYTORCH,
        read_later=True,
    ),
)
"""Every registry that is read, in the order in which they are shown."""

# Note [Registries of records]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Some of what packages register in Python is no part of a Python layer, which says of each operator what runs for it:
# the name of a backend, formulas that count, functions of exporters. A record lists it all the same, since the order of
# imports may decide it. No recording of a PyTorch has it, so `dump` and `diff` know nothing of it.

PRIVATEUSE1_NAME = "privateuse1_name"
"""The registry of the name that a package gives to PrivateUse1."""

_ONNX = "torch.onnx._internal.torchscript_exporter"

PACKAGE_REGISTRIES: tuple[PythonRegistry, ...] = (
    PythonRegistry(
        PRIVATEUSE1_NAME,
        "names of the backend PrivateUse1",
        "torch._C:_get_privateuse1_backend_name",
        "wherever a device type is named",
        rule=PythonRule(Second.REFUSED, by_object=False, refusal="has already been set"),
        calls=(
            *_functions("torch.utils.backend_registration", "rename_privateuse1_backend", decorate=False),
            *_functions("torch._C", "_rename_privateuse1_backend", decorate=False),
        ),
        no_call="a process names the backend once",
    ),
    PythonRegistry(
        "flop_formulas",
        "formulas that count floating-point operations",
        "torch.utils.flop_counter:flop_registry",
        "under FlopCounterMode",
        rule=_DUPLICATE,
        calls=_functions("torch.utils.flop_counter", "register_flop_formula"),
        no_call=_OF_RECORDS,
    ),
    PythonRegistry(
        "onnx_functions",
        "functions that export to ONNX",
        f"{_ONNX}.registration:registry",
        "under torch.onnx.export through TorchScript: in place of the function of PyTorch for this opset",
        rule=PythonRule(Second.REPLACES, by_object=False),
        calls=(
            *_functions(
                f"{_ONNX}.utils", "register_custom_op_symbolic", "unregister_custom_op_symbolic", decorate=False
            ),
            *_functions(f"{_ONNX}.registration", "SymbolicRegistry.register", decorate=False),
        ),
        names=("unregister_custom_op_symbolic",),
        no_call=_OF_RECORDS,
    ),
    PythonRegistry(
        "fx_side_effects",
        "functions that FX keeps in a graph",
        "torch.fx.node:_side_effectful_functions",
        "when FX removes dead code",
        rule=PythonRule(Second.SAME),
        calls=_functions("torch.fx.node", "has_side_effect", decorate=False),
        no_call=_OF_RECORDS,
    ),
    PythonRegistry(
        "replaced_functions",
        "functions of PyTorch that are replaced",
        "torch:library",
        "in place of the function of PyTorch that registers",
        no_call="it is no registration by itself",
    ),
)
"""The registries that records alone have. See Note [Registries of records]."""

EVERY_REGISTRY = (*PYTHON_REGISTRIES, *PACKAGE_REGISTRIES)

REGISTRY_NAMED = {registry.name: registry for registry in EVERY_REGISTRY}

IMPORTS: tuple[str, ...] = tuple(
    dict.fromkeys((_DTENSOR, *(registry.needs for registry in PYTHON_REGISTRIES if registry.needs)))
)
"""The modules that fill registries besides torch itself, in the order in which a recording imports them.

DTensor comes before Inductor, which registers a sharding rule of its own when both are there.
"""

IN_LAYERS = frozenset(one.name for one in PYTHON_REGISTRIES)
"""The registries of which a Python layer has something."""

NO_CALL_OF_ITS_OWN = frozenset(one.name for one in EVERY_REGISTRY if one.rule is not None and one.no_call)
"""The registries with a rule in which the live engine makes no registration."""

READ_LATER = frozenset(one.name for one in PYTHON_REGISTRIES if one.read_later)
"""The registries that recordings of an older dispatchlab have not read; every PyTorch that has one fills it."""

FUNCTIONS = "python"
"""The namespace here of Python functions that a registry of operators has as well, as `python::_operator.add`."""

EFFECT = "effect "
"""What the key of an effect in `torch_library` begins with; the kind of effect follows."""

HIGHER_ORDER = "higher_order"
"""The namespace of higher-order operators, which Python alone knows."""

IN_THE_SET = "in the set"
"""What snapshots show of an operator in a registry that is a set, whichever package added it first."""

NOTHING = "nothing"
"""The key here of an operator that a registry has an empty entry for."""

EVERY_OVERLOAD = "*"
"""The overload here of what a registry has for a name without one: the packet of all overloads."""


def base_name(operator: str) -> str:
    """An operator without its overload; a Python function and a higher-order operator as they are."""
    namespace, colons, name = operator.partition("::")
    return operator if namespace in (FUNCTIONS, "higher_order") else f"{namespace}{colons}{name.partition('.')[0]}"


class PythonRegistration(NamedTuple):
    """Python code that one registry has for one operator.

    Args:
        registry: the name of the registry, one of `PYTHON_REGISTRIES`.
        operator: the full name of the operator; `higher_order::cond` for a higher-order operator, `aten::add.*` for
            all overloads of a name, `python::math.ceil` for a Python function.
        key: what it is kept by besides the operator: a dispatch key, a mode or a class, a table, a device; empty when
            the registry has one entry for each operator.
        function: the function, `module:qualified name`.
        site: the line of the function or of the call that registered it, `file:line` below the folder of its package;
            empty when neither is known.
        needs: the module whose import brought it; empty when `import torch` or a package that was named did.
        active: False when a newer one has taken its place.
        call: the function of PyTorch that was called to register it, such as `register_decomposition`, or `ASSIGNMENT`;
            empty where calls were not watched.
        effect: see `WriteEffect`.
    """

    registry: str
    operator: str
    key: str = ""
    function: str = ""
    site: str = ""
    needs: str = ""
    active: bool = True
    call: str = ""
    effect: WriteEffect = ""

    @property
    def slot(self) -> tuple[str, str, str]:
        """Where it is kept; a newer registration of the same slot takes the place of this one."""
        return self.registry, self.operator, self.key

    @property
    def is_packet(self) -> bool:
        """Whether it is kept for all overloads of a name."""
        return self.operator.endswith(f".{EVERY_OVERLOAD}") and self.operator == base_name(self.operator) + ".*"

    @property
    def is_effect(self) -> bool:
        """Whether it says that an operator has an effect, as `torch.library._register_effectful_op` does."""
        return self.registry == "torch_library" and self.key.startswith(EFFECT)

    @property
    def described(self) -> PythonRegistry:
        """What is known of its registry."""
        return REGISTRY_NAMED[self.registry]

    @property
    def rule(self) -> PythonRule | None:
        """What registering it does; None when that is not known. See Note [Rules of registries]."""
        if self.effect == "used":  # what follows depends on what is there
            return None
        if self.is_effect:
            return _ONE_VALUE
        rule = self.described.rule
        is_assigned = self.call == ASSIGNMENT or self.effect == "removed"
        if self.registry == PRIVATEUSE1_NAME:  # which C++ keeps, and refuses to set
            return rule
        if rule is not None and rule.second is Second.REFUSED and is_assigned:
            rule = rule._replace(second=Second.REPLACES)
        if rule is not None and self.registry == HIGHER_ORDER and not self.key:
            return rule._replace(second=Second.REPLACES)  # the operator itself, of which the newest has the name
        if rule is not None and self.operator.partition("::")[0] in (FUNCTIONS, HIGHER_ORDER):
            second = Second.REPLACES if rule is _DUPLICATE else rule.second  # `_add_op_to_registry` assigns these
            return rule._replace(second=second, by_object=False)
        return rule


def by_slot(registrations: Iterable[PythonRegistration]) -> dict[tuple[str, str, str], list[PythonRegistration]]:
    """Registrations in the order in which they were made, by where they are kept; the last of each is in force."""
    found: dict[tuple[str, str, str], list[PythonRegistration]] = {}
    for registration in registrations:
        found.setdefault(registration.slot, []).append(registration)
    return found


class PythonLayer(Protocol):
    """What one PyTorch had in its Python-side registries, in memory or in a file."""

    @property
    def torch(self) -> str:
        """The version of the PyTorch."""

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the registries that were not found in this version."""

    @property
    def not_imported(self) -> tuple[str, ...]:
        """The modules of `IMPORTS` that were not imported, so that their registries are empty."""

    def of(self, operator: str, /) -> tuple[PythonRegistration, ...]:
        """What there is for one operator, in the order of the registries."""

    def __iter__(self) -> Iterator[PythonRegistration]:
        """Everything, by operator."""


def unread_registries(layer: PythonLayer) -> frozenset[str]:
    """The registries that a layer has not read, since it was recorded before there was a reader."""
    left = {
        name
        for name in READ_LATER
        if name not in layer.missing and REGISTRY_NAMED[name].needs not in layer.not_imported
    }
    for one in layer:
        left.discard(one.registry)
        if not left:
            break
    return frozenset(left)
