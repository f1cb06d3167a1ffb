"""Run programs on the device of cpp/npu.cpp, a backend at PrivateUse1 with the kernels that a test selects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.live.native_extension import library

PACKAGE = Path(__file__).with_name("npu_package")
"""The folder that `import npu_device` needs on the path."""

Calls = tuple[tuple[str, str], ...]


class Ran(NamedTuple):
    """How a program ran on the device.

    Args:
        code: the exit code of the process; negative for a signal.
        calls: the operators of the calls that reached the device, each with `own` or `fallback`, in order.
        error: the last lines of standard error.
        output: what it printed.
    """

    code: int
    calls: Calls
    error: str
    output: str


class Predicted(NamedTuple):
    """How a program ran on the stand-in: the calls that reached it, what it raised, and what could not be done."""

    calls: Calls
    error: str
    unserved: str
    output: str


def environment(folder: Path, kernels: Collection[str], *, fallback: bool) -> dict[str, str]:
    """The environment of a process whose `import npu_device` gives a device; skips where it cannot be built.

    Args:
        folder: where the list of kernels goes.
        kernels: the operators with a kernel of the device's own.
        fallback: whether it has PyTorch's fallback to the CPU.
    """
    listed = folder / "kernels.txt"
    listed.write_text("".join(f"{name}\n" for name in kernels), encoding="utf-8")
    paths = [str(PACKAGE), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "NPU_LIBRARY": str(library("npu")),
        "NPU_KERNELS": str(listed),
        "NPU_FALLBACK": "1" if fallback else "0",
    }


class Runs:
    """A process that runs programs, each in a fork; skips the test where the backend cannot be built.

    Args:
        folder: where files of the runs go.
        modules: what the programs import besides PyTorch; it is imported once.
    """

    def __init__(self, folder: Path, *modules: str) -> None:
        self._folder = folder
        self._server = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(Path(__file__).with_name("npu_server.py")), *modules],
            env=environment(folder, (), fallback=False),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.kill()
        self._server.communicate()

    def on_device(self, source: str, kernels: Collection[str], *, fallback: bool = False, without: str = "") -> Ran:
        """Run a program on the device.

        Args:
            source: the program; it names the device `npu`.
            kernels: the operators with a kernel of the device's own.
            fallback: whether it has PyTorch's fallback to the CPU.
            without: something else that it lacks: see NPU_WITHOUT in cpp/npu.cpp and npu_package.
        """
        found = self._ask("run", source, kernels, fallback=fallback, without=without)
        return Ran(found["code"], _calls(found["calls"]), found["error"], found["output"])

    def predicted(self, source: str, kernels: Collection[str], *, fallback: bool = False) -> Predicted:
        """What dispatchlab says of that."""
        found = self._ask("predict", source, kernels, fallback=fallback)
        assert found["predicted"] is not None, found["error"]
        calls, error, unserved = found["predicted"]
        return Predicted(_calls(calls), error, unserved, found["output"])

    def on_cpu(self, source: str) -> str:
        """What a program prints that names no device but the CPU."""
        found = self._ask("cpu", source, (), fallback=False)
        assert found["code"] == 0, found["error"]
        return str(found["output"])

    def _ask(
        self, what: str, source: str, kernels: Collection[str], *, fallback: bool, without: str = ""
    ) -> dict[str, Any]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        program = self._folder / "program.py"
        program.write_text(source, encoding="utf-8")
        task = {
            "what": what,
            "program": str(program),
            "kernels": sorted(name.removeprefix("aten::") for name in kernels),
            "fallback": fallback,
            "without": without,
            "folder": str(self._folder),
        }
        self._server.stdin.write(f"{json.dumps(task)}\n")
        self._server.stdin.flush()
        found: dict[str, Any] = json.loads(self._server.stdout.readline())
        return found


def _calls(calls: list[list[str]]) -> Calls:
    return tuple((name, what) for name, what in calls)


BASE = (
    *("empty.memory_format", "empty_strided", "_copy_from", "_copy_from_and_resize", "view", "as_strided", "resize_"),
    *("_local_scalar_dense", "set_.source_Storage", "set_.source_Tensor", "AutocastPrivateUse1"),
)
"""What a backend with a fallback to the CPU has kernels for."""

_AUTOCAST = "AutocastPrivateUse1"
_EMPTY = "aten::empty.memory_format"
_COULD_NOT = "NotImplementedError: Could not run"
_REFUSED = ("Attempted to set the storage of a tensor on device", "device type for generator but found")
"""What PyTorch's fallback to the CPU says of a storage and of a generator of the device."""


def difference(ran: Ran, predicted: Predicted, *, exact: bool = True) -> str:
    """What of a run is not as predicted; empty when all is.

    Args:
        ran: the run.
        predicted: what the stand-in says of it.
        exact: compare each call; else only which operators are called, what serves them, and in which order the first
            such calls come. The engine of autograd adds gradients in place when nothing else holds them, and on the
            stand-in Python does. So calls of `empty.memory_format` are not compared here, and not every program with
            gradients can be compared exactly.
    """

    def compared(calls: Calls) -> Calls:
        found = tuple(call for call in calls if call[0] != _EMPTY)
        return found if exact else tuple(dict.fromkeys(found))

    stop = next((at for at, (_, what) in enumerate(predicted.calls) if what == "missing"), None)
    expected = compared(predicted.calls[:stop])
    if stop is None:
        if predicted.error.startswith(_COULD_NOT):  # at another key of the device, such as that of its sparse tensors
            where = predicted.error.partition(" backend")[0]
            same = ran.code == 1 and where in ran.error and compared(ran.calls) == expected
            return "" if same else f"it was to raise {where}: {ran.error[-300:]}"
        if predicted.unserved or predicted.error:
            return f"the stand-in raised {predicted.error} and no call was missing"
        if ran.code:
            return f"it was to run, and failed: {ran.error[-300:]}"
        if compared(ran.calls) != expected:
            return f"other calls: {_first(compared(ran.calls), expected)}"
        return "" if same_numbers(ran.output, predicted.output) else f"{ran.output} is not {predicted.output}"
    name = predicted.calls[stop][0]
    if ran.code == 0:
        return f"it was to fail at {name}, and ran"
    if compared(ran.calls)[: len(expected)] != expected:
        return f"other calls before {name}: {_first(compared(ran.calls), expected)}"
    if ran.code < 0:  # a fallback that leads to itself uses up the stack, and the copy of a conjugate that copies
        repeated = ran.calls[-1000:]
        again = (name, "fallback") in repeated or name == "aten::copy_"
        return "" if len(repeated) == 1000 and again else f"{name} did not go on for ever"
    last: tuple[str, ...] = (
        ("Autocastnpu",)
        if name == _AUTOCAST
        else (f"'{name}'", *([name.removeprefix("aten::")] if name.endswith("_overrideable") else []), *_REFUSED)
    )
    return "" if any(text in ran.error for text in last) else f"it failed at something else: {ran.error[-300:]}"


def _first(left: Calls, right: Calls) -> str:
    at = next((at for at, (one, other) in enumerate(zip(left, right, strict=False)) if one != other), len(right))
    return f"{left[at : at + 2]} for {right[at : at + 2]}, call {at}"


def same_numbers(left: str, right: str) -> bool:
    """Whether programs printed the same but for rounding."""
    lines = left.splitlines(), right.splitlines()
    return len(lines[0]) == len(lines[1]) and all(map(_same_line, *lines))


def _same_line(left: str, right: str) -> bool:
    if left == right:
        return True
    try:
        numbers, others = ([float(text) for text in line.strip("[]").split(",")] for line in (left, right))
    except ValueError:
        return False
    return len(numbers) == len(others) and all(
        abs(one - other) <= 0.003 + 0.001 * abs(other) for one, other in zip(numbers, others, strict=True)
    )
