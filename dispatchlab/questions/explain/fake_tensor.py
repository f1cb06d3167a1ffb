"""What FakeTensorMode asks for the result of a call.

Source: torch/_subclasses/fake_tensor.py (_dispatch_impl).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dispatchlab.model.dump_format import Provenance
from dispatchlab.questions.explain.graph_modes import NOT_IMPLEMENTED
from dispatchlab.questions.explain.registered import COMPOSITE_IMPLICIT, Registered, implementation_of, unsupported
from dispatchlab.questions.explain.result import Implementation, ImplementedBy

FAKE = "FakeTensorMode"

_ANSWERED = ("prim::device", "aten::size", "aten::stride", "aten::storage_offset")
_DIRECTLY = ("aten::is_coalesced", "aten::dense_dim", "aten::sparse_dim")
_SYMBOLIC_META = tuple(
    f"aten::{name}"
    for name in (
        *("empty.memory_format", "empty_strided", "as_strided_scatter", "as_strided", "as_strided_", "zeros", "detach"),
        *("view_as_real", "view_as_complex", "set_.source_Storage_storage_offset"),
        "_sparse_coo_tensor_with_dims_and_tensors",
    )
)
"""Operators whose C++ Meta kernel takes symbolic sizes, so that no decomposition is looked for."""
_SPECIAL = ("aten::view", "aten::_unsafe_view", "aten::slice.Tensor")
"""Operators whose fake-tensor rule comes before a decomposition when a size is symbolic."""
_MAY_RUN_REAL = ("debugprims", "prims", "aten", "xla", "vision", "torchtext", "torchaudio", "quantized")
"""Namespaces whose kernels FakeTensorMode runs on zeros when there is nothing else."""
_DECOMPOSITIONS = "torch._decomp.decompositions:"


def faked(operator: Registered, *, symbolic: bool) -> Iterator[Implementation]:
    """What FakeTensorMode asks, in order, up to the first that cannot give up."""
    view = operator.view
    if view.name in _ANSWERED or view.name in _DIRECTLY:
        why = "the mode answers it from the tensor itself, first of all"
        yield implementation_of(view.name, ImplementedBy.DIRECT, FAKE, why)
        return
    fast = operator.first("fast_fake_rules") if symbolic else None
    if fast is not None:
        why = "a size is symbolic, and fast rules are asked first"
        yield implementation_of(fast, ImplementedBy.FAST_RULE, FAKE, why)
        return
    decomposed = _decomposed(operator, symbolic=symbolic)
    if decomposed is not None:
        yield decomposed
        return
    library = operator.first("torch_library", "fake")
    if operator.namespace in ("prims", "rngprims"):
        prim = library or (operator.kernel_at("Meta") if operator.namespace == "prims" else None)
        if prim is not None:
            yield implementation_of(prim, ImplementedBy.PRIM_META, FAKE, "a prim has a meta function of its own")
            return
    made = operator.first("custom_ops", "custom_op")
    if made is not None and operator.first("custom_ops", "fake") is None:  # `custom_op` registers one that raises then
        if _is_trivial(operator):
            why = "custom_op got no fake implementation, and what an operator that only writes gives is known"
            yield implementation_of("", ImplementedBy.TRIVIAL_FAKE, FAKE, why)
        else:
            why = (
                "custom_op got no fake implementation, and the one that it registers raises; register_fake gives it one"
            )
            yield unsupported(FAKE, why)
        return
    if library is not None:
        why = "there is no decomposition, and torch.library comes next"
        yield implementation_of(library, ImplementedBy.LIBRARY_FAKE, FAKE, why)
        return
    for registry, chosen in (("fake_rules", "by the operator"), ("fake_checks", "by a property of the operator")):
        for rule in operator.active(registry):
            why = f"rules come before Meta kernels, this one {chosen}"
            yield implementation_of(rule, ImplementedBy.FAKE_RULE, FAKE, why, NOT_IMPLEMENTED)
    meta = operator.row("Meta")
    if meta is not None:
        why = "the kernel of the slot Meta, on meta tensors"
        yield implementation_of(meta.debug, ImplementedBy.META, FAKE, why, "when it raises NotImplementedError")
    yield _last_resort(operator, symbolic=symbolic)


def _decomposed(operator: Registered, *, symbolic: bool) -> Implementation | None:
    """The decomposition that comes before rules and Meta kernels; None where there is none, or it does not."""
    view = operator.view
    if operator.first("meta_functions") is not None or "view_copy" in view.tags or view.name in _SYMBOLIC_META:
        return None
    if symbolic and view.name in _SPECIAL and operator.first("fake_rules") is not None:  # older versions have none
        return None
    table = operator.first("decompositions", "post_autograd")
    if table is not None and (symbolic or (table.function.startswith(_DECOMPOSITIONS) and not operator.sparse)):
        why = "there is no meta function in Python, and decompositions in Python are preferred to C++"
        return implementation_of(table, ImplementedBy.DECOMPOSITION, FAKE, why)
    if operator.composite is None:
        return None
    whose = "the" if isinstance(operator.composite, str) else "a Python"
    why = f"{whose} kernel for {COMPOSITE_IMPLICIT} decomposes it"
    return implementation_of(operator.composite, ImplementedBy.COMPOSITE, FAKE, why)


def _is_trivial(operator: Registered) -> bool:
    """Whether PyTorch makes a fake implementation, because the results are the arguments that are written."""
    tags = operator.view.tags
    return "out" in tags or "inplace" in tags or (bool(operator.writes) and not operator.schema.returns)


def _last_resort(operator: Registered, *, symbolic: bool) -> Implementation:
    """What runs when there is no Meta kernel."""
    tags, namespace = operator.view.tags, operator.namespace
    if namespace not in ("aten", "prim", "prims") and _is_trivial(operator):
        why = "there is no Meta kernel, and what an operator that only writes to its arguments gives is known"
        return implementation_of("", ImplementedBy.TRIVIAL_FAKE, FAKE, why)
    if namespace in _MAY_RUN_REAL and not symbolic and "inplace_view" not in tags:
        why = "there is no Meta kernel, so the kernel of the device runs on tensors of zeros"
        return implementation_of(operator.view.name, ImplementedBy.REAL_KERNEL, FAKE, why)
    reason = "a size is symbolic" if symbolic else f"operators of {namespace} are not run on zeros to find the result"
    why = f"there is no Meta kernel, and {reason}; torch.library.register_fake would give it one"
    return unsupported(FAKE, why)


def no_result(operator: Registered, *, symbolic: bool = False) -> Implementation | None:
    """Why FakeTensorMode knows no result of an operator that is traced; None where it does, or may."""
    chain = tuple(faked(operator, symbolic=symbolic))
    row = operator.row("Meta")
    # The backend fallback for Meta is asked, and always raises.
    raises = chain[0].kind is ImplementedBy.META and row is not None and row.reason is Provenance.FALLBACK
    first = chain[1 if raises else 0]
    if first.function in _RAISE:
        why = "its result depends on the data of a tensor, and this rule raises"
        return replace(first, kind=ImplementedBy.UNSUPPORTED, why=why, gives_up="")
    return first if first.kind is ImplementedBy.UNSUPPORTED else None


_RAISE = ("torch._subclasses.fake_impls:dyn_shape", "torch._subclasses.fake_impls:data_dep")
"""Fake-tensor rules that refuse every call."""
