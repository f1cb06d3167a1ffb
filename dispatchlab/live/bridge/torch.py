"""Import PyTorch, and packages that register on it; every other module of `live` gets torch from this module.

Importing this module does not import torch; the first call of `bindings` does.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dispatchlab.errors import DispatchLabError, did_you_mean
from dispatchlab.files import modules_in

if TYPE_CHECKING:
    from traceback import FrameSummary


class TorchMissingError(DispatchLabError):
    """PyTorch cannot be imported here.

    Args:
        reason: the error of the import.
    """

    reason: str = "No module named 'torch'"

    template = (
        "the live engine needs PyTorch, which cannot be imported: {reason}. "
        "Install it with: pip install 'dispatchlab[torch]'"
    )


class TorchBrokenError(TorchMissingError):
    """PyTorch is installed, but its import raises an exception.

    Args:
        reason: the exception, and where it was raised.
    """

    template = "the live engine needs PyTorch; it is installed, but importing it raises {reason}"


class ImportFailedError(DispatchLabError):
    """A package of the user cannot be imported.

    Args:
        module: the package.
        reason: the error of the import, its line, and what to do.
    """

    module: str
    reason: str

    template = "{module} cannot be imported: {reason}"


class ImportEndedError(ImportFailedError):
    """Importing a package of the user ends the process: it crashes, or it exits.

    Args:
        module: the package.
        reason: how the process ends, a clause after `it`.
    """

    exit_code = 5

    template = "{module} cannot be imported: it {reason}; run `python -c 'import {module}'` to see what it does"


class ImportTimeoutError(ImportFailedError):
    """Importing a package of the user does not end.

    Args:
        module: the package.
        limit_s: the time limit in seconds.
    """

    exit_code = 124

    def __init__(self, module: str, limit_s: float) -> None:
        super().__init__(module, f"takes longer than {limit_s:g} s")
        self.limit_s = limit_s

    def __str__(self) -> str:
        return (
            f"{self.module} was not imported after {self.limit_s:g} s, so its process was ended; "
            "if it needs longer, set DISPATCHLAB_IMPORT_LIMIT to more seconds"
        )


def require_torch() -> None:
    """Find PyTorch without an import, which would take seconds.

    Raises:
        TorchMissingError: PyTorch is not installed.
    """
    if find_spec("torch") is None:
        raise TorchMissingError


@cache
def torch() -> Any:
    """Return the `torch` module.

    Raises:
        TorchMissingError: it cannot be imported.
    """
    try:
        return import_module("torch")
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            raise TorchMissingError(str(error)) from error
        first, newline, more = _reason(error).partition("\n")
        at = _raised_at(error)
        name = at.rpartition("/")[2].partition(".py:")[0] if at and "site-packages" not in at else ""
        rename = f"; if PyTorch needs another module {name}, rename this file" * bool(name)
        raise TorchBrokenError(f"{first}{at}{rename}{newline}{more}") from error


@cache
def bindings() -> Any:
    """Return `torch._C`, which has the registration functions of the lowest level."""
    return torch()._C


_import_listeners: list[Callable[[str | None], None]] = []


def report_imports(to: Callable[[str | None], None]) -> None:
    """Call a function with each package before it is imported, and with None after it."""
    _import_listeners.append(to)


def forget_import_listeners() -> None:
    """Remove all import listeners, because a forked process cannot use them."""
    _import_listeners.clear()


def import_packages(names: Iterable[str]) -> None:
    """Import packages of the user in this order, for what they register.

    Raises:
        ImportFailedError: one cannot be imported.
        ImportEndedError: one calls `sys.exit`, or raises an error that `except Exception` does not catch.
    """
    for name in names:
        import_package(name)


def import_package(name: str) -> None:
    """Import one package of the user.

    Raises:
        ImportFailedError: it cannot be imported.
        ImportEndedError: it calls `sys.exit`, or raises an error that `except Exception` does not catch.
    """
    if name == "__main__":
        raise ImportFailedError(name, "it is the program that runs; name the module that registers")
    for listener in _import_listeners:
        listener(name)
    try:
        import_module(name)
    except KeyboardInterrupt:
        raise
    except SystemExit as ended:
        raise ImportEndedError(name, f"calls sys.exit({'' if ended.code is None else repr(ended.code)})") from ended
    except Exception as error:
        first, newline, more = _reason(error).partition("\n")
        raise ImportFailedError(name, f"{first}{_what_to_do(name, error)}{newline}{more}") from error
    except BaseException as error:
        raise ImportEndedError(name, f"raises {_reason(error)}") from error
    finally:
        for listener in _import_listeners:
            listener(None)


def _reason(error: BaseException) -> str:
    try:
        because = str(error.__cause__ or "").partition("\n")[0]
        return f"{type(error).__name__}: {error}{f': {because}' * (bool(because) and because not in str(error))}"
    except Exception:  # an error of a package, whose text fails in its turn
        return type(error).__name__


def _installed_like(name: str) -> str:
    from difflib import get_close_matches
    from importlib.metadata import packages_distributions

    return "".join(f"; did you mean {one}?" for one in get_close_matches(name, packages_distributions(), 1, 0.8))


def _what_to_do(name: str, error: Exception) -> str:
    """Return the advice for a package that cannot be imported: install it, build it, or read the raising line."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    top = name.partition(".")[0]
    at = _raised_at(error)
    if missing == top and not at and not top.isidentifier():
        return f"; name the module that is imported, such as {re.sub(r'[^0-9A-Za-z]', '_', top)}"
    if missing == top and name == f"{top}.py":
        return f"; name the module, {top}, without .py"
    if missing == top and not at:
        near = did_you_mean(name, modules_in(os.curdir)) or _installed_like(name)
        return near or "; install it, in its checkout with `pip install -e .`, or leave it out"
    if missing is not None and not at and f"{name}.".startswith(f"{missing}."):
        return f"; {missing.rpartition('.')[0]} is installed and has no such module"
    needed, dot, _ = (missing or "").partition(".")
    if dot and isinstance(getattr(sys.modules.get(needed), "__path__", None), list) and needed != top:
        return f"{at}; {name} needs it, and the installed {needed} has no such module"
    if dot and not getattr(sys.modules.get(needed), "__file__", ""):
        return f"{at}; {name} needs it, and another package installs it"
    if missing is not None and missing.replace("-", "_").partition(".")[0] == top:
        return f"{at}; install {top}, in its checkout with `pip install -e .`, which builds what it lacks"
    if missing is not None:
        return f"{at}; {name} needs it: install {missing.partition('.')[0]}"
    if missing_library := re.search(r"\b(lib\S+): cannot open shared object file", f"{error} {error.__cause__}"):
        build = f"the installed one is PyTorch {torch().__version__}"
        return f"{at}; {missing_library[1]} is missing: it is of another build of PyTorch or of the system, and {build}"
    raised_by_its_line = any((frame.line or "").startswith("raise ") for frame in _last_frame(error))
    if isinstance(error, (ImportError, OSError)) and not raised_by_its_line:
        return f"{at}; if {top} is a checkout, `pip install -e .` builds what it lacks"
    return at


def _raised_at(error: BaseException) -> str:
    """Return `, raised at FILE:LINE`; empty where there is no such line."""
    return "".join(f", raised at {frame.filename}:{frame.lineno}" for frame in _last_frame(error))


def _last_frame(error: BaseException) -> Sequence[FrameSummary]:
    """Return the last frame outside PyTorch, Python's library and import watches; empty where there is none."""
    from traceback import extract_tb

    own = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep
    frames = [
        frame
        for frame in extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<frozen importlib", own)) and frame.filename != importlib.__file__
    ]
    home = os.path.dirname(getattr(sys.modules.get("torch"), "__file__", None) or "")
    python = os.path.dirname(os.__file__) + os.sep
    outside = [
        frame
        for frame in frames
        if not (home and frame.filename.startswith(home + os.sep))
        and (not frame.filename.startswith(python) or f"{os.sep}site-packages{os.sep}" in frame.filename)
    ]
    return (outside or frames)[-1:]


def semantics() -> str:
    """Return the semantics of the installed dispatcher, such as `torch-2.13`, without importing torch."""
    from importlib.metadata import PackageNotFoundError, version  # which is slow to import

    try:
        found = version("torch")
    except PackageNotFoundError:
        found = str(torch().__version__)
    return "torch-" + ".".join(found.split("+")[0].split(".")[:2])
