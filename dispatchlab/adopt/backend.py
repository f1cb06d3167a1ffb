"""What PyTorch asks of the device that a package brings: each part tried by a program that fails without it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from dispatchlab.errors import DispatchLabError
from dispatchlab.views.as_json import json_text
from dispatchlab.views.formatting import counted

_PARTS = "dispatchlab.pytorch.introspection.backend_parts"
TIMEOUT_S = 60.0
"""How long the program of one part may take."""


class NoForkError(DispatchLabError):
    """This system cannot copy a process."""

    template = "each program runs in a copy of a process, which this system cannot make: use Linux or macOS"


@dataclass(frozen=True, slots=True)
class BackendPart:
    """Something that PyTorch asks of a backend, after its program ran.

    Args:
        name: a kernel, a fallback, a method of the hooks, or an attribute of the module of the device.
        use: what needs it.
        program: Python that fails without it; `D` is the name of the device.
        error: what it raised; empty when it came to its end.
        waits_for: an earlier part that failed and that the error names, or that failed with the same error; empty when
            there is none.
    """

    name: str
    use: str
    program: str
    error: str
    waits_for: str


@dataclass(frozen=True, slots=True)
class BackendFound:
    """The device that a package brings.

    Args:
        package: what was imported.
        device: the name of the device.
        torch: the version of PyTorch.
        parts: what PyTorch asks of it, what others rest on first.
    """

    package: str
    device: str
    torch: str
    parts: tuple[BackendPart, ...]

    @property
    def failing(self) -> tuple[BackendPart, ...]:
        """The parts whose program fails."""
        return tuple(part for part in self.parts if part.error)

    @property
    def exit_code(self) -> int:
        """1 when a program fails, else 0."""
        return 1 if self.failing else 0


def diagnose_backend(package: str) -> BackendFound:
    """Try what PyTorch asks of the device that a package brings, in a process of its own.

    Args:
        package: what a user of the device imports.

    Raises:
        NoBackendError: the package brings no device.
        NoForkError: this system cannot copy a process.
        DispatchLabError: PyTorch or the package cannot be imported.
    """
    from dispatchlab.pytorch.worker.engine import LiveEngine

    if not hasattr(os, "fork"):
        raise NoForkError
    with LiveEngine() as engine:
        device, torch, found = engine.ask(f"{_PARTS}:check_backend", package, TIMEOUT_S)
    parts: list[BackendPart] = []
    for (name, use, program), error in found:
        earlier = (one for one in parts if one.error and not one.waits_for)
        waits_for = next((one.name for one in earlier if error and _is_of(error, one)), "")
        parts.append(BackendPart(name, use, program, error, waits_for))
    return BackendFound(package, device, torch, tuple(parts))


def _is_of(error: str, part: BackendPart) -> bool:
    name = part.name.rpartition("::")[2] if part.name.startswith("PrivateUse1") else part.name
    return f"'{name}'" in error or f"`{name}`" in error or error == part.error


def backend_text(found: BackendFound) -> str:
    """Each part with what became of its program, then the programs that fail by themselves."""
    return "\n".join(_lines(found)) + "\n"


def backend_json(found: BackendFound) -> str:
    """The same as JSON."""
    return json_text(
        {
            "ok": found.exit_code == 0,
            "backend": found.package,
            "device": found.device,
            "torch": found.torch,
            "parts": [asdict(part) for part in found.parts],
        }
    )


def _lines(found: BackendFound) -> Iterator[str]:
    whole = counted(len(found.parts), "part")
    works = len(found.parts) - len(found.failing)
    yield f"{found.device} of {found.package}, PyTorch {found.torch}: {works} of {whole} work"
    width = max(len(part.name) for part in found.parts)
    for part in found.parts:
        state = f"waits for {part.waits_for}" if part.waits_for else "fails" if part.error else "works"
        yield f"  {part.name:<{width}}  {state}: {part.use}"
    for part in found.failing:
        if part.waits_for:
            continue
        yield ""
        yield f"{part.name}: {_first_line(part.error)}"
        yield from (f"  {line}" for line in re.sub(r"\bD\b", f"'{found.device}'", part.program).splitlines())


def _first_line(error: str) -> str:
    """The first sentence of an error: PyTorch's go on with all keys that have a kernel."""
    line = error.partition("\n")[0]
    return line.partition(". This could be because")[0]
