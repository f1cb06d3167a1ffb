"""The calls that registered an operator: what a dump does not say, and a scenario or a watched import does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dispatchlab.model.names import OperatorName
from dispatchlab.model.registration import (
    Block,
    Claim,
    Def,
    Fallback,
    Impl,
    NameOnly,
    PythonImpl,
    Registration,
    TorchLibraryCall,
    TorchLibraryFunction,
)


@dataclass(frozen=True, slots=True)
class OperatorCalls:
    """What is known of the calls that registered one operator.

    Args:
        functions: the functions of `torch.library` that were called for it, those on what `custom_op` gave included.
        without_key: the debug texts of its kernels that were registered without naming a dispatch key.
    """

    functions: frozenset[TorchLibraryFunction] = frozenset()
    without_key: tuple[str, ...] = ()

    @property
    def is_custom_op(self) -> bool:
        """Whether `custom_op` made it, which registers a Meta and an Autograd kernel whatever is given."""
        return TorchLibraryFunction.CUSTOM_OP in self.functions

    @property
    def has_formula(self) -> bool:
        """Whether `register_autograd` was called, whose kernel goes on to the kernels of the operator."""
        return TorchLibraryFunction.REGISTER_AUTOGRAD in self.functions

    @property
    def has_fake(self) -> bool:
        """Whether `register_fake` was called, or a rule registered for a mode, which may be that of fake tensors."""
        rules = {TorchLibraryFunction.REGISTER_FAKE, TorchLibraryFunction.REGISTER_TORCH_DISPATCH}
        return not rules.isdisjoint(self.functions)


NOTHING_KNOWN = OperatorCalls()
"""The calls of an operator that were not watched."""


def calls_in(registrations: Iterable[Registration]) -> Mapping[str, OperatorCalls]:
    """The calls behind the registrations of a scenario, by operator."""
    functions: dict[str, set[TorchLibraryFunction]] = {}
    without_key: dict[str, list[str]] = {}

    def call(made_by: TorchLibraryCall, namespace: str) -> None:
        functions.setdefault(_qualified(made_by.operator, namespace), set()).add(made_by.function)
        for part in made_by.parts:
            functions.setdefault(_qualified(made_by.operator, namespace), set()).add(part.function)

    def one(registration: Registration, namespace: str = "", debug: str = "", *, keyed: bool = False) -> None:
        match registration:
            case Impl():
                if registration.key is None and not keyed:
                    name = _qualified(registration.operator, namespace)
                    without_key.setdefault(name, []).append(registration.debug or debug)
            case Block():
                if registration.made_by is not None:
                    call(registration.made_by, registration.namespace or "")
                for inner in registration.registrations:
                    one(inner, registration.namespace or "", registration.debug, keyed=registration.key is not None)
            case Def() | Fallback() | Claim() | NameOnly() | PythonImpl():
                pass

    for registration in registrations:
        one(registration)
    return {
        name: OperatorCalls(frozenset(functions.get(name, ())), tuple(without_key.get(name, ())))
        for name in {*functions, *without_key}
    }


def _qualified(name: OperatorName, namespace: str) -> str:
    return str(name if name.namespace or not namespace else replace(name, namespace=namespace))
