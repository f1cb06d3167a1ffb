"""`OperatorName`: namespace, name and overload of an operator; the same of names that are texts, and finding them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from dispatchlab.errors import DispatchLabError, UnknownOperatorError


@dataclass(frozen=True, slots=True, order=True)
class OperatorName:
    """`ns::name.overload` as a value; a missing namespace or overload is empty text.

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
        """`name.overload`, as in a library of its namespace."""
        return OperatorName("", self.name, self.overload)

    def within(self, namespace: str) -> OperatorName:
        """Return the name in `namespace` if it had none."""
        return self if self.namespace or not namespace else OperatorName(namespace, self.name, self.overload)


def name_of(text: str) -> OperatorName:
    """Return the operator that a text names; its parts may be words that no schema allows."""
    namespace, _, rest = text.rpartition("::")
    name, _, overload = rest.partition(".")
    return OperatorName(namespace, name, overload)


def overload_of(operator: str) -> str:
    """Return the name of the overload of an operator; empty for the default."""
    return operator.partition("::")[2].partition(".")[2]


def qualified(operator: str) -> str:
    """Return the name of an operator without its overload."""
    return operator[: len(operator) - len(overload_of(operator))].removesuffix(".")


def overloads_in(names: Collection[str], name: str) -> tuple[str, ...]:
    """Return the operators among `names` that are overloads of a name, sorted."""
    return tuple(sorted(each for each in names if each == name or each.startswith(f"{name}.")))


def in_order(operators: Sequence[str], order: Sequence[str]) -> tuple[str, ...]:
    """Return operators in the order of overload names; other operators come last."""
    place = {overload: at for at, overload in enumerate(order)}
    return tuple(sorted(operators, key=lambda each: place.get(overload_of(each), len(place))))


# -- finding


class AmbiguousOperatorError(DispatchLabError):
    """A name without overload stands for several operators."""

    asked: str
    found: tuple[str, ...]

    def __str__(self) -> str:
        overloads = ", ".join(self.found)
        return f"{self.asked} has {len(self.found)} overloads: name one of {overloads}, or write '{self.asked}*'"


def is_glob(text: str) -> bool:
    """Return whether a text is a pattern and not a name."""
    return any(character in text for character in "*?[")


def find_names(names: Sequence[str], asked: str) -> tuple[str, ...]:
    """Return the operators that a text may mean.

    Args:
        names: the operators that there are.
        asked: a name, a name without its overload, or a glob such as `aten::add*`; without a namespace it is of `aten`.

    Returns:
        All operators that match a glob; the operator with an exact name; or all overloads of the name.
    """
    wanted = asked if "::" in asked else f"aten::{asked}"
    if is_glob(wanted):
        return tuple(name for name in names if fnmatchcase(name, wanted))
    overload = f"{wanted}."
    return (wanted,) if wanted in names else tuple(name for name in names if name.startswith(overload))


def is_chosen(operator: str, asked: Sequence[str]) -> bool:
    """Return whether names or globs mean an operator; every operator where there are none."""
    return not asked or any(find_names((operator,), each) for each in asked)


def find_operators(asked: str, known: Sequence[str], *, source: str, packets: bool = False) -> tuple[str, ...]:
    """Return the operators for a name, a name without overload, or a glob.

    Args:
        asked: `test::foo.out`, `test::foo`, `test::*`; the default namespace is `aten`.
        known: the operators that there are.
        source: the origin of the operators, for the error.
        packets: whether a name without overload means all its overloads, including the default.

    Raises:
        UnknownOperatorError: there is no such operator; the error names the nearest one.
        AmbiguousOperatorError: a name without overload has several, and `packets` is not set.
    """
    found = find_names(known, asked)
    if packets and found and "." not in asked and not is_glob(asked):
        return overloads_in(known, qualified(found[0]))
    if not found:
        raise UnknownOperatorError(asked, tuple(known), source)
    if len(found) > 1 and not is_glob(asked):
        raise AmbiguousOperatorError(asked, found)
    return found
