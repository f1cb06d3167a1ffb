"""Histories of calls of `torch.library` on the lab engine and on the running PyTorch, side by side."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from random import Random

from dispatchlab.engine.dispatcher import Dispatcher
from dispatchlab.engine.semantics import Semantics
from dispatchlab.live.bridge.torch import bindings, torch
from dispatchlab.live.sandbox.sandbox import LocalEngine
from dispatchlab.model.keys import DispatchKey
from dispatchlab.model.registration import Block, Impl, Registration
from tests.live.engine_side import Side
from tests.torch_library_scenarios import OPERATORS, history, kernels, scenario, with_override

COMPARED = "dump", "table", "schema", "dangling", "python"


def _functions(registration: Registration) -> Iterator[str]:
    if isinstance(registration, Block) and registration.made_by is not None:
        yield from (str(each.function) for each in (registration.made_by, *registration.made_by.parts))


def _as_here(registration: Registration) -> Registration:
    """What a `custom_op` registers in this PyTorch: until 2.9, C++ makes no kernel at ADInplaceOrView."""
    if not isinstance(registration, Block) or hasattr(_library_type(), "register_ad_inplace_or_view_fallback"):
        return registration
    kept = [*registration.registrations]
    for each in kept:
        if isinstance(each, Impl) and each.key is DispatchKey.ADInplaceOrView:
            kept.remove(each)
            break
    return replace(registration, registrations=tuple(kept))


@cache
def _library_type() -> type:
    made = bindings()._dispatch_library("FRAGMENT", "histories", "", __file__, 1)
    made.reset()
    return type(made)


def check_histories(first: int, count: int, *, overrides: bool = False, model: Semantics | None = None) -> Counter[str]:
    """Compare the outcome of each step, and what is shown of each operator after it; what the outcomes were.

    Args:
        first: the first seed.
        count: how many histories.
        overrides: whether calls say `allow_override`.
        model: the dispatcher that the lab follows; that of the running PyTorch when left out.
    """
    seen: Counter[str] = Counter()
    engine = LocalEngine()
    for seed in range(first, first + count):
        random = Random(seed)
        registrations = [_as_here(each) for each in scenario(random, random.randint(2, 7))]
        steps = history(random, len(registrations))
        if overrides:
            registrations = [with_override(each, random) for each in (*registrations, *kernels(random, 3))]
            steps = history(random, len(registrations))
        if any(not hasattr(torch().library, name) for each in registrations for name in _functions(each)):
            seen["not in this PyTorch"] += 1
            continue
        with LocalEngine().sandbox() as sandbox, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lab, live = Side(Dispatcher(model or engine.semantics), registrations), Side(sandbox, registrations)
            for step in steps:
                expected, found = live.toggle(step), lab.toggle(step)
                seen[expected] += 1
                assert found == expected, (seed, step)
                for name in OPERATORS:
                    theirs, ours = live.sandbox.snapshot(name), lab.sandbox.snapshot(name)
                    for what in COMPARED:
                        assert getattr(ours, what) == getattr(theirs, what), (seed, step, what)
            for side in (lab, live):
                for handle in side.handles.values():
                    handle.release()
    return seen


if __name__ == "__main__":
    check_histories(0, 400)
