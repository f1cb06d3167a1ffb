"""Missing operators and overloads: conditions that the rows cannot express."""

from __future__ import annotations

import re
from collections.abc import Mapping
from linecache import getlines
from pathlib import Path

from dispatchlab.live.failure.definition_search import find_definition, last_version_with
from dispatchlab.model.failure import Failure, Position
from dispatchlab.questions.why.cause import looks_for, saw
from dispatchlab.questions.why.facts import Words
from dispatchlab.questions.why.wording import listed, nearest, nth_argument


def _names(failure: Failure, namespace: str) -> list[str]:
    """Return the operators of a namespace that have a def, without overloads."""
    return sorted({name.partition(".")[0] for name in failure.registry.names(namespace)})


def _has_def(failure: Failure, name: str) -> bool:
    facts = failure.registry.operator(name)
    return facts is not None and bool(facts.schema)


@looks_for("WHY102")
def collected(words: Words) -> Mapping[str, object] | None:
    """Recognise an operator or kernel whose `Library` was destroyed; if its call crashed, by the text of the line."""
    name, events = words.operator.packet, words.failure.of("collected")
    if name:
        held = () if "local" in words else words.operator.kernels
        gone = [e for e in events if e.subject.partition(".")[0] == name and e.detail not in held]
    else:
        named = [e for e in events if e.subject.partition("::")[2].partition(".")[0] in words["line"]]
        called = next(iter(re.findall(r"^(?:\w+ = |return |print\()*(\w+)\(", words["line"])), ".*")
        gone = named or [*events] * (re.search(rf"(?:def|import) .*\b{called}\b", words["program"]) is None)
    if not gone:
        return None
    kind = "impl" if "backend" in words else "define"
    last = next((event for event in reversed(gone) if event.subject == words.get("op")), gone[-1])
    made = next((e for e in reversed(words.failure.registrations(last.subject)) if e.kind == kind and e.at), None)
    return saw(
        collected_op=last.subject,
        collected_ns=last.subject.partition("::")[0],
        collected_key=last.detail if kind == "impl" else "",
        made_at=f" at {made.at}" if made else "",
        gone_at=last.at,
        gone_by=last.at.text if last.at else "",
    )


@looks_for("WHY103")
def near_name(words: Words) -> Mapping[str, object] | None:
    """Recognise an operator with a name similar to another operator, or in another namespace."""
    failure, absent = words.failure, words.op
    if any(event.kind != "register_fake" for event in failure.registrations(absent)) or _source_of(words, words["ns"]):
        return None
    names = _names(failure, words["ns"])
    made = sorted({e.subject.partition(".")[0] for e in failure.of("define", "custom_op")})
    elsewhere = [other for other in made if other.endswith(f"::{words['local']}")]
    other = nearest(absent, [n for n in names if n != absent]) or next(iter(elsewhere), "")
    spaces = re.findall(r"""(?:Library|custom_op|triton_op|define)\(\s*["'](\w+)""", words["program"])
    below = None if other else _source_of(words, space := nearest(words["ns"], spaces) or "?")
    if below is not None:
        return saw(op=f"{space}::{words['local']}", below=below)
    if not other or not _has_def(failure, other) or (words["ns"] == "aten" and last_version_with(absent)):
        return None
    return saw(op=other)


@looks_for("WHY109")
def no_definition(words: Words) -> Mapping[str, object] | None:
    """Recognise an operator that has kernels but no schema in the dispatcher."""
    facts, failure = words.operator, words.failure
    if facts.schema or not facts.kernels:
        return None
    others = [n for n in _names(failure, facts.namespace) if n != words.op and _has_def(failure, n)]
    made = next((e.at for e in failure.of("function") if e.subject == words.op and e.at), None)
    text = "".join(getlines(made.file)[made.line - 1 :]) if made else ""
    taken = re.search(r"(?:def \w+\(|lambda )([\w, ]+?)(?:, \*.*)?[:)]", text)
    return saw(meant=nearest(words.op, others), taken=taken[1].replace(", ", ", Tensor ") if taken else "x")


@looks_for("WHY112")
def other_version(words: Words) -> Mapping[str, object] | None:
    """Find a PyTorch with an operator of PyTorch that this one lacks."""
    return _versions(words.failure, words.op) if words["ns"] in ("aten", "prims") else None


def _versions(failure: Failure, name: str) -> dict[str, object]:
    """Return the version of this PyTorch, and of the newest that has an operator or overload."""
    last, here = last_version_with(name).removeprefix("torch-"), failure.registry.version.partition("+")[0]
    numbers = [[int(part) for part in version.split(".")[:2]] for version in (last, here) if last]
    return {"last": last, "here": here, "newer": bool(last) and numbers[0] > numbers[1]}


@looks_for("WHY113")
def unreached_definition(words: Words) -> Mapping[str, object] | None:
    """Recognise a definition in the sources that has not run: it is below the call, or its module is not imported."""
    frames, source = words.failure.frames, _source_of(words, words["ns"])
    if source is None:
        return None
    inner = next((frame for frame in reversed(frames) if Path(frame.file).name == source.file), None)
    reached = max((frame.line for frame in frames if inner is not None and frame.file == inner.file), default=0)
    module = source.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    before = () if inner is None or words.failure.events else reversed(getlines(inner.file)[: source.line])
    outer = re.match(r"(?:async )?def (\w+)", next((line for line in before if re.match(r"\w", line)), ""))
    return saw(
        defining=source, reached=reached, later=reached < source.line, module=module, inside=outer[1] if outer else ""
    )


def _source_of(words: Words, namespace: str) -> Position | None:
    frames = words.failure.frames
    if not frames or not Path(frames[0].file).is_file():
        return None
    return find_definition(str(Path(frames[0].file).parent), namespace, words["local"])


@looks_for("WHY105")
def missing_overload(words: Words) -> Mapping[str, object]:
    """Find another overload, and another version of PyTorch with this overload."""
    failure, packet, overload = words.failure, words.op, words["overload"]
    overloads = [name or "default" for name in failure.registry.overloads(packet)]
    alike = nearest(overload.lower(), [name.lower() for name in overloads])
    other = next((name for name in overloads if name.lower() == alike), overloads[0] if len(overloads) == 1 else "")
    ours = packet.startswith(("aten::", "prims::"))
    changed = _versions(failure, f"{packet}.{overload}") if ours else {"last": ""}
    return saw(overloads=listed(overloads, most=12), other=other, **changed)


@looks_for("WHY107")
def no_overload(words: Words) -> Mapping[str, object]:
    """Find the argument that does not fit, and the schemas."""
    failure, position = words.failure, words["position"]
    source = nth_argument(failure.call, int(position)) if position else ""
    declared = dict.fromkeys(re.findall(r"Declaration: (.+)", failure.text))
    return saw(
        given_source=source,
        value=source or words["argument"],
        declarations=tuple(f"schema: {text}" for text in [*declared][:4]),
    )
