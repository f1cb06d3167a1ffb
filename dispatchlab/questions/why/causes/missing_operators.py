"""Operators and overloads that are not there, and arguments that no overload takes."""

from __future__ import annotations

import re

from dispatchlab.model.failure import Event, Failure, Fix, operator_name
from dispatchlab.questions.why.cause import Explanation, cause
from dispatchlab.questions.why.causes.wording import (
    arguments_of,
    failed_loads,
    line_of_definition,
    listed,
    nearest,
)

_ABSENT = (
    r"'_OpNamespace' '(?P<ns>\w+)' object has no attribute '(?P<name>\w+)'",
    r"operator (?P<ns>\w+)::(?P<name>\w+)(?:\.\w+)? does not exist",
    r"Could not find schema for (?P<ns>\w+)::(?P<name>\w+)",
    r"Could not find the operator (?P<ns>\w+)::(?P<name>\w+)",
    r"No such operator (?P<ns>\w+)::(?P<name>\w+)",
)


def _absent(failure: Failure) -> tuple[str, str] | None:
    for pattern in _ABSENT:
        found = failure.search(pattern)
        if found is not None:
            return found["ns"], found["name"]
    return None


@cause("WHY101", "an extension failed to load", wrong="registering a kernel: the whole extension is missing")
def failed_extension(failure: Failure) -> Explanation | None:
    """Recognise an operator that is missing since a module or library that defines it did not load."""
    absent = _absent(failure)
    if absent is None:
        return None
    namespace, name = absent
    loads = failed_loads(failure, namespace)
    if not loads or (len(loads) > 3 and namespace.lower() not in loads[0].subject.lower()):
        return None
    load = loads[0]
    what = "torch.ops.load_library" if load.kind == "failed library" else "the import"
    return Explanation(
        f"{namespace}::{name} is not defined: {what} of {load.subject} failed earlier{_at(load)}, "
        "and the program went on",
        (Fix(text=_load_fix(load)),),
        (f"{load.at or load.subject}: {load.detail.splitlines()[0] if load.detail else load.kind}",),
    )


def _at(event: Event) -> str:
    return "" if event.at is None else f" at {event.at}"


def _load_fix(load: Event) -> str:
    if load.kind == "missing module":
        return f"install what provides {load.subject}, and `import {load.subject}` without catching ImportError"
    if load.kind == "failed library":
        return f"torch.ops.load_library({load.subject!r}) must succeed before the first use: {_first(load.detail)}"
    return f"`import {load.subject}` must succeed before the first use: {_first(load.detail)}"


def _first(text: str) -> str:
    return text.splitlines()[0][:200] if text else ""


@cause("WHY102", "the library of an operator was collected", wrong="defining the operator again at each call")
def collected(failure: Failure) -> Explanation | None:
    """Recognise an operator or kernel whose `Library` was destroyed."""
    absent = _absent(failure)
    name = "::".join(absent) if absent else ""
    if not name and (ran := failure.search(r"Could not run '([\w:.]+)'")):
        name = ran[1].partition(".")[0]
    gone = [e for e in failure.of("collected") if e.subject.partition(".")[0] == name]
    if not name or not gone:
        return None
    made = next((e for e in failure.registrations(name) if e.kind in ("define", "impl") and e.at), None)
    where = f" at {made.at}" if made is not None else ""
    what = "was defined" if absent else "got its kernel"
    return Explanation(
        f"{name} {what}{where} and released when its Library was collected: no call finds it",
        (
            Fix(text="keep the Library in a variable of the module: `_LIB = torch.library.Library(...)`"),
            Fix(text=f'or use torch.library.define("{name}", ...), which keeps it'),
        ),
    )


@cause("WHY103", "an operator of another name", wrong="defining a second operator")
def near_name(failure: Failure) -> Explanation | None:
    """Recognise an operator whose name is almost that of another."""
    absent = _absent(failure)
    if absent is None:
        return None
    namespace, name = absent
    names = sorted({n.partition(".")[0] for n in failure.registry.names(namespace)})
    other = nearest(f"{namespace}::{name}", names)
    if not other:
        return None
    facts = failure.registry.operator(other)
    return Explanation(
        f"{namespace}::{name} is not defined; {other} is{line_of_definition(facts, failure)}",
        (Fix(text=f"torch.ops.{other.replace('::', '.')}", code=""),),
        (f"{namespace} has {listed(names)}",),
    )


@cause("WHY104", "nothing defines an operator", wrong="register_fake or a kernel: there is no operator to have one")
def never_defined(failure: Failure) -> Explanation | None:
    """Recognise an operator that nothing in this process has defined."""
    absent = _absent(failure)
    if absent is None:
        return None
    namespace, name = absent
    names = sorted({n.partition(".")[0] for n in failure.registry.names(namespace)})
    has = f"the namespace has {listed(names)}" if names else f"nothing has registered in the namespace {namespace}"
    loaded = failure.of("loaded library")
    return Explanation(
        f"{namespace}::{name} is not defined in this process: {has}",
        (
            Fix(
                text=f"import the package that defines {namespace}::{name} before this line, "
                "or torch.ops.load_library(PATH)"
            ),
        ),
        tuple(f"loaded: {event.subject}" for event in loaded[:3]),
    )


@cause("WHY105", "an overload that is not there", wrong="importing an extension: the operator itself is there")
def missing_overload(failure: Failure) -> Explanation | None:
    """Recognise an overload that this PyTorch or package does not have."""
    found = failure.search(r"The underlying op of '([\w.]+)' has no overload name '(\w+)'")
    if found is None:
        return None
    packet = operator_name(found[1])
    overloads = [name or "default" for name in failure.registry.overloads(packet)]
    other = nearest(found[2], overloads)
    dotted = packet.replace("::", ".")
    version = f" in PyTorch {failure.registry.version}" if packet.startswith(("aten::", "prims::")) else ""
    return Explanation(
        f"{packet} has no overload {found[2]}{version}: it was removed or renamed in another version",
        (
            Fix(text=f"if {found[2]!r} in torch.ops.{dotted}.overloads(): ...  # or drop the entry"),
            *((Fix(text=f"torch.ops.{dotted}.{other}"),) if other else ()),
        ),
        (f"overloads of {packet}: {listed(overloads, most=12)}",),
    )


@cause("WHY106", "TorchScript meets an operator that is not there", wrong="scripting the model again")
def torchscript_unknown(failure: Failure) -> Explanation | None:
    """Recognise a scripted program whose operator is not registered in this process."""
    found = failure.search(r"Unknown builtin op: (\w+::\w+)")
    if found is None:
        return None
    name = found[1]
    facts = failure.registry.operator(name)
    if facts is not None and facts.schema:
        return None
    loading = "torch.jit.load" if "jit.load" in failure.call or "jit.load" in _texts(failure) else "TorchScript"
    return Explanation(
        f"{loading} needs {name}, which is not defined in this process: the file holds the call, not the operator",
        (Fix(text=f"import the module that defines {name}, or torch.ops.load_library(PATH), before torch.jit.load"),),
    )


def _texts(failure: Failure) -> str:
    return " ".join(frame.text for frame in failure.frames)


@cause("WHY107", "no overload takes these arguments", wrong="registering a kernel: no overload was chosen yet")
def no_overload(failure: Failure) -> Explanation | None:
    """Recognise a call whose arguments no schema accepts."""
    found = failure.search(
        r"(\w+::\w+)\(\) Expected a value of type '([^']+)' for argument '(\w+)' but instead found type '([\w.]+)'"
    )
    if found is None:
        return None
    name, wanted, argument, given = found.groups()
    several = "failed to match any schema" in failure.text
    declarations = re.findall(r"Declaration: (.+)", failure.text)
    which = (
        f"no overload of {name} takes {given} for {argument}"
        if several
        else f"{name} takes {wanted} for {argument}, and the call gives {given}"
    )
    return Explanation(
        which,
        tuple(_conversions(given, argument, wanted)),
        tuple(dict.fromkeys(f"schema: {text}" for text in declarations)),
    )


def _conversions(given: str, argument: str, wanted: str) -> list[Fix]:
    if given == "ndarray":
        return [Fix(text=f"torch.from_numpy({argument})  # or torch.as_tensor({argument}); float(...) for a number")]
    if "Tensor" in wanted:
        return [Fix(text=f"torch.as_tensor({argument})")]
    if given == "Tensor":
        return [Fix(text=f"{argument}.item()  # {wanted} is wanted")]
    return [Fix(text=f"give {argument} as {wanted}, for example {_python(wanted)}({argument})")]


def _python(wanted: str) -> str:
    return {"float": "float", "int": "int", "str": "str", "bool": "bool"}.get(wanted, "convert")


@cause("WHY108", "an argument is missing or too many", wrong="changing the schema's defaults without its callers")
def wrong_arity(failure: Failure) -> Explanation | None:
    """Recognise a call with too few or too many arguments."""
    found = failure.search(
        r"(\w+::\w+)\(\) is missing value for argument '(\w+)'.*?Declaration: ([^\n]+)"
    ) or failure.search(r"(\w+::\w+)\(\) expected at most \d+ argument\(s\) but received (\d+).*?Declaration: ([^\n]+)")
    if found is None:
        return None
    name, what, declaration = found.groups()
    says = f"gives {what} arguments" if what.isdigit() else f"leaves out {what}"
    needed = ", ".join(f"{kind} {name}" for kind, name in arguments_of(declaration))
    return Explanation(
        f"the call of {name} {says}; its schema is {declaration}",
        (Fix(text=f"torch.ops.{name.replace('::', '.')}({needed})"),),
    )
