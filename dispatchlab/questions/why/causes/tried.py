"""What an operator does that its schema does not say, seen when it was tried or when its package was imported."""

from __future__ import annotations

from dispatchlab.model.failure import Failure, Fix, OperatorFacts
from dispatchlab.questions.why.cause import Explanation, cause
from dispatchlab.questions.why.causes.wording import arguments_of, line_of_definition, listed


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
