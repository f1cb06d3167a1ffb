"""Rules about a CompositeImplicitAutograd kernel beside other kernels: DL003, DL004, DL005, DL008, DL015."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dispatchlab.model.keys import BACKENDS, DispatchKey
from dispatchlab.model.slot_set import BACKENDS_OF_AUTOGRAD, FORGOTTEN_BACKENDS, keys_of
from dispatchlab.questions.lint.kernel_rules import BACKEND_KEYS, COMPOSITE, maps_tensors, registers_formula
from dispatchlab.questions.lint.rule import Found, Level, Subject, rule
from dispatchlab.registries.backend_coverage import Way
from dispatchlab.registries.debug_text import Packages, kernel_at, owner
from dispatchlab.registries.model import RecordedOperator


def _with_composite(operators: Iterable[RecordedOperator]) -> Iterator[tuple[RecordedOperator, frozenset[DispatchKey]]]:
    for operator in operators:
        keys = frozenset(kernel.key for kernel in operator.kernels)
        if COMPOSITE in keys:
            yield operator, keys


def _debugs(operator: RecordedOperator, *keys: DispatchKey) -> tuple[str, ...]:
    """Return the debug texts of the kernels at these keys, in this order."""
    return tuple(kernel.debug for key in keys for kernel in operator.kernels_at(key))


@rule("DL003")
def _ambiguous(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    other = DispatchKey.AutogradOther
    backends = frozenset(keys_of(BACKENDS_OF_AUTOGRAD[other]))
    functionalities = {DispatchKey.Quantized, DispatchKey.Sparse, DispatchKey.SparseCsr}
    for operator, keys in _with_composite(operators):
        mine = sorted(keys & (backends | functionalities))
        if subject.slot(operator, other).way is not Way.AMBIGUOUS or not mine:  # a stale slot outlives such a kernel
            continue
        yield Found(
            str(operator.name),
            other,
            f"it has a composite kernel from {kernel_at(operator, COMPOSITE)} and a {mine[0]} kernel from "
            f"{kernel_at(operator, mine[0])}. Both apply at AutogradOther, so a call at this key raises",
            _debugs(operator, *mine, COMPOSITE),
            fix=f'lib.impl("{operator.name.without_namespace}", fn, "AutogradOther"), or CompositeExplicitAutograd '
            "for the composite kernel",
        )


@rule("DL004")
def _disabled(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    for operator, keys in _with_composite(operators):
        if not maps_tensors(operator) or is_given_with_def(subject, operator):
            continue
        for autograd, bits in BACKENDS_OF_AUTOGRAD.items():
            mine = [key for key in keys_of(bits) if key in keys]
            if autograd in (DispatchKey.AutogradOther, DispatchKey.AutogradMeta) or not mine:
                continue
            filled = subject.slot(operator, autograd)
            if filled.way not in (Way.FALLBACK, Way.MISSING):
                continue
            left = "the backend fallback" if filled.way is Way.FALLBACK else "no kernel"
            yield Found(
                str(operator.name),
                mine[0],
                f"at {autograd}, the kernel at {kernel_at(operator, mine[0])} replaces the composite one at "
                f"{kernel_at(operator, COMPOSITE)} by {left}, and its gradients are lost",
                _debugs(operator, *mine, COMPOSITE),
                cause=str(autograd),
                fix=f"{registers_formula(operator, autograd)}, or drop the {mine[0]} kernel and register one for "
                + ("aten::_to_copy, which it calls" if str(operator.name).startswith("aten::to.") else "its parts"),
            )


@rule("DL005")
def _meta(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    packages = Packages(subject.recorded)
    for operator, keys in _with_composite(operators):
        if is_given_with_def(subject, operator) or not keys.isdisjoint(BACKEND_KEYS):
            continue  # with a kernel for a backend it is traced as one operator, and needs the Meta kernel
        for key in (DispatchKey.Meta, DispatchKey.Fake):
            if key not in keys:
                continue
            kernels = [*operator.kernels_at(key), *operator.kernels_at(COMPOSITE)]
            fixed = packages.are_one(operator, [(kernel.key, kernel.debug) for kernel in kernels])
            yield Found(
                str(operator.name),
                key,
                f"tensors on the meta device run the {key} kernel from {kernel_at(operator, key)}, but tracers "
                f"decompose the composite one from {kernel_at(operator, COMPOSITE)}: the two may give different shapes",
                tuple(kernel.debug for kernel in kernels),
                Level.INFORMATION if fixed else Level.WARNING,
                fix=f"drop the {key} kernel, or register the composite one as CompositeExplicitAutograd",
            )


@rule("DL008")
def _not_suppressed(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    for operator, keys in _with_composite(operators):
        for backend in FORGOTTEN_BACKENDS:
            key = DispatchKey[backend]
            autograd = DispatchKey[f"Autograd{backend}"]
            if key not in keys or subject.slot(operator, autograd).source is not COMPOSITE:
                continue
            assert backend in BACKENDS
            yield Found(
                str(operator.name),
                key,
                f"the kernel from {kernel_at(operator, key)} does not replace the composite one from "
                f"{kernel_at(operator, COMPOSITE)} at {autograd}, because PyTorch has no rule for {backend}: calls "
                "with gradients never reach it",
                _debugs(operator, key, COMPOSITE),
                cause=str(key),
                fix=f'lib.impl("{operator.name.without_namespace}", fn, "{autograd}"), where fn goes on to {key}',
            )


# Note [Kernels given with a def]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# `m.def("op(Tensor x) -> Tensor", fn)` registers `fn` without a key, which means CompositeImplicitAutograd: "made of
# other operators". The author often means "the kernel". A dump does not tell it from an explicit key, but its two
# debug texts are those of one TORCH_LIBRARY block, where a composite kernel that is meant usually has a block of its
# own. A Python library has one debug text for everything, so Python is known by the call that registered, if that is
# known. Neither shows an accident, for a def with a composite kernel is right. A kernel for a backend, or for Meta,
# beside it does: who gives an operator its own kernel for one backend has no need of one that works for all.


def is_given_with_def(subject: Subject, operator: RecordedOperator) -> bool:
    """Return whether only its composite kernel was registered without a key. See Note [Kernels given with a def]."""
    composite = operator.active_at(COMPOSITE)
    if composite is None or operator.is_dangling:
        return False
    in_cpp = bool(composite.debug) and composite.debug == operator.debug and ".py:" not in composite.debug
    if not in_cpp and composite.debug not in subject.calls_of(operator).without_key:
        return False
    return _contradiction(operator) is not None


def _contradiction(operator: RecordedOperator) -> DispatchKey | None:
    """Return the key of a kernel that a composite operator does not need."""
    keys = (*(DispatchKey[name] for name in BACKENDS), DispatchKey.Fake)
    return next((key for key in keys if operator.active_at(key) is not None), None)


@rule("DL015")
def _given_with_def(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    for operator, _ in _with_composite(operators):
        key = _contradiction(operator)
        if key is None or not is_given_with_def(subject, operator):
            continue
        name = operator.name.without_namespace
        yield Found(
            str(operator.name),
            COMPOSITE,
            f"the kernel of its def ({owner(operator.debug)}) names no key, which means CompositeImplicitAutograd, "
            f"made of other operators; the {key} kernel from {kernel_at(operator, key)} suggests that it is none",
            _debugs(operator, COMPOSITE, key),
            fix=f'm.def("{name}(...)"), and the kernel with a key: m.impl("{name}", '
            "torch::dispatch(c10::DispatchKey::CPU, fn))",
        )
