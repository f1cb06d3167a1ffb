"""Calls that find no kernel: what the rows cannot see in the message and the registry."""

from __future__ import annotations

from collections.abc import Mapping

from dispatchlab.model.failure import Event, Failure
from dispatchlab.questions.why.cause import looks_for, saw
from dispatchlab.questions.why.wording import could_not_run, latest_kernel, listed


@looks_for("WHY310")
def backward_of_override(failure: Failure) -> Mapping[str, object] | None:
    """Recognise a backward operator that only an override of its composite makes autograd call."""
    name, key = could_not_run(failure)
    forward = failure.registry.operator(name.removesuffix("_backward")) if name.endswith("_backward") else None
    if forward is None or not {"CompositeImplicitAutograd", key} <= set(forward.kernels):
        return None
    return saw(forward=forward.name, forward_base=forward.base, forward_at=latest_kernel(failure, forward.name))


@looks_for("WHY305")
def device_without_kernel(failure: Failure) -> Mapping[str, object]:
    """Look for a fallback that is gone, and whether the backend copies tensors."""
    _, key = could_not_run(failure)
    gone = any(e.detail == key and not e.subject.startswith("aten") for e in failure.of("collected"))
    copies = failure.registry.operator("aten::_copy_from")
    return saw(
        fallback_gone=gone or any(e.subject == key for e in failure.of("fallback")),
        copies=copies is not None and key in copies.kernels,
    )


@looks_for("WHY306")
def backend_without_kernel(failure: Failure) -> Mapping[str, object] | None:
    """Recognise an operator that has no kernel for the backend of the arguments, or for its device argument."""
    name, key = could_not_run(failure)
    found = failure.search(r"(\w+) does not have a kernel registered for (\w+)")
    event = next((e for e in failure.of("custom_op") if found and e.subject.endswith(f"::{found[1]}")), None)
    if not name and found is not None and event is not None:
        key = {"cpu": "CPU", "cuda": "CUDA", "xpu": "XPU", "mps": "MPS", "meta": "Meta"}.get(found[2], "PrivateUse1")
        name = event.subject
    if not name:
        return None
    impls = [e for e in failure.registrations(name) if e.kind == "impl" and e.detail == key]
    other = impls[0] if impls and impls[0].subject != name else None
    return saw(op=name, key=key, other=other.subject if other else "", other_at=other.at if other else "")


@looks_for("WHY307")
def kernel_recursion(failure: Failure) -> Mapping[str, object] | None:
    """Recognise a kernel of Python that leads back to itself."""
    if "RecursionError" not in failure.kinds:
        return None
    frames = {(f.file, f.function, f.line) for f in failure.frames if sum(f == other for other in failure.frames) > 20}
    kernels = [event for event in failure.of("function") if event.at and _runs_in(event, frames)]
    kernels = [e for e in kernels if not any(_hides(other, e) for other in kernels)]
    if not kernels:
        return None
    event = kernels[0]
    facts = failure.registry.operator(event.subject)
    circle = listed(dict.fromkeys(e.subject for e in kernels if e.subject != event.subject))
    return saw(op=facts.name if facts else event.subject, role=event.detail, kernel_at=event.at, circle=circle)


def _runs_in(event: Event, frames: set[tuple[str, str, int]]) -> bool:
    at = event.at
    return at is not None and any((at.file, at.function) == frame[:2] and at.line <= frame[2] for frame in frames)


def _hides(other: Event, event: Event) -> bool:
    """Return whether another function of the same name begins between an event's first line and the frame's."""
    a, b = other.at, event.at
    return (
        a is not None
        and b is not None
        and (a.file, a.function) == (b.file, b.function) == (b.file, "<lambda>")
        and other.subject == event.subject
        and a.line > b.line
    )
