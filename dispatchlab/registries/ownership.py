"""Which registrations are PyTorch's own: decided by the source line that made each, or by a measured list.

PyTorch registers some of its operators when a part of it is first used: `torch.testing.assert_close`, `torch.compile`
or `torch.library.opcheck` bring dozens. A report of what a package or a test registers leaves these out with
`Ownership.is_own`.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

from dispatchlab.model.keys import DispatchKey
from dispatchlab.registries.builds import nearest_bundled
from dispatchlab.registries.file import open_bundled
from dispatchlab.registries.model import Recorded, RecordedFallback, RecordedKernel, RecordedOperator

# Note [What is PyTorch's own]
# ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
# A registration is PyTorch's own when the code that asked for it is PyTorch's. The debug text names that code: a C++
# file below the folder in which PyTorch was built, or a line of Python in the package `torch`. Where a text names a
# chain of lines, `A via B`, the last is the one that made the call.
#
# The files of the registration API itself (`torch/library.py:931`) say nothing, because PyTorch's registrations and
# everybody else's come from there. `site_log` replaces such a text by the line of the caller. What
# was registered unwatched, and what a recorded registry has, is looked up: the bundled registry has what
# `import torch` registers, and `data/torch-2.13-first-use.txt` what comes later. These lists are of pairs (operator,
# key), so that a kernel of another package for `aten::relu` is not PyTorch's. An operator that no list has, of a newer
# PyTorch, is its own when it lies in a namespace in which PyTorch registers through that API, `prims` say.

_API = ("torch/library.py", "torch/_library/", "torch/_custom_op/", "torch/_custom_ops.py")
"""The files of the registration API, as they stand below the folder in which torch is installed."""

_PACKAGES = ("torch/", "functorch/", "torchgen/")
_SOURCES = ("aten/", "build/aten/", "build/torch/", "c10/", "caffe2/", "functorch/", "third_party/", "torch/")
"""The folders of PyTorch's repository, and those of its build, in which C++ registers."""

_RESERVED = frozenset(
    ("_c10d_functional", "_c10d_functional_autograd", "_dtensor", "_inductor_test", "_native", "debugprims", "prims")
)
"""Namespaces that PyTorch has for itself, and in which it registers through that API."""

_RELATIVE = ("../aten/src/", "../torch/csrc/")
"""How debug texts of PyTorch 2.4 and 2.5 name files of C++."""

_LINE = re.compile(r"(?:^(?:registered at )?| via )(.+?):\d+(?= via |$)")
_FIRST_USE = "torch-2.13-first-use.txt"


@dataclass(frozen=True, slots=True)
class Ownership:
    """Recognises PyTorch's own registrations by their debug texts. See Note [What is PyTorch's own].

    Args:
        build: the folder in which PyTorch's C++ was built, with its separator; empty when debug texts start below it.
        installed: folders in which torch is installed, each with its separator, for texts with whole paths.
        torch: the version of PyTorch; the bundled registry of the nearest version has its registrations.
    """

    build: str
    installed: tuple[str, ...] = ()
    torch: str = ""

    def is_own(self, operator: str, key: DispatchKey | None, debug: str) -> bool:
        """Return whether a registration is PyTorch's own.

        Args:
            operator: the full name of the operator; empty for a backend fallback.
            key: the key of a kernel or a fallback; None for a def.
            debug: the debug text.
        """
        path = self._path(debug)
        if path is None or path.startswith(_API):
            return _is_listed(operator, key, self.torch)
        if path.startswith(_RELATIVE) or (path.startswith(_PACKAGES) and path.endswith(".py")):
            return True
        return path.startswith(self.build) and path.removeprefix(self.build).startswith(_SOURCES)

    def is_own_fallback(self, fallback: RecordedFallback) -> bool:
        """Return whether a backend fallback is PyTorch's own."""
        return self.is_own("", fallback.key, fallback.debug)

    def is_own_operator(self, operator: RecordedOperator) -> bool:
        """Return whether the def and all kernels of an operator are PyTorch's own."""
        return self.foreign_part(operator) is None

    def foreign_part(self, operator: RecordedOperator) -> RecordedOperator | None:
        """Return an operator without PyTorch's own registrations; None if there are no others."""
        name = str(operator.name)
        kernels = with_active(one for one in operator.kernels if not self.is_own(name, one.key, one.debug))
        if operator.schema is not None and not self.is_own(name, None, operator.debug):
            return replace(operator, kernels=kernels)
        return RecordedOperator(operator.name, kernels=kernels) if kernels else None

    def without_lazy(
        self, operator: RecordedOperator | None, base: RecordedOperator | None, *, listed: bool = True
    ) -> RecordedOperator | None:
        """Return an operator without PyTorch's own registrations since `base`; None if there are no other new ones.

        Args:
            operator: the operator.
            base: the same operator before; None when it was not there.
            listed: remove only registrations that PyTorch is known to make when a part is first used; otherwise all its
                own registrations, which is right for two processes with the same PyTorch.
        """
        if operator is None or operator == base:
            return operator
        name = str(operator.name)

        def is_lazy(key: DispatchKey | None, debug: str) -> bool:
            return (not listed or _is_first_use(name, key)) and self.is_own(name, key, debug)

        has_lazy_def = operator.schema is not None and is_lazy(None, operator.debug)
        if base is None:
            is_whole = operator.schema is None or has_lazy_def
            lazy = is_whole and all(is_lazy(kernel.key, kernel.debug) for kernel in operator.kernels)
            return None if lazy else operator
        had = Counter(map(_without_text, base.kernels))
        kept: list[RecordedKernel] = []
        for kernel in reversed(operator.kernels):  # the oldest first
            if had[_without_text(kernel)]:
                had[_without_text(kernel)] -= 1
            elif is_lazy(kernel.key, kernel.debug):
                continue
            kept.append(kernel)
        kernels = with_active(reversed(kept))
        if has_lazy_def and base.schema is None:
            return RecordedOperator(operator.name, kernels=kernels)
        return replace(operator, kernels=kernels)

    def _path(self, debug: str) -> str | None:
        """Return the file of the line that made a registration, without the folder of torch; None for no line."""
        lines = _LINE.findall(debug)
        if not lines:
            return None
        path = str(lines[-1])
        root = next((root for root in self.installed if path.startswith(root)), "")
        return path.removeprefix(root).replace(os.sep, "/")


def ownership_of(recorded: Recorded) -> Ownership:
    """Return the ownership of a recorded registry with paths that start at the package."""
    known = recorded.operator("aten::relu")
    return Ownership("" if known is None else build_folder(known.debug), torch=recorded.torch)


def build_folder(debug: str) -> str:
    """Return the folder in which PyTorch was built, from the debug text of the def of `aten::relu`.

    >>> build_folder("registered at /home/me/pytorch/build/aten/src/ATen/RegisterSchema.cpp:6")
    '/home/me/pytorch/'
    """
    path = debug.removeprefix("registered at ")
    for source in ("build/aten/", "aten/"):
        before, found, _ = path.partition(source)
        if found:
            return before
    return ""


def with_active(kernels: Iterable[RecordedKernel]) -> tuple[RecordedKernel, ...]:
    """Return kernels in the order of a dump, of each key the first active."""
    found: list[RecordedKernel] = []
    for kernel in kernels:
        active = not found or found[-1].key is not kernel.key
        found.append(kernel if kernel.active is active else replace(kernel, active=active))
    return tuple(found)


def _without_text(kernel: RecordedKernel) -> tuple[object, ...]:
    return kernel.key, kernel.inferred, kernel.flags


def first_use_operators() -> frozenset[str]:
    """Return the operators for which PyTorch registers on the first use of one of its parts."""
    return frozenset(operator for operator, _ in _first_use())


@cache
def _first_use() -> frozenset[tuple[str, str]]:
    path = os.path.join(os.path.dirname(__file__), "data", _FIRST_USE)
    with open(path, encoding="utf-8") as file:
        lines = [line.split() for line in file if not line.startswith("#")]
    return frozenset((operator, key) for operator, key in lines)


def _is_first_use(operator: str, key: DispatchKey | None) -> bool:
    return (operator, "-" if key is None else str(key)) in _first_use()


@cache
def _is_listed(operator: str, key: DispatchKey | None, torch: str) -> bool:
    """Return whether PyTorch is known to register this, or to reserve this namespace."""
    if not operator:
        return False
    if _is_first_use(operator, key):
        return True
    known = open_bundled(nearest_bundled(torch)).operator(operator)
    if known is None:
        return operator.partition("::")[0] in _RESERVED and operator not in first_use_operators()
    return known.schema is not None if key is None else bool(known.kernels_at(key))
