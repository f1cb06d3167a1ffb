"""Run what cells of readiness claim, on tensors without data and by the dispatcher's words where no kernel can run.

A program: `python -m tests.deep.readiness_without_kernels N MODULE...` imports packages, runs every Nth operator that
`readiness_arguments` has arguments for, and prints what was seen as JSON: operator -> column -> [outcome, how].
"""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

from tests.deep.readiness_arguments import ARGUMENTS

_REFERENCE = "tests.deep.readiness_arguments:ARGUMENTS"
NOT_RUN = "not decided"


def _mapped(function: Any, values: Any) -> Any:
    import torch
    from torch.utils import _pytree as pytree

    return pytree.tree_map(lambda one: function(one) if isinstance(one, torch.Tensor) else one, values)


def _tensors(values: Any) -> list[Any]:
    import torch
    from torch.utils import _pytree as pytree

    return [one for one in pytree.tree_leaves(values) if isinstance(one, torch.Tensor)]


def cuda(op: Any, arguments: Any) -> str:
    """Whether the dispatcher has a kernel for CUDA: its own words, and a call handed to that key."""
    import torch

    if not torch._C._dispatch_has_computed_kernel_for_dispatch_key(op.name(), "CUDA"):
        with torch.no_grad():
            op.redispatch(torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA), *arguments)
        raise AssertionError("the dispatcher has no kernel for CUDA, and yet a call worked")
    return "the dispatcher has a kernel for CUDA"


def vmap(op: Any, arguments: Any) -> str:
    """Whether a batched call on tensors without data is taken apart, as the fallback does, or by a rule."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv
    from torch.utils import _pytree as pytree

    mode: Any = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True)
    given = _mapped(lambda one: mode.from_tensor(torch.stack([one, one])), arguments)
    flat, spec = pytree.tree_flatten(given)
    dims = tuple(0 if isinstance(one, torch.Tensor) else None for one in flat)
    with mode:
        torch.vmap(lambda *rest: op(*pytree.tree_unflatten(rest, spec)), in_dims=dims)(*flat)
    return "a vmap over tensors without data"


def inductor(op: Any, arguments: Any) -> str:
    """Whether Inductor compiles it to code that calls the kernel, which is missing here."""
    import torch

    torch._dynamo.reset()
    compiled = torch.compile(lambda one: op(*one), fullgraph=True, dynamic=False)
    errors = []
    calls: list[Callable[[], Any]] = [lambda: op(*arguments), lambda: compiled(arguments)]
    for call in calls:
        try:
            with torch.no_grad():
                call()
        except Exception as error:  # that is what is compared
            errors.append(f"{type(error).__name__}: {error}"[:200])
    assert len(errors) == 2, "a call that is compiled and one that is not differ"
    assert errors[0] == errors[1], errors[1]
    return "compiled, and what was compiled calls the operator, which raises as it does here"


def autograd(op: Any, arguments: Any) -> str:
    """Whether a backward on tensors without data warns or raises, for an operator whose kernel is missing here."""
    import torch

    given = _mapped(_on_meta, arguments)
    if not any(one.requires_grad for one in _tensors(given)):
        raise Undecided("no input can have a gradient: none is a float32 or float64")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*autograd kernel.*")
        results = [one for one in _tensors(op(*given)) if one.is_floating_point()]
        if not results:
            raise Undecided("no result can have a gradient: none has a floating-point type")
        total: Any = torch.stack([one.float().sum() for one in results]).sum()
        total.backward()
    return "a backward on tensors without data"


def _on_meta(one: Any) -> Any:
    import torch

    made = one.to("meta")
    return made.requires_grad_() if made.dtype in (torch.float32, torch.float64) else made


def autocast(op: Any, arguments: Any) -> str:
    """Whether the kernel for CUDA would be given other types under autocast: on tensors of CUDA without data."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True)
    given = _mapped(lambda one: FakeTensor(mode, (one.half() if _real(one) else one).to("meta"), "cuda"), arguments)
    before = [one.dtype for one in _tensors(given)]
    seen: list[list[Any]] = []
    original = mode.dispatch

    def watched(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is op:
            seen.append([one.dtype for one in _tensors(args)])
        return original(func, types, args, kwargs)

    mode.dispatch = watched  # type: ignore[method-assign]
    # NB: `torch.autocast` switches itself off where there is no device
    was = torch.is_autocast_enabled("cuda")
    torch.set_autocast_enabled("cuda", True)  # noqa: FBT003
    try:
        with mode, contextlib.suppress(Exception):
            op(*given)
    finally:
        torch.set_autocast_enabled("cuda", was)
    if not seen:
        raise Undecided("no call reached the operator on tensors of CUDA without data")
    if all(dtypes == before for dtypes in seen):
        raise AssertionError("under autocast for CUDA its types stay as they are")
    return "under autocast for CUDA its types change, on tensors without data"


def _real(one: Any) -> bool:
    import torch

    return one.dtype in (torch.float32, torch.float64)


class Undecided(Exception):
    """A run that shows nothing of what is asked."""


_MORE = {"cuda": cuda, "vmap": vmap, "inductor": inductor, "autograd": autograd, "autocast": autocast}


def seen_of(name: str) -> dict[str, list[str]]:
    """What all runs of one operator show."""
    import torch

    from dispatchlab.pytorch.introspection.readiness_runs import begin_runs, run_cell
    from dispatchlab.questions.readiness.operator_readiness import RUN_ONLY

    # NB: of the others registrations say nothing that a run could refute, and packages of compiled code take long.
    columns = [column for column in begin_runs(_REFERENCE, name) if column not in RUN_ONLY]
    runs = {column: run_cell(_REFERENCE, name, column) for column in columns}
    found = {column: [str(run.outcome), run.how] for column, run in runs.items()}
    namespace, _, base = name.partition("::")
    op = getattr(getattr(torch.ops, namespace), base).default
    for column, check in _MORE.items():
        if found[column][0] != NOT_RUN or (column != "cuda" and not _tensors(ARGUMENTS[name]())):
            continue
        try:
            found[column] = ["works", check(op, ARGUMENTS[name]())]
        except Undecided as error:
            found[column] = [NOT_RUN, str(error)]
        except Exception as error:  # that is what is asked
            found[column] = ["fails", f"{type(error).__name__}: {error}"[:300]]
    tags = {str(tag).removeprefix("Tag.") for tag in op.tags}
    found["tags"] = ["works" if "pt2_compliant_tag" in tags else "fails", ", ".join(sorted(tags))]
    return found


def main() -> None:
    """Print what is seen of every so many operators: the first argument says of how many one."""
    import torch

    with contextlib.redirect_stdout(sys.stderr):
        for module in sys.argv[2:]:
            import_module(module)
        known = set(torch._C._dispatch_get_all_op_names())
        step = int(sys.argv[1])
        found = {name: seen_of(name) for name in list(ARGUMENTS)[step - 1 :: step] if name in known}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
