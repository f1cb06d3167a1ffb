"""A trace as JSON in Chrome's Trace Event Format, which https://ui.perfetto.dev and chrome://tracing open.

Each hop is a complete event ("ph": "X") of its thread, with its begin and its length in microseconds; one whose end was
not seen lasts until that of the hop around it, or of the trace. Metadata events ("ph": "M") name the process and the
threads. https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU has the format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dispatchlab.call.trace import TracedCall, TracedEvent, TracedThread, calls_in
from dispatchlab.questions.explain.blocks import set_text
from dispatchlab.views.as_json import plain_json_text

_PROCESS = 1


def chrome_trace(threads: Sequence[TracedThread], *, program: str) -> str:
    """The content of the file.

    Args:
        threads: a trace.
        program: what was traced.
    """
    end = max((call.ended_ns or call.began_ns for thread in threads for call in calls_in(thread.steps)), default=0)
    events: list[dict[str, object]] = [_metadata("process_name", 0, f"{program}, traced by dispatchlab")]
    for number, thread in enumerate(threads, 1):
        events.append(_metadata("thread_name", number, thread.name))
        events += _events(thread.steps, number, end)
    return plain_json_text({"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"program": program}})


def _metadata(name: str, thread: int, value: str) -> dict[str, object]:
    return {"name": name, "ph": "M", "ts": 0, "pid": _PROCESS, "tid": thread, "args": {"name": value}}


def _events(steps: Sequence[TracedEvent], thread: int, end: int) -> Iterator[dict[str, object]]:
    for step in steps:
        last = end
        if isinstance(step, TracedCall):
            last = min(end if step.ended_ns is None else step.ended_ns, end)
            yield {
                "name": f"{step.operator} {step.keys.highest()}",
                "cat": step.kind.strip("[]"),
                "ph": "X",
                "ts": step.began_ns / 1000,
                "dur": max(last - step.began_ns, 0) / 1000,
                "pid": _PROCESS,
                "tid": thread,
                "args": _details(step),
            }
        yield from _events(step.steps, thread, last)


def _details(call: TracedCall) -> dict[str, object]:
    found: dict[str, object] = {"key set": set_text(call.keys)}
    if call.kernel is not None:
        found |= {"kernel": call.kernel.debug, "reason": call.kernel.reason, "registered at": call.kernel.source}
    if call.error is not None:
        found["raised"] = call.error
    if call.note:
        found["note"] = call.note
    return found
