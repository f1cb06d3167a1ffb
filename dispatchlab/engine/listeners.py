"""Listeners: who is notified of operators as their schemas come and go, and what follows when one raises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from dispatchlab.engine.handle import raise_all
from dispatchlab.model.names import OperatorName
from dispatchlab.model.schema import FunctionSchema

# Note [Listeners that raise]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A def is in force when listeners hear of it: they may look at it, and register more. One that raises refuses the def:
# those that were notified before are notified that it goes, then it is taken back, and the error goes to whoever
# registered. A release cannot be refused. All listeners hear of it, it is done, and only then the errors are raised.


class Listener(Protocol):
    """Hears of operators as their schemas come and go; never of kernels or fallbacks.

    >>> from dispatchlab import Def, Dispatcher, parse_schema
    >>> class Printing:
    ...     def on_operator_registered(self, name, schema):
    ...         print("+", schema)
    ...
    ...     def on_operator_deregistered(self, name, schema):
    ...         print("-", name)
    >>> dispatcher = Dispatcher()
    >>> listening = dispatcher.add_listener(Printing())
    >>> dispatcher.register(Def(parse_schema("test::foo() -> ()"))).release()
    + test::foo() -> ()
    - test::foo
    """

    def on_operator_registered(self, name: OperatorName, schema: FunctionSchema, /) -> None:
        """A def came; the operator can be found, with its schema. Raising refuses the def."""

    def on_operator_deregistered(self, name: OperatorName, schema: FunctionSchema, /) -> None:
        """The last def is about to go; the schema can still be found."""


class Named(NamedTuple):
    """An operator with the schema that comes or goes."""

    name: OperatorName
    schema: FunctionSchema


class Listeners(dict[object, Listener]):
    """The listeners of a dispatcher by their tokens, notified in the order in which they came."""

    def remove(self, token: object) -> None:
        """Notify the listener of a token no more."""
        self.pop(token, None)

    def registered(self, news: Sequence[Named]) -> None:
        """Notify all of operators that came; when one raises, those before it are notified that the operators go."""
        notified: list[tuple[Listener, Named]] = []
        for token, listener in tuple(self.items()):
            for one in news:
                if token not in self:
                    continue
                try:
                    listener.on_operator_registered(*one)
                except BaseException as error:
                    _take_back(notified, error)
                    raise
                notified.append((listener, one))

    def deregistered(self, news: Sequence[Named]) -> None:
        """Notify all of operators that are about to go, and raise what they raised when all are notified."""
        errors: list[Exception] = []
        for token, listener in tuple(self.items()):
            for one in news:
                if token not in self:
                    continue
                try:
                    listener.on_operator_deregistered(*one)
                except Exception as error:
                    errors.append(error)
        raise_all("some listeners raised", errors)


def _take_back(notified: list[tuple[Listener, Named]], error: BaseException) -> None:
    for listener, one in reversed(notified):
        try:
            listener.on_operator_deregistered(*one)
        except Exception as another:
            error.add_note(f"notified of the release of {one.name}, {listener!r} raised {another!r}")
