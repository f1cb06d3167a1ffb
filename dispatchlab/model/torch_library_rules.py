"""What the functions of `torch.library` refuse and keep, as far as versions of PyTorch differ."""

from __future__ import annotations

from dataclasses import dataclass

from dispatchlab.model.profile import bundled_profiles, version_of


@dataclass(frozen=True, slots=True)
class TorchLibraryRules:
    """The rules of one PyTorch.

    Args:
        torch: the version whose `torch/library.py` says so.
        reserved: the namespaces in which `torch.library` makes no operators.
        autocast: the device types that can be cast for.
    """

    torch: str
    reserved: frozenset[str] = frozenset({"prim"})
    autocast: frozenset[str] = frozenset({"cpu", "cuda", "mps", "ipu", "xpu", "hpu", "privateuseone"})


SINCE = (2, 13)
"""The first version of which they are known; of older ones others are true. What adds a PyTorch compares histories of
calls with it, so that a later version that differs is not bundled before it is modelled."""


def torch_library_rules(torch: str) -> TorchLibraryRules | None:
    """The rules of a PyTorch, by its version such as `2.13.0+cpu`; None where they are not known."""
    version = version_of(torch)
    if version is None or version < SINCE:
        return None
    name = "{}.{}".format(*version)
    return TorchLibraryRules(name) if f"torch-{name}" in bundled_profiles() else None
