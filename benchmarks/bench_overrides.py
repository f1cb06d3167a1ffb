"""Benchmarks of `__torch_function__`: the six cases of its design document, here and elsewhere.

`TorchFunction` is ours and `Literal` a transcription of the algorithm as it is documented; `ArrayFunction` is numpy's
protocol and `Torch` torch's, where it is installed. `PlainPath` is what tensors pay, over the undecorated function.
"""

from __future__ import annotations

import itertools
import platform
import re
import timeit
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.literal_overrides import LiteralTensor, literal_dispatch
from dispatchlab.call import tensor
from dispatchlab.lab.overrides import torch_function_dispatch

Made = tuple[Any, Any, Any, Any]


class Duck:
    """Handles every call and returns nothing."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> None:
        """Nothing."""

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> None:
        """Nothing."""


class TorchDuck:
    """The same as torch wants it, a class method."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> None:
        """Nothing."""


def _broadcast_tensors_dispatcher(*tensors: Any) -> Iterable[Any]:
    return tensors


def broadcast_tensors(*tensors: Any) -> None:
    """Nothing."""


def _concatenate_dispatcher(tensors: Any, dim: Any = None, out: Any = None) -> Iterable[Any]:
    return itertools.chain(tensors, (out,)) if out is not None else tensors


def concatenate(tensors: Any, dim: int = 0, out: Any = None) -> None:
    """Nothing."""


def _ours() -> Made:
    decorate = torch_function_dispatch
    return (
        decorate(_broadcast_tensors_dispatcher)(broadcast_tensors),
        decorate(_concatenate_dispatcher)(concatenate),
        lambda: tensor(1.0),
        Duck,
    )


def _literal() -> Made:
    decorate = literal_dispatch
    return (
        decorate(_broadcast_tensors_dispatcher)(broadcast_tensors),
        decorate(_concatenate_dispatcher)(concatenate),
        LiteralTensor,
        Duck,
    )


def _numpy() -> Made:
    decorate: Any = import_module("numpy._core.overrides").array_function_dispatch
    return (
        decorate(_broadcast_tensors_dispatcher)(broadcast_tensors),
        decorate(_concatenate_dispatcher)(concatenate),
        lambda: np.array(1),
        Duck,
    )


def _torch() -> Made:
    torch: Any = import_module("torch")
    overrides: Any = import_module("torch.overrides")

    def broadcast(*tensors: Any) -> Any:
        if overrides.has_torch_function(tensors):
            return overrides.handle_torch_function(broadcast, tensors, *tensors)
        return None

    def joined(tensors: Any, dim: int = 0, out: Any = None) -> Any:
        if overrides.has_torch_function(tensors):
            return overrides.handle_torch_function(joined, tensors, tensors, dim=dim, out=out)
        return None

    return broadcast, joined, lambda: torch.tensor(1), TorchDuck


class TorchFunction:
    """Ours."""

    make: Callable[[], Made] = staticmethod(_ours)

    def __init__(self) -> None:
        # Not in `setup`: asv calls that before every sample, and times the first call after it.
        self.broadcast, self.concatenate, plain, duck = self.make()
        self.tensor, self.duck = plain(), duck()
        self.tensors, self.ducks, self.mixed = [plain(), plain()], [duck(), duck()], [plain(), duck()]
        self.many = 500 * self.tensors

    def time_mock_broadcast_tensors_torch(self) -> None:
        """One tensor."""
        self.broadcast(self.tensor)

    def time_mock_broadcast_tensors_duck(self) -> None:
        """One argument with a handler."""
        self.broadcast(self.duck)

    def time_mock_concatenate_torch(self) -> None:
        """Two tensors."""
        self.concatenate(self.tensors, dim=0)

    def time_mock_concatenate_many(self) -> None:
        """1,000 tensors."""
        self.concatenate(self.many, dim=0)

    def time_mock_concatenate_duck(self) -> None:
        """Two arguments with handlers."""
        self.concatenate(self.ducks, dim=0)

    def time_mock_concatenate_mixed(self) -> None:
        """A tensor and an argument with a handler."""
        self.concatenate(self.mixed, dim=0)


class Literal(TorchFunction):
    """The algorithm as it is documented."""

    make = staticmethod(_literal)


class ArrayFunction(TorchFunction):
    """numpy's own, in C."""

    make = staticmethod(_numpy)


if find_spec("torch"):

    class Torch(TorchFunction):
        """torch's own, in C++ behind a Python function."""

        make = staticmethod(_torch)


class PlainPath:
    """What tensors pay for a function being overridable."""

    def __init__(self) -> None:
        self.broadcast, self.concatenate, plain, _ = _ours()
        self.tensor, self.tensors = plain(), [plain(), plain()]

    def track_broadcast_tensors(self) -> float:
        """One tensor."""
        return _over(self.broadcast, broadcast_tensors, "f(x)", self.tensor)

    def track_concatenate(self) -> float:
        """Two tensors."""
        return _over(self.concatenate, concatenate, "f(x)", self.tensors)

    def track_concatenate_dim(self) -> float:
        """Two tensors, and the dimension by name."""
        return _over(self.concatenate, concatenate, "f(x, dim=0)", self.tensors)

    for _track in (track_broadcast_tensors, track_concatenate, track_concatenate_dim):
        _track.unit = "ns"  # type: ignore[attr-defined]  # asv reads it


def _over(function: Any, undecorated: Any, call: str, x: Any) -> float:
    """Nanoseconds of a call over one of the undecorated function; rounds of both take turns."""
    timers = [timeit.Timer(call, globals={"f": one, "x": x}) for one in (function, undecorated)]
    rounds = [[timer.timeit(1_000) / 1_000 * 1e9 for timer in timers] for _ in range(300)]
    return min(one for one, _ in rounds) - min(other for _, other in rounds)


_CASES = {
    "time_mock_broadcast_tensors_torch": "one tensor",
    "time_mock_concatenate_torch": "two tensors",
    "time_mock_concatenate_many": "1,000 tensors",
    "time_mock_broadcast_tensors_duck": "one argument with a handler",
    "time_mock_concatenate_duck": "two arguments with handlers",
    "time_mock_concatenate_mixed": "a tensor and an argument with a handler",
}
_COLUMNS = {"TorchFunction": "dispatchlab", "Literal": "literal algorithm", "ArrayFunction": "numpy", "Torch": "torch"}


def report() -> str:
    """All figures of one run beside each other, as docs/performance.md has them; short rounds of all take turns."""
    kinds: list[type[TorchFunction]] = [TorchFunction, *TorchFunction.__subclasses__()]
    made = {kind.__name__: kind() for kind in kinds}
    lines = [
        f"| ns | {' | '.join(_COLUMNS[name] for name in made)} | dispatchlab / literal |",
        "|---" * (len(made) + 2) + "|",
    ]
    for name, case in _CASES.items():
        number = 10 if name.endswith("many") else 500
        calls = {which: timeit.Timer(getattr(one, name)) for which, one in made.items()}
        best = dict.fromkeys(made, float("inf"))
        for _ in range(400):
            for which, timer in calls.items():
                best[which] = min(best[which], timer.timeit(number) / number * 1e9)
        figures = " | ".join(f"{value:,.0f}" for value in best.values())
        lines.append(f"| {case} | {figures} | {best['TorchFunction'] / best['Literal']:.2f} |")
    plain = PlainPath()
    over = (plain.track_broadcast_tensors(), plain.track_concatenate(), plain.track_concatenate_dim())
    lines += ["", f"Over the undecorated function: {', '.join(f'{one:.0f} ns' for one in over)}.", "", _machine()]
    return "\n".join(lines)


def _machine() -> str:
    cpus = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", cpus.read_text(encoding="utf-8")) if cpus.exists() else []
    packages = [name for name in ("numpy", "torch") if find_spec(name)]
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return f"{names[0] if names else platform.machine()}, Python {platform.python_version()}, {versions}."


if __name__ == "__main__":
    print(report())  # noqa: T201
