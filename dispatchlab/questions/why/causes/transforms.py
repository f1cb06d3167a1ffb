"""vmap, torch.func, functionalization and autocast: what a transform cannot do with an operator."""

from __future__ import annotations

import re
from typing import Final

from dispatchlab.model.failure import Event, Failure, Fix, OperatorFacts
from dispatchlab.questions.why.cause import Explanation, cause
from dispatchlab.questions.why.causes.text_rows import register_rows, under_vmap
from dispatchlab.questions.why.causes.wording import arguments_of, in_kernel, line_of_definition, listed

register_rows("transforms")

_BY_INDEX: Final = ("narrow", "select", "slice", "unfold", "as_strided", "split", "diagonal")
_RULE: Final = "def rule(info, in_dims, *args): ... return output, out_dims"


@cause("WHY601", "no batching rule", wrong="a kernel for CPU: the batched tensor never reaches it")
def no_batching_rule(failure: Failure) -> Explanation | None:
    """Recognise an operator that vmap can neither batch nor loop over."""
    found = failure.search(r"Batching rule not implemented for ([\w:.]+?)[;.,]?\s+([^\n]*)")
    if found is None:
        return None
    name = found[1].rstrip(";.,")
    base, _, overload = name.partition("::")[2].partition(".")
    why = "the fallback of vmap, a loop, cannot be made for it"
    if "view" in found[2]:
        why = "it is a view or writes to an argument, which the fallback of vmap, a loop, cannot do"
    if not name.startswith("aten::"):
        why += line_of_definition(failure.registry.operator(name), failure)
        fix = Fix(text=f'torch.library.register_vmap("{name.partition(".")[0]}", rule)  # {_RULE}', needs="your rule")
    elif base in _BY_INDEX:
        fix = Fix(text="gather in place of a view: x.index_select(dim, start + torch.arange(length)), or torch.gather")
    elif overload.endswith("out"):
        fix = Fix(text=f"y = torch.{base}(...)  # without out=, a new tensor")
    else:
        fix = Fix(
            text="call it outside of vmap on the whole batch; or torch.stack([f(x) for x in xs]) in place of vmap"
        )
    return Explanation(f"{name} has no batching rule (FuncTorchBatched) under vmap: {why}", (fix,))


@cause("WHY602", "a number is read from a batched tensor", wrong="register_fake: no shape is missing")
def value_under_vmap(failure: Failure) -> Explanation | None:
    """Recognise .item() and what needs it, and numpy() or tolist(), on a batched tensor."""
    text = failure.call or (failure.at.text if failure.at else "")
    copied = re.search(r"\.(?:numpy|tolist)\(|\bnp\.\w+\(", text)
    item = failure.search(r"vmap: It looks like you're calling \.item\(\) on a Tensor")
    if item is None and not (copied and under_vmap(failure) and "data pointer" in failure.text):
        return None
    what = f"{copied[0]})" if copied else ".item() (aten::_local_scalar_dense)"
    fix = (
        "stay in tensors: torch.where(condition, a, b), torch.minimum(x, limit), or a mask: torch.arange(most) < n; "
        "or read the number outside of vmap"
    )
    if copied:
        fix = (
            '@torch.library.custom_op("my::name", mutates_args=()) around the function that leaves PyTorch: vmap loops '
            "over it; or call it outside of vmap"
        )
    elif re.search(r"\w\[[^\]]*:|select\(|narrow\(|\bslice\(", text):
        fix = "index by a tensor: x[start + torch.arange(length)], or x.index_select(dim, start[None])"
    where = f" at {failure.at}: `{failure.at.text}`" if failure.at else ""
    return Explanation(
        f"{what} is called under vmap{where}: a batched tensor has one value for each example, not one",
        (Fix(text=fix),),
    )


@cause("WHY608", "a batching rule that gives something else", wrong="another kernel: the rule is what runs")
def wrong_rule(failure: Failure) -> Explanation | None:
    """Recognise a rule of register_vmap or of an autograd.Function that does not do what vmap asks."""
    differs = next(iter(failure.of("rule differs")), None)
    returns = failure.search(r"Expected the vmap staticmethod to have two returns[^\n]*?Got a ([^\n]+?) instead")
    rules = [e.subject for e in failure.of("impl") if e.detail == "FuncTorchBatched"]
    if returns is None and differs is None and not (rules and under_vmap(failure)):
        return None
    name = differs.subject if differs else rules[-1] if rules else ""
    facts = failure.registry.operator(name) if name else None
    of = f"the rule for vmap of {name}" if name else "the vmap staticmethod of the autograd.Function"
    signature = failure.search(r"TypeError: ([\w.<>]+\(\) (?:takes|missing|got)[^\n]+)")
    fix = f"{_RULE}  # the output with the batch dimension, and where that is"
    evidence: tuple[str, ...] = ()
    if differs is not None:
        what = "gives other values than the operator for each example of a batch"
        fix = f"{_RULE}  # the same as torch.stack([op(x) for x in xs]), 0: no reduction takes the batch dimension"
        evidence = ("tried: torch.vmap of the operator beside a loop, on the inputs of its first call",)
    elif returns is not None:
        what = f"returns {returns[1]}, not (output, out_dims)"
    elif signature is not None:
        names = ", ".join(name for _, name in arguments_of(facts.schema if facts else ""))
        what, fix = f"does not take what it is given: {signature[1]}", _RULE.replace("*args", names)
    elif failure.search(r"savedLocalDispatchKeySet_|Interpreter\.h") is not None:
        what = f"calls torch.vmap of the operator itself ({failure.at}), which asks the rule again"
        fix = "call the operator on the whole batch, or loop: torch.stack([op(x) for x in xs]), 0"
    elif failure.search(r"SmallVector unable to grow|Dimension out of range|out_dims?") is not None:
        what = f"returns an out_dim that its output does not have: {failure.chain[0].text.splitlines()[0]}"
    else:
        return None
    return Explanation(f"{of} {what}{line_of_definition(facts, failure)}", (Fix(text=fix),), evidence)


@cause("WHY610", "an autograd.Function that torch.func cannot take apart", wrong="a batching rule for an operator")
def function_in_transform(failure: Failure) -> Explanation | None:
    """Recognise a torch.autograd.Function without setup_context or jvp under torch.func."""
    context = failure.search(r"In order to use an autograd\.Function with functorch transforms .*?the setup_context")
    forward = failure.search(r"You must implement the jvp function for custom autograd\.Func")
    bound = failure.search(r"TypeError: (missing a required argument: '\w+')")
    if (
        context is None
        and forward is None
        and (bound is None or ".apply(" not in (failure.at.text if failure.at else ""))
    ):
        return None
    rules = [e for e in failure.of("function") if e.detail in ("backward", "setup_context")]
    rule = next((e for e in rules if _in_call(failure, e.subject)), None)
    called = re.search(r"(\w+)\.apply\b", failure.call or (failure.at.text if failure.at else ""))
    name = called[1] if called else next(iter(re.findall(r"class (\w+)\([\w.]*Function\)", failure.source)), "it")
    fixes: tuple[Fix, ...]
    if bound is not None:
        sentence = f"{name} has a setup_context, so its forward takes the inputs alone, without ctx ({bound[1]})"
        fixes = (Fix(text=f"@staticmethod def forward(x, ...): ...  # in {name}, without ctx"),)
    elif context is None:
        sentence = f"the autograd.Function {name} has no jvp, which torch.func.jvp, jacfwd and forward mode ask for"
        fixes = (
            Fix(text=f"@staticmethod def jvp(ctx, *tangents): ...  # in {name}", needs="your jvp"),
            Fix(text="or the reverse mode: torch.func.vjp, torch.func.jacrev"),
        )
    elif rule is not None:
        sentence = (
            f"torch.func cannot take the formula that register_autograd gave {rule.subject} ({rule.at}): the "
            "autograd.Function that PyTorch makes of it has no setup_context of its own"
        )
        fixes = (
            Fix(
                text="class F(torch.autograd.Function) around the operator, with forward(*args), setup_context and "
                "backward; then call F.apply",
                needs="your formula in a class",
            ),
            Fix(text="or torch.autograd.grad / torch.autograd.functional, which take it as it is"),
        )
    else:
        sentence = (
            f"{name} is an autograd.Function whose forward takes ctx; torch.func needs one without, and a setup_context"
        )
        split = "forward(*args) without ctx, and @staticmethod def setup_context(ctx, inputs, output)"
        fixes = (Fix(text=f"in {name}: @staticmethod def {split}: ctx.save_for_backward(...)"),)
    return Explanation(sentence, fixes)


def _in_call(failure: Failure, name: str) -> bool:
    """Return whether the lines that failed name an operator, or a function that was made one."""
    base = name.partition("::")[2].partition(".")[0]
    return any(re.search(rf"\b{base}\b", frame.text) for frame in failure.frames)


@cause("WHY611", "an output that aliases an input, for functionalization", wrong="register_fake or register_autograd")
def aliased_output(failure: Failure) -> Explanation | None:
    """Recognise a schema with an alias in its result, which functionalization refuses."""
    found = failure.search(
        r"Found a custom \(non-ATen\) operator whose output has alias annotations: ([\w:.]+)(\(.*?\) -> [^\n.]+)"
    )
    if found is None:
        return None
    name, schema = found[1], found[2].partition(". We")[0]
    inputs, _, result = schema.rpartition(" -> ")
    base = name.partition("::")[2]
    if "!" in result:
        written = next(iter(re.findall(r"!\) (\w+)", inputs)), "the argument")
        first = f'lib.define("{base}{inputs} -> ()")  # return nothing, and use {written} afterwards'
        tag = "out" if "*, " in inputs else "inplace"
        second = f'or, where PyTorch has it: lib.define("{base}{schema}", tags=(torch.Tag.{tag},))'
    else:
        plain = re.sub(r"Tensor\(\w+\)", "Tensor", f"{base}{schema}")
        first = f'lib.define("{plain}")  # and return a copy in the kernel: view.clone()'
        second = f'or keep the view: lib.impl("{base}", kernel, "CompositeImplicitAutograd")  # alone'
    return Explanation(
        f"functionalization (compile, export) refuses {name}: its result has an alias annotation, {result}",
        (Fix(text=first), Fix(text=second)),
    )


@cause("WHY612", "a result that is an input", wrong="Tensor(a) in the schema: compile refuses it")
def returns_input(failure: Failure) -> Explanation | None:
    """Recognise an operator that returns an argument or a view of one, and does not say so."""
    found = failure.search(r"(\w+) \(with implementation in [^\n]*?must not also be an input")
    opcheck = failure.search(r"Argument (\w+) is not defined to alias output but was aliasing")
    noted = failure.of("returned alias")
    wrong = "AssertionError" in failure.kinds and noted and failure.of("compiled")
    if not (found or opcheck or wrong):
        return None
    custom = [e.subject for e in failure.of("custom_op") if found and e.subject.endswith(f"::{found[1]}")]
    name = next(iter([*custom, *(event.subject for event in noted)]), found[1] if found else "an operator")
    facts = failure.registry.operator(name)
    what = opcheck[1] if opcheck else noted[-1].detail if noted else "an argument"
    fixes = [Fix(text="return x.clone() in the kernel")]
    if facts is not None and "!" in facts.schema:
        fixes = [
            Fix(text="-> None: return nothing, and use the written argument afterwards"),
            Fix(text=f'or @torch.library.custom_op("{name}", mutates_args=(...), tags=(torch.Tag.inplace,))'),
        ]
    return Explanation(
        f"{name} returns {what}, or a view of it, which an operator whose schema says nothing of an alias must "
        f"not{line_of_definition(facts, failure)}",
        tuple(fixes),
        ((f"schema: {facts.schema}",) if facts else ()),
    )


def _autocast_device(event: Event) -> str:
    return event.detail.partition("autocast ")[2].partition(";")[0].partition(",")[0]


@cause("WHY621", "a kernel that autocast gives two dtypes", wrong="a kernel for the other dtype")
def autocast_dtypes(failure: Failure) -> Explanation | None:
    """Recognise a custom operator or an autograd.Function under autocast whose inputs have different dtypes."""
    called = [e for e in failure.of("called") if "autocast" in e.detail and ";" in e.detail]
    if failure.search(r"[dD]type|scalar type|[fF]loat16|Half") is None:
        return None
    if called and (in_kernel(failure, called[-1].subject) or _in_call(failure, called[-1].subject)):
        event, device = called[-1], _autocast_device(called[-1])
        facts = failure.registry.operator(event.subject)
        return Explanation(
            f"{event.subject} was called under autocast ({device}), which casts no input of a custom operator: its "
            f"kernel got {event.detail.partition('; ')[2]}{line_of_definition(facts, failure)}",
            (_register_autocast(event.subject, device), Fix(text=f"or cast in the kernel: {_casts(facts)}")),
        )
    function = re.search(r"class (\w+)\([\w.]*Function\)", failure.source)
    inner = failure.at.function if failure.at else ""
    if function is None or inner not in ("forward", "backward") or "autocast" not in failure.source:
        return None
    device = "cuda" if "cuda" in failure.source else "cpu"
    return Explanation(
        f"{inner} of the autograd.Function {function[1]} runs with tensors of two dtypes: autocast was on around "
        f"apply, and casts operators, not the inputs of a Function ({failure.chain[0].text[:120]})",
        (
            Fix(
                text=f'@torch.amp.custom_fwd(device_type="{device}", cast_inputs=torch.float32) on forward, and '
                f'@torch.amp.custom_bwd(device_type="{device}") on backward'
            ),
        ),
    )


def _register_autocast(name: str, device: str) -> Fix:
    text = f'torch.library.register_autocast("{name}", "{device}", torch.bfloat16)'
    # The call is made again outside of the program's own `with torch.autocast`.
    return Fix(text=text, code=f'import torch\ntorch.set_autocast_enabled("{device}", True)\n{text}', outer=True)


def _casts(facts: OperatorFacts | None) -> str:
    tensors = [name for kind, name in arguments_of(facts.schema if facts else "") if kind.startswith("Tensor")]
    return f"{tensors[1]} = {tensors[1]}.to({tensors[0]}.dtype)" if len(tensors) > 1 else "x = x.to(y.dtype)"


@cause("WHY622", "an autocast kernel for another device", wrong="a kernel for the device: it ran")
def autocast_device(failure: Failure) -> Explanation | None:
    """Recognise a wrong dtype after an operator whose autocast kernel is for another device alone."""
    text = failure.text + (failure.at.text if failure.at else "")
    for event in failure.of("called") if re.search(r"dtype|float|Half|autocast", text) else ():
        device = _autocast_device(event)
        facts = failure.registry.operator(event.subject) if device else None
        keys = [key for key in facts.kernels if key.startswith("Autocast")] if facts else []
        if facts is not None and keys and f"Autocast{device.upper()}" not in keys:
            return Explanation(
                f"{event.subject} was called under autocast ({device}) and has an autocast kernel for {listed(keys)} "
                f"alone: on {device} nothing casts{line_of_definition(facts, failure)}",
                (
                    _register_autocast(event.subject, device),
                    Fix(text=f'or lib.impl("{facts.base}", cast, "Autocast{device.upper()}")', needs="your kernel"),
                ),
            )
    return None


@cause("WHY623", "an autocast kernel that finds itself", wrong="sys.setrecursionlimit: it never ends")
def autocast_recursion(failure: Failure) -> Explanation | None:
    """Recognise a kernel for autocast that calls its operator with autocast still on."""
    if "RecursionError" not in failure.kinds:
        return None
    kernels = [e for e in failure.of("function") if e.detail.startswith("Autocast") and e.at]
    repeated = (e for e in kernels if e.at and sum(f.function == e.at.function for f in failure.frames) > 20)
    event = next(repeated, None)
    if event is None:
        return None
    key, name = event.detail, event.subject
    guard = f"torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.{key}))"
    return Explanation(
        f"the {key} kernel of {name} ({event.at}) calls {name} with autocast on, which finds the kernel again",
        (
            Fix(text=f"with {guard}: return torch.ops.{name.replace('::', '.')}(...)"),
            Fix(text=f'or with torch.autocast("{key.removeprefix("Autocast").lower()}", enabled=False): ...'),
        ),
    )
