"""Compare what `explain` predicts for calls that are traced or made with DTensors with what runs.

`python -m tests.live.traced_modes PATHS COUNT SEED` prints the comparisons along some of `PATHS` as JSON.
"""

from __future__ import annotations

import functools
import json
import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.utils._pytree import tree_leaves

from dispatchlab.model.python_layer import DECOMPOSITIONS, Compiler, Decompositions, Mode
from dispatchlab.questions.explain.explain_operator import explain_operator
from dispatchlab.questions.explain.result import Implementation, ImplementedBy, ModeExplanation
from tests.live.mode_calls import REFUSES, Compared, OperatorCall, Seen, difference, operator_calls, specs_of

Parts: TypeAlias = tuple[Sequence[Seen], ...]
"""What was seen of a call: of the mode itself, and of what runs afterwards."""


class Path(NamedTuple):
    """A way that a call can take, and how to see what runs on it.

    Args:
        run: runs a call and returns what was seen.
        mode: the mode that is explained.
        compiler: the backend of torch.compile.
        decompositions: the table of make_fx.
        symbolic: whether sizes are symbolic.
    """

    run: Callable[[OperatorCall], Parts]
    mode: Mode
    compiler: Compiler = "inductor"
    decompositions: Decompositions = "none"
    symbolic: bool = False

    def chains(self, under: ModeExplanation) -> tuple[Sequence[Implementation], ...]:
        """What is predicted for each part."""
        first = under.symbolic or under.chain if self.symbolic else under.chain
        later = under.later.chain if under.later is not None and self.mode != "compile" else ()
        # What a composite kernel or an error leaves for afterwards is not the operator's own.
        return first, () if self.mode == "dtensor" and first[-1].kind in _ENDS else later


_ENDS = (ImplementedBy.COMPOSITE, ImplementedBy.UNSUPPORTED)


_BOTH = {ImplementedBy.COMPOSITE, ImplementedBy.DECOMPOSITION}


def _make_fx(call: OperatorCall, table: Decompositions, *, symbolic: bool) -> Parts:
    from tests.live.traced_calls import seen_under_make_fx

    return seen_under_make_fx(call, table, symbolic=symbolic), ()


def _aot_eager(call: OperatorCall) -> Parts:
    from tests.live.traced_calls import seen_under_aot_eager

    return seen_under_aot_eager(call), ()


def _inductor(call: OperatorCall, *, code: bool) -> Parts:
    from tests.live.compile_calls import seen_under_inductor

    return seen_under_inductor(call, code=code), ()


def _export(call: OperatorCall, *, strict: bool) -> Parts:
    from tests.live.traced_calls import seen_under_export

    return seen_under_export(call, strict=strict)


def _look_up_all() -> None:
    """Look up every overload, as the recording of a registry does.

    DTensor has sharding rules for those pointwise operators that were looked up before it is imported.
    """
    from dispatchlab.pytorch.bridge.registry_tables import overloads

    assert len(list(overloads())) > 2000


def _dtensor(call: OperatorCall, placement: str = "Replicate()") -> Parts:
    from tests.live.dtensor_calls import PLACEMENTS, seen_with_dtensors

    return seen_with_dtensors(call, PLACEMENTS[placement])


PATHS: dict[str, Path] = {
    **{
        f"make_fx {table}": Path(functools.partial(_make_fx, table=table, symbolic=False), "make_fx", "inductor", table)
        for table in DECOMPOSITIONS
    },
    **{
        f"symbolic make_fx {table}": Path(
            functools.partial(_make_fx, table=table, symbolic=True), "make_fx", "inductor", table, symbolic=True
        )
        for table in DECOMPOSITIONS
    },
    "aot_eager": Path(_aot_eager, "compile", "aot_eager"),
    "inductor": Path(functools.partial(_inductor, code=False), "compile"),
    "inductor code": Path(functools.partial(_inductor, code=True), "compile"),
    "export": Path(functools.partial(_export, strict=False), "export"),
    "strict export": Path(functools.partial(_export, strict=True), "export"),
    "dtensor": Path(_dtensor, "dtensor"),
    **{
        f"dtensor {placement}": Path(functools.partial(_dtensor, placement=placement), "dtensor")
        for placement in ("Shard(0)", "Shard(1)", "Partial()")
    },
}
"""The ways that a call can take."""


def compared_along(path: str, calls: Sequence[OperatorCall], *, source: str = "", predict: str = "") -> Compared:
    """Compare predictions off a record with what runs.

    Args:
        path: one of `PATHS`.
        calls: the calls.
        source: the source of the predictions; the bundled registry of the installed PyTorch when left out.
        predict: the path to predict for, when it is another.
    """
    taken, asked = PATHS[path], PATHS[predict or path]
    agree = 0
    differences, refused, unseen = [], [], []
    logging.disable(logging.CRITICAL)
    try:
        for call in calls:
            name = call.operator.name()
            under = explain_operator(
                name,
                specs_of(call),
                source=source or None,
                mode=asked.mode,
                compiler=asked.compiler,
                decompositions=asked.decompositions,
            ).under
            assert under is not None
            try:
                seen = taken.run(call)
            except Exception as error:  # PyTorch refuses with errors of any type
                if not _is_about(call, error):
                    refused.append(f"{name}: {type(error).__name__}: {next(iter(str(error).splitlines()), '')}"[:300])
                    continue
                seen = ((Seen(ImplementedBy.UNSUPPORTED, ""),),)
            if not seen[0]:
                unseen.append(name)
                continue
            # Inductor's own tracer sees less than the others; see `difference`.
            differs = difference if taken.compiler == "inductor" and taken.mode == "compile" else _difference
            found = [
                differs(call, chain, part) for chain, part in zip(asked.chains(under), seen, strict=False) if chain
            ]
            if any(found):
                differences.append("; ".join(filter(None, found)))
            else:
                agree += 1
    finally:
        logging.disable(logging.NOTSET)
    return Compared(agree, tuple(differences), tuple(refused), tuple(unseen))


def _is_about(call: OperatorCall, error: Exception) -> bool:
    """Whether an error refuses the operator itself, and not one that it calls or these arguments."""
    for one in (error, error.__cause__, error.__context__):
        if isinstance(one, REFUSES):
            return one.func is call.operator
    text = str(error)
    if "does not support sparse" in text:
        return any(isinstance(one, torch.Tensor) and one.layout != torch.strided for one in tree_leaves(call[1:]))
    refused = f"Operator `{call.operator}`" in text
    no_tensor = "torch.* op returned non-Tensor" in text and f"target: {call.operator}\n" in f"{text}\n"
    return type(error).__name__ == "Unsupported" and (refused or no_tensor)


def _difference(call: OperatorCall, chain: Sequence[Implementation], seen: Sequence[Seen]) -> str:
    name = call.operator.name()
    shown = ", ".join(f"{one.kind} {one.function}" for one in chain)
    if call.operator is torch.ops.aten.copy_.default and chain[0].kind is ImplementedBy.FUNCTIONALIZATION:
        return ""  # functionalization ends a graph with calls of it
    if not seen:
        return f"{name}: nothing instead of {shown}"
    for at, one in enumerate(seen):
        if at >= len(chain):
            return f"{name}: {one} after the end of {shown}"
        expected = chain[at]
        same_function = not (one.function and expected.site) or one.function == expected.function
        if one.kind is ImplementedBy.GRAPH_NODE:
            same_function = one.function == expected.function
        if one.kind is ImplementedBy.KERNEL and expected.kind is ImplementedBy.COMPOSITE:
            continue  # a composite kernel that gives its argument back calls nothing, and so do contiguous() and conj()
        if one.function and one.function == expected.function and {one.kind, expected.kind} == _BOTH:
            continue  # a function that is in the table and the Python kernel for CompositeImplicitAutograd as well
        if one.kind is not expected.kind or not same_function:
            return f"{name}: {one} instead of {shown}"
    if seen[-1].gave_up and len(seen) < len(chain):
        return f"{name}: nothing after {seen[-1]}"
    return ""


def plain_calls() -> list[OperatorCall]:
    """Calls that give a number or a bool, composite or not; and of which some depend on data."""
    aten, whole, one = torch.ops.aten, torch.randn(3, 4), torch.randn(())
    of_one = ("is_complex", "is_floating_point", "numel", "dim", "storage_offset", "is_contiguous", "dense_dim")
    found = [OperatorCall(getattr(aten, name).default, (whole,), {}) for name in (*of_one, "is_pinned", "neg")]
    found += [OperatorCall(getattr(aten, name).default, (whole, whole), {}) for name in ("is_same_size", "equal")]
    found += [OperatorCall(getattr(aten, name).default, (one,), {}) for name in ("item", "_local_scalar_dense")]
    found.append(OperatorCall(aten.result_type.Tensor, (whole, one), {}))
    found.append(OperatorCall(aten.can_cast.default, (torch.int64, torch.float32), {}))
    return [*found, OperatorCall(aten.size.int, (whole, 0), {})]


def main(paths: str, count: str, seed: str, predict: str = "") -> None:
    """Print the comparisons along paths, which commas separate; a count of 0 is for `plain_calls`."""
    _look_up_all()  # before DTensor is imported
    warnings.simplefilter("ignore")
    calls = operator_calls(int(count), int(seed)) if int(count) else plain_calls()
    found: dict[str, Any] = {path: compared_along(path, calls, predict=predict)._asdict() for path in paths.split(",")}
    sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
