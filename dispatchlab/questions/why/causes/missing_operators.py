"""Operators and overloads that are not there: what the rows cannot see in the message and the registry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from dispatchlab.live.failure.definition_search import find_definition, last_version_with, package_of
from dispatchlab.model.failure import Event, Failure, Position, operator_name
from dispatchlab.questions.why.cause import looks_for, saw
from dispatchlab.questions.why.wording import could_not_run, latest_kernel, listed, nearest, nth_argument

_ABSENT = (
    r"'_OpNamespace' '(?P<ns>\w+)' object has no attribute '(?P<name>\w+)'",
    r"operator (?P<ns>\w+)::(?P<name>\w+)(?:\.\w+)? does not exist",
    r"Could not find schema for (?P<ns>\w+)::(?P<name>\w+)",
    r"Could not find the operator (?P<ns>\w+)::(?P<name>\w+)",
    r"No such operator (?P<ns>\w+)::(?P<name>\w+)",
    r"Unknown builtin op: (?P<ns>\w+)::(?P<name>\w+)",
    r"Tried to instantiate class '(?P<ns>\w+)\.(?P<name>\w+)', but it does not exist",
)


def _absent(failure: Failure) -> tuple[str, str]:
    """Return the namespace and name of the operator that is not there; empty for another failure."""
    found = next(filter(None, map(failure.search, _ABSENT)), None)
    if found is not None:
        return found["ns"], found["name"]
    scripted = failure.search(r"object has no attribute (\w+):\n.*?torch\.ops\.(\w+)\.\1\b")
    return ("", "") if scripted is None else (scripted[2], scripted[1])


def _names(failure: Failure, namespace: str) -> list[str]:
    """Return the operators of a namespace that have a def, without overloads."""
    return sorted({name.partition(".")[0] for name in failure.registry.names(namespace)})


def _has_def(failure: Failure, name: str) -> bool:
    facts = failure.registry.operator(name)
    return facts is not None and bool(facts.schema)


def _failed_loads(failure: Failure, namespace: str) -> tuple[Event, ...]:
    """Return the imports and libraries that failed before, those whose name is like a namespace's first."""
    failed = failure.of("missing module", "failed import", "failed library")
    return tuple(sorted(failed, key=lambda event: namespace.lower() not in event.subject.lower()))


@looks_for("WHY101")
def failed_extension(failure: Failure) -> Mapping[str, object] | None:
    """Recognise an operator that is missing since a module or library that defines it did not load."""
    namespace, name = _absent(failure)
    loads = _failed_loads(failure, namespace) if name else ()
    if not loads:
        return None
    subject, wanted = (re.sub(r"[^a-z0-9]", "", text.lower()) for text in (loads[0].subject, namespace))
    if wanted not in subject and (len(subject) <= 3 or subject not in wanted):
        return None
    return saw(op=f"{namespace}::{name}", **_load_words(loads[0]))


def _load_words(load: Event) -> dict[str, object]:
    first = load.detail.splitlines()[0] if load.detail else ""
    if load.kind == "missing module":
        fix = f"install what provides {load.subject}, and `import {load.subject}` without catching ImportError"
    elif load.kind == "failed library":
        fix = f"torch.ops.load_library({load.subject!r}) must succeed before the first use: {first[:200]}"
    else:
        fix = f"`import {load.subject}` must succeed before the first use: {first[:200]}"
    return {
        "kind": load.kind,
        "load": load.subject,
        "load_at": f" at {load.at}" if load.at else "",
        "load_fix": fix,
        "load_line": f"{load.at or load.subject}: {first or load.kind}",
    }


@looks_for("WHY102")
def collected(failure: Failure) -> Mapping[str, object] | None:
    """Recognise an operator or kernel whose `Library` was destroyed; a crash in its call, by the text of the line."""
    namespace, absent = _absent(failure)
    name = f"{namespace}::{absent}" if absent else could_not_run(failure)[0].partition(".")[0]
    events = failure.of("collected")
    if name:
        facts = failure.registry.operator(name)
        held = () if absent or facts is None else facts.kernels
        gone = [e for e in events if e.subject.partition(".")[0] == name and e.detail not in held]
    elif failure.search(r"Segmentation fault|Aborted") is not None:
        line = failure.at.text if failure.at else ""
        named = [e for e in events if e.subject.partition("::")[2].partition(".")[0] in line]
        gone = named or list(events)
    else:
        return None
    if not gone:
        return None
    is_kernel = bool(name) and not absent
    kind, name = "impl" if is_kernel else "define", name or gone[-1].subject
    made = next((e for e in reversed(failure.registrations(name)) if e.kind == kind and e.at), None)
    return saw(
        op=name,
        collected_key=gone[-1].detail if is_kernel else "",
        made_at=f" at {made.at}" if made else "",
        gone_at=gone[-1].at,
    )


@looks_for("WHY103")
def near_name(failure: Failure) -> Mapping[str, object] | None:
    """Recognise an operator whose name is almost that of another, or that another namespace has."""
    namespace, name = _absent(failure)
    absent = f"{namespace}::{name}"
    if not name or failure.registrations(absent) or _source_of(failure, namespace, name):
        return None
    names = _names(failure, namespace)
    made = sorted({e.subject.partition(".")[0] for e in failure.of("define", "custom_op")})
    elsewhere = [other for other in made if other.endswith(f"::{name}")]
    other = nearest(absent, [n for n in names if n != absent]) or next(iter(elsewhere), "")
    if not other or not _has_def(failure, other) or (namespace == "aten" and last_version_with(absent)):
        return None
    return saw(op=other, absent=absent, absent_dotted=f"{namespace}.{name}", names=names, namespace=namespace)


@looks_for("WHY109")
def no_definition(failure: Failure) -> Mapping[str, object] | None:
    """Recognise an operator that has kernels in the dispatcher and no schema."""
    namespace, base = _absent(failure)
    name = f"{namespace}::{base}"
    facts = failure.registry.operator(name) if base else None
    if facts is None or facts.schema or not facts.kernels:
        return None
    others = [n for n in _names(failure, facts.namespace) if n != name and _has_def(failure, n)]
    return saw(op=name, kernel_at=latest_kernel(failure, name, first=True), meant=nearest(name, others))


@looks_for("WHY104")
def never_defined(failure: Failure) -> Mapping[str, object] | None:
    """Recognise an operator that nothing in this process has defined."""
    namespace, name = _absent(failure)
    if not name:
        return None
    words = {"op": f"{namespace}::{name}", "namespace": namespace, "name": name}
    if failure.search("Tried to instantiate class") is not None:
        return saw(case="class", **words)
    if namespace in ("aten", "prims"):
        other = _other_version(failure, f"{namespace}::{name}")
        return saw(**{"case": "no version", "here": _here(failure), **words, **other})
    source = _source_of(failure, namespace, name)
    package, installed = package_of(namespace)
    loads = _failed_loads(failure, namespace)
    if source is None and not installed and 0 < len(loads) < 4:
        return saw(case="load", **words, **_load_words(loads[0]))
    return saw(
        **words,
        **(_source_words(failure, source) if source is not None else {}),
        package=package,
        installed=installed,
        other_package=package != namespace,
        names=listed(_names(failure, namespace)),
        loaded=tuple(f"loaded: {event.subject}" for event in failure.of("loaded library")[:3]),
        registers=re.search(
            r"\b(register_\w+|get_kernel|impl)\(", f"{failure.call} {failure.at.text if failure.at else ''}"
        ),
    )


def _source_of(failure: Failure, namespace: str, name: str) -> Position | None:
    if not failure.frames or not Path(failure.frames[0].file).is_file():
        return None
    return find_definition(str(Path(failure.frames[0].file).parent), namespace, name)


def _source_words(failure: Failure, source: Position) -> dict[str, object]:
    """Return why a definition that is in the sources has not run: it stands below, or its module is not imported."""
    inner = next((frame for frame in reversed(failure.frames) if Path(frame.file).name == source.file), None)
    above = ""
    if inner is not None:
        reached = max(frame.line for frame in failure.frames if frame.file == inner.file)
        above = "later" if reached < source.line else "not run"
    module = source.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    python = source.file.endswith(".py")
    return {"case": "source", "defining": source, "above": above, "module": module if python else ""}


def _here(failure: Failure) -> str:
    return failure.registry.version.partition("+")[0]


def _other_version(failure: Failure, name: str) -> dict[str, object]:
    """Return which PyTorch has an operator or overload that this one has not; empty where none has."""
    last = last_version_with(name).removeprefix("torch-")
    if not last:
        return {}
    here = _here(failure)
    newer = [int(part) for part in last.split(".")[:2]] > [int(part) for part in here.split(".")[:2]]
    return {"case": "other version", "last": last, "newer": newer, "here": here}


@looks_for("WHY105")
def missing_overload(failure: Failure) -> Mapping[str, object] | None:
    """Recognise an overload that this PyTorch or package does not have."""
    found = failure.search(r"The underlying op of '([\w.]+)' has no overload name '(\w+)'")
    if found is None:
        return None
    packet, overload = operator_name(found[1]), found[2]
    overloads = [name or "default" for name in failure.registry.overloads(packet)]
    alike = nearest(overload.lower(), [name.lower() for name in overloads])
    other = next((name for name in overloads if name.lower() == alike), overloads[0] if len(overloads) == 1 else "")
    ours = packet.startswith(("aten::", "prims::"))
    changed = _other_version(failure, f"{packet}.{overload}") if ours else {}
    return saw(op=packet, overload=overload, overloads=listed(overloads, most=12), other=other, **changed)


@looks_for("WHY107")
def no_overload(failure: Failure) -> Mapping[str, object] | None:
    """Recognise a call whose arguments no schema accepts."""
    found = failure.search(
        r"(\w+::\w+)\(\) Expected a value of type '([^']+)' for argument '(\w+)' but instead found type '([\w.]+)'"
        r"(?:\.\nPosition: (\d+))?"
    )
    if found is None:
        return None
    name, wanted, argument, given, position = found.groups()
    source = nth_argument(failure.call, int(position)) if position else ""
    chosen = re.search(rf"\.{re.escape(name.partition('::')[2])}(\.\w+)\($", failure.call.partition("(")[0] + "(")
    several = chosen is not None and len(failure.registry.overloads(name)) > 1
    kinds = {"float": "float", "int": "int", "str": "str", "bool": "bool", "number": "float"}
    return saw(
        op=name,
        wanted=wanted,
        argument=argument,
        given=given,
        given_source=source,
        value=source or argument,
        converter=kinds.get(wanted, "") if given != "str" else "",
        chosen=chosen[1] if chosen and several else "",
        general_call=failure.call.replace(f"{chosen[1]}(", "(", 1) if chosen else "",
        declarations=tuple(f"schema: {text}" for text in dict.fromkeys(re.findall(r"Declaration: (.+)", failure.text)))[
            :4
        ],
    )
