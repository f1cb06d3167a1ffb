"""The actions of the kernels at a key, by the file of their registration: one table for every question about a hop.

Source: tools/autograd/gen_variable_type.py, tools/autograd/gen_inplace_or_view_type.py, torchgen/gen.py
(BackendSelect), torchgen/gen_functionalization_type.py, aten/src/ATen/autocast_mode.cpp, aten/src/ATen/functorch
(BatchRules*.cpp, PyTorchOperatorHacks.cpp, DynamicLayer.cpp), torch/_functorch/predispatch.py
(`lazy_load_decompositions`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Container, Mapping
from dataclasses import dataclass
from enum import auto
from importlib.resources import files

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


AUTOGRAD = (DispatchKey.AutogradFunctionality, DispatchKey.AutogradOther, DispatchKey.AutogradNestedTensor)


def _read_rules() -> Mapping[DispatchKey, list[KernelRule]]:
    """Return the rules of each key."""
    rules: dict[DispatchKey, list[KernelRule]] = {}
    text = (files("dispatchlab.questions.explain") / "kernel_rules.toml").read_text(encoding="utf-8")
    for row in tomllib.loads(text)["rule"]:
        of_files = rf"(?:^|[ /])(?:{'|'.join(row['files'])}):\d+" if "files" in row else BUILTIN
        where, names = row.get("where", of_files), row.get("operators", ())
        rule = KernelRule(where, Does[row["does"]], row.get("outside", ""), tuple(names))
        for key in AUTOCAST_KEYS if row["keys"] == ["AUTOCAST"] else map(DispatchKey.__getitem__, row["keys"]):
            rules.setdefault(key, []).append(rule)
    return rules


_FOLLOWED = (Does.RECORDS, Does.REDISPATCHES, Does.SELECTS_BACKEND, Does.CASTS)
_RULES_OF = _read_rules()
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
