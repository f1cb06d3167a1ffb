"""The frames of a call, one a line, the innermost first: as plain text, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from dispatchlab.analysis.walk_calls import Walk
from dispatchlab.codegen.cpp_frames import Entry, Frame
from dispatchlab.escape import printable
from dispatchlab.render.as_json import as_json, fields_of, json_text


def walk_text(walk: Walk) -> str:
    """The schema and the arguments, a line for each frame, and how the call ends."""
    return "".join(f"{line}\n" for line in _lines(walk))


def _lines(walk: Walk) -> Iterator[str]:
    yield from heading(walk)
    yield ""
    numbers = len(str(len(walk.frames)))
    layers = max((len(str(frame.layer)) for frame in walk.frames), default=0)
    for number, frame in walk.numbered:
        inlined = " [inlined]" if frame.inlined else ""
        yield f"#{number:<{numbers}}  {frame.layer!s:<{layers}}  {frame.function}{inlined}  {place(frame)}"
    yield ""
    yield ending(walk)


def heading(walk: Walk) -> Iterator[str]:
    """What is called, and with which arguments."""
    explanation = walk.explained.explanation
    yield str(walk.function.schema)
    given = ", ".join(f"{one.name}: {printable(one.given)}" for one in explanation.arguments)
    by = "called from C++" if walk.entry is Entry.CPP else f"called as a {walk.entry} of Python"
    yield f"{by} with {given}" if given else by


def place(frame: Frame) -> str:
    """Where a frame is: the file of PyTorch, and the line of the lab."""
    return f"at {frame.file}{f' (lab: {frame.lab})' if frame.lab else ''}"


def ending(walk: Walk) -> str:
    """How the call ends, and where its hops are from."""
    explained = walk.explained
    return f"{explained.no_answer or explained.explanation.end} ({explained.inspection.source})"


def walk_json(walk: Walk) -> str:
    """The same as JSON."""
    explained = walk.explained
    explanation = explained.explanation
    return json_text(
        {
            "operator": str(walk.function.name),
            "schema": str(walk.function.schema),
            "entry": str(walk.entry),
            "file": walk.file,
            "source": explained.inspection.source,
            "arguments": [{"name": one.name, "type": one.type, "given": one.given} for one in explanation.arguments],
            "frames": [
                fields_of(frame, number=number, layer=str(frame.layer), key=as_json(frame.key))
                for number, frame in walk.numbered
            ],
            "end": explanation.end,
            "known": explanation.known,
        }
    )
