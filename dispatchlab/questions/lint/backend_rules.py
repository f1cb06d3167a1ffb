"""Rules about a backend of a package: DL018 and DL019 for missing kernels, DL020 and DL021 for its autograd kernels,
DL022 and DL024 for kernels of another device, DL023 for writes and aliases hidden from functionalization.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dispatchlab.model.keys import BACKENDS, DispatchKey
from dispatchlab.model.slot_set import BACKENDS_OF_AUTOGRAD, keys_of
from dispatchlab.questions.lint.kernel_rules import COMPOSITE, parsed_schema
from dispatchlab.questions.lint.rule import Found, Level, Subject, rule
from dispatchlab.registries.backend_coverage import Way, called_out
from dispatchlab.registries.builds import backend_named, is_in_tree
from dispatchlab.registries.debug_text import Packages, file_in, owner
from dispatchlab.registries.model import RecordedKernel, RecordedOperator
from dispatchlab.registries.overlay import Overlay

_BROUGHT = tuple(DispatchKey[name] for name in BACKENDS if name not in ("CPU", "Meta") and not is_in_tree(name))
"""The keys of devices whose kernels no build of PyTorch has."""

_FACTORIES = "aten::empty.memory_format", "aten::empty_strided"

# Note [Backends that a package brings]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Who registers kernels for operators of PyTorch at such a key, or a fallback there, brings a device. Who registers
# kernels for operators of its own extends a device that another package brings, which need not be imported here.


def brought(subject: Subject, packages: Packages) -> dict[DispatchKey, list[str]]:
    """Return the debug text of one registration in each file, by backend. See Note [Backends that a package brings]."""
    recorded = subject.recorded
    found: dict[DispatchKey, dict[str, str]] = {}
    for operator in recorded.over if isinstance(recorded, Overlay) else recorded:
        for kernel in operator.kernels:
            if kernel.key in _BROUGHT and _is_foreign(operator, kernel, packages):
                found.setdefault(kernel.key, {}).setdefault(file_in(kernel.debug), kernel.debug)
    return {key: [*debugs.values()] for key, debugs in found.items()}


def _is_foreign(operator: RecordedOperator, kernel: RecordedKernel, packages: Packages) -> bool:
    """Return whether a package registered this kernel for an operator of PyTorch."""
    if kernel.is_fallthrough or operator.is_dangling or not packages.is_torch(operator, None, operator.debug):
        return False
    return not packages.is_torch(operator, kernel.key, kernel.debug)


def _lacks(subject: Subject, name: str, key: DispatchKey) -> bool:
    """Return whether an existing factory has no kernel for a device."""
    operator = subject.recorded.operator(name)
    return operator is not None and subject.slot(operator, key).way in (Way.FALLBACK, Way.MISSING)


def _with_tensors(subject: Subject, packages: Packages) -> dict[DispatchKey, list[str]]:
    """Return the new backends that have tensors; other backends are incomplete or misspelt."""
    return {key: them for key, them in brought(subject, packages).items() if not _lacks(subject, _FACTORIES[0], key)}


def _register(operator: RecordedOperator, key: DispatchKey) -> str:
    """Return the call that registers a kernel."""
    namespace, name = operator.name.namespace, operator.name.without_namespace
    return f'lib = torch.library.Library("{namespace}", "IMPL"); lib.impl("{name}", fn, "{key}")'


def beside(
    operator: RecordedOperator, kernel: RecordedKernel, packages: Packages, devices: dict[DispatchKey, list[str]]
) -> list[tuple[DispatchKey, str]]:
    """Return the first device that the package of a kernel brings, with the debug text of one registration."""
    pairs = ((key, debug) for key, debugs in devices.items() for debug in debugs)
    return [pair for pair in pairs if packages.are_one(operator, [(kernel.key, kernel.debug), pair])][:1]


@rule("DL018")
def _no_factory(subject: Subject, _: Iterable[RecordedOperator]) -> Iterator[Found]:
    packages = Packages(subject.recorded)
    devices = _with_tensors(subject, packages)
    for key, (debug, *_more) in brought(subject, packages).items():
        for name in _FACTORIES:
            operator = subject.recorded.operator(name)
            if operator is None or not _lacks(subject, name, key):
                continue
            others = [(other, each) for other, debugs in devices.items() if other is not key for each in debugs]
            if any(packages.are_one(operator, [(key, debug), other]) for other in others):
                continue  # the key of another device: DL024
            yield Found(
                name,
                key,
                f"{owner(debug)} registers kernels at {key}, but none for this operator. PyTorch creates every tensor "
                "of a device with it: torch.empty raises, and a CPU fallback recurses",
                (debug,),
                cause=str(key),
                fix=_register(operator, key),
            )


@rule("DL019")
def _behind_fallback(subject: Subject, _: Iterable[RecordedOperator]) -> Iterator[Found]:
    packages = Packages(subject.recorded)
    ownership = packages.ownership
    fallbacks = [
        fallback
        for fallback in subject.recorded.fallbacks
        if fallback.key in _BROUGHT and not fallback.fallthrough and not ownership.is_own_fallback(fallback)
    ]
    for operator in subject.recorded if fallbacks else ():
        if "core" not in operator.tags or str(operator.name) in _FACTORIES:
            continue
        for fallback in fallbacks:
            if subject.slot(operator, fallback.key).way is not Way.FALLBACK:
                continue
            is_view = "-> Tensor(a)" in (operator.schema or "")
            view = "; a fallback that copies loses writes to the result, which is a view" * is_view
            yield Found(
                str(operator.name),
                fallback.key,
                f"it is a `core` operator without a {fallback.key} kernel; the fallback from "
                f"{owner(fallback.debug)} serves its calls{view}",
                (fallback.debug,),
                Level.WARNING if is_view else Level.INFORMATION,
                cause=str(fallback.key),
                fix=_register(operator, fallback.key),
            )


def _autograd_kernels(operator: RecordedOperator, packages: Packages) -> Iterator[tuple[RecordedKernel, DispatchKey]]:
    """Return the autograd kernels of an operator that packages register for their own backend, with the backend."""
    for kernel in operator.kernels:
        backends = keys_of(BACKENDS_OF_AUTOGRAD.get(kernel.key, 0))
        if len(backends) != 1 or backends[0] not in _BROUGHT or not kernel.active or kernel.is_fallthrough:
            continue
        if not packages.is_torch(operator, kernel.key, kernel.debug):
            yield kernel, backends[0]


@rule("DL020")
def _over_composite(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    packages = Packages(subject.recorded)
    for operator in operators:
        for kernel, backend in _autograd_kernels(operator, packages):
            composite = operator.active_at(COMPOSITE)
            if composite is None or subject.slot(operator, backend).source is not COMPOSITE:
                continue
            yield Found(
                str(operator.name),
                kernel.key,
                f"the kernel from {owner(kernel.debug)} hides the composite one from {owner(composite.debug)}, but "
                f"inference tensors of {backend} still run the composite one: two implementations of one operator",
                (kernel.debug, composite.debug),
                cause=str(kernel.key),
                fix=f"{_register(operator, backend)} as well, or drop the {kernel.key} kernel, because "
                "the operators that the composite one calls have gradients",
            )


@rule("DL021")
def _autograd_alone(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    packages = Packages(subject.recorded)
    for operator in operators:
        for kernel, backend in _autograd_kernels(operator, packages):
            out = called_out(subject.recorded, operator, subject.slot(operator, backend)) or operator
            if out.is_dangling or subject.slot(out, backend).way is not Way.MISSING:
                continue
            missing = f"{out.name}, which its composite kernel calls, has " if out is not operator else ""
            yield Found(
                str(operator.name),
                kernel.key,
                f"it has a {kernel.key} kernel from {owner(kernel.debug)}, but {missing}no kernel "
                f"for {backend}: a redispatch of that kernel raises, and so does each call under torch.inference_mode",
                (kernel.debug,),
                cause=str(kernel.key),
                fix=_register(out, backend),
            )


@rule("DL022")
def _for_another_device(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    packages = Packages(subject.recorded)
    backends: dict[DispatchKey, list[str]] | None = None
    for operator in operators:
        kernel = operator.active_at(DispatchKey.CPU)
        if kernel is None or not _is_foreign(operator, kernel, packages):
            continue
        backends = brought(subject, packages) if backends is None else backends
        for key, debug in beside(operator, kernel, packages, backends):
            yield Found(
                str(operator.name),
                kernel.key,
                f"{owner(kernel.debug)} registers a CPU kernel, but the package is for {key} "
                f"({owner(debug)}): the kernel replaces PyTorch's own in every program that imports the package",
                (kernel.debug,),
                cause=str(key),
                fix=_register(operator, key),
            )


@rule("DL023")
def _not_functionalized(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    packages = Packages(subject.recorded)
    for operator in operators:
        kernel = next((kernel for kernel in operator.kernels if kernel.key in _BROUGHT and kernel.active), None)
        schema = parsed_schema(operator)
        if kernel is None or schema is None or packages.is_torch(operator, None, operator.debug):
            continue
        own = operator.active_at(DispatchKey.Functionalize)
        written = any(one.is_written for one in schema.arguments)
        aliases = any(one.alias is not None for one in schema.returns) and not operator.tags & {"inplace", "out"}
        if own is not None and own.is_fallthrough and (written or aliases):
            trouble = (
                "its fallthrough for Functionalize leads tensors of torch.compile to kernels that cannot take them"
            )
        elif own is not None or operator.active_at(COMPOSITE) is not None:
            continue
        elif aliases:
            trouble = "its result is an alias, so the functionalization of torch.compile refuses the call"
        elif operator.name.name.endswith("_") and not operator.name.name.endswith("__") and not written:
            trouble = "its name says that it writes, but its schema does not: torch.compile may move or drop the call"
        else:
            continue
        fix = "return a copy without an alias" if aliases else "mark the written argument, as in Tensor(a!)"
        if written and aliases:
            tag = "inplace" if operator.name.name.endswith("_") else "out"
            fix = f"return nothing (-> ()), or, if your PyTorch has this tag, define it with tags=(torch.Tag.{tag},)"
        said = f"{operator.schema} has a kernel for {kernel.key} from {owner(kernel.debug)}: {trouble}"
        yield Found(str(operator.name), kernel.key, said, (kernel.debug, operator.debug), cause=trouble, fix=fix)


@rule("DL024")
def _at_another_key(subject: Subject, operators: Iterable[RecordedOperator]) -> Iterator[Found]:
    packages = Packages(subject.recorded)
    devices = _with_tensors(subject, packages)
    for operator in operators if devices else ():
        for kernel in operator.kernels:
            name = backend_named(kernel.key)
            if name in (None, "CPU", "Meta") or not kernel.active or not _is_foreign(operator, kernel, packages):
                continue
            other = DispatchKey[name]
            if other in devices or not _lacks(subject, _FACTORIES[0], other):
                continue
            for key, _ in beside(operator, kernel, packages, devices):
                right = DispatchKey[kernel.key.name.replace(name, key.name)]
                renamed = f" ({subject.recorded.privateuse1})" if subject.recorded.privateuse1 else ""
                yield Found(
                    str(operator.name),
                    kernel.key,
                    f"{owner(kernel.debug)} registers a {kernel.key} kernel, but its package is for {key}{renamed}, "
                    f"and {other} has no tensors here: no call finds the kernel",
                    (kernel.debug,),
                    cause=str(kernel.key),
                    fix=_register(operator, right),
                )
