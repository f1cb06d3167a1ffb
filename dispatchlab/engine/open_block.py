"""What every front end is: a group of registrations that is added to, and comes down as a whole."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.handle import RegistrationHandle, release_all
from dispatchlab.engine.kernel_function import KernelFunction, call_site, kernel_function, unboxed
from dispatchlab.engine.plan import Plan, plan_inside
from dispatchlab.model.registration import Block, Def, Fallback, Impl


class Registrations:
    """Handles in the order in which they were made; forgetting the object releases them.

    Args:
        dispatcher: where to register.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._handles: list[RegistrationHandle] = []
        self._dispatcher = dispatcher

    @property
    def handles(self) -> tuple[RegistrationHandle, ...]:
        """The handles of what was registered, in order; released ones too."""
        return tuple(self._handles)

    def _hold(self, made: Plan, what: str) -> RegistrationHandle:
        handle = self._dispatcher.register_plan(made, what)
        self._handles.append(handle)
        return handle

    def _hold_inside(self, block: Block, registration: Def | Impl | Fallback, what: str) -> RegistrationHandle:
        made = plan_inside(block, registration, self._dispatcher.semantics)
        # Upstream makes one registration after the other, and keeps those that came before one that is refused.
        steps = [made] if self._dispatcher.semantics.is_atomic else [Plan([one]) for one in made.primitives]
        added = [self._hold(step, what) for step in steps]
        if len(added) == 1:
            return added[0]
        whole = RegistrationHandle(lambda: release_all(added), what)
        self._handles[len(self._handles) - len(added) :] = [whole]
        return whole

    def release(self) -> None:
        """Undo everything, what was registered first first; a second release is harmless."""
        handles, self._handles = self._handles, []
        release_all(handles)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def __del__(self) -> None:
        for handle in self._handles:
            handle.forget()


def debug_of_caller(debug: str | None) -> str:
    """What dumps print of a front end's registrations: the text that was given, or where it was opened."""
    if debug is not None:
        return debug
    site = call_site()
    return f"registered at {site.file}:{site.line}"


def typed_kernel(function: object) -> KernelFunction:
    """A kernel as the C++ front ends make it: a plain function has the schema that its annotations say.

    Raises:
        RegistrationError: it cannot be called, or no schema can be inferred from it; `boxed` needs none.
    """
    if not isinstance(function, KernelFunction) and callable(function):
        return unboxed(function)
    return kernel_function(function)
