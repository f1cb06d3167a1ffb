"""`OperatorName`: namespace, name and overload of an operator."""

from __future__ import annotations

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
