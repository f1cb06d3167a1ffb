"""The overloads of a name, as a call of `torch.ops.ns.name` tries them, and what each does with a call."""

from __future__ import annotations

from dataclasses import dataclass

from dispatchlab.errors import DispatchLabError
from dispatchlab.model.overloads import Call, Match, match_call
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


class NoOverloadError(DispatchLabError):
    """No overload of a name takes a call, or one ended it before another was tried.

    Args:
        reasons: why each overload that was tried did not take it, as PyTorch says it.
        ended: the last one raised an error of its own.
    """

    reasons: tuple[str, ...]
    ended: bool

    def __str__(self) -> str:
        if self.ended or len(self.reasons) == 1:
            return self.reasons[-1]
        return "\n".join(("Overloaded torch operator invoked from Python failed to match any schema:", *self.reasons))


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


def call_packet(packet: Packet, call: Call) -> PacketCall:
    """Which overload a call of a name goes to.

    >>> from dispatchlab.model.overloads import Call, TensorValue
    >>> schemas = ["t::foo.a(Tensor x, int n=0) -> ()", "t::foo.b(Tensor x, float s) -> ()"]
    >>> packet = Packet("t::foo", tuple(PacketOverload(each.partition("(")[0], each) for each in schemas))
    >>> call_packet(packet, Call((TensorValue((2,)), 1.5))).tried[-1]
    Tried(name='t::foo.b', takes=True, reason='')

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
    matches.sort(key=lambda each: each[1] is not Match.REFUSES)  # which changes nothing where the order is known
    ending = [overload.name for overload, match, _ in matches if match is not Match.REFUSES]
    if len(ending) > 1:
        raise SeveralTakeItError(packet.name, str(call), tuple(ending), packet.unknown)
    if not matches or matches[-1][1] is not Match.TAKES:
        raise NoOverloadError(tuple(reason for _, _, reason in matches), ended=bool(ending))
    tried = tuple(Tried(overload.name, match is Match.TAKES, reason) for overload, match, reason in matches)
    return PacketCall(packet.name, str(call), tried)
