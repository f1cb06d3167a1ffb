"""A lab of structured operators: registered on a dispatcher under the layers, and ready to be called."""

from __future__ import annotations

from collections.abc import Container
from contextlib import ExitStack
from functools import cache
from importlib.resources import files
from types import ModuleType

from dispatchlab.codegen.read.native_functions import NativeFunctions, read_native_functions
from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.kernel import boxed
from dispatchlab.lab.lab import Lab
from dispatchlab.lab.schemas import IN_PLACE
from dispatchlab.lab.views import in_place_kernel
from tests.generated_modules import generated_modules
from tests.structured_kernels import by_name

FILE = "operators.yaml"


@cache
def lab_functions() -> NativeFunctions:
    """Return the operators that have kernels here."""
    return read_native_functions((files("tests.structured_kernels") / FILE).read_bytes(), file=FILE)


@cache
def _structured_names() -> frozenset[str]:
    return frozenset(each.short_name for group in lab_functions().structured_groups for each in group.functions)


@cache
def _modules() -> tuple[ModuleType, ...]:
    return tuple(generated_modules(lab_functions(), file=FILE).values())


class StructuredLayers(Lab):
    """The layers of `dispatchlab.lab` over generated kernels: autograd, batching and views.

    What `Lab` has kernels of its own for is left to generated ones where the operator is structured.

    Args:
        dispatcher: the dispatcher to register on; default: a new one.

    Raises:
        RegistrationError: a registration is refused; then all of them are released.
    """

    def __init__(self, dispatcher: Dispatcher | None = None) -> None:
        self._generated: ExitStack | None = None
        super().__init__(dispatcher)

    def _define(self) -> None:
        with ExitStack() as undo:
            for module in _modules():
                undo.enter_context(module.register(self.dispatcher, by_name()))
            self._generated = undo.pop_all()
        super()._define()

    def _made_elsewhere(self) -> Container[str]:
        return _structured_names()

    def _views(self) -> None:
        super()._views()
        library = self._library("IMPL", "ADInplaceOrView")
        for group in lab_functions().structured_groups:
            if group.inplace is not None and group.inplace.short_name not in IN_PLACE:
                library.impl(group.inplace.short_name, boxed(in_place_kernel, with_keyset=True))

    def release(self) -> None:
        """Take everything out again."""
        super().release()
        if self._generated is not None:
            self._generated.close()
