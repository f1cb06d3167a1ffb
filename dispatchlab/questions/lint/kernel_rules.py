"""Rules about kernels that an operator lacks: DL006 for tracers, DL010 for gradients, DL011 for every device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dispatchlab.errors import ParseError
from dispatchlab.model.keys import BACKENDS, DispatchKey
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.questions.lint.rule import Found, Level, Subject, rule
from dispatchlab.registries.backend_coverage import Way
from dispatchlab.registries.debug_text import kernel_at, owner
from dispatchlab.registries.model import RecordedKernel, RecordedOperator
from dispatchlab.registries.replay import schema_of

COMPOSITE = DispatchKey.CompositeImplicitAutograd
_EXPLICIT = (DispatchKey.CompositeExplicitAutograd, DispatchKey.CompositeExplicitAutogradNonFunctional)
BACKEND_KEYS = tuple(DispatchKey[name] for name in BACKENDS if name != "Meta")
_FAKE = (DispatchKey.Meta, DispatchKey.Fake)
_EMPTY = (Way.FALLBACK, Way.MISSING)

# Note [What fake tensors run]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# `FakeTensorMode` takes, in this order: the decomposition of an operator with a CompositeImplicitAutograd kernel; a
# fake kernel of `register_fake`; what the Meta slot of the table has, which may be a CompositeExplicitAutograd kernel;
# for an operator that writes its arguments and returns nothing, nothing; for the namespaces below, the real kernel on
# zeros. Else it raises. It is asked below Autograd: an operator with an Autograd kernel of its own is traced through
# that kernel, which may call other operators and never come back to this one. A dump does not show what it does, unless
# it is the kernel of `register_autograd`, which always comes back.

_RUN_ON_ZEROS = frozenset(("aten", "debugprims", "prims", "quantized", "torchaudio", "torchtext", "vision", "xla"))


def parsed_schema(operator: RecordedOperator) -> FunctionSchema | None:
    """Return the schema of an operator; None if it has none, or an unreadable one."""
    if operator.schema is None:
        return None
    try:
        return schema_of(operator.schema)
    except ParseError:
        return None


def maps_tensors(operator: RecordedOperator) -> bool:
    """Return whether it takes a tensor and returns a new tensor: otherwise it has no gradient and no new shape."""
    schema = parsed_schema(operator)
    if schema is None or not any("Tensor" in str(argument.type) for argument in schema.arguments):
        return False
    returned = [one for one in schema.returns if "Tensor" in str(one.type)]
    return any(one.alias is None or not one.alias.is_write for one in returned)


def _own(operator: RecordedOperator, prefix: str) -> Iterator[RecordedKernel]:
    """Return the working kernels at keys with this prefix."""
    return (kernel for kernel in operator.kernels if kernel.key.name.startswith(prefix) and not kernel.is_fallthrough)


def _backend_kernel(operator: RecordedOperator, keys: Iterable[DispatchKey]) -> RecordedKernel | None:
    found = (operator.active_at(key) for key in keys)
    return next((kernel for kernel in found if kernel is not None and not kernel.is_fallthrough), None)


@rule("DL006")
def _no_meta(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    for operator in operators:
        if operator.name.namespace in _RUN_ON_ZEROS or not maps_tensors(operator):
            continue
        calls = subject.calls_of(operator)
        if calls.is_custom_op and not calls.has_fake:
            trouble = "but register_fake was not called: torch.compile and torch.export cannot trace it"
            text = f"custom_op made it at {owner(operator.debug)}, {trouble}"
            fix = _register_fake(operator)
            yield Found(str(operator.name), DispatchKey.Meta, text, (operator.debug,), cause="custom_op", fix=fix)
            continue
        kernel = _backend_kernel(operator, BACKEND_KEYS)
        if kernel is None or calls.has_fake or operator.active_at(COMPOSITE) is not None:
            continue
        if any(subject.slot(operator, key).way not in _EMPTY for key in _FAKE):
            continue
        before = [] if calls.has_formula else [*_own(operator, "Autograd")]
        if before or [*_own(operator, "BackendSelect"), *_own(operator, "Python")]:
            continue  # See Note [What fake tensors run]
        yield Found(
            str(operator.name),
            kernel.key,
            f"it has a {kernel.key} kernel from {owner(kernel.debug)}, but no Meta kernel, which computes the shape "
            "without data: torch.compile and torch.export cannot trace it",
            (kernel.debug,),
            fix=_register_fake(operator),
        )


def _register_fake(operator: RecordedOperator) -> str:
    return f'torch.library.register_fake("{operator.name}")(fn), where fn returns an empty tensor of the right shape'


@rule("DL010")
def _no_formula(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    for operator in operators:
        if not maps_tensors(operator) or operator.active_at(COMPOSITE) is not None:
            continue
        calls = subject.calls_of(operator)
        if calls.is_custom_op:
            if not calls.has_formula and all(one.debug == operator.debug for one in _own(operator, "Autograd")):
                yield _found_without_formula(
                    operator, DispatchKey.Autograd, operator.debug, "backward through it raises"
                )
            continue
        kernel = _backend_kernel(operator, (*BACKEND_KEYS, *_EXPLICIT))
        if kernel is None:
            continue
        backend = kernel.key if kernel.key in BACKEND_KEYS else DispatchKey.CPU
        if subject.slot(operator, DispatchKey[f"Autograd{backend}"]).way in _EMPTY:
            formula = next((one for one in operator.kernels if one.key.name.startswith("Autograd")), None)
            if formula is not None and formula.key is not DispatchKey.AutogradOther:
                yield Found(
                    str(operator.name),
                    kernel.key,
                    f"its formula {owner(formula.debug)} is registered at {formula.key}, "
                    f"so a call with {backend} tensors does not run it",
                    (formula.debug, kernel.debug),
                    Level.WARNING,
                    cause=f"a formula at {formula.key}",
                    fix=f'register it at "Autograd", which serves every backend, or also at "Autograd{backend}"',
                )
                continue
            trouble = "without one, autograd records only what the kernel calls, and backward warns"
            yield _found_without_formula(operator, kernel.key, kernel.debug, trouble)


def _found_without_formula(operator: RecordedOperator, key: DispatchKey, debug: str, trouble: str) -> Found:
    return Found(
        str(operator.name),
        key,
        f"it has no autograd formula ({owner(debug)}): {trouble}",
        (debug,),
        cause=trouble,
        fix=f"{registers_formula(operator, DispatchKey.Autograd)}, if it has a gradient",
    )


def registers_formula(operator: RecordedOperator, key: DispatchKey) -> str:
    """Return the call that registers a formula; not register_autograd if the operator writes or aliases."""
    schema = parsed_schema(operator)
    values = () if schema is None else (*schema.arguments, *schema.returns)
    if any(value.alias is not None for value in values):
        more = "" if operator.active_at(key) is None else ", allow_override=True"  # as custom_op registers one
        call = f'lib.impl("{operator.name.without_namespace}", fn, "{key}"{more})'
        return f"{call}, where fn applies a torch.autograd.Function"
    return f'torch.library.register_autograd("{operator.name}", backward, setup_context=...)'


_WRAPPERS = ("ADInplaceOrView", "Autocast", "Batched", "Conjugate", "FuncTorch", "Functionalize", "Negative", "Tracer")
_AROUND = ("VmapMode", "ZeroTensor", *_WRAPPERS)


@rule("DL011")
def _meta_alone(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    for operator in operators:
        fake = _backend_kernel(operator, _FAKE)
        if operator.is_dangling or fake is None:
            continue
        around = (*_AROUND, "Autograd") if subject.calls_of(operator).has_formula else _AROUND
        others = [
            kernel
            for kernel in operator.kernels
            if kernel.key not in _FAKE and not kernel.is_fallthrough and not kernel.key.name.startswith(around)
        ]
        if others:
            continue
        yield Found(
            str(operator.name),
            fake.key,
            f"it has only the {fake.key} kernel from {kernel_at(operator, fake.key)} here: it can be traced, but "
            "every call with data raises",
            (fake.debug,),
            fix=f'torch.library.register_kernel("{operator.name}", "cpu")(fn), or load the extension with its kernels',
        )
