"""Fake kernels: missing, with another signature or another result; fake tensors beside real ones."""

from __future__ import annotations

from dispatchlab.model.failure import Failure, Fix, OperatorFacts, operator_name
from dispatchlab.questions.why.cause import Explanation, cause
from dispatchlab.questions.why.causes.wording import (
    arguments_of,
    line_of_definition,
    parameters_of,
    registered_lines,
    short_site,
)

_NO_FAKE = (
    r"UnsupportedOperatorException: ([\w.]+)",
    r"([\w:.]+): attempted to run this operator with Meta tensors, but there was no fake impl",
    r"There was no fake impl registered for <?(?:CustomOpDef\()?([\w:.]+)",
    r"[Nn]o fake impl (?:registered )?for ([\w:.]+)",
    r"Operator ([\w:.]+)(?: \(overload [\w.]+\))? does not have a (?:fake|meta) (?:impl|kernel)",
    r"Could not run '([\w:.]+)' with arguments from the 'Meta' backend",
    r"unsupported operator: ([\w.]+)",
)


@cause("WHY401", "no fake kernel", wrong="a kernel for another device: the real one is there")
def no_fake(failure: Failure) -> Explanation | None:
    """Recognise an operator without a fake kernel under compile, export, or on meta tensors."""
    name = next((operator_name(found[1]) for pattern in _NO_FAKE if (found := failure.search(pattern))), "")
    if not name:
        return None
    facts = failure.registry.operator(name)
    if facts is not None and facts.fake:
        return None
    meta = "Meta tensors" in failure.text or "'Meta' backend" in failure.text
    under = "meta tensors" if meta else "FakeTensors, as torch.compile and torch.export trace with"
    return Explanation(
        f"{name} has no fake kernel, so it cannot run on {under}{line_of_definition(facts, failure)}",
        _fake_fixes(name, facts),
        registered_lines(failure, name),
    )


def _fake_fixes(name: str, facts: OperatorFacts | None) -> tuple[Fix, ...]:
    packet = name.partition(".")[0]
    schema = facts.schema if facts else ""
    parameters = parameters_of(schema) or "*args"
    tensors = [argument for kind, argument in arguments_of(schema) if kind.startswith("Tensor")]
    result = schema.rpartition("-> ")[2]
    body = f"torch.empty_like({tensors[0]})" if tensors and result == "Tensor" else "None" if result == "()" else ""
    if not body:
        return (
            Fix(
                text=f'@torch.library.register_fake("{name}")\ndef _({parameters}): ...',
                needs="the shape and dtype of your results",
            ),
        )
    code = f"import torch\ntorch.library.register_fake({name!r}, lambda {parameters}: {body})"
    note = "" if body == "None" else "  # give the shape and dtype of your result"
    return (Fix(text=f'torch.library.register_fake("{packet}", lambda {parameters}: {body}){note}', code=code),)


@cause("WHY402", "a fake kernel with another signature", wrong="a second fake: the one that is there is called")
def fake_signature(failure: Failure) -> Explanation | None:
    """Recognise a fake kernel that does not take what its operator gives."""
    found = failure.search(r"TypeError ([\w.]+): ([\w.<>]+\(\)) ([^\n]+)")
    if found is None or "fake tensor call" not in failure.text:
        inner = failure.search(r"TypeError: ([\w.<>]+\(\)) (missing [^\n]+|takes [^\n]+|got an unexpected [^\n]+)")
        if inner is None or not any("fake_impl" in name or "abstract" in name for name in failure.stack):
            return None
        events = [event.subject for event in failure.of("register_fake")]
        name, function, what = (events[-1] if events else ""), inner[1], inner[2]
    else:
        name, function, what = operator_name(found[1]), found[2], found[3]
    facts = failure.registry.operator(name) if name else None
    schema = facts.schema if facts else ""
    at = f" at {short_site(facts.fake)}" if facts and facts.fake else ""
    return Explanation(
        f"the fake kernel of {name}{at} does not take what its schema has: {function} {what}",
        (Fix(text=f"def _({_signature(schema)}): ...  # the same parameters, with the defaults of the schema"),),
        ((f"schema: {schema}",) if schema else ()),
    )


def _signature(schema: str) -> str:
    inside = schema.partition("(")[2].rpartition(") ->")[0]
    parts = []
    for _, name in arguments_of(schema):
        default = ""
        marker = f" {name}="
        if marker in f" {inside}":
            default = "=" + inside.partition(marker)[2].partition(",")[0]
        parts.append(f"{name}{default}")
    return ", ".join(parts)


@cause("WHY403", "a fake kernel that gives other results", wrong="another kernel: what the real one gives is right")
def fake_mismatch(failure: Failure) -> Explanation | None:
    """Recognise a fake whose shape, strides or dtype differ from the kernel's."""
    found = failure.search(
        r"comparing "
        r"the "
        r"output "
        r"of ([\w.]+) on FakeTensor and concrete Tensors, found mismatched tensor metadata: ([^\n]+?)(?: \(scroll|\n|$)"
    )
    if found is None:
        return None
    name = operator_name(found[1])
    facts = failure.registry.operator(name)
    at = f" at {short_site(facts.fake)}" if facts and facts.fake else ""
    dtype = failure.search(r"Dtypes (torch\.\w+) and (torch\.\w+) are not equal")
    fix = (
        f"give the result dtype={dtype[1]} in the fake, for example x.new_empty(n, dtype={dtype[1]})"
        if dtype
        else "give the shape, strides and dtype that the kernel gives, for every input"
    )
    return Explanation(
        f"the fake kernel of {name}{at} and its kernel give different results: {found[2].rstrip('!')}",
        (Fix(text=fix),),
    )


@cause("WHY404", "a real tensor among fake ones", wrong="register_fake: the operator has one")
def fake_and_real(failure: Failure) -> Explanation | None:
    """Recognise a tensor that was made outside of the mode that makes fake tensors."""
    found = failure.search(
        r"Please "
        r"convert "
        r"all "
        r"Tensors to FakeTensors first or instantiate FakeTensorMode with 'allow_non_fake_inputs'\. Found in ([\w.]+)"
    )
    if found is None:
        return None
    return Explanation(
        f"{operator_name(found[1])} got a FakeTensor and a real tensor: the real one was made outside of "
        "FakeTensorMode",
        (
            Fix(text="mode.from_tensor(x)  # convert the real tensor first"),
            Fix(text="or FakeTensorMode(allow_non_fake_inputs=True)"),
        ),
    )


@cause("WHY405", "an output whose shape depends on data", wrong="register_fake for an operator of PyTorch: it has one")
def dynamic_shape(failure: Failure) -> Explanation | None:
    """Recognise an operator whose result has a shape that only its data decide, under fake tensors."""
    found = failure.search(r"DynamicOutputShapeException: ([\w.]+)") or failure.search(
        r"[Dd]ynamic shape operator.*?(aten\.[\w.]+|[\w]+\.[\w.]+\.default)"
    )
    if found is None:
        return None
    name = operator_name(found[1])
    static = " torch.nonzero_static(x, size=N), or" if "nonzero" in name else ""
    compiled = "compil" in failure.text or "dynamo" in failure.text.lower()
    fix = (
        "torch._dynamo.config.capture_dynamic_output_shape_ops = True"
        if compiled
        else "FakeTensorMode(shape_env=ShapeEnv())  # from torch.fx.experimental.symbolic_shapes"
    )
    return Explanation(
        f"the output shape of {name} depends on the data of its input, which fake tensors do not have",
        (Fix(text=fix), Fix(text=f"or an operator of a fixed size:{static} torch.where(condition, a, b)")),
    )


@cause("WHY406", "a value that depends on data", wrong="register_fake: no shape is missing")
def dynamic_value(failure: Failure) -> Explanation | None:
    """Recognise .item() or a branch on data of fake tensors."""
    found = (
        failure.search(r"DataDependentOutputException: ([\w.]+)")
        or failure.search(r"GuardOnDataDependentSymNode: ([^\n]+)")
        or failure.search(
            r"(Unsupported Tensor\.item\(\) call|Data-dependent branching|Data dependent (?:operator|branching))"
        )
    )
    if found is None:
        return None
    return Explanation(
        f"{found[1]}: the program asks for a value of a tensor while it is traced, where tensors have no data",
        (
            Fix(text="stay in tensors: torch.where(condition, a, b) in place of a branch on .item()"),
            Fix(text="or torch._check(...) with torch._dynamo.config.capture_scalar_outputs = True"),
        ),
    )


@cause("WHY407", "fake tensors of different devices", wrong="a kernel for the other device")
def fake_devices(failure: Failure) -> Explanation | None:
    """Recognise operands on different devices under fake tensors."""
    found = failure.search(
        r"Unhandled FakeTensor Device Propagation for ([\w.]+), found two different devices (\S+), (\S+)"
    )
    if found is None:
        return None
    first, second = found[2].rstrip(","), found[3].rstrip(",.")
    return Explanation(
        f"{operator_name(found[1])} got tensors on {first} and {second}: one of them stayed on another device",
        (Fix(text=f"move it first: x.to({first!r})"),),
    )


@cause(
    "WHY408",
    "a kernel that reads the data of a tensor without data",
    wrong=".contiguous(): there is no storage to copy",
)
def no_storage(failure: Failure) -> Explanation | None:
    """Recognise a C++ function that takes the data pointer of a wrapped or fake tensor."""
    if (
        failure.search(
            r"Cannot access data pointer of Tensor(?: \(e\.g\.[^)]*\))? that doesn't have storage|"
            r"Cannot access data pointer of Tensor that doesn't"
        )
        is None
    ):
        return None
    call = failure.call or (failure.at.text if failure.at else "")
    vmapped = "vmap" in call or any("vmap" in name for name in failure.stack)
    wrapped = "vmap gives it a batched tensor" if vmapped else "tracing gives it a fake tensor"
    rule = "register_vmap" if vmapped else "register_fake"
    return Explanation(
        f"a function of C++ that is no operator (pybind) reads data_ptr, and {wrapped}, which has no storage: `{call}`",
        (
            Fix(
                text='wrap it: @torch.library.custom_op("my::name", mutates_args=()) around the call'
                f" (or TORCH_LIBRARY in C++), and give it {rule}"
            ),
        ),
    )
