"""What the bindings of PyTorch can say of a registration; its dispatcher could do more."""

from __future__ import annotations

from importlib import import_module

from dispatchlab.errors import DispatchLabError
from dispatchlab.live.torch import torch
from dispatchlab.model.registration import AliasKind, Def, Fallback, Impl, Kernel, KernelForm, Registration, describe

T_T = "(Tensor _0) -> Tensor _0"
"""The inferred schema of the one unboxed kernel that the bindings of PyTorch can register."""

T_T_SIGNATURE = "at::Tensor (at::Tensor const&)"


class NotExpressibleError(DispatchLabError):
    """A registration that the bindings of PyTorch cannot make, although its dispatcher could.

    Args:
        registration: the registration.
        reason: what is missing, a clause.
    """

    def __init__(self, registration: Registration, reason: str) -> None:
        super().__init__(registration, reason)
        self.registration, self.reason = registration, reason

    def __str__(self) -> str:
        place = f"{self.registration.place}: " if self.registration.place else ""
        return f"{place}{describe(self.registration)} cannot be made on the live PyTorch: {self.reason}"


def tags_of(registration: Def) -> list[object]:
    """The tags of a def, as PyTorch has them.

    Raises:
        NotExpressibleError: this PyTorch has no such tag.
    """
    known = torch().Tag.__members__
    for tag in sorted(registration.tags - known.keys()):
        raise NotExpressibleError(registration, f"it has no tag {tag}")
    return [known[tag] for tag in sorted(registration.tags)]


def check_def(registration: Def) -> None:
    """Whether a def with a schema can be made with its alias kind and its tags.

    Raises:
        NotExpressibleError: the bindings have no call for it.
    """
    if registration.alias is AliasKind.INTERNAL_SPECIAL_CASE:
        raise NotExpressibleError(registration, "its bindings cannot say INTERNAL_SPECIAL_CASE")
    if registration.alias is None and registration.tags:
        raise NotExpressibleError(registration, "its bindings give no tags to a def without an alias kind")


def check_inferred_def(registration: Def) -> None:
    """Whether a def whose schema is inferred from its kernel can be made.

    Raises:
        NotExpressibleError: the bindings have no call for it.
    """
    if registration.kernel is None or not _is_t_t(registration.kernel):
        raise NotExpressibleError(registration, f"its bindings infer a schema only from {T_T}")
    if registration.alias is not AliasKind.CONSERVATIVE or registration.tags:
        raise NotExpressibleError(registration, "its bindings give an inferred schema no tags and CONSERVATIVE only")


def check_unboxed_impl(registration: Impl) -> None:
    """Whether the bindings have the unboxed kernel of an impl.

    Raises:
        NotExpressibleError: they have not.
    """
    kernel = registration.kernel
    if not _is_t_t(kernel):
        shown = kernel.signature or kernel.inferred or "an unboxed kernel of unknown type"
        reason = f"its bindings register unboxed kernels only as {T_T_SIGNATURE}, and {shown} needs an extension"
        raise NotExpressibleError(registration, reason)


def check_fallback(registration: Fallback) -> None:
    """Whether the kernel of a fallback can serve every operator.

    Raises:
        NotExpressibleError: it cannot.
    """
    if registration.kernel.form is KernelForm.UNBOXED:
        raise NotExpressibleError(registration, "a fallback serves every operator, so its kernel is boxed")


def first_argument(*arguments: object) -> object:
    """The boxed kernel of a registration that names no function."""
    return arguments[0] if arguments else None


def function_of(registration: Impl | Fallback) -> object:
    """The function that is registered as a boxed kernel.

    Raises:
        NotExpressibleError: the reference to it leads nowhere.
    """
    kernel = registration.kernel
    if kernel.is_fallthrough:
        fallthrough: object = torch().library.fallthrough_kernel
        return fallthrough
    if kernel.function is not None:
        return kernel.function
    if kernel.reference is None:
        return first_argument
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


def _is_t_t(kernel: Kernel) -> bool:
    return (
        kernel.form is KernelForm.UNBOXED
        and not kernel.symint
        and str(kernel.inferred) == T_T
        and kernel.signature in (None, T_T_SIGNATURE)
    )
