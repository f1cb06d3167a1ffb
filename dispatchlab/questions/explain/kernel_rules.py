"""The actions of the kernels at a key, by the file of their registration: one table for every question about a hop.

Source: tools/autograd/gen_variable_type.py, tools/autograd/gen_inplace_or_view_type.py, torchgen/gen.py
(BackendSelect), torchgen/gen_functionalization_type.py, aten/src/ATen/autocast_mode.cpp, aten/src/ATen/functorch
(BatchRules*.cpp, PyTorchOperatorHacks.cpp, DynamicLayer.cpp), torch/_functorch/predispatch.py
(`lazy_load_decompositions`).
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from enum import auto

from dispatchlab._short_repr import CodeEnum
from dispatchlab.engine.semantics import is_builtin
from dispatchlab.model.dump_format import Provenance
from dispatchlab.model.keys import AUTOCAST_KEYS, DispatchKey
from dispatchlab.questions.explain.result import Chosen

# Note [The hop after a kernel]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# Nothing in a registry says what a kernel does, but PyTorch's own kernels are generated and follow rules by key. An
# autograd kernel redispatches with `ks & after_autograd_keyset`, which is everything below AutogradOther, from whatever
# autograd key it was reached by; one for ADInplaceOrView with everything below that, and one that traces with
# everything below Tracer. `custom_op` makes kernels of the first two kinds. BackendSelect computes a new set from
# dtype, layout and device: the thread's sets and the keys of tensors enter into it only when there are tensors. The
# fallbacks for Conjugate, Negative, ZeroTensor, Tracer and PythonTLSSnapshot redispatch to everything below themselves;
# that of Functionalize calls anew. A composite kernel does not redispatch at all: it calls other operators, and a
# Python key hands over to code that is not known.
#
# Where a kernel comes from shows in its debug text: the file in the source tree of PyTorch, whatever the machine that
# built it, or the module of `torch` that registered it. The layers of the lab follow the same rules. Every other
# kernel above the backends may do anything: an autograd kernel of a package often calls another operator, and never
# the kernel that the package registered for the CPU. So the explanation ends there, and says that it does.


class Does(CodeEnum):
    """The action of a kernel in a call."""

    UNKNOWN = auto()
    WORKS = auto()
    REDISPATCHES = auto()
    RECORDS = auto()
    SELECTS_BACKEND = auto()
    CALLS_OPERATORS = auto()
    CASTS = auto()
    FUNCTIONALIZES = auto()
    SLICES = auto()
    ASKS_SUBCLASS = auto()


BUILTIN = "builtin fallback"
"""Where the backend fallback that PyTorch has at a key is registered, in whatever file of its version."""


@dataclass(frozen=True, slots=True)
class KernelRule:
    """The action of the kernels at a key that are registered in one file.

    Args:
        where: `BUILTIN`, or a pattern for the text of such kernels in tables; empty for all other kernels at the key.
        does: their action.
        outside: for a builtin fallback that needs a mode, its action without the mode, and when it fails.
        operators: the operators of the rule; empty for all.
    """

    where: str
    does: Does
    outside: str = ""
    operators: tuple[str, ...] = ()


def _files(*files: str) -> str:
    """Return a pattern for registrations in these files; their folders are also patterns."""
    return rf"(?:^|[ /])(?:{'|'.join(files)}):\d+"


def _functorch(file: str) -> str:
    return _files(rf"aten/src/ATen/functorch/{file}\.cpp")


_MANUAL = r"torch/csrc/autograd/VariableTypeManual\.cpp"
_CUSTOM_OPS = r"torch/_library/custom_ops\.py"

AUTOGRAD = (DispatchKey.AutogradFunctionality, DispatchKey.AutogradOther, DispatchKey.AutogradNestedTensor)
FRONT, BACK = DispatchKey.FuncTorchDynamicLayerFrontMode, DispatchKey.FuncTorchDynamicLayerBackMode
BATCHED = (DispatchKey.FuncTorchBatched, DispatchKey.BatchedNestedTensor)

KERNEL_RULES: Mapping[tuple[DispatchKey, ...], tuple[KernelRule, ...]] = {
    AUTOGRAD: (
        KernelRule(BUILTIN, Does.RECORDS),
        KernelRule(_files(_MANUAL), Does.WORKS, operators=("aten::detach_",)),
        KernelRule(
            _files(r"torch/csrc/autograd/generated/VariableType(?:_\d+|Everything)?\.cpp", _MANUAL, _CUSTOM_OPS),
            Does.RECORDS,
        ),
    ),
    (DispatchKey.ADInplaceOrView,): (
        KernelRule(_files(_MANUAL), Does.WORKS, operators=("aten::_fw_primal", "aten::_make_dual")),
        KernelRule(
            _files(r"torch/csrc/autograd/generated/ADInplaceOrViewType(?:_\d+|Everything)?\.cpp", _MANUAL, _CUSTOM_OPS),
            Does.REDISPATCHES,
        ),
    ),
    (DispatchKey.Tracer,): (
        KernelRule(_files(r"torch/csrc/autograd/generated/TraceType(?:_\d+|Everything)?\.cpp"), Does.REDISPATCHES),
    ),
    (DispatchKey.BackendSelect,): (
        KernelRule(_files(r"aten/src/ATen/RegisterBackendSelect\.cpp"), Does.SELECTS_BACKEND),
    ),
    (DispatchKey.Python,): (KernelRule(BUILTIN, Does.ASKS_SUBCLASS),),
    (DispatchKey.PythonDispatcher,): (
        KernelRule(
            BUILTIN,
            Does.CALLS_OPERATORS,
            "calls the Python dispatcher of the thread, and fails where there is none",
        ),
    ),
    AUTOCAST_KEYS: (
        KernelRule(_files(_CUSTOM_OPS, r"torch/library\.py", r"aten/src/ATen/autocast_mode\.cpp"), Does.CASTS),
    ),
    (FRONT,): (
        KernelRule(
            BUILTIN,
            Does.CALLS_OPERATORS,
            "enters the transform of functorch, and fails where none is active",
        ),
        KernelRule(_functorch(r"\w+"), Does.CALLS_OPERATORS),
    ),
    (BACK,): (
        KernelRule(
            BUILTIN,
            Does.CALLS_OPERATORS,
            "leaves the transform of functorch, and fails where none is active",
        ),
        KernelRule(_functorch("DynamicLayer"), Does.CALLS_OPERATORS),
    ),
    (DispatchKey.FuncTorchGradWrapper,): (
        KernelRule(
            BUILTIN,
            Does.CALLS_OPERATORS,
            "unwraps tensors of a functorch transform that is over, and fails without them",
        ),
    ),
    (DispatchKey.FuncTorchVmapMode,): (
        KernelRule(_functorch(r"(?:BatchRules\w*|VmapModeRegistrations)"), Does.CALLS_OPERATORS),
    ),
    BATCHED: (
        KernelRule(BUILTIN, Does.SLICES, "calls the operator for each element of a batch, and fails outside of vmap"),
        KernelRule(_functorch("BatchRules(?:Decompositions|Dynamic)"), Does.CALLS_OPERATORS),
        KernelRule(rf"\[{Provenance.BATCHED}\]$", Does.UNKNOWN),
        KernelRule(_functorch(r"\w+"), Does.CALLS_OPERATORS),
    ),
    (DispatchKey.Batched,): (
        KernelRule(
            BUILTIN,
            Does.CALLS_OPERATORS,
            "calls the operator for each element of a batch, and fails where no argument is batched",
        ),
        KernelRule(_files(r"aten/src/ATen/LegacyBatchingRegistrations\.cpp"), Does.CALLS_OPERATORS),
    ),
    (DispatchKey.Functionalize,): (KernelRule(BUILTIN, Does.FUNCTIONALIZES),),
}
"""What is known of the kernels above the backends; of those at one key the first rule that fits holds.

AutogradFunctionality stands for the autograd keys of all backends. What the lab or `custom_op` registers does as the
first kernels do that PyTorch registers at the key itself.
"""

_FOLLOWED = (Does.RECORDS, Does.REDISPATCHES, Does.SELECTS_BACKEND, Does.CASTS)
_RULES_OF = {key: rules for keys, rules in KERNEL_RULES.items() for key in keys}
_UNKNOWN, _REDISPATCHES = KernelRule("", Does.UNKNOWN), KernelRule(BUILTIN, Does.REDISPATCHES)


def rule_of(key: DispatchKey, kernel: Chosen, by_rule: Container[str] = (), operator: str = "") -> KernelRule:
    """Return the rule of a kernel.

    Args:
        key: the key of the kernel.
        kernel: the kernel.
        by_rule: the keys whose kernels are known to act as PyTorch's kernels at these keys.
        operator: the operator; if unknown, rules for single operators are ignored.
    """
    rules = _RULES_OF.get(key.functionality, ())
    if is_builtin_fallback(key, kernel):
        return next((rule for rule in rules if rule.where == BUILTIN), _REDISPATCHES)
    follows, text = str(key) in by_rule, f"{kernel.debug} [{kernel.reason}]"
    for rule in rules:
        if rule.where == BUILTIN or (rule.operators and operator not in rule.operators):
            continue
        if (follows and rule.does in _FOLLOWED) or re.search(rule.where, text):
            return rule
    return _UNKNOWN


def is_builtin_fallback(key: DispatchKey, kernel: Chosen) -> bool:
    """Return whether a kernel is PyTorch's own backend fallback at a key."""
    return kernel.reason == Provenance.FALLBACK and is_builtin(kernel.debug)
