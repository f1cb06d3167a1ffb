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
        absent: the functions that this PyTorch has not.
        one_kernel: a second kernel of an operator and key from a library of the same namespace is refused.
        one_fake: so is a fake implementation where there is one, or a Meta kernel.
        cast_stays: a cast has a Python kernel besides, which outlives its library.
        backward_of_views: a `custom_op` that returns a view can have a formula.
        needs_device: a `custom_op` for device types needs a tensor or a device to choose by.
        casts_everywhere: that stands at AutocastCUDA and AutocastCPU, whichever the device.
        notes_kernels: kernels are noted, which calls that say `allow_override` need.
    """

    reserved: frozenset[str]
    autocast: frozenset[str]
    absent: frozenset[str]
    one_kernel: bool
    one_fake: bool
    cast_stays: bool
    casts_everywhere: bool
    backward_of_views: bool
    needs_device: bool
    notes_kernels: bool = True


_FUNCTIONS = "register_vmap", "register_autocast", "register_torch_dispatch"
_FAKES = {"fake_after_fake", "meta_after_fake", "fake_after_meta"}
_SECOND = {
    "kernel_after_kernel": "",
    "autograd_after_autograd": "",
    "vmap_after_vmap": "register_vmap",
    "autocast_after_autocast": "register_autocast",
}
"""The rules that go by one table of kernels, and the function that each needs."""

LIBRARY_RULES: tuple[str, ...] = (
    "fake_after_fake",
    "meta_after_fake",
    "fake_after_meta",
    "no_meta_beside_composite",
    "meta_needs_operator",
    "kernel_after_kernel",
    "autograd_after_autograd",
    "autograd_needs_def",
    "autograd_of_a_view",
    "vmap_after_vmap",
    "autocast_after_autocast",
    "autocast_kernel_stays",
    "autocast_kernel_everywhere",
    "one_torch_dispatch_rule",
    "custom_op_after_custom_op",
    "no_custom_op_of_a_def",
    "no_def_of_a_custom_op",
    "custom_op_needs_device",
    "prim_is_reserved",
    *_FUNCTIONS,
)
"""What is asked of a PyTorch; a program for each says whether it holds, see `Profile.library_rules`."""

_EITHER = {"autocast_kernel_stays", "autocast_kernel_everywhere", "autograd_of_a_view", "custom_op_needs_device"}
_NEEDED = {*LIBRARY_RULES} - {*_FUNCTIONS, *_FAKES, *_SECOND, *_EITHER, "one_torch_dispatch_rule"}
"""Those that hold wherever the lab engine has a model."""


def torch_library_rules(profile: Profile) -> TorchLibraryRules | None:
    """The rules of the PyTorch of a profile; None where those that hold are none that the lab engine has a model of."""
    hold = {*profile.library_rules}
    absent = {*_FUNCTIONS} - hold
    second = {rule in hold for rule, function in _SECOND.items() if function not in absent}
    fakes = {rule in hold for rule in _FAKES}
    needed = _NEEDED if "register_torch_dispatch" in absent else {*_NEEDED, "one_torch_dispatch_rule"}
    if needed - hold or len(second) > 1 or len(fakes) > 1:
        return None
    return TorchLibraryRules(
        frozenset({"prim"}),
        frozenset(profile.autocast_devices),
        frozenset(absent),
        one_kernel=second == {False},
        one_fake=fakes == {False},
        cast_stays="autocast_kernel_stays" in hold,
        casts_everywhere="autocast_kernel_everywhere" in hold,
        backward_of_views="autograd_of_a_view" in hold,
        needs_device="custom_op_needs_device" in hold,
    )
