"""Failures that only look like the dispatcher: errors that the program's own lines raise."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from dispatchlab.questions.why.cause import looks_for, saw
from dispatchlab.questions.why.facts import Words

_PYTHON: Final = (
    r"(?:Key|ZeroDivision|Attribute|Name|UnboundLocal|FileNotFound|OS|Permission|Import|UnicodeDecode|JSONDecode|"
    r"CalledProcess|Recursion)Error|StopIteration"
)
_CHECKED: Final = ("torch.nn.", "torch.optim.", "torch.utils.data", "torch.distributed.", "torch.serialization")


@looks_for("WHY919")
def own_exception(words: Words) -> Mapping[str, object] | None:
    """Recognise an error of the program's own line: a key, an attribute, an assertion about a value."""
    failure = words.failure
    at = failure.at
    if at is None or not failure.chain:
        return None
    raised, inner = failure.chain[0], failure.stack[-1] if failure.stack else ""
    plain = raised.name in ("TypeError", "ValueError")
    own = at.text.startswith("raise ") or "assert" in at.text
    own = own or (inner.startswith(_CHECKED) and (plain or raised.name == "AssertionError"))
    call = re.search(
        r"^[\w.]+\(\) (?:takes|missing|got)|invalid literal|subscriptable|not iterable|unpack", raised.text
    )
    python = bool(re.fullmatch(_PYTHON, raised.name)) or (
        plain and inner.endswith(f".{at.function}") and call is not None
    )
    about = re.search(r"dispatch|schema|operator|kernel|backend|torch\.ops|regist", raised.text)
    if not own and (not python or about is not None):
        return None
    what = raised.line.removesuffix(": ")
    noted = sorted({event.subject for event in failure.of("define", "custom_op", "impl", "entered mode", "compiled")})
    if raised.name == "AssertionError" and noted:
        what += f"; nothing that was noted of {', '.join(noted[:4])} explains the value"
    return saw(what=what, own=own and "torch" in failure.source)
