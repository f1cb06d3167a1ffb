"""torch.compile, export, ONNX and DTensor: what the rows cannot see in the message."""

from __future__ import annotations

from collections.abc import Mapping

from dispatchlab.model.failure import Failure
from dispatchlab.questions.why.cause import looks_for, saw


@looks_for("WHY710")
def opcheck_fault(failure: Failure) -> Mapping[str, object]:
    """Look for the operator that opcheck was called with."""
    made = failure.of("custom_op", "define")
    return saw(op=next((e.subject for e in made if e.subject.partition("::")[2] in failure.call), "the operator"))
