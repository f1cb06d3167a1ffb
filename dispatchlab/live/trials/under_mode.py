"""Call one operator under a mode, and note the operators that the mode received, and the result."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from dispatchlab.live.trials.inputs import Inputs, function_of, generated, overload, tensors_of

Seen: TypeAlias = dict[str, Any]
"""A title of what was seen -> lines."""

_TRIED: Final = 24


def call_under_mode(operator: str, mode: str, specs: Sequence[str], path: str) -> None:
    """Make a call under a mode, and write the observations to a file.

    Args:
        operator: the full name.
        mode: one of `MODES`.
        specs: one for each argument: a combination of `cpu`, `cuda`, `meta` and `grad`, or a value in Python syntax.
        path: the JSON file for the observations; it is also written if the call raises.
    """
    op = overload(operator)
    inputs = _inputs(op, specs)
    seen: Seen = {"operator": operator, "mode": mode, "inputs": str(inputs)}
    try:
        result = _MODES[mode](op, inputs, seen)
        seen["result"] = str(Inputs(tuple(tensors_of([result]))))
    finally:
        if not Path(path).exists():  # a fix that is tried makes the call again
            Path(path).write_text(json.dumps(seen), encoding="utf-8")


def _inputs(op: Any, specs: Sequence[str]) -> Inputs:
    """Return the first generated inputs that the operator accepts, under the conditions on each argument."""
    tries = [_described(inputs, specs) for inputs in islice(generated(op, "cpu"), _TRIED)]
    for inputs in tries:
        try:
            copied = inputs.copy()
            op(*copied.positional, **copied.named)
        except Exception:  # of an operator that takes no input, the first shows why
            continue
        return inputs
    return tries[0]


def _described(inputs: Inputs, specs: Sequence[str]) -> Inputs:
    values = list(inputs.positional)
    for at, spec in enumerate(specs[: len(values)]):
        words = spec.replace("+", " ").split()
        try:
            values[at] = ast.literal_eval(spec)
        except (SyntaxError, ValueError):
            if isinstance(values[at], torch.Tensor) and words:
                values[at] = values[at].to(next((word for word in words if word in ("cpu", "cuda", "meta")), "cpu"))
                if "requires_grad" in words or "grad" in words:
                    values[at] = values[at].float().requires_grad_()
    return Inputs(tuple(values), inputs.named)


@contextmanager
def _reached(seen: Seen, title: str) -> Iterator[None]:
    """Note the operators that reach PyTorch below the active modes."""

    class Log(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.setdefault(title, []).append(f"{func}{Inputs(tuple(args))}")
            return func(*args, **(kwargs or {}))

    with Log():  # type: ignore[no-untyped-call]
        yield


def _nodes(graph: Any) -> list[str]:
    return [
        str(node.target) for node in graph.nodes if node.op == "call_function" and "getitem" not in str(node.target)
    ]


def _fake(op: Any, inputs: Inputs, seen: Seen) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with _reached(seen, "reached below the fake mode"), FakeTensorMode() as mode:
        fakes = inputs.map(mode.from_tensor)
        return op(*fakes.positional, **fakes.named)


def _make_fx(op: Any, inputs: Inputs, seen: Seen, change: Callable[..., Any] = lambda function: function) -> Any:
    function, tensors = function_of(op, inputs)
    traced = make_fx(change(function))(*tensors)
    seen["in the graph"] = _nodes(traced.graph)
    return traced(*tensors)


def _compiler(seen: Seen, title: str, module: Any, _: Any) -> Any:
    seen[title] = _nodes(module.graph)
    return module.forward


def _aot(op: Any, inputs: Inputs, seen: Seen) -> Any:
    from torch._functorch._aot_autograd.utils import make_boxed_compiler
    from torch._functorch.aot_autograd import aot_function

    function, tensors = function_of(op, inputs)
    forward = make_boxed_compiler(partial(_compiler, seen, "in the forward graph"))
    backward = make_boxed_compiler(partial(_compiler, seen, "in the backward graph"))
    result = aot_function(function, forward, backward)(*tensors)
    _run_backward(result)
    return result


def _run_backward(result: Any) -> None:
    wanted = [tensor for tensor in tensors_of([result]) if tensor.requires_grad]
    if wanted:
        sum(tensor.sum() for tensor in wanted).backward()


def _compile(op: Any, inputs: Inputs, seen: Seen) -> Any:
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.lowering import fallbacks, lowerings

    def compiler(module: Any, _: Any) -> Any:
        nodes = [node.target for node in module.graph.nodes if node.op == "call_function"]
        seen["what Inductor does"] = [
            f"{target}: {'a kernel of its own calls it (fallback)' if target in fallbacks else 'lowered'}"
            if target in lowerings
            else f"{target}: no lowering, so a fallback is made"
            for target in nodes
            if isinstance(target, torch._ops.OpOverload)
        ]
        return module.forward

    function, tensors = function_of(op, inputs)
    backend = aot_autograd(fw_compiler=compiler, decompositions=select_decomp_table())
    return torch.compile(function, backend=backend, fullgraph=True)(*tensors)


def _export(op: Any, inputs: Inputs, seen: Seen) -> Any:
    function, tensors = function_of(op, inputs)

    class Module(torch.nn.Module):
        def forward(self, *given: Any) -> Any:
            return function(*given)

    program = torch.export.export(Module(), tuple(tensors))
    seen["in the exported program"] = _nodes(program.graph)
    seen["after run_decompositions()"] = _nodes(program.run_decompositions().graph)
    return program.module()(*tensors)


def _vmap(op: Any, inputs: Inputs, seen: Seen) -> Any:
    function, tensors = function_of(op, inputs)
    with _reached(seen, "reached below vmap"):
        return torch.vmap(function)(*(torch.stack([tensor, tensor]) for tensor in tensors))


def _grad(op: Any, inputs: Inputs, seen: Seen) -> Any:
    ready = inputs.map(lambda tensor: tensor.requires_grad_() if tensor.is_floating_point() else tensor)
    with _reached(seen, "reached below autograd"):
        result = op(*ready.positional, **ready.named)
    seen["recorded"] = [str(type(tensor.grad_fn).__name__) for tensor in tensors_of([result]) if tensor.grad_fn]
    with _reached(seen, "reached in backward"):
        _run_backward(result)
    return result


def _device(inputs: Inputs) -> str:
    return "cuda" if any(tensor.is_cuda for tensor in tensors_of(inputs.values)) else "cpu"


def _autocast(op: Any, inputs: Inputs, seen: Seen) -> Any:
    with _reached(seen, "reached below autocast"), torch.autocast(_device(inputs), dtype=torch.bfloat16):
        return op(*inputs.positional, **inputs.named)


def _dtensor(op: Any, inputs: Inputs, seen: Seen) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, distribute_tensor
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    mesh = init_device_mesh(_device(inputs), (2,))
    spread = inputs.map(lambda tensor: distribute_tensor(tensor, mesh, [Replicate()]))
    with _reached(seen, "reached below DTensor"):
        result = op(*spread.positional, **spread.named)
    seen["placements"] = [str(getattr(tensor, "placements", "a plain tensor")) for tensor in tensors_of([result])]
    return result


_MODES: Final[dict[str, Callable[[Any, Inputs, Seen], Any]]] = {
    "fake": _fake,
    "make_fx": _make_fx,
    "aot": _aot,
    "compile": _compile,
    "export": _export,
    "functionalize": partial(_make_fx, change=torch.func.functionalize),
    "vmap": _vmap,
    "grad": _grad,
    "autocast": _autocast,
    "dtensor": _dtensor,
}
