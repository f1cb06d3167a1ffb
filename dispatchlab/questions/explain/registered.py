"""What is registered for an operator: what its registries of Python and its dispatch table have for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.operator_view import OperatorView, TableRow
from dispatchlab.model.python_layer import PythonRegistration
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.slot_set import BACKENDS_OF_AUTOGRAD, keys_of, slots_of_key
from dispatchlab.questions.explain.result import Implementation, ImplementedBy

COMPOSITE_IMPLICIT = "CompositeImplicitAutograd"


def implementation_of(
    registered: PythonRegistration | str, kind: ImplementedBy, where: str, why: str, gives_up: str = ""
) -> Implementation:
    """What Python registered, or a kernel by its debug text, as the implementation that runs."""
    if isinstance(registered, str):
        return Implementation(kind, where, registered, "", why, gives_up)
    return Implementation(kind, where, registered.function, registered.site, why, gives_up)


def unsupported(where: str, why: str) -> Implementation:
    """The error that a call ends in."""
    return Implementation(ImplementedBy.UNSUPPORTED, where, "", "", why)


@dataclass(frozen=True, slots=True)
class Registered:
    """An operator as a source has it: its dispatch table, and what Python registered for it.

    Args:
        view: the operator with its table.
        registrations: what Python registered for it.
        schema: its schema.
        sparse: whether an argument of the call is sparse.
        backend: the key of a plain tensor on the device of the first tensor; empty when there is no tensor.
        keeps_kernels: whether graphs keep a kernel of the device beside a composite one, see `Profile.mode_rules`.
        keeps_writes: whether torch.export keeps writes to tensors, likewise.
    """

    view: OperatorView
    registrations: Sequence[PythonRegistration]
    schema: FunctionSchema
    sparse: bool
    backend: str = "CPU"
    keeps_kernels: bool = True
    keeps_writes: bool = True

    @property
    def namespace(self) -> str:
        """The namespace of the operator."""
        return self.view.name.partition("::")[0]

    @property
    def writes(self) -> bool:
        """Whether it writes an argument."""
        return any(argument.is_written for argument in self.schema.arguments)

    @property
    def aliases(self) -> bool:
        """Whether an argument is written, or a result may be a view of it."""
        return any(argument.alias is not None for argument in self.schema.arguments)

    def active(self, registry: str, key: str | None = None) -> Iterator[PythonRegistration]:
        """What is in force in a registry of Python, under one key or under any."""
        for registration in self.registrations:
            if registration.registry == registry and registration.active and key in (None, registration.key):
                yield registration

    def first(self, registry: str, key: str | None = None) -> PythonRegistration | None:
        """The first of these; None when there is none."""
        return next(self.active(registry, key), None)

    def row(self, key: str) -> TableRow | None:
        """The slot of a key, when it holds something."""
        return next((row for row in self.view.table if row.key == key and row.reason is not None), None)

    def kernel_at(self, key: str) -> str | None:
        """Where the kernel that is registered at a key comes from; None when there is none."""
        return next((row.debug for row in self.view.kernels if row.key == key and row.active), None)

    @property
    def keeps_kernel(self) -> bool:
        """Whether the device of the first tensor has a kernel of its own, which a composite kernel gives way to."""
        return self.keeps_kernels and self.kernel_at(self.backend) is not None

    @property
    def composite(self) -> PythonRegistration | str | None:
        """The kernel for CompositeImplicitAutograd, as `OpOverload.decompose` finds it: Python's before that of C++."""
        return self.first("py_kernels", COMPOSITE_IMPLICIT) or self.kernel_at(COMPOSITE_IMPLICIT)

    def has(self, key: str) -> bool:
        """Whether Python or C++ registered a kernel at a key itself."""
        return self.first("py_kernels", key) is not None or self.kernel_at(key) is not None

    def resolved(self, key: DispatchKey) -> str:
        """The key whose kernel the Python dispatcher takes for a runtime key. See Note [The Python dispatcher]."""
        if self.has(str(key)):
            return str(key)
        explicit = self.has("CompositeExplicitAutograd")
        for alias in ("CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd"):
            if _is_in(key, alias) and self.has(alias):
                return alias
        backend = explicit or any(self.has(str(below)) for below in keys_of(BACKENDS_OF_AUTOGRAD.get(key, 0)))
        for alias in ("CompositeImplicitAutogradNestedTensor", COMPOSITE_IMPLICIT):
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
