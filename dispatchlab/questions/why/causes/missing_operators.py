"""Missing operators and overloads: conditions that the rows cannot express."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from dispatchlab.live.failure.definition_search import find_definition, last_version_with, package_of
from dispatchlab.model.failure import Event, Failure, Position, first_line
from dispatchlab.questions.why.cause import looks_for, saw
from dispatchlab.questions.why.facts import Words
from dispatchlab.questions.why.wording import latest_kernel, listed, nearest, nth_argument


def _names(failure: Failure, namespace: str) -> list[str]:
    """Return the operators of a namespace that have a def, without overloads."""
    return sorted({name.partition(".")[0] for name in failure.registry.names(namespace)})


def _has_def(failure: Failure, name: str) -> bool:
    facts = failure.registry.operator(name)
    return facts is not None and bool(facts.schema)


def _failed_loads(words: Words) -> tuple[Event, ...]:
    """Return the imports and libraries that failed before; names similar to the namespace come first."""
    failed = words.failure.of("missing module", "failed import", "failed library")
    return tuple(sorted(failed, key=lambda event: words["ns"].lower() not in event.subject.lower()))


@looks_for("WHY101")
def failed_extension(words: Words) -> Mapping[str, object] | None:
    """Recognise an operator that is missing because a module or library that defines it did not load."""
    loads = _failed_loads(words)
    if not loads:
        return None
    subject, wanted = (re.sub(r"[^a-z0-9]", "", text.lower()) for text in (loads[0].subject, words["ns"]))
    if wanted not in subject and (len(subject) <= 3 or subject not in wanted):
        return None
    return _load_words(loads[0])


def _load_words(load: Event) -> Mapping[str, object]:
    first = first_line(load.detail)
    if load.kind == "missing module":
        fix = f"install what provides {load.subject}, and `import {load.subject}` without catching ImportError"
    elif load.kind == "failed library":
        fix = f"torch.ops.load_library({load.subject!r}) must succeed before the first use: {first}"
    else:
        fix = f"`import {load.subject}` must succeed before the first use: {first}"
    return {
        "kind": load.kind,
        "load": load.subject,
        "load_at": f" at {load.at}" if load.at else "",
        "load_fix": fix,
        "load_line": f"{load.at or load.subject}: {first or load.kind}",
    }


@looks_for("WHY102")
def collected(words: Words) -> Mapping[str, object] | None:
    """Recognise an operator or kernel whose `Library` was destroyed; if its call crashed, by the text of the line."""
    name, events = words.operator.packet, words.failure.of("collected")
    if name:
        held = () if "local" in words else words.operator.kernels
        gone = [e for e in events if e.subject.partition(".")[0] == name and e.detail not in held]
    else:
        named = [e for e in events if e.subject.partition("::")[2].partition(".")[0] in words.line]
        gone = named or list(events)
    if not gone:
        return None
    kind, name = "impl" if "backend" in words else "define", name or gone[-1].subject
    made = next((e for e in reversed(words.failure.registrations(name)) if e.kind == kind and e.at), None)
    return saw(
        collected_op=name,
        collected_key=gone[-1].detail if kind == "impl" else "",
        made_at=f" at {made.at}" if made else "",
        gone_at=gone[-1].at,
    )


@looks_for("WHY103")
def near_name(words: Words) -> Mapping[str, object] | None:
    """Recognise an operator with a name similar to another operator, or in another namespace."""
    failure, absent = words.failure, words.op
    if failure.registrations(absent) or _source_of(words):
        return None
    names = _names(failure, words["ns"])
    made = sorted({e.subject.partition(".")[0] for e in failure.of("define", "custom_op")})
    elsewhere = [other for other in made if other.endswith(f"::{words['local']}")]
    other = nearest(absent, [n for n in names if n != absent]) or next(iter(elsewhere), "")
    if not other or not _has_def(failure, other) or (words["ns"] == "aten" and last_version_with(absent)):
        return None
    return saw(op=other, names=names)


@looks_for("WHY109")
def no_definition(words: Words) -> Mapping[str, object] | None:
    """Recognise an operator that has kernels but no schema in the dispatcher."""
    facts, failure = words.operator, words.failure
    if facts.schema or not facts.kernels:
        return None
    others = [n for n in _names(failure, facts.namespace) if n != words.op and _has_def(failure, n)]
    return saw(kernel_at=latest_kernel(failure, words.op, first=True), meant=nearest(words.op, others))


@looks_for("WHY104")
def never_defined(words: Words) -> Mapping[str, object] | None:
    """Find out why nothing in this process has defined an operator."""
    failure, namespace = words.failure, words["ns"]
    if failure.search("Tried to instantiate class") is not None:
        return saw(case="class")
    if namespace in ("aten", "prims"):
        return {"case": "no version", **_other_version(failure, words.op)}
    source = _source_of(words)
    package, installed = package_of(namespace)
    loads = _failed_loads(words)
    if source is None and not installed and 0 < len(loads) < 4:
        return {"case": "load", **_load_words(loads[0])}
    return saw(
        **(_source_words(failure, source) if source is not None else {}),
        package=package,
        installed=installed,
        other_package=package != namespace,
        names=listed(_names(failure, namespace)),
        loaded=tuple(f"loaded: {event.subject}" for event in failure.of("loaded library")[:3]),
        registers=re.search(r"\b(register_\w+|get_kernel|impl)\(", f"{failure.call} {words.line}"),
    )


def _source_of(words: Words) -> Position | None:
    frames = words.failure.frames
    if not frames or not Path(frames[0].file).is_file():
        return None
    return find_definition(str(Path(frames[0].file).parent), words["ns"], words["local"])


def _source_words(failure: Failure, source: Position) -> dict[str, object]:
    """Return why a definition in the sources has not run: it is below the call, or its module is not imported."""
    inner = next((frame for frame in reversed(failure.frames) if Path(frame.file).name == source.file), None)
    above = ""
    if inner is not None:
        reached = max(frame.line for frame in failure.frames if frame.file == inner.file)
        above = "later" if reached < source.line else "not run"
    module = source.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    python = source.file.endswith(".py")
    return {"case": "source", "defining": source, "above": above, "module": module if python else ""}


def _other_version(failure: Failure, name: str) -> dict[str, object]:
    """Return the version of PyTorch with an operator or overload that this version lacks."""
    last, here = last_version_with(name).removeprefix("torch-"), failure.registry.version.partition("+")[0]
    if not last:
        return {"here": here}
    newer = [int(part) for part in last.split(".")[:2]] > [int(part) for part in here.split(".")[:2]]
    return {"case": "other version", "last": last, "newer": newer, "here": here}


@looks_for("WHY105")
def missing_overload(words: Words) -> Mapping[str, object]:
    """Find another overload, and another version of PyTorch with this overload."""
    failure, packet, overload = words.failure, words.op, words["overload"]
    overloads = [name or "default" for name in failure.registry.overloads(packet)]
    alike = nearest(overload.lower(), [name.lower() for name in overloads])
    other = next((name for name in overloads if name.lower() == alike), overloads[0] if len(overloads) == 1 else "")
    ours = packet.startswith(("aten::", "prims::"))
    changed = _other_version(failure, f"{packet}.{overload}") if ours else {}
    return saw(overloads=listed(overloads, most=12), other=other, **changed)


@looks_for("WHY107")
def no_overload(words: Words) -> Mapping[str, object]:
    """Find the argument that does not fit, and the overload that the call chose."""
    failure, wanted, position = words.failure, words["wanted"], words["position"]
    source = nth_argument(failure.call, int(position)) if position else ""
    chosen = re.search(rf"\.{re.escape(words.base)}(\.\w+)\($", failure.call.partition("(")[0] + "(")
    several = len(failure.registry.overloads(words.op)) > 1
    kinds = {"float": "float", "int": "int", "str": "str", "bool": "bool", "number": "float"}
    return saw(
        given_source=source,
        value=source or words["argument"],
        converter=kinds.get(wanted, "") if words["given"] != "str" else "",
        chosen=chosen[1] if chosen and several else "",
        general_call=failure.call.replace(f"{chosen[1]}(", "(", 1) if chosen else "",
        declarations=tuple(f"schema: {text}" for text in dict.fromkeys(re.findall(r"Declaration: (.+)", failure.text)))[
            :4
        ],
    )
