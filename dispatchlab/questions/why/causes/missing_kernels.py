"""Calls that find no kernel: conditions that the rows cannot express."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from dispatchlab.live.failure.definition_search import OTHER_PACKAGES
from dispatchlab.model.failure import Failure
from dispatchlab.questions.why.cause import looks_for, saw
from dispatchlab.questions.why.facts import Words
from dispatchlab.questions.why.pasted_traceback import RecordedFacts
from dispatchlab.questions.why.wording import function_of, listed, nearest, short_site
from dispatchlab.registries.builds import cuda_registry
from dispatchlab.registries.file import open_bundled


@looks_for("WHY310")
def backward_of_override(words: Words) -> Mapping[str, object] | None:
    """Recognise a backward operator that autograd calls only because of an override of its composite."""
    name, failure = words.op, words.failure
    forward = failure.registry.operator(name.removesuffix("_backward")) if name.endswith("_backward") else None
    if forward is None or not {"CompositeImplicitAutograd", words.key} <= set(forward.kernels):
        return None
    return saw(forward=forward.name, forward_base=forward.base)


@looks_for("WHY305")
def device_without_kernel(words: Words) -> Mapping[str, object]:
    """Find out whether the backend copies tensors, and whether PyTorch's own builds with it have the kernel."""
    registry, key = words.failure.registry, words.key
    copies = registry.operator("aten::_copy_from")
    built = RecordedFacts(open_bundled(cuda_registry(registry.version))).operator(words.op) if key == "CUDA" else None
    return saw(copies=bool(copies and key in copies.kernels), built_with=bool(built and "CUDA" in built.kernels))


@looks_for("WHY317")
def kernel_of_a_similar_name(words: Words) -> Mapping[str, object] | None:
    """Find a kernel for the key, at an operator of a similar name or namespace that has no def."""
    registry, key = words.failure.registry, words.key
    alike = re.compile(rf"{words.operator.namespace}::|.*::{re.escape(words['base'])}$")
    split = (name.partition(".") for name in filter(alike.match, registry.names("")))
    names = ("".join(parts) for parts in split if parts[2] not in registry.overloads(parts[0]))
    sites = {name: facts.kernels[key] for name in names if (facts := registry.operator(name)) and key in facts.kernels}
    packet = words.operator.packet  # without the name of an overload
    similar = packet if packet in sites else nearest(words.op, [*sites])
    return saw(similar=similar, site=short_site(sites[similar])) if similar else None


@looks_for("WHY306")
def backend_without_kernel(words: Words) -> Mapping[str, object]:
    """Find the operator, perhaps with a custom operator's device argument, and another overload."""
    name = words.op
    if "custom" in words:
        made = (event.subject for event in words.failure.of("custom_op"))
        name = next((subject for subject in made if subject.endswith(f"::{words['custom']}")), words["custom"])
    keys = {"cpu": "CPU", "cuda": "CUDA", "xpu": "XPU", "mps": "MPS", "meta": "Meta"}
    key = keys.get(words["device_argument"], "PrivateUse1") if "custom" in words else words.key
    foreign = "" if words.failure.registrations(name) else _package(words.failure, name.partition("::")[0])
    return saw(op=name, key=key, foreign=foreign)


def _package(failure: Failure, namespace: str) -> str:
    """Return the package of a namespace, if it is not the user's: a known package, or a package on the stack."""
    called = any(name.startswith(f"{namespace}.") for name in failure.stack)
    own = any(f"{namespace}/" in frame.file for frame in failure.frames)
    return OTHER_PACKAGES.get(namespace, namespace if called and not own else "")


@looks_for("WHY307")
@looks_for("WHY623")
def kernel_recursion(words: Words) -> Mapping[str, object] | None:
    """Recognise a Python kernel that calls itself, directly or through other kernels."""
    failure = words.failure
    frames = [frame for frame, count in Counter(failure.frames).items() if count > 20]
    kernels = [*filter(None, (function_of(failure, frame) for frame in frames))]
    if not kernels:
        return None
    event = min(kernels, key=failure.events.index)
    facts = failure.registry.operator(event.subject)
    circle = listed(dict.fromkeys(kernel.subject for kernel in kernels if kernel.subject != event.subject))
    return saw(op=facts.name if facts else event.subject, role=event.detail, kernel_at=event.at, circle=circle)


@looks_for("WHY316")
def raising_fallback(words: Words) -> Mapping[str, object] | None:
    """Recognise a Python fallback of a key, which raised or called the function that raised."""
    functions = (function_of(words.failure, frame) for frame in reversed(words.failure.frames))
    event = next(filter(None, functions), None)
    if event is None or event.subject != "_":
        return None
    return saw(fallback_key=event.detail.removeprefix("fallback for "), fallback_at=event.at)
