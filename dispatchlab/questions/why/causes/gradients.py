"""Gradients: no formula, none of second order, one that does not fit, inference tensors, forward mode."""

from __future__ import annotations

import re

from dispatchlab.model.failure import Event, Failure, Fix, OperatorFacts, operator_name
from dispatchlab.questions.why.cause import Explanation, cause
from dispatchlab.questions.why.causes.wording import (
    arguments_of,
    line_of_definition,
    listed,
    registered_lines,
    short_site,
)


def _formula(facts: OperatorFacts | None, packet: str) -> Fix:
    """Return the call that gives an operator its formula."""
    call = f'torch.library.register_autograd("{packet}", backward, setup_context=setup_context)'
    returns = f"  # backward(ctx, grad) returns {_gradients(facts.schema)}" if facts else ""
    return Fix(text=f"{call}{returns}", needs="your backward")


def _gradients(schema: str) -> str:
    """Return what a backward returns: a gradient for each tensor, None for what is no tensor."""
    positional = schema.partition(") ->")[0].partition("*, ")[0].rstrip(", ")
    named = [
        f"[grad_{name}, ...]" if "[]" in kind else f"grad_{name}" if kind.startswith("Tensor") else "None"
        for kind, name in arguments_of(f"{positional}) ->")
    ]
    return ", ".join(named)


def _formula_at(failure: Failure, role: str) -> tuple[str, Event | None]:
    """Return the operator in whose backward or setup_context the program failed, and where that stands."""
    events = [event for event in failure.of("function", "unfit function") if event.detail.startswith(role)]
    at = failure.at
    for event in reversed(events):
        if (
            at
            and event.at
            and (event.at.file, event.at.function) == (at.file, at.function)
            and event.at.line <= at.line
        ):
            return event.subject, event
    lines = " ".join(frame.text for frame in failure.frames)
    for event in reversed(events):
        if re.search(rf"\b{re.escape(event.subject.partition('::')[2].partition('.')[0])}\b", lines):
            return event.subject, event
    return (events[-1].subject, events[-1]) if events else ("", None)


def _of_generated(failure: Failure, text: str) -> str:
    """Return the operator of `GeneratedBackwardFor_ns_name_defaultBackward`; empty for another function."""
    for event in failure.of("register_autograd", "custom_op", "define"):
        packet = event.subject.partition(".")[0]
        if f"GeneratedBackwardFor_{packet.replace('::', '_')}_" in text:
            return packet
    return ""


@cause("WHY501", "a custom operator without a formula", wrong="requires_grad_(): the input has it")
def no_formula(failure: Failure) -> Explanation | None:
    """Recognise a backward through an operator that has no autograd formula."""
    found = failure.search(r"Trying to backward through ([\w.:]+) but no autograd formula was registered")
    if found is None:
        return None
    name = operator_name(found[1])
    facts = failure.registry.operator(name)
    called = next(
        (e for e in failure.of("function") if e.detail == "backward" and name.partition("::")[2] in failure.source),
        None,
    )
    second = "create_graph=True" in failure.source and called is not None and called.subject != name
    why = f": a second derivative (create_graph=True) goes through the backward of {called.subject}" if second else ""  # type: ignore[union-attr]
    return Explanation(
        f"backward reached {name}, which has no autograd formula{line_of_definition(facts, failure)}{why}",
        (_formula(facts, name.partition(".")[0]),),
        (f"schema: {facts.schema}",) if facts else (),
    )


@cause(
    "WHY509",
    "a formula for an operator that writes or aliases",
    wrong="register_autograd for it, which PyTorch refuses",
)
def formula_refused(failure: Failure) -> Explanation | None:
    """Recognise register_autograd for an operator whose schema writes or aliases."""
    found = failure.search(
        r"Cannot register autograd formula for non-functional operator (?:<CustomOpDef\()?([\w:.]+)\S* with schema "
        r"([^\n]+?)\. Please"
    )
    if found is None:
        return None
    name, schema = operator_name(found[1]).partition(".")[0], found[2]
    written = [argument for kind, argument in arguments_of(schema) if "!" in kind]
    if not written:
        return Explanation(
            f"register_autograd refuses {name}: its result aliases an argument ({schema})",
            (
                Fix(
                    text=f'lib.impl("{name.partition("::")[2]}", kernel, "CompositeImplicitAutograd")  # views of '
                    "PyTorch inside have a gradient; register no formula"
                ),
                Fix(text="or return a new tensor (x.clone()), with `-> Tensor` in the schema"),
            ),
        )
    plain = re.sub(r"\([a-z]\d*!?\)", "", schema.partition(" -> ")[0])
    functional = f"{plain.replace(name, name.rstrip('_') + '_functional', 1)} -> Tensor"
    return Explanation(
        f"register_autograd refuses {name}: it writes {listed(written)} ({schema}), and only an operator that "
        "writes nothing (functional) can have a formula",
        (
            Fix(
                text=f'torch.library.define("{functional.partition("(")[0]}", "({functional.partition("(")[2]}")  # '
                f"returns the new {written[0]}; give this one the formula, and copy_ its result where you write"
            ),
        ),
    )


@cause("WHY502", "a derivative that does not exist", wrong="register_fake or a kernel: the first derivative is there")
def no_second_derivative(failure: Failure) -> Explanation | None:
    """Recognise a derivative that PyTorch does not have, mostly of second order."""
    if failure.search(r"aot_autograd does not currently support double backward") is not None:
        return Explanation(
            "a second derivative (create_graph=True) is asked of a function under torch.compile, whose backward is "
            "compiled without one (double backward)",
            (Fix(text="call it without torch.compile where create_graph=True, or compile with backend='eager'"),),
        )
    once = failure.search(r"differentiate twice a function that was marked with @once_differentiable")
    if once is not None or (
        "does not require grad and does not have a grad_fn" in failure.text
        and "once_differentiable" in failure.source
        and "create_graph" in failure.source
    ):
        return Explanation(
            "a second derivative is asked of a backward marked @once_differentiable, which records no graph",
            (Fix(text="remove @once_differentiable, and write that backward with differentiable operators"),),
        )
    found = failure.search(r"derivative for '?([\w:.]+?)'? is not implemented")
    if found is None:
        return None
    name = found[1] if "::" in found[1] else f"aten::{found[1]}"
    second = "_backward" in name
    base = name.partition("::")[2]
    advice = {
        "scaled_dot_product": "with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH): ...  # made of "
        "operators that have one",
        "cudnn": "with torch.backends.cudnn.flags(enabled=False): ...  # the kernels of PyTorch have one",
        "cdist": "(x[:, None] - y[None]).norm(dim=-1) in place of torch.cdist(x, y)",
    }
    text = next((text for part, text in advice.items() if part in base), "")
    forward = base.removeprefix("_").removesuffix("_backward")
    text = text or (
        f"write {forward} with operators that have a second derivative, or call it without create_graph=True"
        if second
        else f"detach() before {base}, or write it with operators that have a derivative"
    )
    why = (
        "a second derivative (create_graph=True) is asked of it, and it is a backward without one"
        if second
        else "it is not differentiable"
    )
    return Explanation(f"there is no derivative for {name}: {why}", (Fix(text=text),))


@cause("WHY503", "an inference tensor in autograd", wrong="requires_grad_() or register_autograd")
def inference_tensor(failure: Failure) -> Explanation | None:
    """Recognise a tensor that was made in inference mode and is used with gradients."""
    found = failure.search(
        r"Inference tensors cannot be saved for backward|(Inplace update to inference tensor outside InferenceMode)|"
        r"Cannot set version_counter for inference tensor|(Inference tensors do not track version counter)|"
        r"(Setting requires_grad=True on inference tensor outside InferenceMode)|"
        r"(A view was created in inference mode and is being modified inplace)"
    )
    if found is None:
        return None
    at = failure.at
    written, version, requires, view = found.groups()
    what = (
        "written in place"
        if written or view
        else "asked for its version"
        if version
        else "made to require gradients"
        if requires
        else "used where autograd records, and backward cannot save it"
    )
    own = re.match(r"([\w.\[\]]+?)(?:\.\w+(?:\(|$)|\[)", failure.call) if any(found.groups()) else None
    fix = (
        Fix(
            text=f"{own[1]} = {own[1]}.clone()  # before, outside of inference mode",
            code=f"{own[1]} = {own[1]}.clone()",
        )
        if own is not None
        else Fix(text=f"use a clone in the call: {failure.call or 'x.clone()'}", wrap="{}.clone()")
    )
    return Explanation(
        f"a tensor made under torch.inference_mode() is {what}{f' ({at}: {at.text})' if at else ''}: inference tensors "
        "are outside of autograd",
        (fix, Fix(text="or make it under torch.no_grad() in place of torch.inference_mode()")),
    )


@cause("WHY504", "forward mode without a rule", wrong="register_autograd, which is for backward")
def forward_mode(failure: Failure) -> Explanation | None:
    """Recognise forward-mode differentiation of an operator or function that has no rule for it."""
    reverse = Fix(text="take the reverse mode: torch.autograd.grad, torch.func.vjp or torch.func.jacrev")
    wrapped = Fix(
        text="or wrap the operator in a torch.autograd.Function that has jvp, and call its apply", needs="your jvp"
    )
    found = failure.search(r"Trying to use forward AD with ([\w:.]+) that does not support it")
    if found is not None:
        name = operator_name(found[1]) or f"aten::{found[1]}"
        return Explanation(f"{name} has no rule for forward-mode differentiation (jvp)", (reverse, wrapped))
    forward = re.search(r"\b(jvp|make_dual|jacfwd|hessian)\b", failure.source)
    custom = next((event for event in failure.of("custom_op", "define") if _is_used(event, failure)), None)
    if forward is None or "AssertionError" not in failure.kinds or custom is None:
        return None
    return Explanation(
        f"{custom.subject} has no rule for forward-mode differentiation ({forward[1]}): its tangent is silently zero, "
        "since the parts of a custom operator are not seen",
        (reverse, wrapped),
        registered_lines(failure, custom.subject),
    )


def _is_used(event: Event, failure: Failure) -> bool:
    base = event.subject.partition("::")[2].partition(".")[0]
    return len(re.findall(rf"\b{re.escape(base)}\b", failure.source)) > 1


@cause("WHY506", "a backward whose gradients do not fit", wrong="another schema")
def gradients_do_not_fit(failure: Failure) -> Explanation | None:
    """Recognise a backward that gives another number, structure, shape or type of gradients than the inputs have."""
    count = failure.search(r"unction (\w+) returned an incorrect number of gradients \(expected (\d+), got (\d+)\)")
    shape = failure.search(
        r"unction (\w+) returned an invalid gradient at index (\d+) - (?:got|expected) ([^\n]+?) but (?:expected )?"
        r"(?:shape compatible with |got |expected )?([^\n]+)"
    )
    structure = failure.search(r"Expected the return from backward to be of the same structure as the inputs")
    kind = failure.search(r"expected (?:Variable|Tensor) or None \(got ([\w.]+)\)")
    found = count or shape
    if not (found or structure or kind):
        return None
    name = _of_generated(failure, found[1]) if found else ""
    own, event = _formula_at(failure, "backward")
    generated = "GeneratedBackward" in failure.text or any("torch._library.autograd" in n for n in failure.stack)
    if not name and (structure or kind or generated):
        name = own
    at = f" at {event.at}" if event and event.at and event.subject == name else ""
    facts = failure.registry.operator(name) if name else None
    who = f"the backward of {name or (found[1].removesuffix('Backward') if found else 'a function')}{at}"
    fits = f"return {_gradients(facts.schema)}" if facts else ""
    if count is not None:
        # The function that PyTorch makes for an operator has one input more, which is its own.
        wanted, given = (int(count[group]) - (1 if name else 0) for group in (2, 3))
        rest = ", ".join(["grad", *["None"] * (wanted - 1)])
        what = f"returns {given} gradient{'s' * (given != 1)}, and there must be {wanted}"
        fix = f"{fits or f'return {rest}'}  # one for each input of forward, None for what is no tensor"
    elif shape is not None:
        what = f"returns at place {shape[2]} a gradient of {shape[3]}, and the input has {shape[4].rstrip('.')}"
        fix = "return grad.expand_as(x), grad.sum_to_size(x.shape) or grad.to(x.dtype): as the input at that place is"
    elif structure is not None:
        what = "returns gradients in another structure than its arguments: a list of tensors needs a list of gradients"
        fix = f"{fits or 'return [grad] * n'}  # a list for each Tensor[]"
    else:
        what = f"returns a {kind[1] if kind else ''}, and gradients are tensors or None"
        fix = "return torch.from_numpy(g) or torch.as_tensor(g)"
    return Explanation(f"{who} {what}", (Fix(text=fix),), ((f"schema: {facts.schema}",) if facts else ()))


@cause("WHY507", "a backward that reads what nothing saved", wrong="register_fake, or another schema")
def nothing_saved(failure: Failure) -> Explanation | None:
    """Recognise a backward that reads from ctx what its setup_context did not save."""
    if not any(name.startswith("torch._library.autograd") for name in failure.stack):
        return None
    at = failure.at
    if (
        at is None
        or not re.search(r"\bctx\.", at.text)
        or not failure.kinds & {"ValueError", "IndexError", "AttributeError"}
    ):
        return None
    name, _ = _formula_at(failure, "backward")
    with_setup = any(e.detail == "setup_context" and e.subject == name for e in failure.of("function"))
    why = "its setup_context does not save that" if with_setup else "register_autograd got no setup_context"
    return Explanation(
        f"the backward of {name} reads from ctx at {at} what nothing saved (`{at.text}`): {why}",
        (
            Fix(
                text="def setup_context(ctx, inputs, output): ctx.save_for_backward(inputs[0])  # what backward reads; "
                "register_autograd(..., setup_context=setup_context)"
            ),
        ),
    )


@cause("WHY508", "an operator that autograd does not see", wrong="requires_grad_() on the result")
def not_differentiable(failure: Failure) -> Explanation | None:
    """Recognise a result without grad_fn, a gradient that is None, or opcheck's word of it, from an operator."""
    checked = failure.search(r"([\w:.]+): at least one output of this operator has requires_grad=True but the operator")
    lost = failure.search(
        r"element 0 of tensors does not require grad and does not have a grad_fn|"
        r"appears to not have been used in the graph"
    )
    none = (
        failure.at is not None
        and ".grad" in failure.at.text
        and bool(failure.kinds & {"AssertionError", "AttributeError", "TypeError"})
    )
    if not (checked or lost or none):
        return None
    names = [checked[1]] if checked else dict.fromkeys(e.subject for e in failure.of("impl", "custom_op", "define"))
    for name in reversed(list(names)):
        facts = failure.registry.operator(name)
        if facts is None or (not checked and not _asked_for_gradients(failure, facts)):
            continue
        found = _why_no_gradient(failure, facts)
        if found is not None:
            result = "opcheck finds no autograd registration" if checked else "gradients end there (no grad_fn)"
            if none and failure.of("compiled"):
                result = "gradients that its kernel records inside are lost under torch.compile"
            return Explanation(f"{found[0]}: {result}", (found[1],), (f"kernels: {listed(facts.kernels)}",))
    return None


def _why_no_gradient(failure: Failure, facts: OperatorFacts) -> tuple[str, Fix] | None:
    """Return why the result of an operator has no gradient, by what the registry holds, and the fix."""
    event = _kernel_of(failure, facts)
    key, at = (event.detail, f" at {event.at}" if event.at else "") if event else ("", "")
    composite = "CompositeImplicitAutograd" in facts.kernels
    formula = _formula(facts, facts.packet).text
    dtype = next((e.detail for e in failure.of("integer result") if e.subject == facts.packet), "")
    if dtype:
        why = f"{facts.name} returns {dtype}, and only floating point tensors have gradients"
        return why, Fix(text="return a floating point tensor, or take the loss of another result")
    if facts.custom_op:
        return None
    if key.startswith("Autograd"):
        why = f"the {key} kernel of {facts.name}{at} is all that autograd sees, and it records no gradient"
        text = f'lib.impl("{facts.base}", Function.apply, "{key}")  # a torch.autograd.Function with your backward'
    elif composite and key in ("", "CompositeImplicitAutograd"):
        why = (
            f"the kernel of {facts.name}{at} is CompositeImplicitAutograd and leaves autograd inside (detach(), numpy)"
        )
        text = f'lib.impl("{facts.base}", kernel, "CompositeExplicitAutograd")  # and then {formula}'
    elif composite:
        why = (
            f"the {key} kernel of {facts.name}{at} replaces its CompositeImplicitAutograd kernel, whose parts recorded "
            "gradients, and it has no Autograd kernel"
        )
        text = f'lib.impl("{facts.base}", Function.apply, "Autograd{key}")  # a torch.autograd.Function'
    elif facts.autograd or any(kernel.startswith("Autograd") for kernel in facts.kernels):
        return None
    else:
        why, text = f"{facts.name} has no Autograd kernel{line_of_definition(facts, failure)}", formula
    return why, Fix(text=text, needs="your backward")


def _kernel_of(failure: Failure, facts: OperatorFacts) -> Event | None:
    """Return the program's kernel that autograd meets first."""
    events = [event for event in failure.registrations(facts.name) if event.kind == "impl" and event.detail != "Meta"]
    return next(iter(sorted(events, key=lambda event: not event.detail.startswith("Autograd"))), None)


def _asked_for_gradients(failure: Failure, facts: OperatorFacts) -> bool:
    """Return whether the program gave an operator a tensor that requires gradients."""
    if any(
        "gradients" in event.detail for event in failure.of("called") if event.subject.partition(".")[0] == facts.packet
    ):
        return True
    kernel = _kernel_of(failure, facts)
    return kernel is not None and kernel.detail.startswith("Autograd")


@cause("WHY510", "a backward formula that is wrong", wrong="register_autograd: it is there")
def wrong_formula(failure: Failure) -> Explanation | None:
    """Recognise gradcheck's word that a formula gives other gradients than finite differences."""
    found = failure.search(r"Jacobian mismatch for output (\d+) with respect to input (\d+)")
    if found is None:
        return None
    name, event = _formula_at(failure, "backward")
    who = f"the backward of {name}{f' at {event.at}' if event and event.at else ''}" if name else "a backward"
    single = "float32" in failure.text or ("torch.double" not in failure.source and "float64" not in failure.source)
    return Explanation(
        f"{who} gives another gradient than finite differences, for output {found[1]} and input {found[2]}",
        (
            *(
                (Fix(text="first give gradcheck inputs of dtype torch.double: float is too coarse for it"),)
                if single
                else ()
            ),
            Fix(text="mend the formula: grad times the derivative of the output by that input", needs="your backward"),
        ),
    )


@cause("WHY513", "an operator that writes what backward needs", wrong="register_autograd for the operator that writes")
def written_saved_tensor(failure: Failure) -> Explanation | None:
    """Recognise a custom operator that wrote a tensor which another operator had saved for backward."""
    found = failure.search(
        r"one of the variables needed for gradient computation has been modified by an inplace operation: "
        r"\[[^\]]*\[[^\]]*\]\]?,? which is output \d+ of (\w+)"
    )
    called = {event.subject.partition(".")[0] for event in failure.of("called")}
    for name in called:
        facts = failure.registry.operator(name)
        written = [argument for kind, argument in arguments_of(facts.schema) if "!" in kind] if facts else []
        if found is not None and written:
            base = name.partition("::")[2]
            return Explanation(
                f"{name} writes {listed(written)}{line_of_definition(facts, failure)}, and {found[1]} needs the old "
                "values for its backward",
                (
                    Fix(
                        text=f"y = x.clone() before {base}(y): write the copy; or an operator that returns a new tensor"
                    ),
                ),
            )
    return None


@cause("WHY514", "numpy in a kernel that autograd looks into", wrong="x.detach().numpy(), which loses the gradient")
def numpy_in_composite(failure: Failure) -> Explanation | None:
    """Recognise a CompositeImplicitAutograd kernel that asks a tensor with gradients for numpy."""
    if failure.search(r"Can't call numpy\(\) on Tensor that requires grad") is None or failure.at is None:
        return None
    for event in failure.of("function"):
        at = event.at
        if (
            event.detail == "CompositeImplicitAutograd"
            and at
            and (at.file, at.function)
            == (
                failure.at.file,
                failure.at.function,
            )
        ):
            facts = failure.registry.operator(event.subject)
            base = event.subject.partition("::")[2]
            first = f'lib.impl("{base}", kernel, "CompositeExplicitAutograd")  # in place of the default; and then '
            return Explanation(
                f"the kernel of {event.subject} at {short_site(str(at))} is CompositeImplicitAutograd (lib.impl "
                "without a key), so autograd runs through it, and numpy() records nothing",
                (Fix(text=first + _formula(facts, event.subject.partition(".")[0]).text, needs="your backward"),),
                registered_lines(failure, event.subject),
            )
    return None
