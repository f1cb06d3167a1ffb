"""Rules DL003, DL004, DL005 and DL008: composite kernels, and the kernels that take their slots away or fail to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dispatchlab.lint.rule import Found, Rule, Subject, example, kernel_at
from dispatchlab.model.keys import BACKENDS, DispatchKey
from dispatchlab.model.slot_set import BACKENDS_OF_AUTOGRAD, keys_of
from dispatchlab.registry.coverage import Way
from dispatchlab.registry.model import RecordedOperator

COMPOSITE = DispatchKey.CompositeImplicitAutograd
_FORGOTTEN = ("HIP", "VE", "MTIA")


def _with_composite(operators: Iterable[RecordedOperator]) -> Iterator[tuple[RecordedOperator, frozenset[DispatchKey]]]:
    for operator in operators:
        keys = frozenset(kernel.key for kernel in operator.kernels)
        if COMPOSITE in keys:
            yield operator, keys


def _ambiguous(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    other = DispatchKey.AutogradOther
    backends = frozenset(keys_of(BACKENDS_OF_AUTOGRAD[other]))
    functionalities = {DispatchKey.Quantized, DispatchKey.Sparse, DispatchKey.SparseCsr}
    for operator, keys in _with_composite(operators):
        if subject.slot(operator, other).way is not Way.AMBIGUOUS:
            continue
        mine = sorted(keys & (backends | functionalities))
        yield Found(
            str(operator.name),
            other,
            f"it has a composite kernel from {kernel_at(operator, COMPOSITE)} and one for {mine[0]} from "
            f"{kernel_at(operator, mine[0])}, whose gradients share AutogradOther: a call that needs it raises",
            tuple(kernel.debug for kernel in operator.kernels if kernel.key in (*mine, COMPOSITE)),
        )


AMBIGUOUS = Rule(
    code="DL003",
    name="ambiguous-autogradother",
    what="AutogradOther cannot tell whether the composite kernel or that of a backend is meant.",
    why=(
        "Backends without an autograd key of their own (FPGA, Vulkan, Metal, MkldnnCPU, and the Quantized, Sparse and "
        "SparseCsr ones by their tensors' keys) share AutogradOther. With a composite kernel besides, both could be "
        "meant there, and PyTorch raises, but only when somebody calls the operator with such a tensor."
    ),
    mend=(
        "Register the composite kernel as CompositeExplicitAutograd if it is not differentiable by its parts, or give "
        "AutogradOther a kernel of its own."
    ),
    bad=example(("CompositeImplicitAutograd", "my_package/composite.py:3"), ("FPGA", "my_package/fpga.py:5")),
    good=example(("CompositeExplicitAutograd", "my_package/composite.py:3"), ("FPGA", "my_package/fpga.py:5")),
    check=_ambiguous,
)


def _disabled(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    for operator, keys in _with_composite(operators):
        for autograd, bits in BACKENDS_OF_AUTOGRAD.items():
            mine = [key for key in keys_of(bits) if key in keys]
            if autograd in (DispatchKey.AutogradOther, DispatchKey.AutogradMeta) or not mine:
                continue
            filled = subject.slot(operator, autograd)
            if filled.way not in (Way.FALLBACK, Way.MISSING):
                continue
            left = "the backend fallback" if filled.way is Way.FALLBACK else "nothing"
            yield Found(
                str(operator.name),
                mine[0],
                f"the kernel from {kernel_at(operator, mine[0])} silently disables the composite one from "
                f"{kernel_at(operator, COMPOSITE)}, which made it differentiable: {autograd} is left with {left}",
                tuple(kernel.debug for kernel in operator.kernels if kernel.key in (*mine, COMPOSITE)),
            )


DISABLED = Rule(
    code="DL004",
    name="disabled-composite",
    what="A backend kernel disables the decomposition of an operator, and nothing takes its place for gradients.",
    why=(
        "A composite kernel is differentiable because its parts are. A kernel for one backend takes both the slot of "
        "the backend and that of its autograd key away from it; without an autograd formula the gradients of that "
        "backend are silently gone, or a warning reports it at the first backward."
    ),
    mend=(
        "Register an autograd kernel for the operator (at Autograd, or with torch.library.register_autograd), or drop "
        "the backend kernel and let the decomposition run."
    ),
    bad=example(("CompositeImplicitAutograd", "my_package/composite.py:3"), ("PrivateUse1", "my_backend/scale.py:5")),
    good=example(
        ("CompositeImplicitAutograd", "my_package/composite.py:3"),
        ("PrivateUse1", "my_backend/scale.py:5"),
        ("AutogradPrivateUse1", "my_backend/scale.py:9"),
    ),
    check=_disabled,
)


def _meta(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    for operator, keys in _with_composite(operators):
        for key in (DispatchKey.Meta, DispatchKey.Fake):
            if key in keys:
                yield Found(
                    str(operator.name),
                    key,
                    f"the {key} kernel from {kernel_at(operator, key)} hides the composite one from "
                    f"{kernel_at(operator, COMPOSITE)} from tracing, which would have worked through its parts",
                    tuple(kernel.debug for kernel in operator.kernels if kernel.key in (key, COMPOSITE)),
                )


META = Rule(
    code="DL005",
    name="meta-on-composite",
    what="A composite operator has a Meta or fake kernel.",
    why=(
        "A composite kernel runs on meta and fake tensors as it is, because its parts do. A Meta kernel takes it away "
        "there: tracing and compiling see an opaque operator where eager mode sees its parts, and AutogradMeta loses "
        "its formula. torch.library refuses the pair in one order of registration and accepts it in the other."
    ),
    mend="Remove the Meta kernel (or register_fake), or register the composite kernel as CompositeExplicitAutograd.",
    bad=example(("CompositeImplicitAutograd", "my_package/composite.py:3"), ("Meta", "my_package/meta.py:5")),
    good=example(("CompositeExplicitAutograd", "my_package/composite.py:3"), ("Meta", "my_package/meta.py:5")),
    check=_meta,
)


def _not_suppressed(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    for operator, keys in _with_composite(operators):
        for backend in _FORGOTTEN:
            key = DispatchKey[backend]
            autograd = DispatchKey[f"Autograd{backend}"]
            if key not in keys or subject.slot(operator, autograd).source is not COMPOSITE:
                continue
            assert backend in BACKENDS
            yield Found(
                str(operator.name),
                key,
                f"the kernel from {kernel_at(operator, key)} does not suppress the composite one from "
                f"{kernel_at(operator, COMPOSITE)} at {autograd}, as that of any other backend would: calls with "
                "gradients decompose and never reach it",
                tuple(kernel.debug for kernel in operator.kernels if kernel.key in (key, COMPOSITE)),
            )


NOT_SUPPRESSED = Rule(
    code="DL008",
    name="composite-not-suppressed",
    what="A HIP, VE or MTIA kernel leaves the composite kernel in the autograd slot of its backend.",
    why=(
        "A backend kernel takes the composite one away from the autograd slot of its backend, so that calls with "
        "gradients reach it. PyTorch's table of which backend belongs to which autograd key has no entry for HIP, VE "
        "and MTIA: there the composite kernel stays and the backend kernel only runs without gradients."
    ),
    mend=(
        "Register a kernel at AutogradMTIA (AutogradHIP, AutogradVE) as well, one that goes on to the backend, or make "
        "the composite kernel CompositeExplicitAutograd."
    ),
    bad=example(("CompositeImplicitAutograd", "my_package/composite.py:3"), ("MTIA", "my_package/mtia.py:5")),
    good=example(
        ("CompositeImplicitAutograd", "my_package/composite.py:3"),
        ("MTIA", "my_package/mtia.py:5"),
        ("AutogradMTIA", "my_package/mtia.py:9"),
    ),
    check=_not_suppressed,
)
