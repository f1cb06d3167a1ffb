"""Explain a call inside of functorch's transforms or autocast: each hop, what runs at the keys of the mode, and why.

The hops come from `hops`, which follows a call through the stack of interpreters by the sets of `transform_rules`.
Here they get words, and the kernel at the key of the mode its kind, by `kernel_rules`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias, assert_never

from dispatchlab.call.autocast_policies import LOWER_PRECISION_OF, CastPolicy, policy_of
from dispatchlab.call.transform_rules import TransformKeys, batch_refused, slices_refused
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import AUTOCAST_KEYS, BACKENDS, DispatchKey
from dispatchlab.model.operator_view import OperatorView, TableRow
from dispatchlab.questions.explain.argument_specs import Described
from dispatchlab.questions.explain.hops import explain
from dispatchlab.questions.explain.kernel_rules import (
    AUTOGRAD,
    BACK,
    BUILTIN,
    BY_VMAP,
    FRONT,
    REGISTERED_BY_VMAP,
    is_builtin_fallback,
    rule_of,
)
from dispatchlab.questions.explain.mode_facts import MODES
from dispatchlab.questions.explain.registered import Registered, implementation_of, unsupported
from dispatchlab.questions.explain.result import (
    CallExplanation,
    Chosen,
    Hop,
    Implementation,
    ImplementedBy,
    ModeExplanation,
    Step,
    ThreadKeys,
)

TransformMode: TypeAlias = Literal["functionalize", "grad", "vmap", "autocast"]
"""The modes that a call goes through by keys of its own: three transforms of functorch, and autocast."""


def explain_transformed(
    mode: TransformMode, operator: Registered, described: Described, thread: ThreadKeys
) -> ModeExplanation:
    """Explain a call in a mode.

    Args:
        mode: the mode.
        operator: the operator, and what Python registered for it.
        described: its arguments, as they are outside of the mode.
        thread: what the thread includes and excludes outside of it.
    """
    facts = MODES[mode]
    operator = replace(operator, view=_with_rules_of_custom_op(operator))
    if mode == "vmap":
        operator = replace(operator, view=_with_vmap_decomposition(operator))
    elif mode == "autocast":
        thread = replace(thread, global_excluded=thread.global_excluded - _autocast_key(described))
    transforms = () if facts.transform is None else (facts.transform,)
    call = explain(operator.view, described, thread, transforms)
    number = _number_of_hop(mode, call)
    if mode == "grad" and number is not None and _is_of_custom_op(operator, call.hops[number]):
        call = replace(call, hops=call.hops[: number + 1], end=f"the call fails: {_REFUSED_BY_GRAD}", known=True)
    runs = _passed(mode, call, described) if number is None else _runs_at(mode, call.hops[number], operator, described)
    steps = []
    for position, hop in enumerate(call.hops):
        does = _runs_here(runs) if position == number else _does(call.hops[:position], hop, transforms)
        steps.append(Step(hop.key, "" if hop.kernel is None else hop.kernel.debug, does))
    notes = (facts.note,) if facts.note else ()
    return ModeExplanation(mode, call, (runs,), (), call.unsure, steps=tuple(steps), notes=notes)


def _autocast_key(described: Described) -> DispatchKeySet:
    """The autocast key of the device that the call runs on: the one that `torch.autocast` of this device lets in."""
    number = described.keys.highest_backend()
    name = "" if number is None else f"Autocast{BACKENDS[number]}"
    return DispatchKeySet.of(*(key for key in AUTOCAST_KEYS if key.name == name))


# Note [Decompositions that vmap registers]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# The first call of torch.func.vmap registers decompositions of Python at FuncTorchBatched, in place of the slow
# fallback. No recording has them, as vmap is not called before it is made, and the dispatcher of a process may or may
# not. A call inside of vmap always does.


def _with_vmap_decomposition(operator: Registered) -> OperatorView:
    """The operator as it is inside of vmap. See Note [Decompositions that vmap registers]."""
    view, key = operator.view, str(DispatchKey.FuncTorchBatched)
    if view.name not in REGISTERED_BY_VMAP or operator.kernel_at(key) is not None:
        return view
    decomposition = TableRow(key, f"{BY_VMAP} [kernel]", BY_VMAP, Provenance.KERNEL, fallthrough=False, source=key)
    return replace(view, table=tuple(decomposition if row.key == key else row for row in view.table))


# Note [Operators of custom_op]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# What `custom_op` and `register_autograd` register at Autograd is a torch.autograd.Function whose forward takes the
# context. torch.func.grad takes none without `setup_context`, and raises when an argument requires grad; where none
# does, the kernel redispatches as PyTorch's do. Where the kernels are recorded with the lines of the package, the
# registry of custom operators shows that they are such ones.


_REFUSED_BY_GRAD = (
    "the autograd kernel of custom_op and register_autograd is a torch.autograd.Function without setup_context, which "
    "torch.func refuses; torch.autograd.grad and backward() take it"
)
_CUSTOM_OP = re.compile(r"(?:^|[ /])torch/(?:_library/custom_ops|library)\.py:\d+")


def _with_rules_of_custom_op(operator: Registered) -> OperatorView:
    """The operator with the keys whose kernels `custom_op` made. See Note [Operators of custom_op]."""
    view = operator.view
    if operator.first("custom_ops", "custom_op") is None:
        return view
    made = [row.key for row in view.table if row.source == "Autograd" or row.key.startswith("Autocast")]
    return replace(view, by_rule=tuple(dict.fromkeys((*view.by_rule, *made, str(DispatchKey.ADInplaceOrView)))))


def _is_of_custom_op(operator: Registered, hop: Hop) -> bool:
    kernel = hop.kernel
    if kernel is None or kernel.source != "Autograd" or operator.namespace == "aten":
        return False
    return str(hop.key) in operator.view.by_rule or _CUSTOM_OP.search(kernel.debug) is not None


# -- what runs


def _number_of_hop(mode: TransformMode, call: CallExplanation) -> int | None:
    """Which hop is the one that the mode is about; None when the call passes the mode by."""
    keys = MODES[mode].keys.bits
    for number, hop in enumerate(call.hops):
        if hop.key == FRONT and hop.kernel is not None and not is_builtin_fallback(hop.key, hop.kernel):
            return number
        if hop.key == BACK:
            return None
        if keys & DispatchKeySet.of(hop.key.functionality).bits:
            return number
    return None


def _passed(mode: TransformMode, call: CallExplanation, described: Described) -> Implementation:
    """The kernel that runs as it does without the mode."""
    last = call.hops[-1]
    if last.key == BACK:
        return unsupported(str(last.key), call.end)
    why = MODES[mode].passed
    if mode == "autocast" and (keys := _autocast_key(described)):
        why = f"it has no policy: no kernel is registered at {keys.highest()}, so nothing is cast"
    return kernel_of(last, why)


def kernel_of(hop: Hop, why: str) -> Implementation:
    """The kernel of a hop as what runs, or why none can."""
    if hop.kernel is None or hop.refusal is not None:
        return unsupported(str(hop.key), f"nothing can run at {hop.key}: {hop.refusal}")
    kind = ImplementedBy.COMPOSITE if hop.kernel.reason is Provenance.MATH else ImplementedBy.KERNEL
    return implementation_of(hop.kernel.debug, kind, str(hop.key), why)


def _runs_at(mode: TransformMode, hop: Hop, operator: Registered, described: Described) -> Implementation:
    """What runs at the key of the mode: what `kernel_rules` says, unless the operator decides."""
    kernel, where, schema = hop.kernel, str(hop.key), operator.schema
    if kernel is None or hop.refusal is not None:
        return kernel_of(hop, "")
    composite = MODES[mode].composite
    if kernel.reason is Provenance.MATH and composite and hop.key != FRONT:
        return kernel_of(hop, composite)
    registered = _registered_for(mode, hop, kernel, operator)
    if registered is not None:
        return registered
    rule = rule_of(hop.key, kernel, operator.view.by_rule)
    kind, why = rule.kind, rule.why
    match kind:
        case ImplementedBy.ALL_TRANSFORMS:
            why = f"it takes the call apart before {mode} is entered, and each operator that it calls enters"
        case ImplementedBy.AUTOGRAD if _is_of_custom_op(operator, hop):
            kind, why = ImplementedBy.UNSUPPORTED, _REFUSED_BY_GRAD
        case ImplementedBy.AUTOCAST if not why:
            policy = policy_of(hop.key, operator.view.name)
            why = f"policy {policy}: {_casts(policy, hop.key)}"
            if policy is CastPolicy.BANNED:
                kind = ImplementedBy.UNSUPPORTED
        case ImplementedBy.SLOW_FALLBACK:
            tensors = any("Tensor" in argument.type and argument.keys for argument in described.arguments)
            if refused := (batch_refused if tensors else slices_refused)(schema):
                kind = ImplementedBy.UNSUPPORTED
                why = f"there is no batching rule, and the slow fallback refuses: {refused}"
        case ImplementedBy.FUNCTIONALIZE_FALLBACK if any(
            part.alias is not None for part in (*schema.arguments, *schema.returns)
        ):
            kind = ImplementedBy.UNSUPPORTED
            why = "it writes an argument or returns a view, which needs a kernel for Functionalize, and it has none"
        case ImplementedBy.FUNCTIONALIZATION if not why:
            why = _functionalizes(operator)
    return implementation_of(kernel.debug, kind, where, why)


def _registered_for(mode: TransformMode, hop: Hop, kernel: Chosen, operator: Registered) -> Implementation | None:
    """What Python registered that runs in the kernel at the key of the mode; None where it registered nothing."""
    where = str(hop.key)
    if mode == "autocast":
        device = f"autocast {where.removeprefix('Autocast').lower()} "
        rule = next((entry for entry in operator.active("custom_ops") if entry.key.startswith(device)), None)
        if rule is not None:
            dtype = rule.key.rpartition(" ")[2].removeprefix("torch.")
            why = f"register_autocast: floating-point tensors are cast to {dtype}"
            return implementation_of(rule, ImplementedBy.LIBRARY_AUTOCAST, where, why)
    elif mode == "vmap" and hop.key not in (FRONT, DispatchKey.FuncTorchVmapMode):
        known = rule_of(hop.key, kernel, operator.view.by_rule)
        library = operator.first("custom_ops", "vmap")
        if known.where != BUILTIN and library is not None:
            why = "register_vmap gave it, and it gets the whole batch"
            return implementation_of(library, ImplementedBy.LIBRARY_VMAP, where, why)
        table = operator.first("decompositions", "post_autograd")
        if known.kind is ImplementedBy.DECOMPOSITION and table is not None:
            return implementation_of(table, known.kind, where, known.why)
    return None


def _functionalizes(operator: Registered) -> str:
    """What PyTorch's kernel for Functionalize does with an operator."""
    aliases = [result.alias for result in operator.schema.returns if result.alias is not None]
    why = "a kernel by hand unwraps the functional tensors, calls the operator and wraps what it gives"
    if any(not alias.is_write for alias in aliases):
        why = "it makes a view: the value gets the same view, and the functional tensor remembers how to make it again"
    elif aliases or operator.writes:
        why = "it writes to its arguments: the operator that gives new tensors is called, and they take these as values"
    return why


def _casts(policy: CastPolicy, key: DispatchKey) -> str:
    lower = LOWER_PRECISION_OF[key]
    which = "floating-point tensors but for float64"
    match policy:
        case CastPolicy.LOWER_PRECISION:
            return f"{which} are cast to {lower}, unless torch.autocast was given another dtype"
        case CastPolicy.FLOAT32:
            return f"{which} are cast to float32"
        case CastPolicy.FLOAT32_RESULT:
            return "no tensor is cast; dtype is float32 where it was not given and the first tensor is floating-point"
        case CastPolicy.FLOAT32_APPENDED:
            return "no tensor is cast; the overload with a dtype is called, with float32"
        case CastPolicy.PROMOTE:
            return f"{which} are cast to the widest of their dtypes, to float32 where one has it, and else to {lower}"
        case CastPolicy.BANNED:
            return "it is not safe in lower precision, and its kernel raises"
        case _:
            assert_never(policy)


# -- the hops, each in a line


def _runs_here(runs: Implementation) -> str:
    ends = runs.kind is ImplementedBy.UNSUPPORTED
    return "here the call ends with an error" if ends else f"here runs the {runs.kind}"


def _does(before: Sequence[Hop], hop: Hop, transforms: Sequence[TransformKeys]) -> str:
    """What a hop does that the mode is not about."""
    key, kernel = hop.key, hop.kernel
    if kernel is None or hop.refusal is not None:
        return f"nothing can run here: {hop.refusal}"
    if key in (FRONT, BACK):
        innermost = transforms[-1 - sum(earlier.key == BACK for earlier in before)].name
        if key == BACK:
            return f"the call leaves {innermost}, and goes on with the tensors outside of it"
        return f"every call inside of a transform comes here first; it enters {innermost}, and only its keys stay"
    if kernel.reason is Provenance.MATH:
        return "it is composite: what it calls dispatches anew"
    if key.functionality in AUTOGRAD:
        where, there = (" outside of the mode", " there") if transforms else ("", "")
        return f"the autograd kernel{where} records the call if an argument requires grad{there}"
    if key.functionality <= DispatchKey.NestedTensor:
        return "it does the work"
    return _STEPS.get(key, f"the kernel for {key} has its turn")


_STEPS = {
    DispatchKey.ADInplaceOrView: "it notes that an argument is written or that the result is a view",
    DispatchKey.BackendSelect: "it chooses the backend by device, dtype and layout",
}
