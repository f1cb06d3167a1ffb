"""torch.compile, export, ONNX and DTensor: what the rows cannot see in the message."""

from __future__ import annotations

from collections.abc import Mapping

from dispatchlab.questions.why.cause import looks_for, saw
from dispatchlab.questions.why.facts import Words


@looks_for("WHY710")
def opcheck_fault(words: Words) -> Mapping[str, object]:
    """Look for the operator that opcheck was called with."""
    failure = words.failure
    made = failure.of("custom_op", "define")
    return saw(op=next((e.subject for e in made if e.subject.partition("::")[2] in failure.call), "the operator"))
