"""What Python registers beside the dispatch tables: `PythonRegistration`, and what is known of each registry.

`PYTHON_REGISTRIES` describes the registries; `PythonLayer` is what one PyTorch had in them. The running PyTorch is read
by `live/introspection/python_registries.py`, a recording by `registry/python_parts.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Literal, NamedTuple, Protocol, TypeAlias, get_args

from dispatchlab.model.short_repr import member_repr

Mode: TypeAlias = Literal[
    "fake", "make_fx", "compile", "export", "dtensor", "functionalize", "grad", "vmap", "autocast"
]
"""What a call can be explained under; `dtensor` is a call with DTensors, and the last four are the transforms of
torch.func and torch.autocast."""

EXPLAINED_MODES: tuple[Mode, ...] = get_args(Mode)

Compiler: TypeAlias = Literal["inductor", "aot_eager"]
"""The backends of torch.compile."""

COMPILERS: tuple[Compiler, ...] = get_args(Compiler)

Decompositions: TypeAlias = Literal["none", "core_aten", "inductor", "all", "pre_autograd"]
"""The tables of decompositions that make_fx can be given.

`core_aten` is `core_aten_decompositions()`, `inductor` the table of Inductor, `all` is
`torch._decomp.decomposition_table`, and `pre_autograd` what `global_decomposition_table` has under this name.
"""

DECOMPOSITIONS: tuple[Decompositions, ...] = get_args(Decompositions)


# Note [Rules of registries]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~
# What a second registration of a slot does is read off the function of PyTorch that fills the registry: an assignment
# replaces; `register_decomposition`, `py_impl` and `register_op_impl` refuse. Who takes an `OpOverload` needs the def
# of the operator before, and what is kept under that object is lost when the operator is defined anew. Nothing takes
# such a registration back. All this was read in PyTorch 2.13.
# A registry without a rule is not explored: PyTorch makes what it holds and nobody registers there
# (`export_decompositions`, `semi_structured`), code decides which of two comes first (`fake_checks`, which asks one
# property after the other), or calls of `torch.library` fill it.


class Second(StrEnum):
    """What a second registration of one slot does."""

    REPLACES = "replaces"
    REFUSED = "refused"
    SAME = "same"

    __repr__ = member_repr


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


WriteEffect: TypeAlias = Literal["", "refused", "removed", "used"]
"""What a package did with an entry of a registry: it registered, it was refused since the entry was taken, it took what
was there out of the registry, so that it has no function, or it names the table in code that may look it up or take it
out."""

ASSIGNMENT = "assignment"
"""What `PythonRegistration.call` has for an assignment, which PyTorch never refuses."""

WRITE_EFFECTS: tuple[WriteEffect, ...] = ("refused", "removed", "used")


class PythonRegistry(NamedTuple):
    """One registry in which Python code is kept by operator.

    Args:
        name: what it is called here.
        title: what it holds, a few words in the plural.
        home: the module and the attribute that PyTorch keeps it in, `module:attribute`.
        applies: when what it holds runs, one sentence.
        needs: the module that has to be imported before it is filled; empty when `import torch` does.
        since: the version of PyTorch that has it, or the oldest that was looked at where that has it.
        one_each: whether an operator can be in it once, whatever the key.
        rule: what registering in it does; None when that is not known, and nothing in it is explored then.
    """

    name: str
    title: str
    home: str
    applies: str
    needs: str = ""
    since: str = "2.4"
    one_each: bool = True
    rule: PythonRule | None = None


_INDUCTOR = "torch._inductor.lowering"
_DTENSOR = "torch.distributed.tensor"

PYTHON_REGISTRIES: tuple[PythonRegistry, ...] = (
    PythonRegistry(
        "py_kernels",
        "Python kernels",
        "torch._ops:OpOverload.py_kernels",
        "when the Python dispatcher is on, as under torch.compile, torch.export and make_fx with symbolic sizes: "
        "in place of the C++ kernel of the slot",
        one_each=False,
        rule=_OVERRIDE,
    ),
    PythonRegistry(
        "mode_rules",
        "rules for one mode or tensor class",
        "torch._ops:OpOverload.python_key_table",
        "at the key Python, when that mode is on or an argument is of that class: in place of __torch_dispatch__",
        one_each=False,
        rule=_ALREADY,
    ),
    PythonRegistry(
        "decompositions",
        "decompositions",
        "torch._decomp:global_decomposition_table",
        "when a graph is traced with a table of decompositions (make_fx, AOTAutograd, torch.export): "
        "in place of the operator, after autograd or before it",
        one_each=False,
        rule=_DUPLICATE,
    ),
    PythonRegistry(
        "meta_functions",
        "meta functions",
        "torch._decomp:global_decomposition_table[meta]",
        "on meta tensors and under FakeTensorMode, once torch._meta_registrations has put them "
        "into py_kernels, and most of them into the dispatch table, too",
        rule=_DUPLICATE,
    ),
    PythonRegistry(
        "export_decompositions",
        "decompositions to core ATen",
        "torch._decomp:_core_aten_decompositions_post_autograd",
        "when an exported program is decomposed by run_decompositions() with no table of its own",
    ),
    PythonRegistry(
        "jvp_decompositions",
        "decompositions for forward mode",
        "torch._decomp.decompositions_for_jvp:decomposition_table_for_jvp",
        "under torch.func.jvp, where an operator has no formula for forward mode and decomposes in TorchScript",
        rule=_DUPLICATE,
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
    ),
    PythonRegistry(
        "fake_checks",
        "fake-tensor rules by a property of the operator",
        "torch._subclasses.fake_impls:op_implementations_checks",
        "under FakeTensorMode, when the rules before it give no answer and the operator has the property: "
        "before any Meta kernel",
        one_each=False,
    ),
    PythonRegistry(
        "fast_fake_rules",
        "fast fake-tensor rules",
        "torch._subclasses.fake_impls:get_fast_op_impls",
        "under FakeTensorMode, when a size is symbolic: first of all, where they can answer",
        rule=_REPLACES,
    ),
    PythonRegistry(
        "torch_library",
        "registrations of torch.library",
        "torch._library.simple_registry:singleton",
        "a fake implementation on meta and fake tensors; a torch_dispatch rule under its mode or for its class; "
        "an effect when a graph is traced",
        one_each=False,
    ),
    PythonRegistry(
        "custom_ops",
        "parts of custom operators",
        "torch._library.custom_ops:OPDEFS",
        "through the kernels that custom_op puts into the dispatch table: its function on each device, "
        "its backward, its rules for vmap and autocast",
        one_each=False,
    ),
    PythonRegistry(
        "higher_order",
        "rules of higher-order operators",
        "torch._ops:_higher_order_ops",
        "whenever a higher-order operator is called: at the dispatch key, under the mode or in the functorch transform",
        one_each=False,
        rule=PythonRule(Second.REFUSED, by_object=False, refusal="Trying to override a python impl"),
    ),
    PythonRegistry(
        "higher_order_fakes",
        "fake functions of higher-order operators",
        "torch._higher_order_ops.utils:registered_hop_fake_fns",
        "when a higher-order operator is called under FakeTensorMode",
        since="2.8",
        rule=PythonRule(Second.REFUSED, by_object=False, refusal="already registered"),
    ),
    PythonRegistry(
        "dtensor_rules",
        "sharding rules of DTensor",
        "torch.distributed.tensor._sharding_prop:ShardingPropagator",
        "when an argument is a DTensor: they say how the results are sharded",
        needs=_DTENSOR,
        one_each=False,
        rule=_REPLACES,
    ),
    PythonRegistry(
        "dtensor_handlers",
        "handlers of DTensor",
        "torch.distributed.tensor._dispatch:OpDispatcher._custom_op_handlers",
        "when an argument is a DTensor: in place of its sharding rules",
        needs=_DTENSOR,
        rule=_REPLACES,
    ),
    PythonRegistry(
        "jagged",
        "functions of jagged tensors",
        "torch.nested._internal.ops:JAGGED_OPS_TABLE",
        "when an argument is a nested tensor of the layout jagged: from its __torch_dispatch__",
        needs="torch.nested._internal.ops",
        rule=_REPLACES,
    ),
    PythonRegistry(
        "inductor_decompositions",
        "decompositions of Inductor",
        "torch._inductor.decomposition:decompositions",
        "under torch.compile with Inductor: in place of the operator, before the lowerings",
        needs="torch._inductor.decomposition",
        rule=_DUPLICATE,
    ),
    PythonRegistry(
        "inductor_lowerings",
        "Inductor lowerings",
        "torch._inductor.lowering:lowerings",
        "under torch.compile with Inductor, for what is left in the graph after its decompositions",
        needs=_INDUCTOR,
        rule=_REPLACES,
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
    ),
    PythonRegistry(
        "inductor_user_lowerings",
        "lowerings of users",
        "torch._inductor.lowering:user_lowerings",
        "under torch.compile with Inductor: before its own lowerings",
        needs=_INDUCTOR,
        since="2.12",
        rule=_REPLACES,
    ),
    PythonRegistry(
        "inductor_random_decompositions",
        "decompositions of random operators",
        "torch._decomp.decompositions_for_rng:extra_random_decomps",
        "under torch.compile with Inductor, unless its option fallback_random is on: in place of the operator, "
        "before the lowerings",
        needs="torch._inductor.decomposition",
        rule=_DUPLICATE,
    ),
    PythonRegistry(
        "random_decompositions",
        "decompositions with the random state as an argument",
        "torch._decomp.decompositions_for_rng:rng_decompositions",
        "under AOTAutograd, when its option functionalize_rng_ops is on",
        needs="torch._decomp.decompositions_for_rng",
        rule=_DUPLICATE,
    ),
    PythonRegistry(
        "masked_tensor",
        "functions of masked tensors",
        "torch.masked.maskedtensor._ops_refs:_MASKEDTENSOR_DISPATCH_TABLE",
        "when an argument is a MaskedTensor: from its __torch_dispatch__, and for functions of Python from its "
        "__torch_function__",
        needs="torch.masked.maskedtensor._ops_refs",
        rule=_REPLACES,
    ),
    PythonRegistry(
        "semi_structured",
        "functions of semi-structured sparse tensors",
        "torch.sparse.semi_structured:SparseSemiStructuredTensor.SPARSE_DISPATCH",
        "when an argument is a tensor of that class: from its __torch_dispatch__",
        one_each=False,
    ),
    PythonRegistry(
        "sharded_tensor",
        "functions of sharded tensors",
        "torch.distributed._shard.sharded_tensor.api:_SHARDED_OPS",
        "when an argument is a ShardedTensor: from its __torch_function__, after those of its sharding spec",
        needs="torch.distributed._shard.sharded_tensor",
        one_each=False,
        rule=_REPLACES,
    ),
)
"""Every registry that is read, in the order in which they are shown."""

REGISTRY_NAMED = {registry.name: registry for registry in PYTHON_REGISTRIES}

IMPORTS: tuple[str, ...] = tuple(
    dict.fromkeys((_DTENSOR, *(registry.needs for registry in PYTHON_REGISTRIES if registry.needs)))
)
"""The modules that fill registries besides torch itself, in the order in which a recording imports them.

DTensor comes before Inductor, which registers a sharding rule of its own when both are there.
"""

NO_CALL_OF_ITS_OWN = frozenset(
    {
        *("jvp_decompositions", "inductor_random_decompositions", "random_decompositions"),
        *("masked_tensor", "sharded_tensor"),
    }
)
"""The registries with a rule in which the live engine makes no registration."""

READ_LATER = frozenset(
    {
        *("inductor_random_decompositions", "random_decompositions"),
        *("masked_tensor", "semi_structured", "sharded_tensor"),
    }
)
"""The registries that recordings of an older dispatchlab have not read; every PyTorch that has one fills it."""

FUNCTIONS = "python"
"""The namespace here of Python functions that a registry of operators has as well, as `python::_operator.add`."""

HIGHER_ORDER = "higher_order"
"""The namespace of higher-order operators, which Python alone knows."""

IN_THE_SET = "in the set"
"""What snapshots show of an operator in a registry that is a set, whoever added it first."""

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
            empty where nobody watched.
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
    def described(self) -> PythonRegistry:
        """What is known of its registry."""
        return REGISTRY_NAMED[self.registry]

    @property
    def rule(self) -> PythonRule | None:
        """What registering it does; None when that is not known. See Note [Rules of registries]."""
        rule = self.described.rule
        if self.effect == "used":  # what follows depends on what is there
            return None
        if rule is not None and rule.second is Second.REFUSED and (self.call == ASSIGNMENT or self.effect == "removed"):
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
    for one in registrations:
        found.setdefault(one.slot, []).append(one)
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
        """The modules of `IMPORTS` that nobody had imported, so that their registries are empty."""

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
