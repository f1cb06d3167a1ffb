"""What PyTorch's bindings can register: checks of a registration before any call."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from dispatchlab.errors import DispatchLabError
from dispatchlab.live.bridge.torch import bindings, torch
from dispatchlab.model.registration import AliasKind, Def, Fallback, Impl, Kernel, KernelForm, Registration, describe

T_T = "(Tensor _0) -> Tensor _0"
"""The inferred schema of the one unboxed kernel that the bindings can register."""

T_T_SIGNATURE = "at::Tensor (at::Tensor const&)"


class NotExpressibleError(DispatchLabError):
    """A registration that the bindings of PyTorch cannot make, although its dispatcher could.

    Args:
        registration: the registration.
        reason: the missing feature, as a clause.
    """

    registration: Registration
    reason: str

    def __str__(self) -> str:
        location = f"{self.registration.location}: " if self.registration.location else ""
        return f"{location}{describe(self.registration)} cannot be made on the live PyTorch: {self.reason}"


def check_def(registration: Def) -> None:
    """Check that the bindings can make a def with this schema, alias kind and tags.

    Raises:
        NotExpressibleError: the bindings cannot make it.
    """
    if registration.alias is AliasKind.INTERNAL_SPECIAL_CASE:
        raise NotExpressibleError(registration, "its bindings have no INTERNAL_SPECIAL_CASE")
    if registration.alias is None and registration.tags:
        raise NotExpressibleError(registration, "its bindings give no tags to a def without an alias kind")


def check_inferred_def(registration: Def) -> None:
    """Check that the bindings can make a def with a schema inferred from its kernel.

    Raises:
        NotExpressibleError: the bindings cannot make it.
    """
    if registration.kernel is None or not has_binding(registration.kernel):
        raise NotExpressibleError(registration, f"its bindings infer a schema only from {T_T}")
    if registration.alias is not AliasKind.CONSERVATIVE or registration.tags:
        raise NotExpressibleError(registration, "its bindings give an inferred schema no tags and CONSERVATIVE only")


def check_unboxed_impl(registration: Impl) -> None:
    """Check that the bindings can make the unboxed kernel of an impl.

    Raises:
        NotExpressibleError: the bindings cannot make it.
    """
    kernel = registration.kernel
    if not has_binding(kernel):
        shown = kernel.signature or kernel.inferred or "an unboxed kernel of unknown type"
        reason = f"its bindings register unboxed kernels only as {T_T_SIGNATURE}, and {shown} needs an extension"
        raise NotExpressibleError(registration, reason)


def check_fallback(registration: Fallback) -> None:
    """Check that the kernel of a fallback can serve every operator.

    Raises:
        NotExpressibleError: it cannot.
    """
    if registration.kernel.form is KernelForm.UNBOXED:
        raise NotExpressibleError(registration, "a fallback serves every operator, so its kernel is boxed")
    if not registration.kernel.is_fallthrough and not has_fallbacks():
        reason = f"the bindings of PyTorch {torch().__version__} register no fallback that is not a fallthrough"
        raise NotExpressibleError(registration, reason)


def tags_of(names: Iterable[str], registration: Registration) -> list[Any]:
    """Return PyTorch's tags with these names, sorted by name.

    Raises:
        NotExpressibleError: this PyTorch has no such tag.
    """
    known = torch().Tag.__members__
    for name in sorted(names):
        if name not in known:
            raise NotExpressibleError(registration, f"it has no tag {name}")
    return [known[name] for name in sorted(names)]


def function_of(registration: Impl | Fallback) -> object:
    """Return the function to register as a boxed kernel.

    Raises:
        NotExpressibleError: the kernel names a function that cannot be imported.
    """
    kernel = registration.kernel
    if kernel.is_fallthrough:
        fallthrough: object = torch().library.fallthrough_kernel
        return fallthrough
    if kernel.function is not None:
        return kernel.function
    if kernel.reference is None:
        return stand_in
    module, _, path = kernel.reference.partition(":")
    try:
        found: object = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise NotExpressibleError(registration, f"{kernel.reference} cannot be imported: {error}") from error
    if not callable(found):
        raise NotExpressibleError(registration, f"{kernel.reference} is not callable")
    return found


def stand_in(*arguments: object, **named: object) -> object:
    """Return the first argument; this is the kernel of a registration without a function."""
    return arguments[0] if arguments else None


def has_fallbacks() -> bool:
    """Return whether the bindings register every fallback; before PyTorch 2.5 they register only fallthroughs."""
    return hasattr(bindings()._DispatchModule, "fallback")


def has_binding(kernel: Kernel) -> bool:
    """Return whether the bindings have this unboxed kernel; they have only `T_T`."""
    return (
        kernel.form is KernelForm.UNBOXED
        and not kernel.symint
        and str(kernel.inferred) == T_T
        and kernel.signature in (None, T_T_SIGNATURE)
    )
