"""Find operators of a registry by name, by glob, and by what is unusual about them; count the kernels of each key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from dispatchlab.model.keys import DispatchKey
from dispatchlab.records.model import Recorded, RecordedOperator


@dataclass(frozen=True, slots=True)
class KeyCount:
    """How many kernels are registered at a key.

    Args:
        key: the key; an alias key counts what is registered at itself.
        operators: operators that have one, which is also how many are active.
        inactive: kernels that a newer one has replaced.
        fallthrough: active ones that calls skip.
        fallback: whether the key has a backend fallback besides.
    """

    key: DispatchKey
    operators: int
    inactive: int
    fallthrough: int
    fallback: bool


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


def find(
    recorded: Recorded,
    asked: str = "*",
    *,
    keys: Collection[DispatchKey] = (),
    dangling: bool = False,
    overridden: bool = False,
) -> Iterator[RecordedOperator]:
    """The operators to which all of this applies, by name.

    Args:
        recorded: the registry.
        asked: as `find_names` reads it; `*` alone means every operator of every namespace.
        keys: it has a kernel of its own at one of these, or any kernel when there are none.
        dangling: it has kernels and no def.
        overridden: a kernel (at one of `keys`, if there are any) overrides another.

    Raises:
        RegistryFileError: the registry is in a file that is damaged.
    """
    names = recorded.names if asked == "*" else find_names(recorded.names, asked)
    every: Iterable[RecordedOperator | None] = recorded if asked == "*" else map(recorded.operator, names)
    for operator in every:
        if operator is None or (dangling and not operator.is_dangling):
            continue
        kernels = [kernel for kernel in operator.kernels if not keys or kernel.key in keys]
        if (keys and not kernels) or (overridden and all(kernel.active for kernel in kernels)):
            continue
        yield operator


def key_counts(recorded: Recorded, operators: Iterable[RecordedOperator] | None = None) -> tuple[KeyCount, ...]:
    """How many kernels each key has, in the order of the keys; keys that have nothing are left out.

    Args:
        recorded: the registry, for its fallbacks.
        operators: what to count; all operators of the registry when left out.
    """
    active: Counter[DispatchKey] = Counter()
    inactive: Counter[DispatchKey] = Counter()
    fallthrough: Counter[DispatchKey] = Counter()
    for operator in recorded if operators is None else operators:
        for kernel in operator.kernels:
            (active if kernel.active else inactive)[kernel.key] += 1
            fallthrough[kernel.key] += kernel.active and kernel.is_fallthrough
    fallbacks = {fallback.key for fallback in recorded.fallbacks}
    return tuple(
        KeyCount(key, active[key], inactive[key], fallthrough[key], key in fallbacks)
        for key in sorted({*active, *fallbacks})
    )
