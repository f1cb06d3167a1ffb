"""Every recorded history of every PyTorch, replayed under its model; and what they reach."""

from __future__ import annotations

from collections import Counter

from dispatchlab.engine.lab_engine import LabEngine
from dispatchlab.engine.semantics import semantics_named
from dispatchlab.model.profile import bundled_profile
from dispatchlab.model.registration import Block, Claim, Def, Fallback, Impl
from tests.histories.file import file_of, unpacked
from tests.histories.generate import OPERATORS
from tests.histories.history import as_files_have_it, first_difference, take
from tests.test_recorded_histories import every_version


@every_version
def test_every_history_of_a_pytorch_is_replayed(name: str) -> None:
    recorded, parsed = unpacked(file_of(name).read_bytes()), bundled_profile(name).parsed
    lab = LabEngine(as_files_have_it(semantics_named(name)))
    counts: Counter[str] = Counter()
    keys: set[str] = set()
    for history, seen in recorded.histories:
        assert first_difference(history, seen, take(lab, history, OPERATORS)) == ""
        counts["histories"] += 1
        counts["steps"] += len(seen)
        counts["stale"] += sum(any(one.slots != one.table for one in step.snapshots) for step in seen)
        counts.update(step.refused for step in seen if step.refused)
        for registration in history.registrations:
            counts[type(registration).__name__] += 1
            inside = registration.registrations if isinstance(registration, Block) else (registration,)
            keys |= {str(one.key) for one in inside if isinstance(one, Impl)}
    assert counts["histories"] >= 300
    assert counts["steps"] >= 3000
    assert counts["stale"] >= 20
    assert all(counts[kind.__name__] >= 50 for kind in (Def, Impl, Fallback, Block, Claim))
    assert all(counts[kind] >= 5 for kind in ("DUPLICATE_DEF", "SCHEMA_MISMATCH", "DUPLICATE_FALLBACK", "UNKNOWN_KEY"))
    assert keys >= {*parsed} - {"Undefined"}
