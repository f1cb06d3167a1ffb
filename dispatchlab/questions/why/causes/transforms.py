"""vmap, functionalization and autocast: what a transform cannot do with an operator."""

from __future__ import annotations

from dispatchlab.model.failure import Failure, Fix, operator_name
from dispatchlab.questions.why.cause import Explanation, cause
from dispatchlab.questions.why.causes.wording import arguments_of, line_of_definition, parameters_of

_BY_INDEX = ("narrow", "select", "slice", "unfold", "as_strided", "split", "diagonal")


@cause("WHY601", "no batching rule", wrong="a kernel for CPU: the batched tensor never reaches it")
def no_batching_rule(failure: Failure) -> Explanation | None:
    """Recognise an operator that vmap can neither batch nor loop over."""
    found = failure.search(r"Batching rule not implemented for ([\w:.]+?)[;.,]?\s+([^\n]*)")
    if found is None:
        return None
    name = found[1].rstrip(";.,")
    base = name.partition("::")[2].partition(".")[0]
    facts = failure.registry.operator(name)
    view = "view" in found[2] or "out=" in found[2]
    if base in _BY_INDEX:
        fix = Fix(text="gather in place of a view: x.index_select(dim, start + torch.arange(length)), or torch.gather")
    elif facts is not None and facts.custom_op:
        fix = Fix(text=f'torch.library.register_vmap("{facts.packet}", rule)', needs="your rule")
    else:
        fix = Fix(text="write the call with operators that return new tensors, such as torch.where or torch.gather")
    why = (
        "it is a view or writes to out=, which the fallback of vmap cannot loop over" if view else found[2].rstrip(".")
    )
    return Explanation(f"{name} has no batching rule (FuncTorchBatched) under vmap: {why}", (fix,))


@cause("WHY602", ".item() under vmap", wrong="register_fake: no shape is missing")
def item_under_vmap(failure: Failure) -> Explanation | None:
    """Recognise a value that is read from a batched tensor."""
    if failure.search(r"vmap: It looks like you're calling \.item\(\) on a Tensor") is None:
        return None
    at = failure.at
    where = f" at {at}: {at.text}" if at else ""
    return Explanation(
        f".item() is called under vmap{where}: a batched tensor has one value for each example, not one",
        (
            Fix(
                text="stay in tensors: torch.where, torch.minimum or torch.clamp(max=tensor); or call "
                ".item() outside of vmap"
            ),
        ),
    )


@cause("WHY603", "a branch on data under vmap", wrong="torch.compile")
def branch_under_vmap(failure: Failure) -> Explanation | None:
    """Recognise control flow on a batched tensor."""
    if (
        failure.search(r"vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow")
        is None
    ):
        return None
    return Explanation(
        "an `if` or `while` looks at a batched tensor under vmap, which has one value for each example",
        (Fix(text="torch.where(condition, a, b), or torch.cond(condition, f, g, (x,))"),),
    )


@cause("WHY604", "an autograd.Function under vmap", wrong="a batching rule for an operator of PyTorch")
def function_under_vmap(failure: Failure) -> Explanation | None:
    """Recognise a torch.autograd.Function that has no rule for vmap."""
    found = failure.search(r"You tried to vmap over (\w+), but it does not have vmap support")
    if found is None:
        return None
    return Explanation(
        f"the autograd.Function {found[1]} has no rule for vmap",
        (
            Fix(
                text=f"generate_vmap_rule = True  # in the class {found[1]}; its body must be operators of PyTorch",
                code=f"{found[1]}.generate_vmap_rule = True",
            ),
            Fix(text="or @staticmethod def vmap(info, in_dims, *args): ...", needs="your rule"),
        ),
    )


@cause("WHY605", "random numbers under vmap", wrong="torch.manual_seed")
def random_under_vmap(failure: Failure) -> Explanation | None:
    """Recognise a random operator under vmap with randomness='error'."""
    if failure.search(r"vmap: called random operation while in randomness error mode") is None:
        return None
    return Explanation(
        "a random operator is called under vmap, whose randomness is 'error' when it is not given",
        (Fix(text='torch.vmap(f, randomness="different")  # or "same" for one draw for all examples'),),
    )


@cause("WHY606", "an in-place write under vmap", wrong="a kernel for the in-place operator")
def write_under_vmap(failure: Failure) -> Explanation | None:
    """Recognise a write of a batched value to a tensor that is not batched."""
    found = failure.search(r"vmap: ([\w:.]+)\(self, \*extra_args\) is not possible because")
    if found is None:
        return None
    return Explanation(
        f"{operator_name(found[1])} writes batched values to a tensor that vmap does not batch",
        (
            Fix(
                text="the call that returns a new tensor: x = "
                f"x.{found[1].partition('::')[2].partition('.')[0].rstrip('_')}(...)"
            ),
        ),
    )


@cause("WHY611", "an output that aliases an input, for functionalization", wrong="register_fake or register_autograd")
def aliased_output(failure: Failure) -> Explanation | None:
    """Recognise a schema with an alias in its result, which functionalization refuses."""
    found = failure.search(
        r"Found a custom \(non-ATen\) operator whose output has alias annotations: ([\w:.]+)(\(.*?\) -> [^\n.]+)"
    )
    if found is None:
        return None
    name = found[1]
    schema = found[2].partition(". We")[0]
    inputs = schema.rpartition(" -> ")[0]
    base = name.partition("::")[2]
    return Explanation(
        f"functionalization (compile, export) refuses {name}: its result has an alias annotation, "
        f"{schema.rpartition('-> ')[2]}",
        (
            Fix(text=f'lib.define("{base}{inputs} -> ()")  # return nothing, and use the written argument afterwards'),
            Fix(text=f'or, where PyTorch has it: lib.define("{base}{schema}", tags=(torch.Tag.inplace,))'),
        ),
    )


@cause("WHY612", "a result that is an input", wrong="Tensor(a) in the schema: compile refuses it")
def returns_input(failure: Failure) -> Explanation | None:
    """Recognise a custom operator that returns an argument or a view of one."""
    found = failure.search(
        r"([\w:.]+)[^\n]*?(?:The output of this custom operator \(\d+\)|outputs?)[^\n]*?(?:must not|"
        r"may not)[^\n]*?(?:alias|also be an input|view)"
    ) or failure.search(r"custom operator[^\n]*?([\w]+::[\w.]+)[^\n]*?alias")
    if found is None or "alias" not in failure.text:
        return None
    name = operator_name(found[1])
    facts = failure.registry.operator(name) if name else None
    return Explanation(
        f"{name or 'a custom operator'} returns one of its inputs or a view of it, which a custom operator "
        f"must not{line_of_definition(facts, failure)}",
        (Fix(text="return x.clone() in the kernel"),),
    )


@cause("WHY621", "a kernel that autocast gives two dtypes", wrong="a kernel for the other dtype")
def autocast_dtypes(failure: Failure) -> Explanation | None:
    """Recognise a custom operator called under autocast whose inputs have different dtypes."""
    found = failure.search(
        r"(?:expected (?:m1 and m2|mat1 and mat2|scalar type|self and \w+) (?:to have the same dtype, but got: )?|"
        r"expected m1 and m2 to have the same dtype, but got: |"
        r"mat1 and mat2 must have the same dtype, but got )([^\n]+)"
    )
    called = [event for event in failure.of("called") if "autocast" in event.detail]
    if found is None or not called:
        return None
    event = called[-1]
    facts = failure.registry.operator(event.subject)
    device = event.detail.partition("autocast ")[2].partition(",")[0]
    name = facts.name if facts else event.subject
    return Explanation(
        f"{name} was called under autocast ({device}), which does not cast the inputs of a custom "
        f"operator: its kernel got {found[1].strip()}",
        (
            Fix(
                text=f'torch.library.register_autocast("{event.subject}", "{device}", torch.bfloat16)',
                code=f'import torch\ntorch.library.register_autocast("{event.subject}", "{device}", torch.bfloat16)',
            ),
            Fix(text=f"or cast in the kernel: {_casts(facts.schema if facts else '')}"),
        ),
    )


def _casts(schema: str) -> str:
    tensors = [name for kind, name in arguments_of(schema) if kind.startswith("Tensor")]
    if len(tensors) < 2:
        return "x.to(y.dtype)"
    return f"{tensors[1]}.to({tensors[0]}.dtype)  # of {parameters_of(schema)}"
