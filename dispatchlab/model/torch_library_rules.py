"""What the functions of `torch.library` refuse and keep, as far as versions of PyTorch differ."""

from __future__ import annotations

from dataclasses import dataclass

from dispatchlab.model.profile import Profile


@dataclass(frozen=True, slots=True)
class TorchLibraryRules:
    """The rules of one PyTorch.

    Args:
        reserved: the namespaces in which `torch.library` makes no operators.
        autocast: the device types that can be cast for.
    """

    reserved: frozenset[str]
    autocast: frozenset[str]


LIBRARY_RULES: tuple[str, ...] = (
    "fake_after_fake",
    "meta_after_fake",
    "fake_after_meta",
    "no_meta_beside_composite",
    "meta_needs_operator",
    "kernel_after_kernel",
    "autograd_after_autograd",
    "autograd_needs_def",
    "vmap_after_vmap",
    "autocast_after_autocast",
    "autocast_kernel_stays",
    "one_torch_dispatch_rule",
    "custom_op_after_custom_op",
    "no_custom_op_of_a_def",
    "no_def_of_a_custom_op",
    "prim_is_reserved",
)
"""The rules that the lab engine follows; a program for each says whether it holds, see `Profile.library_rules`."""


def torch_library_rules(profile: Profile) -> TorchLibraryRules | None:
    """The rules of the PyTorch of a profile; None where one of those that the lab engine follows does not hold."""
    if {*LIBRARY_RULES} - {*profile.library_rules}:
        return None
    return TorchLibraryRules(frozenset({"prim"}), frozenset(profile.autocast_devices))
