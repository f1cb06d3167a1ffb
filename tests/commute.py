"""`commute`, in the manner of PyTorch's test/test_dispatch.py, with the name of the operator qualified."""

from __future__ import annotations

import unittest
from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

Register = Callable[[Any], object]


class CommuteTest(unittest.TestCase):
    """A test whose registrations are made and released in all orders."""

    C: Any = None
    """`torch._C`, of PyTorch or of the stand-in for it."""
    namespaces = 0

    def commute(self, name: str, registrations: Sequence[Register]) -> None:
        """Each set of registrations in force has one dump and one table, and no invariant is violated."""
        seen: dict[frozenset[int], tuple[str, str]] = {}
        for order in permutations(range(len(registrations))):
            for released in permutations(order):
                CommuteTest.namespaces += 1
                self._run(f"__commute{CommuteTest.namespaces}__", name, registrations, (order, released), seen)
        assert len(seen) == 2 ** len(registrations)

    def _run(
        self,
        namespace: str,
        name: str,
        registrations: Sequence[Register],
        steps: tuple[tuple[int, ...], tuple[int, ...]],
        seen: dict[frozenset[int], tuple[str, str]],
    ) -> None:
        held: dict[int, Any] = {}
        qualified = f"{namespace}::{name}"
        for one in (*steps[0], *steps[1]):
            if one in held:
                del held[one]
            else:
                held[one] = self.C._dispatch_library("FRAGMENT", namespace, "")
                registrations[one](held[one])
            dump, table = self.C._dispatch_dump(qualified), self.C._dispatch_dump_table(qualified)
            if dump:
                self.C._dispatch_check_invariants(qualified)
            now = dump.replace(namespace, "test"), table.replace(namespace, "test")
            assert seen.setdefault(frozenset(held), now) == now
