"""The calls that registered an operator, which a scenario or a watched import shows, but not a dump."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dispatchlab.model.registration import Block, Impl, Registration, TorchLibraryFunction


@dataclass(frozen=True, slots=True)
class OperatorCalls:
    """The known calls that registered one operator.

    Args:
        functions: the functions of `torch.library` that were called for it, also methods of a `custom_op`.
        without_key: the debug texts of its kernels that were registered without a dispatch key.
    """

    functions: frozenset[TorchLibraryFunction] = frozenset()
    without_key: tuple[str, ...] = ()

    @property
    def is_custom_op(self) -> bool:
        """True if `custom_op` made it, which always registers a Meta and an Autograd kernel."""
        return TorchLibraryFunction.CUSTOM_OP in self.functions

    @property
    def has_formula(self) -> bool:
        """True if `register_autograd` was called; its kernel redispatches to the kernels of the operator."""
        return TorchLibraryFunction.REGISTER_AUTOGRAD in self.functions

    @property
    def has_fake(self) -> bool:
        """True if `register_fake` was called, or a rule for a mode, which may be the fake tensor mode."""
        rules = {TorchLibraryFunction.REGISTER_FAKE, TorchLibraryFunction.REGISTER_TORCH_DISPATCH}
        return not rules.isdisjoint(self.functions)


NOTHING_KNOWN = OperatorCalls()
"""The calls of an operator that were not watched."""


def calls_in(registrations: Iterable[Registration]) -> Mapping[str, OperatorCalls]:
    """Return the calls behind the registrations of a scenario, by operator."""
    functions: defaultdict[str, set[TorchLibraryFunction]] = defaultdict(set)
    without_key: defaultdict[str, list[str]] = defaultdict(list)

    def add(registration: Registration, namespace: str = "", debug: str = "", *, keyed: bool = False) -> None:
        if isinstance(registration, Impl) and registration.key is None and not keyed:
            without_key[str(registration.operator.within(namespace))].append(registration.debug or debug)
        if isinstance(registration, Block):
            namespace, call = registration.namespace or "", registration.made_by
            if call is not None:
                names = functions[str(call.operator.within(namespace))]
                names.update(made.function for made in (call, *call.parts))
            for inner in registration.registrations:
                add(inner, namespace, registration.debug, keyed=registration.key is not None)

    for registration in registrations:
        add(registration)
    return {
        name: OperatorCalls(frozenset(functions[name]), tuple(without_key[name])) for name in {*functions, *without_key}
    }
