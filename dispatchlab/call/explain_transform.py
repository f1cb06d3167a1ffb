"""Explain a call inside of functorch's transforms or autocast: each hop, what runs at the keys of the mode, and why.

The hops come from `explain`, which follows a call through the stack of interpreters by the sets of `transform_rules`.
Here they get words, and the kernel at the key of the mode its kind, by where it is registered.
Source: aten/src/ATen/functorch (BatchRules*.cpp, PyTorchOperatorHacks.cpp, DynamicLayer.cpp), torchgen
(gen_functionalization_type.py), torch/_functorch/predispatch.py (`lazy_load_decompositions`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, assert_never

from dispatchlab.call.autocast_policies import AUTOCAST_KEYS, LOWER_PRECISION_OF, CastPolicy, policy_of
from dispatchlab.call.explain import CallExplanation, Chosen, Described, Hop, ThreadKeys, explain, is_builtin_fallback
from dispatchlab.call.implementation import Implementation, ImplementedBy, Registered, implementation_of
from dispatchlab.call.tensor_keys import AUTOGRAD_KEYS
from dispatchlab.call.transform_rules import FUNCTIONALIZE, GRAD, VMAP, TransformKeys, batch_refused, slices_refused
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.key_set import DispatchKeySet
from dispatchlab.model.keys import BACKENDS, DispatchKey
from dispatchlab.model.operator_view import OperatorView, TableRow
from dispatchlab.model.schema import FunctionSchema

TransformMode: TypeAlias = Literal["functionalize", "grad", "vmap", "autocast"]
"""The modes that a call goes through by keys of its own: three transforms of functorch, and autocast."""


@dataclass(frozen=True, slots=True)
class Step:
    """One hop of a call in a mode, for a reader who has never seen the stack of interpreters.

    Args:
        key: where the call goes.
        kernel: where the kernel there was registered; empty when there is none.
        why: what it does there.
    """

    key: DispatchKey
    kernel: str
    why: str


@dataclass(frozen=True, slots=True)
class Transformed:
    """A call in a mode.

    Args:
        call: its hops.
        runs: what runs at the key of the mode, or in spite of the mode.
        steps: each hop in a line.
        notes: what holds for every call in the mode.
    """

    call: CallExplanation
    runs: Implementation
    steps: tuple[Step, ...]
    notes: tuple[str, ...]


def explain_transformed(
    mode: TransformMode, found: Registered, described: Described, thread: ThreadKeys
) -> Transformed:
    """Explain a call in a mode.

    Args:
        mode: the mode.
        found: the operator, and what Python registered for it.
        described: its arguments, as they are outside of the mode.
        thread: what the thread includes and excludes outside of it.
    """
    found = replace(found, view=_with_rules_of_custom_op(found))
    transforms = _TRANSFORMS[mode]
    match mode:
        case "vmap":
            found = replace(found, view=_with_vmap_decomposition(found))
        case "autocast":
            thread = replace(thread, global_excluded=thread.global_excluded - _autocast_key(described))
        case "functionalize" | "grad":
            pass
        case _:
            assert_never(mode)
    call = explain(found.view, described, thread, transforms)
    at = _decides(mode, call)
    if mode == "grad" and at is not None and _is_of_custom_op(found, call.hops[at]):
        call = replace(call, hops=call.hops[: at + 1], end=f"the call fails: {_REFUSED_BY_GRAD}", known=True)
    runs = _passed(mode, call, described) if at is None else _runs_at(mode, call.hops[at], found, described)
    steps = tuple(_step(call, number, runs if number == at else None, transforms) for number in range(len(call.hops)))
    return Transformed(call, runs, steps, _NOTES[mode])


_TRANSFORMS: dict[TransformMode, tuple[TransformKeys, ...]] = {
    "functionalize": (FUNCTIONALIZE,),
    "grad": (GRAD,),
    "vmap": (VMAP,),
    "autocast": (),
}

_NOTES: dict[TransformMode, tuple[str, ...]] = {
    "functionalize": (
        "remove='mutations', the default, leaves views as they are; 'mutations_and_views' makes copies of them",
    ),
    "grad": (
        "vjp, jacrev and grad_and_value take the same hops; so do jvp and jacfwd, where the autograd kernel computes "
        "the tangent instead of recording; for a second order, with a grad inside of another, the call goes from "
        f"{DispatchKey.FuncTorchDynamicLayerBackMode} to {DispatchKey.FuncTorchDynamicLayerFrontMode} again and "
        "through the same keys for the outer one",
    ),
    "vmap": ("every tensor is taken to be batched, by in_dims; a call with no batched tensor passes vmap by",),
    "autocast": (),
}

_FRONT, _BACK = DispatchKey.FuncTorchDynamicLayerFrontMode, DispatchKey.FuncTorchDynamicLayerBackMode


def _autocast_key(described: Described) -> DispatchKeySet:
    """The autocast key of the device that the call runs on: the one that `torch.autocast` of this device lets in."""
    keys = DispatchKeySet()
    for argument in described.arguments:
        keys |= argument.keys
    number = keys.highest_backend()
    name = "" if number is None else f"Autocast{BACKENDS[number]}"
    return DispatchKeySet.of(*(key for key in AUTOCAST_KEYS if key.name == name))


# Note [Decompositions that vmap registers]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# The first call of torch.func.vmap registers decompositions of Python at FuncTorchBatched, in place of the slow
# fallback. No recording has them, as nobody calls vmap before it is made, and the dispatcher of a process may or may
# not. A call inside of vmap always does.


REGISTERED_BY_VMAP = tuple(
    f"aten::{name}"
    for name in (
        *("mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward", "nll_loss_forward"),
        *("nll_loss2d_forward", "nll_loss_backward", "nll_loss2d_backward", "addr"),
    )
)
BY_VMAP = "registered by torch.func.vmap when it is first called"


def _with_vmap_decomposition(found: Registered) -> OperatorView:
    """The operator as it is inside of vmap. See Note [Decompositions that vmap registers]."""
    view = found.view
    key = DispatchKey.FuncTorchBatched
    if view.name not in REGISTERED_BY_VMAP or found.kernel_at(str(key)) is not None:
        return view
    row = TableRow(str(key), f"{BY_VMAP} [kernel]", BY_VMAP, Provenance.KERNEL, fallthrough=False, source=str(key))
    return replace(view, table=tuple(row if one.key == row.key else one for one in view.table))


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


def _with_rules_of_custom_op(found: Registered) -> OperatorView:
    """The operator with the keys whose kernels `custom_op` made. See Note [Operators of custom_op]."""
    if found.one("custom_ops", "custom_op") is None:
        return found.view
    ruled = [row.key for row in found.view.table if row.source == "Autograd" or row.key.startswith("Autocast")]
    return replace(found.view, by_rule=tuple(dict.fromkeys((*found.view.by_rule, *ruled, str(_NOTES_WRITES)))))


_NOTES_WRITES = DispatchKey.ADInplaceOrView


def _is_of_custom_op(found: Registered, hop: Hop) -> bool:
    kernel = hop.kernel
    if kernel is None or kernel.source != "Autograd" or found.namespace == "aten":
        return False
    return str(hop.key) in found.view.by_rule or _CUSTOM_OP.search(kernel.debug) is not None


# -- what runs


_KEYS_OF: dict[TransformMode, DispatchKeySet] = {
    "functionalize": FUNCTIONALIZE.entered,
    "grad": AUTOGRAD_KEYS,
    "vmap": VMAP.entered | VMAP.also_included,
    "autocast": DispatchKeySet.of(*AUTOCAST_KEYS),
}


def _decides(mode: TransformMode, call: CallExplanation) -> int | None:
    """Which hop is the one that the mode is about; None when the call passes the mode by."""
    for number, hop in enumerate(call.hops):
        if hop.key == _FRONT and hop.kernel is not None and not is_builtin_fallback(hop.key, hop.kernel):
            return number
        if hop.key == _BACK:
            return None
        if _KEYS_OF[mode].bits & DispatchKeySet.of(hop.key.functionality).bits:
            return number
    return None


def _passed(mode: TransformMode, call: CallExplanation, described: Described) -> Implementation:
    """The kernel that runs as it does without the mode."""
    last = call.hops[-1]
    if last.key == _BACK:
        return Implementation(ImplementedBy.UNSUPPORTED, str(last.key), "", "", call.end)
    match mode:
        case "vmap":
            why = "no argument is batched, so the call passes vmap by"
        case "grad":
            why = "the operator has no autograd kernel, so nothing is recorded"
        case "functionalize":
            why = "the key Functionalize falls through, so the call passes functionalize by"
        case "autocast":
            key = next(iter(_autocast_key(described)), None)
            why = "there is no autocast for the device of the call, so nothing is cast"
            if key is not None:
                why = f"it has no policy: no kernel is registered at {key}, so nothing is cast"
        case _:
            assert_never(mode)
    return _plain(last, why)


def _plain(hop: Hop, why: str) -> Implementation:
    kernel = hop.kernel
    if kernel is None or hop.refusal is not None:
        refused = f"nothing can run at {hop.key}: {hop.refusal}"
        return Implementation(ImplementedBy.UNSUPPORTED, str(hop.key), "", "", refused)
    kind = ImplementedBy.COMPOSITE if kernel.reason is Provenance.MATH else ImplementedBy.KERNEL
    return Implementation(kind, str(hop.key), kernel.debug, "", why)


def _runs_at(mode: TransformMode, hop: Hop, found: Registered, described: Described) -> Implementation:
    kernel = hop.kernel
    if kernel is None or hop.refusal is not None:
        return _plain(hop, "")
    if hop.key == _FRONT:
        why = f"it takes the call apart before {mode} is entered, and each operator that it calls enters"
        return Implementation(ImplementedBy.ALL_TRANSFORMS, str(hop.key), kernel.debug, "", why)
    match mode:
        case "vmap":
            return _vmap(hop, kernel, found, described)
        case "grad":
            return _grad(hop, kernel, found)
        case "functionalize":
            return _functionalize(hop, kernel, found)
        case "autocast":
            return _autocast(hop, kernel, found)
        case _:
            assert_never(mode)


_DEFAULT_RANDOMNESS = (
    "vmap refuses it with randomness='error', the default; with 'same' or 'different' it draws once for the whole "
    "batch or for each element"
)


def _vmap(hop: Hop, kernel: Chosen, found: Registered, described: Described) -> Implementation:
    file = _file(kernel.debug)

    def by(kind: ImplementedBy, why: str) -> Implementation:
        return Implementation(kind, str(hop.key), kernel.debug, "", why)

    if hop.key == DispatchKey.FuncTorchVmapMode:
        if file == "VmapModeRegistrations.cpp":
            return by(ImplementedBy.UNSUPPORTED, "vmap has no rule for this random operator, and its kernel raises")
        if file == "BatchRulesDecompositions.cpp":
            why = "it draws random numbers, and is taken apart before its arguments are looked at; what it draws with: "
            return by(ImplementedBy.BATCHED_DECOMPOSITION, why + _DEFAULT_RANDOMNESS)
        if file.startswith("BatchRules"):
            return by(ImplementedBy.RANDOM_RULE, f"it draws random numbers: {_DEFAULT_RANDOMNESS}")
        return by(ImplementedBy.KERNEL, "its key is in every call inside of vmap, whatever is batched")
    if is_builtin_fallback(hop.key, kernel):
        tensors = any("Tensor" in one.type and one.keys for one in described.arguments)
        if refused := (batch_refused if tensors else slices_refused)(found.schema):
            return by(ImplementedBy.UNSUPPORTED, f"there is no batching rule, and the slow fallback refuses: {refused}")
        why = "there is no batching rule: it is called once for each element of the batch, with a warning"
        return by(ImplementedBy.SLOW_FALLBACK, why)
    rule = found.one("custom_ops", "vmap")
    if rule is not None:
        return implementation_of(
            rule, ImplementedBy.LIBRARY_VMAP, str(hop.key), "register_vmap gave it, and it gets the whole batch"
        )
    if kernel.debug == BY_VMAP or file in ("predispatch.py", "vmap.py"):
        why = "vmap registers decompositions of Python for a few operators when it is first called"
        table = found.one("decompositions", "post_autograd")
        if table is not None:
            return implementation_of(table, ImplementedBy.DECOMPOSITION, str(hop.key), why)
        return by(ImplementedBy.DECOMPOSITION, why)
    if file == "BatchRulesDynamic.cpp":
        return by(ImplementedBy.UNSUPPORTED, "what it gives depends on the data of each element: its kernel raises")
    if kernel.reason is Provenance.BATCHED or file == "BatchRulesDecompositions.cpp":
        why = "it is composite, and registered to be taken apart: each operator that it calls has its own rule"
        return by(ImplementedBy.BATCHED_DECOMPOSITION, why)
    return by(ImplementedBy.BATCHING_RULE, "a batching rule does the whole batch at once")


def _grad(hop: Hop, kernel: Chosen, found: Registered) -> Implementation:
    def by(kind: ImplementedBy, why: str) -> Implementation:
        return Implementation(kind, str(hop.key), kernel.debug, "", why)

    if kernel.reason is Provenance.MATH:
        return by(ImplementedBy.COMPOSITE, "it is composite: grad sees the operators that it calls, and records those")
    if is_builtin_fallback(hop.key, kernel):
        return by(ImplementedBy.AUTOGRAD_FALLBACK, "it has no autograd kernel: a gradient stops here, with a warning")
    if _is_of_custom_op(found, hop):
        return by(ImplementedBy.UNSUPPORTED, _REFUSED_BY_GRAD)
    if not _file(kernel.debug).startswith("VariableType") and str(hop.key) not in found.view.by_rule:
        why = "whoever registered it decides what is recorded; torch.func refuses a torch.autograd.Function that C++ "
        return by(ImplementedBy.AUTOGRAD, f"{why}defines or that has no setup_context")
    return by(ImplementedBy.AUTOGRAD, "the autograd kernel records the call on the graph of this grad")


def _functionalize(hop: Hop, kernel: Chosen, found: Registered) -> Implementation:
    def by(kind: ImplementedBy, why: str) -> Implementation:
        return Implementation(kind, str(hop.key), kernel.debug, "", why)

    if kernel.reason is Provenance.MATH:
        why = "it is composite: functionalize sees the operators that it calls"
        return by(ImplementedBy.COMPOSITE, why)
    aliases = [one.alias for one in (*found.schema.arguments, *found.schema.returns) if one.alias is not None]
    if is_builtin_fallback(hop.key, kernel):
        if aliases:
            why = "it writes an argument or returns a view, which needs a kernel for Functionalize, and it has none"
            return by(ImplementedBy.UNSUPPORTED, why)
        why = "it writes nothing and makes no view: it is called with the values of the functional tensors"
        return by(ImplementedBy.FUNCTIONALIZE_FALLBACK, why)
    if _file(kernel.debug).partition("_")[0] not in ("RegisterFunctionalization", "FunctionalizeFallbackKernel.cpp"):
        why = "whoever registered it takes care of the functional tensors"
    elif _is_view(found.schema):
        why = "it makes a view: the value gets the same view, and the functional tensor remembers how to make it again"
    elif any(one.is_write for one in aliases):
        why = "it writes to its arguments: the operator that gives new tensors is called, and they take these as values"
    else:
        why = "a kernel by hand unwraps the functional tensors, calls the operator and wraps what it gives"
    return by(ImplementedBy.FUNCTIONALIZATION, why)


def _is_view(schema: FunctionSchema) -> bool:
    return any(one.alias is not None and not one.alias.is_write for one in schema.returns)


def _autocast(hop: Hop, kernel: Chosen, found: Registered) -> Implementation:
    device = str(hop.key).removeprefix("Autocast")
    for rule in found.all("custom_ops"):
        if rule.key.startswith(f"autocast {device.lower()} "):
            dtype = rule.key.rpartition(" ")[2].removeprefix("torch.")
            why = f"register_autocast: floating-point tensors are cast to {dtype}"
            return implementation_of(rule, ImplementedBy.LIBRARY_AUTOCAST, str(hop.key), why)
    if _file(kernel.debug) not in ("autocast_mode.cpp", "AutocastRNN.cpp"):
        return Implementation(
            ImplementedBy.AUTOCAST, str(hop.key), kernel.debug, "", "whoever registered it casts what it wants"
        )
    policy = policy_of(hop.key, found.view.name)
    kind = ImplementedBy.UNSUPPORTED if policy is CastPolicy.BANNED else ImplementedBy.AUTOCAST
    return Implementation(kind, str(hop.key), kernel.debug, "", f"policy {policy}: {_casts(policy, hop.key)}")


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


_FILE = re.compile(r"([^/\s]+):\d+")


def _file(debug: str) -> str:
    found = _FILE.search(debug)
    return "" if found is None else found[1]


# -- the hops, each in a line


def _step(call: CallExplanation, number: int, runs: Implementation | None, transforms: Sequence[TransformKeys]) -> Step:
    hop = call.hops[number]
    kernel = "" if hop.kernel is None else hop.kernel.debug
    if runs is not None:
        ends = runs.kind is ImplementedBy.UNSUPPORTED
        return Step(hop.key, kernel, "here the call ends with an error" if ends else f"here runs the {runs.kind}")
    return Step(hop.key, kernel, _does(call.hops, number, transforms))


def _does(hops: Sequence[Hop], number: int, transforms: Sequence[TransformKeys]) -> str:
    hop = hops[number]
    key, kernel = hop.key, hop.kernel
    names = [one.name for one in transforms]
    if kernel is None or hop.refusal is not None:
        return f"nothing can run here: {hop.refusal}"
    if key == _FRONT:
        left = sum(one.key == _BACK for one in hops[:number])
        return (
            f"every call inside of a transform comes here first; it enters {names[-1 - left]}, and only its keys stay"
        )
    if key == _BACK:
        left = sum(one.key == _BACK for one in hops[:number])
        return f"the call leaves {names[-1 - left]}, and goes on with the tensors outside of it"
    if kernel.reason is Provenance.MATH:
        return "it is composite: what it calls dispatches anew"
    if AUTOGRAD_KEYS.bits & DispatchKeySet.of(key.functionality).bits:
        if names:
            return "the autograd kernel outside of the mode records the call if an argument requires grad there"
        return "the autograd kernel records the call if an argument requires grad"
    if key == DispatchKey.ADInplaceOrView:
        return "it notes that an argument is written or that the result is a view"
    if key == DispatchKey.BackendSelect:
        return "it chooses the backend by device, dtype and layout"
    if key.functionality <= DispatchKey.NestedTensor:
        return "it does the work"
    return f"the kernel for {key} has its turn"
