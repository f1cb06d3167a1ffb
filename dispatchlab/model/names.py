"""`OperatorName`: namespace, name and overload of an operator; the same of names that are texts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class OperatorName:
    """`ns::name.overload` as a value; a namespace or an overload that is not there is empty text.

    Equal names are one operator. Source: c10/core/OperatorName.h (torch keeps `ns::name` in one text).

    >>> from dispatchlab import OperatorName, parse_name
    >>> parse_name("aten::add.Tensor") == OperatorName("aten", "add", "Tensor")
    True
    """

    namespace: str
    name: str
    overload: str = ""

    def __repr__(self) -> str:
        return f"parse_name({str(self)!r})"

    def __str__(self) -> str:
        return self.qualified + (f".{self.overload}" if self.overload else "")

    @property
    def qualified(self) -> str:
        """`ns::name`, without the overload."""
        return f"{self.namespace}::{self.name}" if self.namespace else self.name

    @property
    def without_namespace(self) -> OperatorName:
        """`name.overload`, as it stands in a library of its namespace."""
        return OperatorName("", self.name, self.overload)

    def within(self, namespace: str) -> OperatorName:
        """The same name, in `namespace` if it had none."""
        return self if self.namespace or not namespace else OperatorName(namespace, self.name, self.overload)


def overload_of(operator: str) -> str:
    """The name of the overload of an operator; empty for the default."""
    return operator.partition("::")[2].partition(".")[2]


def qualified(operator: str) -> str:
    """The name of an operator without its overload."""
    return operator[: len(operator) - len(overload_of(operator))].removesuffix(".")


def overloads_in(names: Collection[str], name: str) -> tuple[str, ...]:
    """The operators among `names` that are overloads of a name, sorted."""
    return tuple(sorted(each for each in names if each == name or each.startswith(f"{name}.")))


def in_order(operators: Sequence[str], order: Sequence[str]) -> tuple[str, ...]:
    """Operators in an order of overload names; those that are not in it come last, as they are."""
    place = {overload: at for at, overload in enumerate(order)}
    return tuple(sorted(operators, key=lambda each: place.get(overload_of(each), len(place))))
