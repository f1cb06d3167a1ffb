"""A lab of structured operators alone: registered on a dispatcher, without layers above them."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from types import ModuleType
from typing import Self

from dispatchlab.call.operators import Operator, operator
from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.kernel import fallthrough
from dispatchlab.engine.library import Library
from tests.generated_modules import generated_modules
from tests.structured_kernels import by_name
from tests.structured_kernels.lab import FILE, lab_functions

_SKIPPED = ("BackendSelect", "ADInplaceOrView", "Autograd")


@cache
def _modules() -> tuple[ModuleType, ...]:
    return tuple(generated_modules(lab_functions(), file=FILE).values())


class StructuredLab:
    """The structured operators, to be called by name: `lab("add.out")(x, y, out=z)`.

    Args:
        dispatcher: where to register them; a new, bare one when left out. It must not have these operators.
        fallbacks: whether calls skip BackendSelect, ADInplaceOrView and autograd; False when other layers see to that.

    Raises:
        RegistrationError: a registration is refused; all of them are gone then.
    """

    def __init__(self, dispatcher: Dispatcher | None = None, *, fallbacks: bool = True) -> None:
        self.dispatcher = Dispatcher(builtin_fallbacks=False) if dispatcher is None else dispatcher
        with ExitStack() as undo:
            for module in _modules():
                undo.enter_context(module.register(self.dispatcher, by_name()))
            if fallbacks and not self.dispatcher.builtin_fallbacks:
                rest = undo.enter_context(Library("_", "IMPL", dispatcher=self.dispatcher))
                for key in _SKIPPED:
                    rest.fallback(fallthrough, key)
            self._held = undo.pop_all()

    def __call__(self, name: str) -> Operator:
        """An operator by its name with the overload."""
        return operator(self.dispatcher, f"aten::{name}")

    def release(self) -> None:
        """Take everything out again."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()
