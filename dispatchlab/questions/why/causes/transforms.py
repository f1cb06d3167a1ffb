"""vmap, torch.func, functionalization and autocast: what the rows cannot see in the message and the registry."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dispatchlab.model.failure import Event, Failure, Fix
from dispatchlab.questions.why.cause import looks_for, saw
from dispatchlab.questions.why.facts import Words
from dispatchlab.questions.why.wording import in_kernel, listed


@looks_for("WHY608")
def wrong_rule(words: Words) -> Mapping[str, object]:
    """Look for the operator that has a rule for vmap."""
    rules = [event.subject for event in words.failure.of("impl") if event.detail == "FuncTorchBatched"]
    return saw(subject=rules[-1] if rules else "")


@looks_for("WHY610")
def function_in_transform(words: Words) -> Mapping[str, object]:
    """Look for the autograd.Function of a call, and for the operator whose formula was called as one."""
    failure = words.failure
    rules = [e for e in failure.of("function") if e.detail in ("backward", "setup_context")]
    rule = next((e for e in rules if _in_call(failure, e.subject)), None)
    called = re.search(r"(\w+)\.apply\b", words.expression)
    classes = re.findall(r"class (\w+)\([\w.]*Function\)", failure.source)
    return saw(
        function_class=called[1] if called else next(iter(classes), "it"),
        formula_op=rule.subject if rule else "",
        formula_at=rule.at if rule else "",
    )


def _in_call(failure: Failure, name: str) -> bool:
    """Return whether the lines that failed name an operator, or a function that was made one."""
    base = name.partition("::")[2].partition(".")[0]
    return any(re.search(rf"\b{base}\b", frame.text) for frame in failure.frames)


@looks_for("WHY612")
def returns_input(words: Words) -> Mapping[str, object] | None:
    """Recognise an operator that returns an argument or a view of one, and does not say so."""
    failure = words.failure
    found = failure.search(r"(\w+) \(with implementation in [^\n]*?must not also be an input")
    opcheck = failure.search(r"Argument (\w+) is not defined to alias output but was aliasing")
    noted = failure.of("returned alias")
    wrong = "AssertionError" in failure.kinds and noted and failure.of("compiled")
    if not (found or opcheck or wrong):
        return None
    custom = [e.subject for e in failure.of("custom_op") if found and e.subject.endswith(f"::{found[1]}")]
    name = next(iter([*custom, *(event.subject for event in noted)]), found[1] if found else "an operator")
    return saw(op=name, what=opcheck[1] if opcheck else noted[-1].detail if noted else "an argument")


def _autocast_device(event: Event) -> str:
    return event.detail.partition("autocast ")[2].partition(";")[0].partition(",")[0]


@looks_for("WHY621")
def autocast_dtypes(words: Words) -> Mapping[str, object] | None:
    """Recognise a custom operator or an autograd.Function under autocast whose inputs have different dtypes."""
    failure = words.failure
    called = [e for e in failure.of("called") if "autocast" in e.detail and ";" in e.detail]
    if called and (in_kernel(failure, called[-1].subject) or _in_call(failure, called[-1].subject)):
        event, device = called[-1], _autocast_device(called[-1])
        return saw(
            case="operator",
            op=event.subject,
            autocast=device,
            dtypes=event.detail.partition("; ")[2],
            register_autocast=_register_autocast(event.subject, device),
        )
    function = re.search(r"class (\w+)\([\w.]*Function\)", failure.source)
    inner = failure.at.function if failure.at else ""
    if function is None or inner not in ("forward", "backward") or "autocast" not in failure.source:
        return None
    device = "cuda" if "cuda" in failure.source else "cpu"
    message = failure.chain[0].text[:120]
    return saw(case="function", inner=inner, function_class=function[1], autocast=device, message=message)


def _register_autocast(name: str, device: str) -> tuple[Fix]:
    text = f'torch.library.register_autocast("{name}", "{device}", torch.bfloat16)'
    # The call is made again outside of the program's own `with torch.autocast`.
    return (Fix(text=text, code=f'import torch\ntorch.set_autocast_enabled("{device}", True)\n{text}', outer=True),)


@looks_for("WHY622")
def autocast_device(words: Words) -> Mapping[str, object] | None:
    """Recognise a wrong dtype after an operator whose autocast kernel is for another device alone."""
    failure = words.failure
    for event in failure.of("called") if re.search(r"dtype|float|Half|autocast", failure.text + words.line) else ():
        device = _autocast_device(event)
        facts = failure.registry.operator(event.subject) if device else None
        keys = [key for key in facts.kernels if key.startswith("Autocast")] if facts else []
        key = f"Autocast{device.upper()}"
        if keys and key not in keys:
            register = _register_autocast(event.subject, device)
            return saw(
                op=event.subject,
                autocast=device,
                autocast_keys=listed(keys),
                autocast_key=key,
                register_autocast=register,
            )
    return None


@looks_for("WHY623")
def autocast_recursion(words: Words) -> Mapping[str, object] | None:
    """Recognise a kernel for autocast that calls its operator with autocast still on."""
    failure = words.failure
    if "RecursionError" not in failure.kinds:
        return None
    kernels = [e for e in failure.of("function") if e.detail.startswith("Autocast") and e.at]
    repeated = (e for e in kernels if e.at and sum(f.function == e.at.function for f in failure.frames) > 20)
    event = next(repeated, None)
    if event is None:
        return None
    device = event.detail.removeprefix("Autocast").lower()
    return saw(key=event.detail, op=event.subject, kernel_at=event.at, autocast=device)
