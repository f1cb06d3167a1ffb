"""Fake kernels: missing, with another signature or another result; fake tensors beside real ones."""

from __future__ import annotations

from dataclasses import replace

from dispatchlab.model.failure import Failure, Fix, OperatorFacts, operator_name
from dispatchlab.questions.why.cause import Explanation, cause
from dispatchlab.questions.why.causes.wording import (
    arguments_of,
    line_of_definition,
    registered_lines,
    short_site,
    signature_of,
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
_FAKE_CALL = r"call_function ([\w.]+)\(\*\(.*?\), \*\*\{.*?\}\): got "


def _under_dtensor(failure: Failure) -> bool:
    return any(name.startswith("torch.distributed.tensor") for name in failure.stack)


def _at_fake(facts: OperatorFacts | None) -> str:
    return f" at {short_site(facts.fake)}" if facts and facts.fake else ""


def _given(failure: Failure) -> str:
    """Return which tensors without data the program runs on."""
    if _under_dtensor(failure):
        return "the FakeTensors from which DTensor takes the shape of a result"
    fake = "fake_tensor" in " ".join(failure.stack) or "FakeTensor" in failure.text or "dynamo" in failure.text
    fake = fake or "UnsupportedOperatorException" in failure.text
    return "FakeTensors, as torch.compile and torch.export trace with" if fake else "meta tensors"


@cause("WHY401", "no fake kernel", wrong="a kernel for another device: the real one is there")
def no_fake(failure: Failure) -> Explanation | None:
    """Recognise an operator without a fake kernel under compile, export, or on meta tensors."""
    name = next((operator_name(found[1]) for pattern in _NO_FAKE if (found := failure.search(pattern))), "")
    if not name:
        return None
    facts = failure.registry.operator(name)
    if facts is not None and facts.fake:
        return None
    packet = name.partition(".")[0]
    fixes = _fake_fixes(packet, facts, failure.fake_body(name))
    if _under_dtensor(failure):
        fixes = tuple(replace(fix, code="", otherwise=False) for fix in fixes[:1])
        rule = f"and torch.distributed.tensor.experimental.register_sharding(torch.ops.{packet.replace('::', '.')}"
        fixes = (*fixes, Fix(text=f"{rule}.default)(rule)", needs="your rule"))
    return Explanation(
        f"{name} has no fake kernel, so it cannot run on {_given(failure)}{line_of_definition(facts, failure)}",
        fixes,
        registered_lines(failure, name),
    )


def _fake_fixes(packet: str, facts: OperatorFacts | None, body: str) -> tuple[Fix, ...]:
    """Return the fake kernel: from a run of the kernel where one was made, else as the schema lets guess."""
    schema = facts.schema if facts else ""
    parameters = signature_of(schema) or "*args"
    tensors = [argument for kind, argument in arguments_of(schema) if kind.startswith("Tensor")]
    result = schema.rpartition("-> ")[2]
    guess = f"torch.empty_like({tensors[0]})" if tensors and result == "Tensor" else "None" if result == "()" else ""
    general = Fix(
        text=f'torch.library.register_fake("{packet}", lambda {parameters}: ...)  # tensors of the shape, dtype and '
        "device of the results",
        needs="the shape and dtype of your results",
        otherwise=True,
    )
    if not body and not guess:
        return (general,)
    text = f'torch.library.register_fake("{packet}", lambda {parameters}: {body or guess})'
    if "get_ctx()" in body:
        return (Fix(text=f"{text}  # its size depends on the data", needs="a ShapeEnv, as compile and export have"),)
    note = "" if body or guess == "None" else "  # give the shape and dtype of your result"
    return (Fix(text=f"{text}{note}", code=f"import torch\n{text}"), general)


@cause("WHY402", "a fake kernel with another signature", wrong="a second fake: the one that is there is called")
def fake_signature(failure: Failure) -> Explanation | None:
    """Recognise a fake kernel that does not take what its operator gives."""
    found = failure.search(r"TypeError ([\w.]+): ([\w.<>]+\(\)) ([^\n]+)")
    if found is not None and "fake tensor call" in failure.text:
        name, function, what = operator_name(found[1]), found[2], found[3]
    else:
        inner = failure.search(
            r"TypeError: ([\w.<>]+\(\)) (missing [^\n]+|takes [^\n]+|got an unexpected [^\n]+|got multiple [^\n]+)"
        )
        if inner is None or not _in_fake(failure):
            return None
        fakes = [event.subject for event in failure.of("register_fake")]
        mentioned = [subject for subject in fakes if subject.partition("::")[2].partition(".")[0] in failure.call]
        name, function, what = next(iter([*mentioned, *reversed(fakes)]), ""), inner[1], inner[2]
    facts = failure.registry.operator(name) if name else None
    schema = facts.schema if facts else ""
    return Explanation(
        f"the fake kernel of {name or 'an operator'}{_at_fake(facts)} does not take what its schema has: "
        f"{function} {what}",
        (Fix(text=f"def _({signature_of(schema)}): ...  # the same parameters, with the defaults of the schema"),),
        ((f"schema: {schema}",) if schema else ()),
    )


def _in_fake(failure: Failure) -> bool:
    calls = (name for name in failure.stack if not name.endswith("fake_impl.register"))
    return any("fake_impl" in name or "abstract" in name for name in calls)


@cause("WHY403", "a fake kernel that gives other results", wrong="another kernel: what the real one gives is right")
def fake_mismatch(failure: Failure) -> Explanation | None:
    """Recognise a fake whose shape, strides, dtype or number of results differ from the kernel's."""
    found = (
        failure.search(
            r"comparing the output of ([\w.]+) on FakeTensor and concrete Tensors, "
            r"found (mismatch[^\n]+?)(?: \(scroll|\n|$)"
        )
        or failure.search(r"Error in op: (?:torch\.ops\.)?([\w.:]+)\n().*?fake \(aka meta\) kernel")
        or failure.search(
            _FAKE_CALL + r"TypeError\([\"'](Object of type 'FakeTensor' is not an instance of 'sequence')"
        )
    )
    if found is not None:
        name, what = operator_name(found[1]), found[2].replace("mismatched tensor metadata: ", "").rstrip("!")
        sizes = failure.search(r"expected (size [^\n]+)")
        if sizes is not None and not what:
            what = f"the kernel gives left, the fake right of ==: {sizes[1]}"
        elif "sequence" in what:
            what = "the fake gives one tensor, the schema has several results"
    elif (name := _with_empty_fake(failure)) != "":
        what = "the fake returns None, its `return` is missing"
    else:
        return None
    facts = failure.registry.operator(name)
    packet = name.partition(".")[0]
    body = failure.fake_body(name)
    text = f'torch.library.register_fake("{packet}", lambda {signature_of(facts.schema) if facts else "*args"}: {body})'
    dtype = failure.search(r"Dtypes (torch\.\w+) and (torch\.\w+) are not equal")
    general = (
        f"give the result dtype={dtype[1]} in the fake, for example x.new_empty(n, dtype={dtype[1]})"
        if dtype
        else "give the shape, strides and dtype that the kernel gives, for every input"
    )
    fixes = [Fix(text=f"{general}  # in the fake kernel of {packet}", otherwise=True)]
    if body:
        fixes.insert(0, Fix(text=text, code=f"import torch\n{text}" if "get_ctx()" not in body else ""))
    return Explanation(
        f"the fake kernel of {name}{_at_fake(facts)} and its kernel give different results: {what}",
        tuple(fixes),
        ((f"schema: {facts.schema}",) if facts else ()),
    )


def _with_empty_fake(failure: Failure) -> str:
    """Return the operator whose fake kernel returns None and whose schema does not; empty where none is seen."""
    if "NoneType" not in failure.text or not ("user code" in failure.text or "fake_tensor" in " ".join(failure.stack)):
        return ""
    for event in failure.of("custom_op", "define"):
        facts = failure.registry.operator(event.subject)
        if facts is not None and facts.empty_fake and not facts.schema.endswith("-> ()"):
            return facts.name
    return ""


@cause("WHY404", "a real tensor among fake ones", wrong="register_fake: the operator has one")
def fake_and_real(failure: Failure) -> Explanation | None:
    """Recognise a tensor that was made outside of the mode that makes fake tensors."""
    if failure.search(r"Mixing fake modes NYI|fake mode \([^\n]*does(?:n't| not) match mode") is not None:
        return Explanation(
            "FakeTensors of two FakeTensorModes meet in a call: a mode takes its own FakeTensors alone",
            (Fix(text="mode = FakeTensorMode() once, and `with mode:` around both calls"),),
        )
    found = failure.search(
        r"Please convert all Tensors to FakeTensors first or instantiate FakeTensorMode with "
        r"'allow_non_fake_inputs'\. Found in ([\w.]+)"
    )
    if found is None:
        return None
    operator = operator_name(found[1])
    fake = _failing_fake(failure)
    if fake is not None:
        return Explanation(
            f"the fake kernel of {fake.name} at {failure.at} gives {operator} a real tensor from outside beside "
            f"FakeTensors: `{failure.at.text if failure.at else ''}`",
            (
                Fix(text="describe the result alone: torch.empty_like(x), x.new_empty(shape), without that tensor"),
                Fix(text="or make the tensor an argument of the operator"),
            ),
        )
    return Explanation(
        f"{operator} got a FakeTensor and a real tensor: one was made in FakeTensorMode, the other outside of it",
        (
            Fix(text="mode.from_tensor(x)  # convert the real tensor first, or make both inside of `with mode:`"),
            Fix(text="or FakeTensorMode(allow_non_fake_inputs=True)"),
        ),
    )


def _failing_fake(failure: Failure) -> OperatorFacts | None:
    """Return the operator in whose fake kernel the user's innermost line is."""
    at, best, line = failure.at, None, 0
    if at is None or not _in_fake(failure):
        return None
    for event in failure.of("custom_op", "define", "register_fake"):
        facts = failure.registry.operator(event.subject)
        file, _, first = short_site(facts.fake).rpartition(":") if facts is not None else ("", "", "")
        if file == at.file and first.isdigit() and line < int(first) <= at.line:
            best, line = facts, int(first)
    return best


@cause("WHY405", "an output whose shape depends on data", wrong="register_fake for an operator of PyTorch: it has one")
def dynamic_shape(failure: Failure) -> Explanation | None:
    """Recognise an operator whose result has a shape that only its data decide, under fake or meta tensors."""
    found = (
        failure.search(r"DynamicOutputShapeException: ([\w.]+)")
        or failure.search(r"[Dd]ynamic shape operator.*?(aten\.[\w.]+|[\w]+\.[\w.]+\.default)")
        or failure.search(r"register_meta function for torch\.(\w+)\(\) raises unimplemented")
        or failure.search(r"([\w:.]+) \([^\n]*\): You're trying to run this operator with meta Tensors")
        or (failure.search(r"\n?RuntimeError: (aten\.(?:nonzero|unique\w*|masked_select)\.\w+)$"))
    )
    if found is None:
        return None
    name = operator_name(found[1]) or f"aten::{found[1]}"
    static = " torch.nonzero_static(x, size=N), or" if "nonzero" in name else ""
    fixed = Fix(text=f"or an operator of a fixed size:{static} torch.where(condition, a, b)")
    fake = _failing_fake(failure)
    if _under_dtensor(failure):
        first = Fix(text="call it on plain tensors: x.full_tensor(), or x.to_local()", wrap="{}.full_tensor()")
    elif "meta Tensors" in failure.text or "register_meta" in failure.text:
        first = Fix(text="call it on tensors with data, or trace with FakeTensorMode(shape_env=ShapeEnv())")
    elif fake is not None:
        size = "torch.library.get_ctx().new_dynamic_size()"
        first = Fix(text=f"in the fake kernel of {fake.name}: n = {size}; return x.new_empty((n,))")
    elif "compil" in failure.text or "dynamo" in failure.text.lower():
        first = Fix(text="torch._dynamo.config.capture_dynamic_output_shape_ops = True")
    else:
        first = Fix(text="FakeTensorMode(shape_env=ShapeEnv())  # from torch.fx.experimental.symbolic_shapes")
    inside = f" in the fake kernel of {fake.name} at {failure.at}" if fake else ""
    return Explanation(
        f"the output shape of {name}{inside} depends on the data of its input, which fake and meta tensors do not have",
        (first, fixed),
    )


@cause("WHY406", "a value that depends on data", wrong="register_fake: no shape is missing")
def dynamic_value(failure: Failure) -> Explanation | None:
    """Recognise .item() or a branch on data of fake tensors."""
    found = (
        failure.search(r"DataDependentOutputException: ([\w.]+)")
        or failure.search(
            r"(Could not (?:guard on|extract specialized integer from) data-dependent expression [^\n(]+)"
        )
        or failure.search(r"GuardOnDataDependentSymNode: ([^\n]+)")
        or failure.search(
            r"(Unsupported Tensor\.item\(\) call|Data-dependent branching|Data dependent (?:operator|branching))"
        )
        or failure.search(r"get value out of a tracing tensor with ([\w.]+)")
        or failure.search(r"fake tensors: [^\n]*slice\([^\n]*(slice indices must be integers)")
        or failure.search(r"(Cannot convert a FakeTensor to a (?:number|bool|Python scalar)|Tensor\.tolist\(\) with)")
    )
    if found is None:
        return None
    what = ".item()" if "_local_scalar_dense" in found[1] else found[1].strip()
    fake = _failing_fake(failure)
    where = f" at {failure.at}" if failure.at else ""
    who = f"the fake kernel of {fake.name}" if fake else "the program"
    second = (
        "or n = torch.library.get_ctx().new_dynamic_size() for a size that the data decide"
        if fake
        else "or torch.cond(condition, f, g, args) for a branch; torch._check(n > 0) where the size is bounded, with "
        "torch._dynamo.config.capture_scalar_outputs = True"
    )
    return Explanation(
        f"{what}{where}: {who} asks for a value of a tensor while it is traced, where tensors have no data "
        "(data-dependent)",
        (Fix(text="stay in tensors: torch.where(condition, a, b) in place of a branch on .item()"), Fix(text=second)),
    )


@cause("WHY407", "fake tensors of different devices", wrong="a kernel for the other device")
def fake_devices(failure: Failure) -> Explanation | None:
    """Recognise operands on different devices under fake tensors."""
    found = failure.search(
        r"Unhandled FakeTensor Device Propagation for ([\w.]+), found two different devices (\S+), (\S+)"
    ) or failure.search(
        r"FakeTensorDeviceMismatchError: ()Expected all tensors to be on the same device, but found at least two "
        r"devices, ([\w:]+) and ([\w:]+)"
    )
    if found is None:
        return None
    first, second = found[2].rstrip(","), found[3].rstrip(",.!")
    who = operator_name(found[1]) or f"`{failure.call or 'a call'}`"
    return Explanation(
        f"{who} got FakeTensors on {first} and {second}: one of them stayed on another device, or a fake kernel made "
        "its result without device=x.device",
        (
            Fix(text=f"make both on one: torch.ones(..., device=x.device), or x.to({first!r})"),
            Fix(text="or, where a fake kernel made it: x.new_empty(shape), which keeps the device of x"),
        ),
    )


@cause(
    "WHY408",
    "a function that reads the data of a tensor without data",
    wrong=".contiguous(): there is no storage to copy",
)
def no_storage(failure: Failure) -> Explanation | None:
    """Recognise a function that takes the data pointer of a wrapped or fake tensor, or its numpy array."""
    own = any(" tensor" in event.detail for event in failure.of("handler"))
    numpy = None if own else failure.search(r"\.numpy\(\) is not supported for tensor subclasses")
    if numpy is None and not failure.search(
        r"Cannot access data pointer of Tensor (?:\(e\.g\.|that doesn't)|Accessing the data pointer of FakeTensor"
    ):
        return None
    fake = _failing_fake(failure)
    if fake is not None:
        body = failure.fake_body(fake.name)
        parameters = signature_of(fake.schema)
        return Explanation(
            f"the fake kernel of {fake.name} at {failure.at} reads the data of a FakeTensor, which has none: "
            f"`{failure.at.text if failure.at else ''}`",
            _mended_fake(fake.packet, parameters, body),
        )
    call = failure.call or (failure.at.text if failure.at else "")
    vmapped = "vmap" in call or any("vmap" in name for name in failure.stack)
    wrapped = "vmap gives it a batched tensor" if vmapped else "tracing gives it a fake tensor"
    rule = "register_vmap" if vmapped else "register_fake"
    what = "calls .numpy()" if numpy else "reads data_ptr"
    return Explanation(
        f"a function that is no operator (pybind, ctypes, numpy) {what}, and {wrapped}, which has no storage: `{call}`",
        (
            Fix(
                text='wrap it: @torch.library.custom_op("my::name", mutates_args=()) around the call'
                f" (or TORCH_LIBRARY in C++), and give it {rule}"
            ),
        ),
    )


def _mended_fake(packet: str, parameters: str, body: str) -> tuple[Fix, ...]:
    general = Fix(
        text=f'torch.library.register_fake("{packet}", lambda {parameters}: ...)  # torch.empty_like(x) or '
        "x.new_empty(shape, dtype=...), which read no data",
        otherwise=True,
    )
    text = f'torch.library.register_fake("{packet}", lambda {parameters}: {body})'
    return (Fix(text=text, code=f"import torch\n{text}"), general) if body else (general,)


@cause("WHY409", "a fake kernel that raises", wrong="register_fake for the operators that the fake calls")
def fake_raises(failure: Failure) -> Explanation | None:
    """Recognise an exception out of the user's fake kernel."""
    fake = _failing_fake(failure)
    if fake is None or failure.at is None:
        return None
    found = failure.search(r"fake tensors: [^\n]*?got ([^\n]+)")
    what = found[1] if found is not None else f"{failure.chain[0].name}: {failure.chain[0].text.splitlines()[0]}"
    return Explanation(
        f"the fake kernel of {fake.name} raises at {failure.at}: {what}",
        _mended_fake(fake.packet, signature_of(fake.schema), failure.fake_body(fake.name)),
        (f"schema: {fake.schema}",),
    )
