"""Gradients: no formula, one that does not fit or is wrong, an operator that autograd does not see."""

from __future__ import annotations

import re

from dispatchlab.model.failure import Event, Failure, Fix, OperatorFacts, operator_name
from dispatchlab.questions.why.cause import Explanation, cause
from dispatchlab.questions.why.causes.text_rows import register_rows
from dispatchlab.questions.why.causes.wording import arguments_of, line_of_definition, listed, registered_lines

register_rows("gradients")


def _formula(facts: OperatorFacts | None, packet: str, before: str = "") -> Fix:
    """Return the call that gives an operator its formula."""
    call = f'torch.library.register_autograd("{packet}", backward, setup_context=setup_context)'
    returns = f"  # backward(ctx, grad) returns {_gradients(facts.schema)}" if facts else ""
    return Fix(text=f"{before}{call}{returns}", needs="your backward")


def _gradients(schema: str) -> str:
    """Return what a backward returns: a gradient for each tensor, None for what is no tensor."""
    positional = schema.partition(") ->")[0].partition("*, ")[0].rstrip(", ")
    return ", ".join(
        f"[grad_{name}, ...]" if "[]" in kind else f"grad_{name}" if kind.startswith("Tensor") else "None"
        for kind, name in arguments_of(f"{positional}) ->")
    )


def _backward(failure: Failure) -> tuple[str, str]:
    """Return the operator in whose backward the program failed, and where that stands; empty for another function."""
    found = re.search(r"unction (\w+?)(?:Backward)? returned an", failure.text)
    if found is not None and "GeneratedBackwardFor" not in found[1]:
        return "", ""
    events = [event for event in failure.of("function") if event.detail == "backward"]
    lines = " ".join(frame.text for frame in failure.frames)

    def fits(event: Event) -> tuple[bool, bool, bool]:
        packet = event.subject.partition(".")[0]
        here = bool(failure.at and event.at and event.at.file == failure.at.file)
        return (
            found is not None and f"For_{packet.replace('::', '_')}_" in found[1],
            here and failure.at.function == event.at.function and event.at.line <= failure.at.line,  # type: ignore[union-attr]
            re.search(rf"\b{re.escape(packet.partition('::')[2])}\b", lines) is not None,
        )

    best = max(reversed(events), key=fits, default=None)
    return ("", "") if best is None else (best.subject, f" at {best.at}" if best.at else "")


@cause("WHY501", "a custom operator without a formula", wrong="requires_grad_(): the input has it")
def no_formula(failure: Failure) -> Explanation | None:
    """Recognise a backward through an operator that has no autograd formula."""
    found = failure.search(r"Trying to backward through ([\w.:]+) but no autograd formula was registered")
    if found is None:
        return None
    name = operator_name(found[1])
    facts = failure.registry.operator(name)
    outer = next((e.subject for e in failure.of("function") if e.detail == "backward" and e.subject != name), "")
    second = outer and "create_graph=True" in failure.source
    why = f": a second derivative (create_graph=True) goes through the backward of {outer}" if second else ""
    return Explanation(
        f"backward reached {name}, which has no autograd formula{line_of_definition(facts, failure)}{why}",
        (_formula(facts, name.partition(".")[0]),),
        (f"schema: {facts.schema}",) if facts else (),
    )


@cause("WHY509", "a formula for an operator that writes or aliases", wrong="register_autograd for it: it is refused")
def formula_refused(failure: Failure) -> Explanation | None:
    """Recognise register_autograd for an operator whose schema writes or aliases."""
    found = failure.search(
        r"Cannot register autograd formula for non-functional operator (?:<CustomOpDef\()?([\w:.]+)\S* with schema "
        r"([^\n]+?)\. Please"
    )
    if found is None:
        return None
    name, schema = operator_name(found[1]).partition(".")[0], found[2]
    base = name.partition("::")[2]
    written = [argument for kind, argument in arguments_of(schema) if "!" in kind]
    if not written:
        text = f'lib.impl("{base}", kernel, "CompositeImplicitAutograd")  # views of PyTorch inside have a gradient'
        return Explanation(
            f"register_autograd refuses {name}: its result aliases an argument ({schema})",
            (Fix(text=text), Fix(text="or return a new tensor (x.clone()), with `-> Tensor` in the schema")),
        )
    arguments = re.sub(r"\([a-z]\d*!?\)", "", schema.partition(" -> ")[0].partition("(")[2])
    text = f'torch.library.define("{name.rstrip("_")}_functional", "({arguments} -> Tensor")  # returns the new '
    return Explanation(
        f"register_autograd refuses {name}: it writes {listed(written)} ({schema}), and only an operator that "
        "writes nothing (functional) can have a formula",
        (Fix(text=f"{text}{written[0]}; give this one the formula, and copy_ its result where you write"),),
    )


@cause("WHY515", "a tangent that is silently zero", wrong="register_autograd, which is for backward")
def zero_tangent(failure: Failure) -> Explanation | None:
    """Recognise a check of forward mode through a custom operator, whose parts are not seen."""
    forward = re.search(r"\b(jvp|make_dual|jacfwd|hessian)\b", failure.source)
    bases = {event.subject: event.subject.partition("::")[2].partition(".")[0] for event in failure.of("custom_op")}
    used = [name for name, base in bases.items() if len(re.findall(rf"\b{re.escape(base)}\b", failure.source)) > 1]
    if forward is None or "AssertionError" not in failure.kinds or not used:
        return None
    return Explanation(
        f"{used[0]} has no rule for forward-mode differentiation ({forward[1]}): its tangent is silently zero",
        (
            Fix(text="take the reverse mode: torch.autograd.grad, torch.func.vjp or torch.func.jacrev"),
            Fix(text="or call the operator in a torch.autograd.Function that has jvp", needs="your jvp"),
        ),
        registered_lines(failure, used[0]),
    )


@cause("WHY506", "a backward whose gradients do not fit", wrong="another schema")
def gradients_do_not_fit(failure: Failure) -> Explanation | None:
    """Recognise a backward that gives another number, structure, shape or type of gradients than the inputs have."""
    name, at = _backward(failure)
    facts = failure.registry.operator(name) if name else None
    fits = f"return {_gradients(facts.schema)}" if facts else ""
    function = "a function"
    if found := failure.search(
        r"unction (\w+) returned an incorrect number of gradients \(expected (\d+), got (\d+)\)"
    ):
        # The function that PyTorch makes for an operator has one input more, which is its own.
        wanted, given = (int(found[group]) - (1 if name else 0) for group in (2, 3))
        function = found[1].removesuffix("Backward")
        what = f"returns {given} gradient{'s' * (given != 1)}, and there must be {wanted}"
        fits = fits or f"return {', '.join(['grad', *['None'] * (wanted - 1)])}"
        fix = f"{fits}  # one for each input of forward, None for what is no tensor"
    elif found := failure.search(
        r"unction (\w+) returned an invalid gradient at index (\d+) - (?:got|expected) ([^\n]+?) but (?:expected )?"
        r"(?:shape compatible with |got |expected )?([^\n]+)"
    ):
        function = found[1].removesuffix("Backward")
        what = f"returns at place {found[2]} a gradient of {found[3]}, and the input has {found[4].rstrip('.')}"
        fix = "return grad.expand_as(x), grad.sum_to_size(x.shape) or grad.to(x.dtype): as the input at that place is"
    elif failure.search(r"Expected the return from backward to be of the same structure as the inputs"):
        what = "returns gradients in another structure than its arguments: a list of tensors needs a list of gradients"
        fix = f"{fits or 'return [grad] * n'}  # a list for each Tensor[]"
    elif found := failure.search(r"expected (?:Variable|Tensor) or None \(got ([\w.]+)\)"):
        what = f"returns a {found[1]}, and gradients are tensors or None"
        fix = "return torch.from_numpy(g) or torch.as_tensor(g)"
    else:
        return None
    evidence = (f"schema: {facts.schema}",) if facts else ()
    return Explanation(f"the backward of {name or function}{at} {what}", (Fix(text=fix),), evidence)


@cause("WHY507", "a backward that reads what nothing saved", wrong="register_fake, or another schema")
def nothing_saved(failure: Failure) -> Explanation | None:
    """Recognise a backward that reads from ctx what its setup_context did not save."""
    generated = any(name.startswith("torch._library.autograd") for name in failure.stack)
    line = failure.at.text if failure.at else ""
    if not generated or "ctx." not in line or not failure.kinds & {"ValueError", "IndexError", "AttributeError"}:
        return None
    name, _ = _backward(failure)
    saves = any(event.detail == "setup_context" and event.subject == name for event in failure.of("function"))
    why = "its setup_context does not save that" if saves else "register_autograd got no setup_context"
    text = "def setup_context(ctx, inputs, output): ctx.save_for_backward(inputs[0])  # what backward reads; "
    return Explanation(
        f"the backward of {name} reads from ctx at {failure.at} what nothing saved (`{line}`): {why}",
        (Fix(text=f"{text}register_autograd(..., setup_context=setup_context)"),),
    )


@cause("WHY508", "an operator that autograd does not see", wrong="requires_grad_() on the result")
def not_differentiable(failure: Failure) -> Explanation | None:
    """Recognise a result without grad_fn or a gradient that is None, where an operator took the gradient away."""
    lost = failure.search(r"element 0 of tensors does not require grad|appears to not have been used in the graph")
    none = failure.at is not None and ".grad" in failure.at.text
    if lost is None and not (none and failure.kinds & {"AssertionError", "AttributeError", "TypeError"}):
        return None
    for name in reversed(list(dict.fromkeys(event.subject for event in failure.of("impl", "custom_op", "define")))):
        facts = failure.registry.operator(name)
        found = None if facts is None else _why_no_gradient(failure, facts)
        if found is not None and facts is not None:
            result = "gradients end there (no grad_fn)"
            if lost is None and failure.of("compiled"):
                result = "gradients that its kernel records inside are lost under torch.compile"
            return Explanation(f"{found[0]}: {result}", (found[1],), (f"kernels: {listed(facts.kernels)}",))
    return None


def _why_no_gradient(failure: Failure, facts: OperatorFacts) -> tuple[str, Fix] | None:
    """Return why the result of an operator has no gradient, by what the registry holds, and the fix."""
    impls = [e for e in failure.registrations(facts.name) if e.kind == "impl" and e.detail != "Meta"]
    event = next(iter(sorted(impls, key=lambda event: not event.detail.startswith("Autograd"))), None)
    key, at = (event.detail, f" at {event.at}" if event.at else "") if event else ("", "")
    called = [e.detail for e in failure.of("called") if e.subject.partition(".")[0] == facts.packet]
    if not key.startswith("Autograd") and not any("gradients" in detail for detail in called):
        return None
    composite = "CompositeImplicitAutograd" in facts.kernels
    function = "  # a torch.autograd.Function with your backward"
    dtype = next((e.detail for e in failure.of("integer result") if e.subject == facts.packet), "")
    if dtype:
        why = f"{facts.name} returns {dtype}, and only floating point tensors have gradients"
        return why, Fix(text="return a floating point tensor, or take the loss of another result")
    if facts.custom_op:
        return None
    if key.startswith("Autograd"):
        why = f"the {key} kernel of {facts.name}{at} is all that autograd sees, and it records no gradient"
        return why, Fix(text=f'lib.impl("{facts.base}", Function.apply, "{key}"){function}', needs="your backward")
    if composite and key in ("", "CompositeImplicitAutograd"):
        why = f"the kernel of {facts.name}{at} is CompositeImplicitAutograd and leaves autograd (detach(), numpy)"
        before = f'lib.impl("{facts.base}", kernel, "CompositeExplicitAutograd")  # and then '
        return why, _formula(facts, facts.packet, before)
    if composite:
        why = f"the {key} kernel of {facts.name}{at} replaces CompositeImplicitAutograd, whose parts recorded gradients"
        text = f'lib.impl("{facts.base}", Function.apply, "Autograd{key}"){function}'
        return f"{why}, and it has no Autograd kernel", Fix(text=text, needs="your backward")
    if facts.autograd or any(kernel.startswith("Autograd") for kernel in facts.kernels):
        return None
    return f"{facts.name} has no Autograd kernel{line_of_definition(facts, failure)}", _formula(facts, facts.packet)


@cause("WHY510", "a backward formula that is wrong", wrong="register_autograd: it is there")
def wrong_formula(failure: Failure) -> Explanation | None:
    """Recognise gradcheck's word that a formula gives other gradients than finite differences."""
    found = failure.search(r"Jacobian mismatch for output (\d+) with respect to input (\d+)")
    if found is None:
        return None
    name, at = _backward(failure)
    fixes = [Fix(text="mend the formula: grad times the derivative of the output by that input", needs="your backward")]
    if not re.search(r"torch\.double|float64", failure.source):
        fixes.insert(0, Fix(text="first give gradcheck inputs of dtype torch.double: float is too coarse for it"))
    return Explanation(
        f"the backward of {name or 'a function'}{at} gives another gradient than finite differences, for output "
        f"{found[1]} and input {found[2]}",
        tuple(fixes),
    )


@cause("WHY513", "an operator that writes what backward needs", wrong="register_autograd for the operator that writes")
def written_saved_tensor(failure: Failure) -> Explanation | None:
    """Recognise a custom operator that wrote a tensor which another operator had saved for backward."""
    found = failure.search(r"needed for gradient computation has been modified by an inplace .*?output \d+ of (\w+)")
    for name in {event.subject.partition(".")[0] for event in failure.of("called")} if found is not None else ():
        facts = failure.registry.operator(name)
        written = [argument for kind, argument in arguments_of(facts.schema) if "!" in kind] if facts else []
        if found is not None and written:
            text = f"y = x.clone() before {name.partition('::')[2]}(y): write the copy; or return a new tensor"
            return Explanation(
                f"{name} writes {listed(written)}{line_of_definition(facts, failure)}, and {found[1]} needs the old "
                "values for its backward",
                (Fix(text=text),),
            )
    return None


@cause("WHY514", "numpy in a kernel that autograd looks into", wrong="x.detach().numpy(), which loses the gradient")
def numpy_in_composite(failure: Failure) -> Explanation | None:
    """Recognise a CompositeImplicitAutograd kernel that asks a tensor with gradients for numpy."""
    if failure.search(r"Can't call numpy\(\) on Tensor that requires grad") is None or failure.at is None:
        return None
    here = (failure.at.file, failure.at.function)
    for event in failure.of("function"):
        if event.detail == "CompositeImplicitAutograd" and event.at and (event.at.file, event.at.function) == here:
            before = f'lib.impl("{event.subject.partition("::")[2]}", kernel, "CompositeExplicitAutograd")  # and then '
            return Explanation(
                f"the kernel of {event.subject} at {event.at} is CompositeImplicitAutograd (lib.impl without a key), "
                "so autograd runs through it, and numpy() records nothing",
                (_formula(failure.registry.operator(event.subject), event.subject.partition(".")[0], before),),
                registered_lines(failure, event.subject),
            )
    return None
