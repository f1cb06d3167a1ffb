"""The overloads of a name, as a call of `torch.ops.ns.name` tries them, and what each does with a call."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.overloads import Call, Match, NoOverloadError, match_call
from dispatchlab.model.printed_schema import parse_printed


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
        overloads: as a call tries them; by name where that is not known.
        unknown: why it is not known which a call tries first, the end of a sentence; empty where it is known.
    """

    name: str
    overloads: tuple[PacketOverload, ...]
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Tried:
    """An overload that a call tried.

    Args:
        name: the operator.
        takes: whether it took the call.
        reason: why it did not, as PyTorch says it.
    """

    name: str
    takes: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PacketCall:
    """A call of a name.

    Args:
        packet: the name.
        call: its arguments as Python has them, a tensor as one of two elements.
        tried: the overloads that it tried, in their order; the last one took it.
    """

    packet: str
    call: str
    tried: tuple[Tried, ...]


class SeveralTakeItError(DispatchLabError):
    """Several overloads take a call, and it is not known which is tried first."""

    name: str
    call: str
    taking: tuple[str, ...]
    unknown: str

    def __str__(self) -> str:
        return (
            f"{self.name}{self.call} may go to {' or '.join(self.taking)}, and {self.unknown}: name one of them, or "
            "ask the installed PyTorch with --from live"
        )


def overloads_in(names: Collection[str], name: str) -> tuple[str, ...]:
    """The operators among `names` that are overloads of a name, sorted."""
    return tuple(sorted(each for each in names if each == name or each.startswith(f"{name}.")))


def call_packet(packet: Packet, call: Call) -> PacketCall:
    """Which overload a call of a name goes to.

    Raises:
        NoOverloadError: none takes it, or one ends it with an error.
        SeveralTakeItError: the order in which they are tried decides, and is not known.
    """
    matches = []
    for overload in packet.overloads:
        match, reason = match_call(parse_printed(overload.schema), call.args, dict(call.kwargs))
        matches.append((overload, match, reason))
        if match is not Match.REFUSES and not packet.unknown:
            break
    tried = [Tried(overload.name, match is Match.TAKES, reason) for overload, match, reason in matches]
    ending = [overload for overload, match, _ in matches if match is not Match.REFUSES]
    if len(ending) > 1:
        raise SeveralTakeItError(packet.name, str(call), tuple(each.name for each in ending), packet.unknown)
    taking = [each for each in tried if each.takes]
    if not taking:
        reasons = tuple(each.reason for each in tried)
        schemas = tuple(parse_printed(overload.schema) for overload, _, _ in matches)
        raise NoOverloadError(reasons, schemas, ended=bool(ending))
    return PacketCall(packet.name, str(call), tuple(sorted(tried, key=lambda each: each.takes)))


def in_order(operators: Sequence[str], order: Sequence[str]) -> tuple[str, ...]:
    """Operators in an order of overload names; those that are not in it come last, as they are."""
    place = {overload: at for at, overload in enumerate(order)}
    return tuple(sorted(operators, key=lambda each: place.get(overload_of(each), len(place))))


def overload_of(operator: str) -> str:
    """The name of the overload of an operator; empty for the default."""
    return operator.partition("::")[2].partition(".")[2]


def qualified(operator: str) -> str:
    """The name of an operator without its overload."""
    return operator[: len(operator) - len(overload_of(operator))].removesuffix(".")


