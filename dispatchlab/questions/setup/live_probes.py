"""Probes of the running PyTorch: each tries one feature of dispatchlab on it, and raises what that raises.

They run in a worker process. A probe returns a sentence about what it saw.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from dispatchlab.errors import DispatchLabError

_SOURCE = """
import torch

library = torch.library.Library(__name__, "DEF")
library.define("plain(Tensor x) -> Tensor")
library.impl("plain", lambda x: x, "CPU")

@torch.library.custom_op(f"{__name__}::custom", mutates_args=())
def custom(x: torch.Tensor) -> torch.Tensor:
    return x.clone()

@custom.register_fake
def _(x):
    return torch.empty_like(x)
"""


class ProbeFailed(DispatchLabError):
    """A feature ran to its end, and its result is wrong or not complete."""

    reason: str

    template = "{reason}"


class NotOffered(ProbeFailed):
    """A feature is for other versions of PyTorch."""


def keys() -> str:
    """The dispatch keys are known: what is read, written and predicted names them."""
    from dispatchlab.live.bridge.running_keys import running_keys
    from dispatchlab.live.introspection.queries import limits_of, unknown_keys

    if unknown := unknown_keys():
        raise ProbeFailed(limits_of(unknown))
    return f"{len(running_keys().numbers)} keys, all of them known"


def registry() -> str:
    """Every operator can be read: what `dump`, `check`, `diff`, `coverage`, `permute` and `explain` do with `live`."""
    from dispatchlab.errors import ParseError
    from dispatchlab.live.introspection.registry_reader import record_registry
    from dispatchlab.model.printed_schema import parse_printed

    found = record_registry()
    unreadable: list[str] = []
    for operator in found:
        try:
            if operator.schema is not None:
                parse_printed(operator.schema)
        except ParseError:
            unreadable.append(str(operator.name))
    if unreadable:
        from dispatchlab.views.formatting import first_of

        raise ProbeFailed(f"{len(unreadable)} of {len(found):,} schemas cannot be read: {first_of(unreadable, 3)}")
    return f"{len(found):,} operators, {found.kernel_count:,} kernels and {len(found.fallbacks)} fallbacks read"


def slots() -> str:
    """The slots that calls use can be read; without that `permute --engine torch` finds fewer defects."""
    from dispatchlab.live.introspection.slot_memory import memory_layout

    layout = memory_layout()
    if layout is None:
        where = "" if sys.platform == "linux" else f" on {sys.platform}"
        raise ProbeFailed(f"the slots that calls use cannot be read{where}: only whether they are filled is compared")
    return "the slots that calls use are read from memory"


def record() -> str:
    """A package can be recorded, each registration with its call site."""
    from dispatchlab.live.recording.record_package import record_packages

    with _package("record") as package:
        found = record_packages((package,))
    wrong = [site for site in found.sites if package not in site]
    if found.operators != 2 or wrong or found.unreadable:
        raise ProbeFailed(
            f"recorded {found.operators} of 2 operators at {', '.join(found.sites) or 'no line'}"
            + "".join(f"; {each}" for each in found.unreadable)
        )
    return f"{found.registrations} registrations of a package recorded, each with its line"


def imports() -> str:
    """A run of imports can be observed, which is what `check --orders` compares."""
    from dispatchlab.live.recording.order_runs import run_orders

    with _package("imports") as package:
        (run,) = run_orders(((package,),), 300, 1)
    if run.ended:
        raise ProbeFailed(run.ended)
    missing = [
        name for name in (f"{package}::custom", f"{package}::plain") if f"registrations of {name}" not in run.found
    ]
    if missing:
        raise ProbeFailed(f"registered and not seen: {' and '.join(missing)}")
    return f"{sum(what.startswith('registrations of ') for what in run.found)} operators seen after an import"


def leaks() -> str:
    """The fixture `dispatcher_leaks` sees a registration that stays, and none after its release."""
    from dispatchlab.live.bridge.torch import torch
    from dispatchlab.questions.leaks import Watch

    library = torch().library.Library("dispatchlab_doctor_leaks", "DEF")
    library.define("warm(Tensor x) -> Tensor")
    watch = Watch()
    if found := watch.leaks():
        raise ProbeFailed(f"{len(found)} registrations are reported where nothing leaks")
    library.define("leaks(Tensor x) -> Tensor")
    seen = watch.leaks()
    library._destroy()
    if not seen:
        raise ProbeFailed("a registration that was not released is not seen")
    return "a registration that stays is seen"


@contextmanager
def _package(name: str) -> Iterator[str]:
    """A package on the path that registers two operators when it is imported; its name."""
    module = f"dispatchlab_doctor_{name}"
    with TemporaryDirectory() as folder:
        Path(folder, f"{module}.py").write_text(_SOURCE, encoding="utf-8")
        sys.path.insert(0, folder)
        try:
            yield module
        finally:
            sys.path.remove(folder)
