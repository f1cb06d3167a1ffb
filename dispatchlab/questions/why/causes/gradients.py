"""Gradients: no formula, none of second order, inference tensors, forward mode."""

from __future__ import annotations

from dispatchlab.model.failure import Failure, Fix, operator_name
from dispatchlab.questions.why.cause import Explanation, cause
from dispatchlab.questions.why.causes.wording import line_of_definition, parameters_of


@cause("WHY501", "a custom operator without a formula", wrong="requires_grad_(): the input has it")
def no_formula(failure: Failure) -> Explanation | None:
    """Recognise a backward through an operator that has no autograd formula."""
    found = failure.search(r"Trying to backward through ([\w.:]+) but no autograd formula was registered")
    if found is None:
        return None
    name = operator_name(found[1])
    facts = failure.registry.operator(name)
    return Explanation(
        f"backward reached {name}, which has no autograd formula{line_of_definition(facts, failure)}",
        (
            Fix(
                text=f'torch.library.register_autograd("{name.partition(".")[0]}", backward, '
                "setup_context=setup_context)",
                needs="your backward",
            ),
        ),
        (f"schema: {facts.schema}",) if facts else (),
    )


@cause("WHY502", "a derivative that does not exist", wrong="register_fake or a kernel: the first derivative is there")
def no_second_derivative(failure: Failure) -> Explanation | None:
    """Recognise a derivative that PyTorch does not have, mostly of second order."""
    found = failure.search(r"derivative for ([\w:.]+) is not implemented")
    if found is None:
        return None
    name = found[1]
    second = "_backward" in name
    fixes = (
        (
            Fix(
                text="with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH): ...  # made "
                "of operators that have one"
            ),
        )
        if "scaled_dot_product" in name
        else (
            Fix(text=f"write {name.partition('::')[2]} with operators that have a derivative, or detach() before it"),
        )
    )
    why = (
        "a second derivative (create_graph=True) is asked of it, and it is a backward without one"
        if second
        else "it is not differentiable"
    )
    return Explanation(f"there is no derivative for {name}: {why}", fixes)


@cause("WHY503", "an inference tensor in autograd", wrong="requires_grad_() or register_autograd")
def inference_tensor(failure: Failure) -> Explanation | None:
    """Recognise a tensor that was made in inference mode and is used with gradients."""
    found = failure.search(
        r"Inference tensors cannot be saved for backward|"
        r"Inplace update to inference tensor outside InferenceMode|"
        r"Cannot set version_counter for inference tensor|Inference tensors do not track version counter|"
        r"Setting requires_grad=True on inference tensor outside InferenceMode"
    )
    if found is None:
        return None
    at = failure.at
    return Explanation(
        "a tensor made under torch.inference_mode() is used where autograd "
        f"records{f' ({at}: {at.text})' if at else ''}: backward cannot save it",
        (
            Fix(text=f"use a clone in the call: {failure.call or 'x.clone()'}", wrap="{}.clone()"),
            Fix(text="or make it under torch.no_grad() in place of torch.inference_mode()"),
        ),
    )


@cause("WHY504", "forward mode without a rule", wrong="register_autograd, which is for backward")
def forward_mode(failure: Failure) -> Explanation | None:
    """Recognise forward-mode differentiation of an operator that has no rule for it."""
    found = failure.search(r"Trying to use forward AD with ([\w:.]+) that does not support it")
    if found is None:
        return None
    return Explanation(
        f"{operator_name(found[1]) or found[1]} has no rule for forward-mode differentiation (jvp)",
        (
            Fix(text="take the reverse mode: torch.autograd.grad or torch.func.vjp"),
            Fix(text="or wrap the operator in a torch.autograd.Function that has jvp", needs="your jvp"),
        ),
    )


@cause("WHY506", "a backward that gives another number of gradients", wrong="another schema")
def gradient_count(failure: Failure) -> Explanation | None:
    """Recognise a backward whose result does not fit the inputs."""
    found = failure.search(
        r"(?:function|Function) (\w+)(?:GeneratedBackward\w*|"
        r"Backward)? returned an incorrect number of gradients \(expected (\d+), got (\d+)\)"
    ) or failure.search(r"(\w+)Backward returned an incorrect number of gradients \(expected (\d+), got (\d+)\)")
    if found is None:
        return None
    name, wanted, given = found.groups()
    return Explanation(
        f"the backward of {name.removesuffix('Generated')} returns {given} gradients, and there must be "
        f"{wanted}: one for each input, None for those without",
        (Fix(text=f"return {', '.join(['grad'] + ['None'] * (int(wanted) - 1))}  # one for each input of forward"),),
    )


@cause("WHY508", "an operator that autograd does not see", wrong="requires_grad_() on the result")
def not_differentiable(failure: Failure) -> Explanation | None:
    """Recognise a result without grad_fn that comes from a custom operator."""
    if failure.search(r"element 0 of tensors does not require grad and does not have a grad_fn") is None:
        return None
    warned = next((e for e in failure.of("warning") if "autograd kernel was not registered" in e.detail), None)
    custom = failure.of("custom_op", "impl", "define")
    if warned is None and not custom:
        return None
    for event in reversed(custom):
        facts = failure.registry.operator(event.subject)
        if facts is None or (any(key.startswith("Autograd") for key in facts.kernels) and not facts.custom_op):
            continue
        if facts.autograd or any(e.subject.partition(".")[0] == facts.packet for e in failure.of("register_autograd")):
            continue
        return Explanation(
            f"{facts.name} has no autograd formula, so its result has no grad_fn{line_of_definition(facts, failure)}",
            (
                Fix(
                    text=f'torch.library.register_autograd("{facts.packet}", backward, setup_context=setup_context)'
                    f"  # def backward(ctx, grad): one gradient for each of {parameters_of(facts.schema)}",
                    needs="your backward",
                ),
            ),
        )
    return None
