"""vmap, torch.func, functionalization and autocast: what a transform cannot do with an operator."""

from __future__ import annotations

import re
from typing import Final

from dispatchlab.model.failure import Event, Failure, Fix, OperatorFacts
from dispatchlab.questions.why.cause import Explanation, cause
from dispatchlab.questions.why.causes.wording import arguments_of, in_kernel, line_of_definition, listed

_BY_INDEX: Final = ("narrow", "select", "slice", "unfold", "as_strided", "split", "diagonal")
_LOOP: Final = "torch.stack([f(x) for x in xs])  # a loop in place of vmap"


def _under_vmap(failure: Failure) -> bool:
    return any("vmap" in name for name in failure.stack) or "vmap" in failure.text


def _where(failure: Failure) -> str:
    return f" at {failure.at}: `{failure.at.text}`" if failure.at else ""


@cause("WHY601", "no batching rule", wrong="a kernel for CPU: the batched tensor never reaches it")
def no_batching_rule(failure: Failure) -> Explanation | None:
    """Recognise an operator that vmap can neither batch nor loop over."""
    found = failure.search(r"Batching rule not implemented for ([\w:.]+?)[;.,]?\s+([^\n]*)")
    if found is None:
        return None
    name = found[1].rstrip(";.,")
    base, _, overload = name.partition("::")[2].partition(".")
    facts = failure.registry.operator(name)
    custom = not name.startswith("aten::")
    why = "the fallback of vmap, a loop, cannot be made for it"
    if "view" in found[2]:
        why = "it is a view or writes to an argument, which the fallback of vmap, a loop, cannot do"
    if custom:
        rule = f'torch.library.register_vmap("{name.partition(".")[0]}", rule)'
        fixes: tuple[Fix, ...] = (Fix(text=f"{rule}  # def rule(info, in_dims, *args): ...", needs="your rule"),)
        why += line_of_definition(facts, failure)
    elif base in _BY_INDEX:
        gather = "x.index_select(dim, start + torch.arange(length)), or torch.gather"
        fixes = (Fix(text=f"gather in place of a view: {gather}"),)
    elif overload.endswith("out"):
        fixes = (Fix(text=f"y = torch.{base}(...)  # without out=, a new tensor"),)
    else:
        fixes = (Fix(text=f"call it outside of vmap on the whole batch; or {_LOOP}"),)
    return Explanation(f"{name} has no batching rule (FuncTorchBatched) under vmap: {why}", fixes)


@cause("WHY602", "a number is read from a batched tensor", wrong="register_fake: no shape is missing")
def value_under_vmap(failure: Failure) -> Explanation | None:
    """Recognise .item() and what needs it, and numpy() or tolist(), on a batched tensor."""
    text = failure.call or (failure.at.text if failure.at else "")
    copied = re.search(r"\.(numpy|tolist)\(|\bnp\.\w+\(", text)
    item = failure.search(r"vmap: It looks like you're calling \.item\(\) on a Tensor")
    if item is None and not (copied and _under_vmap(failure) and "data pointer" in failure.text):
        return None
    what = f".{copied[1]}()" if copied and copied[1] else "numpy" if copied else ".item() (aten::_local_scalar_dense)"
    sentence = f"{what} is called under vmap{_where(failure)}: a batched tensor has one value for each example, not one"
    if copied:
        fix = (
            '@torch.library.custom_op("my::name", mutates_args=()) around the function that leaves PyTorch: vmap loops'
        )
        return Explanation(sentence, (Fix(text=f"{fix} over it; or call it outside of vmap"),))
    if re.search(r"\w\[[^\]]*:|select\(|narrow\(|\bslice\(", text):
        gather = "index by a tensor: x[start + torch.arange(length)], or x.index_select(dim, start[None])"
        return Explanation(sentence, (Fix(text=gather),))
    where = "torch.where(condition, a, b), torch.minimum(x, limit), or a mask: torch.arange(most) < n"
    return Explanation(sentence, (Fix(text=f"stay in tensors: {where}; or read the number outside of vmap"),))


@cause("WHY603", "a branch on data under vmap", wrong="torch.compile")
def branch_under_vmap(failure: Failure) -> Explanation | None:
    """Recognise control flow on a batched tensor."""
    if failure.search(r"vmap: It looks like you're attempting to use a Tensor in some data-dependent control") is None:
        return None
    return Explanation(
        f"a branch (`if`, `while`, `assert`, bool()) looks at a batched tensor under vmap{_where(failure)}: "
        "it has one value for each example",
        (Fix(text="torch.where(condition, a, b)  # both sides are computed; or branch outside of vmap"),),
    )


@cause("WHY604", "an autograd.Function without a rule for a transform", wrong="a batching rule for PyTorch's operators")
def function_under_vmap(failure: Failure) -> Explanation | None:
    """Recognise a torch.autograd.Function that has no rule for vmap, or two of them."""
    found = failure.search(r"You tried to vmap over (\w+), but it (does not have vmap support|has both)")
    if found is None:
        return None
    name = found[1]
    if found[2] == "has both":
        return Explanation(
            f"the autograd.Function {name} has generate_vmap_rule = True and a vmap staticmethod: vmap takes one",
            (Fix(text=f"generate_vmap_rule = False  # in {name}", code=f"{name}.generate_vmap_rule = False"),),
        )
    return Explanation(
        f"the autograd.Function {name} has no rule for vmap: neither generate_vmap_rule = True nor a vmap staticmethod",
        (
            Fix(
                text=f"generate_vmap_rule = True  # in the class {name}; its body must be operators of PyTorch",
                code=f"{name}.generate_vmap_rule = True",
            ),
            Fix(text="or @staticmethod def vmap(info, in_dims, *args): ...  # returns output, out_dims"),
        ),
    )


@cause("WHY605", "random numbers under vmap", wrong="torch.manual_seed")
def random_under_vmap(failure: Failure) -> Explanation | None:
    """Recognise a random operator that vmap's randomness does not allow."""
    found = failure.search(
        r"vmap: called random operation while in (randomness error) mode|"
        r"Vmap does not currently support (same randomness) with a batched tensor input"
    )
    if found is None:
        return None
    if found[2]:
        return Explanation(
            f"a random operator gets a batched tensor under vmap with randomness='same'{_where(failure)}",
            (Fix(text='torch.vmap(f, randomness="different")'),),
        )
    return Explanation(
        f"a random operator is called under vmap{_where(failure)}, whose randomness is 'error' when it is not given",
        (Fix(text='torch.vmap(f, randomness="different")  # or "same" for one draw for all examples'),),
    )


@cause("WHY606", "an in-place write under vmap", wrong="a kernel for the in-place operator")
def write_under_vmap(failure: Failure) -> Explanation | None:
    """Recognise a write of a batched value to a tensor that is not batched."""
    found = failure.search(r"vmap: ([\w:. ]+)\(self, \*extra_args\) is not possible because")
    if found is None:
        found = failure.search(r"(output) with shape \[[\d, ]*\] doesn't match the broadcast shape")
    norm = failure.search(r"Batch norm got a batched tensor as input while the running_mean or running_var")
    if norm is not None:
        return Explanation(
            "batch_norm writes its running_mean and running_var in place under vmap, and they are not batched",
            (Fix(text="torch.func.replace_all_batch_norm_modules_(model)  # before functional_call"),),
        )
    if found is None or not _under_vmap(failure):
        return None
    text = failure.at.text if failure.at else ""
    written = re.match(r"(?:return )?([A-Za-z_]\w*)(?:\[.*\] *[-+*/]?=|\.\w+_\(| *[-+*/]=)", text)
    name = written[1] if written else "x"
    return Explanation(
        f"`{text}` ({failure.at}) writes a batched value in place to {name} under vmap, and {name} is not batched"
        if failure.at
        else f"{found[1]} writes a batched value in place under vmap to a tensor that is not batched",
        (
            Fix(text=f"make {name} of a batched tensor: {name} = value.new_zeros(...)  # value is what is written"),
            Fix(text=f"or a call that returns a new tensor: {name} = {name} + value, {name}.index_put(...), torch.cat"),
        ),
    )


@cause("WHY607", "a result whose size depends on data, under vmap", wrong="a batching rule: there can be none")
def dynamic_under_vmap(failure: Failure) -> Explanation | None:
    """Recognise nonzero, masks and unique under vmap."""
    found = failure.search(
        r"vmap: (?:We do not support batching operators that can (?:output|support) dynamic shape\. "
        r"Attempt(?:ed to vmap over ([\w:]+(?:\.\w+)?)|ing to batch over (indexing with a boolean mask))|"
        r"Attempted to vmap over `mask` in (torch\.masked_select))"
    )
    if found is None:
        return None
    name = found[1] or found[2] or "aten::masked_select"
    static = "torch.nonzero_static(x, size=N), or " if "nonzero" in name else ""
    return Explanation(
        f"{name} gives a result of another size for each example, so vmap has no batching rule for it{_where(failure)}",
        (Fix(text=f"{static}torch.where(mask, x, 0.0)  # a fixed size; or call it outside of vmap"),),
    )


@cause("WHY608", "a batching rule that gives something else", wrong="another kernel: the rule is what runs")
def wrong_rule(failure: Failure) -> Explanation | None:
    """Recognise a rule of register_vmap or of an autograd.Function that does not do what vmap asks."""
    differs = next(iter(failure.of("rule differs")), None)
    if differs is not None:
        return Explanation(
            f"the rule for vmap of {differs.subject} gives other values than the operator for each example of a batch"
            f"{line_of_definition(failure.registry.operator(differs.subject), failure)}",
            (
                Fix(
                    text="def rule(info, in_dims, *args): ... return output, out_dims  # the same as "
                    "torch.stack([op(x) for x in xs]), 0: the batch dimension is in_dims[i], and no reduction takes it"
                ),
            ),
            ("tried: torch.vmap of the operator beside a loop, on the inputs of its first call",),
        )
    returns = failure.search(r"Expected the vmap staticmethod to have two returns[^\n]*?Got a ([^\n]+?) instead")
    rules = [event for event in failure.of("impl") if event.detail == "FuncTorchBatched"]
    if returns is None and not (rules and _under_vmap(failure)):
        return None
    asks = "def rule(info, in_dims, *args): ... return output, out_dims"
    of = f"the rule for vmap of {rules[-1].subject}" if rules else "the vmap staticmethod of the autograd.Function"
    at = f" at {failure.at}" if failure.at and rules and failure.at.function != "<module>" else ""
    if returns is not None:
        return Explanation(f"{of} returns {returns[1]}, not (output, out_dims)", (Fix(text=f"{asks}  # both"),))
    signature = failure.search(r"TypeError: ([\w.<>]+\(\) (?:takes|missing|got)[^\n]+)")
    if signature is not None:
        schema = facts.schema if (facts := failure.registry.operator(rules[-1].subject)) else ""
        names = ", ".join(name for _, name in arguments_of(schema))
        return Explanation(
            f"{of} does not take what it is given: {signature[1]}",
            (Fix(text=f"def rule(info, in_dims, {names}): ... return output, out_dims"),),
        )
    if failure.search(r"savedLocalDispatchKeySet_|Interpreter\.h") is not None:
        return Explanation(
            f"{of}{at} calls torch.vmap of the operator itself, which asks the rule again",
            (Fix(text="call the operator on the whole batch, or loop: torch.stack([op(x) for x in xs]), 0"),),
        )
    if failure.search(r"SmallVector unable to grow|Dimension out of range|out_dims?") is not None:
        return Explanation(
            f"{of} returns an out_dim that its output does not have: {failure.chain[0].text.splitlines()[0]}",
            (Fix(text=f"{asks}  # the output with the batch dimension, and where it is; None if there is none"),),
        )
    return None


@cause("WHY609", "autograd calls inside of a torch.func transform", wrong="a formula for an operator")
def autograd_in_transform(failure: Failure) -> Explanation | None:
    """Recognise backward(), requires_grad_() and .data on the tensors of a transform."""
    found = failure.search(
        r"(backward\(\)) called inside a functorch transform|"
        r"attempting to call Tensor\.(requires_grad_\(\))|accessing `(data)` under vmap transform"
    )
    if found is None:
        return None
    what = found[1] or found[2] or ".data"
    fix = (
        "x.detach(), or x.clone()" if found[3] else "torch.func.grad(f)(x), or torch.func.vjp: they give the gradients"
    )
    return Explanation(
        f"{what} is called on a tensor of torch.func (vmap, grad){_where(failure)}: a transform has no leaves",
        (Fix(text=fix),),
    )


@cause("WHY610", "an autograd.Function that torch.func cannot take apart", wrong="a batching rule for an operator")
def function_in_transform(failure: Failure) -> Explanation | None:
    """Recognise a torch.autograd.Function without setup_context or jvp under torch.func."""
    context = failure.search(r"In order to use an autograd\.Function with functorch transforms .*?the setup_context")
    forward = failure.search(r"You must implement the jvp function for custom autograd\.Function")
    if context is None and forward is None:
        return None
    rules = [e for e in failure.of("function") if e.detail in ("backward", "setup_context")]
    operator = next((e for e in rules if in_call(failure, e.subject)), None)
    if context is not None and operator is not None:
        name = operator.subject
        return Explanation(
            f"torch.func cannot take the formula that register_autograd gave {name} ({operator.at}): the "
            "autograd.Function that PyTorch makes of it has no setup_context of its own",
            (
                Fix(
                    text="class F(torch.autograd.Function) around the operator, with forward(*args), setup_context and "
                    "backward; then call F.apply",
                    needs="your formula in a class",
                ),
                Fix(text="or torch.autograd.grad / torch.autograd.functional, which take it as it is"),
            ),
        )
    called = re.search(r"(\w+)\.apply\b", failure.call or (failure.at.text if failure.at else ""))
    name = (
        called[1] if called else next(iter(re.findall(r"class (\w+)\([\w.]*Function\)", failure.source)), "the class")
    )
    if context is None:
        return Explanation(
            f"the autograd.Function {name} has no jvp, which torch.func.jvp, jacfwd and forward mode ask for",
            (
                Fix(text=f"@staticmethod def jvp(ctx, *tangents): ...  # in {name}", needs="your jvp"),
                Fix(text="or the reverse mode: torch.func.vjp, torch.func.jacrev"),
            ),
        )
    return Explanation(
        f"{name} is an autograd.Function whose forward takes ctx; torch.func needs one without, and a setup_context",
        (
            Fix(
                text=f"in {name}: @staticmethod def forward(*args) without ctx, and @staticmethod def "
                "setup_context(ctx, inputs, output): ctx.save_for_backward(...)",
                needs="an edit of the class",
            ),
        ),
    )


def in_call(failure: Failure, name: str) -> bool:
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
    sentence = f"functionalization (compile, export) refuses {name}: its result has an alias annotation, {result}"
    if "!" in result:
        written = next(iter(re.findall(r"!\) (\w+)", inputs)), "the written argument")
        return Explanation(
            sentence,
            (
                Fix(text=f'lib.define("{base}{inputs} -> ()")  # return nothing, use {written} afterwards'),
                Fix(text=f'or, where PyTorch has it: lib.define("{base}{schema}", tags=(torch.Tag.inplace,))'),
            ),
        )
    plain = re.sub(r"\(\w+\)", "", f"{base}({inputs.partition('(')[2]} -> {result}")
    return Explanation(
        sentence,
        (
            Fix(text=f'lib.define("{plain}")  # and return a copy in the kernel: view.clone()'),
            Fix(text=f'or keep the view: lib.impl("{base}", kernel, "CompositeImplicitAutograd")  # alone'),
        ),
    )


@cause("WHY613", "a tag that does not fit the schema", wrong="leaving the alias annotation out")
def wrong_tag(failure: Failure) -> Explanation | None:
    """Recognise torch.Tag.inplace or torch.Tag.out on a schema of another form."""
    found = failure.search(r"Schema tagged with torch\.Tag\.(inplace|out) ([^\n]+?)\.? Got: ([^\n]+)")
    if found is None:
        return None
    tag, asks, schema = found.groups()
    form = "f_(Tensor(a!) x, ...) -> Tensor(a!)" if tag == "inplace" else "f(Tensor x, *, Tensor(a!) out) -> Tensor(a!)"
    return Explanation(
        f"the schema {schema} does not have the form that torch.Tag.{tag} promises: it {asks}",
        (Fix(text=f'lib.define("{form}", tags=(torch.Tag.{tag},))  # or leave the tag out'),),
    )


_DTYPES: Final = (
    r"(expected (?:m1 and m2|mat1 and mat2|scalar type|self and \w+)[^\n]+|mat1 and mat2 must have the same dtype"
    r"[^\n]+|[^\n]*source and destination dtypes match[^\n]+|[^\n]*[dD]type[^\n]*|[^\n]*(?:[bB]?[fF]loat16|Half)[^\n]*)"
)


@cause("WHY621", "a kernel that autocast gives two dtypes", wrong="a kernel for the other dtype")
def autocast_dtypes(failure: Failure) -> Explanation | None:
    """Recognise a custom operator called under autocast whose inputs have different dtypes."""
    called = [event for event in failure.of("called") if "autocast" in event.detail and ";" in event.detail]
    found = failure.search(_DTYPES)
    if found is None:
        return None
    if called and (in_kernel(failure, called[-1].subject) or in_call(failure, called[-1].subject)):
        event = called[-1]
        facts = failure.registry.operator(event.subject)
        device = event.detail.partition("autocast ")[2].partition(";")[0].partition(",")[0]
        return Explanation(
            f"{event.subject} was called under autocast ({device}), which casts no input of a custom operator: its "
            f"kernel got {event.detail.partition('; ')[2]}{line_of_definition(facts, failure)}",
            (
                _register_autocast(event.subject, device),
                Fix(text=f"or cast in the kernel: {_casts(facts)}"),
            ),
        )
    function = re.search(r"class (\w+)\([\w.]*Function\)", failure.source)
    inner = failure.at.function if failure.at else ""
    if function is None or inner not in ("forward", "backward") or "autocast" not in failure.source:
        return None
    device = "cuda" if "cuda" in failure.source else "cpu"
    return Explanation(
        f"{inner} of the autograd.Function {function[1]} runs with tensors of two dtypes: autocast was on around "
        f"apply, and casts operators, not the inputs of a Function ({found[1].strip()[:120]})",
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
    for event in failure.of("called"):
        device = event.detail.partition("autocast ")[2].partition(";")[0].partition(",")[0]
        facts = failure.registry.operator(event.subject) if device else None
        keys = [key for key in facts.kernels if key.startswith("Autocast")] if facts else []
        if facts is None or not keys or f"Autocast{device.upper()}" in keys or not _about_dtypes(failure):
            continue
        return Explanation(
            f"{event.subject} was called under autocast ({device}) and has an autocast kernel for {listed(keys)} "
            f"alone: on {device} nothing casts{line_of_definition(facts, failure)}",
            (
                _register_autocast(event.subject, device),
                Fix(text=f'or lib.impl("{facts.base}", cast, "Autocast{device.upper()}")', needs="your kernel"),
            ),
        )
    return None


def _about_dtypes(failure: Failure) -> bool:
    text = failure.text + (failure.at.text if failure.at else "")
    return re.search(r"dtype|float|Half|autocast", text) is not None


@cause("WHY623", "an autocast kernel that finds itself", wrong="sys.setrecursionlimit: it never ends")
def autocast_recursion(failure: Failure) -> Explanation | None:
    """Recognise a kernel for autocast that calls its operator with autocast still on."""
    if "RecursionError" not in failure.kinds:
        return None
    event = next((e for e in failure.of("impl") if e.detail.startswith("Autocast") and _repeats(failure, e)), None)
    if event is None:
        return None
    key = event.detail
    return Explanation(
        f"the {key} kernel of {event.subject} ({event.at}) calls {event.subject} with autocast on, which finds the "
        "kernel again",
        (
            Fix(
                text=f"with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.{key})): "
                f"return torch.ops.{event.subject.replace('::', '.')}(...)"
            ),
            Fix(text=f'or with torch.autocast("{key.removeprefix("Autocast").lower()}", enabled=False): ...'),
        ),
    )


def _repeats(failure: Failure, event: Event) -> bool:
    """Return whether a registered kernel is on the stack again and again."""
    at = next(
        (e.at for e in failure.of("function") if e.subject == event.subject and e.detail == event.detail), event.at
    )
    name = at.function if at else ""
    return sum(frame.function == name for frame in failure.frames) > 20


@cause("WHY612", "a result that is an input", wrong="Tensor(a) in the schema: compile refuses it")
def returns_input(failure: Failure) -> Explanation | None:
    """Recognise an operator that returns an argument or a view of one, and does not say so."""
    found = failure.search(
        r"(\w+) \(with implementation in [^\n]*?The output of this custom operator \(1\) must not also be an input"
    )
    opcheck = failure.search(r"Argument (\w+) is not defined to alias output but was aliasing")
    noted = failure.of("returned alias")
    wrong = bool(failure.kinds & {"AssertionError"}) and bool(noted) and bool(failure.of("compiled"))
    if found is None and opcheck is None and not wrong:
        return None
    custom = [e.subject for e in failure.of("custom_op") if found and e.subject.endswith(f"::{found[1]}")]
    name = next(iter([*custom, *(event.subject for event in noted)]), found[1] if found else "an operator")
    facts = failure.registry.operator(name)
    names = opcheck[1] if opcheck else noted[-1].detail if noted else ""
    writes = facts is not None and "!" in facts.schema
    what = names or ("an argument that it writes" if writes else "an argument")
    fixes = [Fix(text="return x.clone() in the kernel")]
    if writes:
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
