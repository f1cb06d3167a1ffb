"""Calls that find no kernel: a backend, a layout, no tensor, or a kernel that finds itself."""

from __future__ import annotations

import re

from dispatchlab.model.failure import Failure, Fix, OperatorFacts
from dispatchlab.questions.why.cause import Explanation, cause
from dispatchlab.questions.why.causes.wording import (
    LAYOUTS,
    kernels_of,
    line_of_definition,
    listed,
    parameters_of,
    registered_lines,
)

_COULD_NOT_RUN = r"Could not run '([\w:.]+)' with arguments from the '(\w+)' backend"
_DEVICES = ("CUDA", "CPU", "MPS", "XPU", "HPU", "XLA", "MTIA", "HIP", "IPU", "VE", "PrivateUse1", "Meta")


def _could_not_run(failure: Failure) -> tuple[str, str, OperatorFacts | None] | None:
    found = failure.search(_COULD_NOT_RUN)
    if found is None:
        return None
    # PyTorch prints the name that a package gave the backend, not the key.
    key = "PrivateUse1" if failure.device and found[2] == failure.device else found[2]
    return found[1], key, failure.registry.operator(found[1])


def _layout(key: str) -> str:
    return next((layout for layout in sorted(LAYOUTS, key=len, reverse=True) if key.startswith(layout)), "")


@cause("WHY301", "an operator without a tensor argument", wrong="a kernel for CPU or CUDA: no call reaches it")
def no_tensor_argument(failure: Failure) -> Explanation | None:
    """Recognise a call whose key set is empty, since it has no tensor."""
    found = failure.search(r"There were no tensor arguments to this function.*?registered for schema ([\w:.]+?)[,.]?\s")
    if found is None:
        return None
    name = found[1].rstrip(".,")
    facts = failure.registry.operator(name)
    base = name.partition("::")[2]
    takes_list = facts is not None and "Tensor[]" in facts.schema
    why = "the call gives an empty list" if takes_list else "its schema has none"
    guard = "do not call it with an empty list: `if tensors: ...`; or " if takes_list else ""
    return Explanation(
        f"{name} was called with no tensor argument ({why}), so no key chooses a "
        f"kernel{line_of_definition(facts, failure)}",
        (
            Fix(
                text=f'{guard}lib.impl("{base}", kernel, "CompositeExplicitAutograd"), or "BackendSelect" '
                "by a device argument"
            ),
        ),
        _kernel_lines(facts, failure),
    )


def _kernel_lines(facts: OperatorFacts | None, failure: Failure) -> tuple[str, ...]:
    return () if facts is None else (f"kernels of {facts.name}: {kernels_of(facts, failure) or 'none'}",)


@cause("WHY302", "a kernel for autograd alone", wrong="register_autograd: the formula is there")
def only_autograd(failure: Failure) -> Explanation | None:
    """Recognise a call below autograd of an operator that has kernels at autograd keys alone."""
    ran = _could_not_run(failure)
    if ran is None or ran[2] is None or not ran[2].kernels or ran[2].backends:
        return None
    name, key, facts = ran
    assert facts is not None
    base = name.partition("::")[2]
    inference = any("inference_mode" in frame.text for frame in failure.frames) or "inference_mode" in failure.source
    how = "inference mode skips autograd" if inference else "a call below autograd skips it"
    return Explanation(
        f"{name} has a kernel at {listed(facts.kernels)} alone, and none for {key}: {how}, and finds nothing",
        (
            Fix(
                text=f'lib.impl("{base}", kernel, "{key}")  # or "CompositeExplicitAutograd" for every backend',
                needs="your kernel",
            ),
        ),
        registered_lines(failure, name),
    )


@cause("WHY303", "a quantized operator got a plain tensor", wrong="another build of PyTorch")
def quantized_operator(failure: Failure) -> Explanation | None:
    """Recognise an operator that has kernels for quantized tensors alone."""
    ran = _could_not_run(failure)
    if ran is None or ran[2] is None:
        return None
    name, key, facts = ran
    assert facts is not None
    if key.startswith("Quantized") or not facts.backends or not all(k.startswith("Quantized") for k in facts.backends):
        return None
    return Explanation(
        f"{name} has kernels for {listed(facts.backends)} alone, and the call gives plain {key} tensors",
        (
            Fix(
                text="quantize the inputs first: torch.quantize_per_tensor(x, scale, zero_point, torch.quint8)",
                wrap="torch.quantize_per_tensor({}, 0.05, 0, torch.quint8)",
            ),
        ),
        _kernel_lines(facts, failure),
    )


@cause("WHY304", "a layout without a kernel", wrong="a kernel for the dense backend: there is one")
def layout_without_kernel(failure: Failure) -> Explanation | None:
    """Recognise a sparse, mkldnn, quantized or nested tensor in an operator without a kernel for it."""
    ran = _could_not_run(failure)
    if ran is None or not (layout := _layout(ran[1])):
        return None
    name, key, facts = ran
    wrap = LAYOUTS[layout]
    gradient = layout == "Sparse" and ("grad" in failure.call or "Embedding" in failure.source)
    fixes = [Fix(text=f"convert before the call: {wrap.format('x')}", wrap=wrap)]
    if gradient:
        fixes.insert(
            0, Fix(text="torch.nn.Embedding(..., sparse=False), or p.grad = p.grad.to_dense() before the call")
        )
    dense = key.removeprefix(layout) or key
    has = "" if facts is None or dense not in facts.kernels else f"; it has one for {dense}"
    return Explanation(
        f"{name} has no kernel for {key}: a tensor of the layout {layout} reaches it{has}",
        tuple(fixes),
        _kernel_lines(facts, failure),
    )


@cause("WHY305", "a backend without a kernel and without a fallback", wrong="linking or installing another driver")
def device_without_kernel(failure: Failure) -> Explanation | None:
    """Recognise an operator of PyTorch on a device whose backend has not implemented it."""
    ran = _could_not_run(failure)
    if ran is None or not re.match(r"(aten|prims|prim)::", ran[0]):
        return None
    name, key, facts = ran
    device = failure.device if key == "PrivateUse1" and failure.device else ""
    shown = f"{key} ({device})" if device else key
    base = name.partition("::")[2]
    return Explanation(
        f"{name} has no kernel for {shown}, and {shown} has no backend fallback",
        (
            Fix(text=f'torch.library.Library("aten", "IMPL").impl("{base}", kernel, "{key}")', needs="your kernel"),
            Fix(
                text=f'or a fallback for every operator: torch.library.Library("_", "IMPL").fallback(to_cpu, "{key}")',
                needs="your fallback",
            ),
            Fix(text="or move the inputs first: x.cpu()"),
        ),
        _kernel_lines(facts, failure),
    )


@cause("WHY306", "an operator without a kernel for a backend", wrong="a def or a fake: both are not asked")
def backend_without_kernel(failure: Failure) -> Explanation | None:
    """Recognise a custom operator that has no kernel for the backend of the arguments."""
    ran = _could_not_run(failure)
    if ran is None:
        return None
    name, key, facts = ran
    base = name.partition("::")[2]
    device = f" (device {failure.device})" if key == "PrivateUse1" and failure.device else ""
    backends = [k for k in (facts.backends if facts else ()) if k in _DEVICES]
    has = f"it has kernels for {kernels_of(facts, failure)}" if facts and facts.kernels else "it has no kernel at all"
    register = (
        f'torch.library.register_kernel("{name}", "{_device_of(key, failure)}")(kernel)'
        if facts and facts.custom_op
        else f'lib.impl("{base}", kernel, "{key}")'
    )
    fixes = [Fix(text=register, needs="your kernel")]
    if backends and backends[0] == "CPU":
        fixes.append(
            Fix(text="or call it with CPU tensors: x.cpu(); or install a build of the package that matches the device")
        )
    return Explanation(f"{name} has no kernel for {key}{device}: {has}", tuple(fixes), registered_lines(failure, name))


def _device_of(key: str, failure: Failure) -> str:
    return failure.device or "privateuseone" if key == "PrivateUse1" else key.lower()


@cause("WHY307", "a kernel that calls its own operator", wrong="sys.setrecursionlimit: it never ends")
def kernel_recursion(failure: Failure) -> Explanation | None:
    """Recognise a kernel of Python that leads back to itself."""
    if "RecursionError" not in failure.kinds:
        return None
    repeated = {frame.function for frame in failure.frames if sum(f == frame for f in failure.frames) > 20}
    for event in reversed(failure.of("impl", "custom_op")):
        facts = failure.registry.operator(event.subject)
        if event.at is None or not repeated:
            continue
        if not any(
            _registers(event.at.text, function) or event.at.function == function for function in repeated
        ) and not (event.kind == "custom_op" and event.subject.partition("::")[2] in repeated):
            continue
        key = event.detail if event.kind == "impl" else "CompositeExplicitAutograd"
        name = facts.name if facts else event.subject
        return Explanation(
            f"the {key} kernel of {name}, registered at {event.at}, calls {name} itself: infinite recursion",
            (
                Fix(
                    text=f'orig = torch.library.get_kernel("{name}", "{key}")  # before the override; then '
                    "in the kernel: "
                    f"orig.call_boxed(keyset, {parameters_of(facts.schema) if facts else '...'}), "
                    f'with lib.impl(..., "{key}", with_keyset=True)',
                ),
            ),
            (f"{failure.frames[-1]}: {failure.frames[-1].text}",) if failure.frames else (),
        )
    return None


def _registers(text: str, function: str) -> bool:
    return re.search(rf"\b{re.escape(function)}\b", text) is not None


@cause("WHY308", "a renamed backend that nothing implements", wrong="a driver of CUDA")
def backend_not_linked(failure: Failure) -> Explanation | None:
    """Recognise a device whose name was registered and whose guard and hooks were not."""
    found = failure.search(r"PyTorch is not linked with support for (\w+) devices") or failure.search(
        r"Please register PrivateUse1HooksInterface|privateuse1.*?(?:guard|hooks)"
    )
    if found is None:
        return None
    device = found[1] if found.re.groups else failure.device or "privateuseone"
    name = f"PrivateUse1, renamed to {device}," if device not in ("cuda", "xpu", "mps") else device
    return Explanation(
        f"{name} is a name alone: no extension has registered its device guard and hooks, so no tensor can "
        "be made there",
        (
            Fix(
                text="import the extension that calls C10_REGISTER_GUARD_IMPL(PrivateUse1, ...) and registers the hooks"
            ),
            Fix(
                text="or, in Python: from torch.utils.backend_registration import "
                "_setup_privateuseone_for_python_backend; "
                f'_setup_privateuseone_for_python_backend("{device}")  # in place of rename_privateuse1_backend',
            ),
        ),
    )


@cause("WHY309", "a backend is renamed twice", wrong="another device index")
def backend_renamed_twice(failure: Failure) -> Explanation | None:
    """Recognise a second name for PrivateUse1."""
    found = failure.search(
        r"rename_privateuse1_backend\(\) has already been set! Current backend: (\w+)"
    ) or failure.search(r"torch\.register_privateuse1_backend\(\) has already been set! Current backend: (\w+)")
    if found is None:
        return None
    return Explanation(
        f"PrivateUse1 is already named {found[1]}: a process has one such backend",
        (Fix(text=f"use the name {found[1]}, or import one of the two backend packages alone"),),
    )
