"""Which operators of a registry are meant by names and globs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dispatchlab.errors import DispatchLabError, nearest
from dispatchlab.registry.find import find
from dispatchlab.registry.model import Recorded, RecordedOperator


class NoSuchOperatorError(DispatchLabError):
    """No operator of a registry is meant by a name or glob."""

    def __init__(self, asked: str, known: Sequence[str]) -> None:
        super().__init__(asked, tuple(known))
        self.asked, self.known = asked, tuple(known)

    def __str__(self) -> str:
        near = nearest(self.asked, self.known, count=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        return f"there is no operator {self.asked!r} among the {len(self.known):,} of this registry{hint}"


def chosen(recorded: Recorded, asked: Sequence[str]) -> Iterator[RecordedOperator]:
    """The operators that names and globs mean, each once; all of them when nothing is asked for.

    Raises:
        NoSuchOperatorError: one means none.
        RegistryFileError: the registry is in a file that is damaged.
    """
    if not asked:
        yield from recorded
        return
    seen: set[str] = set()
    for each in asked:
        found = list(find(recorded, each))
        if not found:
            raise NoSuchOperatorError(each, recorded.names)
        for operator in found:
            if str(operator.name) not in seen:
                seen.add(str(operator.name))
                yield operator
