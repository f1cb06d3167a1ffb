"""The long tests of tests/test_import_groups.py, which the quick tier leaves out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import factorial

import pytest

from dispatchlab.prover.prng import SplitMix64
from dispatchlab.pytorch.recording.import_footprint import ImportFootprint
from dispatchlab.pytorch.recording.import_run import FALLBACKS, ImportOutcome, ImportRun
from dispatchlab.questions.imports.import_orders import _Task, compare_import_orders
from tests.effort import share


@dataclass(frozen=True)
class Package:
    """What the import of a package does: it registers for operators, and may look at what others have left behind.

    Args:
        operators: those that it registers for; the newest wins.
        imports: packages that it imports first.
        hidden: what it leaves behind where no registration shows it.
        looks: it registers something else where this was left behind.
        needs: it fails where this package was not imported before.
    """

    operators: tuple[str, ...]
    imports: tuple[str, ...] = ()
    hidden: str = ""
    looks: str = ""
    needs: str = ""


def imported(world: dict[str, Package], task: _Task) -> tuple[ImportRun, dict[str, str]]:
    """What is registered after an order of imports in a small world."""
    done: dict[str, None] = {}
    kernels: dict[str, list[str]] = {}
    failures: dict[str, str] = {}
    left: set[str] = set()

    def load(name: str) -> None:
        if name in done:
            return
        package = world[name]
        if package.needs and package.needs not in done:
            failures[name] = f"ImportError: {package.needs} is not there"
            return
        done[name] = None
        for other in package.imports:
            load(other)
        variant = f"{name}'" if package.looks and package.looks in left else name
        for operator in package.operators:
            kernels.setdefault(operator, []).append(variant)
        if package.hidden:
            left.add(package.hidden)

    for name in task.order:
        load(name)
    dumps = {operator: " ".join(some) for operator, some in kernels.items()}
    outcome = ImportOutcome(failures, dumps, {**{name: text[-2:] for name, text in dumps.items()}, FALLBACKS: "-"}, {})
    found = None
    if task.others:
        found = ImportFootprint(
            frozenset(dumps),
            frozenset(),
            frozenset(name.partition("::")[0] for name in dumps),
            fallbacks=False,
            packages=frozenset(done) - {task.order[0]},
            untouched="-",
        )
    return ImportRun(task.order, outcome, footprint=found), {}


def a_world(random: SplitMix64) -> dict[str, Package]:
    """Four or five packages with at most two dependences, each between two of them."""
    names = "abcde"[: 4 + random.below(2)]
    world = {name: Package((f"{name}::op",)) for name in names}
    for _ in range(random.below(3)):
        one, other = random.below(len(names)), random.below(len(names))
        if one == other:
            continue
        mine, theirs = names[one], names[other]
        match random.below(4):
            case 0:
                world[mine] = replace(world[mine], operators=(*world[mine].operators, f"{theirs}::op"))
            case 1 if not world[theirs].imports:
                world[mine] = replace(world[mine], imports=(theirs,))
            case 2:
                world[mine] = replace(world[mine], hidden=mine)
                world[theirs] = replace(world[theirs], looks=mine)
            case _:
                world[mine] = replace(world[mine], needs=theirs)
    return world


def test_no_dependence_between_two_packages_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dispatchlab.pytorch.worker.process.limit_in_force", lambda: None)
    skipped = dependent = caught = 0
    for seed in range(share(1_000)):
        world = a_world(SplitMix64(seed))
        monkeypatch.setattr("dispatchlab.questions.imports.import_orders._run", partial(imported, world))
        found = compare_import_orders(tuple(world), samples=1, seed=seed)
        every = compare_import_orders(tuple(world), samples=1, seed=seed, every=True)
        assert every.whole == factorial(len(world))
        assert bool(found.between_orders) is bool(every.between_orders), world
        assert found.operators == every.operators
        assert set(found.failed) == set(every.failed)
        skipped += found.skipped > 0
        dependent += found.skipped > 0 and bool(found.between_orders)
        caught += bool(found.not_skipped)
    assert min(skipped, dependent, caught) > 0
