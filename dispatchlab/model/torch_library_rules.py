"""What the functions of `torch.library` refuse and keep, as far as versions of PyTorch differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dispatchlab.model.profile import version_of


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


KNOWN: Mapping[tuple[int, int], TorchLibraryRules] = MappingProxyType(
    {(2, minor): TorchLibraryRules(f"2.{minor}") for minor in (13, 14, 15)}
)
"""The sources of 2.13 and of 2.15 were read and say the same; 2.14 lies between them. Of older ones others are true."""


def torch_library_rules(torch: str) -> TorchLibraryRules | None:
    """The rules of a PyTorch, by its version such as `2.13.0+cpu`; None where they are not known."""
    version = version_of(torch)
    return None if version is None else KNOWN.get(version)
