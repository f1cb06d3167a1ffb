"""`python -m tests.histories FILE`: record histories on the running PyTorch, and hold its model to each."""

from __future__ import annotations

import json
import os
import pickle
import sys
import traceback
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.engine.semantics import Semantics, semantics_named
from dispatchlab.live.bridge.torch import semantics, torch
from dispatchlab.live.introspection.slot_memory import is_readable
from dispatchlab.live.sandbox.sandbox import LocalEngine
from dispatchlab.model.profile import Profile, bundled_profile, read_profile
from dispatchlab.model.registration import Block, Fallback, Registration
from tests.histories.file import Recorded, packed
from tests.histories.generate import OPERATORS, bindings_of, generated
from tests.histories.history import History, Seen, first_difference, take, with_keys_as_text

SHOWN = 5


def _main() -> int:
    parser = ArgumentParser(prog="python -m tests.histories", description=__doc__)
    parser.add_argument("file", metavar="FILE", type=Path, help="Where the first histories are written.")
    parser.add_argument("--count", type=int, default=2000, help="Number of histories. Default: 2000.")
    parser.add_argument("--kept", type=int, default=320, help="How many of them are written. Default: 320.")
    parser.add_argument("--seed", type=int, default=1, help="Random seed. Default: 1.")
    parser.add_argument("--profile", help="The file of its profile. Default: the one that is known of this PyTorch.")
    options = parser.parse_args()
    model = options.profile or semantics()
    profile = read_profile(model) if options.profile else bundled_profile(model)
    figures, kept = run(profile, semantics_named(model), options.count, options.seed, options.kept)
    slots = "memory" if is_readable() else "bindings"
    options.file.write_bytes(packed(Recorded(str(torch().__version__), slots, profile.runtime, tuple(kept))))
    print(json.dumps({"torch": str(torch().__version__), "slots": slots, **figures}))  # noqa: T201
    return 1 if figures["differences"] else 0


def run(
    profile: Profile, model: Semantics, count: int, seed: int, kept: int
) -> tuple[dict[str, object], list[tuple[History, tuple[Seen, ...]]]]:
    """Take histories on the running PyTorch and compare each step with the model.

    Returns:
        How much was done and what differed, and the first histories with what was seen.
    """
    counts: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    differences: list[str] = []
    recorded: list[tuple[History, tuple[Seen, ...]]] = []
    live, lab = LocalEngine(parse_keys=True), LabEngine(with_keys_as_text(model))
    for number, history in enumerate(islice(generated(bindings_of(profile), seed), count)):
        try:
            seen = _taken(live, history, profile)
            what = first_difference(history, seen, take(lab, history, OPERATORS))
        except Exception:
            what = traceback.format_exc(limit=-3)
            seen = ()
        if what:
            differences.append(f"history {number} {what}\n  {history.registrations}")
        elif len(recorded) < kept:
            recorded.append((history, seen))
        counts["histories"] += 1
        counts["steps"] += len(seen)
        counts["stale"] += sum(any(one.slots != one.table for one in step.snapshots) for step in seen)
        refusals.update(step.refused for step in seen if step.refused)
    _show(differences)
    counts["differences"] = len(differences)
    return {**counts, "refusals": dict(refusals)}, recorded


def _taken(live: LocalEngine, history: History, profile: Profile) -> tuple[Seen, ...]:
    """What the running PyTorch shows, in a copy of this process where the history may cost it a builtin fallback."""
    if not any(str(each.key) in profile.fallbacks for each in _fallbacks(history.registrations)):
        return tuple(take(live, history, OPERATORS))
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            with os.fdopen(theirs, "wb") as stream:
                pickle.dump(tuple(take(live, history, OPERATORS)), stream)
            status = 0
        finally:
            os._exit(status)
    os.close(theirs)
    with os.fdopen(ours, "rb") as stream:
        content = stream.read()
    status = os.waitpid(child, 0)[1]
    if status:
        raise ChildProcessError(f"the copy of the process ended with status {status}")
    seen: tuple[Seen, ...] = pickle.loads(content)
    return seen


def _fallbacks(registrations: Iterable[Registration]) -> Iterator[Fallback]:
    for each in registrations:
        if isinstance(each, Block):
            yield from _fallbacks(each.registrations)
        elif isinstance(each, Fallback):
            yield each


def _show(differences: Iterable[str]) -> None:
    for each in islice(differences, SHOWN):
        print(each, file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    sys.exit(_main())
