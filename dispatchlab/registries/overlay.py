"""A registry over another one: the registrations of packages, over the registry of their PyTorch.

`Overlay` has a few operators in memory, and reads every other operator from the registry beneath when needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from dispatchlab.model.names import OperatorName
from dispatchlab.registries.model import Recorded, RecordedOperator, Registry
from dispatchlab.registries.stored import StoredRegistry


def overlaid_names(one: Recorded, other: Recorded) -> frozenset[str] | None:
    """Return the operators that can differ between two registries on the same base; None without a common base."""
    beneath, over = _split(one)
    other_beneath, other_over = _split(other)
    same = beneath is other_beneath or (
        isinstance(beneath, StoredRegistry)
        and isinstance(other_beneath, StoredRegistry)
        and beneath.is_copy(other_beneath)
    )
    return frozenset((*over, *other_over)) if same else None


def _split(recorded: Recorded) -> tuple[Recorded, tuple[str, ...]]:
    return (recorded.beneath, recorded.over.names) if isinstance(recorded, Overlay) else (recorded, ())


class Overlay:
    """A registry that changes some operators of the registry beneath; it is a `Recorded`.

    Args:
        beneath: the registry that it is laid over.
        over: the new and different operators with the registrations of both, and all fallbacks.
        name: the name of the registry beneath.
    """

    def __init__(self, beneath: Recorded, over: Registry, *, name: str) -> None:
        self.beneath, self.over, self.name = beneath, over, name
        self.torch, self.imports = beneath.torch, (*beneath.imports, *over.imports)
        self.privateuse1, self.fallbacks = over.privateuse1 or beneath.privateuse1, over.fallbacks

    def __repr__(self) -> str:
        return f"<Overlay: {len(self.over):,} operators over {self.name}>"

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The operators, sorted."""
        return tuple(sorted({*self.beneath.names, *self.over.names}))

    def operator(self, name: OperatorName | str, /) -> RecordedOperator | None:
        """Return the operator with this name; None if there is none."""
        return self.over.operator(name) or self.beneath.operator(name)

    def overload_order(self, name: str, /) -> tuple[str, ...]:
        """Return the order in the registry beneath; the order of overloads that it lacks is not known."""
        return self.beneath.overload_order(name)

    def __iter__(self) -> Iterator[RecordedOperator]:
        over = {str(operator.name): operator for operator in self.over}
        beneath = {str(operator.name): operator for operator in self.beneath if str(operator.name) not in over}
        yield from (over.get(name) or beneath[name] for name in self.names)
