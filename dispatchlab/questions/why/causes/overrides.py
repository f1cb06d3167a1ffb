"""`__torch_function__`, `__torch_dispatch__` and modes: conditions that the rows cannot express."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from linecache import getlines

from dispatchlab.questions.why.cause import looks_for, saw
from dispatchlab.questions.why.facts import Words


@looks_for("WHY803")
def handler_recursion(words: Words) -> Mapping[str, object] | None:
    """Find the line with which a handler calls itself."""
    handlers = ("__repr__", "__torch_dispatch__", "__torch_function__")
    lines = Counter(frame for frame in words.failure.frames if frame.function in handlers)
    handler = next((name for name in handlers if sum(n for at, n in lines.items() if at.function == name) > 20), None)
    if handler is None:
        return None
    frame = next(at for at, _ in lines.most_common() if at.function == handler)
    guard = "_DisableTorchDispatch" if handler == "__torch_dispatch__" else "DisableTorchFunctionSubclass"
    own = re.findall(rf"handler (\w+): {handler} tensor", words.failure.noted)
    classes = own[:1] or re.findall(r"^class (\w+)\(", "".join(getlines(frame.file)[: frame.line]), re.MULTILINE)
    return saw(handler=handler, frame=frame, code=frame.text, guard=guard, cls=(classes or ["subclass"])[-1])
