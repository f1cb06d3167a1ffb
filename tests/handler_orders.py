"""The same generated classes with handlers under two implementations, and whether both call them in the same order."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_HIERARCHIES = 2_000

Calls = list[tuple[str, tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class Implementation:
    """One of the two implementations of overridable functions.

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

    def __init__(self, implementation: Implementation, seed: int, log: Calls) -> None:
        self.implementation, self.log = implementation, log
        self.random = random.Random(seed)
        self.kinds: list[type] = [implementation.root]
        for number in range(self.random.randint(2, 7)):
            answer = "answered" if self.random.random() < 0.15 else NotImplemented
            body = implementation.body(self._handler(f"C{number}", answer)) if self.random.random() < 0.85 else {}
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
        return [
            self.implementation.instance(kind) if issubclass(kind, self.implementation.root) else kind()
            for kind in chosen
        ]


def compare_orders(*implementations: tuple[Implementation, Callable[[Any], Any]]) -> None:
    """Compare handlers, types and results of both implementations on 2,000 hierarchies and lists of arguments.

    Args:
        implementations: the expected one and ours, each with its overridable function of a list.
    """
    calls, results, longest = 0, set(), 0
    for seed in range(_HIERARCHIES):
        outcomes = []
        for implementation, call in implementations:
            log: Calls = []
            values = _Classes(implementation, seed, log).arguments()
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
