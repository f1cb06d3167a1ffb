"""The same generated classes with handlers in two worlds, and whether both worlds call them in the same order."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_HIERARCHIES = 2_000

Calls = list[tuple[str, tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two worlds.

    Args:
        root: the class whose instances go straight to the implementation.
        body: the members of a class that has a handler, made from a function of the types that it gets.
        instance: one of a class that derives from the root.
    """

    root: type
    body: Callable[[Callable[[Any], Any]], dict[str, Any]]
    instance: Callable[[type], Any]


class _Classes:
    """The root and a few random classes, each with the handler, bases and answer that its number in the seed says."""

    def __init__(self, side: Side, seed: int, log: Calls) -> None:
        self.side, self.log = side, log
        self.random = random.Random(seed)
        self.kinds: list[type] = [side.root]
        for number in range(self.random.randint(2, 7)):
            answer = "answered" if self.random.random() < 0.15 else NotImplemented
            body = side.body(self._handler(f"C{number}", answer)) if self.random.random() < 0.85 else {}
            for _ in range(8):
                bases = self.random.sample(self.kinds, min(len(self.kinds), self.random.randint(0, 2)))
                try:
                    self.kinds.append(type(f"C{number}", tuple(bases), dict(body)))
                    break
                except TypeError:
                    continue  # no consistent order of bases

    def _handler(self, name: str, answer: Any) -> Callable[[Any], Any]:
        def handler(types: Any) -> Any:
            self.log.append((name, tuple(kind.__name__ if kind in self.kinds[1:] else "root" for kind in types)))
            return answer

        return handler

    def arguments(self) -> list[Any]:
        chosen = [self.random.choice(self.kinds) for _ in range(self.random.randint(1, 9))]
        return [self.side.instance(kind) if issubclass(kind, self.side.root) else kind() for kind in chosen]


def compare_orders(*worlds: tuple[Side, Callable[[Any], Any]]) -> None:
    """Compare both worlds on 2,000 hierarchies and lists of arguments; handlers, types and results have to be the same.

    Args:
        worlds: both, each with its overridable function of a list.
    """
    calls, results, longest = 0, set(), 0
    for seed in range(_HIERARCHIES):
        outcomes = []
        for side, call in worlds:
            log: Calls = []
            values = _Classes(side, seed, log).arguments()
            try:
                result = call(values)
            except TypeError:
                result = "TypeError"
            outcomes.append((log, result))
        theirs, ours = outcomes
        assert ours == theirs, seed
        calls += len(ours[0])
        longest = max(longest, len(ours[0]))
        results.add(ours[1])
    assert calls > 3_000
    assert longest >= 4
    assert results == {"answered", "implementation", "TypeError"}
