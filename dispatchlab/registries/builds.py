"""Builds of PyTorch: the backends for which a build has kernels, and the bundled registry for a backend.

The text after the `+` of its version shows the backend of a build. A build without this text, as on macOS or a private
one, is assumed to have the needed backends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from dispatchlab.model.installed_torch import installed_torch
from dispatchlab.model.keys import BACKENDS, DispatchKey
from dispatchlab.model.profile import nearest_profile, version_of
from dispatchlab.registries.file import bundled_name, newest_bundled, open_bundled
from dispatchlab.registries.model import RecordedOperator

_EVERYWHERE = ("CPU", "Meta")
_BUILDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("cpu", ()),
    ("cu", ("CUDA",)),
    ("rocm", ("CUDA", "HIP")),
    ("xpu", ("XPU",)),
)
_WITH_CUDA = ("cu", "rocm")
"""How the texts of builds begin that have kernels at the keys of CUDA."""
_IN_TREE = ("CUDA", "HIP", "MPS", "XPU")
"""The backends whose kernels come with PyTorch itself; those of all others come with packages."""


def bundled_for(torch: str) -> str | None:
    """Return the bundled registry of a version of PyTorch, such as `2.13.0+cpu`; None when there is none.

    For a build without CUDA, it is the registry of such a build of this version, if there is one.
    """
    version, _, build = torch.partition("+")
    name = f"torch-{'.'.join(version.split('.')[:2])}"
    wanted = (name,) if build.startswith(_WITH_CUDA) else (f"{name}-cpu", name)
    return next((each for each in wanted if bundled_name(each)), None)


def nearest_bundled(torch: str) -> str:
    """Return the bundled registry of the nearest version of PyTorch, the newer of two; the newest for another text."""
    name, version = bundled_for(torch), version_of(torch)
    if name is not None or version is None:
        return name or newest_bundled()
    return bundled_for(nearest_profile(version).removeprefix("torch-")) or newest_bundled()


def backend_named(key: DispatchKey) -> str | None:
    """Return the backend that a key belongs to, such as `CUDA` for `SparseCUDA`; None for a key of no backend."""
    return None if key.backend is None else BACKENDS[key.backend]


def has_kernels_for(torch: str, imports: Iterable[str], backend: str) -> bool:
    """Return whether a registry has the kernels of a backend.

    Args:
        torch: the version of PyTorch that it was recorded on.
        imports: the packages that were imported into it.
        backend: the name of the key of its plain tensors.
    """
    build = torch.partition("+")[2]
    found = next((backends for prefix, backends in _BUILDS if build.startswith(prefix)), None)
    if found is None or backend in (*_EVERYWHERE, *found):
        return True
    return backend not in _IN_TREE and any(True for _ in imports)


def without_kernels_elsewhere(
    operator: RecordedOperator | None, here: RecordedOperator, torch: str
) -> RecordedOperator | None:
    """Return an operator of a public wheel as in another build of its version.

    Args:
        operator: the operator of the public wheel; None when it has none.
        here: the operator of the other build.
        torch: the version of the other build; if it has no CUDA kernels, differences in CUDA kernels are left out.
    """
    if operator is None or has_kernels_for(torch, (), "CUDA"):
        return operator
    kernels = tuple(one for one in operator.kernels if backend_named(one.key) != "CUDA" or here.kernels_at(one.key))
    return operator if len(kernels) == len(operator.kernels) else replace(operator, kernels=kernels)


def is_of_pytorch(operator: str, torch: str) -> bool:
    """Return whether a version of PyTorch, or the nearest that has a bundled registry, has this operator."""
    return open_bundled(cuda_registry(torch)).operator(operator) is not None


def is_in_tree(backend: str) -> bool:
    """Return whether the kernels of a backend are part of builds of PyTorch, not of packages."""
    return backend in _IN_TREE


class Default(NamedTuple):
    """The default registry of a question.

    Args:
        name: its name.
        reason: a line for the user that names the registry and the reason.
    """

    name: str
    reason: str


def default_registry(keys: Iterable[DispatchKey | str] = ()) -> Default:
    """Return the default registry: that of the installed PyTorch, or else the newest bundled one.

    For CUDA keys, it is a registry of a build with CUDA kernels.

    Args:
        keys: the keys of interest, or names of keys; an unknown name counts as a key without a backend.
    """
    torch = installed_torch()
    name = None if torch is None else bundled_for(torch)
    if torch is None or name is None:
        newest = newest_bundled()
        why = "no PyTorch is installed" if torch is None else f"no bundled one is of the installed PyTorch {torch}"
        return Default(newest, f"{newest} answers, the newest registry here: {why}")
    named = [DispatchKey.__members__.get(key) if isinstance(key, str) else key for key in keys]
    if any(backend_named(key) == "CUDA" for key in named if key is not None):
        with_cuda = name.removesuffix("-cpu")
        if with_cuda != name:
            return Default(with_cuda, f"{with_cuda} answers: the installed PyTorch {torch} has no kernels for CUDA")
    recorded = open_bundled(name).torch
    if recorded == torch:
        return Default(name, f"{name} answers, the registry of the installed PyTorch {torch}")
    return Default(name, f"{name} answers, recorded on PyTorch {recorded}; {torch} is installed")


def cuda_registry(torch: str) -> str:
    """Return the bundled registry of a version of PyTorch, or of the nearest, that has kernels for CUDA."""
    return nearest_bundled(torch).removesuffix("-cpu")


def renamed_text(privateuse1: str) -> str:
    """Return the note on a backend that a package renamed."""
    return f"note: PrivateUse1 is the backend {privateuse1}"


def no_answer(source: str, torch: str, backend: str) -> str:
    """Return the sentence for a question about a backend that a registry has no kernels for."""
    whose = source if torch in source else f"{source} is of PyTorch {torch}, which"
    what = f"no answer for {backend}: {whose} has no kernels for it"
    if backend == "CUDA":
        return f"{what}; {cuda_registry(torch)} has them, without --from or by its name"
    if is_in_tree(backend):
        return f"{what}; name `live` as the source on a PyTorch that has them, or a registry that was recorded there"
    return f"{what}; name the package with --from, or a registry that was recorded with the package"
