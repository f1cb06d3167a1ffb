"""Stand-ins for registrations that PyTorch cannot make: boxed kernels for C++ kernels, PyTorch's own custom classes."""

# Note [What a stand-in leaves out]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# The bindings register boxed kernels at every key, and one C++ signature. Which kernel a slot gets does not depend on
# how the kernel is called, so a boxed kernel at the same key stands in for it. PyTorch compares two things of an
# unboxed kernel that a boxed one does not have: the schema of its C++ type with the def, and its signature with those
# of the operator's other kernels. So there are stand-ins only where both comparisons are known to come out well; else
# the kernel stays what it is, and the bindings refuse it.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dispatchlab.live.bridge.expressible import has_binding
from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import Block, Def, Fallback, Impl, Kernel, KernelForm, Registration
from dispatchlab.model.schema import FunctionSchema, classes_in, with_classes
from dispatchlab.model.schema_difference import schema_difference
from dispatchlab.model.schema_parser import KNOWN_CLASSES

# Note [Stand-ins for custom classes]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A schema may name a custom class of the package that was recorded, which only its C++ can register, and PyTorch
# refuses the def where the package is not imported. Schemas are compared and printed, and nothing else is done with
# their types until somebody calls. So a class of PyTorch's own stands in for each: one for one, since two classes that
# looked the same would hide a conflict, and none that the registrations name already.

_CLASSES = (
    *("quantized.Conv2dPackedParamsBase", "quantized.Conv3dPackedParamsBase", "quantized.EmbeddingPackedParamsBase"),
    *("quantized.LinearPackedParamsBase", "rnn.CellParamsBase", "sparse.LinearPackedParamsBase"),
    *("backendutils.BackendDebugInfo", "profiling.InstructionStats", "profiling.SourceRef", "profiling.SourceStats"),
)
"""Custom classes that every build of PyTorch has."""


def with_known_classes(registrations: Sequence[Registration]) -> tuple[tuple[Registration, ...], tuple[str, ...]]:
    """Replace custom classes that PyTorch lacks by known classes; return the registrations and the replaced names.

    See Note [Stand-ins for custom classes].
    """
    named = {
        name
        for _, one in _members(registrations)
        if isinstance(one, Def) and isinstance(one.schema, FunctionSchema)
        for part in (*one.schema.arguments, *one.schema.returns)
        for name in classes_in(part.type)
    }
    foreign = sorted(named - KNOWN_CLASSES)
    free = [name for name in _CLASSES if name not in named]
    if not foreign or len(foreign) > len(free):
        return tuple(registrations), ()
    names = dict(zip(foreign, free, strict=False))

    def known(one: Def | Impl | Fallback) -> Def | Impl | Fallback:
        if not isinstance(one, Def) or not isinstance(one.schema, FunctionSchema):
            return one
        arguments, returns = (
            tuple(replace(part, type=with_classes(part.type, names)) for part in parts)
            for parts in (one.schema.arguments, one.schema.returns)
        )
        return replace(one, schema=replace(one.schema, arguments=arguments, returns=returns))

    found: list[Registration] = []
    for one in registrations:
        if isinstance(one, Block):
            found.append(replace(one, registrations=tuple(map(known, one.registrations))))
        else:
            found.append(known(one) if isinstance(one, Def) else one)
    return tuple(found), tuple(foreign)


def class_note(classes: Sequence[str]) -> str:
    """Return the note of a report about stand-ins for classes."""
    return (
        f"classes of PyTorch stand in schemas for {', '.join(classes)}, which this PyTorch does not have without the "
        "package"
    )


def with_stand_ins(registrations: Sequence[Registration]) -> tuple[tuple[Registration, ...], int]:
    """Return the registrations with boxed kernels for C++ kernels, and their number.

    See Note [What a stand-in leaves out].
    """
    kept = _mismatched(registrations)
    replaced = 0

    def boxed(kernel: Kernel) -> Kernel:
        nonlocal replaced
        replaced += 1
        return Kernel()

    def stand_in(one: Def | Impl, namespace: str) -> Def | Impl:
        kernel = one.kernel
        name_alone = isinstance(one, Def) and isinstance(one.schema, OperatorName)  # whose schema the kernel gives
        if kernel is None or name_alone or kernel.form is not KernelForm.UNBOXED or has_binding(kernel):
            return one
        if one.operator.within(namespace) in kept:
            return one
        return replace(one, kernel=boxed(kernel))

    found: list[Registration] = []
    for one in registrations:
        if isinstance(one, Block) and one.made_by is None:
            inside = tuple(
                stand_in(registration, one.namespace or "") if isinstance(registration, Def | Impl) else registration
                for registration in one.registrations
            )
            found.append(replace(one, registrations=inside) if inside != one.registrations else one)
        else:
            found.append(stand_in(one, "") if isinstance(one, Def | Impl) else one)
    return tuple(found), replaced


def stand_in_note(count: int) -> str:
    """Return the note of a report about stand-ins."""
    kernels = "kernel" if count == 1 else "kernels"
    return (
        f"{count:,} C++ {kernels} had boxed stand-ins at the same keys: PyTorch did not compare the signatures and "
        "schemas of their C++ types, symbolic integers included"
    )


def _mismatched(registrations: Sequence[Registration]) -> set[OperatorName]:
    """Return the operators with C++ kernels that do not match in some order."""
    schemas: dict[OperatorName, list[FunctionSchema]] = {}
    kernels: dict[OperatorName, list[Kernel]] = {}
    for name, one in _members(registrations):
        if isinstance(one, Def) and isinstance(one.schema, FunctionSchema):
            schemas.setdefault(name, []).append(one.schema)
        if one.kernel is not None and one.kernel.form is KernelForm.UNBOXED:
            kernels.setdefault(name, []).append(one.kernel)
    return {name for name, found in kernels.items() if not _agree(found, schemas.get(name, ()))}


def _agree(kernels: Sequence[Kernel], schemas: Sequence[FunctionSchema]) -> bool:
    for symint in (True, False):
        signatures = {kernel.signature for kernel in kernels if kernel.symint is symint} - {None}
        if len(signatures) > 1:
            return False
    return all(
        schema_difference(schema, kernel.inferred, symint_kernel=kernel.symint) is None
        for kernel in kernels
        if kernel.inferred is not None
        for schema in schemas
    )


def _members(registrations: Sequence[Registration]) -> Iterator[tuple[OperatorName, Def | Impl]]:
    for registration in registrations:
        if isinstance(registration, Def | Impl):
            yield registration.operator, registration
        elif isinstance(registration, Block):
            for each in registration.registrations:
                if isinstance(each, Def | Impl):
                    yield each.operator.within(registration.namespace or ""), each
