"""torch.compile, export, ONNX and DTensor: operators that they do not take."""

from __future__ import annotations

import re

from dispatchlab.model.failure import Failure, Fix, operator_name
from dispatchlab.questions.why.cause import Explanation, cause
from dispatchlab.questions.why.causes.wording import line_of_definition


@cause("WHY701", "a C++ function that is no operator", wrong="register_fake alone: there is no operator to have one")
def untraceable_function(failure: Failure) -> Explanation | None:
    """Recognise a function of an extension module that Dynamo cannot look into."""
    found = failure.search(r"Dynamo does not know how to trace the builtin `(\w+)\.(?:[\w.]+\.)?(\w+)\.?`")
    if found is None:
        return None
    module, name = found.groups()
    return Explanation(
        f"{module}.{name} is a function of a C++ extension (pybind) and no operator: torch.compile cannot trace it",
        (
            Fix(
                text=f'@torch.library.custom_op("{module}::{name}", mutates_args=()) around {module}.{name}, '
                "with .register_fake(...); then call the operator"
            ),
            Fix(text=f"or torch.compiler.allow_in_graph({name}), where it takes fake tensors"),
        ),
    )


@cause("WHY702", "an operator that is not in the core ATen opset", wrong="a kernel: the operator runs")
def not_core(failure: Failure) -> Explanation | None:
    """Recognise an exported program with an operator outside of the core."""
    found = failure.search(r"[Oo]perator (?:torch\._ops\.)?(aten[.:]+[\w.]+) is not (?:in the )?[Cc]ore A[Tt][Ee][Nn]")
    if found is None:
        return None
    name = operator_name(found[1].replace("::", "."))
    base = name.partition("::")[2].partition(".")[0]
    random = base in ("bernoulli", "dropout", "native_dropout", "rand_like", "randn_like", "normal", "rrelu_with_noise")
    first = Fix(
        text="model.eval() before torch.export.export(...).run_decompositions(): in training, the random operator stays"
    )
    second = Fix(text=f"or a decomposition: run_decompositions({{torch.ops.{name.replace('::', '.')}: decomposition}})")
    return Explanation(
        f"{name} stays in the exported graph, and it is not in the core ATen opset: PyTorch has no "
        "decomposition of it there",
        (first, second) if random or "training" in failure.source else (second,),
    )


@cause("WHY703", "an operator that the ONNX exporter does not know", wrong="register_fake: the export was traced")
def onnx_symbolic(failure: Failure) -> Explanation | None:
    """Recognise an operator without a symbolic function or translation."""
    found = (
        failure.search(r"ONNX export failed on an operator with unrecognized namespace ([\w:]+)")
        or failure.search(r"Exporting the operator '([\w:]+)' to ONNX")
        or failure.search(r"No (?:ONNX|decompositions registered|dispatcher) .*?(?:function|for) .*?(\w+[:.]+\w+)")
    )
    if found is None or "onnx" not in failure.text.lower():
        return None
    name = operator_name(found[1])
    dotted = name.replace("::", ".")
    return Explanation(
        f"the ONNX exporter has no symbolic function (translation) for {name}",
        (
            Fix(
                text=f'torch.onnx.register_custom_op_symbolic("{name}", symbolic, opset_version)',
                needs="your symbolic function",
            ),
            Fix(
                text=f"or dynamo=True with custom_translation_table={{torch.ops.{dotted}.default: translation}}",
                needs="your translation",
            ),
        ),
    )


@cause("WHY704", "a DTensor without a sharding rule", wrong="a kernel or a fake: placements are decided before both")
def sharding(failure: Failure) -> Explanation | None:
    """Recognise an operator for which DTensor knows no strategy."""
    found = failure.search(r"Operator ([\w.]+) does not have a sharding strategy registered")
    if found is None:
        return None
    name = operator_name(found[1])
    facts = failure.registry.operator(name)
    return Explanation(
        f"{name} got a DTensor and has no sharding strategy{line_of_definition(facts, failure)}",
        (
            Fix(
                text=f"torch.distributed.tensor.experimental.register_sharding(torch.ops.{found[1]})(rule)",
                needs="your rule",
            ),
            Fix(text="or call it on the local part: x.to_local()", wrap="{}.to_local()"),
        ),
    )


@cause("WHY705", "DTensor and plain tensors in one call", wrong="register_sharding: the operator has a strategy")
def mixed_dtensor(failure: Failure) -> Explanation | None:
    """Recognise an operator that got a DTensor and a torch.Tensor."""
    found = failure.search(
        r"([\w.]+): got mixed torch\.Tensor and DTensor, need to convert all torch\.Tensor to DTensor"
    )
    if found is None:
        return None
    return Explanation(
        f"{operator_name(found[1])} got a DTensor and a plain tensor",
        (Fix(text="distribute_tensor(x, mesh, [Replicate()])  # the plain one; or x.to_local() of the other"),),
    )


@cause("WHY706", "an operator whose effects a graph cannot order", wrong="register_fake")
def effects(failure: Failure) -> Explanation | None:
    """Recognise auto_functionalized operators that cannot be wrapped."""
    found = failure.search(r"auto_functionalized[^\n]*?([\w]+(?:::|\.)[\w.]+)")
    if found is None or not re.search(r"not supported|cannot|can't|only", failure.text):
        return None
    name = operator_name(found[1])
    return Explanation(
        f"functionalization cannot wrap {name}: it takes operators that return nothing or new tensors",
        (Fix(text="declare what it writes in mutates_args, and return nothing"),),
    )
