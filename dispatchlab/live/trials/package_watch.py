"""Watch a package being imported: its registrations with their lines, and the Python functions that it registers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dispatchlab.live.failure.program_watch import ProgramWatch


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A Python function that was registered for an operator.

    Args:
        operator: the operator, as it was named.
        role: `CPU kernel`, `fake`, `setup_context`, `backward` or `vmap rule`.
        function: the function as the package has it.
        keyset: it takes the key set first.
    """

    operator: str
    role: str
    function: Callable[..., Any]
    keyset: bool = False


class PackageWatch(ProgramWatch):
    """Events of the import of packages, whose own files count as the user's wherever they lie.

    Args:
        folder: the current folder.
        packages: the modules that will be imported.
    """

    def __init__(self, folder: str, packages: Sequence[str]) -> None:
        super().__init__(folder)
        self.functions: list[PythonFunction] = []
        self.unknown: set[str] = set()
        self.destroyed: set[str] = set()
        self._roots = tuple(root for name in packages for root in _roots_of(name))

    def is_users(self, file: str) -> bool:
        """Return whether a file belongs to the packages or the current folder."""
        return file.startswith(self._roots) or super().is_users(file)

    def watch_functions(self) -> None:
        """Keep what is registered from now on; torch has been imported."""
        import torch.library

        library = torch.library
        self._wrap(library.Library, "impl", self._impl)
        self._wrap(library, "register_fake", lambda op, fn=None, **_: self._keep(op, "fake", fn))
        self._wrap(
            library.Library, "_register_fake", lambda lib, op, fn, *_, **__: self._keep(_full(lib, op), "fake", fn)
        )
        self._wrap(library, "register_autograd", self._autograd)
        self._wrap(library, "register_vmap", lambda op, fn=None, **_: self._keep(op, "vmap rule", fn))
        definition: Any = vars(library)["CustomOpDef"]
        self._wrap(definition, "register_autograd", self._autograd)
        self._wrap(definition, "register_fake", lambda op, fn, *_: self._keep(op, "fake", fn))
        self._wrap(definition, "register_vmap", lambda op, fn, *_: self._keep(op, "vmap rule", fn))
        self._wrap(library, "custom_op", self._custom_op)
        self._wrap(library.Library, "_destroy", lambda lib: self.destroyed.update(lib._op_defs, lib._op_impls))

    def _wrap(self, owner: Any, name: str, note: Callable[..., None]) -> None:
        function = getattr(owner, name)

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with suppress(TypeError):
                note(*args, **kwargs)
            return function(*args, **kwargs)

        setattr(owner, name, wrapped)

    def _keep(self, op: Any, role: str, function: Any, *, keyset: bool = False) -> None:
        if callable(function):
            name = op if isinstance(op, str) else str(getattr(op, "_qualname", "") or getattr(op, "_name", "") or op)
            self.functions.append(PythonFunction(name.removesuffix(".default"), role, function, keyset))

    def _impl(self, library: Any, op: Any, fn: Any, dispatch_key: str = "", **options: Any) -> None:
        key = dispatch_key or library.dispatch_key or "CompositeImplicitAutograd"
        self._keep(_full(library, op), f"{key} kernel", fn, keyset=bool(options.get("with_keyset")))

    def _autograd(self, op: Any, backward: Any, /, *, setup_context: Any = None, **_: Any) -> None:
        self._keep(op, "setup_context", setup_context)
        self._keep(op, "backward", backward)

    def _custom_op(self, name: str, *_: Any, mutates_args: Any = (), **__: Any) -> None:
        if mutates_args == "unknown":
            self.unknown.add(name)


def _full(library: Any, op: Any) -> str:
    name = op if isinstance(op, str) else str(getattr(op, "_name", op))
    return name if "::" in name else f"{library.ns}::{name}"


def _roots_of(package: str) -> tuple[str, ...]:
    """Return the folders of a package, or the file of a module; nothing where it cannot be found."""
    with suppress(ImportError, ValueError):
        spec = find_spec(package.partition(".")[0])
        if spec is not None:
            folders = spec.submodule_search_locations
            return (
                tuple(str(Path(each)) + "/" for each in folders) if folders else ((spec.origin,) if spec.origin else ())
            )
    return ()
