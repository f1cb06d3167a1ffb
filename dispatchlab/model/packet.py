"""The overloads of a name, as a call of `torch.ops.ns.name` tries them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PacketOverload:
    """An overload of a name.

    Args:
        name: the operator.
        schema: its schema.
        torchscript: only TorchScript has it, so that a call of it does not reach the dispatcher.
    """

    name: str
    schema: str
    torchscript: bool = False


@dataclass(frozen=True, slots=True)
class Packet:
    """The overloads of a name.

    Args:
        name: the name without an overload.
        overloads: the overloads in the order of a call; sorted by name if this order is unknown.
        unknown: why the order is unknown, as the end of a sentence; empty if it is known.
    """

    name: str
    overloads: tuple[PacketOverload, ...]
    unknown: str = ""
