"""Gradients: conditions that the rows cannot express."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from inspect import getblock
from linecache import getlines
from typing import Final

from dispatchlab.model.failure import Event, Failure, OperatorFacts
from dispatchlab.questions.why.cause import looks_for, saw
from dispatchlab.questions.why.facts import Words
from dispatchlab.questions.why.wording import function_of, signature_of


@looks_for("WHY506")
@looks_for("WHY507")
@looks_for("WHY510")
def failing_backward(words: Words) -> Mapping[str, object]:
    """Find the operator with the failing backward; another function has none."""
    failure = words.failure
    event, name = _backward(words)
    named = re.sub(r"^GeneratedBackwardFor_([^_]+)_([^_]+)_.*", r"\1::\2", name)
    whose, at = event.subject or named or "a function", f" at {event.at}" if event.at else ""
    by_torch = bool(event.subject) or name.startswith("GeneratedBackwardFor_")
    counts = _counts(failure, own=by_torch and "formula for" not in failure.text)
    return saw(op=event.subject, whose=whose, backward_at=at, target=_input_of(failure, event.subject, whose), **counts)


def _input_of(failure: Failure, operator: str, function: str) -> str:
    """Return the input whose gradient does not fit; `x` if its name is unknown."""
    facts, index = failure.registry.operator(operator), failure.search(r"gradient at index (\d+)")
    forward = re.search(rf"class {function}\(.*?def forward\((?:ctx, )?([^)]*)\)", failure.source, re.DOTALL)
    taken = signature_of(facts.schema) if facts else forward[1] if forward else ""
    names: dict[int, str] = dict(enumerate(re.findall(r"(\w+)(?:[:=][^,]*)?(?:, |$)", taken)))
    return names.get(int(index[1]), "x") if index is not None else "x"


def _backward(words: Words) -> tuple[Event, str]:
    """Return the registration of the backward that fails, if it is an operator's, and PyTorch's name for it."""
    failure = words.failure
    returned = failure.search(r"unction (\w+?)(?:Backward)? returned an|formula for ([\w.]+) returned a")
    name = "" if returned is None else returned[1] or f"GeneratedBackwardFor_{returned[2].replace('.', '_')}_"
    inner, lines = function_of(failure, failure.at), words["lines"]

    def fits(event: Event) -> tuple[bool, bool, bool]:
        namespace, _, base = event.subject.partition(".")[0].partition("::")
        return f"For_{namespace}_{base}_" in name, event == inner, re.search(rf"\b{base}\b", lines) is not None

    registered = [event for event in reversed(failure.of("function")) if event.detail == "backward"]
    known = registered if not name or "GeneratedBackwardFor" in name else []
    return max(known, key=fits, default=Event("function", "")), name


def _counts(failure: Failure, *, own: bool) -> dict[str, object]:
    """Return the number of gradients that a backward must return, and the number that it returns.

    The function that PyTorch makes for an operator has one input more; since 2.15 PyTorch does not count its own.
    """
    found = failure.search(r"incorrect number of gradients \(expected (?:\d+ or )?(\d+), got (\d+)\)")
    wanted, given = (int(count) - own for count in found.groups()) if found is not None else (0, 0)
    plain = ", ".join(["grad", *["None"] * (wanted - 1)])
    return {"wanted_count": wanted, "given_count": given, "plain_gradients": plain}


@looks_for("WHY508")
def not_differentiable(words: Words) -> Mapping[str, object] | None:
    """Find the operator that lost the gradient, if one did."""
    failure = words.failure
    cuts = " ".join(event.subject for event in failure.of("gradient cut") if event.detail.startswith("cuts"))
    cut_by = [
        f"{namespace}::{base}" for namespace, base in re.findall(r"\btorch\.ops\.((?!aten|prims)\w+)\.(\w+)", cuts)
    ]
    noted = dict.fromkeys(event.subject for event in failure.of("impl", "custom_op", "define"))
    for name in (*cut_by, *reversed(noted)):
        facts = failure.registry.operator(name)
        found = None if facts is None or _is_cut_elsewhere(failure, facts) else _takes_gradient(failure, facts, cut_by)
        if found is not None and facts is not None:
            return saw(op=facts.name, **found)
    return None


_CUTS: Final = re.compile(r"\.(?:detach|item|numpy|tolist)\(|\.data\b|\btorch\.(?:as_)?tensor\(|\bfloat\(|\bno_grad\b")


def _is_cut_elsewhere(failure: Failure, facts: OperatorFacts) -> bool:
    """Return whether the expression that cuts the loss off, or its function, does so without this operator."""
    for event in failure.of("gradient cut"):
        lines = getlines(event.at.file) if event.at is not None else []
        name = re.match(r"(\w+)\(", event.subject)
        first = next((at for at, line in enumerate(lines) if name and line.startswith(f"def {name[1]}(")), len(lines))
        text = event.subject + "".join(getblock(lines[first:]) if lines[first:] else ())
        return bool(_CUTS.search(text)) and not re.search(rf"\b{facts.packet.partition('::')[2]}\b", text)
    return False


def _takes_gradient(failure: Failure, facts: OperatorFacts, cut_by: Sequence[str]) -> dict[str, object] | None:
    """Return, from the registry, why an operator's result has no gradient; None if it has one."""
    impls = [e for e in failure.registrations(facts.name) if e.kind == "impl" and e.detail != "Meta"]
    event = min(impls, key=lambda e: (not e.detail.startswith("Autograd"), e.detail == "Autograd"), default=None)
    key = event.detail if event else ""
    called = [e.detail for e in failure.of("called") if e.subject.partition(".")[0] == facts.packet]
    if not key.startswith("Autograd") and facts.packet not in cut_by and "gradients" not in "".join(called):
        return None
    dtype = next((e.detail for e in failure.of("integer result") if e.subject == facts.packet), "")
    role = "none"
    if key.startswith("Autograd"):
        role = "autograd kernel"
    elif "CompositeImplicitAutograd" in facts.kernels:
        role = "composite" if key in ("", "CompositeImplicitAutograd") else "replaced composite"
    elif facts.autograd or any(kernel.startswith("Autograd") for kernel in facts.kernels):
        role = ""
    at = f" at {event.at}" if event and event.at else ""
    hidden = dtype or (role and not facts.custom_op)
    return {"dtype": dtype, "key": key, "kernel_at": at, "role": role} if hidden else None
