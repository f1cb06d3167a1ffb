"""What an operator does that its schema does not say, seen when it was tried or when its package was imported."""

from __future__ import annotations

from dispatchlab.model.failure import Event, Failure, Fix, OperatorFacts
from dispatchlab.questions.why.cause import Explanation, cause
from dispatchlab.questions.why.causes.wording import arguments_of, line_of_definition, listed, signature_of


@cause("WHY231", "a function that does not take the schema's arguments", wrong="another schema, where callers use it")
def does_not_bind(failure: Failure) -> Explanation | None:
    """Recognise a kernel, fake, rule or setup_context whose parameters are not those of the schema."""
    events = failure.of("does not bind")
    if not events:
        return None
    name = events[0].subject
    facts = failure.registry.operator(name)
    schema = facts.schema if facts else ""
    wrong = []
    for event in events:
        role, _, what = event.detail.partition("|")
        wrong.append(f"the {role}{f' at {event.at}' if event.at else ''} does not take what its schema has: {what}")
    return Explanation(
        f"of {name}, {'; '.join(wrong)}",
        tuple(Fix(text=_parameters(event, schema)) for event in events),
        ((f"schema: {schema}",) if schema else ()),
    )


def _parameters(event: Event, schema: str) -> str:
    """Return the head of the function that takes what the schema has."""
    role = event.detail.partition("|")[0]
    name = event.at.function if event.at else "_"
    if role == "setup_context":
        only = ", keyword_only_inputs" if ", *, " in schema or "(*, " in schema else ""
        return f"def {name}(ctx, inputs{only}, output): ...  # by these names"
    if role == "backward":
        count = schema.rpartition("->")[2].count(",") + 1
        grads = ["grad"] if count == 1 else [f"grad{at}" for at in range(count)]
        return f"def {name}(ctx, {', '.join(grads)}): ...  # a gradient for each result"
    return f"def {name}({'info, in_dims, ' if role == 'vmap rule' else ''}{signature_of(schema)}): ..."


@cause("WHY232", "a kernel that returns what the schema does not say", wrong="register_fake: the kernel is wrong")
def other_kinds(failure: Failure) -> Explanation | None:
    """Recognise a kernel that returns None, one value for two, or a value of another type."""
    found = failure.search(
        r"returned (None) where the schema has"
        r"|Object of type '(\w+)' is not an instance of 'sequence'"
        r"|Unable to cast Python instance of type <class '([\w.]+)'>"
        r"|Unable to cast (\w+) to (?:Tensor|\w+)"
    )
    if found is None or failure.of("wrong result") or failure.search("Expected a value of type") is not None:
        return None
    name = failure.call.removeprefix("torch.ops.").partition("(")[0].replace(".", "::", 1)
    facts = failure.registry.operator(name) if "::" in name else None
    if facts is None:
        return None
    given = next(group for group in found.groups() if group)
    returns = facts.schema.rpartition("-> ")[2]
    return Explanation(
        f"the kernel of {facts.name} returns {given} where its schema says {returns}"
        f"{line_of_definition(facts, failure)}",
        (
            Fix(text=f"return {_example(returns)} in the kernel"),
            Fix(text='or write what it returns in the schema, "-> ()" for nothing'),
        ),
        (f"schema: {facts.schema}",),
    )


def _example(returns: str) -> str:
    count = returns.count(",") + 1
    return "the result" if count == 1 else f"({', '.join(f'result{at}' for at in range(count))})"


@cause("WHY233", "a custom_op that replaces another", wrong="allow_override: the first one is gone without a word")
def replaced(failure: Failure) -> Explanation | None:
    """Recognise two custom operators of one name."""
    event = next(iter(failure.of("replaced")), None)
    if event is None:
        return None
    made = [each for each in failure.of("custom_op") if each.subject == event.subject and each.at]
    places = " and ".join(str(each.at) for each in made[-2:])
    schemas = tuple(f"{each.at}: {each.subject}{each.detail}" for each in made[-2:])
    return Explanation(
        f"{event.subject} is made twice, at {places}: the second custom_op silently replaces the first, and the object "
        "that the first returned runs the second",
        (Fix(text="give one of the two another name or namespace, or import it from the other module"),),
        schemas,
    )


@cause("WHY431", "an operator that is said to write and does not", wrong="register_autograd: PyTorch refuses it")
def writes_nothing(failure: Failure) -> Explanation | None:
    """Recognise mutates_args="unknown" on an operator that writes nothing."""
    event = next(iter(failure.of("wrote nothing")), None)
    if event is None:
        return None
    facts = failure.registry.operator(event.subject)
    tensors = [name for kind, name in arguments_of(facts.schema if facts else "") if kind.startswith("Tensor")]
    return Explanation(
        f'{event.subject} has mutates_args="unknown", so {listed(tensors)} are declared as written; on '
        f"{event.detail} inputs none changed{line_of_definition(facts, failure)}: it has no gradient, its calls "
        "invalidate what others saved for backward, and compile and vmap refuse some of them",
        (Fix(text=f'@torch.library.custom_op("{event.subject}", mutates_args=())'),),
        ((f"schema: {facts.schema}",) if facts else ()),
    )


@cause("WHY531", "autograd inside of a backend kernel", wrong="register_fake: shapes are right")
def autograd_below(failure: Failure) -> Explanation | None:
    """Recognise a kernel for a backend whose inner calls record gradients."""
    found = failure.search(
        r"(\w+::[\w.]+): at least one output of this operator has requires_grad=True but the operator does not have an "
        r"autograd kernel"
    )
    if found is None:
        return None
    facts: OperatorFacts | None = failure.registry.operator(found[1])
    keys = [key for key in (facts.backends if facts else ()) if key != "Meta"]
    return Explanation(
        f"{found[1]} has no autograd kernel, and the calls inside of its {listed(keys)} kernel record gradients"
        f"{line_of_definition(facts, failure)}: compile and functorch do not see them",
        (
            Fix(
                text=f'torch.library.register_autograd("{found[1].partition(".")[0]}", backward, setup_context=...)',
                needs="your backward",
            ),
            Fix(text='or "CompositeImplicitAutograd" for the kernel, where it calls operators of PyTorch alone'),
        ),
    )


_PARTS = {
    "linear": "addmm",
    "matmul": "mm",
    "to": "_to_copy",
    "conv2d": "convolution",
    "max_pool2d": "max_pool2d_with_indices",
    "upsample_nearest2d": "upsample_nearest2d",
}


@cause("WHY533", "a composite operator that a backend overrides", wrong="allow_override: the kernel is registered")
def overridden_composite(failure: Failure) -> Explanation | None:
    """Recognise a kernel for a backend in place of a composite one, whose parts recorded the gradient."""
    event = next(iter(failure.of("overrides composite")), None)
    ran = failure.search(r"Could not run 'aten::(\w+)_backward' with arguments from the '(\w+)' backend")
    if event is None and ran is not None:
        impls = [each for each in failure.of("impl") if each.subject.partition(".")[0] == f"aten::{ran[1]}"]
        event = impls[-1] if impls else None
    if event is None:
        return None
    facts = failure.registry.operator(event.subject)
    if facts is None or "CompositeImplicitAutograd" not in facts.kernels:
        return None
    key, base = event.detail, facts.base.partition(".")[0]
    formula = f"aten::{base}_backward"
    at = f" at {event.at}" if event.at else ""
    if "Autograd" in facts.kernels:
        then = f"its generated formula now runs and calls {formula}, which has no kernel for {key}: backward raises"
        fixes = [Fix(text=f'lib.impl("{base}_backward", kernel, "{key}")  # too', needs="your backward")]
    else:
        then = "nothing records its gradient any more"
        fixes = [Fix(text=f'lib.impl("{facts.base}", kernel, "Autograd{key}")', needs="your torch.autograd.Function")]
    part = _PARTS.get(base, "")
    fixes.append(Fix(text=f"or drop this kernel and register the operator below it{f', aten::{part}' if part else ''}"))
    return Explanation(
        f"the {key} kernel of {facts.name}{at} replaces its CompositeImplicitAutograd kernel: {then}",
        tuple(fixes),
    )


@cause("WHY532", "a backward that is not the derivative", wrong="another tolerance")
def wrong_gradient(failure: Failure) -> Explanation | None:
    """Recognise a gradient that finite differences refute."""
    found = failure.search(r"the backward of (\w+::[\w.]+) gives (a slope of .*)")
    if found is None:
        return None
    facts = failure.registry.operator(found[1])
    return Explanation(
        f"the backward of {found[1]} is not the derivative of its kernel{line_of_definition(facts, failure)}: it gives "
        f"{found[2]}",
        (Fix(text="return the derivative in backward, one for each input", needs="your formula"),),
    )


@cause("WHY631", "autocast on one device alone", wrong="a kernel: the other device has one")
def one_autocast(failure: Failure) -> Explanation | None:
    """Recognise an operator with kernels for devices of which one has an autocast kernel."""
    found = failure.search(r"(\w+::[\w.]+) has an autocast kernel for (\w+) and none for (\w+)")
    if found is None:
        return None
    name, has, lacks = found.groups()
    packet = name.partition(".")[0]
    return Explanation(
        f"{name} has an autocast kernel for {has} and none for {lacks}, where autocast leaves its inputs as they are",
        (Fix(text=f'torch.library.register_autocast("{packet}", "{lacks.lower()}", torch.bfloat16)'),),
    )
