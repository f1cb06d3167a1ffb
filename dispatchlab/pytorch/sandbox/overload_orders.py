"""The order in which the running PyTorch tries the overloads that a sandbox has defined."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from dispatchlab.model.names import OperatorName
from dispatchlab.model.overloads import earlier_overloads, overloads_text
from dispatchlab.model.printed_schema import parse_printed
from dispatchlab.model.registration import Block, Def, Registration
from dispatchlab.model.schema import FunctionSchema
from dispatchlab.model.schema_types import Type, fake_of, without_size
from dispatchlab.pytorch.introspection.queries import fresh_overload_order

# Note [Overloads that are not asked for]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# To ask PyTorch for the order of overloads that agree in the types and names of all arguments and returns makes it keep
# one of them when both are released, and end the process over a later release: see Note [Packets of torch.ops]. To ask
# for any name is enough. So a sandbox that has such overloads does not ask: there the order is that in which it has
# defined them, which is what PyTorch shows where it is asked.


class OverloadOrders:
    """The overloads of one sandbox, by name.

    Args:
        raw: the name that an operator has in PyTorch.
        schema: the schema that PyTorch has for an operator, with the user's names.
    """

    def __init__(
        self, raw: Callable[[OperatorName], OperatorName], schema: Callable[[OperatorName], str | None]
    ) -> None:
        self._raw, self._schema = raw, schema
        self._known: dict[str, dict[OperatorName, set[object]]] = {}
        self._defined: dict[str, dict[OperatorName, int]] = {}
        self._is_asked = True
        self.several: set[str] = set()
        """the names that have several overloads"""

    def expect(self, registration: Registration) -> tuple[OperatorName, ...]:
        """What a registration defines, once it is made."""
        found = tuple(_defs_of(registration))
        for name, schema in found:
            overloads = self._known.setdefault(name.qualified, {})
            alike = None if schema is None else _signature(schema)
            overloads.setdefault(name, set()).add(alike)
            if len(overloads) > 1:
                self.several.add(name.qualified)
                others = set().union(*(each for other, each in overloads.items() if other != name))
                if alike is None or None in others or alike in others:
                    self._is_asked = False
        return tuple(name for name, _ in found)

    def define(self, name: OperatorName) -> None:
        """Note that an operator is defined now, unless it is already."""
        overloads = self._defined.setdefault(name.qualified, {})
        overloads[name] = overloads.get(name, 0) + 1

    def release(self, name: OperatorName) -> None:
        """Note that a def of an operator is gone."""
        overloads = self._defined[name.qualified]
        overloads[name] -= 1
        if not overloads[name]:
            del overloads[name]

    def text(self, name: OperatorName) -> str:
        """The overloads that are tried before an operator, as `Snapshot` shows them."""
        overloads = list(self._defined.get(name.qualified, ()))
        if self._is_asked:
            order = fresh_overload_order(self._raw(name).qualified)
            overloads = [OperatorName(name.namespace, name.name, overload) for overload in order]
        texts = [self._schema(each) for each in overloads]
        return overloads_text(earlier_overloads([_parsed(text) for text in texts if text is not None], name))


_parsed = lru_cache(maxsize=1024)(parse_printed)


def _defs_of(registration: Registration) -> list[tuple[OperatorName, FunctionSchema | None]]:
    match registration:
        case Def(schema=schema):
            return [(registration.operator, schema if isinstance(schema, FunctionSchema) else None)]
        case Block(namespace=namespace):
            inner = [each for one in registration.registrations for each in _defs_of(one)]
            return [(name.within(namespace or ""), schema) for name, schema in inner]
        case _:
            return []


def _signature(schema: FunctionSchema) -> tuple[tuple[tuple[Type, str], ...], tuple[Type, ...]]:
    """What PyTorch finds an overload by when it is released."""
    arguments = tuple((without_size(fake_of(argument.type)), argument.name) for argument in schema.arguments)
    return arguments, tuple(without_size(fake_of(each.type)) for each in schema.returns)
