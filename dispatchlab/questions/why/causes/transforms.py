"""vmap, torch.func, functionalization and autocast: what the rows cannot see in the message."""

from __future__ import annotations

from collections.abc import Mapping

from dispatchlab.questions.why.cause import looks_for, saw
from dispatchlab.questions.why.facts import Words


@looks_for("WHY608")
def wrong_rule(words: Words) -> Mapping[str, object]:
    """Look for the operator that has a rule for vmap."""
    rules = [event.subject for event in words.failure.of("impl") if event.detail == "FuncTorchBatched"]
    return saw(subject=rules[-1] if rules else "")
