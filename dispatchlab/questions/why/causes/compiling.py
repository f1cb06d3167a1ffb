"""torch.compile, export, ONNX and DTensor: operators and functions that they do not take."""

from __future__ import annotations

import re
import sys

from dispatchlab.model.failure import Failure, Fix, operator_name
from dispatchlab.questions.why.cause import Explanation, cause
from dispatchlab.questions.why.causes.wording import line_of_definition, registered_lines, signature_of

_SKIPPED = r"Dynamo does not know how to trace the builtin `(\w+)\.(?:[\w.]+\.)?(\w+)\.?`"


@cause("WHY701", "a function that Dynamo cannot trace", wrong="register_fake alone: there is no operator to have one")
def untraceable_function(failure: Failure) -> Explanation | None:
    """Recognise a function of an extension module, of numpy or of ctypes that Dynamo cannot look into."""
    skipped = failure.search(_SKIPPED)
    numpy = failure.search(r"[Cc]an't find numpy(?: numpy)? function <(?:\w+ )?(\w+)|numpy function: <ufunc '(\w+)'")
    ctypes = failure.search(r"class `PyCFuncPtrType`|_ctypes\.|ctypes\.CDLL")
    at = f" at {failure.at}" if failure.at else ""
    if skipped is not None and skipped[1] not in sys.stdlib_module_names:
        module, name = skipped.groups()
        what, kind = f"{module}.{name}", "a function of a C++ extension (pybind)"
    elif numpy is not None and "Unsupported" in failure.kinds:
        module, name = "my", next(filter(None, numpy.groups()))
        what, kind = f"numpy's {name}", "a function that torch._numpy does not have"
    elif ctypes is not None and "Unsupported" in failure.kinds:
        module, name, what, kind = "my", "name", "a ctypes function", "machine code"
    else:
        return None
    return Explanation(
        f"{what}{at} is {kind} and no operator: torch.compile cannot trace it",
        (
            Fix(
                text=f'@torch.library.custom_op("{module}::{name}", mutates_args=()) on a function that calls it, with '
                ".register_fake(...); then call that"
            ),
            Fix(
                text=f"or torch.compiler.allow_in_graph({name}), where it takes fake tensors"
                if skipped
                else "or @torch.compiler.disable on the function around it, without fullgraph=True"
            ),
        ),
    )


@cause("WHY702", "an operator that is not in the core ATen opset", wrong="a kernel: the operator runs")
def not_core(failure: Failure) -> Explanation | None:
    """Recognise an exported program with an operator outside of the core."""
    found = failure.search(
        r"[Oo]p(?:erator)?s? (?:torch\._?ops\.)?(aten[.:]+[\w.]+) is not (?:in the |an? )?[Cc]ore A[Tt][Ee][Nn]"
    ) or failure.search(r"not (?:in the )?[Cc]ore A[Tt][Ee][Nn][^\n]*?(aten[.:]+[\w.]+)")
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
        or failure.search(r"No ONNX function found for <OpOverload\(op='([\w.]+)'")
        or failure.search(r"No (?:ONNX|decompositions registered|dispatcher) .*?(?:function|for) .*?(\w+[:.]+\w+)")
    )
    if found is None or "onnx" not in failure.text.lower():
        return None
    name = operator_name(found[1])
    dotted = name.replace("::", ".")
    facts = failure.registry.operator(name)
    return Explanation(
        f"the ONNX exporter has no symbolic function (translation) for {name}{line_of_definition(facts, failure)}",
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
    """Recognise an operator that got a DTensor and a torch.Tensor, or DTensors of two meshes."""
    meshes = failure.search(r"Cannot run ([\w.]+) on inputs with different meshes|with different (?:device )?mesh")
    if meshes is not None:
        name = operator_name(meshes[1] or "") or "an operator"
        return Explanation(
            f"{name} got DTensors of two device meshes, and one call has one mesh",
            (Fix(text="take one mesh for both: distribute_tensor(x.full_tensor(), y.device_mesh, y.placements)"),),
        )
    found = failure.search(
        r"([\w.]+):? got mixed torch\.Tensor and DTensor, need to convert all torch\.Tensor to DTensor"
    )
    if found is None:
        return None
    context = "torch.distributed.tensor.experimental.implicit_replication()"
    return Explanation(
        f"{operator_name(found[1])} got a DTensor and a plain tensor",
        (
            Fix(
                text=f"with {context}: {failure.call or '...'}  # plain tensors count as replicated",
                code=f"import torch.distributed.tensor.experimental\nreplicated = {context}\nreplicated.__enter__()",
            ),
            Fix(text="or distribute_tensor(x, mesh, [Replicate()]) of the plain one; or x.to_local() of the other"),
        ),
    )


@cause("WHY706", "an operator that functionalization cannot wrap", wrong="register_fake")
def effects(failure: Failure) -> Explanation | None:
    """Recognise auto_functionalized operators that cannot be wrapped, or stay in the graph."""
    found = failure.search(r"Cannot auto-functionalize op(?:erator)? ([\w.:]+)") or failure.search(
        r"auto_functionalized(?:_v2)? was not removed()"
    )
    if found is None:
        return None
    name = operator_name(found[1])
    facts = failure.registry.operator(name) if name else None
    every = next((e.subject for e in failure.of("custom_op") if "(a1!)" in e.detail), name or "an operator")
    what = (
        f"{every} declares that it writes arguments (mutates_args), and Inductor cannot take its wrapper "
        "(auto_functionalized) out of the graph"
        if not found[1]
        else f"functionalization cannot wrap {name}: it takes operators that write arguments and return nothing or new "
        f"tensors{line_of_definition(facts, failure)}"
    )
    return Explanation(
        what,
        (Fix(text="name in mutates_args what is written and nothing else (never 'unknown'), and return new tensors"),),
        registered_lines(failure, name),
    )


@cause("WHY707", "an operator without the tag that compile asks for", wrong="register_fake: the tag is asked before")
def not_compliant(failure: Failure) -> Explanation | None:
    """Recognise an operator that only_allow_pt2_compliant_ops keeps out of the graph."""
    found = failure.search(r"(?:OpOverloadPacket|OpOverload|overload)\W+([\w.:]+?)\W+that is not PT2 compliant")
    if found is None:
        return None
    name = operator_name(found[1])
    facts = failure.registry.operator(name)
    schema = facts.schema.partition("::")[2] if facts else "name(...) -> ..."
    return Explanation(
        f"{name} has no torch.Tag.pt2_compliant_tag{line_of_definition(facts, failure)}, and "
        "torch._dynamo.config.only_allow_pt2_compliant_ops keeps it out of the graph",
        (
            Fix(text=f'lib.define("{schema}", tags=(torch.Tag.pt2_compliant_tag,))  # once opcheck passes'),
            Fix(text="or torch.library.custom_op, which sets the tag"),
        ),
        registered_lines(failure, name),
    )


@cause("WHY708", "an argument that a graph cannot hold", wrong="register_fake: the call does not reach it")
def argument_without_proxy(failure: Failure) -> Explanation | None:
    """Recognise an operator that is called under compile with an object of Python."""
    found = failure.search(r"Failed to convert args/kwargs to proxy.*?UserDefined\w*Variable\((\w+)\)")
    if found is None:
        return None
    lines = " ".join(frame.text for frame in failure.frames)
    events = failure.of("custom_op", "define")
    event = next((e for e in events if re.search(rf"\b{e.subject.partition('::')[2]}\b", lines)), None)
    facts = failure.registry.operator(event.subject) if event else None
    schema = facts.schema if facts else ""
    return Explanation(
        f"{event.subject if event else 'a call'} gets an object of the class {found[1]}"
        f"{f' at {failure.at}' if failure.at else ''}, and a graph holds tensors, numbers, strings, dtypes and lists",
        (Fix(text="pass what the schema has: a str, an int or a tensor taken from the object before the call"),),
        ((f"schema: {schema}",) if schema else ()),
    )


@cause("WHY709", "an exported operator that is not there", wrong="exporting again: the file is right")
def export_without_operator(failure: Failure) -> Explanation | None:
    """Recognise a saved program whose operator this process has not defined."""
    pattern = r"failed to resolve (?:torch\.ops\.)?([\w.]+) to an operator"
    logged = [found for event in failure.of("warning") if (found := re.search(pattern, event.detail))]
    found = failure.search(pattern) or (logged[-1] if logged and "deserializ" in failure.text else None)
    if found is None:
        return None
    name = operator_name(found[1])
    return Explanation(
        f"the saved program calls {name}, and nothing in this process has defined it (torch.export.load)",
        (Fix(text=f"import the module that defines {name.partition('.')[0]} before torch.export.load(...)"),),
        registered_lines(failure, name),
    )


@cause("WHY710", "opcheck finds a fault", wrong="test_utils= without that test")
def opcheck_fault(failure: Failure) -> Explanation | None:
    """Recognise a test of torch.library.opcheck that fails for none of the other causes."""
    found = failure.search(r"opcheck\(op, \.\.\.\): (test_\w+) failed with ([^\n]+?)(?: \(scroll up|\n|$)")
    if found is None:
        return None
    test, what = found.groups()
    checks = {
        "test_schema": "that the kernel writes and aliases what the schema says",
        "test_autograd_registration": "that gradients are registered at an autograd key",
        "test_faketensor": "that the fake kernel gives what the kernel gives",
        "test_aot_dispatch_dynamic": "that forward and backward run compiled with dynamic shapes as without",
    }
    called = next((e for e in failure.of("custom_op", "define") if e.subject.partition("::")[2] in failure.call), None)
    facts = failure.registry.operator(called.subject) if called else None
    name = facts.name if facts else "the operator"
    written = re.search(r"Argument (\w+) is not defined as mutable but was mutated", what)
    if written is not None and facts is not None:
        fix = (
            f'@torch.library.custom_op("{facts.packet}", mutates_args=("{written[1]}",))'
            if facts.custom_op
            else f"lib.define(...)  # Tensor(a!) {written[1]} in {facts.schema}"
        )
        return Explanation(
            f"{name} mutates {written[1]}, and {'mutates_args' if facts.custom_op else 'its schema'} does not name it"
            f"{line_of_definition(facts, failure)}: opcheck's {test} sees the write",
            (Fix(text=fix), Fix(text=f"or write a copy in the kernel: {written[1]} = {written[1]}.clone()")),
        )
    same = f"def fake({signature_of(facts.schema)})" if facts and test == "test_faketensor" else "the function it names"
    return Explanation(
        f"opcheck's {test} of {name} fails, which tests {checks.get(test, 'the registrations')}: {what}",
        (Fix(text=f"mend {same}; torch.library.opcheck(op, args, test_utils={test!r}) runs this test alone"),),
        ((f"schema: {facts.schema}",) if facts else ()),
    )


@cause("WHY719", "a graph break", wrong="register_fake", dispatcher=False)
def graph_break(failure: Failure) -> Explanation | None:
    """Recognise what Dynamo cannot trace and that is no operator."""
    found = failure.search(r"Unsupported: ([^\n]+)(?:\n\s+Explanation: ([^\n]+))?")
    if (
        found is None
        or "fake tensor call" in failure.text
        or ("user code" not in failure.text and "Unsupported" not in failure.kinds)
    ):
        return None
    at = failure.at
    skipped = failure.search(_SKIPPED)
    raised = failure.search(r"Observed exception.*?raised exception (\w+\([^\n]*\))")
    if raised is not None:
        return Explanation(f"the compiled function raises{f' at {at}' if at else ''}: {raised[1]}")
    what = f"{skipped[1]}.{skipped[2]} is a function of Python" if skipped else found[2] or found[1]
    return Explanation(
        f"Dynamo cannot trace `{at.text if at else ''}`{f' at {at}' if at else ''} in one graph: {what}",
        (
            Fix(text="move it out of the compiled function, or drop fullgraph=True: the graph breaks there"),
            Fix(text="or @torch.compiler.disable on a function around it"),
        ),
    )
