"""Builds of PyTorch: which backends one has kernels for, and which bundled registry answers for a backend.

A build shows what it is made for behind the `+` of its version; one without such a text, as on macOS or of somebody's
own, is taken to have what it needs.
"""

from __future__ import annotations

from collections.abc import Iterable

from dispatchlab.model.keys import BACKENDS, DispatchKey
from dispatchlab.registry.file import DEFAULT, bundled_names

CUDA = "torch-2.13-cuda"
"""The bundled registry of a build with kernels for CUDA."""

_EVERYWHERE = ("CPU", "Meta")
_BUILDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("cpu", ()),
    ("cu", ("CUDA",)),
    ("rocm", ("CUDA", "HIP")),
    ("xpu", ("XPU",)),
)
_IN_TREE = ("CUDA", "HIP", "MPS", "XPU")
"""The backends whose kernels come with PyTorch itself; those of all others come with packages."""


def bundled_for(torch: str) -> str | None:
    """The bundled registry of a version of PyTorch, `2.13.0+cpu` say; None when no such registry comes along."""
    version, _, build = torch.partition("+")
    name = f"torch-{'.'.join(version.split('.')[:2])}"
    wanted = f"{name}-cuda" if build.startswith("cu") else name
    return next((each for each in (wanted, name) if each in bundled_names()), None)


def backend_named(key: DispatchKey) -> str | None:
    """The backend that a key belongs to, such as `CUDA` for `SparseCUDA`; None for a key of no backend."""
    return None if key.backend is None else BACKENDS[key.backend]


def has_kernels_for(torch: str, imports: Iterable[str], backend: str) -> bool:
    """Whether a registry answers what a backend runs.

    Args:
        torch: the version of PyTorch that it was recorded on.
        imports: the packages that were imported besides.
        backend: the name of the key of its plain tensors.
    """
    build = torch.partition("+")[2]
    found = next((backends for prefix, backends in _BUILDS if build.startswith(prefix)), None)
    if found is None or backend in (*_EVERYWHERE, *found):
        return True
    return backend not in _IN_TREE and any(True for _ in imports)


def is_in_tree(backend: str) -> bool:
    """Whether the kernels of a backend come with builds of PyTorch, and not with packages."""
    return backend in _IN_TREE


def default_registry(keys: Iterable[DispatchKey | str]) -> str:
    """The bundled registry for a question about these keys: one with CUDA's kernels when one is of CUDA.

    Args:
        keys: keys, or names of keys; a name that no key has counts as one of no backend.
    """
    named = [DispatchKey.__members__.get(key) if isinstance(key, str) else key for key in keys]
    return CUDA if any(backend_named(key) == "CUDA" for key in named if key is not None) else DEFAULT


def renamed_text(privateuse1: str) -> str:
    """The note on a backend that a package has given a name of its own."""
    return f"note: PrivateUse1 is the backend {privateuse1}"


def no_answer(source: str, torch: str, backend: str) -> str:
    """The sentence for a question about a backend that a registry has no kernels for."""
    whose = source if source.endswith(torch) else f"{source} is of PyTorch {torch}, which"
    what = f"no answer for {backend}: {whose} has no kernels for it"
    if backend == "CUDA":
        return f"{what}; {CUDA} has them, without --from or by its name"
    if is_in_tree(backend):
        return f"{what}; use --engine torch on a PyTorch that has them, or a registry that was recorded there"
    return f"{what}; use --engine torch with --import PACKAGE, or a registry that was recorded with the package"
