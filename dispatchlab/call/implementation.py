"""Implementations of an operator, and where to find them: what its registries and its dispatch table have for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.operator_view import OperatorView, TableRow
from dispatchlab.model.python_layer import PythonRegistration
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.short_repr import member_repr
from dispatchlab.model.slot_set import BACKENDS_OF_AUTOGRAD, keys_of, slots_of_key


class ImplementedBy(StrEnum):
    """What an implementation is."""

    KERNEL = "kernel of the dispatch table"
    PYTHON_KERNEL = "Python kernel"
    DIRECT = "answer of the mode itself"
    FAST_RULE = "fast fake-tensor rule"
    DECOMPOSITION = "decomposition"
    COMPOSITE = "composite kernel"
    PRIM_META = "meta function of the prim"
    LIBRARY_FAKE = "fake implementation of torch.library"
    FAKE_RULE = "fake-tensor rule"
    META = "Meta kernel"
    TRIVIAL_FAKE = "trivial fake implementation"
    REAL_KERNEL = "real kernel on zeros"
    UNSUPPORTED = "error: not supported"
    FUNCTIONALIZATION = "functionalization"
    USER_LOWERING = "lowering of a user"
    LOWERING = "Inductor lowering"
    FALLBACK = "Inductor fallback"
    IMPLICIT_FALLBACK = "implicit Inductor fallback"
    GRAPH_NODE = "node of the graph"
    DTENSOR_HANDLER = "handler of DTensor"
    SHARDING_RULE = "sharding rule"
    ALL_TRANSFORMS = "functorch's kernel for all transforms"
    BATCHING_RULE = "batching rule"
    BATCHED_DECOMPOSITION = "decomposition for vmap"
    RANDOM_RULE = "random batching rule"
    LIBRARY_VMAP = "vmap rule of torch.library"
    SLOW_FALLBACK = "slow fallback of vmap"
    AUTOGRAD = "autograd kernel"
    AUTOGRAD_FALLBACK = "fallback of autograd"
    FUNCTIONALIZE_FALLBACK = "fallback of functionalize"
    AUTOCAST = "autocast kernel"
    LIBRARY_AUTOCAST = "autocast rule of torch.library"

    __repr__ = member_repr


@dataclass(frozen=True, slots=True)
class Implementation:
    """What runs for a call, or would if what comes before it gave up.

    Args:
        kind: what it is.
        where: what asks it: a dispatch key, a mode or a compiler.
        function: its name, or where the kernel was registered.
        site: its line; empty where it is not known.
        why: why it comes at this point.
        gives_up: how it hands the call on to the next; empty when it cannot.
    """

    kind: ImplementedBy
    where: str
    function: str
    site: str
    why: str
    gives_up: str = ""


def implementation_of(
    one: PythonRegistration, kind: ImplementedBy, where: str, why: str, gives_up: str = ""
) -> Implementation:
    """What Python registered, as the implementation that runs."""
    return Implementation(kind, where, one.function, one.site, why, gives_up)


@dataclass(frozen=True, slots=True)
class Registered:
    """An operator as a source has it: its dispatch table, and what Python registered for it.

    Args:
        view: the operator with its table.
        registrations: what Python registered for it.
        schema: its schema.
        sparse: whether an argument of the call is sparse.
        backend: the key of a plain tensor on the device of the first tensor; empty when there is no tensor.
    """

    view: OperatorView
    registrations: Sequence[PythonRegistration]
    schema: FunctionSchema
    sparse: bool
    backend: str = "CPU"

    @property
    def namespace(self) -> str:
        """The namespace of the operator."""
        return self.view.name.partition("::")[0]

    def all(self, registry: str, key: str | None = None) -> Iterator[PythonRegistration]:
        """What is in force in a registry of Python, under one key or under any."""
        for one in self.registrations:
            if one.registry == registry and one.active and (key is None or one.key == key):
                yield one

    def one(self, registry: str, key: str | None = None) -> PythonRegistration | None:
        """The first of these; None when there is none."""
        return next(self.all(registry, key), None)

    def row(self, key: str) -> TableRow | None:
        """The slot of a key, when it holds something."""
        return next((row for row in self.view.table if row.key == key and row.reason is not None), None)

    def kernel_at(self, key: str) -> str | None:
        """Where the kernel that is registered at a key comes from; None when there is none."""
        return next((row.debug for row in self.view.kernels if row.key == key and row.active), None)

    @property
    def has_backend_kernel(self) -> bool:
        """Whether the device of the first tensor has a kernel of its own, which a composite kernel gives way to."""
        return self.kernel_at(self.backend) is not None

    @property
    def is_composite(self) -> bool:
        """Whether Python or C++ has a kernel for CompositeImplicitAutograd."""
        return self.has("CompositeImplicitAutograd")

    def has(self, key: str) -> bool:
        """Whether Python or C++ registered a kernel at a key itself."""
        return self.one("py_kernels", key) is not None or self.kernel_at(key) is not None

    def resolved(self, key: DispatchKey) -> str:
        """The key whose kernel the Python dispatcher takes for a runtime key. See Note [The Python dispatcher]."""
        if self.has(str(key)):
            return str(key)
        explicit = self.has("CompositeExplicitAutograd")
        for alias in ("CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd"):
            if _is_in(key, alias) and self.has(alias):
                return alias
        backend = explicit or any(self.has(str(one)) for one in keys_of(BACKENDS_OF_AUTOGRAD.get(key, 0)))
        for alias in ("CompositeImplicitAutogradNestedTensor", "CompositeImplicitAutograd"):
            if _is_in(key, alias) and self.has(alias) and not backend:
                return alias
        for alias in ("Autograd", "FuncTorchBatchedDecomposition"):
            if _is_in(key, alias) and self.has(alias):
                return alias
        return str(key)


# Note [The Python dispatcher]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# When it is on, each hop asks Python for its kernel. The key of the hop is resolved by the rules of the dispatch table,
# with the kernels of C++ and the Python kernels as one: the key itself, then the alias keys by their precedence. If the
# registry of Python kernels has an entry for what is found, this runs; else the slot of the table does.


def _is_in(key: DispatchKey, alias: str) -> bool:
    return key in keys_of(slots_of_key(DispatchKey[alias]))
