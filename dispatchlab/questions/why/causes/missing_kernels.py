"""Calls that find no kernel: conditions that the rows cannot express."""

from __future__ import annotations

from collections.abc import Mapping

from dispatchlab.live.failure.definition_search import OTHER_PACKAGES
from dispatchlab.model.failure import Event, Failure
from dispatchlab.questions.why.cause import looks_for, saw
from dispatchlab.questions.why.facts import Words
from dispatchlab.questions.why.pasted_traceback import RecordedFacts
from dispatchlab.questions.why.wording import latest_kernel, listed
from dispatchlab.registries.builds import cuda_registry
from dispatchlab.registries.file import open_bundled


@looks_for("WHY310")
def backward_of_override(words: Words) -> Mapping[str, object] | None:
    """Recognise a backward operator that autograd calls only because of an override of its composite."""
    name, failure = words.op, words.failure
    forward = failure.registry.operator(name.removesuffix("_backward")) if name.endswith("_backward") else None
    if forward is None or not {"CompositeImplicitAutograd", words.key} <= set(forward.kernels):
        return None
    return saw(forward=forward.name, forward_base=forward.base, forward_at=latest_kernel(failure, forward.name))


@looks_for("WHY305")
def device_without_kernel(words: Words) -> Mapping[str, object]:
    """Find a released fallback, and whether the backend copies tensors."""
    failure, key = words.failure, words.key
    gone = any(e.detail == key and not e.subject.startswith("aten") for e in failure.of("collected"))
    copies = failure.registry.operator("aten::_copy_from")
    return saw(
        fallback_gone=gone or any(e.subject == key for e in failure.of("fallback")),
        copies=copies is not None and key in copies.kernels,
        built_with=key == "CUDA" and _has_cuda(words.op, failure.registry.version),
    )


def _has_cuda(name: str, version: str) -> bool:
    """Return whether an operator has a CUDA kernel in PyTorch's own builds with CUDA."""
    facts = RecordedFacts(open_bundled(cuda_registry(version))).operator(name)
    return facts is not None and "CUDA" in facts.kernels


@looks_for("WHY306")
def backend_without_kernel(words: Words) -> Mapping[str, object] | None:
    """Find the operator, perhaps with a custom operator's device argument, and another overload."""
    name = words.op
    if "custom" in words:
        made = words.failure.of("custom_op")
        name = next((e.subject for e in made if e.subject.endswith(f"::{words['custom']}")), "")
    if not name:
        return None
    keys = {"cpu": "CPU", "cuda": "CUDA", "xpu": "XPU", "mps": "MPS", "meta": "Meta"}
    key = keys.get(words["device_argument"], "PrivateUse1") if "custom" in words else words.key
    impls = [e for e in words.failure.registrations(name) if e.kind == "impl" and e.detail == key]
    other = impls[0] if impls and impls[0].subject != name else None
    return saw(
        op=name,
        key=key,
        other=other.subject if other else "",
        other_at=other.at if other else "",
        foreign="" if impls or words.failure.registrations(name) else _package(words.failure, name.partition("::")[0]),
    )


def _package(failure: Failure, namespace: str) -> str:
    """Return the package of a namespace, if it is not the user's: a known package, or a package on the stack."""
    called = any(name.startswith(f"{namespace}.") for name in failure.stack)
    own = any(f"{namespace}/" in frame.file for frame in failure.frames)
    return OTHER_PACKAGES.get(namespace, namespace if called and not own else "")


@looks_for("WHY307")
def kernel_recursion(words: Words) -> Mapping[str, object] | None:
    """Recognise a Python kernel that calls itself, directly or through other kernels."""
    failure = words.failure
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
    """Return whether another function of the same name begins between the first line of an event and a frame."""
    a, b = other.at, event.at
    return (
        a is not None
        and b is not None
        and (a.file, a.function) == (b.file, b.function) == (b.file, "<lambda>")
        and other.subject == event.subject
        and a.line > b.line
    )
