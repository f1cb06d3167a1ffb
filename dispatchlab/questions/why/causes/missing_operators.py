"""Operators and overloads that are not there, and arguments that no overload takes."""

from __future__ import annotations

import re
from pathlib import Path

from dispatchlab.live.failure.definition_search import find_definition, last_version_with, package_of
from dispatchlab.model.failure import Event, Failure, Fix, Position, operator_name
from dispatchlab.questions.why.cause import Explanation, cause
from dispatchlab.questions.why.causes.wording import (
    arguments_of,
    failed_loads,
    line_of_definition,
    listed,
    nearest,
    nth_argument,
)

_ABSENT = (
    r"'_OpNamespace' '(?P<ns>\w+)' object has no attribute '(?P<name>\w+)'",
    r"operator (?P<ns>\w+)::(?P<name>\w+)(?:\.\w+)? does not exist",
    r"Could not find schema for (?P<ns>\w+)::(?P<name>\w+)",
    r"Could not find the operator (?P<ns>\w+)::(?P<name>\w+)",
    r"No such operator (?P<ns>\w+)::(?P<name>\w+)",
    r"Unknown builtin op: (?P<ns>\w+)::(?P<name>\w+)",
    r"Tried to instantiate class '(?P<ns>\w+)\.(?P<name>\w+)', but it does not exist",
)


def _absent(failure: Failure) -> tuple[str, str] | None:
    for pattern in _ABSENT:
        found = failure.search(pattern)
        if found is not None:
            return found["ns"], found["name"]
    scripted = failure.search(r"object has no attribute (\w+):\n.*?torch\.ops\.(\w+)\.\1\b")
    return None if scripted is None else (scripted[2], scripted[1])


def _names(failure: Failure, namespace: str) -> list[str]:
    """Return the operators of a namespace that have a def, without overloads."""
    return sorted({name.partition(".")[0] for name in failure.registry.names(namespace)})


@cause("WHY101", "an extension failed to load", wrong="registering a kernel: the whole extension is missing")
def failed_extension(failure: Failure) -> Explanation | None:
    """Recognise an operator that is missing since a module or library that defines it did not load."""
    absent = _absent(failure)
    loads = failed_loads(failure, absent[0]) if absent is not None else ()
    if absent is None or not loads or not _belongs(loads[0], absent[0]):
        return None
    return _failed_load(absent, loads[0], "")


def _belongs(load: Event, namespace: str) -> bool:
    subject, wanted = (re.sub(r"[^a-z0-9]", "", text.lower()) for text in (load.subject, namespace))
    return wanted in subject or (len(subject) > 3 and subject in wanted)


def _failed_load(absent: tuple[str, str], load: Event, maybe: str) -> Explanation:
    name = "::".join(absent)
    what = "torch.ops.load_library" if load.kind == "failed library" else "the import"
    at = "" if load.at is None else f" at {load.at}"
    return Explanation(
        f"{name} is not defined: {what} of {load.subject}{maybe} failed earlier{at}, and the program went on",
        (Fix(text=_load_fix(load)),),
        (f"{load.at or load.subject}: {load.detail.splitlines()[0] if load.detail else load.kind}",),
    )


def _load_fix(load: Event) -> str:
    first = load.detail.splitlines()[0][:200] if load.detail else ""
    if load.kind == "missing module":
        return f"install what provides {load.subject}, and `import {load.subject}` without catching ImportError"
    if load.kind == "failed library":
        return f"torch.ops.load_library({load.subject!r}) must succeed before the first use: {first}"
    return f"`import {load.subject}` must succeed before the first use: {first}"


@cause("WHY102", "the library of an operator was collected", wrong="defining the operator again at each call")
def collected(failure: Failure) -> Explanation | None:
    """Recognise an operator or kernel whose `Library` was destroyed."""
    absent = _absent(failure)
    ran = failure.search(r"Could not run '([\w:.]+)' with arguments from the '(\w+)'")
    if absent is None and ran is None and (crash := _crash_after_release(failure)):
        return crash
    name = "::".join(absent) if absent else ran[1].partition(".")[0] if ran else ""
    facts = failure.registry.operator(name) if name else None
    gone = [
        event
        for event in failure.of("collected")
        if event.subject.partition(".")[0] == name and (absent or facts is None or event.detail not in facts.kernels)
    ]
    if not gone:
        return None
    what, kind = ("was defined", "define") if absent else (f"got its kernel for {gone[-1].detail}", "impl")
    return _released(failure, name, what, kind, gone[-1])


def _released(failure: Failure, name: str, what: str, kind: str, gone: Event) -> Explanation:
    made = next((e for e in reversed(failure.registrations(name)) if e.kind == kind and e.at), None)
    where = f" at {made.at}" if made is not None else ""
    call = f'torch.library.impl("{name}", "{gone.detail}")(kernel)'
    call = f'torch.library.define("{name}", SCHEMA)' if kind == "define" else call
    return Explanation(
        f"{name} {what}{where} and released when its Library was collected: no call finds it",
        (
            Fix(text='LIB = torch.library.Library(NAMESPACE, "FRAGMENT")  # a variable of the module keeps it alive'),
            Fix(text=f"or {call}, which is kept by PyTorch"),
        ),
        (f"{gone.at}: the Library went",) if gone.at else (),
    )


def _crash_after_release(failure: Failure) -> Explanation | None:
    """Recognise a crash in a call of an operator that is gone, by the text of the line."""
    gone = failure.of("collected")
    if not gone or failure.search(r"Segmentation fault|Aborted") is None:
        return None
    calls = " ".join(frame.text for frame in failure.frames[-1:])
    last = next((e for e in reversed(gone) if e.subject.partition("::")[2].partition(".")[0] in calls), gone[-1])
    return _released(failure, last.subject, "was defined", "define", last)


@cause("WHY103", "an operator of another name", wrong="defining a second operator")
def near_name(failure: Failure) -> Explanation | None:
    """Recognise an operator whose name is almost that of another, or that another namespace has."""
    absent = _absent(failure)
    if absent is None or failure.registrations("::".join(absent)) or _source_of(failure, *absent):
        return None
    namespace, name = absent
    names = _names(failure, namespace)
    made = sorted({e.subject.partition(".")[0] for e in failure.of("define", "custom_op")})
    elsewhere = [other for other in made if other.endswith(f"::{name}")]
    other = nearest(f"{namespace}::{name}", [n for n in names if n != f"{namespace}::{name}"]) or (
        elsewhere[0] if elsewhere else ""
    )
    facts = failure.registry.operator(other) if other else None
    if facts is None or not facts.schema or (namespace == "aten" and last_version_with("::".join(absent))):
        return None
    old, new = f"{namespace}.{name}", other.replace("::", ".")
    return Explanation(
        f"{namespace}::{name} is not defined; {other} is{line_of_definition(facts, failure)}",
        (Fix(text=f"torch.ops.{new}", old=old, new=new),),
        () if names else (f"nothing has registered in the namespace {namespace}",),
    )


@cause("WHY106", "TorchScript meets an operator that is not there", wrong="scripting the model again")
def torchscript_unknown(failure: Failure) -> Explanation | None:
    """Recognise a scripted or exported program whose operator is not registered in this process."""
    found = failure.search(r"Unknown builtin op: (\w+::\w+)")
    facts = failure.registry.operator(found[1]) if found is not None else None
    if found is None or (facts is not None and facts.schema):
        return None
    name = found[1]
    loading = "torch.jit.load" if "jit.load" in f"{failure.call} {failure.at.text if failure.at else ''}" else ""
    return Explanation(
        f"{loading or 'TorchScript'} needs {name}, which is not defined in this process: "
        "the file holds the call, not the operator",
        (Fix(text=f"import the module that defines {name}, or torch.ops.load_library(PATH), before torch.jit.load"),),
    )


@cause("WHY109", "kernels of an operator that has no def", wrong="another kernel: no call can reach one")
def no_definition(failure: Failure) -> Explanation | None:
    """Recognise an operator that has kernels in the dispatcher and no schema."""
    absent = _absent(failure)
    name = "::".join(absent) if absent else ""
    facts = failure.registry.operator(name) if name else None
    if facts is None or facts.schema or not facts.kernels:
        return None
    impl = next((e for e in failure.registrations(name) if e.kind == "impl" and e.at), None)
    at = f" at {impl.at}" if impl else ""
    others = [n for n in _names(failure, facts.namespace) if n != name and _has_def(failure, n)]
    meant = nearest(name, others)
    return Explanation(
        f"{name} has a kernel for {listed(facts.kernels)}{at}, and no def: nothing gave it a schema",
        (
            Fix(text=f'torch.library.define("{name}", "(Tensor x) -> Tensor")  # your schema, before the kernel'),
            *((Fix(text=f'or register the kernel for "{meant}", which has a def'),) if meant else ()),
        ),
    )


def _has_def(failure: Failure, name: str) -> bool:
    facts = failure.registry.operator(name)
    return facts is not None and bool(facts.schema)


@cause("WHY104", "nothing defines an operator", wrong="register_fake or a kernel: there is no operator to have one")
def never_defined(failure: Failure) -> Explanation | None:
    """Recognise an operator that nothing in this process has defined."""
    absent = _absent(failure)
    if absent is None:
        return None
    namespace, name = absent
    if (failure.search("Tried to instantiate class")) is not None:
        return Explanation(
            f"the class {namespace}.{name} is not registered in this process: no library with it was loaded",
            (Fix(text="torch.classes.load_library(PATH)  # or import the package that registers it, before this"),),
        )
    if namespace in ("aten", "prims"):
        here = failure.registry.version.partition("+")[0]
        return _other_version(failure, f"{namespace}::{name}") or Explanation(
            f"{namespace}::{name} is not defined: no PyTorch from 2.4 on has it",
            (
                Fix(
                    text=f'if hasattr(torch.ops.{namespace}, "{name}"): ...  # {here} does not have it; or drop the use'
                ),
            ),
        )
    source = _source_of(failure, namespace, name)
    package, installed = package_of(namespace)
    loads = failed_loads(failure, namespace)
    if source is None and not installed and 0 < len(loads) < 4:
        return _failed_load(absent, loads[0], ", which may define it,")
    names = _names(failure, namespace)
    has = f"the namespace has {listed(names)}" if names else f"nothing has registered in the namespace {namespace}"
    evidence = tuple(f"loaded: {event.subject}" for event in failure.of("loaded library")[:3])
    if source is not None:
        has, fix = _of_source(failure, source)
    elif package:
        missing = "" if installed else f"  # {package} is not installed here"
        fix = Fix(text=f"import {package}{missing}", code=f"import {package}" if installed else "")
        has = f"{package}, which defines it, was not imported" if namespace != package or installed else has
    else:
        fix = Fix(
            text=f"import the package that defines {namespace}::{name} before this line, "
            "or torch.ops.load_library(PATH)"
        )
    registers = re.search(
        r"\b(register_\w+|get_kernel|impl)\(", f"{failure.call} {failure.at.text if failure.at else ''}"
    )
    define = Fix(text=f'or define it before: torch.library.define("{namespace}::{name}", SCHEMA)')
    return Explanation(
        f"{namespace}::{name} is not defined in this process: {has}", (fix, *((define,) if registers else ())), evidence
    )


def _source_of(failure: Failure, namespace: str, name: str) -> Position | None:
    if not failure.frames or not Path(failure.frames[0].file).is_file():
        return None
    return find_definition(str(Path(failure.frames[0].file).parent), namespace, name)


def _of_source(failure: Failure, source: Position) -> tuple[str, Fix]:
    """Return why a definition that is in the sources has not run, and what to do."""
    inner = next((frame for frame in reversed(failure.frames) if Path(frame.file).name == source.file), None)
    if inner is not None:
        later = max(frame.line for frame in failure.frames if frame.file == inner.file) < source.line
        why = "comes later than this call" if later else "has not run"
        return f"{source} defines it and {why}", Fix(text=f"move the definition of {source} above this call")
    if not source.file.endswith(".py"):
        return (
            f"{source} defines it, and the library that is built of it was not loaded",
            Fix(text="torch.ops.load_library(PATH)  # or import the module that is built of it, before this line"),
        )
    module = source.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"{source} defines it and was not imported", Fix(text=f"import {module}", code=f"import {module}")


@cause("WHY105", "an overload that is not there", wrong="importing an extension: the operator itself is there")
def missing_overload(failure: Failure) -> Explanation | None:
    """Recognise an overload that this PyTorch or package does not have."""
    found = failure.search(r"The underlying op of '([\w.]+)' has no overload name '(\w+)'")
    if found is None:
        return None
    packet = operator_name(found[1])
    own = not packet.startswith(("aten::", "prims::"))
    changed = None if own else _other_version(failure, f"{packet}.{found[2]}")
    if changed is not None:
        return changed
    overloads = [name or "default" for name in failure.registry.overloads(packet)]
    other = nearest(found[2].lower(), [name.lower() for name in overloads])
    other = next((name for name in overloads if name.lower() == other), overloads[0] if len(overloads) == 1 else "")
    dotted = packet.partition("::")[2]
    facts = failure.registry.operator(packet)
    return Explanation(
        f"{packet} has no overload {found[2]}: it has {listed(overloads, most=12)}{line_of_definition(facts, failure)}",
        (
            *((Fix(text=f"{dotted}.{other}", old=f"{found[2]}", new=other),) if other else ()),
            Fix(text=f"torch.ops.{packet.replace('::', '.')}(...)  # chooses the overload by the arguments"),
        ),
    )


def _other_version(failure: Failure, name: str) -> Explanation | None:
    """Return what to say of an operator that another version of PyTorch has."""
    version = last_version_with(name)
    if not version:
        return None
    here = failure.registry.version.partition("+")[0]
    last = version.removeprefix("torch-")
    newer = [int(part) for part in last.split(".")[:2]] > [int(part) for part in here.split(".")[:2]]
    packet, _, overload = name.partition(".")
    overloads = [known or "default" for known in failure.registry.overloads(packet)]
    what = f"{packet} has no overload {overload}" if overload else f"{name} does not exist"
    why = f"PyTorch {last} has it" if newer else f"it was removed or renamed, PyTorch {last} is the last with it"
    dotted = f"torch.ops.{packet.replace('::', '.')}"
    namespace, _, base = packet.partition("::")
    guard = f'hasattr(torch.ops.{namespace}, "{base}")' if not overload else f"{overload!r} in {dotted}.overloads()"
    return Explanation(
        f"{what} in PyTorch {here}: {why}",
        (Fix(text=f"if {guard}: ...  # or drop the use"), Fix(text=f"or install torch=={last}.*")),
        (f"overloads of {packet}: {listed(overloads, most=12)}",) if overload else (),
    )


@cause("WHY107", "no overload takes these arguments", wrong="registering a kernel: no overload was chosen yet")
def no_overload(failure: Failure) -> Explanation | None:
    """Recognise a call whose arguments no schema accepts."""
    found = failure.search(
        r"(\w+::\w+)\(\) Expected a value of type '([^']+)' for argument '(\w+)' but instead found type '([\w.]+)'"
        r"(?:\.\nPosition: (\d+))?"
    )
    if found is None:
        return None
    name, wanted, argument, given, position = found.groups()
    several = "failed to match any schema" in failure.text
    declarations = list(dict.fromkeys(re.findall(r"Declaration: (.+)", failure.text)))
    source = nth_argument(failure.call, int(position)) if position else ""
    fixes = [_conversion(given, source or argument, wanted, source)]
    chosen = re.search(rf"\.{re.escape(name.partition('::')[2])}(\.\w+)\($", failure.call.partition("(")[0] + "(")
    if chosen and len(failure.registry.overloads(name)) > 1:
        fixes.insert(0, Fix(text=failure.call.replace(f"{chosen[1]}(", "(", 1), old=f"{chosen[1]}(", new="("))
    which = (
        f"no overload of {name} takes {given} for {argument}"
        if several
        else f"the schema of {name} takes {wanted} for {argument}, and the call gives {given}"
    )
    return Explanation(which, tuple(fixes), tuple(f"schema: {text}" for text in declarations[:4]))


def _conversion(given: str, value: str, wanted: str, source: str) -> Fix:
    """Return the call that makes one argument what is wanted."""
    if "Tensor" in wanted and given != "str":
        text = f"torch.from_numpy({value})" if given == "ndarray" else f"torch.as_tensor({value})"
    elif given == "Tensor":
        text = f"{value}.item()"
    else:
        kinds = {"float": "float", "int": "int", "str": "str", "bool": "bool", "number": "float"}
        text = f"{kinds[wanted]}({value})" if wanted in kinds and given != "str" else ""
    if not text:
        return Fix(text=f"give {value} as {wanted}")
    note = "  # convert the array: torch.ops does not" if given == "ndarray" else ""
    return Fix(text=f"{text}{note}", old=source, new=text)


@cause("WHY108", "an argument is missing or too many", wrong="changing the schema's defaults without its callers")
def wrong_arity(failure: Failure) -> Explanation | None:
    """Recognise a call with too few or too many arguments, or with one of another name."""
    found = (
        failure.search(r"(\w+::\w+)\(\) is missing value for argument '(\w+)'.*?Declaration: ([^\n]+)")
        or failure.search(
            r"(\w+::\w+)\(\) expected at most \d+ argument\(s\) but received (\d+).*?Declaration: ([^\n]+)"
        )
        or failure.search(r"(\w+::\w+)\(\) takes \d+ positional argument\(s\) but (\d+) [^\n]*?Declaration: ([^\n]+)")
    )
    if found is None:
        swapped = failure.search(r"Unknown keyword argument '(\w+)' for operator '(\w+::\w+)'. Schema: ([^\n]+)")
        if swapped is None:
            return None
        argument, name, declaration = swapped.groups()
        says = f"gives a keyword argument {argument}, which it does not have"
    else:
        name, argument, declaration = found.groups()
        says = f"gives {argument} arguments" if argument.isdigit() else f"leaves out {argument}"
    needed = ", ".join(f"{argument}={argument}" if keyword else argument for argument, keyword in _needed(declaration))
    made = len({e.detail for e in failure.of("custom_op") if e.subject == name})
    return Explanation(
        f"the call of {name} {says}; its schema is {declaration}",
        (Fix(text=f"torch.ops.{name.replace('::', '.')}({needed})"),),
        tuple(f"{e.at}: custom_op {name}{e.detail}" for e in failure.of("custom_op") if e.subject == name)
        if made > 1
        else (),
    )


def _needed(declaration: str) -> list[tuple[str, bool]]:
    """Return the arguments without a default, and whether each is given by name."""
    positional, _, keywords = declaration.partition("*, ")
    inside = declaration.partition("(")[2]
    return [
        (name, bool(keywords) and f" {name}" not in positional)
        for _, name in arguments_of(declaration)
        if f" {name}=" not in inside
    ]
