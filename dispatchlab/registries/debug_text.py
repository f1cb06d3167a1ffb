"""Debug texts as findings need them: the file and line of a registration, the callers behind it, and whose it is."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from dispatchlab.model.keys import DispatchKey

if TYPE_CHECKING:
    from dispatchlab.registries.model import Recorded, RecordedOperator

_AT = "registered at "
_VIA = " via "
_SITE = re.compile(r"(?P<path>[^\s:][^:\n]*\.\w+):(?P<line>[1-9][0-9]{0,8})")
_KEPT_OF_A_BUILD_PATH = 2
_BUILD_FOLDER = 4  # the leading slash counts as one: /__w/NAME/NAME


def owner(debug: str) -> str:
    """Return a debug text in a sentence."""
    return debug.removeprefix(_AT) or "a registration without a debug text"


def stale_order_text(keys: str, kernels: Sequence[tuple[object, str]], *, operator: str = "") -> str:
    """Return a sentence about stale slots that depend on an order, for DL009 and reports.

    Args:
        keys: the keys of the slots.
        kernels: the key and the debug text of each kernel that was registered.
        operator: the operator, if no name is before the text.
    """
    them = " and ".join(f"{key} from {owner(debug)}" for key, debug in kernels)
    of = f" of {operator}" * bool(operator)
    if len(kernels) == 1:
        text = f"PyTorch does not refresh {keys}{of} when the kernel {them} is registered or released"
        return f"{text}. A call can then run an old kernel"
    return f"the order of the kernels {them} decides which kernel a call{of} runs at {keys}"


def keys_text(key: str, count: int) -> str:
    """Return a key and the number of further ones, for a sentence."""
    return key if count < 2 else f"{key} and {count - 1} more key{'' if count == 2 else 's'}"


def kernel_at(operator: RecordedOperator, key: object) -> str:
    """Return the owner of the active kernel at a key, for a sentence."""
    found = next((kernel for kernel in operator.kernels if kernel.key is key), None)
    return owner("" if found is None else found.debug)


def sites_in(debug: str) -> Iterator[tuple[str, int]]:
    """Return the path and line of the registering call, and of the helpers that it went through."""
    for part in debug.removeprefix(_AT).split(_VIA):
        found = _SITE.fullmatch(part)
        if found is not None:
            yield found["path"], int(found["line"])


_CPP = (".cpp", ".cc", ".cxx", ".cu", ".mm", ".h", ".hpp", ".cuh")
_IMPL = re.compile(
    r'(?:lib = torch\.library\.Library\("(\w+)", "IMPL"\); )?lib\.impl\("(?:(\w+)::)?([\w.]+)", (\w+), "(\w+)"'
    r"(?:, allow_override=True)?\)(?: on a library of (\w+))?"
)


def in_its_language(fix: str, debugs: Iterable[str], namespace: str) -> str:
    """Return a fix with the calls of C++, for registrations of C++.

    Args:
        fix: the fix, with the calls of Python.
        debugs: the debug texts of the registrations.
        namespace: the namespace of the operator.
    """
    paths = [path for debug in debugs for path, _ in sites_in(debug)]
    if not paths or not all(path.endswith(_CPP) for path in paths):
        return fix

    def impl(call: re.Match[str]) -> str:
        library, qualified, name, kernel, key, other = call.groups()
        return (
            f'm.impl("{name}", {kernel}) in TORCH_LIBRARY_IMPL({other or qualified or library or namespace}, {key}, m)'
        )

    fix = re.sub(r'lib\.define\(("[^"]*")\)', rf"m.def(\1) in TORCH_LIBRARY({namespace}, m)", _IMPL.sub(impl, fix))
    return fix.replace("torch.autograd.Function", "torch::autograd::Function")


def _path_in(debug: str) -> str | None:
    """Return the path of the call that registered, with slashes; None when the text names none."""
    return next((path.replace("\\", "/") for path, _ in sites_in(debug)), None)


def file_in(debug: str) -> str:
    """Return the file of a registration, without its line and the folder of the build.

    A debug text that is not a path stays unchanged.
    """
    path = _path_in(debug)
    if path is None:
        return debug
    return "/".join(path.split("/")[-_KEPT_OF_A_BUILD_PATH:]) if is_absolute(path) else path


def is_absolute(path: str) -> bool:
    """Return whether a path is absolute, on this machine or a build machine."""
    return path.startswith(("/", "\\")) or path[1:2] == ":"


def imported_packages(operators: Iterable[RecordedOperator]) -> frozenset[str]:
    """Return the packages with Python registrations for these operators, without PyTorch."""
    debugs = (debug for one in operators for debug in (one.debug, *(kernel.debug for kernel in one.kernels)))
    paths = {path for debug in debugs for path, _ in sites_in(debug) if path.endswith(".py") and not is_absolute(path)}
    return frozenset(path.partition("/")[0] for path in paths if "/" in path) - {Packages.TORCH}


def package_among(packages: Collection[str], debug: str) -> str | None:
    """Return the package among these that made a registration; None when its path names none, or only PyTorch's API.

    A path of C++ starts on the machine that built it; the folder of the package lies somewhere on it.
    """
    for path, _ in sites_in(debug):
        parts = path.replace("\\", "/").split("/")[:-1]
        for part in reversed(parts) if is_absolute(path) else parts[:1]:
            if part in packages:
                return part
    return None


def other_owner(debugs: Iterable[str], packages: frozenset[str], imports: Iterable[str]) -> str | None:
    """Return the other package that made all these registrations; None for the imported package, or if unknown.

    Args:
        debugs: the debug texts of the registrations.
        packages: see `imported_packages`.
        imports: the modules that were imported; the packages that they are in made the rest.
    """
    mine = {name.partition(".")[0] for name in imports}
    owners = [package_among(packages | mine, debug) for debug in debugs]
    return None if not owners or any(owner is None or owner in mine for owner in owners) else owners[0]


class Packages:
    """A finder of a registration's owner, by its debug text.

    Python paths start at the package. C++ paths are those of the build machine, and name no package.
    """

    TORCH = "torch"

    def __init__(self, recorded: Recorded) -> None:
        from dispatchlab.registries.ownership import ownership_of

        self.ownership = ownership_of(recorded)

    def of(self, operator: RecordedOperator, key: DispatchKey | None, debug: str) -> str | None:
        """Return the package of a registration; None when it is not known.

        Args:
            operator: the operator that it is for.
            key: the key of a kernel; None for a def.
            debug: its debug text.
        """
        if self.is_torch(operator, key, debug):
            return self.TORCH
        path = _path_in(debug)
        if path is None or is_absolute(path):
            return None
        first, slash, _ = path.partition("/")
        return first if slash and path.endswith(".py") and first != self.TORCH else None

    def is_torch(self, operator: RecordedOperator, key: DispatchKey | None, debug: str) -> bool:
        """Return whether a registration is PyTorch's own."""
        return self.ownership.is_own(str(operator.name), key, debug)

    def are_one(self, operator: RecordedOperator, kernels: Iterable[tuple[DispatchKey | None, str]]) -> bool:
        """Return whether one package made all these registrations, by their paths.

        The C++ files of a package were built below one folder with the name of its Python package.
        """
        chosen = list(kernels)
        by_torch = [self.is_torch(operator, key, debug) for key, debug in chosen]
        if any(by_torch):
            return all(by_torch)
        paths = [_path_in(debug) for _, debug in chosen]
        known = [path for path in paths if path is not None]
        built = {tuple(path.split("/")[:_BUILD_FOLDER]) for path in known if is_absolute(path)}
        python = {path.partition("/")[0] for path in known if not is_absolute(path)}
        if len(known) < len(paths) or len(built) > 1 or len(python) > 1:
            return False
        return not built or not python or all(python <= {*path.split("/")} for path in known if is_absolute(path))
