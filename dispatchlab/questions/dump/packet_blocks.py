"""The overloads of a name as blocks, in the order in which a call tries them."""

from __future__ import annotations

from collections.abc import Iterator

from dispatchlab.model.packet import Packet
from dispatchlab.questions.dump.operator_blocks import schema_title
from dispatchlab.views.blocks import Block, Line, quiet, strong, warn
from dispatchlab.views.formatting import counted


def packet_lines(packet: Packet) -> Iterator[Block]:
    """What a call of the name tries, a schema each."""
    count = counted(len(packet.overloads), "overload")
    tries = warn(f": {packet.unknown}") if packet.unknown else "; a call tries them in this order:"
    yield Line((strong(packet.name), f" has {count}", tries))
    for overload in packet.overloads:
        mark = quiet(" (TorchScript alone)") if overload.torchscript else ""
        yield Line((*schema_title(overload.schema), mark), indent=2, hang=4)
