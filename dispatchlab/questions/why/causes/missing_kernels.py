"""Calls that find no kernel: a backend, a layout, no tensor, or a kernel that finds itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from dispatchlab.model.failure import Event, Failure, Fix, OperatorFacts
from dispatchlab.questions.why.cause import Explanation, cause
from dispatchlab.questions.why.causes.wording import (
    LAYOUTS,
    arguments_of,
    kernels_of,
    line_of_definition,
    listed,
    parameters_of,
    registered_lines,
)

_COULD_NOT_RUN: Final = r"Could not run '([\w:.]+)' with arguments from the '(\w+)' backend"
_DEVICES: Final = ("CUDA", "CPU", "MPS", "XPU", "HPU", "XLA", "MTIA", "HIP", "IPU", "VE", "PrivateUse1", "Meta")
_FACTORIES: Final = ("aten::empty.memory_format", "aten::empty_strided")


def _could_not_run(failure: Failure) -> tuple[str, str, OperatorFacts | None] | None:
    found = failure.search(_COULD_NOT_RUN)
    if found is None:
        return None
    # PyTorch prints the name that a package gave the backend, not the key.
    key = found[2]
    if failure.device and key.endswith(failure.device):
        key = f"{key.removesuffix(failure.device)}PrivateUse1"
    return found[1], key, failure.registry.operator(found[1])


def _layout(key: str) -> str:
    return next((layout for layout in sorted(LAYOUTS, key=len, reverse=True) if key.startswith(layout)), "")


def _kernel_lines(facts: OperatorFacts | None, failure: Failure) -> tuple[str, ...]:
    """Return a line with the kernels that do the work; those of functorch, tracing and autograd are left out."""
    if facts is None:
        return ()
    if not facts.name.startswith("aten::"):
        return (f"kernels of {facts.name}: {kernels_of(facts, failure) or 'none'}",)
    works = re.compile(r"(?!Auto).*(?:CPU|CUDA|MPS|XPU|HPU|PrivateUse1|Meta)$|Composite")
    return (f"kernels of {facts.name}: {listed(filter(works.match, facts.kernels)) or 'none for a backend'}",)


@cause("WHY301", "an operator without a tensor argument", wrong="a kernel for CPU or CUDA: no call reaches it")
def no_tensor_argument(failure: Failure) -> Explanation | None:
    """Recognise a call whose key set is empty, since it has no tensor."""
    found = failure.search(r"There were no tensor arguments to this function.*?registered for schema ([\w:.]+?)[,.]?\s")
    if found is None:
        return None
    name = found[1].rstrip(".,")
    facts = failure.registry.operator(name)
    base = name.partition("::")[2]
    kinds = [kind for kind, _ in arguments_of(facts.schema)] if facts else []
    lists = [n for kind, n in arguments_of(facts.schema) if kind.startswith("Tensor") and "[" in kind] if facts else []
    if lists:
        why = f"the call gives an empty list for {lists[0]}"
        first = Fix(text=f"if {lists[0]}: ...  # guard: do not call it with an empty list")
    elif any(kind.startswith("Tensor") for kind in kinds):
        why = "each of its tensors is None in this call"
        first = Fix(text="if x is not None: ...  # guard: do not call it without a tensor")
    else:
        why, first = "its schema has none", None
    device = any(kind.startswith("Device") for kind in kinds)
    key = "BackendSelect" if device else "CompositeExplicitAutograd"
    note = "  # and choose by the device argument" if device else "  # runs whatever the tensors are"
    kernel = Fix(text=f'lib.impl("{base}", kernel, "{key}"){note}', needs="your kernel")
    return Explanation(
        f"{name} was called with no tensor argument ({why}), so no key chooses a "
        f"kernel{line_of_definition(facts, failure)}",
        (*((first,) if first else ()), kernel),
        _kernel_lines(facts, failure),
    )


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
    covers = {"Autograd", f"Autograd{key}"} & set(facts.kernels)
    how = "inference mode skips autograd" if inference else "a call below autograd skips it"
    how = how if covers else f"a call on {key} does not reach that"
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
    in_module = "torch.ao.nn.quantized" in " ".join(failure.stack)
    model = "torch.ao.quantization.QuantStub() before the model, DeQuantStub() after it, or "
    return Explanation(
        f"{name} has kernels for {listed(facts.backends)} alone, and the call gives plain {key} tensors",
        (
            Fix(
                text=f"quantize the inputs first: {model if in_module else ''}"
                "torch.quantize_per_tensor(x, scale, zero_point, torch.quint8)",
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
        jagged = failure.search(r"NotImplementedError: aten\.(\w+)\.\w+$")
        if jagged is None or not any("torch.nested._internal" in name for name in failure.stack):
            return None
        return Explanation(
            f"aten::{jagged[1]} has no implementation for nested tensors of the layout torch.jagged",
            (Fix(text="convert before the call: x.to_padded_tensor(0.0)", wrap="{}.to_padded_tensor(0.0)"),),
            ("torch/nested/_internal/ops.py has those that are there",),
        )
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


_PARTS_OF: Final[Mapping[str, str]] = {
    "linear": "aten::addmm",
    "matmul": "aten::mm",
    "max_pool2d": "aten::max_pool2d_with_indices",
}


@cause("WHY310", "a composite that was overridden, and its backward has no kernel", wrong="a def of the backward")
def backward_of_override(failure: Failure) -> Explanation | None:
    """Recognise a backward operator that only an override of its composite makes autograd call."""
    ran = _could_not_run(failure)
    if ran is None or ran[2] is None or not ran[0].endswith("_backward"):
        return None
    name, key, backward = ran
    forward = failure.registry.operator(name.removesuffix("_backward"))
    assert backward is not None
    if forward is None or "CompositeImplicitAutograd" not in forward.kernels or key not in forward.kernels:
        return None
    impl = next((e for e in reversed(failure.registrations(forward.name)) if e.kind == "impl" and e.at), None)
    at = f" at {impl.at}" if impl else ""
    base, packet = forward.base, name.partition("::")[2]
    return Explanation(
        f"the {key} kernel of {forward.name}{at} replaces a composite, so autograd records {forward.name} itself "
        f"and calls {name}, which has no kernel for {key}",
        (
            Fix(text=f'lib.impl("{packet}", backward, "{key}")', needs="your backward"),
            Fix(
                text=f'or lib.impl("{base}", kernel, "Autograd{key}")  # in place of {key}: a torch.autograd.Function',
                needs="your backward",
            ),
            Fix(
                text=f"or override {_PARTS_OF.get(base, 'an operator that it calls')} in its place, which has a formula"
            ),
        ),
        _kernel_lines(backward, failure),
    )


@cause("WHY311", "a device that this PyTorch was not built for", wrong="a kernel of your own for its operators")
def device_not_built(failure: Failure) -> Explanation | None:
    """Recognise a tensor that is made on a device for which this build has no kernels at all."""
    ran = _could_not_run(failure)
    if ran is None or ran[0] not in _FACTORIES or ran[1] == "PrivateUse1" or _layout(ran[1]):
        return None
    name, key, facts = ran
    version = failure.registry.version
    return Explanation(
        f"{name} has no kernel for {key}: PyTorch {version} was built without {key}, or what brings it is not imported",
        (
            Fix(text=f'device = "{key.lower()}" if torch.{key.lower()}.is_available() else "cpu"')
            if key in ("CUDA", "MPS", "XPU")
            else Fix(text=f"import the package that brings {key} before this line, or use the device cpu"),
            Fix(text=f"or install a build of PyTorch with {key}"),
        ),
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
    copies = failure.registry.operator("aten::_copy_from")
    fixes = [Fix(text=f'torch.library.Library("aten", "IMPL").impl("{base}", kernel, "{key}")', needs="your kernel")]
    if name not in _FACTORIES:
        fixes.append(
            Fix(
                text=f'or a fallback for every operator: torch.library.Library("_", "IMPL").fallback(to_cpu, "{key}")',
                needs="your fallback",
            )
        )
    if key != "PrivateUse1" or (copies is not None and key in copies.kernels):
        fixes.append(Fix(text="or move the inputs first: x.cpu()"))
    gone = next((e for e in failure.of("collected") if e.detail == key and not e.subject.startswith("aten")), None)
    what = f"{shown} has no backend fallback"
    if gone is not None or any(e.subject == key for e in failure.of("fallback")):
        what = f"the fallback for {shown} went when its Library was collected"
        fixes.insert(0, Fix(text='LIB = torch.library.Library("_", "IMPL")  # a variable of the module keeps it alive'))
    return Explanation(f"{name} has no kernel for {shown}, and {what}", tuple(fixes[:4]), _kernel_lines(facts, failure))


@cause("WHY306", "an operator without a kernel for a backend", wrong="a def or a fake: both are not asked")
def backend_without_kernel(failure: Failure) -> Explanation | None:
    """Recognise a custom operator that has no kernel for the backend of the arguments."""
    ran = _could_not_run(failure) or _custom_op_without_kernel(failure)
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
    other = next((e for e in failure.registrations(name) if e.kind == "impl" and e.detail == key), None)
    fixes = [Fix(text=register, needs="your kernel")]
    if other is not None and other.subject != name:
        has = f"{other.at} registers one for {other.subject}, another overload"
    if backends and backends[0] == "CPU":
        fixes.append(
            Fix(text="or call it with CPU tensors: x.cpu(); or install a build of the package that matches the device")
        )
    elif key == "CPU" and "CUDA" in backends:
        fixes.append(Fix(text="or call it with CUDA tensors, x.cuda(), where PyTorch and the machine have CUDA"))
    return Explanation(f"{name} has no kernel for {key}{device}: {has}", tuple(fixes), registered_lines(failure, name))


def _custom_op_without_kernel(failure: Failure) -> tuple[str, str, OperatorFacts | None] | None:
    """Recognise a custom operator that is asked by its device argument."""
    found = failure.search(r"(\w+) does not have a kernel registered for (\w+)")
    event = next((e for e in failure.of("custom_op") if found and e.subject.endswith(f"::{found[1]}")), None)
    if found is None or event is None:
        return None
    key = {"cpu": "CPU", "cuda": "CUDA", "xpu": "XPU", "mps": "MPS", "meta": "Meta"}.get(found[2], "PrivateUse1")
    return event.subject, key, failure.registry.operator(event.subject)


def _device_of(key: str, failure: Failure) -> str:
    return failure.device or "privateuseone" if key == "PrivateUse1" else key.lower()


@cause("WHY307", "a kernel that calls its own operator", wrong="sys.setrecursionlimit: it never ends")
def kernel_recursion(failure: Failure) -> Explanation | None:
    """Recognise a kernel of Python that leads back to itself."""
    if "RecursionError" not in failure.kinds:
        return None
    frames = {(f.file, f.function, f.line) for f in failure.frames if sum(f == other for other in failure.frames) > 20}
    kernels = [event for event in failure.of("function") if event.at and _runs_in(event, frames)]
    kernels = [e for e in kernels if not any(_hides(other, e) for other in kernels)]
    if not kernels:
        return None
    event = kernels[0]
    if event.subject == "_":
        return Explanation(
            f"the {event.detail}, registered with {event.at}, calls the operator with the same tensors again: "
            "infinite recursion",
            (Fix(text="move the arguments first: torch.utils._pytree.tree_map_only(torch.Tensor, to_cpu, args)"),),
        )
    facts = failure.registry.operator(event.subject)
    name = facts.name if facts else event.subject
    circle = list(dict.fromkeys(e.subject for e in kernels if e.subject != event.subject))
    calls = f"calls {listed(circle)}, whose kernel calls {name}" if circle else f"calls {name} itself"
    what = "the function" if event.detail == "custom_op" else f"the {event.detail} kernel"
    return Explanation(
        f"{what} of {name} at {event.at} {calls}: infinite recursion",
        _out_of_recursion(name, event, facts),
        (f"{failure.frames[-1]}: {failure.frames[-1].text}",) if failure.frames else (),
    )


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


def _out_of_recursion(name: str, event: Event, facts: OperatorFacts | None) -> tuple[Fix, ...]:
    """Return how a kernel reaches the work, which depends on what its key is for."""
    key = event.detail
    parameters = parameters_of(facts.schema) if facts else "..."
    dotted = f"torch.ops.{name.replace('::', '.')}"
    if key.startswith("Autograd"):
        return (Fix(text=f"with torch._C._AutoDispatchBelowAutograd(): {dotted}({parameters})  # in the kernel"),)
    if not name.startswith(("aten::", "prims::")):
        return (Fix(text=f"call the function that does the work in the kernel, not the operator {dotted}"),)
    return (
        Fix(
            text=f'orig = torch.library.get_kernel("{name}", "{key}")  # before the override; then in the kernel: '
            f'orig.call_boxed(keyset, {parameters}), with lib.impl(..., "{key}", with_keyset=True)',
        ),
    )


_PARTS: Final[tuple[tuple[str, str, str], ...]] = (
    (
        r"PyTorch is not linked with support for (?P<d>\w+) devices|Please register PrivateUse1HooksInterface|"
        r"No module named 'torch\.(?P<m>\w+)'",
        "PrivateUse1, renamed to {device}, is a name alone: no extension has registered its device guard and hooks, "
        "so no tensor can be made there",
        "from torch.utils.backend_registration import _setup_privateuseone_for_python_backend as setup; "
        'setup("{device}")  # in place of rename_privateuse1_backend',
    ),
    (
        r"Tried to use AMP with the `(?P<d>\w+)` backend, but the backend has not registered a module or  ?the module "
        r"miss some necessary funcs",
        "torch.{device}, the module of the backend, is not registered or has no get_amp_supported_dtype, "
        "which autocast asks",
        'torch._register_device_module("{device}", module)  # a module with '
        "get_amp_supported_dtype() -> list[torch.dtype]",
    ),
    (
        r"module 'torch' has no attribute '(?P<m>\w+)'",
        "torch.{device} does not exist: the backend is named {device}, and no module was registered for it",
        'torch._register_device_module("{device}", module)  # a module with is_available(), device_count() and others',
    ),
    (
        r"'(?:Tensor|Parameter|UntypedStorage|\w*Module)' object has no attribute '(?:is_)?(?P<m>\w+)'",
        "tensors have no method {device}(): the methods of the backend {device} were not generated",
        'torch.utils.generate_methods_for_privateuse1_backend()  # after rename_privateuse1_backend("{device}")',
    ),
)


@cause("WHY308", "a renamed backend that lacks a part", wrong="a driver of CUDA")
def backend_part_missing(failure: Failure) -> Explanation | None:
    """Recognise a device whose name was registered and whose guard, hooks, module or methods were not."""
    for pattern, sentence, fix in _PARTS:
        if (found := failure.search(pattern)) is None:
            continue
        words = found.groupdict()
        device = words.get("d") or words.get("m") or failure.device or "privateuseone"
        if device in ("cuda", "xpu", "mps") or (words.get("m") and device != failure.device):
            continue
        call = fix.format(device=device)
        generates = call.startswith("torch.utils.generate")
        guard = Fix(
            text="import the extension that calls C10_REGISTER_GUARD_IMPL(PrivateUse1, ...) and registers the hooks"
        )
        ours = Fix(text=call, code=call.partition("  #")[0] if generates else "")
        named = sentence.format(device=device)
        return Explanation(named, (guard, ours) if pattern is _PARTS[0][0] else (ours,))
    return None


_TWICE: Final[tuple[tuple[str, str, str], ...]] = (
    (
        r"(?:rename|register)_privateuse1_backend\(\) has already been set! Current backend: (\w+)",
        "PrivateUse1 is already named {0}: a process has one such backend",
        "use the name {0}, or import one of the two backend packages alone",
    ),
    (
        r"Cannot register privateuse1 backend with in-tree device name: (\w+)",
        "PrivateUse1 cannot be named {0}, the name of a device that PyTorch has",
        'torch.utils.rename_privateuse1_backend("my_{0}")  # a name of your own',
    ),
    (
        r"The custom device module of .*? has already been registered with (?:is_)?(\w+)",
        "the methods of the backend {0} were generated before",
        'if not hasattr(torch.Tensor, "{0}"): torch.utils.generate_methods_for_privateuse1_backend()',
    ),
    (
        r"The runtime module of '(\w+)' has already been registered",
        "torch.{0} was registered before as the module of the backend",
        'if not hasattr(torch, "{0}"): torch._register_device_module("{0}", module)',
    ),
)


@cause("WHY309", "a backend is set up twice", wrong="another device index")
def backend_twice(failure: Failure) -> Explanation | None:
    """Recognise a second name for PrivateUse1, or a second set of its methods."""
    for pattern, sentence, fix in _TWICE:
        if (found := failure.search(pattern)) is not None:
            at = f" (now at {failure.at})" if failure.at else ""
            return Explanation(f"{sentence.format(found[1])}{at}", (Fix(text=fix.format(found[1])),))
    return None


_OTHER_LAYOUTS: Final[Mapping[str, str]] = {
    r"but got (Q\w+) and|got (Q\w+)": "{}.dequantize()",
    r"[Uu]nsupported tensor layout: (\w+)": "{}.to_dense()",
    r"(Sparse\w*(?: \w+)?) [Tt]ensors do not have (?:is_contiguous|strides|storage|sizes)": "{}.to_dense()",
    r"Batches of (sparse) tensors are not currently supported": "{}.to_dense()",
    r"Cannot assign to a (sparse) tensor": "{}.to_dense()",
    r"does not support (sparse) gradients": "{}.to_dense()",
}


@cause(
    "WHY312",
    "a layout that a function refuses",
    wrong="registering a kernel: the function asks first",
    dispatcher=False,
)
def layout_refused(failure: Failure) -> Explanation | None:
    """Recognise a function that looks at the layout itself, before it calls an operator."""
    for pattern, wrap in _OTHER_LAYOUTS.items():
        if (found := failure.search(pattern)) is not None:
            said = next(line for line in failure.text.splitlines() if found[0].splitlines()[0] in line)
            fix = Fix(text=f"convert before the call: {wrap.format('x')}", wrap=wrap)
            if "assign" in pattern:
                fix = Fix(text="x = x.to_dense(); x[index] = value")
            if "gradients" in pattern:
                fix = Fix(text="torch.optim.SparseAdam(...) or torch.optim.SGD(...), or Embedding(..., sparse=False)")
            return Explanation(f"the function refuses the layout: {said.partition(': ')[2][:200]}", (fix,))
    return None


@cause("WHY313", "a device that this build does not have", wrong="registering a kernel", dispatcher=False)
def not_compiled(failure: Failure) -> Explanation | None:
    """Recognise a device that PyTorch refuses before any operator is called."""
    found = failure.search(r"Torch not compiled with (\w+) enabled|(?:Found no) (NVIDIA) driver")
    if found is None:
        return None
    name = "CUDA" if found[2] else found[1]
    lower = name.lower()
    why = f"PyTorch {failure.registry.version} was built without {name}" if found[1] else "there is no NVIDIA driver"
    return Explanation(
        f"{why}; nothing was dispatched",
        (
            Fix(text=f'device = "{lower}" if torch.{lower}.is_available() else "cpu"'),
            Fix(text=f"or install a build of PyTorch with {name} on a machine that has it"),
        ),
    )
