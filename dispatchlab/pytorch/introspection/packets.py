"""Which overloads a call of `torch.ops.ns.name` tries now, in order."""

from __future__ import annotations

from typing import Any

from dispatchlab.pytorch.bridge.torch import bindings, torch

# Note [Packets of torch.ops]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~
# PyTorch keeps a list of the overloads of a name, in the order in which they were defined, but for those that only
# TorchScript has, which come last. An overload that is released leaves the list, and comes last when it is defined
# again. `torch.ops.ns.name` takes the list as it is when it is first touched, and keeps it: later defs and releases
# through the dispatcher do not change what the packet tries. `torch.library.Library.define` makes the packet anew when
# there is one, and the end of a `Library` forgets it.
# The list is found by the types and names of arguments and returns, without the overload. So of two overloads that
# agree in these, the second release does not find its entry: it stays, and no packet can be made of the name any more.
# New defs wait beside the list until anybody asks for any operator's overloads; one that is released before, leaves no
# entry. Asking for them, as `overload_order` and every `define` of `torch.library` do, is all that it changes.


def overload_order(name: str) -> tuple[str, ...]:
    """What a call of `torch.ops.ns.name` tries now, in order; nothing is cached by asking.

    See Note [Packets of torch.ops].

    Args:
        name: the name without an overload, `ns::name`.

    Returns:
        The overload names, of which the default's is empty text: those of the packet where it was touched, else those
        that a new one would have. Empty when there is no such operator, or when no packet can be made of it.
    """
    packet = kept_packet(name)
    return fresh_overload_order(name) if packet is None else tuple(packet._overload_names)


def kept_packet(name: str) -> Any:
    """The packet `ns::name` that `torch.ops` keeps; None where it was never touched. Nothing is cached by asking."""
    namespace, _, operator = name.partition("::")
    ops = vars(torch().ops).get(namespace)
    packet = None if ops is None else vars(ops).get(operator)
    return packet if isinstance(packet, torch()._ops.OpOverloadPacket) else None


def packet_schemas(name: str) -> tuple[tuple[str, str], ...]:
    """The overloads in that order with their schemas, those included that only TorchScript has."""
    schemas = {each.overload_name: str(each) for each in bindings()._jit_get_schemas_for_operator(name)}
    return tuple((overload, schemas[overload]) for overload in overload_order(name) if overload in schemas)


def fresh_overload_order(name: str) -> tuple[str, ...]:
    """What a packet that is made now would try, whatever the one in `torch.ops` does; as `overload_order` has it."""
    try:
        found = bindings()._jit_get_operation(name)[1]
    except RuntimeError:
        return ()
    return () if found is None else tuple(found)
