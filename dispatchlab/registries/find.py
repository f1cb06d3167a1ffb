"""Find operators of a registry by name, by glob, and by the keys that they have kernels at."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from dispatchlab.model.keys import DispatchKey
from dispatchlab.registries.model import Recorded, RecordedOperator


def is_glob(text: str) -> bool:
    """Whether a text is a pattern and not a name."""
    return any(character in text for character in "*?[")


def find_names(names: Sequence[str], asked: str) -> tuple[str, ...]:
    """The operators that a text may mean.

    Args:
        names: the operators that there are.
        asked: a name, a name without its overload, or a glob such as `aten::add*`; without a namespace it is of `aten`.

    Returns:
        All that match a glob; the one operator of an exact name; else all overloads of the name.
    """
    wanted = asked if "::" in asked else f"aten::{asked}"
    if is_glob(wanted):
        return tuple(name for name in names if fnmatchcase(name, wanted))
    overload = f"{wanted}."
    return (wanted,) if wanted in names else tuple(name for name in names if name.startswith(overload))


def find(recorded: Recorded, asked: str = "*", *, keys: Collection[DispatchKey] = ()) -> Iterator[RecordedOperator]:
    """The operators to which all of this applies, by name.

    Args:
        recorded: the registry.
        asked: as `find_names` reads it; `*` alone means every operator of every namespace.
        keys: it has a kernel of its own at one of these, or any kernel when there are none.

    Raises:
        RegistryFileError: the registry is in a file that is damaged.
    """
    names = recorded.names if asked == "*" else find_names(recorded.names, asked)
    every: Iterable[RecordedOperator | None] = recorded if asked == "*" else map(recorded.operator, names)
    for operator in every:
        if operator is not None and (not keys or any(kernel.key in keys for kernel in operator.kernels)):
            yield operator
