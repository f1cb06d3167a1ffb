"""Fake kernels: missing, with another signature or another result, or raising."""

from __future__ import annotations

from dataclasses import replace

from dispatchlab.model.failure import Failure, Fix, OperatorFacts, operator_name
from dispatchlab.questions.why.cause import Explanation, cause
from dispatchlab.questions.why.causes.text_rows import register_rows
from dispatchlab.questions.why.causes.wording import (
    arguments_of,
    failing_fake,
    in_fake,
    line_of_definition,
    registered_lines,
    short_site,
    signature_of,
    under_dtensor,
)

_NO_FAKE = (
    r"UnsupportedOperatorException: ([\w.]+)",
    r"([\w:.]+): attempted to run this operator with Meta tensors, but there was no fake impl",
    r"[Nn]o fake impl (?:registered )?for <?(?:CustomOpDef\()?([\w:.]+)",
    r"Operator ([\w:.]+)(?: \(overload [\w.]+\))? does not have a (?:fake|meta) (?:impl|kernel)",
    r"Could not run '([\w:.]+)' with arguments from the 'Meta' backend",
)
_MISMATCH = (
    r"comparing the output of ([\w.]+) on FakeTensor and concrete Tensors, found (mismatch[^\n]+?)(?: \(scroll|\n|$)",
    r"expected (?P<sizes>size [^\n]+)\nError in op: (?:torch\.ops\.)?([\w.:]+)",
    r"call_function ([\w.]+)\(\*\(.*?\), \*\*\{.*?\}\): got TypeError\(.Object of type 'FakeTensor' is not an inst",
)


@cause("WHY401", "no fake kernel", wrong="a kernel for another device: the real one is there")
def no_fake(failure: Failure) -> Explanation | None:
    """Recognise an operator without a fake kernel under compile, export, or on meta tensors."""
    name = next((operator_name(found[1]) for pattern in _NO_FAKE if (found := failure.search(pattern))), "")
    facts = failure.registry.operator(name) if name else None
    if not name or (facts is not None and facts.fake):
        return None
    packet = name.partition(".")[0]
    fixes = _fake_fixes(packet, facts, failure.fake_body(name))
    given = "meta tensors"
    if under_dtensor(failure):
        given = "the FakeTensors from which DTensor takes the shape of a result"
        rule = f"torch.distributed.tensor.experimental.register_sharding(torch.ops.{packet.replace('::', '.')}.default)"
        fixes = (
            *(replace(fix, code="", otherwise=False) for fix in fixes[:1]),
            Fix(text=f"and {rule}(rule)", needs="your rule"),
        )
    elif "FakeTensor" in failure.text or "UnsupportedOp" in failure.text or "fake_tensor" in " ".join(failure.stack):
        given = "FakeTensors, as torch.compile and torch.export trace with"
    return Explanation(
        f"{name} has no fake kernel, so it cannot run on {given}{line_of_definition(facts, failure)}",
        fixes,
        registered_lines(failure, name),
    )


def _fake_fixes(packet: str, facts: OperatorFacts | None, body: str, general: str = "") -> tuple[Fix, ...]:
    """Return the fake kernel: from a run of the kernel where one was made, else as the schema lets guess."""
    schema = facts.schema if facts else ""
    head = f'torch.library.register_fake("{packet}", lambda {signature_of(schema) or "*args"}: '
    otherwise = Fix(
        text=general or f"{head}...)  # tensors of the shape, dtype and device of the results, which read no data",
        otherwise=True,
    )
    if "get_ctx()" in body:
        return (Fix(text=f"{head}{body})  # its size depends on the data", needs="a ShapeEnv, as compile has"),)
    note = ""
    if not body and facts is not None and not facts.fake:
        tensors = [argument for kind, argument in arguments_of(schema) if kind.startswith("Tensor")]
        body = "None" if schema.endswith("-> ()") else f"torch.empty_like({tensors[0]})" if tensors else ""
        note = "" if body == "None" else "  # give the shape and dtype of your result"
    if not body or (note and not schema.endswith("-> Tensor")):
        return (otherwise,)
    return (Fix(text=f"{head}{body}){note}", code=f"import torch\n{head}{body})"), otherwise)


@cause("WHY402", "a fake kernel with another signature", wrong="a second fake: the one that is there is called")
def fake_signature(failure: Failure) -> Explanation | None:
    """Recognise a fake kernel that does not take what its operator gives."""
    found = failure.search(r"TypeError ([\w.]+): ([\w.<>]+\(\) [^\n]+)")
    if found is not None and "fake tensor call" in failure.text:
        name, what = operator_name(found[1]), found[2]
    else:
        inner = failure.search(r"TypeError: ([\w.<>]+\(\) (?:missing|takes|got an unexpected|got multiple) [^\n]+)")
        if inner is None or not in_fake(failure):
            return None
        fakes = [event.subject for event in failure.of("register_fake")]
        called = [fake for fake in fakes if fake.partition("::")[2].partition(".")[0] in failure.call]
        name, what = next(iter([*called, *reversed(fakes)]), ""), inner[1]
    facts = failure.registry.operator(name) if name else None
    schema = facts.schema if facts else ""
    return Explanation(
        f"the fake kernel of {name or 'an operator'}{_at_fake(facts)} does not take what its schema has: {what}",
        (Fix(text=f"def _({signature_of(schema)}): ...  # the same parameters, with the defaults of the schema"),),
        ((f"schema: {schema}",) if schema else ()),
    )


def _at_fake(facts: OperatorFacts | None) -> str:
    return f" at {short_site(facts.fake)}" if facts and facts.fake else ""


@cause("WHY403", "a fake kernel that gives other results", wrong="another kernel: what the real one gives is right")
def fake_mismatch(failure: Failure) -> Explanation | None:
    """Recognise a fake whose shape, strides, dtype or number of results differ from the kernel's."""
    found = next((found for pattern in _MISMATCH if (found := failure.search(pattern))), None)
    if found is None:
        name, what = _with_empty_fake(failure), "the fake returns None, its `return` is missing"
    elif sizes := found.groupdict().get("sizes"):
        name, what = operator_name(found[2]), f"the kernel gives left, the fake right of ==: {sizes}"
    elif found.re.groups == 1:
        name, what = operator_name(found[1]), "the fake gives one tensor, the schema has several results"
    else:
        name, what = operator_name(found[1]), found[2].replace("mismatched tensor metadata: ", "").rstrip("!")
    if not name:
        return None
    facts = failure.registry.operator(name)
    packet = name.partition(".")[0]
    dtype = failure.search(r"Dtypes (torch\.\w+) and (torch\.\w+) are not equal")
    general = "give the shape, strides and dtype that the kernel gives, for every input"
    if dtype is not None:
        general = f"give the result dtype={dtype[1]}, for example x.new_empty(n, dtype={dtype[1]})"
    return Explanation(
        f"the fake kernel of {name}{_at_fake(facts)} and its kernel give different results: {what}",
        _fake_fixes(packet, facts, failure.fake_body(name), f"{general}  # in the fake kernel of {packet}"),
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


@cause("WHY408", "a function that reads the data of a tensor without data", wrong=".contiguous(): there is no storage")
def no_storage(failure: Failure) -> Explanation | None:
    """Recognise a function that takes the data pointer of a wrapped or fake tensor, or its numpy array."""
    found = failure.search(
        r"(\.numpy\(\)) is not supported for tensor subclasses|Accessing the data pointer of FakeTensor|"
        r"Cannot access data pointer of Tensor (?:\(e\.g\.|that doesn't)"
    )
    tracers = ("proxy_tensor", "fake_tensor", "_dynamo", "functorch", "vmap")
    traced = "FakeTensor" in failure.source or any(one in name for name in failure.stack for one in tracers)
    if found is None or (found[1] and not traced):
        return None
    fake = failing_fake(failure)
    if fake is not None:
        return Explanation(
            f"the fake kernel of {fake.name} at {failure.at} reads the data of a FakeTensor, which has none: "
            f"`{failure.at.text if failure.at else ''}`",
            _fake_fixes(fake.packet, fake, failure.fake_body(fake.name)),
        )
    call = failure.call or (failure.at.text if failure.at else "")
    vmapped = "vmap" in call or any("vmap" in name for name in failure.stack)
    wrapped, rule = ("vmap gives it a batched tensor", "register_vmap") if vmapped else (
        "tracing gives it a fake tensor", "register_fake"
    )  # fmt: skip
    return Explanation(
        f"a function that is no operator (pybind, ctypes, numpy) {'calls .numpy()' if found[1] else 'reads data_ptr'}, "
        f"and {wrapped}, which has no storage: `{call}`",
        (
            Fix(
                text='wrap it: @torch.library.custom_op("my::name", mutates_args=()) around the call'
                f" (or TORCH_LIBRARY in C++), and give it {rule}"
            ),
        ),
    )


register_rows("fake_kernels")


@cause("WHY409", "a fake kernel that raises", wrong="register_fake for the operators that the fake calls")
def fake_raises(failure: Failure) -> Explanation | None:
    """Recognise an exception out of the user's fake kernel."""
    fake = failing_fake(failure)
    if fake is None:
        return None
    found = failure.search(r"fake tensors: [^\n]*?got ([^\n]+)")
    what = found[1] if found is not None else f"{failure.chain[0].name}: {failure.chain[0].text.splitlines()[0]}"
    return Explanation(
        f"the fake kernel of {fake.name} raises at {failure.at}: {what}",
        _fake_fixes(fake.packet, fake, failure.fake_body(fake.name)),
        (f"schema: {fake.schema}",),
    )
